-- Of batches of one, which is what an idle coordinator sends: plans of one row start in a fraction of the time that the batch's own
-- plan takes. In few statements and few expressions, for plpgsql prepares each of them again in every transaction, and that is most
-- of what such a batch costs.

-- Is there nothing about this acquire that the rules, or its own values, are against? To be used in a query, where it becomes a
-- part of it. Locks nothing.
create or replace function leasehold_internal.is_plain(
  p_rules leasehold.rules, p_owner text, p_labels text, p_duration_us bigint, p_wait_us bigint)
returns boolean
language sql stable
as $$
  select not (p_rules).frozen and (p_rules).max_leases is null and (p_rules).at_least is null and p_duration_us >= 100000
         and leasehold_internal.from_us(p_duration_us) between (p_rules).min_duration and (p_rules).max_duration
         and coalesce(p_wait_us, 0) >= 0 and coalesce(octet_length(p_owner), 0) <= 255
         and (p_labels = '{}' or leasehold_internal.labels_problem(p_labels::jsonb) is null)
$$;

-- Acquire a scope that is held, or whose capacity is taken to the last unit, and that the caller has no place for yet: wait. Returns
-- what acquire_batch() does; no row where anything is unusual: then the batch decides, and nothing has changed, but that the reaper may
-- look sooner. Locks the scope's row as the batch would. Its twin is what acquire_general() does about an item that is queued;
-- tests/sql/test_one_and_many.sql compares them.
create or replace function leasehold_internal.queue_one(
  p_coordinator uuid, p_clock timestamptz, p_namespace text, p_key text, p_lease_key uuid, p_owner text, p_labels text,
  p_duration_us bigint, p_wait_us bigint, p_principal text, p_units integer)
returns table (
  n integer, outcome text, ticket bigint, waiters_ahead integer, expires_in_us bigint, suspected_in_us bigint, message text,
  field text, bound text, token bigint, owner text, principal text, labels text, duration_us bigint, grace_us bigint,
  acquired_at timestamptz, deadline timestamptz, remaining_us bigint, held_us bigint, silent_us bigint, heartbeats bigint,
  heartbeat_at timestamptz, liveness text, is_manual boolean, rests_in_us bigint, mode text, units integer, slots integer[], units_free integer,
  holder_count integer)
language plpgsql
as $$
#variable_conflict use_column
declare
  v_found record;
  v_now timestamptz;
  v_sharers leasehold.lease_facts;
  v_holders integer := 1;
begin
  select i.life, i.rules, x.scope
    into v_found
    from (select row(f.id, f.started_at,
                     f.is_whole and (p_clock is null or clock_timestamp() <= p_clock + interval '1 s')
                     and not coalesce(f.seen_at between clock_timestamp() - interval '5 min'
                                                    and clock_timestamp() - interval '5 s', false))::leasehold.life_now as life,
                 r as rules
            from leasehold_internal.life_facts() f, leasehold_internal.rules_of(p_namespace) r
           where f.is_same and r.max_waiters is null
             and leasehold_internal.is_plain(r, p_owner, p_labels, p_duration_us, p_wait_us)
             and (p_units is null or p_units between 1 and coalesce(r.capacity, 1000000))
             and not exists (select from leasehold.registered_hook h
                              where h.event = 'acquire' and leasehold_internal.covers(h.namespace, p_namespace))
          offset 0) i
   cross join lateral (
     select x as scope
       from leasehold.scope x
      where x.namespace = p_namespace and x.key = p_key and i.life is not null
        and (x.state = 'held' and not x.lapsed and x.lease_key <> p_lease_key or x.state = 'shared' and x.units = (i.rules).capacity)
        and p_lease_key is not null and p_lease_key <> all (x.ended_keys) and x.at_least is null
        and not (x.queued and exists (select from leasehold.share h
                                       where h.namespace = x.namespace and h.key = x.key and h.lease_key = p_lease_key))
        for no key update skip locked) x;
  if not found then
    return;
  end if;
  v_now := clock_timestamp();
  if (v_found.scope).state = 'shared' then
    v_sharers := leasehold_internal.shared_facts(p_namespace, p_key, v_found.rules, v_found.life, v_now);
    if v_sharers.expires_in_us <= 0 then
      return; -- who has expired may be taken over
    end if;
    -- The scope may be the waiter's soon, without a lease of its own that ends.
    if (v_found.scope).check_at > v_now + interval '1 s' then
      update leasehold.scope s set check_at = v_now + interval '1 s' where s.namespace = p_namespace and s.key = p_key;
    end if;
    v_holders := (v_found.scope).holders;
    v_found.scope := (select leasehold_internal.scope_of_share(h)
                        from leasehold.share h
                       where h.namespace = p_namespace and h.key = p_key and h.state = 'held'
                       order by h.namespace, h.key, h.token
                       limit 1);
  end if;
  -- The queue is read after the row's lock, so whoever is in it was there before.
  return query
    with placed as (
      insert into leasehold.waiter (namespace, key, ticket, lease_key, coordinator, enqueued_at, wait_until, duration, owner, principal, units)
      select p_namespace, p_key, nextval('leasehold.ticket'), p_lease_key, p_coordinator, v_now,
             v_now + leasehold_internal.from_us(p_wait_us), leasehold_internal.from_us(p_duration_us), p_owner, p_principal,
             p_units
       where not leasehold_internal.is_expired(v_found.scope, v_found.life, (v_found.rules).expiry, v_now)
          on conflict do nothing
      returning ticket),
    marked as (
      update leasehold.scope s
         set queued = true
       where s.namespace = p_namespace and s.key = p_key and not s.queued and exists (select from placed))
    select 1, 'queued', p.ticket,
           cardinality(leasehold_internal.live_tickets(p_namespace, p_key, leasehold_internal.live_coordinators(v_now), v_now)),
           coalesce(v_sharers.expires_in_us, f.expires_in_us), coalesce(v_sharers.suspected_in_us, f.suspected_in_us),
           null::text, null::text, null::text, f.token, f.owner, f.principal, f.labels, f.duration_us,
           f.grace_us, f.acquired_at, f.deadline, f.remaining_us, f.held_us, f.silent_us, f.heartbeats, f.heartbeat_at,
           f.liveness, f.is_manual, null::bigint, f.mode, f.units, f.slots, case when (v_found.rules).capacity is not null then 0 end,
           v_holders
      from placed p, leasehold_internal.lease_facts(v_found.scope, v_found.rules, v_found.life, v_now) f;
end
$$;

revoke execute on function
  leasehold_internal.is_plain(leasehold.rules, text, text, bigint, bigint),
  leasehold_internal.queue_one(uuid, timestamptz, text, text, uuid, text, text, bigint, bigint, text, integer) from public;
