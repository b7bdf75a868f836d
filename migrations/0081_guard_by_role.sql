-- guard() takes the lease key, too. Its callers need not change. Locks this function only.
drop function if exists leasehold.guard(text, text, bigint);
