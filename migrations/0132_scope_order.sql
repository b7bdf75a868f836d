-- The columns of leasehold.scope in the order in which they change: a grant writes those from heartbeat_at to lease_key, a release those from state
-- to ended_keys, and a WAL record has all that is between the first and the last byte that differ. It was 394 bytes for the two.
-- In a new database alone: elsewhere each row would be written anew, and nobody could renew meanwhile. Any order is right.
do $$
declare
  c_columns constant text[] := '{namespace, key, check_at, incarnation, reap_failures, lapsed, queued, duration, grace, reap_error, reap_failed_at,
    next_try_at, at_least, at_least_incarnation, units, holders, slots, together, labels, principal, owner, granted_by, last_error, last_result,
    last_outcome, heartbeats, heartbeat_at, deadline, token, acquired_at, state, lease_key, ended_at, ended_keys, ended_outcomes}';
  v_columns text;
  v_options text;
  v_comment text;
begin
  if to_regclass('leasehold.lease') is not null then
    return; -- it has its functions and views already
  end if;
  lock table leasehold.scope in access exclusive mode;
  if exists (select from leasehold.scope) then
    return;
  end if;
  alter table leasehold.scope rename to scope_before;
  alter table leasehold.scope_before drop constraint scope_pkey;
  drop index leasehold.scope_check_at;
  select string_agg(format('%I %s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod), case when a.attname in ('namespace', 'key') then ' collate "C"' end,
                           ' default ' || pg_get_expr(d.adbin, d.adrelid), case when a.attnotnull then ' not null' end),
                    ', ' order by array_position(c_columns, a.attname::text)),
         string_agg(format('comment on column leasehold.scope.%I is %L', a.attname, col_description(a.attrelid, a.attnum)), '; ')
    into v_columns, v_comment
    from pg_attribute a
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
   where a.attrelid = 'leasehold.scope_before'::regclass and a.attnum > 0;
  select array_to_string(c.reloptions, ', '), format('comment on table leasehold.scope is %L; ', obj_description(c.oid, 'pg_class')) || v_comment
    into v_options, v_comment
    from pg_class c
   where c.oid = 'leasehold.scope_before'::regclass;
  execute format('create table leasehold.scope (%s, constraint scope_pkey primary key (namespace, key)) with (%s)', v_columns, v_options);
  create index scope_check_at on leasehold.scope (check_at);
  execute v_comment;
  alter type leasehold.acquire_work alter attribute scope type leasehold.scope, alter attribute holder type leasehold.scope;
  alter type leasehold.item_work alter attribute scope type leasehold.scope;
  drop table leasehold.scope_before;
end
$$;
