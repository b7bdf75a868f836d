-- Release many leases, and in the same transaction acquire for who waits for some of them: one commit for a hand-over, not two.
-- Returns the rows of release_batch (`part` is release), then those of acquire_batch (`part` is acquire), which sees what was
-- released and decides as ever: who was not first stays queued. Locks what they lock: the second only rows of the first.
-- The common case, one lease that passes from its holder to its first waiter, is one update (hand_over_one).
create or replace function leasehold.hand_over_batch(
  p_coordinator uuid, p_namespace text[], p_key text[], p_lease_key uuid[], p_failed boolean[], p_value text[],
  p_clock timestamptz, p_next_namespace text[], p_next_key text[], p_next_lease_key uuid[], p_next_owner text[],
  p_next_labels text[], p_next_duration_us bigint[], p_next_queue boolean[], p_next_wait_us bigint[], p_next_ticket bigint[])
returns table (
  part text, end_reason text, wake boolean,
  n integer, outcome text, ticket bigint, waiters_ahead integer, expires_in_us bigint, suspected_in_us bigint, message text,
  field text, bound text, token bigint, owner text, labels text, duration_us bigint, grace_us bigint,
  acquired_at timestamptz, deadline timestamptz, remaining_us bigint, held_us bigint, silent_us bigint, heartbeats bigint,
  heartbeat_at timestamptz, liveness text, is_manual boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_rules leasehold.rules;
  v_life leasehold.life_now;
  v_one leasehold.scope;
begin
  if cardinality(p_namespace) = 1 and cardinality(p_next_namespace) = 1
     and p_namespace[1] = p_next_namespace[1] and p_key[1] = p_next_key[1] and p_failed[1] is not null
     and not leasehold.is_blind() and not exists (select from leasehold.registered_hook)
     and not exists (select from leasehold.watch) and not exists (select from leasehold.policy p where p.history)
  then
    perform leasehold.be_durable();
    perform leasehold.ensure_epoch();
    v_life := leasehold.life_of_holders();
    select r.* into v_rules from leasehold.policies_of(p_namespace) r;
    v_one := leasehold.hand_over_one(
      p_coordinator, v_life, v_rules, p_namespace[1], p_key[1], p_lease_key[1], p_failed[1], p_value[1], p_next_lease_key[1],
      p_next_owner[1], p_next_labels[1], p_next_duration_us[1], p_next_wait_us[1]);
    if v_one.token is not null then
      -- Asked again after the change, for a watch that begins waits for who has changed something, and not for who is about to.
      -- Its two events cannot be told from one row: the releases are repeated by themselves.
      if exists (select from leasehold.watch) then
        raise serialization_failure using message = 'somebody began to watch in the same instant';
      end if;
      n := 1;
      part := 'release';
      outcome := 'ok';
      wake := true;
      return next;
      return query
        select 'acquire', null::text, null::boolean, 1, 'granted', null::bigint, 0, f.expires_in_us, f.suspected_in_us,
               null::text, null::text, null::text, f.token, f.owner, f.labels, f.duration_us, f.grace_us, f.acquired_at,
               f.deadline, f.remaining_us, f.held_us, f.silent_us, f.heartbeats, f.heartbeat_at, f.liveness, f.is_manual
          from leasehold.lease_facts(v_one, v_rules, v_life, v_one.acquired_at) f;
      return;
    end if;
  end if;
  return query
    select 'release', r.end_reason, r.wake, r.n, r.outcome, null::bigint, null::integer, null::bigint, null::bigint, r.message,
           null::text, null::text, null::bigint, null::text, null::text, null::bigint, null::bigint,
           null::timestamptz, null::timestamptz, null::bigint, null::bigint, null::bigint, null::bigint,
           null::timestamptz, null::text, null::boolean
      from leasehold.release_batch(p_coordinator, p_namespace, p_key, p_lease_key, p_failed, p_value) r;
  return query
    select 'acquire', null::text, null::boolean, a.*
      from leasehold.acquire_batch(
             p_coordinator, p_clock, p_next_namespace, p_next_key, p_next_lease_key, p_next_owner, p_next_labels,
             p_next_duration_us, p_next_queue, p_next_wait_us, p_next_ticket) a;
end
$$;
comment on function leasehold.hand_over_batch is 'Release many leases and acquire for who is next, by a coordinator';

revoke execute on function leasehold.hand_over_batch(uuid, text[], text[], uuid[], boolean[], text[], timestamptz, text[], text[],
  uuid[], text[], text[], bigint[], boolean[], bigint[], bigint[]) from public;
grant execute on function leasehold.hand_over_batch(uuid, text[], text[], uuid[], boolean[], text[], timestamptz, text[], text[],
  uuid[], text[], text[], bigint[], boolean[], bigint[], bigint[]) to leasehold_coordinator, leasehold_admin;
