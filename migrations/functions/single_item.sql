-- Of batches of one, which is what an idle coordinator sends: plans of one row start in a fraction of the time that the batch's own
-- plan takes. In few statements and few expressions, for plpgsql prepares each of them again in every transaction, and that is most
-- of what such a batch costs.

-- Is there nothing about this acquire that the rules, or its own values, are against? `p_has_room`: one more is within max_leases. To be used in a
-- query, where it becomes a part of it. Locks nothing.
create or replace function leasehold_internal.is_plain(
  p_rules leasehold.rules, p_key text, p_owner text, p_labels text, p_duration_us bigint, p_wait_us bigint, p_has_room boolean default false)
returns boolean
language sql stable
as $$
  select not (p_rules).frozen and leasehold_internal.has_key((p_rules).slots, p_key) and ((p_rules).max_leases is null or p_has_room)
         and (p_rules).at_least is null and leasehold_internal.hold_limit(p_rules) is null and p_duration_us >= 100000
         and leasehold_internal.from_us(p_duration_us) between (p_rules).min_duration and (p_rules).max_duration
         and coalesce(p_wait_us, 0) >= 0 and coalesce(octet_length(p_owner), 0) <= 255
         and (p_labels = '{}' or leasehold_internal.labels_problem(p_labels::jsonb) is null)
$$;

-- What is to be known of a namespace, and of an acquire in it, before it gets a place in the queue in few statements; no row where anything is
-- unusual. To be used in FROM, where it becomes a part of the query. Locks nothing.
create or replace function leasehold_internal.plain_wait(
  p_clock timestamptz, p_namespace text, p_key text, p_owner text, p_labels text, p_duration_us bigint, p_wait_us bigint, p_units integer)
returns table (life leasehold.life_now, rules leasehold.rules)
language sql stable
as $$
  select row(f.id, f.started_at,
             f.is_whole and (p_clock is null or clock_timestamp() <= p_clock + interval '1 s') and not f.is_unattended)::leasehold.life_now,
         r
    from leasehold_internal.life_facts() f, leasehold_internal.rules_of(p_namespace) r
   where f.is_same and r.max_waiters is null
     and leasehold_internal.is_plain(r, p_key, p_owner, p_labels, p_duration_us, p_wait_us)
     and (p_units is null or p_units between 1 and coalesce(r.capacity, 1000000))
     and not (exists (select from leasehold.registered_hook) and leasehold_internal.is_hooked(p_namespace, 'acquire'))
  offset 0
$$;

-- Does a row of leasehold.share remember this lease key? For a query that seldom asks: a part of the query would cost it more. Locks nothing.
create or replace function leasehold_internal.has_shared(p_namespace text, p_key text, p_lease_key uuid) returns boolean
language plpgsql stable
set enable_seqscan = off
as $$
begin
  return exists (select from leasehold.share h where h.namespace = p_namespace and h.key = p_key and h.lease_key = p_lease_key);
end
$$;

-- Acquire as shared where there is no room, and the caller has no place yet: wait. Returns what acquire_batch() does; no row where anything is
-- unusual: then the batch decides, and nothing has changed, but that the reaper may look sooner. Locks the scope's row as the batch would.
-- Its twin is what acquire_general() does about an item that is queued; tests/sql/test_one_and_many.sql compares them.
--
-- When the first of all holders expires, or is suspected, is read from all their rows only where the scope's own row does not say that it is
-- not yet: while a scope is shared its `deadline` is a time before which no holder expires, and since its `heartbeat_at` each has renewed, for
-- at least its `duration`. They are true in its `incarnation`, and stay true while holders renew and go; who comes is counted in. The waiter
-- asks again at that time.
create or replace function leasehold_internal.queue_shared(
  p_coordinator uuid, p_clock timestamptz, p_namespace text, p_key text, p_lease_key uuid, p_owner text, p_labels text,
  p_duration_us bigint, p_wait_us bigint, p_principal text, p_units integer)
