-- The common case of a batch of one, which is what an idle coordinator sends: plans of one row start in a fraction of the time
-- that the batch's own plan takes. Each returns null where anything is unusual, having changed nothing, and the batch decides.
-- `p_life` and `p_rules` are what the batch has read. Locks the scope's row as the batch would.

create or replace function leasehold.acquire_one(
  p_coordinator uuid, p_life leasehold.life_now, p_rules leasehold.rules, p_namespace text, p_key text, p_lease_key uuid,
  p_owner text, p_labels text, p_duration_us bigint, p_wait_us bigint)
returns leasehold.scope
language plpgsql
as $$
declare
  v_duration interval := leasehold.from_us(p_duration_us);
  v_scope leasehold.scope;
  v_now timestamptz;
begin
  if p_rules.frozen is distinct from false or p_rules.max_leases is not null or p_duration_us < 100000
     or (v_duration between p_rules.min_duration and p_rules.max_duration) is not true
     or p_wait_us < 0 or octet_length(p_owner) > 255
     or (p_labels <> '{}' and leasehold.labels_problem(p_labels::jsonb) is not null)
  then
    return null;
  end if;
  perform 1
     from leasehold.scope x
    where x.namespace = p_namespace and x.key = p_key
      and x.state = 'free' and not x.queued and p_lease_key <> all (x.ended_keys)
      for no key update skip locked;
  if not found then
    return null;
  end if;
  v_now := clock_timestamp();
  update leasehold.scope s
     set state = 'held',
         lease_key = p_lease_key,
         token = nextval('leasehold.token'),
         owner = p_owner,
         labels = p_labels::jsonb,
         duration = v_duration,
         grace = p_rules.grace,
         acquired_at = v_now,
         heartbeat_at = v_now,
         heartbeats = 0,
         deadline = v_now + v_duration,
         incarnation = p_life.id,
         granted_by = p_coordinator,
         lapsed = false,
         reap_failures = 0,
         check_at = least(s.check_at, v_now + v_duration + p_rules.grace)
   where s.namespace = p_namespace and s.key = p_key
  returning s.* into v_scope;
  return v_scope;
end
$$;

create or replace function leasehold.heartbeat_one(
  p_life leasehold.life_now, p_namespace text, p_key text, p_lease_key uuid)
returns leasehold.scope
language plpgsql
as $$
declare
  v_scope leasehold.scope;
  v_now timestamptz;
begin
  perform 1
     from leasehold.scope x
    where x.namespace = p_namespace and x.key = p_key and x.lease_key = p_lease_key and not x.lapsed
      for no key update skip locked;
  if not found then
    return null;
  end if;
  v_now := clock_timestamp();
  update leasehold.scope s
     set heartbeat_at = v_now,
         heartbeats = s.heartbeats + 1,
         deadline = v_now + s.duration,
         incarnation = p_life.id
   where s.namespace = p_namespace and s.key = p_key
     and (not p_life.is_settled
          or v_now < case when s.incarnation = p_life.id then s.deadline + s.grace
                          else p_life.started_at + s.duration + s.grace end)
  returning s.* into v_scope;
  return v_scope;
end
$$;

create or replace function leasehold.release_one(
  p_life leasehold.life_now, p_namespace text, p_key text, p_lease_key uuid, p_is_failure boolean, p_value text)
returns boolean
language plpgsql
as $$
declare
  v_outcome constant text := case when p_is_failure then 'failed' else 'ok' end;
  v_now timestamptz;
begin
  perform 1
     from leasehold.scope x
    where x.namespace = p_namespace and x.key = p_key and x.lease_key = p_lease_key and not x.lapsed and not x.queued
      for update skip locked;
  if not found then
    return null;
  end if;
  v_now := clock_timestamp();
  update leasehold.scope s
     set state = 'free',
         lease_key = null,
         lapsed = false,
         reap_failures = 0,
         ended_at = v_now,
         last_outcome = v_outcome,
         last_result = case when not p_is_failure then p_value::jsonb end,
         last_error = case when p_is_failure then p_value end,
         ended_keys = leasehold.remember(s.ended_keys, s.lease_key),
         ended_outcomes = leasehold.remember(s.ended_outcomes, v_outcome),
         check_at = case when s.check_at > v_now + interval '2 min' then v_now + interval '1 min' else s.check_at end
   where s.namespace = p_namespace and s.key = p_key
     and (not p_life.is_settled
          or v_now < case when s.incarnation = p_life.id then s.deadline + s.grace
                          else p_life.started_at + s.duration + s.grace end);
  return nullif(found, false);
end
$$;

revoke execute on function
  leasehold.acquire_one(uuid, leasehold.life_now, leasehold.rules, text, text, uuid, text, text, bigint, bigint),
  leasehold.heartbeat_one(leasehold.life_now, text, text, uuid),
  leasehold.release_one(leasehold.life_now, text, text, uuid, boolean, text) from public;
