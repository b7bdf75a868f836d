-- Instants become rows of leasehold.tick. Whoever passes by writes them: claim_tick(), until_tick(), reap(), and each daemon once a second; so a tick that
-- nobody takes is missed though no worker runs. Only the database's clock counts. One that steps back makes no tick a second time, for the row of the
-- first time is there.

-- The key of a tick's scope. Locks nothing.
create or replace function leasehold_internal.tick_key(p_at timestamptz) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
$$;

-- How much later than its instant a tick is due: the same for one tick, whoever asks. Locks nothing.
create or replace function leasehold_internal.tick_delay(p_name text, p_at timestamptz, p_jitter interval) returns interval
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select p_jitter * (('x' || left(md5(p_name || '/' || leasehold_internal.tick_key(p_at)), 8))::bit(32)::bigint / 4294967296.0)
$$;

-- The channel of a schedule, to LISTEN on. Locks nothing.
create or replace function leasehold.tick_channel(name text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select 'leasehold_tick_' || md5(name)
$$;
comment on function leasehold.tick_channel is
  'The channel on which workers of a schedule are told that a tick may be claimed earlier than until_tick() said. Example:
  select leasehold.tick_channel(''reports.nightly'')';

-- What is told on a schedule's channel: a tick may be claimed earlier than until_tick() said. Locks nothing.
create or replace function leasehold_internal.tell_workers(p_name text) returns void
language sql volatile
as $$
  select pg_notify(leasehold.tick_channel(p_name), p_name)
$$;

-- Write the ticks of a schedule that has something to write. Returns how many rows. Locks the schedule's row FOR NO KEY UPDATE SKIP LOCKED, for another
-- session that has it does the same, and rows of ticks, skipping what others have; waits for nobody.
create or replace function leasehold_internal.make_ticks(p_name text, p_now timestamptz) returns integer
language plpgsql
as $$
declare
  v_schedule leasehold.schedule;
begin
  select s.* into v_schedule from leasehold.schedule s where s.name = p_name and s.look_at <= p_now for no key update skip locked;
  return case when found then leasehold_internal.make_ticks_of(v_schedule, p_now) else 0 end;
end
$$;

-- The same of a schedule whose row the caller has locked. At most 1,000 rows: when more instants have passed, the oldest are one row with their count, and
-- where even that is long the rest is left to the next pass.
create or replace function leasehold_internal.make_ticks_of(p_schedule leasehold.schedule, p_now timestamptz) returns integer
language plpgsql
{{few.settings}}
as $$
declare
  v_table constant leasehold_internal.timetable := leasehold_internal.read_expression(p_schedule.expression);
  v_base constant timestamptz := coalesce(p_schedule.starts_at, '1970-01-01Z');
  v_until constant timestamptz := least(p_now, p_schedule.ends_at);
  v_after timestamptz := p_schedule.made_until;
  v_total bigint;
  v_found timestamptz[];
  v_next timestamptz;
  v_is_more boolean := false;
  v_count integer := 0;
begin
  if v_table.step is not null then
    v_total := leasehold_internal.steps_until(v_table.step, v_base, v_until) - leasehold_internal.steps_until(v_table.step, v_base, v_after);
    if v_total > 999 then
      v_found := array(select i from leasehold_internal.instants(v_table, p_schedule.time_zone, v_base, v_after, v_until, 2) i);
      v_after := v_base + (leasehold_internal.steps_until(v_table.step, v_base, v_until) - 1000) * v_table.step;
      perform leasehold_internal.fold_ticks(p_schedule, v_found, v_total - 999, v_after, p_now);
      v_count := 1;
    end if;
  end if;
  v_found := array(select i from leasehold_internal.instants(v_table, p_schedule.time_zone, v_base, v_after, v_until, 10000) i);
  if cardinality(v_found) > 999 then
    v_is_more := cardinality(v_found) = 10000;
    v_total := cardinality(v_found) - 999;
    v_after := v_found[v_total];
    perform leasehold_internal.fold_ticks(p_schedule, v_found, v_total, v_after, p_now);
    v_count := 1;
    v_found := v_found[v_total + 1:];
  end if;
  if v_is_more then
    update leasehold.schedule s set made_until = v_after, look_at = p_now where s.name = p_schedule.name;
    -- That was as much work as 1,000 rows.
    return 1000;
  end if;

  v_after := greatest(p_schedule.made_until, v_until);
  select i into v_next
    from leasehold_internal.instants(v_table, p_schedule.time_zone, v_base, v_after, coalesce(p_schedule.ends_at, '9999-01-01Z'), 1) i;
  v_count := v_count + leasehold_internal.write_ticks(p_schedule, v_found, v_next, p_now);
  perform leasehold_internal.miss_ticks(p_schedule, p_now);
  perform leasehold_internal.free_lost_ticks(p_schedule.name, p_now);
  update leasehold.schedule s
     set made_until = v_after,
         next_at = v_next,
         look_at = least(v_next, p_now + interval '1 min',
                         (select min(t.claim_until) from leasehold.tick t where t.schedule = p_schedule.name and t.state = 'due')),
         error = null
   where s.name = p_schedule.name;
  return v_count;
end
$$;

-- One row for many instants, of which the first ones are given and the last. The caller has the schedule's row locked.
create or replace function leasehold_internal.fold_ticks(
  p_schedule leasehold.schedule, p_first timestamptz[], p_count bigint, p_last timestamptz, p_now timestamptz)
returns void
language sql volatile
as $$
  insert into leasehold.tick (schedule, at, due_at, claim_until, state, ended_at, error, instants, until_at)
  select p_schedule.name, f.at, f.at, p_now, case when p_schedule.paused or p_schedule.catch_up = 'last' then 'skipped' else 'missed' end, p_now,
         format('%s instants passed while ticks were not written', p_count), case when f.at < p_last then p_count else 1 end,
         case when f.at < p_last then p_last end
    from (select u.at
            from unnest(p_first[1:2]) as u (at)
           -- One was run by hand at such an instant.
           where not exists (select from leasehold.tick t where t.schedule = p_schedule.name and t.at = u.at)
           order by u.at
           limit 1) f
$$;

-- A row for each of these instants, after which `p_next` comes. Returns how many. The caller has the schedule's row locked.
create or replace function leasehold_internal.write_ticks(
  p_schedule leasehold.schedule, p_found timestamptz[], p_next timestamptz, p_now timestamptz)
returns integer
language plpgsql
as $$
declare
  v_count integer;
begin
  insert into leasehold.tick (schedule, at, due_at, claim_until, state, next_try_at, ended_at, error)
  select p_schedule.name, d.at, d.due_at, d.claim_until, d.state, case when d.state = 'due' then d.due_at end, case when d.state <> 'due' then p_now end,
         case when d.state = 'due' then null
              when p_schedule.paused then 'the schedule was paused'
              when d.state = 'skipped' then 'a later tick was due when this one was written'
              else format('written %s after it was due; catch_up is %s', date_trunc('second', p_now - d.due_at), p_schedule.catch_up) end
    from (select c.at, c.due_at, c.claim_until,
                 case when p_schedule.paused then 'skipped'
                      when p_schedule.catch_up = 'last' and c.n < cardinality(p_found) then 'skipped'
                      when p_schedule.catch_up = 'none' and p_now >= c.due_at + coalesce(p_schedule.tick_deadline, interval '1 min') then 'missed'
                      when c.claim_until <= p_now then 'missed'
                      else 'due' end as state
            from (select u.n, u.at, l.due_at,
                         case when p_schedule.tick_deadline is not null then l.due_at + p_schedule.tick_deadline
                              when p_schedule.catch_up = 'all' or coalesce(p_found[u.n + 1], p_next) is null then 'infinity'
                              -- A late tick gets a moment though its follower's delay be short.
                              else greatest(l.due_at + interval '1 s',
                                            coalesce(p_found[u.n + 1], p_next)
                                            + leasehold_internal.tick_delay(p_schedule.name, coalesce(p_found[u.n + 1], p_next), p_schedule.jitter))
                         end as claim_until
                    from unnest(p_found) with ordinality as u (at, n)
                   cross join lateral (select u.at + leasehold_internal.tick_delay(p_schedule.name, u.at, p_schedule.jitter) as due_at) l) c) d
      on conflict do nothing;
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

-- Ticks that nobody claimed in time; and with catch_up all those that too many wait behind. Locks their rows, skipping those that are being claimed.
create or replace function leasehold_internal.miss_ticks(p_schedule leasehold.schedule, p_now timestamptz) returns void
language sql volatile
as $$
  update leasehold.tick t
     set state = case when p_schedule.paused then 'skipped' else 'missed' end,
         ended_at = p_now,
         next_try_at = null,
         error = case when p_schedule.paused then 'the schedule was paused'
                      when x.claim_until <= p_now then format('not claimed until %s', leasehold_internal.tick_key(x.claim_until))
                      else format('%s later ticks waited', p_schedule.catch_up_max) end
    from (select w.at, w.claim_until
            from leasehold.tick w
           where w.schedule = p_schedule.name and w.state = 'due'
             and (w.claim_until <= p_now
                  or p_schedule.catch_up = 'all' and not w.by_hand
                     and w.at <= (select o.at
                                    from leasehold.tick o
                                   where o.schedule = p_schedule.name and o.state = 'due' and not o.by_hand
                                   order by o.at desc
                                  offset p_schedule.catch_up_max
                                   limit 1))
             for update skip locked) x
   where t.schedule = p_schedule.name and t.at = x.at
$$;

-- Running ticks whose lease is gone though its end was not told here, as in a restored copy, or where the hooks were removed. Locks their rows, skipping
-- those that are being ended.
create or replace function leasehold_internal.free_lost_ticks(p_name text, p_now timestamptz) returns void
language sql volatile
as $$
  select leasehold_internal.end_tick(x.schedule, x.at, x.token, false, null, 'its lease is gone')
    from (select t.schedule, t.at, t.token
            from leasehold.tick t
           -- Whoever has claimed it since this statement began holds a lease that the statement does not see.
           where t.schedule = p_name and t.state = 'running' and t.started_at < p_now - interval '1 min'
             and not leasehold_internal.is_held(t.schedule, leasehold_internal.tick_key(t.at), t.token)
             for update skip locked) x
$$;

-- The clock has stepped back: what it showed before it was right must not keep schedules silent until it shows that again. Instants to come that no
-- worker has claimed are forgotten, and made when they come. Where ended ticks are kept for less than a day the rows of those that ran may be gone: such
-- a schedule waits. Locks the rows of schedules that went ahead, and of their ticks, skipping what others have.
create or replace function leasehold_internal.rewind_schedules(p_now timestamptz) returns void
language plpgsql
as $$
declare
  v_name text;
begin
  for v_name in
    update leasehold.schedule s
       set made_until = greatest(p_now, s.starts_at - interval '1 microsecond'),
           look_at = p_now
      from (select x.name
              from leasehold.schedule x
             where x.made_until > p_now + interval '1 s' and (x.starts_at is null or x.made_until >= x.starts_at)
               and leasehold_internal.retention_of('tick', x.name) >= interval '1 day'
               for no key update skip locked) o
     where s.name = o.name
    returning s.name
  loop
    delete from leasehold.tick t
     using (select x.at
              from leasehold.tick x
             where x.schedule = v_name and x.at > p_now and x.state in ('due', 'missed', 'skipped') and not x.by_hand
               for update skip locked) o
     where t.schedule = v_name and t.at = o.at;
    perform leasehold_internal.tell_workers(v_name);
  end loop;
end
$$;

-- All schedules for which it is time, at most 1,000 rows. A schedule that fails is noted and tried again in 10 s. Locks what make_ticks() does.
create or replace function leasehold_internal.make_all_ticks(p_now timestamptz) returns void
language plpgsql
as $$
declare
  v_name text;
  v_count integer := 0;
begin
  if leasehold_internal.is_blind() then
    return;
  end if;
  for v_name in
    select s.name from leasehold.schedule s where s.look_at <= p_now order by s.look_at limit 100
  loop
    begin
      v_count := v_count + leasehold_internal.make_ticks(v_name, p_now);
    exception when others then
      update leasehold.schedule s set look_at = p_now + interval '10 s', error = left(sqlerrm, 1024) where s.name = v_name;
      raise warning 'ticks of the schedule % cannot be written: %', v_name, sqlerrm;
    end;
    exit when v_count >= 1000;
  end loop;
end
$$;

-- Forget ended ticks that are older than the history of their namespace is kept. Returns whether all are gone. Deletes 10,000 at most.
create or replace function leasehold_internal.forget_ticks(p_now timestamptz) returns boolean
language plpgsql
as $$
declare
  v_count bigint;
begin
  delete from leasehold.tick d
   using (select t.ctid
            from (select s.name, p_now - leasehold_internal.retention_of('tick', s.name) as before from leasehold.schedule s) s
            join leasehold.tick t
              on t.schedule = s.name and t.ended_at < s.before
           limit 10000
             for update of t skip locked) x
   where d.ctid = x.ctid;
  get diagnostics v_count = row_count;
  return v_count < 10000;
end
$$;

grant execute on function leasehold.tick_channel to leasehold_client, leasehold_reader, leasehold_coordinator, leasehold_admin;
