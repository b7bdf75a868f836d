-- heartbeat_batch, release_batch, leave_batch, pass_on: one row for each item, and who is woken.
select no_plan();
select '11111111-1111-4111-8111-111111111111' as c1, '22222222-2222-4222-8222-222222222222' as c2 \gset
select t.enroll(:'c1'), t.enroll(:'c2');
create function pg_temp.ask(p_coordinator uuid, p_key text, p_lease integer, p_queue boolean default true) returns text language sql as $$
  select outcome from leasehold_internal.acquire_batch(p_coordinator, null, array['b'], array[p_key], array[t.key(p_lease)], array['w' || p_lease], array['{}'],
                                              array[30000000::bigint], array[p_queue], array[null::bigint], array[0::bigint])
$$;
create function pg_temp.leave(p_coordinator uuid, p_key text, p_lease integer, p_away boolean) returns text language sql as $$
  select outcome || ' ' || wake from leasehold_internal.leave_batch(p_coordinator, array['b'], array[p_key], array[t.key(p_lease)], array[p_away])
$$;
create function pg_temp.release(p_coordinator uuid, p_key text, p_lease integer) returns text language sql as $$
  select outcome || ' ' || wake from leasehold_internal.release_batch(p_coordinator, array['b'], array[p_key], array[t.key(p_lease)], array[false], array[null::text])
$$;

-- heartbeats
select pg_temp.ask(:'c1', k, 1) from unnest(array['a', 'b', 'c']) k;
create temp table h as select * from leasehold_internal.heartbeat_batch(array['b', 'b', 'x', 'b'], array['c', 'a', 'a', 'b'], array[t.key(1), t.key(1), t.key(1), t.key(2)]);
select is((select array_agg(outcome order by n) from h), array['ok', 'ok', 'lost', 'lost'], 'heartbeats: each item has its outcome');
select is((select array_agg(end_reason order by n) from h), array[null, null, 'unknown', 'unknown'], 'a stranger''s key ended nobody knows how');
select is((select deadline from h where n = 1), (select deadline from leasehold.scope where key = 'c'), 'the deadline is the row''s');
select ok((select bool_and(remaining_us between 25000000 and 30000000) from h where outcome = 'ok'), 'with what remains');
select is((select heartbeats from h where n = 2), 1::bigint, 'and the count');
select is((select array_agg(outcome order by n) from leasehold_internal.heartbeat_batch(array['b', 'b'], array['a', 'a'], array[t.key(1), t.key(1)])), array['ok', 'ok'], 'the same lease twice in a batch gets two answers');
select t.age('b', 'c', '1 hour');
select is((select outcome || ' ' || end_reason from leasehold_internal.heartbeat_batch(array['b'], array['c'], array[t.key(1)])), 'lost expired', 'past its expiry: lost, because expired');
select t.age('b', 'c', '-2 hours');
select is((select outcome || ' ' || end_reason from leasehold_internal.heartbeat_batch(array['b'], array['c'], array[t.key(1)])), 'lost expired', 'and it stays so');

-- releases
create temp table r as select * from leasehold_internal.release_batch(:'c1', array['b', 'b', 'b', 'x'], array['b', 'a', 'a', 'a'], array[t.key(1), t.key(9), t.key(1), t.key(1)],
  array[true, false, false, false], array['out of disk', null, '{"n": 1}', null]);
select is((select array_agg(outcome order by n) from r), array['ok', 'lost', 'ok', 'lost'], 'releases: each item has its outcome');
select is((select row(last_outcome, last_error, last_result)::text from leasehold.scope where key = 'b'), row('failed', 'out of disk', null::jsonb)::text, 'a failure with its words');
select is((select row(last_outcome, last_error, last_result)::text from leasehold.scope where namespace = 'b' and key = 'a'), row('ok', null::text, '{"n": 1}'::jsonb)::text, 'a success with its result');
select is((select bool_or(wake) from r), false, 'nobody waits, nobody is woken');
select is((select outcome || ' ' || end_reason from leasehold_internal.release_batch(:'c1', array['b'], array['a'], array[t.key(1)], array[false], array[null::text])), 'lost released', 'a repeated release is lost, because released');
select is((select outcome || ' ' || end_reason from leasehold_internal.release_batch(:'c1', array['b'], array['b'], array[t.key(1)], array[false], array[null::text])), 'lost failed', 'or failed');
select is(t.error_of(format('select leasehold_internal.release_batch(%L, array[%L], array[%L], array[%L]::uuid[], array[false], array[%L])', :'c1', 'b', 'z', t.key(1), '1e200000')) ~ '^22', true,
          'JSON that PostgreSQL refuses is an error of class 22');

