-- Schedules: a tick is a row, so that "has the 03:00 run happened" has an answer. Everything is new, but two CHECKs, which have more words and are
-- not proved again (NOT VALID): ACCESS EXCLUSIVE locks on leasehold.audit and leasehold.keeping for a moment.
create type leasehold_internal.timetable as (
  step interval, minutes integer[], hours integer[], days integer[], last_day boolean, months integer[], weekdays integer[], is_either boolean,
  problem text);
comment on type leasehold_internal.timetable is 'An expression of a schedule as it was read: a step of elapsed time, or the fields of cron; or what is wrong with it';

create table leasehold.schedule (
  name          text collate "C" not null,
  expression    text not null,
  time_zone     text not null,
  starts_at     timestamptz,
  ends_at       timestamptz,
  catch_up      text not null,
  catch_up_max  integer not null,
  tick_deadline interval,
  overlap       integer not null,
  jitter        interval not null,
  attempts      integer not null,
  backoff       interval not null,
  paused        boolean not null default false,
  created_at    timestamptz not null,
  updated_at    timestamptz not null,
  made_until    timestamptz not null,
  next_at       timestamptz,
  look_at       timestamptz not null,
  error         text,
  constraint schedule_pkey primary key (name),
  constraint schedule_catch_up check (catch_up in ('none', 'last', 'all')),
  -- A pass writes at most 1,000 ticks.
  constraint schedule_catch_up_max check (catch_up_max between 1 and 1000),
  constraint schedule_overlap check (overlap between 1 and 1000),
  constraint schedule_attempts check (attempts between 1 and 1000),
  -- An interval that runs backwards would have a second instant before the first.
  constraint schedule_ends_after_start check (ends_at > starts_at)
) with (fillfactor = 50);
create index schedule_look_at on leasehold.schedule (look_at);
comment on table leasehold.schedule is 'Namespaces whose keys are the instants of a timetable, each of which runs once';
comment on column leasehold.schedule.name is 'The namespace of its ticks, dotted: reports.nightly';
comment on column leasehold.schedule.expression is 'Five fields of cron, @daily and the like, or every 10 min';
comment on column leasehold.schedule.time_zone is 'In which the fields of cron are read; a name of pg_timezone_names';
comment on column leasehold.schedule.starts_at is 'No instant before; every N counts from it; null: since it was created';
comment on column leasehold.schedule.ends_at is 'No instant after; null: no end';
comment on column leasehold.schedule.catch_up is 'Of several instants found at once: none (missed), last (the newest runs), all (the newest catch_up_max run)';
comment on column leasehold.schedule.catch_up_max is 'With catch_up all: how many ticks wait at most; older ones are missed';
comment on column leasehold.schedule.tick_deadline is 'A tick not claimed so long after its due time is missed; null: when the next one is due';
comment on column leasehold.schedule.overlap is 'How many of its ticks run at once at most';
comment on column leasehold.schedule.jitter is 'Each tick is due later than its instant by less than that, always the same for one tick';
comment on column leasehold.schedule.attempts is 'How often a tick is claimed at most; then it is dead';
comment on column leasehold.schedule.backoff is 'How long after its first failed attempt a tick may be claimed again; twice as long after each further one, a day at most';
comment on column leasehold.schedule.paused is 'No tick is claimed but those of run_schedule_now(); instants are skipped';
comment on column leasehold.schedule.created_at is 'When it was set first';
comment on column leasehold.schedule.updated_at is 'When it was set or paused last';
comment on column leasehold.schedule.made_until is 'Each instant up to then has had its row in leasehold.tick; it never goes back';
comment on column leasehold.schedule.next_at is 'The first instant after that; null: none any more';
comment on column leasehold.schedule.look_at is 'When whoever passes by writes ticks again';
comment on column leasehold.schedule.error is 'Why its ticks cannot be written; null: they can';

