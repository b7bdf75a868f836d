-- Is an expired lease left alone, for reaping it has failed? Until its next try, and after too many failures for good. A next try that lies further
-- ahead than next_try() puts any is of another clock. Locks nothing.
create or replace function leasehold_internal.is_put_off(p_scope leasehold.scope, p_max_failures integer, p_now timestamptz)
returns boolean
language sql immutable
as $$
  select coalesce((p_scope).reap_failures, 0) > 0
         and coalesce((p_scope).next_try_at > p_now and ((p_scope).next_try_at < p_now + interval '6 min' or (p_scope).next_try_at = 'infinity'),
                      (p_scope).reap_failures >= p_max_failures)
$$;

-- Has reaping a lease failed since `p_since`? A failure to come is one of another clock. Locks nothing.
create or replace function leasehold_internal.has_failed_since(p_failures integer, p_failed_at timestamptz, p_since timestamptz, p_now timestamptz)
returns boolean
language sql stable
as $$
  select p_failures > 0 and p_failed_at >= p_since and p_failed_at < p_now + interval '1 min'
$$;

-- A held scope as people and programs are told of it; no row when it is free. Locks nothing.
create or replace function leasehold_internal.lease_facts(
  p_scope leasehold.scope, p_rules leasehold.rules, p_life leasehold.life_now, p_now timestamptz)
returns setof leasehold.lease_facts
language sql stable
as $$
  select s.token, s.owner, s.labels::text, leasehold_internal.to_us(s.duration), leasehold_internal.to_us(s.grace), s.acquired_at, s.deadline,
         leasehold_internal.to_us(s.deadline - p_now), leasehold_internal.to_us(p_now - s.acquired_at),
         leasehold_internal.to_us(p_now - s.heartbeat_at), s.heartbeats, s.heartbeat_at,
         case
           when leasehold_internal.is_expired(p_scope, p_life, (p_rules).expiry, p_now) then 'expired'
           when p_now >= d.suspected_at then 'suspected_dead'
           when p_now >= s.acquired_at + (p_rules).max_hold then 'overdue'
           else 'alive'
         end,
         (p_rules).expiry = 'manual',
         case -- Reaping it has failed: not before the next try, or not by itself any more.
              when s.reap_failures > 0
                   and coalesce(s.next_try_at > p_now and (s.next_try_at < p_now + interval '6 min' or s.next_try_at = 'infinity'),
                                s.reap_failures >= (p_rules).max_reap_failures)
                then leasehold_internal.to_us(nullif(s.next_try_at, 'infinity') - p_now)
              when s.lapsed and (p_rules).expiry <> 'manual' then 0
              else leasehold_internal.to_us(leasehold_internal.expires_at(p_scope, p_life, (p_rules).expiry, p_now) - p_now) end,
         greatest(0, leasehold_internal.to_us(least(d.suspected_at, s.acquired_at + (p_rules).max_hold) - p_now)),
         s.principal, case when s.units > 0 then 'shared' else 'exclusive' end, coalesce(s.units, 0), s.slots
    from (select (p_scope).*) s,
         lateral (select s.heartbeat_at + coalesce((p_rules).dead_after, s.duration * 2 / 3) as suspected_at) d
   where s.state = 'held'
$$;

-- Why somebody should look at what is held, in the words of survey_namespaces(); empty: for nothing. Locks nothing.
create or replace function leasehold_internal.lease_states(
  p_scope leasehold.scope, p_rules leasehold.rules, p_life leasehold.life_now, p_now timestamptz)
returns text[]
language plpgsql stable
as $$
declare
  v_is_expired constant boolean := leasehold_internal.is_expired(p_scope, p_life, p_rules.expiry, p_now);
begin
  return array_remove(array[
           case when v_is_expired then 'expired' end,
           case when not v_is_expired and (p_scope.deadline <= p_now or p_scope.lapsed) then 'overdue' end,
           case when not v_is_expired and p_scope.heartbeat_at + coalesce(p_rules.dead_after, p_scope.duration * 2 / 3) <= p_now then 'silent' end,
           case when p_scope.acquired_at + p_rules.max_hold <= p_now then 'held_too_long' end], null);
end
$$;
