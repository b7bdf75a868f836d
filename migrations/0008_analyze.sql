-- Analyze less often. Takes SHARE UPDATE EXCLUSIVE on leasehold.scope for a moment: nobody who reads or writes waits, a vacuum or
-- analyze of the table that is under way is given up.
--
-- Renewals count as changes, so with a threshold of 20000 alone there was one at each autovacuum_naptime: 0.37 s of CPU without a
-- pause, whatever the size of the table, where the vacuum beside it takes 0.08 s for 400,000 leases. The functions say themselves
-- which indexes they use, and the planner reckons with the table's present size: once every row has changed five times is soon
-- enough. That is every 75 s where all are renewed every 15 s.
alter table leasehold.scope set (autovacuum_analyze_scale_factor = 5);
