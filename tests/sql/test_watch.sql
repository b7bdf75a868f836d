-- Watching: watch_add, watch_remove, watch_clear, take_events: what is written for whom, in which order, and when nothing is.
select no_plan();
select leasehold.reap();
select '11111111-1111-4111-8111-111111111111' as c1, '22222222-2222-4222-8222-222222222222' as c2 \gset
select t.enroll(:'c1'), t.enroll(:'c2');
create function pg_temp.ask(p_coordinator uuid, p_ns text, p_key text, p_lease integer) returns text language sql as $$
  select outcome from leasehold_internal.acquire_batch(p_coordinator, null, array[p_ns], array[p_key], array[t.key(p_lease)], array['w' || p_lease], array['{"l": "x"}'],
                                              array[30000000::bigint], array[true], array[null::bigint], array[0::bigint])
$$;
create function pg_temp.release(p_coordinator uuid, p_ns text, p_key text, p_lease integer, p_failed boolean default false, p_value text default null) returns text language sql as $$
  select outcome from leasehold_internal.release_batch(p_coordinator, array[p_ns], array[p_key], array[t.key(p_lease)], array[p_failed], array[p_value])
$$;
-- What a coordinator takes: 'acquired a/k w1', in order.
create function pg_temp.taken(p_coordinator uuid, p_max integer default 1000) returns text[] language sql as $$
  select coalesce(array_agg(concat_ws(' ', type, namespace || '/' || key, owner) order by ordinality), '{}')
    from leasehold_internal.take_events(p_coordinator, p_max) with ordinality
$$;
create function pg_temp.written() returns bigint language sql as $$ select count(*) from leasehold.event $$;

-- nobody watches
select pg_temp.ask(:'c1', 'a', 'k', 1), pg_temp.release(:'c1', 'a', 'k', 1), leasehold.acquire('a', 'k2', '30 s'), leasehold.force_release('a', 'k2', 'why');
select is(pg_temp.written(), 0::bigint, 'nobody watches, nothing is written');
select is((select last_value::text || is_called from leasehold.event_number), '1false', 'not even a number is drawn');
select is(pg_temp.taken(:'c1'), array['lagged'], 'who watches nothing is told so');
select is(t.error_of(format('select leasehold_internal.watch_add(%L, %L, true)', :'c1', 'a..b')), 'LH002 invalid_argument namespace', 'a bad namespace');
select is(t.error_of(format('select leasehold_internal.watch_add(%L, %L, null)', :'c1', 'a')), 'LH002 invalid_argument include_children', 'children or not');
select is(t.error_of(format('select leasehold_internal.watch_add(null, %L, true)', 'a')), 'LH002 invalid_argument coordinator', 'and who');
select is(leasehold_internal.watch_barrier(:'c1'), null, 'no watch, no barrier');
select is((select count(*) from leasehold.watch), 0::bigint, 'nothing of that is a watch');

-- every way to be granted a lease, and to lose it
select leasehold_internal.watch_add(:'c1', 'a', false), leasehold_internal.watch_add(:'c1', 'a', false);
select is((select count(*) from leasehold.watch), 1::bigint, 'a watch twice is one');
select is(leasehold_internal.watch_settled(leasehold_internal.watch_barrier(:'c1')), true, 'nobody is at work: it may list at once');
select pg_temp.ask(:'c1', 'a', 'new', 1), pg_temp.release(:'c1', 'a', 'new', 1), pg_temp.ask(:'c2', 'a', 'new', 2), pg_temp.release(:'c2', 'a', 'new', 2, true, 'out of disk');
select is(pg_temp.taken(:'c1'), array['acquired a/new w1', 'released a/new w1', 'acquired a/new w2', 'released a/new w2'], 'new scope, free scope, released, failed');
select is(pg_temp.taken(:'c1'), '{}', 'each is taken once');
select leasehold.acquire('a', 'sql', '30 s', 'me', t.key(3)), leasehold.release_ok('a', 'sql', t.key(3), '{"n": 1}');
select leasehold.acquire('a', 'sql', '30 s', 'me', t.key(4)), leasehold.release_fail('a', 'sql', t.key(4), 'no');
create temp table e as select * from leasehold_internal.take_events(:'c1', 1000) with ordinality;
select is((select array_agg(concat_ws(' ', type, end_reason, result, error) order by ordinality) from e), array['acquired', 'released released {"n": 1}', 'acquired', 'released failed no'],
          'the SQL API tells too, with results and errors');
