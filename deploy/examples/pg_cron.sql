-- Reap by pg_cron, each minute, inside of the database: no daemon, no shell. In the database that cron.database_name says,
-- as a member of leasehold_admin; for another one use cron.schedule_in_database.
--
-- Hooks run in here as everywhere; a role of its own with a statement_timeout bounds them:
--   alter role reaper set statement_timeout = '30s';
select cron.schedule('leasehold-reap', '* * * * *', 'select leasehold.reap()');
-- What it did is a day's worth of rows by tonight; keep a week of them.
select cron.schedule('leasehold-reap-details', '17 3 * * *',
  $$delete from cron.job_run_details where end_time < now() - interval '7 days'$$);
