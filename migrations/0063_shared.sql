-- Shared leases: a row for each shared holder beside the scope's row, which then is `shared` and counts the units that they take. ACCESS
-- EXCLUSIVE locks on leasehold.scope, leasehold.waiter, leasehold.policy, leasehold.history and leasehold.event for a moment; none is rewritten, and the new CHECKs of
-- leasehold.scope read it once.
alter table leasehold.scope
  add column units integer,
  add column holders integer,
  add column slots integer[],
  drop constraint scope_state,
  add constraint scope_state check (state in ('free', 'held', 'shared')),
  drop constraint scope_free_has_no_key,
  -- A credential outlives nothing, and shared holders have theirs in leasehold.share.
  add constraint scope_free_has_no_key check (state = 'held' or lease_key is null);
comment on column leasehold.scope.state is 'held by one exclusively, shared, or free';
comment on column leasehold.scope.units is 'What shared holders take of the capacity; null: there is none, so that the row of an exclusive lease is no longer for it';
comment on column leasehold.scope.holders is 'How many shared holders there are: the rows of leasehold.share that are held; null: none';
comment on column leasehold.scope.slots is
  'Always null here: functions describe a shared holder by a value of this table''s type, which has its slots (scope_of_share)';
comment on column leasehold.scope.queued is
  'Somebody may wait for it, it has a minimum hold, it is shared, or rows of leasehold.share remember who held it: the quick paths leave '
  'it alone. False says that no daemon''s caller waits, and no SQL user who joined while it was free, and that there is none of the others';

create table leasehold.share (
  namespace     text collate "C" not null,
  key           text collate "C" not null,
  lease_key     uuid not null,
  state         text not null default 'held',
  token         bigint not null,
  units         integer not null,
  slots         integer[],
  acquired_at   timestamptz not null,
  heartbeat_at  timestamptz not null,
  deadline      timestamptz not null,
  heartbeats    bigint not null default 0,
  incarnation   bigint not null,
  check_at      timestamptz not null,
  granted_by    uuid,
  lapsed        boolean not null default false,
  duration      interval not null,
  grace         interval not null,
  owner         text,
  principal     text,
  labels        jsonb not null default '{}',
  reap_failures integer not null default 0,
  reap_error    text,
  reap_failed_at timestamptz,
  next_try_at   timestamptz,
  ended_at      timestamptz,
  outcome       text,
  result        jsonb,
  error         text,
  constraint share_pkey primary key (namespace, key, lease_key),
  constraint share_state check (state in ('held', 'ended')),
  constraint share_outcome check (outcome in ('ok', 'failed', 'expired', 'forced')),
  constraint share_units check (units between 1 and 1000000),
  -- How a lease ended is told to whoever comes late with its lease key.
  constraint share_ended_is_whole check (state = 'held' or (ended_at is not null and outcome is not null))
) with (
  -- As for leasehold.scope: every heartbeat writes a new version of the row, and nothing that it changes is indexed.
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000, vacuum_truncate = off
);
-- The holders of a scope, the oldest first: rows that have ended are many more where leases are short.
create index share_held on leasehold.share (namespace, key, token) where state = 'held';
create index share_check_at on leasehold.share (check_at);

comment on table leasehold.share is 'One row for each shared holder; one that has ended stays for free_retention, so that its lease key is remembered';
comment on column leasehold.share.namespace is 'Of the scope';
comment on column leasehold.share.key is 'Of the scope';
comment on column leasehold.share.lease_key is 'Names the acquisition: the credential to renew and release';
comment on column leasehold.share.state is 'held or ended';
comment on column leasehold.share.token is 'Fencing token: larger than those of all leases of the scope before it';
comment on column leasehold.share.units is 'What it takes of the capacity';
comment on column leasehold.share.slots is 'Its numbers of 1..capacity, ascending; null: it was granted while there was no capacity';
comment on column leasehold.share.acquired_at is 'Time of the grant';
comment on column leasehold.share.heartbeat_at is 'Last renewal, or the grant';
comment on column leasehold.share.deadline is 'The owner must have stopped by then: last renewal + duration';
comment on column leasehold.share.heartbeats is 'Renewals since the grant';
comment on column leasehold.share.incarnation is 'The life of the database in which it was last renewed (leasehold.incarnation)';
comment on column leasehold.share.check_at is 'When the reaper looks at the row: never later than the expiry, moved forward by its visit';
comment on column leasehold.share.granted_by is 'The coordinator that granted or renewed it by an acquire; null: SQL';
comment on column leasehold.share.lapsed is 'Its holder was told that it is lost, before anybody reaped it: it never revives';
comment on column leasehold.share.duration is 'How long the lease lives without a heartbeat';
comment on column leasehold.share.grace is 'How long after the deadline it is still left alone';
comment on column leasehold.share.owner is 'Free text that says who holds it, or held it';
comment on column leasehold.share.principal is
  'Who holds it, or held it, as proved: spiffe://, uri:, dns:, token:, user: or role: with a name; anonymous';
