-- Schedules and ticks as a daemon asks for them: settings by name, in microseconds where they are times or durations, and rows with what it hands on. The
-- daemon has judged its caller's rights; `p_by` and `p_peer` are the caller's principal and address.

-- The setting of this name; null: it was not given. Locks nothing.
create or replace function leasehold_internal.setting_of(p_names text[], p_values text[], p_name text) returns text
language sql immutable
as $$
  select p_values[array_position(p_names, p_name)]
$$;

-- Locks nothing.
create or replace function leasehold_internal.interval_of(p_us text) returns interval
language sql immutable
as $$
  select p_us::bigint * interval '1 us'
$$;

-- Locks nothing.
create or replace function leasehold_internal.time_of(p_us text) returns timestamptz
language sql immutable
as $$
  select timestamptz '1970-01-01Z' + p_us::bigint * interval '1 us'
$$;

-- Schedules, in the order of their names, each with how its ticks stand. Locks nothing.
create or replace function leasehold_internal.schedules_shown(p_names text[])
returns table (
  {{shown.text}},
  after text)
language sql stable
security definer
as $$
  select s.name, s.expression, s.time_zone, s.starts_at, s.ends_at, s.catch_up, s.catch_up_max, (extract(epoch from s.tick_deadline) * 1000000)::bigint,
         s.overlap, (extract(epoch from s.jitter) * 1000000)::bigint, s.attempts, (extract(epoch from s.backoff) * 1000000)::bigint, s.paused,
         s.created_at, s.updated_at, case when not s.paused then s.next_at end,
         (select t.at from leasehold.tick t where t.schedule = s.name and t.state = 'done' order by t.at desc limit 1),
         (select count(*) from leasehold.tick t where t.schedule = s.name and t.state = 'running'),
         (select coalesce(sum(t.instants), 0)::bigint from leasehold.tick t where t.schedule = s.name and t.state = 'missed'),
         (select count(*) from leasehold.tick t where t.schedule = s.name and t.state = 'dead'),
         s.error, s.name
    from leasehold.schedule s
   where s.name = any (p_names)
   order by s.name
$$;
comment on function leasehold_internal.schedules_shown is 'Schedules and how their ticks stand, as a coordinator shows them';

-- A page of them. Locks nothing.
create or replace function leasehold_internal.view_schedules(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  {{shown.text}},
  after text)
language sql stable
security definer
as $$
  select x.*
    from leasehold_internal.schedules_shown(array(
           select s.name
             from leasehold.schedule s
            where leasehold_internal.is_within(s.name, p_namespaces, p_include_children) and s.name > coalesce(p_after, '')
            order by s.name
            limit p_limit)) x
$$;
comment on function leasehold_internal.view_schedules is 'Schedules, for people';

-- A page of ticks, the newest first, in this state (null: any), of instants from `p_since` on. Reads the newest of each schedule by the primary key. Locks
-- nothing.
create or replace function leasehold_internal.view_ticks(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text, p_state text default null,
  p_since timestamptz default null)
returns table (
  namespace text, at timestamptz, due_at timestamptz, state text, attempt integer, token bigint, owner text, next_try_at timestamptz,
  started_at timestamptz, ended_at timestamptz, result text, error text, instants bigint, until_at timestamptz, by_hand boolean, after text)
language sql stable
security definer
as $$
  select t.schedule, t.at, t.due_at, t.state, t.attempts, t.token, t.owner, t.next_try_at, t.started_at, t.ended_at, t.result::text, t.error, t.instants,
         t.until_at, t.by_hand, leasehold_internal.epoch_us(t.at) || ' ' || t.schedule
    from leasehold.schedule s
   cross join lateral (
         select k.*
           from leasehold.tick k
          where k.schedule = s.name and (p_state is null or k.state = p_state) and (p_since is null or k.at >= p_since)
            and (p_after is null
                 or (k.at, k.schedule) < (leasehold_internal.time_of(split_part(p_after, ' ', 1)), split_part(p_after, ' ', 2)))
          order by k.at desc
          limit p_limit) t
   where leasehold_internal.is_within(s.name, p_namespaces, p_include_children)
   order by t.at desc, t.schedule desc
   limit p_limit
$$;
comment on function leasehold_internal.view_ticks is 'Ticks of schedules, for people';

-- Set a schedule, or pause or resume it. They return it. They lock what set_schedule_by() and pause_schedule_by() do.
create or replace function leasehold_internal.schedule_set_by(p_by text, p_peer text, p_name text, p_names text[], p_values text[])
returns table (
  {{shown.text}},
  after text)
