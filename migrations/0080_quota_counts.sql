-- What quotas have counted. A limit that is far away is not counted for each grant: whoever counts writes down the result, and the number that was
-- drawn last before. Each grant draws a token, and each place in a queue a ticket, so what has been drawn since is the most that can have been added.
-- Locks nothing but the new table.
create table leasehold.quota_count (
  prefix text collate "C" not null,
  key text collate "C",
  amount bigint not null,
  number bigint not null
);
create index quota_count_name on leasehold.quota_count (prefix, key);
comment on table leasehold.quota_count is 'What was counted for limits that were far away; several rows for one limit are all true';
comment on column leasehold.quota_count.prefix is 'The namespace whose policy sets max_leases, or the namespace of the scope whose waiters were counted';
comment on column leasehold.quota_count.key is 'The key of that scope; null: leases were counted';
comment on column leasehold.quota_count.amount is 'How many leases were held, or how many callers waited';
comment on column leasehold.quota_count.number is 'The last token, or for waiters the last ticket, that had been drawn before';

-- Of a limit of waiters too: what a grant or a place in a queue finds left, and whether another session is about to take it.
create type leasehold_internal.quota_room as (prefix text, key text, room bigint);
comment on type leasehold_internal.quota_room is 'How many leases (key is null) or places in a queue are left; null: enough, -1: another session has the turn';

drop function if exists leasehold_internal.apply_quotas(leasehold.acquire_work[], text[]);
drop function if exists leasehold_internal.creation_problem(text[], text[]);
drop function if exists leasehold_internal.take_quota_turns(leasehold.acquire_work[]);
