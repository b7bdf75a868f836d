-- How workers get ticks. A claim is an acquire of the tick's scope; the hook of the namespace (tick_event.sql) writes the tick. So the worker renews and
-- releases it as any lease.

-- Claim the oldest tick that may run; `p_principal` is whose lease it is. Returns its instant, the attempt and the token; no row when none may, with the
-- locks of the attempt given back: those of ticks and leases that it found late stay. Where it is refused, the row has the SQLSTATE and the words. A repeat
-- with the lease key of a running tick renews that lease.
-- Ends leases of these ticks that are past their expiry, as the reaper does. Locks what make_ticks() and reap_batch() do, then one tick's row, skipping
-- what others claim, then what an acquire does, and a slot; waits for nobody.
create or replace function leasehold_internal.claim_tick_as(
  p_name text, p_owner text, p_duration interval, p_lease_key uuid, p_labels jsonb, p_principal text)
returns table (at timestamptz, attempt integer, token bigint, state text, message text, bound text)
language plpgsql
{{few.settings}}
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_duration interval := p_duration;
  v_known leasehold.tick;
  v_answer record;
  v_outcome text := 'none';
  v_token bigint;
  v_message text;
  v_bound text;
  v_after timestamptz := '-infinity';
  v_tick timestamptz;
begin
  if v_duration is null then
    select greatest(least(interval '30 s', r.max_duration), r.min_duration, interval '100 ms')
      into v_duration
      from leasehold_internal.policies_of(array[p_name]) r;
  end if;
  select t.* into v_known from leasehold.tick t where t.schedule = p_name and t.lease_key = p_lease_key;
  if v_known.at is null then
    if exists (select
                 from leasehold.tick t
                 join leasehold.scope s
                   on s.namespace = t.schedule and s.key = leasehold_internal.tick_key(t.at)
                where t.schedule = p_name and t.state = 'running' and s.state = 'held' and (s.lapsed or s.deadline <= v_now)) then
      perform leasehold_internal.reap_batch(null, null, array[p_name], false, 100, false, null, null, false);
    end if;
    perform leasehold_internal.make_ticks(p_name, clock_timestamp());
  end if;
  begin
    if v_known.state <> 'running' then
      v_outcome := 'ended';
    elsif v_known.at is not null then
      v_tick := v_known.at;
      {{tick_acquired.text}}
    else
      for v_try in 1 .. 10 loop
        select t.at into v_tick
          from leasehold.tick t
          join leasehold.schedule s
            on s.name = t.schedule
         where t.schedule = p_name and t.state in ('due', 'failed') and t.at > v_after
           and t.next_try_at <= clock_timestamp() and (t.state = 'failed' or t.claim_until > clock_timestamp())
           and (t.by_hand or not s.paused)
         order by t.at
         limit 1
           for update of t skip locked;
        exit when not found;
        -- The hook takes it: this session has the lock already.
        perform 1
           from leasehold.tick_slot f
           join leasehold.schedule s
             on s.name = f.schedule
          where f.schedule = p_name and f.at is null and f.slot <= s.overlap
          order by f.slot
          limit 1
            for update of f skip locked;
        exit when not found;
        {{tick_acquired.text}}
        -- begin_tick() refuses what a pause or the deadline has overtaken. That is no objection.
        if v_outcome = 'rejected' and exists (select
                                                from leasehold.tick t
                                                join leasehold.schedule s
                                                  on s.name = t.schedule
                                               where t.schedule = p_name and t.at = v_tick
                                                 and (s.paused and not t.by_hand or t.state = 'due' and t.claim_until <= clock_timestamp())) then
          v_outcome := 'none';
        end if;
        exit when v_outcome not in ('held', 'busy', 'none');
        -- Or its scope is somebody's from before the schedule.
        v_after := v_tick;
      end loop;
    end if;
    if v_outcome not in ('granted', 'renewed') then
      raise sqlstate 'LH900' using message = 'give the locks back';
    end if;
  exception when sqlstate 'LH900' then
    null;
  end;

  return query
    select v_tick, (select t.attempts from leasehold.tick t where t.schedule = p_name and t.at = v_tick), v_token, null::text, null::text, null::text
     where v_outcome in ('granted', 'renewed');
  return query
    select null::timestamptz, null::integer, null::bigint, r.state, r.message, r.bound
      from (values ('frozen', 'LH003', format('namespace_frozen: %s gives no new leases for now', p_name), null),
                   ('quota', 'LH004', format('quota_exceeded: %s has reached its limit, %s', p_name, v_bound), v_bound),
                   ('rejected', 'LH005', 'hook_rejected: ' || v_message, null),
                   ('ended', 'LH006', format('lease_ended: this lease key has held %s before; a new claim takes a new one',
                                             leasehold_internal.scope_name(p_name, leasehold_internal.tick_key(coalesce(v_tick, v_known.at)))), null),
                   ('elsewhere', 'LH002', 'invalid_argument: key: ' || v_bound, v_bound),
                   ('invalid', 'LH002', 'invalid_argument: lease must be ' || v_bound, v_bound)) as r (outcome, state, message, bound)
     where r.outcome = v_outcome;