select is((select bool_and(token = (select token from leasehold.scope where key = 'sql') and owner = 'me') from e where ordinality > 2), true, 'of that very lease');
select is((select array_agg(e1.token < e2.token) from e e1, e e2 where e1.ordinality = 2 and e2.ordinality = 3), array[true], 'tokens say which is which');
select pg_temp.ask(:'c1', 'a', 'wait', 5), pg_temp.ask(:'c1', 'a', 'wait', 6), pg_temp.release(:'c1', 'a', 'wait', 5), pg_temp.ask(:'c1', 'a', 'wait', 6);
select is(pg_temp.taken(:'c1'), array['acquired a/wait w5', 'released a/wait w5', 'acquired a/wait w6'], 'the careful paths: a release with a waiter, a grant to it; a place in the queue is no event');
select pg_temp.ask(:'c1', 'a', 'wait', 6), leasehold.heartbeat('a', 'wait', t.key(6));
select count(*) from leasehold_internal.heartbeat_batch(array['a'], array['wait'], array[t.key(6)]);
select pg_temp.ask(:'c1', 'a', 'wait', 7), leasehold.acquire('a', 'wait', '30 s'), leasehold.release_ok('a', 'wait', t.key(9));
select is(pg_temp.written(), 0::bigint, 'renewals, heartbeats and refusals are no events');
select t.age('a', 'wait', '1 hour');
select pg_temp.ask(:'c1', 'a', 'wait', 7);
create temp table o as select * from leasehold_internal.take_events(:'c1', 1000) with ordinality;
select is((select array_agg(concat_ws(' ', type, owner, end_reason, heartbeats) order by ordinality) from o), array['expired w6 expired 3', 'acquired w7 0'],
          'a takeover: the old lease expired, then the new one is acquired');
select is((select token from o where type = 'acquired'), (select token from leasehold.scope where key = 'wait'), 'with its own token');
select cmp_ok((select token from o where type = 'expired'), '<', (select token from o where type = 'acquired'), 'and the old one''s');
select is((select liveness || remaining_us from o where type = 'expired'), 'expired0', 'nothing remains of the old one');
select ok((select remaining_us between 10000000 and 30000000 and duration_us = 30000000 and grace_us = 1000000 and labels = '{"l": "x"}' and acquired_at = heartbeat_at
                  and deadline = acquired_at + interval '30 s' and liveness = 'alive' from o where type = 'acquired'), 'the new one is told with all its columns');
select leasehold.force_release('a', 'wait', 'host is gone');
select is((select array_agg(concat_ws('|', type, owner, end_reason, reason, error)) from leasehold_internal.take_events(:'c1', 1000)), array['forced|w7|forced|host is gone'], 'forced, with the reason');
select pg_temp.ask(:'c1', 'a', 'gone', 8);
select t.age('a', 'gone', '1 hour');
select leasehold.reap();
select is(pg_temp.taken(:'c1'), array['acquired a/gone w8', 'expired a/gone w8'], 'reaped');
select pg_temp.ask(:'c1', 'a', 'left', 10);
select leasehold_internal.leave_batch(:'c1', array['a'], array['left'], array[t.key(10)], array[false]);
select is(pg_temp.taken(:'c1'), array['acquired a/left w10', 'released a/left w10'], 'granted in the instant of a cancellation: both are told');
begin;
select leasehold.acquire('a', 'undone', '30 s'), leasehold.release_ok('a', 'undone', t.key(9));
rollback;
select is(pg_temp.written(), 0::bigint, 'what is rolled back is no event');
select leasehold_internal.acquire_batch(:'c1', null, array['a', 'b', 'a'], array['m1', 'm', 'm2'], array[t.key(11), t.key(11), t.key(11)], array['w', 'w', 'w'], array['{}', '{}', '{}'],
  array[30000000, 30000000, 30000000]::bigint[], array[true, true, true], array[null, null, null]::bigint[], array[0, 0, 0]::bigint[]);
select is((select array_agg(x order by x) from unnest(pg_temp.taken(:'c1')) x), array['acquired a/m1 w', 'acquired a/m2 w'], 'a batch: one for each scope that is watched');
select leasehold_internal.release_batch(:'c1', array['a', 'b', 'a', 'a'], array['m1', 'm', 'm2', 'm2'], array[t.key(11), t.key(11), t.key(11), t.key(11)], array[false, false, false, false], array[null, null, null, null]);
select is((select array_agg(x order by x) from unnest(pg_temp.taken(:'c1')) x), array['released a/m1 w', 'released a/m2 w'], 'and each once, though it is named twice');

