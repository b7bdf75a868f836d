-- What each client package asks in SQL, in one statement. Each function runs with its caller's rights.

-- Which of these scopes is in the way, and how it stands: the first that a newcomer does not get, or the first of all where there is none. Returns
-- one row. holders_now changes when other holders have the scope. Locks nothing.
create or replace function leasehold.contention(namespaces text[], keys text[], modes text[] default null)
returns table (
  n integer, state text, holder text, advice text, waiters integer, holders integer, units_free integer, is_alive boolean, silent_s double precision,
  held_s double precision, holders_now text)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select i.n::integer, e.state, e.holder, e.advice, e.waiters, e.holders,
         case when e.state = 'held' then 0 * c.capacity else c.capacity - least(coalesce(e.units, 0), c.capacity) end,
         e.liveness in ('alive', 'overdue'), case when e.liveness is not null then extract(epoch from clock_timestamp() - e.last_heartbeat_at)::double precision end,
         case when e.liveness is not null then extract(epoch from clock_timestamp() - e.since)::double precision end, concat(e.since, '/', e.token, '/', e.holders)
    from unnest(contention.namespaces, contention.keys, contention.modes) with ordinality i (namespace, key, mode, n)
   cross join lateral leasehold.explain(i.namespace, i.key) e
   cross join lateral (select (e.policy ->> 'capacity')::integer as capacity) c
   order by e.waiters > 0 or e.state in ('held', 'resting') or (e.state = 'shared' and i.mode is distinct from 'shared') desc, i.n
   limit 1
$$;
comment on function leasehold.contention is
  'The first of these scopes that is in the way, and how it stands. Example:
  select * from leasehold.contention(array[''jobs''], array[''nightly''], array[''exclusive''])';

-- Renew leases. Returns, in their order, the seconds until the deadline, how many of the duration were given, and, where a lease is lost, the
-- reason. Waits 200 ms for whoever has a scope's row, then fails; locks as heartbeat() does.
create or replace function leasehold.heartbeat_each(namespaces text[], keys text[], lease_keys uuid[])
returns table (left_s double precision, given_s double precision, reason text)
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
declare
  v_deadline timestamptz;
begin
  for i in 1 .. cardinality(lease_keys) loop
    v_deadline := leasehold.heartbeat(namespaces[i], keys[i], lease_keys[i]);
    left_s := extract(epoch from v_deadline - clock_timestamp());
    given_s := extract(epoch from v_deadline - statement_timestamp());
    reason := case when v_deadline is null then coalesce(leasehold.end_reason(namespaces[i], keys[i], lease_keys[i]), 'unknown') end;
    return next;
  end loop;
end
$$;
comment on function leasehold.heartbeat_each is
  'Renew several leases: a row for each, with the reason where it is lost. Example:
  select * from leasehold.heartbeat_each(array[''jobs''], array[''nightly''], array[:''lease_key'']::uuid[])';

-- Release leases: as failed with an error, or with a result, '' and null being none. Returns, in their order, null, or the reason where a lease is lost.
-- Waits so long for whoever has a scope's row, for ever with 0, then fails; locks as release_ok() does.
create or replace function leasehold.release_each(
  namespaces text[], keys text[], lease_keys uuid[], failed boolean[], words text[], patience interval default '200 ms')
returns setof text
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
declare
  v_done boolean;
begin
  perform set_config('lock_timeout', (extract(epoch from patience) * 1000)::integer::text, true); -- until the function returns
  for i in 1 .. cardinality(lease_keys) loop
    if failed[i] then
      v_done := leasehold.release_fail(namespaces[i], keys[i], lease_keys[i], words[i]);
    else
      v_done := leasehold.release_ok(namespaces[i], keys[i], lease_keys[i], nullif(words[i], '')::jsonb);
    end if;
    return next case when not v_done then coalesce(leasehold.end_reason(namespaces[i], keys[i], lease_keys[i]), 'unknown') end;
  end loop;
end
$$;
comment on function leasehold.release_each is
  'Release several leases: null for each, or the reason where it is lost. Example:
  select leasehold.release_each(array[''jobs''], array[''nightly''], array[:''lease_key'']::uuid[], array[false], array[''{"rows": 3}''])';

-- Let others share a lease, or give units of it back. Returns what downgrade() does, and waits 200 ms for whoever has the scope's row, then fails;
-- locks as downgrade() does.
create or replace function leasehold.downgrade_soon(namespace text, key text, lease_key uuid, units integer default 1)
returns setof leasehold.lease
language sql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
  select * from leasehold.downgrade(downgrade_soon.namespace, downgrade_soon.key, downgrade_soon.lease_key, downgrade_soon.units)
$$;
comment on function leasehold.downgrade_soon is
  'downgrade, which fails where another transaction keeps the row. Example:
  select d.token, d.mode from leasehold.acquire(''jobs'', ''weekly'', ''30 s'') a cross join lateral leasehold.downgrade_soon(a.namespace, a.key, a.lease_key) d';

