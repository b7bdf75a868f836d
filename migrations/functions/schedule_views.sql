-- What people read of schedules and ticks.

create or replace view leasehold.schedule_status with (security_barrier) as
  select s.name, s.expression, s.time_zone, s.paused,
         s.next_at, s.next_at + leasehold_internal.tick_delay(s.name, s.next_at, s.jitter) as next_due_at,
         (select max(t.at) from leasehold.tick t where t.schedule = s.name and t.state = 'done') as last_done,
         (select max(t.ended_at) from leasehold.tick t where t.schedule = s.name and t.state = 'done') as last_done_at,
         (select count(*) from leasehold.tick t where t.schedule = s.name and t.state = 'running') as running,
         (select count(*) from leasehold.tick t where t.schedule = s.name and t.state in ('due', 'failed')) as waiting,
         (select coalesce(sum(t.instants), 0)::bigint
            from leasehold.tick t
           where t.schedule = s.name and t.state = 'missed' and t.ended_at > statement_timestamp() - interval '24 hours') as missed,
         (select count(*) from leasehold.tick t where t.schedule = s.name and t.state = 'dead') as dead,
         s.error
    from leasehold.schedule s
   where coalesce((s.name || '.') like any ((select leasehold_internal.readable())::text[]), false);
comment on view leasehold.schedule_status is 'How it stands with each schedule';
comment on column leasehold.schedule_status.name is 'The namespace of its ticks';
comment on column leasehold.schedule_status.expression is 'Five fields of cron, @daily and the like, or every 10 min';
comment on column leasehold.schedule_status.time_zone is 'In which the fields of cron are read';
comment on column leasehold.schedule_status.paused is 'No tick is claimed';
comment on column leasehold.schedule_status.next_at is 'The next instant; null: none any more';
comment on column leasehold.schedule_status.next_due_at is 'The same with its jitter';
comment on column leasehold.schedule_status.last_done is 'The newest tick that is done';
comment on column leasehold.schedule_status.last_done_at is 'When a tick was done last';
comment on column leasehold.schedule_status.running is 'Ticks that run';
comment on column leasehold.schedule_status.waiting is 'Ticks that are due, or wait for their next attempt';
comment on column leasehold.schedule_status.missed is 'Instants found missed in the last 24 hours';
comment on column leasehold.schedule_status.dead is 'Ticks whose last attempt failed, as long as they are remembered';
comment on column leasehold.schedule_status.error is 'Why its ticks cannot be written; null: they can';

create or replace view leasehold.missed_tick with (security_barrier) as
  select t.schedule, t.at, t.due_at, t.until_at, t.instants, t.ended_at as missed_at, t.error
    from leasehold.tick t
   where t.state = 'missed' and coalesce((t.schedule || '.') like any ((select leasehold_internal.readable())::text[]), false);
comment on view leasehold.missed_tick is 'Ticks that nobody claimed in time';
comment on column leasehold.missed_tick.schedule is 'Of which schedule';
comment on column leasehold.missed_tick.at is 'The instant';
comment on column leasehold.missed_tick.due_at is 'From when on it could be claimed';
comment on column leasehold.missed_tick.until_at is 'Of a row for many instants the last; else null';
comment on column leasehold.missed_tick.instants is 'How many instants the row is about';
comment on column leasehold.missed_tick.missed_at is 'When that was found';
comment on column leasehold.missed_tick.error is 'Why';

-- As access_checks.sql does it for other tables that people read.
do $$
begin
  if not exists (select from pg_catalog.pg_policy p where p.polrelid = 'leasehold.schedule'::regclass and p.polname = 'readable') then
    create policy readable on leasehold.schedule for select using ((name || '.') like any ((select leasehold_internal.readable())::text[]));
    alter table leasehold.schedule enable row level security;
    create policy readable on leasehold.tick for select using ((schedule || '.') like any ((select leasehold_internal.readable())::text[]));
    alter table leasehold.tick enable row level security;
  end if;
end
$$;

grant select on leasehold.schedule, leasehold.schedule_status, leasehold.missed_tick to leasehold_reader, leasehold_coordinator, leasehold_admin;
-- Lease keys are credentials.
grant select (schedule, at, due_at, claim_until, state, attempts, token, owner, next_try_at, started_at, ended_at, result, error, by_hand, instants, until_at)
  on leasehold.tick to leasehold_reader, leasehold_coordinator;
grant select on leasehold.tick, leasehold.tick_slot to leasehold_admin;
grant execute on function leasehold_internal.tick_key, leasehold_internal.tick_delay to leasehold_reader, leasehold_coordinator, leasehold_admin;
