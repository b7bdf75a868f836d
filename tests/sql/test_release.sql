-- Promise 4.
-- leasehold.release_ok and release_fail: the holder gives back, with a result.
select no_plan();
select leasehold.reap();

select leasehold.acquire('rel', 'a', '30 s', owner => 'w1', lease_key => t.key(1));
select is(leasehold.release_ok('rel', 'a', t.key(2), '{"n": 1}'), false, 'a stranger releases nothing');
select is((select state from leasehold.scope where key = 'a'), 'held', 'and the holder stays');
select is(leasehold.release_ok('rel', 'nobody', t.key(1)), false, 'an unknown scope is not held');
select is((select count(*) from leasehold.scope), 1::bigint, 'and gets no row');

select is(leasehold.release_ok('rel', 'a', t.key(1), '{"rows": [1, 2]}'), true, 'the holder releases');
select is((select state from leasehold.scope where key = 'a'), 'free', 'the scope is free');
select is((select lease_key from leasehold.scope where key = 'a'), null, 'a free scope has no lease key');
select is((select last_outcome from leasehold.scope where key = 'a'), 'ok', 'its last outcome is ok');
select is((select last_result from leasehold.scope where key = 'a'), '{"rows": [1, 2]}'::jsonb, 'with the result');
select is((select last_error from leasehold.scope where key = 'a'), null, 'and no error');
select t.is_near((select ended_at from leasehold.scope where key = 'a'), clock_timestamp(), 'ended_at is now');
select cmp_ok((select token from leasehold.scope where key = 'a'), '>', 0::bigint, 'a free scope keeps its token');
select is(leasehold.release_ok('rel', 'a', t.key(1)), false, 'a second release finds nothing held');
select is((select last_result from leasehold.scope where key = 'a'), '{"rows": [1, 2]}'::jsonb, 'and leaves the first result alone');
select is((select count(*) from leasehold.lease where namespace = 'rel'), 0::bigint, 'the view shows no lease');

select leasehold.acquire('rel', 'a', '30 s', lease_key => t.key(3));
select is(leasehold.release_fail('rel', 'a', t.key(4), 'not mine'), false, 'a stranger fails nothing');
select is(leasehold.release_fail('rel', 'a', t.key(3), 'disk full'), true, 'the holder gives up');
select is((select last_outcome from leasehold.scope where key = 'a'), 'failed', 'the last outcome is failed');
select is((select last_error from leasehold.scope where key = 'a'), 'disk full', 'with the error');
select is((select last_result from leasehold.scope where key = 'a'), null, 'the result of the hold before is gone');
select is((select state from leasehold.scope where key = 'a'), 'free', 'a failed scope is free too');

select leasehold.acquire('rel', 'a', '30 s', lease_key => t.key(5));
select is(leasehold.release_ok('rel', 'a', t.key(5)), true, 'a result is not needed');
select is((select last_result from leasehold.scope where key = 'a'), null, 'and then there is none');
select is((select last_error from leasehold.scope where key = 'a'), null, 'and the error of the hold before is gone');

-- within the grace; past the expiry
select leasehold.acquire('rel', 'a', '30 s', lease_key => t.key(6));
select t.age('rel', 'a', '30.5 s');
select is(leasehold.release_ok('rel', 'a', t.key(6)), true, 'within the grace the holder may still release');
select leasehold.acquire('rel', 'a', '30 s', lease_key => t.key(7));
select t.age('rel', 'a', '31.5 s');
select is(leasehold.release_ok('rel', 'a', t.key(7), '"late"'), false, 'past the expiry it is lost already');
select isnt((select last_result from leasehold.scope where key = 'a'), '"late"'::jsonb, 'and its result is not taken');
select is(leasehold.release_fail('rel', 'a', t.key(7), 'late'), false, 'nor its error');

-- 8 KiB
select leasehold.acquire('rel', 'big', '30 s', lease_key => t.key(8));
select is(leasehold.release_ok('rel', 'big', t.key(8), to_jsonb(repeat('x', 8000))), true, 'a result of nearly 8 KiB is taken');
select leasehold.acquire('rel', 'big', '30 s', lease_key => t.key(9));
select is(leasehold.release_fail('rel', 'big', t.key(9), repeat('x', 8192)), true, 'an error of 8 KiB is taken');

begin;
select leasehold.acquire('rel', 'sync', '30 s', lease_key => t.key(10));
commit;
begin;
set local synchronous_commit = off;
select leasehold.release_ok('rel', 'sync', t.key(10));
select isnt(current_setting('synchronous_commit'), 'off', 'a release raises synchronous_commit for its transaction');
commit;
select * from finish();
