-- Renewals alone may be committed without waiting for the disk; nothing else may.
select no_plan();
create function pg_temp.commit() returns text language sql as $$ select current_setting('synchronous_commit') $$;
set synchronous_commit = on;

begin;
select leasehold_internal.relax_commit(true);
select is(pg_temp.commit(), 'off', 'renewals alone need not be on disk when they are answered');
commit;
select is(pg_temp.commit(), 'on', 'in that transaction only');

begin;
set local role leasehold_coordinator;
select leasehold_internal.relax_commit(true);
select is(pg_temp.commit(), 'off', 'a coordinator may say so: nothing else is its right');
commit;

begin;
select leasehold_internal.relax_commit(false);
select is(pg_temp.commit(), 'on', 'where one was lost, or busy, it is as it was');
select leasehold_internal.relax_commit(null);
select is(pg_temp.commit(), 'on', 'and where there were none');
commit;

begin;
set local leasehold.hooks = 'on';
select leasehold_internal.relax_commit(true);
select is(pg_temp.commit(), 'on', 'what a hook wrote with a renewal is on disk');
commit;

begin;
select leasehold_internal.relax_commit(true, 'standby1');
select is(pg_temp.commit(), 'on', 'where there are synchronous standbys a renewal waits for them: a primary that was cut off renews nothing');
commit;

begin;
select leasehold_internal.relax_commit(true);
select count(*) from leasehold.acquire('relaxed', 'k', '30 s');
select is(pg_temp.commit(), 'local', 'a grant in the same transaction is durable again');
commit;

select is(has_function_privilege('leasehold_client', 'leasehold_internal.relax_commit(boolean, text)', 'execute'), false, 'it is for coordinators');
select * from finish();