end
$$;

-- The acquire of one tick, as acquire() does it. Locks what acquire_batch() does.
create or replace function leasehold_internal.acquire_tick(
  p_name text, p_at timestamptz, p_owner text, p_duration interval, p_lease_key uuid, p_labels jsonb, p_principal text)
returns table (outcome text, token bigint, message text, field text, bound text)
language sql volatile
as $$
  select b.outcome, coalesce(b.token, (b.more).token), (b.more).message, (b.more).field, (b.more).bound
    from leasehold_internal.acquire_items(
           null, null, array[p_name], array[leasehold_internal.tick_key(p_at)], array[p_lease_key], array[p_owner], array[p_labels::text],
           array[leasehold_internal.to_us(p_duration)], array[false], array[null::bigint], array[null::bigint], array[p_principal],
           array[null::bigint], array[null::integer]) b
$$;

-- What is wrong with the arguments of a claim; null when nothing is. `p_duration` null: whatever the policy allows. Locks nothing.
create or replace function leasehold_internal.claim_problem(p_name text, p_owner text, p_duration interval, p_lease_key uuid, p_labels jsonb)
returns leasehold_internal.problem
language plpgsql
as $$
declare
  v_problem leasehold_internal.problem := leasehold_internal.schedule_problem(p_name, true);
begin
  {{problem.text}}
  return leasehold_internal.acquire_problem(
    p_name, 'tick', coalesce(p_duration, (select r.max_duration from leasehold_internal.policies_of(array[p_name]) r)), p_owner, p_lease_key, p_labels,
    'exclusive', 1, null);
end
$$;

-- Claim the oldest tick of a schedule that may run; never waits. Returns its instant, which attempt this is, and its lease; no row when none may run.
-- The worker renews and releases the lease by the ordinary functions, which end the tick in the same transaction. `duration` null: 30 s, within the policy.
-- Locks what claim_tick_as() does.
create or replace function leasehold.claim_tick(
  name text, owner text default null, duration interval default null, lease_key uuid default gen_random_uuid(), labels jsonb default '{}')
returns table (at timestamptz, attempt integer, lease leasehold.lease)
language plpgsql
security definer
{{few.settings}}
as $$
#variable_conflict use_column
declare
  v_denial text := leasehold_internal.denial('lease', claim_tick.name);
  v_problem leasehold_internal.problem := leasehold_internal.claim_problem(
    claim_tick.name, claim_tick.owner, claim_tick.duration, claim_tick.lease_key, claim_tick.labels);
  v_answer record;
begin
  {{denied.text}}
  {{refused.text}}
  perform set_config('leasehold.hooks', 'inline', true);
  select c.* into v_answer
    from leasehold_internal.claim_tick_as(
           claim_tick.name, claim_tick.owner, claim_tick.duration, claim_tick.lease_key, claim_tick.labels, 'role:' || session_user) c;
  {{claimed.text}}
  select l.* into lease from leasehold_internal.leases_of(claim_tick.name, leasehold_internal.tick_key(v_answer.at), v_answer.token) l;
  lease.lease_key := claim_tick.lease_key;
  return next;
end
$$;
comment on function leasehold.claim_tick is
  'Claim the oldest tick of a schedule that may run: its instant, the attempt and its lease, or no row; never waits. Example:
  select at, attempt, (lease).key, (lease).lease_key, (lease).token from leasehold.claim_tick(''reports.nightly'', owner => ''worker-3'')';

