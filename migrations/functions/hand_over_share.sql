-- What is to be known of a namespace, and of an acquire in it, before a lease is handed over in few statements; no row where anything is
-- unusual. To be used in FROM, where it becomes a part of the query. Locks nothing.
create or replace function leasehold_internal.plain_hand_over(
  p_namespace text, p_key text, p_owner text, p_labels text, p_duration_us bigint, p_wait_us bigint)
returns table (life_id bigint, started_at timestamptz, grace interval, dead_after interval, max_hold interval, expiry text, capacity integer)
language sql stable
as $$
  select f.id, f.started_at, r.grace, r.dead_after, r.max_hold, r.expiry, r.capacity
    from leasehold_internal.life_facts() f, leasehold_internal.rules_of(p_namespace) r
   where f.is_same
     and leasehold_internal.is_plain(r, p_key, p_owner, p_labels, p_duration_us, p_wait_us)
     and not (exists (select from leasehold.registered_hook) and leasehold_internal.is_hooked(p_namespace, null))
     and not exists (select from leasehold.watch) and not exists (select from leasehold.policy p where p.history)
  offset 0
$$;

-- Are all numbers below the highest of these taken, by holders that have none above it, and wants who waits behind `p_next_lease_key` more than `p_units_free`? Locks nothing.
create or replace function leasehold_internal.takes_all_there_is(
  p_namespace text, p_key text, p_slots integer[], p_next_lease_key uuid, p_units_free integer, p_now timestamptz) returns boolean
language plpgsql stable
as $$
begin
  return p_slots[cardinality(p_slots)] = (select sum(h.units)
                                            from leasehold.share h
                                           where h.namespace = p_namespace and h.key = p_key and h.state = 'held'
                                             and coalesce(h.slots[cardinality(h.slots)], 2147483647) <= p_slots[cardinality(p_slots)])
         and not exists (select
                           from leasehold_internal.live_head(p_namespace, p_key, leasehold_internal.live_coordinators(p_now), p_now,
                                                             array[p_next_lease_key]) q
                          where q.units <= p_units_free);
end
$$;

-- A shared lease that passes from its holder to the first waiter, who wants as many units and did not fit. It gets the holder's numbers, where
-- they are the lowest free ones, and there is room for nobody else: so it is where nothing of the capacity is left over, and else
-- takes_all_there_is() looks. Returns what hand_over_batch() does; no row where anything is unusual: then nothing has changed. Locks the
-- scope's row and then the holder's, both FOR UPDATE SKIP LOCKED. Its twins are end_shares() and grant_shares();
-- tests/sql/test_one_and_many.sql compares them.
create or replace function leasehold_internal.hand_over_share(
  p_coordinator uuid, p_namespace text, p_key text, p_lease_key uuid, p_is_failure boolean, p_value text, p_next_lease_key uuid,
  p_next_owner text, p_next_labels text, p_next_duration_us bigint, p_next_wait_us bigint, p_next_principal text, p_next_units integer,
  p_next_priority integer)
returns table (
  part text, end_reason text, wake boolean,
  {{answer.table}})
language plpgsql
as $$
#variable_conflict use_column
declare
  v_found record;