-- a grant that is given back because nobody heard of it
select pg_temp.ask(:'c1', 'u1', 81), pg_temp.ask(:'c1', 'u2', 82), pg_temp.ask(:'c1', 'u3', 83), pg_temp.ask(:'c1', 'u3', 84);
select count(*) from leasehold_internal.heartbeat_batch(array['b', 'b'], array['u2', 'u3'], array[t.key(82), t.key(83)]) \gset
select is((select array_agg(outcome order by n) from leasehold_internal.release_batch(:'c1', array['b', 'b', 'b'], array['u1', 'u2', 'u3'],
            array[t.key(81), t.key(82), t.key(83)], array[null, null, null]::boolean[], array[null, null, null])),
          array['ok', 'lost', 'lost'], 'it is released, but not where it was renewed: somebody has heard of it');
select is((select array_agg(key || ' ' || state order by key) from leasehold.scope where key in ('u1', 'u2', 'u3')), array['u1 free', 'u2 held', 'u3 held'],
          'and who renewed it holds it still, with and without a queue');
select is(pg_temp.release(:'c1', 'u3', 83), 'ok true', 'its own release still counts');
select is((select outcome from leasehold_internal.release_batch(:'c1', array['b'], array['u2'], array[t.key(82)], array[null]::boolean[], array[null])), 'lost', 'a batch of one is no different');

-- whom a release wakes
select pg_temp.ask(:'c1', 'q', 10), pg_temp.ask(:'c1', 'q', 11), pg_temp.ask(:'c2', 'q', 12);
select is(pg_temp.release(:'c1', 'q', 10), 'ok true', 'the head is this coordinator''s own: it is told in the answer');
select is(pg_temp.ask(:'c1', 'q', 11), 'granted', 'and is granted');
select is(pg_temp.release(:'c1', 'q', 11), 'ok false', 'the head is another''s: nothing to do here');
select is(leasehold_internal.pass_on(:'c1', 'b', 'q'), false, 'a wake-up that went astray is passed on to the other''s head');
select is(leasehold_internal.pass_on(:'c2', 'b', 'q'), true, 'the head''s own coordinator is told so');
select is(leasehold_internal.pass_on(:'c2', 'b', 'nobody'), false, 'no scope, nobody to wake');
select is(pg_temp.ask(:'c2', 'q', 12), 'granted', 'the second is granted');
select is(leasehold_internal.pass_on(:'c2', 'b', 'q'), false, 'a held scope wakes nobody');

-- a row that its own coordinator does not know: a batch that was committed after its connection had been given up
select pg_temp.ask(:'c1', 'o', 71), pg_temp.ask(:'c1', 'o', 72), pg_temp.ask(:'c1', 'o', 73), length(pg_temp.release(:'c1', 'o', 71));
select ticket as ticket73 from leasehold.waiter where lease_key = t.key(73) \gset
select is(leasehold_internal.pass_on(:'c1', 'b', 'o', :ticket73), true, 'a young row may be on its way to its coordinator: it is the head still');
select is((select count(*) from leasehold.waiter where key = 'o'), 2::bigint, 'and stays');
update leasehold.waiter set enqueued_at = enqueued_at - interval '11 s' where key = 'o';
select is(leasehold_internal.pass_on(:'c2', 'b', 'o', null), false, 'another coordinator removes nothing');
select is(leasehold_internal.pass_on(:'c1', 'b', 'o', :ticket73), true, 'the first that is known is the head now');
select is((select array_agg(lease_key) from leasehold.waiter where key = 'o'), array[t.key(73)], 'for the row before it is gone');
select is(pg_temp.ask(:'c1', 'o', 73), 'granted', 'and it is granted');

