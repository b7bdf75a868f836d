-- What is wrong with a value, as the limit in words; null when nothing is. One definition for single calls and batches.
-- They lock nothing.

-- In plpgsql, for its plan is kept: the body of a function in SQL that cannot be inlined is parsed in every query.
create or replace function leasehold.namespace_problem(p_namespace text) returns text
language plpgsql immutable parallel safe
as $$
begin
  return case
    when p_namespace is null or p_namespace = '' then '1 to 16 segments of 1 to 63 bytes'
    when octet_length(p_namespace) > 255 then 'at most 255 bytes in all'
    when p_namespace ~ '[\x01-\x1f\x7f-\x9f]' then 'no control characters'
    when p_namespace ~ '^\.|\.\.|\.$' then 'no empty segment'
    when p_namespace ~ '^([^.]*\.){16}' then 'at most 16 segments'
    when octet_length(p_namespace) > 63
         and exists (select 1 from unnest(string_to_array(p_namespace, '.')) s where octet_length(s) > 63)
      then 'segments of at most 63 bytes'
  end;
end
$$;

create or replace function leasehold.key_problem(p_key text) returns text
language sql immutable parallel safe
as $$
  select case
    when p_key is null or p_key = '' then '1 to 1024 bytes'
    when octet_length(p_key) > 1024 then 'at most 1024 bytes'
    when p_key ~ '[\x01-\x1f\x7f-\x9f]' then 'no control characters'
  end
$$;

create or replace function leasehold.labels_problem(p_labels jsonb) returns text
language sql immutable parallel safe
as $$
  select case
    when p_labels is null or jsonb_typeof(p_labels) <> 'object' then 'a JSON object of strings'
    when p_labels = '{}' then null
    when (select count(*) from jsonb_object_keys(p_labels)) > 16 then 'at most 16 labels'
    else (select case
            when jsonb_typeof(l.value) <> 'string' then 'values are strings'
            when l.key = '' or octet_length(l.key) > 63 then 'names of 1 to 63 bytes'
            when octet_length(l.value #>> '{}') > 255 then 'values of at most 255 bytes'
          end
            from jsonb_each(p_labels) l
           where jsonb_typeof(l.value) <> 'string' or l.key = '' or octet_length(l.key) > 63
              or octet_length(l.value #>> '{}') > 255
           limit 1)
  end
$$;

-- Raise LH002: `p_field` in DETAIL, the limit in HINT.
create or replace function leasehold.refuse(p_field text, p_bound text) returns void
language plpgsql
as $$
begin
  raise exception 'invalid_argument: % must be %', p_field, p_bound
    using errcode = 'LH002', detail = p_field, hint = p_bound;
end
$$;

create or replace function leasehold.check_scope(p_namespace text, p_key text) returns void
language plpgsql
as $$
declare
  v_problem text;
begin
  v_problem := leasehold.namespace_problem(p_namespace);
  if v_problem is not null then
    perform leasehold.refuse('namespace', v_problem);
  end if;
  v_problem := leasehold.key_problem(p_key);
  if v_problem is not null then
    perform leasehold.refuse('key', v_problem);
  end if;
end
$$;

-- Microseconds of an interval. Leases hold plain seconds: a day is 24 hours here, whatever a calendar says.
create or replace function leasehold.to_us(p_interval interval) returns bigint
language sql immutable parallel safe
as $$
  select (extract(epoch from p_interval) * 1000000)::bigint
$$;

create or replace function leasehold.from_us(p_us bigint) returns interval
language sql immutable parallel safe
as $$
  select p_us * interval '1 microsecond'
$$;

revoke execute on function leasehold.namespace_problem(text), leasehold.key_problem(text), leasehold.labels_problem(jsonb),
  leasehold.refuse(text, text), leasehold.check_scope(text, text), leasehold.to_us(interval), leasehold.from_us(bigint)
  from public;
