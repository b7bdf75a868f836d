-- Signs of life leave a version of a daemon's row each second, and a snapshot that is held open keeps them all. Who asks for the newest, or for those who
-- are live, finds them by these and not by reading every version. Locks leasehold.coordinator against writes for a moment.
create index coordinator_seen_at on leasehold.coordinator (seen_at);
create index coordinator_cannot_write on leasehold.coordinator (seen_at) where cannot_write;
