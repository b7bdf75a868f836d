-- join_queue, leave_queue, the view queue: first come, first served; a newcomer never overtakes a live waiter.
select no_plan();
select leasehold.reap();
create function pg_temp.got(p_key text, p_lease_key uuid) returns boolean language sql as
  $$ select t.rows_of(format('select * from leasehold.acquire(%L, %L, %L, lease_key => %L)', 'q', p_key, '30 s', p_lease_key)) = 1 $$;

select leasehold.acquire('q', 'a', '30 s', lease_key => t.key(1));
select position, channel from leasehold.join_queue('q', 'a', t.key(2)) \gset one_
select is(:one_position::bigint, 1::bigint, 'the first waiter is first');
select isnt(:'one_channel'::text, '', 'and is told which channel to listen on');
select cmp_ok(length(:'one_channel'), '<', 64, 'a channel that LISTEN takes');
select position from leasehold.join_queue('q', 'a', t.key(3)) \gset two_
select is(:two_position::bigint, 2::bigint, 'the second is second');
select position from leasehold.join_queue(namespace => 'q', key => 'a', lease_key => t.key(2), ttl => '20 s') \gset again_
select is(:again_position::bigint, 1::bigint, 'joining again keeps the place');
select is((select count(*) from leasehold.waiter), 2::bigint, 'and adds no row');
select results_eq($$select position::bigint, away from leasehold.queue where namespace = 'q' and key = 'a' order by position$$,
                  $$values (1::bigint, false), (2::bigint, false)$$, 'the view queue shows both, in order');
select t.is_near(clock_timestamp() - (select waiting from leasehold.queue where position = 1), clock_timestamp(), 'and how long they wait');

-- while it is held nobody gets it; once free, only the first does
select is(pg_temp.got('a', t.key(2)), false, 'the first waiter does not get a held scope');
select is((select count(*) from leasehold.waiter), 2::bigint, 'and keeps its place');
select leasehold.release_ok('q', 'a', t.key(1));
select is(pg_temp.got('a', t.key(9)), false, 'a newcomer does not overtake waiters');
select is(pg_temp.got('a', t.key(3)), false, 'nor does the second overtake the first');
select is((select state from leasehold.scope where key = 'a'), 'free', 'the scope is kept for the first');
select is(pg_temp.got('a', t.key(2)), true, 'the first gets it');
select is((select count(*) from leasehold.waiter where lease_key = t.key(2)), 0::bigint, 'and leaves the queue');
select is((select position::bigint from leasehold.queue where key = 'a'), 1::bigint, 'the second is first now');
select leasehold.release_ok('q', 'a', t.key(2));
select is(pg_temp.got('a', t.key(3)), true, 'and is granted next');
select leasehold.release_ok('q', 'a', t.key(3));
select is(pg_temp.got('a', t.key(9)), true, 'then the newcomer');

-- an expired lease goes to the first waiter, not to whoever asks first
select leasehold.join_queue('q', 'a', t.key(4));
select t.age('q', 'a', '1 hour');
select is(pg_temp.got('a', t.key(10)), false, 'a newcomer does not take over an expired lease that somebody queued for');
select is(pg_temp.got('a', t.key(4)), true, 'the waiter does');

-- leaving
select leasehold.join_queue('q', 'a', t.key(5));
select leasehold.join_queue('q', 'a', t.key(6));
select leasehold.leave_queue('q', 'a', t.key(5));
select is((select count(*) from leasehold.waiter where lease_key = t.key(5)), 0::bigint, 'whoever leaves is gone');
select leasehold.leave_queue('q', 'a', t.key(5));
select is((select count(*) from leasehold.waiter), 1::bigint, 'leaving twice does no harm');
select leasehold.leave_queue('q', 'nobody', t.key(5));
select is((select count(*) from leasehold.scope where key = 'nobody'), 0::bigint, 'leaving an unknown scope creates no row');
select leasehold.release_ok('q', 'a', t.key(4));
select is(pg_temp.got('a', t.key(6)), true, 'the one behind is next');
select position from leasehold.join_queue('q', 'a', t.key(5)) \gset back_
select is(:back_position::bigint, 1::bigint, 'one that left may queue again, at the end');

-- a SQL user's place lasts for its ttl
select leasehold.join_queue('q', 'ttl', t.key(21), ttl => '10 s');
select leasehold.join_queue('q', 'ttl', t.key(22), ttl => '1 hour');
select is((select count(*) from leasehold.scope where key = 'ttl'), 1::bigint, 'queueing creates the scope''s row');
select is(pg_temp.got('ttl', t.key(22)), false, 'the second waits for the first, though nobody holds it');
update leasehold.waiter set enqueued_at = enqueued_at - interval '11 s', wait_until = wait_until - interval '11 s' where key = 'ttl';
select is(pg_temp.got('ttl', t.key(22)), true, 'a waiter whose ttl has passed is skipped');

-- Its wait may pass between the first look and the decision, which is this one: exclusive, then in a batch with a shared one.
select leasehold.join_queue('q', k, t.key(23), ttl => '10 s'), leasehold.join_queue('q', k, t.key(24), ttl => '1 hour') from unnest(array['over', 'over2']) k;
update leasehold.waiter set wait_until = wait_until - interval '11 s' where lease_key = t.key(23);
select is((select outcome from leasehold_internal.acquire_batch(null, null, array['q'], array['over'], array[t.key(23)], array['late'], array['{}'],
             array[30000000], array[false], array[null::bigint], array[0::bigint])), 'held', 'whose wait is over does not overtake who came after it');
select is((select string_agg(outcome, ' ' order by n) from leasehold_internal.acquire_batch(null, null, array['q', 'q'], array['over2', 'over3'], array[t.key(23), t.key(25)],
             array['late', 'other'], array['{}', '{}'], array[30000000, 30000000], array[false, false], array[null, null]::bigint[], array[0, 0]::bigint[], null, null,
             array[null, 1])), 'held granted', 'nor where shared leases are decided');

-- a holder does not queue for what it holds
select leasehold.acquire('q', 'mine', '30 s', lease_key => t.key(31));
select t.error_of($$select leasehold.join_queue('q', 'mine', t.key(31))$$);
select is(t.rows_of($$select * from leasehold.acquire('q', 'mine', '30 s', lease_key => t.key(31))$$), 1, 'the holder still renews');
select leasehold.release_ok('q', 'mine', t.key(31));
select is(pg_temp.got('mine', t.key(32)), true, 'and leaves no ghost of itself in the queue');

-- an ended lease key does not queue
select is(t.error_of($$select leasehold.join_queue('q', 'mine', t.key(31))$$), 'LH006 lease_ended', 'an ended lease key cannot queue');
-- A place is counted to 1,000: joining a long queue costs no more than joining a short one.
insert into leasehold.scope (namespace, key, check_at, queued) values ('long', 'k', clock_timestamp(), true);
insert into leasehold.waiter (namespace, key, ticket, lease_key, enqueued_at, duration)
select 'long', 'k', nextval('leasehold.ticket'), gen_random_uuid(), clock_timestamp(), interval '1 min' from generate_series(1, 1003);
select is(leasehold_internal.count_before_last('long', 'k', '{}', clock_timestamp()), 1000, 'of 1,003 that wait the last is told of 1,000');

select * from finish();