-- leaving for good
select pg_temp.ask(:'c1', 'q', 13), pg_temp.ask(:'c1', 'q', 14);
select is(pg_temp.leave(:'c1', 'q', 13, false), 'ok false', 'a waiter leaves; it is held, so nobody is woken');
select is((select array_agg(lease_key) from leasehold.waiter where key = 'q'), array[t.key(14)], 'its row is gone');
select pg_temp.ask(:'c1', 'q', 15);
select length(pg_temp.release(:'c2', 'q', 12));
select is(pg_temp.leave(:'c1', 'q', 14, false), 'ok true', 'the head leaves a free scope: the next is woken');
select is(pg_temp.ask(:'c1', 'q', 15), 'granted', 'and granted');
select pg_temp.ask(:'c1', 'q', 16);
select is(pg_temp.leave(:'c1', 'q', 15, false), 'ok true', 'one that was granted meanwhile gives the lease back, and the next is woken');
select is((select state || ' ' || last_outcome from leasehold.scope where key = 'q'), 'free ok', 'the lease ended as released');
select is(pg_temp.leave(:'c1', 'q', 15, false), 'ok true', 'leaving again does no harm');
select is(pg_temp.leave(:'c1', 'unknown', 15, false), 'ok false', 'nor of an unknown scope');
select is((select count(*) from leasehold.scope where key = 'unknown'), 0::bigint, 'which gets no row');
select is(pg_temp.ask(:'c1', 'q', 16), 'granted', 'the next is granted');

-- its caller has the lease from another coordinator; then the first sending of its request comes here, and is cancelled
select is(pg_temp.ask(:'c2', 'late', 23) || ' ' || pg_temp.ask(:'c1', 'late', 23), 'granted renewed', 'a late request renews the lease');
select is(pg_temp.leave(:'c1', 'late', 23, false) || ' ' || pg_temp.leave(:'c2', 'late', 23, false), 'ok false ok false', 'both callers go');
select is((select state from leasehold.scope where key = 'late'), 'held', 'and the lease stays: nobody knows who heard of it');
select is(pg_temp.ask(:'c1', 'twice', 24) || ' ' || pg_temp.ask(:'c1', 'twice', 24), 'granted renewed', 'it is asked for again by the same coordinator');
select is(pg_temp.leave(:'c1', 'twice', 24, false), 'ok false', 'its caller goes');
select is((select state from leasehold.scope where key = 'twice'), 'free', 'and the lease is given back');

-- leaving for a while
select pg_temp.ask(:'c1', 'q', 17), pg_temp.ask(:'c1', 'q', 18);
select ticket as ticket17 from leasehold.waiter where lease_key = t.key(17) \gset
select is(pg_temp.leave(:'c1', 'q', 17, true), 'ok false', 'a waiter goes away for a while');
select t.is_near((select away_until from leasehold.waiter where lease_key = t.key(17)), clock_timestamp() + interval '10 s', 'its place is kept for 10 s', '3 s');
select results_eq($$select position::bigint, away from leasehold.queue where key = 'q' order by position$$, $$values (1::bigint, true), (2::bigint, false)$$, 'and listed');
select is(pg_temp.release(:'c1', 'q', 16), 'ok true', 'a release wakes the one behind it');
select is(pg_temp.ask(:'c1', 'q', 18), 'granted', 'which is granted, for the first is away');
select is(pg_temp.ask(:'c1', 'q', 17), 'queued', 'the one that was away comes back');
select is((select ticket from leasehold.waiter where lease_key = t.key(17)), :ticket17::bigint, 'to its old place');
select is((select away_until from leasehold.waiter where lease_key = t.key(17)), null, 'and is away no longer');
select pg_temp.ask(:'c1', 'q', 19);
select length(pg_temp.leave(:'c1', 'q', 17, true));
update leasehold.waiter set away_until = clock_timestamp() - interval '1 s' where lease_key = t.key(17);
select is(pg_temp.release(:'c1', 'q', 18), 'ok true', 'after 10 s its place is gone');
select is(pg_temp.ask(:'c1', 'q', 19), 'granted', 'the one behind is granted');
select is((select outcome || ' ' || token || ' ' || owner from leasehold_internal.leave_batch(:'c1', array['b'], array['q'], array[t.key(19)], array[true])),
          (select 'granted ' || token || ' ' || 'w19' from leasehold.scope where key = 'q'), 'one that was granted before it could go away is told its lease');

-- a late request with the key of a lease: who leaves for it does not end what was granted before it came
create function pg_temp.unheard(p_lease integer, p_ago interval) returns text language sql as $$
  select outcome || ' ' || coalesce(token, 0) from leasehold_internal.leave_batch('11111111-1111-4111-8111-111111111111', array['b'], array['repeated'], array[t.key(p_lease)], array[false], array[clock_timestamp() - p_ago])
