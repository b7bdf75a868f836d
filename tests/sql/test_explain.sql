-- leasehold.explain: one row for a person, whatever the state.
select no_plan();
select leasehold.reap();
select is(t.rows_of($$select * from leasehold.explain('x', 'nobody')$$), 1, 'one row for a scope nobody ever leased');
select is((select count(*) from leasehold.scope), 0::bigint, 'asking creates no row');
select is((select state from leasehold.explain('x', 'nobody')), 'free', 'it is free');
select isnt((select coalesce(advice, '') from leasehold.explain('x', 'nobody')), '', 'with advice');
select leasehold.acquire('x', 'a', '30 s', owner => 'worker-3', lease_key => t.key(1));
select leasehold.join_queue('x', 'a', t.key(2));
select leasehold.join_queue('x', 'a', t.key(3));
select is((select state from leasehold.explain('x', 'a')), 'held', 'held');
select is((select holder from leasehold.explain('x', 'a')), 'worker-3', 'by whom');
select is((select principal from leasehold.explain('x', 'a')), 'role:' || session_user, 'as proved');
select is((select liveness from leasehold.explain('x', 'a')), 'alive', 'alive');
select is((select waiters::bigint from leasehold.explain('x', 'a')), 2::bigint, 'how many wait');
select t.age('x', 'a', '21 s');
select is((select liveness from leasehold.explain('x', 'a')), 'suspected_dead', 'silent for over two thirds of its duration: suspected dead');
select is((select liveness from leasehold.lease where key = 'a'), 'suspected_dead', 'the view says so too');
select t.age('x', 'a', '11 s');
select is((select liveness from leasehold.explain('x', 'a')), 'expired', 'past its expiry: expired');
select leasehold.acquire('x', 'long', '30 s', lease_key => t.key(4));
select t.age('x', 'long', '15 s');
update leasehold.scope set acquired_at = acquired_at - interval '11 min' where key = 'long';
select is((select liveness from leasehold.explain('x', 'long')), 'alive', 'held for long, as a leader is: alive');
select is((select liveness from leasehold.lease where key = 'long'), 'alive', 'and in the view');
select leasehold.set_policy('x', max_hold => '10 min');
select is((select liveness from leasehold.explain('x', 'long')), 'overdue', 'held for longer than max_hold: overdue');
select is((select liveness from leasehold.lease where key = 'long'), 'overdue', 'and in the view');
select isnt(leasehold.heartbeat('x', 'long', t.key(4)), null, 'which ends nothing');
select leasehold.set_policy('x.slow', dead_after => '2 s');
select leasehold.acquire('x.slow', 'a', '30 s');
select t.age('x.slow', 'a', '3 s');
select is((select liveness from leasehold.lease where namespace = 'x.slow'), 'suspected_dead', 'dead_after is the policy''s');
select leasehold.release_ok('x', 'long', t.key(4));
select is((select state from leasehold.explain('x', 'long')), 'free', 'free again');
select isnt((select coalesce(advice, '') from leasehold.explain('x', key)), '', 'there is advice: ' || key) from unnest(array['a', 'long']) key;
select is((select count(*) from leasehold.scope where key = 'nobody'), 0::bigint, 'still no row for the unknown one');

-- Tokens of others, which are all that a guard needs, are for readers and administrators.
select token as shown from leasehold.acquire('x', 'secret', '30 s') \gset
create role explain_client in role leasehold_client;
create role explain_reader in role leasehold_reader;
set role explain_client;
select is((select token from leasehold.explain('x', 'secret')), null, 'a client does not see the token of another');
select is((select state from leasehold.explain('x', 'secret')), 'held', 'but that it is held');
set role explain_reader;
select is((select token from leasehold.explain('x', 'secret')), :shown::bigint, 'a reader does');
reset role;

-- What cannot be acquired is not advised.
select leasehold.set_policy('tight', max_leases => 1);
select leasehold.acquire('tight.one', 'a', '30 s');
select matches((select advice from leasehold.explain('tight.one', 'b')), 'tight has reached its limit, max_leases = 1', 'free, but max_leases is used up');
select leasehold.set_policy('tight', max_leases => 2);
select matches((select advice from leasehold.explain('tight.one', 'b')), '^free: acquire it', 'with room again it is');
select matches((select advice from leasehold.explain('x', 'nobody')), 'no daemon is live', 'without a daemon it says so');
select t.enroll('11111111-1111-4111-8111-111111111111');
select doesnt_match((select advice from leasehold.explain('x', 'nobody')), 'no daemon', 'with one it does not');
select * from finish();
