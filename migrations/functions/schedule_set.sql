-- Schedules: set, pause, remove, run one now. Each function for people has a twin for a daemon, which names its caller and waits for no longer than a second.

-- What is wrong with a name; null when nothing is. `p_must_exist`: no schedule has it. Locks nothing.
create or replace function leasehold_internal.schedule_problem(p_name text, p_must_exist boolean) returns leasehold_internal.problem
language plpgsql stable
as $$
begin
  if leasehold_internal.namespace_problem(p_name) is not null then
    return row('name', leasehold_internal.namespace_problem(p_name))::leasehold_internal.problem;
  elsif p_must_exist and not exists (select from leasehold.schedule s where s.name = p_name) then
    return row('name', 'the name of a schedule, is ' || p_name)::leasehold_internal.problem;
  end if;
  return null;
end
$$;

-- What is wrong with the settings of a schedule; null when nothing is. Locks nothing.
create or replace function leasehold_internal.settings_problem(p_new leasehold.schedule) returns leasehold_internal.problem
language plpgsql stable
as $$
declare
  v_problem leasehold_internal.problem := leasehold_internal.schedule_problem(p_new.name, false);
  v_expression constant text := (leasehold_internal.read_expression(p_new.expression)).problem;
  v_zone constant text := leasehold_internal.zone_problem(p_new.time_zone);
begin
  return case
    when v_problem.field is not null then v_problem
    when (leasehold_internal.spread_of(p_new.name)).namespace is not null
      then row('name', format('in one database, as a schedule and its ticks are: %s is spread', p_new.name))::leasehold_internal.problem
    when v_expression is not null then row('expression', v_expression)::leasehold_internal.problem
    when v_zone is not null then row('time_zone', v_zone)::leasehold_internal.problem
    when p_new.starts_at not between '1970-01-01Z' and '9000-01-01Z' then row('starts_at', '1970 to 9000, is ' || p_new.starts_at)::leasehold_internal.problem
    when p_new.ends_at not between '1970-01-01Z' and '9000-01-01Z' then row('ends_at', '1970 to 9000, is ' || p_new.ends_at)::leasehold_internal.problem
    when p_new.ends_at <= p_new.starts_at then row('ends_at', format('after starts_at, %s, is %s', p_new.starts_at, p_new.ends_at))::leasehold_internal.problem
    when p_new.catch_up is null or p_new.catch_up not in ('none', 'last', 'all')
      then row('catch_up', 'none, last or all, is ' || coalesce(left(p_new.catch_up, 64), 'null'))::leasehold_internal.problem
    when p_new.catch_up_max is null or p_new.catch_up_max not between 1 and 1000
      then row('catch_up_max', '1 to 1000, is ' || coalesce(p_new.catch_up_max::text, 'null'))::leasehold_internal.problem
    when p_new.tick_deadline not between interval '1 s' and interval '366 days'
      then row('tick_deadline', '1 s to 366 days, is ' || p_new.tick_deadline)::leasehold_internal.problem
    when p_new.overlap is null or p_new.overlap not between 1 and 1000
      then row('overlap', '1 to 1000, is ' || coalesce(p_new.overlap::text, 'null'))::leasehold_internal.problem
    when p_new.jitter is null or p_new.jitter not between interval '0' and interval '1 day'
      then row('jitter', '0 to 1 day, is ' || coalesce(p_new.jitter::text, 'null'))::leasehold_internal.problem
    when p_new.attempts is null or p_new.attempts not between 1 and 1000
      then row('attempts', '1 to 1000, is ' || coalesce(p_new.attempts::text, 'null'))::leasehold_internal.problem
    when p_new.backoff is null or p_new.backoff not between interval '0' and interval '1 day'
      then row('backoff', '0 to 1 day, is ' || coalesce(p_new.backoff::text, 'null'))::leasehold_internal.problem
  end;
end
$$;

-- A schedule as it is set: null stands for what the database fills in. Locks nothing.
create or replace function leasehold_internal.new_schedule(
  p_name text, p_expression text, p_time_zone text, p_starts_at timestamptz, p_ends_at timestamptz, p_catch_up text, p_catch_up_max integer,
  p_tick_deadline interval, p_overlap integer, p_jitter interval, p_attempts integer, p_backoff interval)
returns leasehold.schedule
language plpgsql stable
as $$
declare
  v_new leasehold.schedule;
begin
  v_new.name := p_name;
  v_new.expression := p_expression;
  v_new.time_zone := p_time_zone;
  -- Instants are whole seconds, and `every` counts from it.
  v_new.starts_at := date_trunc('second', p_starts_at);
  v_new.ends_at := p_ends_at;
  v_new.catch_up := p_catch_up;
  v_new.catch_up_max := p_catch_up_max;
  v_new.tick_deadline := p_tick_deadline;
  v_new.overlap := p_overlap;
  v_new.jitter := p_jitter;
  v_new.attempts := p_attempts;
  v_new.backoff := p_backoff;
  return v_new;
