-- History: a row for every hold that has ended, in the namespaces whose policy asks for it. Everything is new but an index on
-- leasehold.policy, which is small: its SHARE lock holds up changes of policies for a moment.
--
-- Partitioned by day, so that what is past its retention goes with its table instead of row by row. The partitions are made
-- ahead and dropped by whoever looks after the schema (keep_history). The default one takes what none was made for: ending a
-- lease never fails for want of a partition.

create table leasehold.history (
  namespace   text collate "C" not null,
  key         text collate "C" not null,
  token       bigint not null,
  acquired_at timestamptz not null,
  ended_at    timestamptz not null,
  outcome     text not null,
  owner       text,
  result      jsonb,
  error       text,
  ended_by    text,
  constraint history_outcome check (outcome in ('ok', 'failed', 'expired', 'forced')),
  -- Who ends a lease against its holder's will is written down, and why.
  constraint history_forced_by check (outcome <> 'forced' or (ended_by is not null and error is not null))
) partition by range (ended_at);
-- "Who had this, and when?"; and a namespace whose retention has passed before that of others. In batches of 500 a history costs
-- a third of the rate of acquire and release where it is kept, and nothing that could be measured elsewhere.
create index history_scope on leasehold.history (namespace, key, token);
create table leasehold.history_default partition of leasehold.history default;

comment on table leasehold.history is 'Every hold that has ended, where the policy says history; a partition for each day in UTC';
comment on column leasehold.history.namespace is 'Dotted: payments.invoices';
comment on column leasehold.history.key is 'The name inside of the namespace';
comment on column leasehold.history.token is 'The fencing token of the hold: larger than those of all holds of the scope before it';
comment on column leasehold.history.acquired_at is 'When it was granted';
comment on column leasehold.history.ended_at is 'When it ended';
comment on column leasehold.history.outcome is
  'ok and failed: its holder released it; expired: reaped or taken over; forced: an administrator ended it';
comment on column leasehold.history.owner is 'Who held it, in the holder''s own words';
comment on column leasehold.history.result is 'What it was released with';
comment on column leasehold.history.error is 'Why it failed, or the reason of the force-release';
comment on column leasehold.history.ended_by is 'By whom it was forced: the role that was logged in';
comment on table leasehold.history_default is 'Holds that ended on a day for which no partition had been made';

-- "Does anybody keep a history?" is asked by every batch that ends leases.
create index policy_history on leasehold.policy (namespace) where history;

create table leasehold.history_keeping (
  only_row boolean not null default true,
  look_at  timestamptz not null,
  constraint history_keeping_pkey primary key (only_row),
  constraint history_keeping_only_row check (only_row)
) with (fillfactor = 50);
insert into leasehold.history_keeping (look_at) values (clock_timestamp());
comment on table leasehold.history_keeping is 'When the partitions of the history are looked after again; its lock says who is at it';
comment on column leasehold.history_keeping.look_at is 'Not before then';