$$;
select is(pg_temp.ask(:'c1', 'repeated', 41), 'granted', 'a lease is granted');
update leasehold.scope set acquired_at = acquired_at - interval '2 s' where key = 'repeated';
select is(pg_temp.unheard(41, '1 s'), (select 'ok ' || token from leasehold.scope where key = 'repeated'), 'a request that came a second later was not granted it');
select is((select state from leasehold.scope where key = 'repeated'), 'held', 'so it is held still');
select is(pg_temp.unheard(41, '-1 h'), 'busy 0', 'a request that is to come only: the clock has stepped back, and the daemon looks at it anew');
select is((select state from leasehold.scope where key = 'repeated'), 'held', 'it goes on meanwhile');
select is(pg_temp.unheard(41, '1 h'), 'ok 0', 'one that came before may have been');
select is((select state from leasehold.scope where key = 'repeated'), 'free', 'nobody else has it, and it is over');

-- a waiter that comes again waits as long as its daemon says now
create function pg_temp.ask_for(p_coordinator uuid, p_key text, p_lease integer, p_wait interval) returns text language sql as $$
  select outcome from leasehold_internal.acquire_batch(p_coordinator, null, array['b'], array[p_key], array[t.key(p_lease)], array['w' || p_lease], array['{}'],
                                              array[30000000::bigint], array[true], array[leasehold_internal.to_us(p_wait)], array[0::bigint])
$$;
select pg_temp.ask(:'c1', 'again', 31), pg_temp.ask_for(:'c1', 'again', 32, '2 s'), pg_temp.ask_for(:'c1', 'again', 33, '1 min');
update leasehold.waiter set wait_until = clock_timestamp() - interval '1 s' where lease_key = t.key(32);
select is(pg_temp.ask_for(:'c1', 'again', 32, '1 min'), 'queued', 'it comes again, for longer');
select t.is_near((select wait_until from leasehold.waiter where lease_key = t.key(32)), clock_timestamp() + interval '1 min', 'and waits for longer', '3 s');
create temp table versions as select lease_key, ctid as at from leasehold.waiter where key = 'again';
select pg_temp.ask_for(:'c1', 'again', 33, (select wait_until - clock_timestamp() from leasehold.waiter where lease_key = t.key(33)));
select is((select v.at from versions v where v.lease_key = t.key(33)), (select w.ctid from leasehold.waiter w where w.lease_key = t.key(33)), 'who only looks whether it has its place writes nothing');
select pg_temp.ask_for(:'c1', 'again', 33, '2 min');
select t.is_near((select wait_until from leasehold.waiter where lease_key = t.key(33)), clock_timestamp() + interval '2 min', 'who waits for longer does', '3 s');
select length(pg_temp.release(:'c1', 'again', 31));
select is(pg_temp.ask_for(:'c1', 'again', 32, '1 min') || ' ' || pg_temp.ask_for(:'c1', 'again', 33, '1 min'), 'queued granted', 'at a new place, behind who has waited');
select length(pg_temp.release(:'c1', 'again', 33));
select pg_temp.ask(:'c1', 'just over', 31), pg_temp.ask_for(:'c1', 'just over', 32, '1 min');
create temp table place as select ticket from leasehold.waiter where lease_key = t.key(32) and key = 'just over';
update leasehold.waiter set wait_until = clock_timestamp() - interval '1 ms' where key = 'just over';
select pg_temp.ask_for(:'c1', 'just over', 32, '20 ms');
select cmp_ok((select ticket from leasehold.waiter where key = 'just over'), '>', (select ticket from place), 'also where its wait was over for no time, and goes on for nearly none');
select length(pg_temp.release(:'c1', 'just over', 31));
select is(pg_temp.ask(:'c1', 'again', 34) || ' ' || pg_temp.ask_for(:'c1', 'again', 32, '1 min'), 'queued granted', 'and is not forgotten');

-- a coordinator that is dead is skipped
select pg_temp.ask(:'c2', 'd', 20), pg_temp.ask(:'c1', 'd', 21), pg_temp.ask(:'c2', 'd', 22);
update leasehold.coordinator set seen_at = clock_timestamp() - interval '6 s' where id = :'c1';
select length(pg_temp.release(:'c2', 'd', 20));
select is(pg_temp.ask(:'c2', 'd', 22), 'granted', 'a waiter of a coordinator not seen for 5 s is skipped');
select * from finish();