begin
  select i.*, x.holders, x.holders > 1 as has_others, i.capacity - x.units as units_free, h.slots,
         leasehold_internal.from_us(p_next_duration_us) as duration, case when p_is_failure then 'failed' else 'ok' end as outcome,
         case when not p_is_failure then p_value::jsonb end as result, case when p_is_failure then p_value end as error,
         clock_timestamp() as now
    into v_found
    from leasehold_internal.plain_hand_over(p_namespace, p_key, p_next_owner, p_next_labels, p_next_duration_us, p_next_wait_us) i
   cross join lateral (
     select x.holders, x.units
       from leasehold.scope x
      where x.namespace = p_namespace and x.key = p_key and x.state = 'shared' and x.at_least is null
        and x.units <= i.capacity and x.units + p_next_units > i.capacity
        and i.life_id is not null and p_next_lease_key <> all (x.ended_keys)
        for update skip locked) x
   cross join lateral (
     select h.slots
       from leasehold.share h
      where h.namespace = p_namespace and h.key = p_key and h.lease_key = p_lease_key and h.state = 'held' and not h.lapsed
        and h.units = p_next_units and x.holders is not null
        for update skip locked) h;
  if not found then
    return;
  end if;
  return query
    with ended as (
      update leasehold.share h
         set {{share_ended.set v_found}},
             check_at = v_found.now + interval '1 min'
       where h.namespace = p_namespace and h.key = p_key and h.lease_key = p_lease_key
         and v_found.now < case when h.incarnation = v_found.life_id then h.deadline + h.grace
                          else v_found.started_at + h.duration + h.grace end
         -- Whose caller has gone on to another coordinator, that one is told.
         and p_next_lease_key = (select q.lease_key
                                   from leasehold_internal.live_head(p_namespace, p_key, leasehold_internal.live_coordinators(v_found.now), v_found.now) q
                                  where q.coordinator = p_coordinator and q.items is null and q.priority = p_next_priority)
         -- Not a lease key that has shared it before; and all numbers of the capacity are taken, for nobody has another, or none.
         and not exists (select from leasehold.share o where o.namespace = p_namespace and o.key = p_key and o.lease_key = p_next_lease_key)
         and not exists (select from leasehold.share o
                          where o.namespace = p_namespace and o.key = p_key and o.state = 'held'
                            and coalesce(o.slots[cardinality(o.slots)], 2147483647) > v_found.capacity)
         and (v_found.units_free = 0
              or leasehold_internal.takes_all_there_is(p_namespace, p_key, v_found.slots, p_next_lease_key, v_found.units_free, v_found.now))
      returning h.*),
    granted as (
      insert into leasehold.share (
        {{share_grant.columns}})
      select {{share_grant.values o}}
        from (select e.namespace, e.key, p_next_lease_key as lease_key, e.units, e.slots, v_found.now as acquired_at, v_found.now as now,
                     0 as heartbeats, v_found.now + v_found.duration as deadline, v_found.life_id, null::timestamptz as check_at,
                     p_coordinator as coordinator, v_found.duration, v_found.grace, p_next_owner as owner, p_next_principal as principal,
                     p_next_labels::jsonb as labels
                from ended e) o
      returning token, deadline, slots),
    counted as (
      update leasehold.scope s
         set {{share_bounds.set g}},
             {{share_last.set e}}
        from ended e,
             (select r.token, r.deadline + v_found.grace as until, v_found.has_others, v_found.duration, v_found.now, v_found.life_id
                from granted r) g
       where s.namespace = p_namespace and s.key = p_key),
    gone as (
      delete from leasehold.waiter q
       where q.lease_key = p_next_lease_key and (q.namespace, q.key) is not distinct from (p_namespace, p_key)
         and exists (select from ended))
    select 'release', null::text, true, 1, 'ok', null::bigint, null::integer, null::bigint, null::bigint, null::text,
           null::text, null::text, {{lease.nulls}}, null::bigint, null::text, null::integer, null::integer[], null::integer, null::integer
      from ended
    union all
    select 'acquire', null, null, 1, 'granted', null, 0,
           case when v_found.expiry <> 'manual' then p_next_duration_us + leasehold_internal.to_us(v_found.grace) end,
           leasehold_internal.to_us(least(coalesce(v_found.dead_after, v_found.duration * 2 / 3), v_found.max_hold)),
           null, null, null, g.token, p_next_owner, p_next_principal, p_next_labels, p_next_duration_us, leasehold_internal.to_us(v_found.grace),
           v_found.now, g.deadline, p_next_duration_us, 0, 0, 0, v_found.now, 'alive', v_found.expiry = 'manual', null, 'shared', p_next_units, g.slots,
           v_found.units_free, v_found.holders
      from granted g;
end
$$;