end
$$;

-- Write a schedule whose settings have no problem. What has passed is written by the old settings, and what waits stays as it is. A new one begins now, or
-- at starts_at if that is later. Returns it.
-- Locks what mark_hooks() does where it is new, then the schedule's row.
create or replace function leasehold_internal.write_schedule(p_by text, p_peer text, p_new leasehold.schedule) returns leasehold.schedule
language plpgsql
as $$
declare
  v_schedule leasehold.schedule;
  v_now timestamptz;
  v_is_new boolean := not exists (select from leasehold.schedule s where s.name = p_new.name);
begin
  if v_is_new then
    perform leasehold_internal.mark_hooks();
    insert into leasehold.registered_hook (namespace, event, function_name, added_at)
    select p_new.name, e, 'leasehold_internal.tick_event(leasehold.lease_event)', clock_timestamp()
      from unnest(array['acquire', 'release_ok', 'release_fail', 'reap']) e
        on conflict do nothing;
    v_now := clock_timestamp();
    p_new.paused := false;
    p_new.created_at := v_now;
    p_new.updated_at := v_now;
    p_new.made_until := v_now;
    p_new.look_at := v_now;
    insert into leasehold.schedule select p_new.* on conflict do nothing;
  end if;
  select s.* into v_schedule from leasehold.schedule s where s.name = p_new.name for no key update;
  v_now := clock_timestamp();
  if not v_is_new then
    perform leasehold_internal.make_ticks_of(v_schedule, v_now);
  end if;
  update leasehold.schedule s
     set expression = p_new.expression,
         time_zone = p_new.time_zone,
         starts_at = p_new.starts_at,
         ends_at = p_new.ends_at,
         catch_up = p_new.catch_up,
         catch_up_max = p_new.catch_up_max,
         tick_deadline = p_new.tick_deadline,
         overlap = p_new.overlap,
         jitter = p_new.jitter,
         attempts = p_new.attempts,
         backoff = p_new.backoff,
         updated_at = v_now,
         -- The instant starts_at is the first.
         made_until = greatest(s.made_until, p_new.starts_at - interval '1 microsecond')
   where s.name = p_new.name
  returning s.* into v_schedule;
  insert into leasehold.tick_slot (schedule, slot)
  select p_new.name, n from generate_series(1, p_new.overlap) n
      on conflict do nothing;
  perform leasehold_internal.make_ticks_of(v_schedule, v_now);
  perform leasehold_internal.audit_add(p_by, p_peer, 'schedule_set', p_new.name, null, null, p_new.expression || ' in ' || p_new.time_zone);
  perform leasehold_internal.tell_workers(p_new.name);
  select s.* into v_schedule from leasehold.schedule s where s.name = p_new.name;
  return v_schedule;
end
$$;

-- Let no tick be claimed, or let them again. What passes meanwhile is skipped. Returns whether that is a change. Locks the schedule's row.
create or replace function leasehold_internal.write_pause(p_by text, p_peer text, p_name text, p_paused boolean) returns boolean
language plpgsql
as $$
declare
  v_schedule leasehold.schedule;
  v_now timestamptz;
begin
  select s.* into v_schedule from leasehold.schedule s where s.name = p_name for no key update;
  if not found or v_schedule.paused = p_paused then
    return false;
  end if;
  v_now := clock_timestamp();
  perform leasehold_internal.make_ticks_of(v_schedule, v_now);
  update leasehold.schedule s set paused = p_paused, updated_at = v_now where s.name = p_name;
  perform leasehold_internal.audit_add(p_by, p_peer, case when p_paused then 'schedule_pause' else 'schedule_resume' end, p_name, null, null, null);
  perform leasehold_internal.tell_workers(p_name);
  return true;
end
$$;

-- Remove a schedule with its ticks. Leases of ticks that run are then leases like any other. Returns whether it was there. Locks what mark_hooks() does,
-- then the schedule's row.
create or replace function leasehold_internal.write_removal(p_by text, p_peer text, p_name text) returns boolean
language plpgsql
as $$
begin
  perform leasehold_internal.mark_hooks();
  perform 1 from leasehold.schedule s where s.name = p_name for update;
  if not found then
    return false;
  end if;
  -- Ticks before slots, as end_tick() locks them.
  delete from leasehold.tick t where t.schedule = p_name;
  delete from leasehold.schedule s where s.name = p_name;
  delete from leasehold.registered_hook h
   where h.namespace = p_name and h.function_name = 'leasehold_internal.tick_event(leasehold.lease_event)';
  perform leasehold_internal.audit_add(p_by, p_peer, 'schedule_remove', p_name, null, null, null);
  perform leasehold_internal.tell_workers(p_name);
  return true;
