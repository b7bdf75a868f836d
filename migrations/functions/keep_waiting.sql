-- What keeps a request for several scopes waiting, read without a lock. Of such requests each is told of every scope that it is the first in, and most
-- are still kept by another one. If that took locks, it would make others busy, whose turn it is.
-- Whatever comes out of the way later tells the first in that queue, and is committed by then: so a look that comes after that sees it.

-- Does this scope keep a request that has this ticket from all of its scopes: by a holder whose lease has not expired, or by somebody live before it?
-- Where that is not certain without a lock, it does not. Locks nothing.
create or replace function leasehold_internal.is_in_the_way(
  p_scope leasehold.scope, p_units integer, p_lease_key uuid, p_ticket bigint, p_rules leasehold.rules, p_life leasehold.life_now, p_live uuid[],
  p_now timestamptz)
returns boolean
language plpgsql stable
set enable_seqscan = off
as $$
begin
  if p_scope.state = 'held' then
    if not leasehold_internal.is_expired(p_scope, p_life, p_rules.expiry, p_now) then
      return true;
    end if;
  elsif p_scope.state = 'shared' and not leasehold_internal.has_room(p_scope, p_units) then
    if not exists (select from leasehold.share h
                    where h.namespace = p_scope.namespace and h.key = p_scope.key and h.state = 'held' and (h.lapsed or h.deadline <= p_now)) then
      return true;
    end if;
  end if;
  if leasehold_internal.has_priority(p_scope.namespace, p_scope.key) then
    -- It has none, for it stands in the same order in all queues.
    return leasehold_internal.is_preceded(p_scope.namespace, p_scope.key, p_live, p_now, array[p_lease_key], p_ticket, 0,
                                          (select w.enqueued_at
                                             from leasehold.waiter w
                                            where w.namespace = p_scope.namespace and w.key = p_scope.key and w.ticket = p_ticket));
  end if;
  return exists (select
                   from leasehold_internal.live_head(p_scope.namespace, p_scope.key, p_live, p_now, array[p_lease_key]) h
                  where h.ticket < p_ticket);
end
$$;

-- What acquire_together() would answer to a request that goes on waiting, and changes nothing in its places; else no row. Locks nothing.
create or replace function leasehold_internal.keep_waiting(
  p_coordinator uuid, p_clock timestamptz, p_namespace text[], p_key text[], p_lease_key uuid, p_owner text, p_duration_us bigint, p_wait_us bigint,
  p_ticket bigint, p_principal text, p_units integer[])
returns setof leasehold_internal.answer
language plpgsql
{{joins.settings}}
as $$
declare
  v_work leasehold.acquire_work[];
  v_now constant timestamptz := clock_timestamp();
  v_life constant leasehold.life_now := leasehold_internal.life(p_clock);
  v_live constant uuid[] := leasehold_internal.live_coordinators(v_now);
  v_rules constant leasehold.rules[] := array(
    select r from leasehold_internal.policies_of(array(select distinct d from unnest(p_namespace) d)) r);
begin
  if p_wait_us is not null then
    return;
  end if;
  v_work := array(
    select row(i.n, i.namespace, i.key, p_lease_key, null, null, null, true, null, p_ticket, null,
               case when not w.is_in_the_way then 'together' end, r, s, 'locked', p_ticket, null, 'queued', i.units, null, 0, null)::leasehold.acquire_work
      from unnest(p_namespace, p_key, p_units) with ordinality as i (namespace, key, units, n)
      join unnest(v_rules) r
        on r.namespace = i.namespace and not r.frozen and leasehold_internal.has_key(r.slots, i.key)
      join leasehold.waiter q
        on q.lease_key = p_lease_key and (q.namespace, q.key) is not distinct from (i.namespace, i.key)
      join leasehold.scope s
        on s.namespace = i.namespace and s.key = i.key and p_lease_key <> all (s.ended_keys) and s.lease_key is distinct from p_lease_key
     cross join lateral leasehold_internal.is_in_the_way(s, i.units, p_lease_key, p_ticket, r, v_life, v_live, v_now) w (is_in_the_way)
     where q.ticket = p_ticket and q.coordinator = p_coordinator and q.away_until is null and q.wait_until is null
       and q.owner is not distinct from p_owner and q.principal is not distinct from p_principal and q.units is not distinct from i.units
       and q.duration is not distinct from leasehold_internal.from_us(p_duration_us)
       and not exists (select from leasehold.share h where h.namespace = i.namespace and h.key = i.key and h.lease_key = p_lease_key)
     order by i.n);
  if cardinality(v_work) = cardinality(p_namespace) and exists (select from unnest(v_work) w where w.bound is null) then
    return query
      select * from leasehold_internal.one_answer(array(select a from leasehold_internal.answer_shared(
                                                        array(select w from unnest(v_work) w where w.bound is null), v_life, v_live, null, v_now) a));
  end if;
end
$$;
