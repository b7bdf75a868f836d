-- The tables, sequences, types and roles. Everything is new, so nothing is locked that anybody uses.

-- Group roles belong to the cluster, not to the database: another database may have made them already.
do $$
declare
  v_role text;
begin
  foreach v_role in array array['leasehold_client', 'leasehold_reader', 'leasehold_coordinator', 'leasehold_admin'] loop
    begin
      execute format('create role %I nologin', v_role);
    exception when duplicate_object or unique_violation then
      null;
    end;
  end loop;
end
$$;

grant usage on schema leasehold to leasehold_client, leasehold_reader, leasehold_coordinator, leasehold_admin;
comment on schema leasehold is 'Leases: exclusive, time-limited rights to names';

-- CACHE 1: a session that kept numbers back could draw an older token for a newer grant.
create sequence leasehold.token as bigint minvalue 1 cache 1;
comment on sequence leasehold.token is 'Fencing tokens; drawn only while the scope is exclusively ours, so they grow for every scope';
create sequence leasehold.ticket as bigint minvalue 1 cache 1;
comment on sequence leasehold.ticket is 'Places in the queues, in order of arrival';
-- A sequence, for its value is seen by everybody at once, without a row lock and outside of transactions.
create sequence leasehold.epoch_mark as bigint minvalue 0 start 0 cache 1;
comment on sequence leasehold.epoch_mark is 'For which system, table and timeline the token and ticket sequences have jumped (see ensure_epoch)';

create table leasehold.scope (
  namespace     text collate "C" not null,
  key           text collate "C" not null,
  state         text not null default 'free',
  lease_key     uuid,
  token         bigint not null default 0,
  acquired_at   timestamptz,
  heartbeat_at  timestamptz,
  deadline      timestamptz,
  heartbeats    bigint not null default 0,
  incarnation   bigint,
  check_at      timestamptz not null,
  ended_at      timestamptz,
  granted_by    uuid,
  reap_failures integer not null default 0,
  lapsed        boolean not null default false,
  queued        boolean not null default false,
  duration      interval,
  grace         interval,
  owner         text,
  labels        jsonb not null default '{}',
  last_outcome  text,
  last_result   jsonb,
  last_error    text,
  ended_keys    uuid[] not null default '{}',
  ended_outcomes text[] not null default '{}',
  constraint scope_pkey primary key (namespace, key),
  constraint scope_state check (state in ('free', 'held')),
  constraint scope_outcome check (last_outcome in ('ok', 'failed', 'expired', 'forced')),
  -- A scope that was never granted has no token to fence with.
  constraint scope_held_is_whole check (
    state <> 'held'
    or (lease_key is not null and token > 0 and acquired_at is not null and heartbeat_at is not null
        and deadline is not null and duration is not null and grace is not null)),
  -- A credential outlives nothing.
  constraint scope_free_has_no_key check (state <> 'free' or lease_key is null)
) with (
  -- Every heartbeat writes a new version of the row. With fillfactor 70 it finds room on its page, so that it stays HOT:
  -- 90 to 94% of acquires and releases, 99% of heartbeats; with 100 it was 38%, with 50 no better than with 70.
  fillfactor = 70,
  -- Few rows, changed often: vacuum by the number of changes, without pauses. Kept tables at half the size of the defaults.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
  -- Truncation takes an exclusive lock on the table, in the middle of the work.
  vacuum_truncate = off
);
-- The one indexed time. Nothing that a heartbeat changes is indexed.
create index scope_check_at on leasehold.scope (check_at);

