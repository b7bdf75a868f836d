-- The coordinators that are live: seen within 3.5 s. The others look once a second, so the waiters of one that died are passed
-- over within 5 s. Locks nothing.
create or replace function leasehold_internal.live_coordinators(p_now timestamptz) returns uuid[]
language plpgsql stable
as $$
begin
  return array(select c.id from leasehold.coordinator c where c.seen_at > p_now - interval '3.5 s');
end
$$;

-- Promise 6: first come, first served, among those who are live.
-- The first live waiter of a scope that is none of `p_but`, or no row: not away, its wait not over, its coordinator (if any) live. Read it in a
-- statement after the one that locked the scope's row, or lose a wake-up. Locks nothing.
create or replace function leasehold_internal.live_head(
  p_namespace text, p_key text, p_live uuid[], p_now timestamptz, p_but uuid[] default '{}')
returns table (ticket bigint, lease_key uuid, coordinator uuid, units integer, items smallint)
language sql stable
as $$
  select w.ticket, w.lease_key, w.coordinator, w.units, w.items
    from leasehold.waiter w
   where w.namespace = p_namespace and w.key = p_key
     and w.away_until is null
     and w.lease_key <> all (p_but)
     and (w.wait_until is null or w.wait_until > p_now)
     and (w.coordinator is null or w.coordinator = any (p_live))
   order by w.namespace, w.key, w.ticket
   limit 1
$$;

-- The tickets of the live waiters of a scope, in order: the first 1,000, so that joining a long queue costs no more than
-- joining a short one. Places beyond are told as 1,000 ahead. Locks nothing.
create or replace function leasehold_internal.live_tickets(p_namespace text, p_key text, p_live uuid[], p_now timestamptz)
returns bigint[]
language plpgsql stable
as $$
begin
  return array(
    select w.ticket
      from leasehold.waiter w
     where w.namespace = p_namespace and w.key = p_key
       and w.away_until is null
       and (w.wait_until is null or w.wait_until > p_now)
       and (w.coordinator is null or w.coordinator = any (p_live))
     order by w.namespace, w.key, w.ticket
     limit 1000);
end
$$;

-- How many of the (sorted) tickets come before this one; all of them when it is null. Locks nothing.
create or replace function leasehold_internal.tickets_ahead(p_tickets bigint[], p_ticket bigint) returns integer
language sql immutable
as $$
  select case
    when cardinality(p_tickets) = 0 then 0
    when p_ticket is null then cardinality(p_tickets)
    else width_bucket(p_ticket - 1, p_tickets)
  end
$$;

-- Where a waiter is told that its turn has come: its coordinator's channel, or the SQL user's own. Locks nothing.
create or replace function leasehold_internal.channel_of(p_coordinator uuid, p_lease_key uuid) returns text
language sql immutable
as $$
  select 'leasehold_' || case when p_coordinator is null then left(md5(p_lease_key::text), 16)
                              else replace(p_coordinator::text, '-', '') end
$$;

-- Tell the first live waiter of a scope that is not held exclusively; where it is shared, if there is room for it. Returns true where that is `p_coordinator`'s own, which is then
-- told by this answer and not by NOTIFY. The caller has the scope's row locked, by an earlier statement.
create or replace function leasehold_internal.wake_head(p_coordinator uuid, p_namespace text, p_key text) returns boolean
language plpgsql
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_head record;
begin
  select h.* into v_head
    from leasehold_internal.live_head(p_namespace, p_key, leasehold_internal.live_coordinators(v_now), v_now) h;
  if not found
     or exists (select from leasehold.scope s
                 where s.namespace = p_namespace and s.key = p_key and s.state = 'shared'
                   and not leasehold_internal.has_room(s, v_head.units)) then
    return false;
  end if;
  if v_head.coordinator = p_coordinator then
    return true;
  end if;
  perform pg_notify(leasehold_internal.channel_of(v_head.coordinator, v_head.lease_key), p_namespace || chr(10) || p_key);
  return false;
end
$$;