-- What a client reads of a lease: its token, the seconds until its deadline, what it holds, and whether renewals are over. Locks nothing.
create or replace function leasehold.granted(lease leasehold.lease)
returns table (token bigint, left_s double precision, units integer, slots integer[], is_final boolean)
language sql stable
as $$
  select lease.token, extract(epoch from lease.deadline - clock_timestamp())::double precision, lease.units, lease.slots,
         lease.deadline < lease.heartbeat_at + lease.duration
$$;
comment on function leasehold.granted is
  'What a client reads of a lease. Example:
  select g.* from leasehold.acquire_all(array[''jobs''], array[''monthly''], ''30 s'') a cross join lateral leasehold.granted(a) g';

-- Acquire, with durations in seconds. Returns granted() of the lease, no row where it is held; locks as acquire() does. A session plans the
-- statement once, as it is in PL/pgSQL.
create or replace function leasehold.acquire_one(
  namespace text, key text, duration_s double precision, owner text, lease_key uuid, labels jsonb, at_least_s double precision, mode text, quantity integer,
  priority integer)
returns table (token bigint, left_s double precision, units integer, slots integer[], is_final boolean)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  return query
    select g.*
      from leasehold.acquire(acquire_one.namespace, acquire_one.key, make_interval(secs => acquire_one.duration_s), acquire_one.owner, acquire_one.lease_key, acquire_one.labels, acquire_one.mode,
                             acquire_one.quantity, make_interval(secs => acquire_one.at_least_s), acquire_one.priority) a
     cross join lateral leasehold.granted(a) g;
end
$$;
comment on function leasehold.acquire_one is
  'Acquire, with durations in seconds. Example:
  select token, left_s from leasehold.acquire_one(''jobs'', ''yearly'', 30, ''me'', gen_random_uuid(), ''{}'', null, ''exclusive'', 1, 0)';

-- Give up places in the queue. Returns, in their order, whether there was one. Waits 200 ms for whoever has a scope's row, then fails; locks as
-- leave_queue() does.
create or replace function leasehold.leave_each(namespaces text[], keys text[], lease_keys uuid[]) returns setof boolean
language sql
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
  select leasehold.leave_queue(i.namespace, i.key, i.lease_key)
    from unnest(leave_each.namespaces, leave_each.keys, leave_each.lease_keys) i (namespace, key, lease_key)
$$;
comment on function leasehold.leave_each is
  'Give up several places in the queue: whether there was one. Example:
  select leasehold.leave_each(array[''jobs''], array[''nightly''], array[:''lease_key'']::uuid[])';

-- The open requests to hand leases over, of the nth each; times are microseconds, since 1970 or from now. Locks nothing.
create or replace function leasehold.asked_each(namespaces text[], keys text[], lease_keys uuid[])
returns table (
  n integer, asked_us bigint, asked_by text, principal text, reason text, answer_by_us bigint, answer_in_us bigint, refusal text, owner text, token bigint)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select i.n::integer, leasehold_internal.to_us(a.asked_at - timestamptz 'epoch'), coalesce(a.asked_by, ''), coalesce(a.principal, ''), a.reason,
         leasehold_internal.to_us(a.answer_by - timestamptz 'epoch'), leasehold_internal.to_us(a.answer_in), '', '', 0::bigint
    from leasehold.asked(asked_each.lease_keys) a
    join unnest(asked_each.namespaces, asked_each.keys, asked_each.lease_keys) with ordinality i (namespace, key, lease_key, n)
      on i.namespace = a.namespace and i.key = a.key and i.lease_key = a.lease_key
$$;
comment on function leasehold.asked_each is
  'The open requests to hand leases over. Example:
  select n, asked_by, reason from leasehold.asked_each(array[''jobs''], array[''nightly''], array[:''lease_key'']::uuid[])';

-- Ask the holders of a scope to hand it over. Returns what asked_each() does, of the nth holder each; does what ask_hand_over() does.
create or replace function leasehold.ask_each(namespace text, key text, lease_key uuid, words text)
returns table (
  n integer, asked_us bigint, asked_by text, principal text, reason text, answer_by_us bigint, answer_in_us bigint, refusal text, owner text, token bigint)
language sql
set search_path = pg_catalog, pg_temp
as $$
  select (row_number() over ())::integer, leasehold_internal.to_us(a.asked_at - timestamptz 'epoch'), coalesce(a.asked_by, ''), coalesce(a.principal, ''),
         a.reason, leasehold_internal.to_us(a.answer_by - timestamptz 'epoch'),
         leasehold_internal.to_us(greatest(a.answer_by - clock_timestamp(), interval '0')), coalesce(a.refusal, ''), coalesce(a.owner, ''), coalesce(a.token, 0)
    from leasehold.ask_hand_over(ask_each.namespace, ask_each.key, ask_each.lease_key, ask_each.words) a
$$;
comment on function leasehold.ask_each is
  'Ask the holders of a scope to hand it over. Example:
  select n, owner, answer_in_us from leasehold.ask_each(''jobs'', ''nightly'', null, ''its host is drained'')';

grant execute on function leasehold.contention, leasehold.heartbeat_each, leasehold.release_each, leasehold.downgrade_soon, leasehold.granted, leasehold.acquire_one,
  leasehold.leave_each, leasehold.asked_each, leasehold.ask_each to leasehold_client, leasehold_admin;
