-- The counts of limits have no key and their rows are deleted: under a publication of all tables they need a replica identity
-- (0086_replica_identity.sql). Locks the table ACCESS EXCLUSIVE for a moment.
alter table leasehold.quota_count replica identity full;
