-- Promise 11.
-- leasehold.heartbeat: renews before the expiry, never after it; once told LOST, a holder stays lost.
select no_plan();
select leasehold.reap();

select * from leasehold.acquire('hb', 'a', '30 s', lease_key => t.key(1)) \gset one_
select t.age('hb', 'a', '20 s');
select leasehold.heartbeat('hb', 'a', t.key(1)) as answer \gset
select is(:'answer'::timestamptz, (select deadline from leasehold.scope where key = 'a'), 'the answer is the new deadline');
select t.is_near((select deadline from leasehold.scope where key = 'a'), clock_timestamp() + interval '30 s', 'one duration from now');
select t.is_near((select heartbeat_at from leasehold.scope where key = 'a'), clock_timestamp(), 'heartbeat_at is now');
select is((select heartbeats from leasehold.scope where key = 'a'), 1::bigint, 'the heartbeat is counted');
select is((select token from leasehold.scope where key = 'a'), :one_token::bigint, 'the token stays');
select t.is_near((select acquired_at from leasehold.scope where key = 'a'), clock_timestamp() - interval '20 s', 'acquired_at stays', '5 s');

select is(leasehold.heartbeat('hb', 'a', t.key(2)), null, 'another lease key has lost');
select is((select heartbeats from leasehold.scope where key = 'a'), 1::bigint, 'and renewed nothing');
select is(leasehold.heartbeat('hb', 'nobody', t.key(1)), null, 'an unknown scope is lost');
select is(leasehold.heartbeat('nobody', 'a', t.key(1)), null, 'an unknown namespace is lost');
select is((select count(*) from leasehold.scope), 1::bigint, 'asking creates no row');

-- the heartbeat counts from the transaction's clock, not from its start
begin;
select clock_timestamp() as before, clock_timestamp() > now() as is_later \gset
select is(:'is_later', true, 'the clock has gone on since the transaction began');
select cmp_ok(leasehold.heartbeat('hb', 'a', t.key(1)) - interval '30 s', '>=', :'before'::timestamptz,
              'a heartbeat counts from when it is done, not from when its transaction began');
commit;

-- within the grace
select t.age('hb', 'a', '30.5 s');
select isnt(leasehold.heartbeat('hb', 'a', t.key(1)), null, 'within the grace a heartbeat still renews');

-- past the expiry: lost, and never alive again
select t.age('hb', 'a', '31.5 s');
select is(leasehold.heartbeat('hb', 'a', t.key(1)), null, 'past the expiry it is lost, though nobody reaped it yet');
select t.age('hb', 'a', '-40 s');
select is(leasehold.heartbeat('hb', 'a', t.key(1)), null, 'told once that it is lost, it never revives, whatever the clock says');
select is(t.error_of($$select leasehold.acquire('hb', 'a', '30 s', lease_key => t.key(1))$$), 'LH006 lease_ended',
          'nor by acquiring again with the same lease key');
select is(leasehold.release_ok('hb', 'a', t.key(1)), false, 'nor can it be released as done');
select is(t.error_of(format('select leasehold.guard(%L, %L, %s)', 'hb', 'a', :one_token)), 'LH001 lease_lost', 'nor guarded');
select leasehold.set_policy('hb', expiry => 'manual');
select is(leasehold.heartbeat('hb', 'a', t.key(1)), null, 'nor by a policy under which leases do not expire');
select leasehold.reset_policy('hb');
select is(t.rows_of($$select * from leasehold.acquire('hb', 'a', '30 s', lease_key => t.key(3))$$), 1,
          'and the next acquirer gets it');

-- after a release
select is(leasehold.release_ok('hb', 'a', t.key(3)), true, 'released');
select is(leasehold.heartbeat('hb', 'a', t.key(3)), null, 'a released lease is lost');

-- heartbeats of many in one statement
select leasehold.acquire('hb', 'm' || n, '30 s', lease_key => t.key(100 + n)) from generate_series(1, 20) n;
select is((select count(leasehold.heartbeat('hb', 'm' || n, t.key(100 + n))) from generate_series(1, 20) n), 20::bigint,
          'twenty heartbeats in one statement renew twenty leases');
select * from finish();
