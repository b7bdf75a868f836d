-- Each waiter wrote an entry into this index, 72 bytes of WAL in the 930 of a hand-off with its next waiter, for questions that come up when a daemon
-- starts, stops or dies. These read the table, which has the waiters alone. ACCESS EXCLUSIVE for a moment.
drop index leasehold.waiter_coordinator;
