-- The history names the caller of the daemon, and not the daemon's role. Locks nothing.
comment on column leasehold.history.ended_by is
  'By whom it was forced: the role that was logged in; through a daemon the principal of its caller, user:NAME of a unix socket, or the address';

-- It has another argument now.
drop function if exists leasehold.force_release_one(text, text, text, bigint);
