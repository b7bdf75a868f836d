-- Promise 4.
-- leasehold.reap: ends what is past its expiry, and nothing else.
select no_plan();
select is(t.rows_of('select * from leasehold.reap()'), 0, 'nothing to reap in an empty database');

select leasehold.acquire('r', 'dead', '30 s', owner => 'gone', lease_key => t.key(1));
select leasehold.acquire('r', 'alive', '30 s', lease_key => t.key(2));
select leasehold.acquire('r', 'grace', '30 s', lease_key => t.key(3));
select leasehold.acquire('r.child', 'dead', '30 s', lease_key => t.key(4));
select leasehold.acquire('s', 'dead', '30 s', lease_key => t.key(5));
select leasehold.acquire('rr', 'dead', '30 s', lease_key => t.key(6));
select t.age('r', 'dead', '31.5 s'), t.age('r', 'grace', '30.5 s'), t.age('r.child', 'dead', '1 hour'), t.age('s', 'dead', '1 hour'), t.age('rr', 'dead', '1 hour');

select results_eq($$select namespace, key from leasehold.reap(array['r'])$$, $$values ('r', 'dead')$$, 'reap of a namespace ends what expired there');
select is((select state from leasehold.scope where namespace = 'r' and key = 'dead'), 'free', 'the scope is free');
select is((select last_outcome from leasehold.scope where namespace = 'r' and key = 'dead'), 'expired', 'it ended as expired');
select is((select count(*) from leasehold.lease where namespace = 'r'), 2::bigint, 'alive and in grace stay');
select isnt(leasehold.heartbeat('r', 'grace', t.key(3)), null, 'what is in its grace can be renewed');
select is((select state from leasehold.scope where namespace = 'r.child'), 'held', 'children only where asked for');
select is(t.rows_of($$select * from leasehold.reap(array['r'])$$), 0, 'a second reap finds nothing');
select results_eq($$select namespace, key from leasehold.reap(namespaces => array['r'], include_children => true)$$, $$values ('r.child', 'dead')$$,
                  'with its children; rr is no child of r');
select is(leasehold.heartbeat('r', 'dead', t.key(1)), null, 'the reaped holder has lost');
select bag_eq($$select namespace, key from leasehold.reap()$$, $$values ('s', 'dead'), ('rr', 'dead')$$, 'without namespaces: all');
select is(t.rows_of($$select * from leasehold.acquire('r', 'dead', '30 s', lease_key => t.key(7))$$), 1, 'what was reaped can be acquired');

-- max
select leasehold.acquire('m', 'k' || n, '30 s') from generate_series(1, 7) n;
select t.age('m', 'k' || n, '1 hour') from generate_series(1, 7) n;
select is(t.rows_of($$select * from leasehold.reap(max => 3)$$), 3, 'max is respected');
select is(t.rows_of($$select * from leasehold.reap(max => 3)$$), 3, 'the next call goes on');
select is(t.rows_of($$select * from leasehold.reap(max => 3)$$), 1, 'to the end');

-- expiry = manual is never reaped, expiry = reap is not taken over
select leasehold.set_policy('man', expiry => 'manual');
select leasehold.set_policy('only', expiry => 'reap');
select leasehold.acquire('man.sub', 'a', '30 s', lease_key => t.key(11));
select leasehold.acquire('only.sub', 'a', '30 s', lease_key => t.key(12));
select t.age('man.sub', 'a', '1 hour'), t.age('only.sub', 'a', '1 hour');
select is(t.rows_of($$select * from leasehold.acquire('man.sub', 'a', '30 s')$$), 0, 'a manual lease is not taken over');
select is(t.rows_of($$select * from leasehold.acquire('only.sub', 'a', '30 s')$$), 0, 'a lease for the reaper only is not taken over');
select results_eq($$select namespace from leasehold.reap()$$, $$values ('only.sub')$$, 'the reaper takes the one, not the other');
select isnt(leasehold.heartbeat('man.sub', 'a', t.key(11)), null, 'a late heartbeat of a manual lease succeeds');
select t.age('man.sub', 'a', '1 hour');
select is(leasehold.release_ok('man.sub', 'a', t.key(11)), true, 'and so does a late release');
select leasehold.acquire('man.sub', 'a', '30 s', lease_key => t.key(13));
select t.age('man.sub', 'a', '1 hour');
select is(t.rows_of($$select * from leasehold.reap(array['man.sub'])$$), 0, 'not even when its namespace is named');
select is(t.rows_of($$select * from leasehold.force_release('man.sub', 'a', 'the machine is gone')$$), 1, 'an administrator ends it');