language plpgsql
security definer
as $$
begin
  perform leasehold_internal.set_schedule_by(
    p_by, p_peer, p_name, leasehold_internal.setting_of(p_names, p_values, 'expression'), leasehold_internal.setting_of(p_names, p_values, 'time_zone'),
    leasehold_internal.time_of(leasehold_internal.setting_of(p_names, p_values, 'starts_at')),
    leasehold_internal.time_of(leasehold_internal.setting_of(p_names, p_values, 'ends_at')),
    leasehold_internal.setting_of(p_names, p_values, 'catch_up'), leasehold_internal.setting_of(p_names, p_values, 'catch_up_max')::integer,
    leasehold_internal.interval_of(leasehold_internal.setting_of(p_names, p_values, 'tick_deadline')),
    leasehold_internal.setting_of(p_names, p_values, 'overlap')::integer,
    coalesce(leasehold_internal.interval_of(leasehold_internal.setting_of(p_names, p_values, 'jitter')), '0'),
    leasehold_internal.setting_of(p_names, p_values, 'attempts')::integer,
    coalesce(leasehold_internal.interval_of(leasehold_internal.setting_of(p_names, p_values, 'backoff')), '1 min'));
  return query select x.* from leasehold_internal.schedules_shown(array[p_name]) x;
end
$$;
comment on function leasehold_internal.schedule_set_by is 'Set a schedule by settings that have names, by a coordinator';

create or replace function leasehold_internal.schedule_pause_by(p_by text, p_peer text, p_name text, p_names text[], p_values text[])
returns table (
  {{shown.text}},
  after text)
language plpgsql
security definer
as $$
begin
  perform leasehold_internal.pause_schedule_by(p_by, p_peer, p_name, leasehold_internal.setting_of(p_names, p_values, 'paused')::boolean);
  return query select x.* from leasehold_internal.schedules_shown(array[p_name]) x;
end
$$;
comment on function leasehold_internal.schedule_pause_by is 'Pause or resume a schedule by settings that have names, by a coordinator';

-- Remove it. Returns whether it was there. Locks what remove_schedule_by() does.
create or replace function leasehold_internal.schedule_remove_by(p_by text, p_peer text, p_name text, p_names text[], p_values text[])
returns table (removed boolean)
language sql volatile
security definer
as $$
  select leasehold_internal.remove_schedule_by(p_by, p_peer, p_name)
$$;
comment on function leasehold_internal.schedule_remove_by is 'Remove a schedule, by a coordinator';

-- Make a tick now. Returns its instant as a Timestamp has it. Locks what run_schedule_now_by() does.
create or replace function leasehold_internal.schedule_run_now_by(p_by text, p_peer text, p_name text, p_names text[], p_values text[])
returns table (seconds bigint, nanos integer)
language sql volatile
security definer
as $$
  select extract(epoch from leasehold_internal.run_schedule_now_by(p_by, p_peer, p_name))::bigint, 0
$$;
comment on function leasehold_internal.schedule_run_now_by is 'Make a tick of a schedule, by a coordinator';

-- A schedule, in each row one of its newest ticks; one row where there is none. `next` are its next instants, microseconds with commas between them. Locks
-- nothing.
create or replace function leasehold_internal.schedule_get_by(p_by text, p_peer text, p_name text, p_names text[], p_values text[])
returns table (
  {{shown.text}},
  next text,
  at timestamptz, due_at timestamptz, state text, attempt integer, token bigint, owner text, next_try_at timestamptz,
  started_at timestamptz, ended_at timestamptz, result text, error text, instants bigint, until_at timestamptz, by_hand boolean)
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_next text;
begin
  perform leasehold_internal.refuse(leasehold_internal.schedule_problem(p_name, true));
  v_next := (
    select string_agg(leasehold_internal.epoch_us(i), ',' order by i)
      from leasehold.schedule s
     cross join lateral leasehold_internal.instants(
             leasehold_internal.read_expression(s.expression), s.time_zone, coalesce(s.starts_at, '1970-01-01Z'),
             greatest(s.made_until, clock_timestamp()), coalesce(s.ends_at, '9999-01-01Z'),
             leasehold_internal.setting_of(p_names, p_values, 'next')::integer) i
     where s.name = p_name);
  return query
    select x.namespace, x.expression, x.time_zone, x.starts_at, x.ends_at, x.catch_up, x.catch_up_max, x.tick_deadline, x.overlap, x.jitter, x.attempts,
           x.backoff, x.paused, x.created_at, x.updated_at, x.next_at, x.last_done_at, x.running, x.missed, x.dead, x.trouble, v_next,
           t.at, t.due_at, t.state, t.attempt, t.token, t.owner, t.next_try_at, t.started_at, t.ended_at, t.result, t.error,
           t.instants, t.until_at, t.by_hand
      from leasehold_internal.schedules_shown(array[p_name]) x
      left join leasehold_internal.view_ticks(array[p_name], false, null, leasehold_internal.setting_of(p_names, p_values, 'last')::integer, null, null, null) t
        on true
     order by t.at desc;
