-- The coordinators that are live: seen within 5 s. Locks nothing.
create or replace function leasehold.live_coordinators(p_now timestamptz) returns uuid[]
language plpgsql stable
as $$
begin
  return array(select c.id from leasehold.coordinator c where c.seen_at > p_now - interval '5 s');
end
$$;

-- The first live waiter of a scope, or no row: not away, its wait not over, its coordinator (if any) live. Read it in a
-- statement after the one that locked the scope's row, or lose a wake-up. Locks nothing.
create or replace function leasehold.live_head(p_namespace text, p_key text, p_live uuid[], p_now timestamptz)
returns table (ticket bigint, lease_key uuid, coordinator uuid)
language sql stable
as $$
  select w.ticket, w.lease_key, w.coordinator
    from leasehold.waiter w
   where w.namespace = p_namespace and w.key = p_key
     and w.away_until is null
     and (w.wait_until is null or w.wait_until > p_now)
     and (w.coordinator is null or w.coordinator = any (p_live))
   order by w.namespace, w.key, w.ticket
   limit 1
$$;

-- The tickets of the live waiters of a scope, in order: the first 1,000, so that joining a long queue costs no more than
-- joining a short one. Places beyond are told as 1,000 ahead. Locks nothing.
create or replace function leasehold.live_tickets(p_namespace text, p_key text, p_live uuid[], p_now timestamptz)
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
create or replace function leasehold.tickets_ahead(p_tickets bigint[], p_ticket bigint) returns integer
language sql immutable
as $$
  select case
    when cardinality(p_tickets) = 0 then 0
    when p_ticket is null then cardinality(p_tickets)
    else width_bucket(p_ticket - 1, p_tickets)
  end
$$;

-- Where a waiter is told that its turn has come: its coordinator's channel, or the SQL user's own. Locks nothing.
create or replace function leasehold.channel_of(p_coordinator uuid, p_lease_key uuid) returns text
language sql immutable
as $$
  select 'leasehold_' || case when p_coordinator is null then left(md5(p_lease_key::text), 16)
                              else replace(p_coordinator::text, '-', '') end
$$;

-- Tell the first live waiter of a scope that is not held. Returns true where that is `p_coordinator`'s own, which is then
-- told by this answer and not by NOTIFY. The caller has the scope's row locked, by an earlier statement.
create or replace function leasehold.wake_head(p_coordinator uuid, p_namespace text, p_key text) returns boolean
language plpgsql
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_head record;
begin
  select h.* into v_head
    from leasehold.live_head(p_namespace, p_key, leasehold.live_coordinators(v_now), v_now) h;
  if not found then
    return false;
  end if;
  if v_head.coordinator = p_coordinator then
    return true;
  end if;
  perform pg_notify(leasehold.channel_of(v_head.coordinator, v_head.lease_key), p_namespace || chr(10) || p_key);
  return false;
end
$$;

-- In REPEATABLE READ and SERIALIZABLE the queue cannot be seen: who queued since the snapshot was taken is invisible. Then
-- every live coordinator is told. Returns whether that is the case. Locks nothing.
create or replace function leasehold.is_blind() returns boolean
language sql stable
as $$
  select current_setting('transaction_isolation') in ('repeatable read', 'serializable')
$$;

create or replace function leasehold.wake_everybody(p_namespace text, p_key text, p_live uuid[]) returns void
language sql volatile
as $$
  select pg_notify(leasehold.channel_of(c, null), p_namespace || chr(10) || p_key) from unnest(p_live) c
$$;

-- The advisory lock under which the row of a scope that has none is created. Locks nothing by itself.
create or replace function leasehold.scope_lock(p_namespace text, p_key text) returns bigint
language sql immutable parallel safe
as $$
  select hashtextextended(p_namespace || chr(10) || p_key, 1818585960)
$$;

revoke execute on function leasehold.live_coordinators(timestamptz), leasehold.live_head(text, text, uuid[], timestamptz),
  leasehold.live_tickets(text, text, uuid[], timestamptz), leasehold.tickets_ahead(bigint[], bigint),
  leasehold.channel_of(uuid, uuid), leasehold.wake_head(uuid, text, text), leasehold.is_blind(),
  leasehold.wake_everybody(text, text, uuid[]), leasehold.scope_lock(text, text) from public;
