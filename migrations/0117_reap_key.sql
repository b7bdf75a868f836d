-- These functions have another parameter now, by which one scope is reaped. Locks nothing that a client waits for.
drop function if exists leasehold_internal.reap_batch(uuid, timestamptz, text[], boolean, integer, boolean, text, text, boolean);
drop function if exists leasehold_internal.take_expired(text[], boolean, boolean, integer, leasehold.life_now, timestamptz);
drop function if exists leasehold_internal.take_expired_shares(text[], boolean, boolean, integer, leasehold.life_now, timestamptz);