end
$$;
comment on function leasehold_internal.schedule_get_by is 'A schedule with its next instants and its newest ticks, by a coordinator';

-- Claim a tick. One row: the lease as a message has it, null where no tick may run, and how long until one may. Locks what claim_tick_by() does.
create or replace function leasehold_internal.tick_claim_by(p_by text, p_peer text, p_name text, p_names text[], p_values text[])
returns table (
  at timestamptz, attempt integer, namespace text, key text, lease_key text, token bigint, owner text, principal text, duration bigint, remaining bigint,
  deadline timestamptz, acquired_at timestamptz, heartbeats bigint, heartbeat_at timestamptz, grace bigint, liveness text, mode text, next_in bigint)
language plpgsql
security definer
{{few.settings}}
as $$
#variable_conflict use_column
declare
  v_claim record;
  v_lease leasehold.lease;
begin
  select c.* into v_claim
    from leasehold_internal.claim_tick_by(
           p_by, p_peer, p_name, leasehold_internal.setting_of(p_names, p_values, 'owner'),
           leasehold_internal.interval_of(leasehold_internal.setting_of(p_names, p_values, 'duration')),
           leasehold_internal.setting_of(p_names, p_values, 'lease_key')::uuid, leasehold_internal.setting_of(p_names, p_values, 'labels')::jsonb) c;
  if v_claim.at is null then
    next_in := (extract(epoch from leasehold_internal.wait_for_tick(p_name)) * 1000000)::bigint;
    return next;
    return;
  end if;
  v_lease := v_claim.lease;
  return query
    select v_claim.at::timestamptz, v_claim.attempt::integer, v_lease.namespace, v_lease.key, v_lease.lease_key::text, v_lease.token, v_lease.owner,
           v_lease.principal, (extract(epoch from v_lease.duration) * 1000000)::bigint, (extract(epoch from v_lease.remaining) * 1000000)::bigint,
           v_lease.deadline, v_lease.acquired_at, v_lease.heartbeats, v_lease.heartbeat_at, (extract(epoch from v_lease.grace) * 1000000)::bigint,
           v_lease.liveness, v_lease.mode, null::bigint;
end
$$;
comment on function leasehold_internal.tick_claim_by is 'Claim a tick by settings that have names, by a coordinator';

-- For metrics, of each schedule: what was found missed and what died in the last hour, what runs and what waits. The `p_max` that are worst, and the others
-- together, whose schedule is null. Reads indexes of ticks that have not ended, or ended badly. Locks nothing.
create or replace function leasehold_internal.survey_ticks(p_max integer)
returns table (schedule text, missed bigint, dead bigint, running bigint, waiting bigint)
language sql stable
security definer
set jit = off
as $$
  with standing as (
    select s.name,
           (select coalesce(sum(t.instants), 0)::bigint
              from leasehold.tick t
             where t.schedule = s.name and t.state = 'missed' and t.ended_at > statement_timestamp() - interval '1 hour') as missed,
           (select count(*)
              from leasehold.tick t
             where t.schedule = s.name and t.state = 'dead' and t.ended_at > statement_timestamp() - interval '1 hour') as dead,
           (select count(*) from leasehold.tick t where t.schedule = s.name and t.state = 'running') as running,
           (select count(*) from leasehold.tick t where t.schedule = s.name and t.state in ('due', 'failed')) as waiting
      from leasehold.schedule s
  ), ranked as (
    select g.*, row_number() over (order by g.missed + g.dead desc, g.waiting desc, g.name) as nth from standing g
  )
  select case when r.nth <= p_max then r.name end, sum(r.missed)::bigint, sum(r.dead)::bigint, sum(r.running)::bigint, sum(r.waiting)::bigint
    from ranked r
   group by 1
   order by 1 nulls last
$$;
comment on function leasehold_internal.survey_ticks is 'How the ticks of each schedule stand, for metrics';

grant execute on function leasehold_internal.tick_claim_by, leasehold_internal.survey_ticks, leasehold_internal.schedules_shown, leasehold_internal.view_schedules, leasehold_internal.view_ticks,
  leasehold_internal.schedule_set_by, leasehold_internal.schedule_pause_by, leasehold_internal.schedule_remove_by, leasehold_internal.schedule_run_now_by,
  leasehold_internal.schedule_get_by
  to leasehold_coordinator;