-- In REPEATABLE READ and SERIALIZABLE the queue cannot be seen: who queued since the snapshot was taken is invisible. Then
-- every live coordinator is told. Returns whether that is the case. Locks nothing.
create or replace function leasehold_internal.is_blind() returns boolean
language sql stable
as $$
  select current_setting('transaction_isolation') in ('repeatable read', 'serializable')
$$;

create or replace function leasehold_internal.wake_everybody(p_namespace text, p_key text, p_live uuid[]) returns void
language sql volatile
as $$
  select pg_notify(leasehold_internal.channel_of(c, null), p_namespace || chr(10) || p_key) from unnest(p_live) c
$$;

-- Leases of these scopes have been ended on the quick path, which does not look at the queue: tell SQL users who joined while they
-- were held, and let the reaper look soon, should that get lost. The caller has the rows locked, by an earlier statement.
create or replace function leasehold_internal.wake_sql_users(p_namespace text[], p_key text[]) returns void
language plpgsql
set enable_seqscan = off
as $$
begin
  update leasehold.scope s
     set queued = true,
         check_at = least(s.check_at, clock_timestamp() + interval '1 s')
    from unnest(p_namespace, p_key) as w (namespace, key)
   cross join lateral (select x.ctid as row_id from leasehold.scope x where x.namespace = w.namespace and x.key = w.key offset 0) x
   where s.ctid = x.row_id and s.state = 'free'
     and exists (select from leasehold.waiter q
                  where q.coordinator is null and q.namespace = w.namespace and q.key = w.key);
  perform leasehold_internal.wake_head(null, w.namespace, w.key)
     from unnest(p_namespace, p_key) as w (namespace, key)
    where exists (select from leasehold.waiter q
                   where q.coordinator is null and q.namespace = w.namespace and q.key = w.key);
end
$$;

-- The row of leasehold.creation under whose lock a scope that has none is created. Two scopes may share a slot; the seed, which no
-- client can read, keeps it from being chosen. Locks nothing by itself.
create or replace function leasehold_internal.creation_slot(p_namespace text, p_key text, p_seed bigint) returns integer
language sql immutable parallel safe
as $$
  select (hashtextextended(p_namespace || chr(10) || p_key, p_seed) & 65535)::integer
$$;

-- Why a SQL client may not create these scopes in its transaction, those among them that are new, or with `p_is_limited` join their queues where
-- max_waiters is set; null: it may. Each makes 1 of 65,536 others busy until the transaction ends, of any namespace. Locks rows of ended transactions in leasehold.creator, and the caller's
-- own; waits for nobody.
create or replace function leasehold_internal.creation_problem(p_namespace text[], p_key text[], p_is_limited boolean default false) returns text
language plpgsql
as $$
declare
  c_most constant integer := 1000;
  v_new constant integer := count(*)
                              from unnest(p_namespace, p_key) n (namespace, key)
                             where p_is_limited or not exists (select from leasehold.scope s
                                                              where s.namespace = n.namespace and s.key = n.key
                                                             offset 0);
  v_scopes integer;
begin
  if v_new = 0 or leasehold_internal.is_above_rules() then
    return null;
  end if;
  insert into leasehold.creator as c (xact, scopes)
  values (pg_current_xact_id(), v_new)
      on conflict (xact) do update set scopes = c.scopes + excluded.scopes
  returning c.scopes into v_scopes;
  -- A transaction with an older snapshot would fail on rows that are gone.
  if v_scopes = v_new and current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
    delete from leasehold.creator c
     where c.xact in (select e.xact
                        from leasehold.creator e
                       where e.xact < pg_snapshot_xmin(pg_current_snapshot())
                       limit 100
                         for update skip locked);
  end if;
  return case when v_scopes > c_most
              then format(case when p_is_limited then 'a transaction joins at most %s queues that have a limit, and this one has; '
                               else 'a transaction creates at most %s scopes, and this one has; ' end
                          || 'commit it, and go on in another', c_most) end;
end
$$;
