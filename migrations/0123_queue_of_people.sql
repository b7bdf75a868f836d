-- The queue as people look at it has the priority of each waiter: one column more. Locks nothing that anybody waits for.
drop function if exists leasehold_internal.view_queue(text[], boolean, text, integer, text);