-- reaper = external
select leasehold.set_policy('ext', reaper => 'external');
select leasehold.acquire('ext', 'a', '30 s');
select leasehold.acquire('ext.c', 'a', '30 s');
select t.age('ext', 'a', '1 hour'), t.age('ext.c', 'a', '1 hour');
select is(t.rows_of($$select * from leasehold.reap()$$), 0, 'a reap of everything leaves external namespaces alone');
select is(t.rows_of($$select * from leasehold.reap(array['ext'])$$), 1, 'a reap that names the namespace takes them');
select is(t.rows_of($$select * from leasehold.reap(array['ext'], include_children => true)$$), 1, 'and its children where asked for');

-- the takeover of an external namespace's lease is still allowed by expiry = takeover
select leasehold.acquire('ext', 'b', '30 s', lease_key => t.key(20));
select t.age('ext', 'b', '1 hour');
select is(t.rows_of($$select * from leasehold.acquire('ext', 'b', '30 s')$$), 1, 'reaper = external says nothing about takeover');

-- free rows go after their retention, their tokens do not
select leasehold.set_policy('tidy', free_retention => '0 s');
select token as tidy_token from leasehold.acquire('tidy', 'a', '30 s', lease_key => t.key(30)) \gset
select leasehold.release_ok('tidy', 'a', t.key(30));
update leasehold.scope set check_at = clock_timestamp() where namespace = 'tidy';
select leasehold.reap();
select is((select count(*) from leasehold.scope where namespace = 'tidy'), 0::bigint, 'a free row is deleted after its retention');
select cmp_ok((select token from leasehold.acquire('tidy', 'a', '30 s')), '>', :tidy_token::bigint, 'the next token is larger all the same');
select leasehold.acquire('keep', 'a', '30 s', lease_key => t.key(31));
select leasehold.release_ok('keep', 'a', t.key(31));
update leasehold.scope set check_at = clock_timestamp() where namespace = 'keep';
select leasehold.reap();
select is((select count(*) from leasehold.scope where namespace = 'keep'), 1::bigint, 'within its retention a free row stays');
select t.age('keep', 'a', '59 s');
select leasehold.reap();
select is((select count(*) from leasehold.scope where namespace = 'keep'), 1::bigint, 'for 60 s by default');
select t.age('keep', 'a', '2 s');
select leasehold.reap();
select is((select count(*) from leasehold.scope where namespace = 'keep'), 0::bigint, 'and no longer');
select leasehold.join_queue('wait', 'a', t.key(40), ttl => '1 hour');
update leasehold.scope set ended_at = clock_timestamp() - interval '1 day', check_at = clock_timestamp() - interval '1 s' where namespace = 'wait';
select leasehold.reap();
select is((select count(*) from leasehold.scope where namespace = 'wait'), 1::bigint, 'a free row with a waiter stays');
-- cron alone: what nobody waits for any more goes, too
select leasehold.join_queue('cron', 'a', t.key(50), ttl => '10 s');
update leasehold.waiter set wait_until = clock_timestamp() - interval '1 s' where namespace = 'cron';
update leasehold.scope set ended_at = clock_timestamp() - interval '1 day', check_at = clock_timestamp() where namespace = 'cron';
select leasehold.reap();
update leasehold.scope set check_at = clock_timestamp() where namespace = 'cron';
select leasehold.reap();
select is((select count(*) from leasehold.waiter where namespace = 'cron'), 0::bigint, 'reap removes SQL users whose ttl has passed');
select is((select count(*) from leasehold.scope where namespace = 'cron'), 0::bigint, 'and then the scope''s row');
select * from finish();