comment on table leasehold.scope is 'One row for each scope that was leased lately; acquiring and releasing update it';
comment on column leasehold.scope.namespace is 'Dotted: payments.invoices';
comment on column leasehold.scope.key is 'The name inside of the namespace';
comment on column leasehold.scope.state is 'held or free';
comment on column leasehold.scope.lease_key is 'Names the acquisition that holds it: the credential to renew and release';
comment on column leasehold.scope.token is 'Fencing token of the last grant; each grant''s is larger than all before it';
comment on column leasehold.scope.acquired_at is 'Time of the last grant';
comment on column leasehold.scope.heartbeat_at is 'Last renewal, or the grant';
comment on column leasehold.scope.deadline is 'The owner must have stopped by then: last renewal + duration';
comment on column leasehold.scope.heartbeats is 'Renewals since the grant';
comment on column leasehold.scope.incarnation is 'The life of the database in which it was last renewed (leasehold.incarnation)';
comment on column leasehold.scope.check_at is 'When the reaper looks at the row: never later than the expiry, moved forward by its visit';
comment on column leasehold.scope.ended_at is 'When the last lease ended';
comment on column leasehold.scope.granted_by is 'The coordinator that granted or renewed it by an acquire; null: SQL';
comment on column leasehold.scope.reap_failures is 'How often reaping this lease has failed';
comment on column leasehold.scope.lapsed is 'Its holder was told that it is lost, before anybody reaped it: it never revives';
comment on column leasehold.scope.queued is 'Somebody may wait for it: false says that nobody does';
comment on column leasehold.scope.duration is 'How long the lease lives without a heartbeat';
comment on column leasehold.scope.grace is 'How long after the deadline it is still left alone';
comment on column leasehold.scope.owner is 'Free text that says who holds it, or held it last';
comment on column leasehold.scope.labels is 'A JSON object of strings';
comment on column leasehold.scope.last_outcome is 'How the last lease ended: ok, failed, expired, forced';
comment on column leasehold.scope.last_result is 'What its holder released it with';
comment on column leasehold.scope.last_error is 'Why it failed, or the reason of the force-release';
comment on column leasehold.scope.ended_keys is 'The last 8 lease keys that ended, newest last';
comment on column leasehold.scope.ended_outcomes is 'How they ended: ok, failed, expired, forced';

