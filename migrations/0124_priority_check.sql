-- The functions check a priority before they write it, and name the bound. The CHECK was read and planned anew by each statement that queued anybody,
-- which was 2 % of the time of a hand-off in SQL. ACCESS EXCLUSIVE lock on leasehold.waiter for a moment.
alter table leasehold.waiter drop constraint waiter_priority;
