-- What is held below each prefix that sets max_leases is counted once, and from then on by what has changed: who grants or ends leases there adds
-- a row, so that nobody waits for another. Unlogged: after a crash and on a new primary they are empty, and the leases are counted again.
-- Locks leasehold.policy against changes for a moment.
create sequence leasehold.quota_number as bigint cache 1;
comment on sequence leasehold.quota_number is 'Numbers the rows of leasehold.quota_change';
-- From now on the last value is one that was drawn.
select nextval('leasehold.quota_number');
create unlogged table leasehold.quota_change (
  prefix text collate "C" not null,
  changed_by xid8 not null,
  number bigint not null,
  amount integer not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_threshold = -1, vacuum_truncate = off);
create index quota_change_by on leasehold.quota_change (prefix, changed_by, number, amount);
comment on table leasehold.quota_change is 'Leases that were granted (above 0) and ended (below 0) under prefixes that set max_leases';
comment on column leasehold.quota_change.prefix is 'The namespace whose policy sets max_leases';
comment on column leasehold.quota_change.changed_by is 'The transaction that did it';
comment on column leasehold.quota_change.number is 'Of the changes of one transaction the later ones have larger numbers';
comment on column leasehold.quota_change.amount is 'How many more are held';

create unlogged table leasehold.quota_base (
  prefix text collate "C" not null,
  life bigint not null,
  mark bigint not null,
  seen bigint not null,
  next_one xid8 not null,
  running xid8[] not null,
  writer xid8 not null,
  last_own bigint not null,
  counted_at timestamptz not null,
  amount bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, vacuum_truncate = off);
create index quota_base_newest on leasehold.quota_base (prefix, life, mark, seen);
comment on table leasehold.quota_base is 'How many leases were held under prefixes that set max_leases; the one that has seen most counts';
comment on column leasehold.quota_base.prefix is 'The namespace whose policy sets max_leases';
comment on column leasehold.quota_base.life is 'Counted in this life of the database';
comment on column leasehold.quota_base.mark is 'Counted while this was the last change of a policy (leasehold.policy_mark)';
comment on column leasehold.quota_base.seen is 'How many transactions had ended before: it never shrinks, and grows with each that ends';
comment on column leasehold.quota_base.next_one is 'This transaction, and those after it, are not counted in';
comment on column leasehold.quota_base.running is 'Nor are these';
comment on column leasehold.quota_base.writer is 'Who counted';
comment on column leasehold.quota_base.last_own is 'Of its own changes those up to this number are counted in';
comment on column leasehold.quota_base.counted_at is 'When the leases themselves were counted last';
comment on column leasehold.quota_base.amount is 'How many were held';

-- Who ends leases asks whether any policy limits them.
create index policy_max_leases on leasehold.policy (namespace) where max_leases is not null;

delete from leasehold.quota_count c where c.key is null;
comment on table leasehold.quota_count is 'Waiters that were counted for limits that were far away; several rows for one limit are all true';
comment on column leasehold.quota_count.prefix is 'The namespace of the scope whose waiters were counted';
comment on column leasehold.quota_count.key is 'The key of that scope';
comment on column leasehold.quota_count.amount is 'How many callers waited';
comment on column leasehold.quota_count.number is 'The last ticket that had been drawn before';

-- It has one more argument now.
drop function if exists leasehold_internal.is_plain(leasehold.rules, text, text, bigint, bigint);
