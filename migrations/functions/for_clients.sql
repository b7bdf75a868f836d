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

grant execute on function leasehold.contention, leasehold.heartbeat_each, leasehold.release_each, leasehold.downgrade_soon to leasehold_client, leasehold_admin;
