-- What rows of leases are like, whatever wrote them. The databases of tests have these; where users are, they would be read anew by each statement.
alter table leasehold.scope
  add constraint scope_state check (state in ('free', 'held', 'shared')),
  add constraint scope_outcome check (last_outcome in ('ok', 'failed', 'expired', 'forced', 'max_hold')),
  add constraint scope_held_has_key check ((state = 'held') = (lease_key is not null) and (token > 0 or lease_key is null)),
  add constraint scope_ended_keys check (
    cardinality(ended_keys) <= 16
    and (ended_outcomes = '{}' or array_lower(ended_outcomes, 1) >= array_lower(ended_keys, 1) and array_upper(ended_outcomes, 1) <= array_upper(ended_keys, 1)));
alter table leasehold.share
  add constraint share_state check (state in ('held', 'ended')),
  add constraint share_outcome check (outcome in ('ok', 'failed', 'expired', 'forced', 'max_hold')),
  add constraint share_ended_is_whole check (state = 'held' or ended_at is not null and outcome is not null),
  add constraint share_units check (units between 1 and 1000000);
alter table leasehold.waiter add constraint waiter_priority check (priority between 0 and 1000);
alter table leasehold.event
  add constraint event_type check (type in ('acquired', 'released', 'expired', 'forced', 'lagged', 'downgraded')),
  add constraint event_end_reason check (end_reason in ('released', 'failed', 'expired', 'forced', 'max_hold')),
  add constraint event_is_whole check (
    type = 'lagged'
    or namespace is not null and key is not null and token is not null and (end_reason is null) = (type in ('acquired', 'downgraded')));
alter table leasehold.history
  add constraint history_outcome check (outcome in ('ok', 'failed', 'expired', 'forced', 'downgraded', 'max_hold')),
  add constraint history_forced_by check (outcome <> 'forced' or ended_by is not null and error is not null);