create table leasehold.tick (
  schedule    text collate "C" not null,
  at          timestamptz not null,
  due_at      timestamptz not null,
  claim_until timestamptz not null,
  state       text not null,
  attempts    integer not null default 0,
  token       bigint,
  owner       text,
  lease_key   uuid,
  next_try_at timestamptz,
  started_at  timestamptz,
  ended_at    timestamptz,
  result      jsonb,
  error       text,
  by_hand     boolean not null default false,
  instants    bigint not null default 1,
  until_at    timestamptz,
  -- An instant has one row, whoever writes it, and a row is claimed once at a time.
  constraint tick_pkey primary key (schedule, at),
  constraint tick_schedule foreign key (schedule) references leasehold.schedule (name) on delete cascade,
  constraint tick_state check (state in ('due', 'running', 'done', 'failed', 'dead', 'missed', 'skipped')),
  -- The key names the instant to the second.
  constraint tick_whole_second check (at = date_trunc('second', at)),
  -- A late worker is told from the present one by its token.
  constraint tick_running_has_token check (state <> 'running' or (token is not null and started_at is not null)),
  constraint tick_waits_for_a_time check ((state in ('due', 'failed')) = (next_try_at is not null)),
  constraint tick_ended_at_a_time check ((state in ('done', 'dead', 'missed', 'skipped')) = (ended_at is not null)),
  constraint tick_attempts check ((state in ('due', 'missed', 'skipped')) = (attempts = 0)),
  -- One row for many instants that nobody can claim.
  constraint tick_instants check (instants = 1 and until_at is null or instants > 1 and until_at > at and state in ('missed', 'skipped'))
) with (fillfactor = 70);
create index tick_waiting on leasehold.tick (schedule, at) where state in ('due', 'failed');
create index tick_running on leasehold.tick (schedule) where state = 'running';
create index tick_trouble on leasehold.tick (schedule, state, ended_at) where state in ('missed', 'dead');
-- A claim that is repeated after its answer was lost gets the same tick; one that is repeated after its end gets none.
create unique index tick_lease_key on leasehold.tick (schedule, lease_key) where lease_key is not null;
create index tick_ended_at on leasehold.tick (ended_at) where ended_at is not null;
comment on table leasehold.tick is 'The ticks of schedules; ended ones go with the history_retention of their namespace';
comment on column leasehold.tick.schedule is 'The namespace of its lease';
comment on column leasehold.tick.at is 'The instant; in UTC, as 2026-11-28T03:00:00Z, the key of its lease';
comment on column leasehold.tick.due_at is 'From when on it may be claimed: the instant and its jitter';
comment on column leasehold.tick.claim_until is 'Not claimed by then it is missed; infinity: it waits';
comment on column leasehold.tick.state is
  'due; running; done; failed (waits for its next attempt); dead (its last attempt failed); missed (not claimed in time); skipped (catch_up or a pause passed it over)';
comment on column leasehold.tick.attempts is 'How often it was claimed';
comment on column leasehold.tick.token is 'Fencing token of the last claim';
comment on column leasehold.tick.owner is 'Who claimed it last, in the worker''s own words';
comment on column leasehold.tick.lease_key is 'Lease key of the last claim';
comment on column leasehold.tick.next_try_at is 'From when on it may be claimed (again); null: it runs or has ended';
comment on column leasehold.tick.started_at is 'When it was claimed last';
comment on column leasehold.tick.ended_at is 'When it ended for good';
comment on column leasehold.tick.result is 'What it was released with';
comment on column leasehold.tick.error is 'Why the last attempt failed, or why it did not run';
comment on column leasehold.tick.by_hand is 'Made by run_schedule_now()';
comment on column leasehold.tick.instants is 'More than 1: this row is about so many instants, from `at` to `until_at`';
comment on column leasehold.tick.until_at is 'The last of them';

-- Who claims a tick takes one of these, skipping what others are taking: `overlap` holds without a lock that another claim waits for.
create table leasehold.tick_slot (
  schedule text collate "C" not null,
  slot     integer not null,
  at       timestamptz,
  constraint tick_slot_pkey primary key (schedule, slot),
  constraint tick_slot_schedule foreign key (schedule) references leasehold.schedule (name) on delete cascade
) with (fillfactor = 50);
comment on table leasehold.tick_slot is 'Places for the ticks of a schedule that run at once; those up to its overlap count';
comment on column leasehold.tick_slot.schedule is 'Of which schedule';
comment on column leasehold.tick_slot.slot is '1 and on';
comment on column leasehold.tick_slot.at is 'The tick that runs in it; null: it is free';

alter table leasehold.audit
  drop constraint audit_action,
  add constraint audit_action check (action in (
    'force_release', 'reap', 'policy_set', 'policy_reset', 'hook_add', 'hook_remove', 'access_grant', 'access_revoke',
    'token_create', 'token_revoke', 'denied', 'schedule_set', 'schedule_pause', 'schedule_resume', 'schedule_remove', 'schedule_run')) not valid;
comment on column leasehold.audit.action is
  'force_release, reap, policy_set, policy_reset, hook_add, hook_remove, access_grant, access_revoke, token_create, token_revoke, denied, schedule_set, '
  'schedule_pause, schedule_resume, schedule_remove, schedule_run';

alter table leasehold.keeping
  drop constraint keeping_name,
  drop constraint keeping_retention,
  add constraint keeping_name check (name in ('history', 'audit', 'tick')),
  add constraint keeping_retention check ((retention is null) = (name in ('history', 'tick')) and retention >= interval '0');
insert into leasehold.keeping (name, look_at, retention) values ('tick', clock_timestamp(), null);
comment on table leasehold.keeping is 'Tables whose old rows go: when they are looked after again; the lock of a row says who is at it';
comment on column leasehold.keeping.name is 'history, audit or tick';