end
$$;

-- A tick of this second, which waits until it is claimed, or for tick_deadline. One that is there already is returned: where it waits to be tried again it need
-- not any more, and where it was missed or skipped it becomes due; beside one that has ended the second before it is taken, for every later one may be an
-- instant of the expression. Returns its instant; null: there is none free in a minute. Locks the schedule's row, and the tick's.
create or replace function leasehold_internal.write_run(p_by text, p_peer text, p_name text) returns timestamptz
language plpgsql
as $$
declare
  v_schedule leasehold.schedule;
  v_now timestamptz;
  v_at timestamptz;
  v_is_there boolean;
begin
  select s.* into v_schedule from leasehold.schedule s where s.name = p_name for no key update;
  v_now := clock_timestamp();
  v_at := date_trunc('second', v_now);
  perform leasehold_internal.make_ticks_of(v_schedule, v_now);
  update leasehold.tick t
     set by_hand = true,
         next_try_at = case t.state when 'failed' then v_now end
   where t.schedule = p_name and t.at = v_at and t.state in ('failed', 'running');
  v_is_there := found;
  for v_seconds in 0 .. 60 loop
    exit when v_is_there;
    insert into leasehold.tick as t (schedule, at, due_at, claim_until, state, next_try_at, by_hand)
    values (p_name, v_at - v_seconds * interval '1 s', v_now, coalesce(v_now + v_schedule.tick_deadline, 'infinity'), 'due', v_now, true)
        on conflict (schedule, at) do update
       set due_at = v_now,
           claim_until = excluded.claim_until,
           state = 'due',
           next_try_at = v_now,
           ended_at = null,
           error = null,
           by_hand = true
     where v_seconds = 0 and t.state in ('missed', 'skipped', 'due') and t.instants = 1;
    v_is_there := found;
    if found then
      v_at := v_at - v_seconds * interval '1 s';
    end if;
  end loop;
  if not v_is_there then
    return null;
  end if;
  update leasehold.schedule s set look_at = least(s.look_at, v_now + s.tick_deadline) where s.name = p_name;
  perform leasehold_internal.audit_add(p_by, p_peer, 'schedule_run', p_name, leasehold_internal.tick_key(v_at), null, null);
  perform leasehold_internal.tell_workers(p_name);
  return v_at;
end
$$;

-- What write_run() found in the way. Locks nothing.
create or replace function leasehold_internal.run_problem() returns leasehold_internal.problem
language sql immutable
as $$
  select row('name', 'a schedule without a tick in each second of the last minute')::leasehold_internal.problem
$$;

-- Create a schedule, or replace its settings. Returns it. Locks what write_schedule() does.
create or replace function leasehold.set_schedule(
  name text, expression text, time_zone text default 'UTC', starts_at timestamptz default null, ends_at timestamptz default null,
  catch_up text default 'last', catch_up_max integer default 100, tick_deadline interval default null, overlap integer default 1,
  jitter interval default '0', attempts integer default 3, backoff interval default '1 min')
returns leasehold.schedule
language plpgsql
security definer
as $$
#variable_conflict use_variable
declare
  v_new constant leasehold.schedule := leasehold_internal.new_schedule(
    name, expression, time_zone, starts_at, ends_at, catch_up, catch_up_max, tick_deadline, overlap, jitter, attempts, backoff);
  v_denial text := leasehold_internal.denial('admin', name);
  v_problem leasehold_internal.problem := leasehold_internal.settings_problem(v_new);
begin
  {{checked.text}}
  return leasehold_internal.write_schedule(null, null, v_new);
end
$$;
comment on function leasehold.set_schedule is
  'Create a schedule, or replace its settings: each tick of the expression runs once, claimed by claim_tick(). Example:
  select name, next_at from leasehold.set_schedule(''reports.nightly'', ''0 3 * * *'', ''Europe/Berlin'')';

-- Let no tick of a schedule be claimed, or (`paused` false) let them again. Returns whether that is a change. Locks what write_pause() does.
create or replace function leasehold.pause_schedule(name text, paused boolean default true) returns boolean
language plpgsql
security definer
as $$
#variable_conflict use_variable
declare
  v_denial text := leasehold_internal.denial('admin', name);
  v_problem leasehold_internal.problem := leasehold_internal.schedule_problem(name, true);
begin
  if v_problem.field is null and paused is null then
    v_problem := row('paused', 'true or false');
  end if;
  {{checked.text}}
  return leasehold_internal.write_pause(null, null, name, paused);
end
$$;
comment on function leasehold.pause_schedule is
  'Let no tick of a schedule be claimed, or with false let them again; instants that pass meanwhile are skipped: whether that is a change. Example:
  select leasehold.pause_schedule(''reports.nightly'')';

