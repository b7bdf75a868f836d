-- Promise 4.
-- leasehold.force_release: an administrator ends a lease, with a reason.
select no_plan();
select leasehold.reap();
select is(t.rows_of($$select * from leasehold.force_release('f', 'a', 'why')$$), 0, 'nothing to end in an unknown scope');
select is((select count(*) from leasehold.scope), 0::bigint, 'and no row for it');
select * from leasehold.acquire('f', 'a', '30 s', owner => 'stuck', lease_key => t.key(1)) \gset one_
select is(t.rows_of(format('select * from leasehold.force_release(%L, %L, %L, %s)', 'f', 'a', 'why', :one_token - 1)), 0, 'another token is not ended');
select is((select state from leasehold.scope where key = 'a'), 'held', 'and the holder stays');
select results_eq($$select (namespace || '/' || key || '/' || owner)::text collate "default", token from leasehold.force_release(namespace => 'f', key => 'a', reason => 'host is gone')$$,
                  format($$values ('f/a/stuck', %s::bigint)$$, :one_token), 'the answer is the lease that was ended');
select is((select state from leasehold.scope where key = 'a'), 'free', 'the scope is free');
select is((select last_outcome from leasehold.scope where key = 'a'), 'forced', 'it ended as forced');
select ok((select last_error like '%host is gone%' from leasehold.scope where key = 'a'), 'the reason is kept');
select is(leasehold.heartbeat('f', 'a', t.key(1)), null, 'its holder has lost');
select is(leasehold.release_ok('f', 'a', t.key(1)), false, 'and has nothing to release');
select is(t.error_of(format('select leasehold.guard(%L, %L, %s)', 'f', 'a', :one_token)), 'LH001 lease_lost', 'nor to guard');
select is(t.rows_of($$select * from leasehold.force_release('f', 'a', 'why')$$), 0, 'twice ends nothing');
select * from leasehold.acquire('f', 'a', '30 s', lease_key => t.key(2)) \gset two_
select is(t.rows_of(format('select * from leasehold.force_release(%L, %L, %L, token => %s)', 'f', 'a', 'why', :one_token)), 0,
          'the old token does not end the next hold');
select is(t.rows_of(format('select * from leasehold.force_release(%L, %L, %L, token => %s)', 'f', 'a', 'why', :two_token)), 1, 'its own does');
-- the next in line is next
select leasehold.acquire('f', 'a', '30 s', lease_key => t.key(3));
select leasehold.join_queue('f', 'a', t.key(4));
select leasehold.force_release('f', 'a', 'why');
select is(t.rows_of($$select * from leasehold.acquire('f', 'a', '30 s', lease_key => t.key(5))$$), 0, 'the first waiter comes before a newcomer');
select is(t.rows_of($$select * from leasehold.acquire('f', 'a', '30 s', lease_key => t.key(4))$$), 1, 'and gets it');
-- the daemon's form
select is((select outcome from leasehold_internal.force_release_one('f', 'zz', 'why', 0)), 'not_held', 'force_release_one: not held');
select is((select outcome || ' ' || lease_key from leasehold_internal.force_release_one('f', 'a', 'why', 0)), 'ended ' || t.key(4), 'force_release_one: ended, with the lease key');
select is((select outcome from leasehold_internal.force_release_one('f', 'a', 'why', null)), 'not_held', 'force_release_one: not held any more');
select * from finish();
