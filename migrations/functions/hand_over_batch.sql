-- Release many leases, and in the same transaction acquire for who waits for some of them: one commit for a hand-over, not two.
-- Returns the rows of release_batch (`part` is release), then those of acquire_batch (`part` is acquire), which sees what was
-- released and decides as ever: who was not first stays queued. Locks what they lock: the second only rows of the first.
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
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
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