-- Remove a schedule with its ticks. Returns whether it was there. Locks what write_removal() does.
create or replace function leasehold.remove_schedule(name text) returns boolean
language plpgsql
security definer
as $$
#variable_conflict use_variable
declare
  v_denial text := leasehold_internal.denial('admin', name);
  v_problem leasehold_internal.problem := leasehold_internal.schedule_problem(name, false);
begin
  {{checked.text}}
  return leasehold_internal.write_removal(null, null, name);
end
$$;
comment on function leasehold.remove_schedule is
  'Remove a schedule with its ticks: whether it was there. Example:
  select leasehold.remove_schedule(''reports.nightly'')';

-- Make a tick of this second, also while the schedule is paused. Returns its instant. Locks what write_run() does.
create or replace function leasehold.run_schedule_now(name text) returns timestamptz
language plpgsql
security definer
as $$
#variable_conflict use_variable
declare
  v_denial text := leasehold_internal.denial('admin', name);
  v_problem leasehold_internal.problem := leasehold_internal.schedule_problem(name, true);
  v_at timestamptz;
begin
  if v_problem.field is null and v_denial is null then
    v_at := leasehold_internal.write_run(null, null, name);
    if v_at is null then
      v_problem := leasehold_internal.run_problem();
    end if;
  end if;
  {{checked.text}}
  return v_at;
end
$$;
comment on function leasehold.run_schedule_now is
  'Make a tick of this second, which may be claimed at once, also while the schedule is paused: its instant. Example:
  select leasehold.run_schedule_now(''reports.nightly'')';

-- The same for a daemon: `p_by` and `p_peer` are its caller's principal and address.
create or replace function leasehold_internal.set_schedule_by(
  p_by text, p_peer text, p_name text, p_expression text, p_time_zone text, p_starts_at timestamptz, p_ends_at timestamptz, p_catch_up text,
  p_catch_up_max integer, p_tick_deadline interval, p_overlap integer, p_jitter interval, p_attempts integer, p_backoff interval)
returns leasehold.schedule
language plpgsql
security definer
set lock_timeout = '1s'
as $$
declare
  v_new constant leasehold.schedule := leasehold_internal.new_schedule(
    p_name, p_expression, p_time_zone, p_starts_at, p_ends_at, p_catch_up, p_catch_up_max, p_tick_deadline, p_overlap, p_jitter, p_attempts, p_backoff);
begin
  perform leasehold_internal.refuse(leasehold_internal.settings_problem(v_new));
  return leasehold_internal.write_schedule(p_by, p_peer, v_new);
end
$$;
comment on function leasehold_internal.set_schedule_by is 'Create or replace a schedule, by a coordinator';

create or replace function leasehold_internal.pause_schedule_by(p_by text, p_peer text, p_name text, p_paused boolean) returns boolean
language plpgsql
security definer
set lock_timeout = '1s'
as $$
begin
  perform leasehold_internal.refuse(leasehold_internal.schedule_problem(p_name, true));
  return leasehold_internal.write_pause(p_by, p_peer, p_name, p_paused);
end
$$;
comment on function leasehold_internal.pause_schedule_by is 'Pause or resume a schedule, by a coordinator';

create or replace function leasehold_internal.remove_schedule_by(p_by text, p_peer text, p_name text) returns boolean
language plpgsql
security definer
set lock_timeout = '1s'
as $$
begin
  perform leasehold_internal.refuse(leasehold_internal.schedule_problem(p_name, false));
  return leasehold_internal.write_removal(p_by, p_peer, p_name);
end
$$;
comment on function leasehold_internal.remove_schedule_by is 'Remove a schedule, by a coordinator';

create or replace function leasehold_internal.run_schedule_now_by(p_by text, p_peer text, p_name text) returns timestamptz
language plpgsql
security definer
set lock_timeout = '1s'
as $$
declare
  v_at timestamptz;
begin
  perform leasehold_internal.refuse(leasehold_internal.schedule_problem(p_name, true));
  v_at := leasehold_internal.write_run(p_by, p_peer, p_name);
  if v_at is null then
    perform leasehold_internal.refuse(leasehold_internal.run_problem());
  end if;
  return v_at;
end
$$;
comment on function leasehold_internal.run_schedule_now_by is 'Make a tick of this second, by a coordinator';

grant execute on function leasehold.set_schedule, leasehold.pause_schedule, leasehold.remove_schedule, leasehold.run_schedule_now to leasehold_admin;
grant execute on function leasehold_internal.set_schedule_by, leasehold_internal.pause_schedule_by, leasehold_internal.remove_schedule_by,
  leasehold_internal.run_schedule_now_by
  to leasehold_coordinator;
