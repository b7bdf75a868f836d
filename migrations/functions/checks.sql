-- What is wrong with a value, as the limit in words; null when nothing is. One definition for single calls and batches.
-- They lock nothing.

-- In plpgsql, for its plan is kept: the body of a function in SQL that cannot be inlined is parsed in every query.
create or replace function leasehold_internal.namespace_problem(p_namespace text) returns text
language plpgsql immutable parallel safe
as $$
begin
  return case
    when p_namespace is null or p_namespace = '' then '1 to 16 segments of 1 to 63 bytes, has 0'
    when octet_length(p_namespace) > 255 then 'at most 255 bytes in all, has ' || octet_length(p_namespace)
    when p_namespace ~ E'[\\x01-\\x1f\\x7f-\\x9f]' then 'no control characters'
    when p_namespace ~ E'^\\.|\\.\\.|\\.$' then 'segments of 1 to 63 bytes, has 0'
    when p_namespace ~ E'^([^.]*\\.){16}' then 'at most 16 segments, has ' || cardinality(string_to_array(p_namespace, '.'))
    when octet_length(p_namespace) > 63
         and exists (select 1 from unnest(string_to_array(p_namespace, '.')) s where octet_length(s) > 63)
      then 'segments of 1 to 63 bytes, has ' || (select max(octet_length(s)) from unnest(string_to_array(p_namespace, '.')) s)
  end;
end
$$;

create or replace function leasehold_internal.key_problem(p_key text) returns text
language sql immutable parallel safe
as $$
  select case
    when p_key is null or p_key = '' or octet_length(p_key) > 1024 then '1 to 1024 bytes, has ' || coalesce(octet_length(p_key), 0)::text
    when p_key ~ E'[\\x01-\\x1f\\x7f-\\x9f]' then 'no control characters'
  end
$$;

create or replace function leasehold_internal.labels_problem(p_labels jsonb) returns text
language plpgsql immutable parallel safe
as $$
begin
  if p_labels = '{}' then
    return null;
  elsif p_labels is null or jsonb_typeof(p_labels) <> 'object' then
    return 'a JSON object of strings';
  elsif (select count(*) from jsonb_object_keys(p_labels)) > 16 then
    return 'at most 16 labels, has ' || (select count(*) from jsonb_object_keys(p_labels));
  end if;
  return (select case
            when jsonb_typeof(l.value) <> 'string' then 'values are strings'
            when l.key = '' or octet_length(l.key) > 63 then 'names of 1 to 63 bytes, has ' || octet_length(l.key)
            when octet_length(l.value #>> '{}') > 255 then 'values of at most 255 bytes, has ' || octet_length(l.value #>> '{}')
          end
            from jsonb_each(p_labels) l
           where jsonb_typeof(l.value) <> 'string' or l.key = '' or octet_length(l.key) > 63
              or octet_length(l.value #>> '{}') > 255
           limit 1);
end
$$;

-- A scope as errors tell it: a namespace that has a '/' stands in quotes, for a/b/k would name two. Locks nothing.
create or replace function leasehold_internal.scope_name(p_namespace text, p_key text) returns text
language sql immutable parallel safe
as $$
  select case when position('/' in p_namespace) > 0 then '"' || p_namespace || '"' else p_namespace end || '/' || left(p_key, 128)
$$;

-- What is wrong with a call, as a value; null when nothing is. Each function of the API raises it itself: LH002 with the field in DETAIL
-- and the bound in HINT, and no CONTEXT but its own.
create or replace function leasehold_internal.scope_problem(p_namespace text, p_key text) returns leasehold_internal.problem
language plpgsql immutable parallel safe
as $$
declare
  v_bound text := leasehold_internal.namespace_problem(p_namespace);
begin
  if v_bound is not null then
    return row('namespace', v_bound)::leasehold_internal.problem;
  end if;
  v_bound := leasehold_internal.key_problem(p_key);
  return case when v_bound is not null then row('key', v_bound)::leasehold_internal.problem end;
end
$$;

-- The same of a scope and a lease key.
create or replace function leasehold_internal.holder_problem(p_namespace text, p_key text, p_lease_key uuid)
returns leasehold_internal.problem
language plpgsql immutable parallel safe
as $$
begin
  return coalesce(leasehold_internal.scope_problem(p_namespace, p_key),
                  case when p_lease_key is null then row('lease_key', 'a UUID')::leasehold_internal.problem end);
end
$$;

-- Raise it, for functions that only programs call.
create or replace function leasehold_internal.refuse(p_problem leasehold_internal.problem) returns void
language plpgsql
as $$
begin
  if p_problem.field is not null then
    raise exception 'invalid_argument: % must be %', p_problem.field, p_problem.bound
      using errcode = 'LH002', detail = p_problem.field, hint = p_problem.bound;
  end if;
end
$$;

-- Microseconds of an interval. Leases hold plain seconds: a day is 24 hours here, whatever a calendar says.
create or replace function leasehold_internal.to_us(p_interval interval) returns bigint
language sql immutable parallel safe
as $$
  select (extract(epoch from p_interval) * 1000000)::bigint
$$;

create or replace function leasehold_internal.from_us(p_us bigint) returns interval
language sql immutable parallel safe
as $$
  select p_us * interval '1 microsecond'
$$;
