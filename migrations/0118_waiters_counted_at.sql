-- When waiters were counted by whoever had the turn: while the queue is long, such a count is believed for a while.
alter table leasehold.quota_count add column counted_at timestamptz;
delete from leasehold.quota_count c where c.key is null;
alter table leasehold.quota_count alter column key set not null;
comment on column leasehold.quota_count.counted_at is 'When that was, under the turn; null: it misses who had joined and not committed';
drop function if exists leasehold_internal.is_far(bigint, text, text, bigint, bigint);
drop function if exists leasehold_internal.remember_count(text, text, bigint, bigint);
