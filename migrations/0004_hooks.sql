-- Hooks: functions that run in the transaction in which a lease changes, and what becomes of a lease that could not be reaped.
-- Adds columns to leasehold.scope: its ACCESS EXCLUSIVE lock for a moment, no rewrite. Everything else is new.

create type leasehold.lease_event as (
  event text, namespace text, key text, lease_key uuid, token bigint, owner text, labels jsonb, duration interval,
  acquired_at timestamptz, deadline timestamptz, result jsonb, error text);
comment on type leasehold.lease_event is
  'What a hook is told of the lease: a grant or renewal with its new deadline, a release with its result or error';
comment on column leasehold.lease_event.event is 'acquire, heartbeat, release_ok, release_fail, reap';
comment on column leasehold.lease_event.namespace is 'Dotted: payments.invoices';
comment on column leasehold.lease_event.key is 'The name inside of the namespace';
comment on column leasehold.lease_event.lease_key is 'Names the acquisition';
comment on column leasehold.lease_event.token is 'Fencing token of the lease';
comment on column leasehold.lease_event.owner is 'Who holds it, in the holder''s own words';
comment on column leasehold.lease_event.labels is 'A JSON object of strings';
comment on column leasehold.lease_event.duration is 'How long it lives without a heartbeat';
comment on column leasehold.lease_event.acquired_at is 'When it was granted';
comment on column leasehold.lease_event.deadline is 'The owner must have stopped by then';
comment on column leasehold.lease_event.result is 'What it is released with, as done';
comment on column leasehold.lease_event.error is 'Why it failed; the reason of a force-release; null when it expired';

-- By name, and not as regprocedure: pg_upgrade refuses tables with such a column, and a function that is dropped and created
-- again stays a hook. People read the view leasehold.hook.
create table leasehold.registered_hook (
  namespace     text collate "C" not null,
  event         text not null,
  function_name text not null,
  position      bigint not null generated always as identity,
  added_at      timestamptz not null,
  constraint registered_hook_pkey primary key (namespace, event, function_name),
  constraint registered_hook_event check (event in ('acquire', 'heartbeat', 'release_ok', 'release_fail', 'reap'))
);
comment on table leasehold.registered_hook is 'Hooks by the names of their functions; see the view leasehold.hook';
comment on column leasehold.registered_hook.namespace is 'For this namespace and all below it; '''' is everything';
comment on column leasehold.registered_hook.event is 'acquire, heartbeat, release_ok, release_fail, reap';
comment on column leasehold.registered_hook.function_name is 'Qualified, with its argument';
comment on column leasehold.registered_hook.position is 'Of several for one namespace and event the lowest runs first';
comment on column leasehold.registered_hook.added_at is 'Since when';
comment on sequence leasehold.registered_hook_position_seq is 'Positions of hooks';

-- What they say counts while reap_failures > 0, and that is set to 0 by every grant and end. So no other path has to touch them.
alter table leasehold.scope
  add column reap_error text,
  add column reap_failed_at timestamptz,
  add column next_try_at timestamptz;
comment on column leasehold.scope.reap_error is 'Why reaping this lease failed last';
comment on column leasehold.scope.reap_failed_at is 'When reaping this lease failed last';
comment on column leasehold.scope.next_try_at is
  'Reaping it is tried again then, and it is not taken over before; null: not by itself any more (max_reap_failures)';