-- The same for a daemon: `p_by` and `p_peer` are its caller's principal and address.
create or replace function leasehold_internal.claim_tick_by(
  p_by text, p_peer text, p_name text, p_owner text, p_duration interval, p_lease_key uuid, p_labels jsonb)
returns table (at timestamptz, attempt integer, lease leasehold.lease)
language plpgsql
security definer
set lock_timeout = '1s'
{{few.settings}}
as $$
#variable_conflict use_column
declare
  v_answer record;
begin
  perform leasehold_internal.refuse(leasehold_internal.claim_problem(p_name, p_owner, p_duration, p_lease_key, p_labels));
  perform set_config('leasehold.hooks', 'inline', true);
  select c.* into v_answer
    from leasehold_internal.claim_tick_as(p_name, p_owner, p_duration, p_lease_key, p_labels, leasehold_internal.principal_of_call(p_by)) c;
  {{claimed.text}}
  select l.* into lease from leasehold_internal.leases_of(p_name, leasehold_internal.tick_key(v_answer.at), v_answer.token) l;
  lease.lease_key := p_lease_key;
  return next;
end
$$;
comment on function leasehold_internal.claim_tick_by is 'Claim the oldest tick of a schedule that may run, by a coordinator';

-- How long until a tick may be claimed, null where none will. Locks what make_ticks() does.
create or replace function leasehold_internal.wait_for_tick(p_name text) returns interval
language plpgsql
{{few.settings}}
as $$
declare
  v_schedule leasehold.schedule;
  v_rules leasehold.rules;
  v_life leasehold.life_now;
  v_now timestamptz;
  v_next timestamptz;
  v_expiry timestamptz;
  v_again timestamptz;
begin
  perform leasehold_internal.make_ticks(p_name, clock_timestamp());
  select s.* into v_schedule from leasehold.schedule s where s.name = p_name;
  select r.* into v_rules from leasehold_internal.policies_of(array[p_name]) r;
  v_now := clock_timestamp();
  v_life := leasehold_internal.life(null);
  select min(t.next_try_at)
    into v_next
    from leasehold.tick t
   where t.schedule = p_name and t.state in ('due', 'failed') and (t.state = 'failed' or t.claim_until > v_now) and (t.by_hand or not v_schedule.paused);
  if not v_schedule.paused then
    v_next := least(v_next, v_schedule.next_at + leasehold_internal.tick_delay(p_name, v_schedule.next_at, v_schedule.jitter));
  end if;
  -- When a running tick's lease expires it may be claimed, and its slot is free. A tick whose lease is gone is found by make_ticks().
  select min(e.at), min(e.at) filter (where t.by_hand or not v_schedule.paused)
    into v_expiry, v_again
    from leasehold.tick t
    join leasehold.scope s
      on s.namespace = t.schedule and s.key = leasehold_internal.tick_key(t.at) and s.state = 'held'
   cross join lateral (select leasehold_internal.expires_at(s, v_life, v_rules.expiry, v_now)) e (at)
   where t.schedule = p_name and t.state = 'running';
  if not exists (select from leasehold.tick_slot f where f.schedule = p_name and f.at is null and f.slot <= v_schedule.overlap) then
    v_next := coalesce(v_expiry, v_now + interval '1 min');
  else
    v_next := least(v_next, v_again);
  end if;
  return case when isfinite(v_next) then greatest(v_next - v_now, interval '0') end;
end
$$;

-- How long until a tick of a schedule may be claimed, by the database's clock; null: never, as it is now. What makes it earlier is told on tick_channel().
-- Locks what make_ticks() does.
create or replace function leasehold.until_tick(name text) returns interval
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_denial text := leasehold_internal.denial('lease', until_tick.name);
  v_problem leasehold_internal.problem := leasehold_internal.schedule_problem(until_tick.name, true);
begin
  {{denied.text}}
  {{refused.text}}
  return leasehold_internal.wait_for_tick(until_tick.name);
end
$$;
comment on function leasehold.until_tick is
  'How long until a tick of a schedule may be claimed, by the database''s clock; null: never, as it is now. Example:
  select leasehold.until_tick(''reports.nightly'')';

grant execute on function leasehold.claim_tick, leasehold.until_tick to leasehold_client, leasehold_admin;
grant execute on function leasehold.until_tick, leasehold_internal.claim_tick_by to leasehold_coordinator;
