-- Composite types that carry intermediate sets inside of the batch functions, from one statement to the next. Locks nothing.

create type leasehold.life_now as (id bigint, started_at timestamptz, is_settled boolean);
comment on type leasehold.life_now is 'The incarnation, and whether leases may be taken for expired in it';

create type leasehold.rules as (
  namespace text, min_duration interval, max_duration interval, grace interval, max_hold interval, dead_after interval,
  expiry text, reaper text, frozen boolean, max_leases bigint, quota_prefix text, max_waiters bigint,
  free_retention interval, max_reap_failures integer, hook_timeout interval);
comment on type leasehold.rules is 'The policy in force for a namespace; quota_prefix is the one that sets max_leases';

create type leasehold.lease_facts as (
  token bigint, owner text, labels text, duration_us bigint, grace_us bigint, acquired_at timestamptz, deadline timestamptz,
  remaining_us bigint, held_us bigint, silent_us bigint, heartbeats bigint, heartbeat_at timestamptz, liveness text,
  is_manual boolean, expires_in_us bigint, suspected_in_us bigint);
comment on type leasehold.lease_facts is 'A lease as it is told to people and programs; all null when nobody holds it';

create type leasehold.acquire_work as (
  n integer, namespace text, key text, lease_key uuid, owner text, labels jsonb, duration interval, queue boolean,
  wait interval, ticket bigint, field text, bound text, rules leasehold.rules, scope leasehold.scope, hold text,
  own_ticket bigint, head_ticket bigint, outcome text);
comment on type leasehold.acquire_work is 'An item of an acquire batch on its way';

create type leasehold.item_work as (
  n integer, namespace text, key text, lease_key uuid, is_away boolean, is_failure boolean, result jsonb, error text,
  scope leasehold.scope, hold text, outcome text, end_reason text, head_coordinator uuid, head_lease_key uuid,
  waiters_ahead integer);
comment on type leasehold.item_work is 'An item of a heartbeat, release, leave or reap batch on its way';

create type leasehold.lease_end as (
  namespace text, key text, outcome text, result jsonb, error text, has_waiters boolean, check_at timestamptz);
comment on type leasehold.lease_end is 'A lease that is to end: how, and whether somebody waits for the scope';