-- who is told
select leasehold_internal.watch_clear(:'c1');
select is(pg_temp.taken(:'c1'), array['lagged'], 'cleared: watches nothing');
select leasehold_internal.watch_add(:'c1', 'p.q', true), leasehold_internal.watch_add(:'c1', 'p', false), leasehold_internal.watch_add(:'c1', '', false);
select leasehold_internal.watch_add(:'c2', 'p.q', false), leasehold_internal.watch_add(:'c2', 'p.q.r', true);
select pg_temp.ask(:'c1', ns, 'k', 20) from unnest(array['p', 'p.q', 'p.q.r', 'p.q.r.s', 'p.qq', 'x']) ns;
select is((select array_agg(x order by x) from unnest(pg_temp.taken(:'c1')) x),
          array['acquired p.q.r.s/k w20', 'acquired p.q.r/k w20', 'acquired p.q/k w20', 'acquired p.qq/k w20', 'acquired p/k w20', 'acquired x/k w20'], 'everything, once each, though watches overlap');
select is((select array_agg(x order by x) from unnest(pg_temp.taken(:'c2')) x), array['acquired p.q.r.s/k w20', 'acquired p.q.r/k w20', 'acquired p.q/k w20'], 'with children, and without');
select is(leasehold_internal.watch_remove(:'c2', 'p.q.r', true), true, 'a watch that ends');
select is(leasehold_internal.watch_remove(:'c2', 'p.q.r', true), false, 'ends once');
select is(leasehold_internal.watch_remove(:'c2', 'p.q', true), false, 'with children is another one than without');
select is(leasehold_internal.watch_remove(:'c1', '', false), true, 'everything is a watch like any other');
select leasehold.force_release(ns, 'k', 'why') from unnest(array['p', 'p.q', 'p.q.r', 'p.q.r.s', 'p.qq', 'x']) ns;
select is((select array_agg(x order by x) from unnest(pg_temp.taken(:'c1')) x), array['forced p.q.r.s/k w20', 'forced p.q.r/k w20', 'forced p.q/k w20', 'forced p/k w20'], 'the exact one, and the prefix, not its namesake');
select is(pg_temp.taken(:'c2'), array['forced p.q/k w20'], 'the exact one alone');

-- taken in order, a few at a time
select leasehold.acquire('p', 'seq', '30 s', 's' || n, t.key(100 + n)), leasehold.release_ok('p', 'seq', t.key(100 + n)) from generate_series(1, 5) n;
select is(pg_temp.taken(:'c1', 3), array['acquired p/seq s1', 'released p/seq s1', 'acquired p/seq s2'], 'no more than asked for');
select is(array_length(pg_temp.taken(:'c1', 100), 1), 7, 'then the rest');

-- bounded: a coordinator that stops taking
insert into leasehold.event (coordinator, number, type, at, namespace, key, token) select :'c1', n, 'acquired', now(), 'p', 'old', n from generate_series(-99999, 0) n;
select setval('leasehold.event_number', 100997);
select leasehold.acquire('p', 'bound', '30 s', 'full', t.key(200));
select is((select count(*) from leasehold.event where type = 'lagged'), 0::bigint, '100,001 rows before the turn to look');
select leasehold.release_ok('p', 'bound', t.key(200)), leasehold.acquire('p', 'bound', '30 s', 'full', t.key(201)), leasehold.release_ok('p', 'bound', t.key(201));
select is((select array_agg(coordinator) from leasehold.event where type = 'lagged'), array[:'c1']::uuid[], 'over 100,000: it has lagged, the other has not');
select pg_temp.written() as before \gset
select leasehold.acquire('p.q', 'bound', '1 h', 'more', t.key(202));
select is(pg_temp.written() - :before, 1::bigint, 'no more is written for it');
select is(pg_temp.taken(:'c2'), array['acquired p.q/bound more'], 'the other takes its own');
select leasehold_internal.sweep_waiters(null);
select cmp_ok(pg_temp.written(), '<', 91000::bigint, 'what it will not read is removed bit by bit');
select is((select count(*) from leasehold.event where type = 'lagged'), 1::bigint, 'but not that it has lagged');
select is(pg_temp.taken(:'c1', 10), array['lagged'], 'taking says so');
select is((select count(*) from leasehold.event where coordinator = :'c1') + (select count(*) from leasehold.watch where coordinator = :'c1'), 0::bigint, 'and nothing is left, not even the watches');
select leasehold_internal.watch_add(:'c1', 'p', true);
select leasehold.release_ok('p.q', 'bound', t.key(202));
select is(pg_temp.taken(:'c1'), array['released p.q/bound more'], 'it watches again');
select is(pg_temp.taken(:'c2'), array['released p.q/bound more'], 'as the other does');

