-- The common case of a batch of one, which is what an idle coordinator sends: plans of one row start in a fraction of the time
-- that the batch's own plan takes. Each returns null where anything is unusual, having changed nothing, and the batch decides.
-- `p_life` and `p_rules` are what the batch has read. Locks the scope's row as the batch would.

-- Is there nothing about this acquire that the rules, or its own values, are against? Locks nothing.
create or replace function leasehold.is_plain(
  p_rules leasehold.rules, p_owner text, p_labels text, p_duration_us bigint, p_wait_us bigint)
returns boolean
language plpgsql
as $$
begin
  return coalesce(not p_rules.frozen and p_rules.max_leases is null and p_duration_us >= 100000
                  and leasehold.from_us(p_duration_us) between p_rules.min_duration and p_rules.max_duration
                  and coalesce(p_wait_us, 0) >= 0 and coalesce(octet_length(p_owner), 0) <= 255
                  and (p_labels = '{}' or leasehold.labels_problem(p_labels::jsonb) is null), false);
end
$$;

-- A free scope that nobody waits for.
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
  if p_lease_key is null or not leasehold.is_plain(p_rules, p_owner, p_labels, p_duration_us, p_wait_us) then
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

-- A held scope that the caller has no place for yet, and waits for. Returns a place of null otherwise.
create or replace function leasehold.queue_one(
  p_coordinator uuid, p_life leasehold.life_now, p_rules leasehold.rules, p_namespace text, p_key text, p_lease_key uuid,
  p_owner text, p_labels text, p_duration_us bigint, p_wait_us bigint,
  out ticket bigint, out waiters_ahead integer, out facts leasehold.lease_facts)
language plpgsql
as $$
#variable_conflict use_column
declare
  v_scope leasehold.scope;
  v_now timestamptz;
  v_ticket bigint;
begin
  if p_rules.max_waiters is not null
     or not leasehold.is_plain(p_rules, p_owner, p_labels, p_duration_us, p_wait_us)
  then
    return;
  end if;
  select x.*
    into v_scope
    from leasehold.scope x
   where x.namespace = p_namespace and x.key = p_key
     and x.state = 'held' and not x.lapsed and x.lease_key <> p_lease_key and p_lease_key <> all (x.ended_keys)
     for no key update skip locked;
  if not found then
    return;
  end if;
  v_now := clock_timestamp();
  if leasehold.is_expired(v_scope, p_life, p_rules.expiry, v_now) then
    return;
  end if;
  insert into leasehold.waiter (namespace, key, ticket, lease_key, coordinator, enqueued_at, wait_until, duration, owner)
  values (p_namespace, p_key, nextval('leasehold.ticket'), p_lease_key, p_coordinator, v_now,
          v_now + leasehold.from_us(p_wait_us), leasehold.from_us(p_duration_us), p_owner)
      on conflict do nothing
  returning ticket into v_ticket;
  if v_ticket is null then
    return;
  end if;
  if not v_scope.queued then
    update leasehold.scope s set queued = true where s.namespace = p_namespace and s.key = p_key;
  end if;
  ticket := v_ticket;
  waiters_ahead := leasehold.tickets_ahead(
    leasehold.live_tickets(p_namespace, p_key, leasehold.live_coordinators(v_now), v_now), v_ticket);
  select f.* into facts from leasehold.lease_facts(v_scope, p_rules, p_life, v_now) f;
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

-- A release, and the grant to who is next: one update, from one holder to the other. The queue is read after the row's lock.
create or replace function leasehold.hand_over_one(
  p_coordinator uuid, p_life leasehold.life_now, p_rules leasehold.rules, p_namespace text, p_key text, p_lease_key uuid,
  p_is_failure boolean, p_value text, p_next_lease_key uuid, p_next_owner text, p_next_labels text,
  p_next_duration_us bigint, p_next_wait_us bigint)
returns leasehold.scope
language plpgsql
as $$
declare
  v_outcome constant text := case when p_is_failure then 'failed' else 'ok' end;
  v_duration interval := leasehold.from_us(p_next_duration_us);
  v_head uuid;
  v_scope leasehold.scope;
  v_now timestamptz;
begin
  if not leasehold.is_plain(p_rules, p_next_owner, p_next_labels, p_next_duration_us, p_next_wait_us) then
    return null;
  end if;
  perform 1
     from leasehold.scope x
    where x.namespace = p_namespace and x.key = p_key and x.lease_key = p_lease_key and not x.lapsed
      and p_next_lease_key <> p_lease_key and p_next_lease_key <> all (x.ended_keys)
      for update skip locked;
  if not found then
    return null;
  end if;
  v_now := clock_timestamp();
  select h.lease_key into v_head
    from leasehold.live_head(p_namespace, p_key, leasehold.live_coordinators(v_now), v_now) h;
  if v_head is distinct from p_next_lease_key then
    return null;
  end if;
  update leasehold.scope s
     set lease_key = p_next_lease_key,
         token = nextval('leasehold.token'),
         owner = p_next_owner,
         labels = p_next_labels::jsonb,
         duration = v_duration,
         grace = p_rules.grace,
         acquired_at = v_now,
         heartbeat_at = v_now,
         heartbeats = 0,
         deadline = v_now + v_duration,
         incarnation = p_life.id,
         granted_by = p_coordinator,
         reap_failures = 0,
         check_at = least(s.check_at, v_now + v_duration + p_rules.grace),
         queued = exists (select 1
                            from leasehold.waiter q
                           where q.namespace = s.namespace and q.key = s.key and q.lease_key <> p_next_lease_key),
         ended_at = v_now,
         last_outcome = v_outcome,
         last_result = case when not p_is_failure then p_value::jsonb end,
         last_error = case when p_is_failure then p_value end,
         ended_keys = leasehold.remember(s.ended_keys, s.lease_key),
         ended_outcomes = leasehold.remember(s.ended_outcomes, v_outcome)
   where s.namespace = p_namespace and s.key = p_key
     and (not p_life.is_settled
          or v_now < case when s.incarnation = p_life.id then s.deadline + s.grace
                          else p_life.started_at + s.duration + s.grace end)
  returning s.* into v_scope;
  if found then
    delete from leasehold.waiter q
     where q.lease_key = p_next_lease_key and (q.namespace, q.key) is not distinct from (p_namespace, p_key);
  end if;
  return v_scope;
end
$$;

revoke execute on function
  leasehold.is_plain(leasehold.rules, text, text, bigint, bigint),
  leasehold.queue_one(uuid, leasehold.life_now, leasehold.rules, text, text, uuid, text, text, bigint, bigint),
  leasehold.hand_over_one(uuid, leasehold.life_now, leasehold.rules, text, text, uuid, boolean, text, uuid, text, text, bigint,
                          bigint),
  leasehold.acquire_one(uuid, leasehold.life_now, leasehold.rules, text, text, uuid, text, text, bigint, bigint),
  leasehold.heartbeat_one(leasehold.life_now, text, text, uuid),
  leasehold.release_one(leasehold.life_now, text, text, uuid, boolean, text) from public;