returns setof leasehold_internal.answer
language plpgsql
as $$
declare
  v_found record;
  v_facts leasehold.lease_facts;
begin
  select i.life, i.rules, x.holders, x.units, x.deadline, clock_timestamp() as now,
         coalesce(x.incarnation = (i.life).id
                  and least(x.deadline, x.heartbeat_at + coalesce((i.rules).dead_after, x.duration * 2 / 3),
                            x.acquired_at + (i.rules).max_hold) > clock_timestamp(), false) as is_known,
         least(x.heartbeat_at + coalesce((i.rules).dead_after, x.duration * 2 / 3), x.acquired_at + (i.rules).max_hold) as suspected_at
    into v_found
    from leasehold_internal.plain_wait(p_clock, p_namespace, p_key, p_owner, p_labels, p_duration_us, p_wait_us, p_units) i
   cross join lateral (
     select x.holders, x.units, x.deadline, x.heartbeat_at, x.duration, x.acquired_at, x.incarnation
       from leasehold.scope x
      where x.namespace = p_namespace and x.key = p_key and i.life is not null
        and x.state = 'shared' and x.units + p_units > (i.rules).capacity
        and p_lease_key is not null and p_lease_key <> all (x.ended_keys) and x.at_least is null
        and not leasehold_internal.has_shared(p_namespace, p_key, p_lease_key)
        for no key update skip locked) x;
  if not found then
    return;
  end if;
  if not v_found.is_known then
    v_facts := leasehold_internal.shared_facts(p_namespace, p_key, v_found.rules, v_found.life, v_found.now);
    if v_facts.expires_in_us <= 0 then
      return; -- who has expired may be taken over
    end if;
    update leasehold.scope s
       set deadline = d.until,
           heartbeat_at = d.heartbeat_at,
           duration = d.duration,
           acquired_at = d.acquired_at,
           incarnation = (v_found.life).id
      from (select min(case when h.incarnation = (v_found.life).id then h.deadline + h.grace
                            else (v_found.life).started_at + h.duration + h.grace end) as until,
                   min(h.heartbeat_at) as heartbeat_at, min(h.duration) as duration, min(h.acquired_at) as acquired_at
              from leasehold.share h
             where h.namespace = p_namespace and h.key = p_key and h.state = 'held') d
     where s.namespace = p_namespace and s.key = p_key;
  end if;
  -- The queue is read after the row's lock, so whoever is in it was there before.
  return query
    with placed as (
      insert into leasehold.waiter (namespace, key, ticket, lease_key, coordinator, enqueued_at, wait_until, duration, owner, principal, units)
      select p_namespace, p_key, nextval('leasehold.ticket'), p_lease_key, p_coordinator, v_found.now,
             v_found.now + leasehold_internal.from_us(p_wait_us), leasehold_internal.from_us(p_duration_us), p_owner, p_principal, p_units
          on conflict do nothing
      returning ticket),
    marked as (
      -- The scope may be the waiter's soon, without a lease of its own that ends.
      update leasehold.scope s
         set check_at = v_found.now + interval '1 s'
       where s.namespace = p_namespace and s.key = p_key and s.check_at > v_found.now + interval '1 s' and exists (select from placed))
    select 1, 'queued', p.ticket,
           leasehold_internal.count_before_last(p_namespace, p_key, leasehold_internal.live_coordinators(v_found.now), v_found.now),
           case when not v_found.is_known then v_facts.expires_in_us
                when not f.is_manual then leasehold_internal.to_us(v_found.deadline - v_found.now) end,
           case when not v_found.is_known then v_facts.suspected_in_us
                else leasehold_internal.to_us(v_found.suspected_at - v_found.now) end, null::text, null::text, null::text,
           {{lease.columns f}}, null::bigint, {{shape.columns f}}, (v_found.rules).capacity - v_found.units, v_found.holders
      from placed p, leasehold_internal.oldest_facts(p_namespace, p_key, v_found.rules, v_found.life, v_found.now) f;
end
$$;
