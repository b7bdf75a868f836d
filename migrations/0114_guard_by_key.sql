-- It has one more argument now. Locks nothing.
drop function if exists leasehold_internal.may_guard(leasehold.scope);