comment on column leasehold.share.labels is 'A JSON object of strings';
comment on column leasehold.share.reap_failures is 'How often reaping this lease has failed';
comment on column leasehold.share.reap_error is 'Why reaping this lease failed last';
comment on column leasehold.share.reap_failed_at is 'When reaping this lease failed last';
comment on column leasehold.share.next_try_at is
  'Reaping it is tried again then, and it is not taken over before; null: not by itself any more (max_reap_failures)';
comment on column leasehold.share.ended_at is 'When it ended';
comment on column leasehold.share.outcome is 'How it ended: ok, failed, expired, forced';
comment on column leasehold.share.result is 'What its holder released it with';
comment on column leasehold.share.error is 'Why it failed, or the reason of the force-release';
-- Lease keys are in it.
grant select on leasehold.share to leasehold_admin;

alter table leasehold.waiter add column units integer;
comment on column leasehold.waiter.units is 'What it wants of the capacity; null: the scope exclusively';

alter table leasehold.policy
  add column capacity integer,
  add constraint policy_capacity check (capacity between 1 and 1000000);
comment on column leasehold.policy.capacity is 'What shared leases of one scope may take together, in units; null: no limit';

alter type leasehold.rules add attribute capacity integer;
alter type leasehold.lease_facts add attribute mode text, add attribute units integer, add attribute slots integer[];
alter type leasehold.acquire_work add attribute units integer, add attribute holder leasehold.scope;
alter type leasehold.lease_end add attribute lease_key uuid;
comment on type leasehold.lease_end is
  'A lease that is to end: how, and whether somebody waits for the scope; lease_key names a shared holder, null is the exclusive one';

-- What is seen of them in the history, whose new CHECK has one word more and is not proved again (NOT VALID), and in the events.
alter table leasehold.history
  add column mode text not null default 'exclusive', add column units integer not null default 0, add column slots integer[],
  drop constraint history_outcome,
  add constraint history_outcome check (outcome in ('ok', 'failed', 'expired', 'forced', 'downgraded')) not valid;
comment on column leasehold.history.mode is 'exclusive or shared';
comment on column leasehold.history.units is 'How many units of the capacity a shared lease had; 0 of an exclusive one';
comment on column leasehold.history.slots is 'The numbers that a shared lease had, where its namespace had a capacity';
comment on column leasehold.history.outcome is
  'ok and failed: its holder released it; expired: reaped or taken over; forced: an administrator ended it; downgraded: its holder kept it as a shared lease';

alter table leasehold.event
  add column mode text not null default 'exclusive', add column units integer not null default 0, add column slots integer[],
  drop constraint event_type, drop constraint event_is_whole,
  add constraint event_type check (type in ('acquired', 'released', 'expired', 'forced', 'lagged', 'downgraded')),
  add constraint event_is_whole check (
    type = 'lagged'
    or (namespace is not null and key is not null and token is not null and (end_reason is null) = (type in ('acquired', 'downgraded'))));
comment on column leasehold.event.type is
  'acquired, released, expired, forced; downgraded: an exclusive lease is shared from now on; lagged: it stopped taking, and what came since is not here';
comment on column leasehold.event.mode is 'exclusive or shared';
comment on column leasehold.event.units is 'Units of a shared lease; 0 of an exclusive one';
comment on column leasehold.event.slots is 'Numbers of a shared lease, where its namespace has a capacity';

-- They have other arguments or columns now. By name, whatever their arguments were.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where p.pronamespace = 'leasehold_internal'::regnamespace
           and p.proname = any (array[
             'acquire_batch', 'acquire_general', 'acquire_hooked', 'acquire_problem', 'early_outcome', 'queue_one', 'hand_over_batch',
             'leave_batch', 'get_scope', 'list_leases', 'policies_in_force', 'own_policies', 'policy_get', 'policy_list', 'policy_update',
             'force_release_one', 'lock_by_force', 'row_lockers', 'take_events', 'tell_watchers', 'tell_heads', 'record_holds', 'reap_batch', 'live_head',
             'view_explain', 'view_queue', 'view_history', 'reap_stale_list', 'stale_by_time', 'stale_by_name'])
        or p.pronamespace = 'leasehold'::regnamespace
           and p.proname = any (array['acquire', 'set_policy', 'explain', 'join_queue', 'force_release'])
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
