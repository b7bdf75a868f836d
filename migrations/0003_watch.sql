-- Watching: who watches what, and the changes that wait to be taken. Everything is new, so nothing is locked that anybody uses.
--
-- Both tables are UNLOGGED, and stand or fall together: a crash or a failover empties both. Events that were lost must not
-- leave a watch behind that looks as if it had missed nothing; a coordinator without any watch is told so (take_events).

create unlogged table leasehold.watch (
  id               bigint not null generated always as identity,
  coordinator      uuid not null,
  namespace        text collate "C" not null,
  include_children boolean not null,
  added_at         timestamptz not null,
  -- By a number, and not by what it says: two who add and sweep the same watch at once never wait for each other.
  constraint watch_pkey primary key (id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, vacuum_truncate = off);
-- A change looks up its namespace and each prefix of it.
create index watch_namespace on leasehold.watch (namespace);

comment on table leasehold.watch is 'Which coordinator is told of changes under which namespace; usually empty';
comment on column leasehold.watch.id is 'Counts';
comment on sequence leasehold.watch_id_seq is 'Numbers of watches';
comment on column leasehold.watch.coordinator is 'Who is told';
comment on column leasehold.watch.namespace is 'Of the scopes that are watched; '''' is everything';
comment on column leasehold.watch.include_children is 'The namespaces below it too';
comment on column leasehold.watch.added_at is 'Since when';

-- CACHE 1: a session that kept numbers back could number a later event of a scope before an earlier one.
create sequence leasehold.event_number as bigint minvalue 1 cache 1;
comment on sequence leasehold.event_number is
  'Numbers of events; drawn while the scope''s row is locked, so they are in order for every scope';

-- A sequence, for its value is seen by everybody at once, whatever the snapshot.
create sequence leasehold.watch_mark as bigint minvalue 0 start 0 cache 1;
comment on sequence leasehold.watch_mark is 'The transaction that added the last watch (see check_watch_mark)';

create unlogged table leasehold.event (
  coordinator  uuid not null,
  number       bigint not null,
  type         text not null,
  at           timestamptz not null,
  namespace    text collate "C",
  key          text collate "C",
  token        bigint,
  owner        text,
  labels       jsonb,
  duration     interval,
  grace        interval,
  acquired_at  timestamptz,
  deadline     timestamptz,
  heartbeats   bigint,
  heartbeat_at timestamptz,
  end_reason   text,
  reason       text,
  result       jsonb,
  error        text,
  constraint event_pkey primary key (coordinator, number),
  constraint event_type check (type in ('acquired', 'released', 'expired', 'forced', 'lagged')),
  constraint event_end_reason check (end_reason in ('released', 'failed', 'expired', 'forced')),
  constraint event_is_whole check (
    type = 'lagged' or (namespace is not null and key is not null and token is not null and (end_reason is null) = (type = 'acquired')))
) with (
  -- Written once, taken once: as many dead rows as events.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_vacuum_insert_threshold = -1, vacuum_truncate = off
);
-- Nothing is written for a coordinator that has lagged: asked once for each batch of changes.
create index event_lagged on leasehold.event (coordinator) where type = 'lagged';

comment on table leasehold.event is 'Leases granted and ended, one row for each coordinator that watches, until it takes it';
comment on column leasehold.event.coordinator is 'Who takes it';
comment on column leasehold.event.number is 'In order for a scope';
comment on column leasehold.event.type is 'acquired, released, expired, forced; lagged: it stopped taking, and what came since is not here';
comment on column leasehold.event.at is 'When it was written';
comment on column leasehold.event.namespace is 'Of the scope';
comment on column leasehold.event.key is 'Of the scope';
comment on column leasehold.event.token is 'Of the lease that was granted or ended';
comment on column leasehold.event.owner is 'Who holds it, or held it';
comment on column leasehold.event.labels is 'A JSON object of strings';
comment on column leasehold.event.duration is 'How long it lives without a heartbeat';
comment on column leasehold.event.grace is 'How long after its deadline it is still left alone';
comment on column leasehold.event.acquired_at is 'When it was granted';
comment on column leasehold.event.deadline is 'Its last one';
comment on column leasehold.event.heartbeats is 'Renewals since the grant';
comment on column leasehold.event.heartbeat_at is 'Last renewal, or the grant';
comment on column leasehold.event.end_reason is 'How it ended: released, failed, expired, forced; null: it was granted';
comment on column leasehold.event.reason is 'Of a force-release';
comment on column leasehold.event.result is 'What its holder released it with';
comment on column leasehold.event.error is 'Why it failed';