-- bounded: a coordinator that has died
update leasehold.coordinator set seen_at = clock_timestamp() - interval '16 s' where id = :'c1';
select leasehold.acquire('p', 'dead', '30 s', 'd', t.key(300)), leasehold.release_ok('p', 'dead', t.key(300));
select is((select array_agg(type) from leasehold.event where coordinator = :'c1'), array['lagged'], 'not seen for 15 s: one row says that it has lagged');
update leasehold.coordinator set seen_at = clock_timestamp() + interval '1 hour' where id = :'c1';
select is(pg_temp.taken(:'c1'), array['lagged'], 'and if it comes back it hears it');
select leasehold_internal.watch_add(:'c1', 'p', true);
select leasehold.acquire('p', 'swept', '30 s');
update leasehold.coordinator set seen_at = clock_timestamp() - interval '16 s' where id = :'c1';
select leasehold_internal.coordinator_tick(:'c2', clock_timestamp()), leasehold_internal.reap_batch(:'c2', clock_timestamp(), null, true, 100, true);
select is((select count(*) from leasehold.event where coordinator = :'c1') + (select count(*) from leasehold.watch where coordinator = :'c1'), 0::bigint, 'the reaper sweeps its watches and events');
select is((select count(*) from leasehold.watch where coordinator = :'c2'), 1::bigint, 'not the other''s');
select leasehold.acquire('p.q', 'bye', '30 s');
select leasehold_internal.coordinator_unregister(:'c2');
select is(pg_temp.written() + (select count(*) from leasehold.watch), 0::bigint, 'a clean shutdown leaves nothing');
insert into leasehold.event (coordinator, number, type, at, namespace, key, token) values (:'c2', 1, 'acquired', now(), 'p', 'late', 1);
select leasehold_internal.sweep_waiters(null);
select is(pg_temp.written(), 0::bigint, 'an event that nobody watches any more is swept');

-- what one transaction did is told in its order, to each of several who watch, whatever the plan of the join
select t.enroll(:'c1'), t.enroll(:'c2');
select leasehold_internal.watch_add(:'c1', 'p', true), leasehold_internal.watch_add(:'c2', 'p', true);
select count(*)
  from (select array_agg('p'::text) as ns, array_agg('many'::text) as keys, array_agg(t.key(100 + i)) as lk, array_agg('w' || i) as owner, array_agg('{}'::text) as labels,
               array_agg(30000000::bigint) as us, array_agg(false) as queue, array_agg(null::bigint) as wait, array_agg(0::bigint) as ticket, array_agg(1) as units
          from generate_series(1, 9) i) a,
       leasehold_internal.acquire_batch(:'c1', null, a.ns, a.keys, a.lk, a.owner, a.labels, a.us, a.queue, a.wait, a.ticket, null, null, a.units);
select is(pg_temp.taken(c::uuid), array(select 'acquired p/many w' || i from generate_series(1, 9) i), 'the grants of a batch, in its order')
  from unnest(array[:'c1', :'c2']) c;
set enable_nestloop = off;
set enable_mergejoin = off;
select leasehold_internal.tell_watchers(array_agg('p'::text), array_agg('many'::text), array_agg(t.key(100 + i))) from generate_series(1, 9) i;
reset enable_nestloop;
reset enable_mergejoin;
select is(pg_temp.taken(c::uuid), array(select 'acquired p/many w' || i from generate_series(1, 9) i), 'with a hash join, too')
  from unnest(array[:'c1', :'c2']) c;
select leasehold_internal.coordinator_unregister(:'c1'), leasehold_internal.coordinator_unregister(:'c2');

-- around the end of the 32 bits, and a mark from another cluster
select is(leasehold_internal.watch_settled('1'), true, 'an old horizon is settled');
select setval('leasehold.watch_mark', (1::bigint << 60) + 1000);
begin isolation level repeatable read;
select is(t.rows_of($$select * from leasehold.acquire('p', 'restored', '30 s')$$), 1, 'a mark from a dump of another cluster does not stand in the way');
commit;
select * from finish();
