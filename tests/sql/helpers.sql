-- What the test files share. Loaded once into the template that each file gets a clone of.
create extension pgtap;
create schema t;
-- What hooks and functions of leasehold_owner use.
grant usage on schema t to leasehold_owner;
alter default privileges in schema t grant all on tables to leasehold_owner;

-- 'LH002 invalid_argument duration': SQLSTATE, condition, and for LH002 the field in DETAIL; '' when nothing was raised.
create function t.error_of(p_sql text) returns text
language plpgsql as $$
declare
  v_state text;
  v_message text;
  v_detail text;
begin
  execute p_sql;
  return '';
exception when others then
  get stacked diagnostics v_state = returned_sqlstate, v_message = message_text, v_detail = pg_exception_detail;
  return v_state || ' ' || split_part(v_message, ':', 1) || case when v_state = 'LH002' then ' ' || v_detail else '' end;
end
$$;

create function t.message_of(p_sql text) returns text
language plpgsql as $$
begin
  execute p_sql;
  return '';
exception when others then
  return sqlerrm;
end
$$;

-- Everything that callers could have changed, as one value to compare.
create function t.footprint() returns text
language sql as $$
  select md5(coalesce((select string_agg(s::text, E'\n' order by s.namespace, s.key) from leasehold.scope s), '')
          || coalesce((select string_agg(w::text, E'\n' order by w.namespace, w.key, w.ticket) from leasehold.waiter w), '')
          || coalesce((select string_agg(p::text, E'\n' order by p.namespace) from leasehold.policy p), ''))
$$;

-- Let time pass for one scope: everything it remembers happened that much earlier.
create function t.age(p_namespace text, p_key text, p_by interval) returns void
language sql as $$
  update leasehold.scope
     set acquired_at = acquired_at - p_by,
         heartbeat_at = heartbeat_at - p_by,
         deadline = deadline - p_by,
         ended_at = ended_at - p_by,
         check_at = check_at - p_by
   where namespace = p_namespace and key = p_key
$$;

create function t.is_near(p_have timestamptz, p_want timestamptz, p_name text, p_within interval default '20 s') returns text
language sql as $$
  select ok(coalesce(p_have between p_want - p_within and p_want + p_within, false), p_name)
      || case when p_have between p_want - p_within and p_want + p_within then ''
              else E'\n# have ' || coalesce(p_have::text, 'null') || E'\n# want ' || coalesce(p_want::text, 'null') end
$$;

-- How many rows a query has: an acquire that grants has one.
create function t.rows_of(p_sql text) returns integer
language plpgsql as $$
declare
  v_count integer;
begin
  execute 'select count(*) from (' || p_sql || ') q' into v_count;
  return v_count;
end
$$;

create function t.key(p_number integer) returns uuid
language sql immutable as $$
  select ('00000000-0000-4000-8000-' || lpad(p_number::text, 12, '0'))::uuid
$$;

-- A coordinator that stays live however slow the machine is.
create function t.enroll(p_coordinator uuid) returns void
language sql as $$
  select leasehold_internal.coordinator_register(p_coordinator, 'host', 1, '0.1.0');
  update leasehold.coordinator set seen_at = clock_timestamp() + interval '1 hour' where id = p_coordinator;
$$;

-- Is this role refused it for want of a privilege?
create function t.denied(p_role text, p_sql text) returns boolean
language plpgsql as $$
begin
  execute format('set local role %I', p_role);
  execute p_sql;
  reset role;
  return false;
exception when insufficient_privilege then
  reset role;
  return true;
end
$$;

grant usage on schema t to public;