create table leasehold.coordinator (
  id         uuid not null,
  host       text not null,
  pid        integer not null,
  version    text not null,
  started_at timestamptz not null,
  seen_at    timestamptz not null,
  constraint coordinator_pkey primary key (id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, vacuum_truncate = off);
comment on table leasehold.coordinator is 'One row for each running daemon; one that shuts down cleanly removes its own';
comment on column leasehold.coordinator.id is 'New at each start';
comment on column leasehold.coordinator.host is 'Where it runs';
comment on column leasehold.coordinator.pid is 'Its process there';
comment on column leasehold.coordinator.version is 'Its version';
comment on column leasehold.coordinator.started_at is 'When it registered';
comment on column leasehold.coordinator.seen_at is 'Its last sign of life: once a second. It is live while that is under 5 s old';

-- Logged: a crash keeps the order of the queue.
create table leasehold.waiter (
  namespace   text collate "C" not null,
  key         text collate "C" not null,
  ticket      bigint not null,
  lease_key   uuid not null,
  coordinator uuid,
  enqueued_at timestamptz not null,
  wait_until  timestamptz,
  away_until  timestamptz,
  duration    interval,
  owner       text,
  constraint waiter_pkey primary key (namespace, key, ticket),
  -- One acquisition, one place. The lease key leads: a place is looked up by it alone, however long the queue is, and a plan
  -- made while the table was small must not walk the queue by its primary key instead (hence IS NOT DISTINCT FROM in the
  -- functions, which no index serves).
  constraint waiter_lease_key unique (lease_key, namespace, key)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000, vacuum_truncate = off
);
-- For what goes together: a dead coordinator's waiters, places kept too long, SQL users who stopped coming.
create index waiter_coordinator on leasehold.waiter (coordinator) where coordinator is not null;
create index waiter_away_until on leasehold.waiter (away_until) where away_until is not null;
create index waiter_wait_until on leasehold.waiter (wait_until) where coordinator is null;

comment on table leasehold.waiter is 'Who waits for what, in the order of the tickets';
comment on column leasehold.waiter.namespace is 'Of the scope';
comment on column leasehold.waiter.key is 'Of the scope';
comment on column leasehold.waiter.ticket is 'The place in the queue';
comment on column leasehold.waiter.lease_key is 'Of the acquisition that waits';
comment on column leasehold.waiter.coordinator is 'The daemon that its caller waits at; null: a SQL user (join_queue)';
comment on column leasehold.waiter.enqueued_at is 'Since when it waits';
comment on column leasehold.waiter.wait_until is 'How long at most; null: no limit';
comment on column leasehold.waiter.away_until is 'Its call has ended but may come back: the place is kept until then, and passed over';
comment on column leasehold.waiter.duration is 'Of the lease that it wants';
comment on column leasehold.waiter.owner is 'Who waits';

-- The root row takes these defaults; in every other row null means inherited.
create table leasehold.policy (
  namespace         text collate "C" not null,
  min_duration      interval default '1 s',
  max_duration      interval default '1 day',
  grace             interval default '1 s',
  max_hold          interval default '10 min',
  dead_after        interval,
  expiry            text default 'takeover',
  reaper            text default 'auto',
  frozen            boolean default false,
  max_leases        bigint,
  max_waiters       bigint,
  history           boolean default false,
  max_reap_failures integer default 20,
  hook_timeout      interval default '5 s',
  free_retention    interval default '60 s',
  history_retention interval default '30 days',
  constraint policy_pkey primary key (namespace),
  constraint policy_min_duration check (min_duration >= interval '100 ms'),
  constraint policy_max_duration check (max_duration >= interval '100 ms'),
  constraint policy_durations check (min_duration <= max_duration),
  constraint policy_grace check (grace >= interval '0'),
  constraint policy_max_hold check (max_hold >= interval '0'),
  constraint policy_dead_after check (dead_after >= interval '0'),
  constraint policy_expiry check (expiry in ('takeover', 'reap', 'manual')),
  constraint policy_reaper check (reaper in ('auto', 'external')),
  constraint policy_max_leases check (max_leases >= 0),
  constraint policy_max_waiters check (max_waiters >= 0),
  constraint policy_max_reap_failures check (max_reap_failures >= 0),
  constraint policy_hook_timeout check (hook_timeout >= interval '0'),
  constraint policy_free_retention check (free_retention >= interval '0'),
  constraint policy_history_retention check (history_retention >= interval '0')
);
insert into leasehold.policy (namespace) values ('');

comment on table leasehold.policy is 'Settings of namespaces, inherited from the longest configured prefix; '''' is the root';
comment on column leasehold.policy.namespace is 'The prefix that it is for';
comment on column leasehold.policy.min_duration is 'Shortest duration of a lease; never below 100 ms';
comment on column leasehold.policy.max_duration is 'Longest duration of a lease';
comment on column leasehold.policy.grace is 'How long after its deadline a lease is left alone';
comment on column leasehold.policy.max_hold is 'Held longer than this is reported as overdue; never enforced';
comment on column leasehold.policy.dead_after is 'A holder silent for longer is suspected dead; null: two thirds of its duration';
comment on column leasehold.policy.expiry is 'takeover: reaper or next acquirer; reap: the reaper only; manual: never by itself';
comment on column leasehold.policy.reaper is 'auto: every daemon; external: only a reap that names the namespace';
comment on column leasehold.policy.frozen is 'No new grants';
comment on column leasehold.policy.max_leases is 'Held at once below this prefix; null: no limit';
comment on column leasehold.policy.max_waiters is 'Queued for one scope; null: no limit';
comment on column leasehold.policy.history is 'Keep a record of every hold';
comment on column leasehold.policy.max_reap_failures is 'After so many failures a lease stays for a person';
comment on column leasehold.policy.hook_timeout is 'How long a hook may take';
comment on column leasehold.policy.free_retention is 'How long a free scope keeps its row';
comment on column leasehold.policy.history_retention is 'How long history is kept';

-- This life of this database. Anything that differs from the facts means that holders may not have been able to renew.
create table leasehold.incarnation (
  only_row          boolean not null default true,
  id                bigint not null,
  started_at        timestamptz not null,
  system_identifier bigint,
  table_oid         oid,
  timeline          bigint,
  postmaster_start  timestamptz,
  reason            text not null,
  constraint incarnation_pkey primary key (only_row),
  constraint incarnation_only_row check (only_row)
);
insert into leasehold.incarnation (id, started_at, reason) values (0, clock_timestamp(), 'installed');
comment on table leasehold.incarnation is 'This life of this database; when it changes, every lease gets one whole duration and grace to be renewed';

-- A crash recovery empties it, and changes nothing else that could be seen.
create unlogged table leasehold.incarnation_marker (
  only_row boolean not null default true,
  constraint incarnation_marker_pkey primary key (only_row),
  constraint incarnation_marker_only_row check (only_row)
);
comment on table leasehold.incarnation_marker is 'Has a row while the database has not crashed since the incarnation was written';
