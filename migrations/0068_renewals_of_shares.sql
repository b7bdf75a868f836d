-- A renewal's answer has three columns more. Nothing is locked.
drop function if exists leasehold_internal.heartbeat_batch(text[], text[], uuid[]);
drop function if exists leasehold_internal.heartbeat_carefully(text[], text[], uuid[]);
