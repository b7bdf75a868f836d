-- coordinator_register, coordinator_tick, coordinator_unregister, reap_batch: what a daemon says of itself, and what it is told.
select no_plan();
select '11111111-1111-4111-8111-111111111111' as c1, '22222222-2222-4222-8222-222222222222' as c2 \gset
create function pg_temp.ask(p_coordinator uuid, p_key text, p_lease integer, p_duration_us bigint default 30000000) returns text language sql as $$
  select outcome from leasehold_internal.acquire_batch(p_coordinator, null, array['c'], array[p_key], array[t.key(p_lease)], array['w' || p_lease], array['{}'],
                                              array[p_duration_us], array[true], array[null::bigint], array[0::bigint])
$$;
create function pg_temp.told(p_coordinator uuid) returns text[] language sql as $$
  select array_agg(namespace || '/' || key order by namespace, key) from leasehold_internal.coordinator_tick(p_coordinator, clock_timestamp()) where namespace is not null
$$;

select * from leasehold_internal.coordinator_register(:'c1', 'host1', 4711, '0.1.0') \gset reg_
select t.is_near(:'reg_database_now', clock_timestamp(), 'registering answers the database''s time');
select is(:reg_timeline::bigint, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint, 'and the WAL timeline');
select is((select host || ' ' || pid || ' ' || version from leasehold.coordinator where id = :'c1'), 'host1 4711 0.1.0', 'there is a row for it');
select leasehold_internal.coordinator_register(:'c1', 'host1', 4711, '0.1.1');
select is((select count(*) || ' ' || max(version) from leasehold.coordinator), '1 0.1.1', 'registering again is the same one');
select leasehold_internal.coordinator_register(:'c2', 'host2', 4712, '0.1.0');
update leasehold.coordinator set seen_at = seen_at - interval '3 s';
create temp table tick as select * from leasehold_internal.coordinator_tick(:'c1', clock_timestamp());
select is((select is_registered from tick where namespace is null), true, 'a tick says that it is registered');
select t.is_near((select database_now from tick where namespace is null), clock_timestamp(), 'and the database''s time');
select t.is_near((select seen_at from leasehold.coordinator where id = :'c1'), clock_timestamp(), 'a tick is a sign of life', '2 s');
select is((select is_registered from leasehold_internal.coordinator_tick('33333333-3333-4333-8333-333333333333', null) where namespace is null), false, 'a stranger is told that it is not');
select is((select count(*) from leasehold.coordinator), 2::bigint, 'and gets no row by that');

-- the slow poll; on a busy machine the other one stays live, too
update leasehold.coordinator set seen_at = clock_timestamp() + interval '1 hour' where id = :'c2';
select pg_temp.ask(:'c1', 'free', 1), pg_temp.ask(:'c1', 'free', 2), pg_temp.ask(:'c2', 'free', 3);
select pg_temp.ask(:'c1', 'held', 4), pg_temp.ask(:'c1', 'held', 5);
select pg_temp.ask(:'c1', 'other', 6), pg_temp.ask(:'c2', 'other', 7), pg_temp.ask(:'c1', 'other', 8);
select pg_temp.ask(:'c2', 'late', 9), pg_temp.ask(:'c1', 'late', 10);
select is(pg_temp.told(:'c1'), null, 'while everything is held the slow poll tells nothing');
select leasehold.release_ok('c', 'free', t.key(1)), leasehold.release_ok('c', 'other', t.key(6)), t.age('c', 'late', '1 hour');
select is(pg_temp.told(:'c1'), array['c/free', 'c/late'], 'it tells free and expired scopes whose head is its own');
select is(pg_temp.told(:'c2'), array['c/other'], 'and the other''s to the other');

-- a coordinator that died; a tick that finds this comes at most 1.1 s later
update leasehold.coordinator set seen_at = clock_timestamp() - interval '3600 ms' where id = :'c2';
select is(pg_temp.told(:'c1'), array['c/free', 'c/late', 'c/other'], 'its waiters are skipped in time for the tick that sees it within five seconds');
select is((select position from leasehold.queue where coordinator = :'c2' and key = 'other'), null, 'and the queue shows them as passed over');
select is(pg_temp.ask(:'c1', 'other', 8), 'granted', 'and the next is granted');
update leasehold.coordinator set seen_at = clock_timestamp() - interval '1 min' where id = :'c2';
select count(*) from leasehold_internal.reap_batch(:'c1', clock_timestamp(), null, true, 100, true);
select is((select count(*) from leasehold.waiter where coordinator = :'c2'), 0::bigint, 'the reaper removes its waiters');
select is((select is_registered from leasehold_internal.coordinator_tick(:'c2', null) where namespace is null), false, 'when it comes back it is told to register again');

-- one that was only slow is told what became free meanwhile
select t.enroll(:'c2');
select pg_temp.ask(:'c1', 'slow', 31), pg_temp.ask(:'c2', 'slow', 32);
update leasehold.coordinator set seen_at = clock_timestamp() - interval '6 s' where id = :'c2';
select leasehold.release_ok('c', 'slow', t.key(31));
select is(pg_temp.told(:'c2'), array['c/slow'], 'a coordinator that comes back before it is swept away is told what became free meanwhile');
select is(pg_temp.ask(:'c2', 'slow', 32), 'granted', 'and its waiter is granted');
select leasehold_internal.coordinator_unregister(:'c2');

-- reap_batch
select count(*) from leasehold_internal.reap_batch(:'c1', clock_timestamp(), null, true, 100, true);
select pg_temp.ask(:'c1', 'r' || n, 100 + n) from generate_series(1, 3) n;
select pg_temp.ask(:'c1', 'r1', 110);
select t.age('c', 'r' || n, '1 hour') from generate_series(1, 3) n;
select is(t.rows_of(format('select * from leasehold_internal.reap_batch(%L, clock_timestamp() - interval %L, null, true, 100, true) where kind = %L', :'c1', '5 s', 'reaped')), 0,
          'while the database''s clock is ahead of the daemon''s nothing is reaped');
select is((select count(*) from leasehold.scope where key in ('r1', 'r2', 'r3') and state = 'held'), 3::bigint, 'all of them are held still');
update leasehold.scope set check_at = clock_timestamp() where key in ('r1', 'r2', 'r3');
create temp table reaped as select * from leasehold_internal.reap_batch(:'c1', clock_timestamp(), null, true, 2, true);
select is((select count(*) from reaped where kind = 'reaped'), 2::bigint, 'p_max bounds a call');
select is((select count(*) from reaped where kind = 'more'), 1::bigint, 'and it says that there is more');
insert into reaped select * from leasehold_internal.reap_batch(:'c1', clock_timestamp(), null, true, 100, true);
select is((select array_agg(key order by key) from reaped where kind = 'reaped'), array['r1', 'r2', 'r3'], 'the next goes on');
select is((select wake from reaped where kind = 'reaped' and key = 'r1'), true, 'its own head is woken by the answer');
select is((select lease_key from reaped where kind = 'reaped' and key = 'r2'), t.key(102), 'with the lease key that was ended');
select is((select owner from reaped where kind = 'reaped' and key = 'r2'), 'w102', 'and whose it was');
select leasehold.set_policy('c.ext', reaper => 'external');
select * from leasehold.acquire('c.ext', 'a', '30 s') \gset ext_
select t.age('c.ext', 'a', '1 hour');
select is((select count(*) from leasehold_internal.reap_batch(:'c1', clock_timestamp(), null, true, 100, true) where kind = 'reaped'), 0::bigint, 'a daemon''s tick leaves external namespaces alone');
select is((select count(*) from leasehold_internal.reap_batch(:'c1', clock_timestamp(), array['c.ext'], false, 100, false) where kind = 'reaped'), 1::bigint, 'a call that names one does not');

-- get_scope and list_leases
select is(t.rows_of($$select * from leasehold_internal.get_scope('c', 'unknown')$$), 0, 'get_scope: no row for an unknown scope');
select is((select is_held::text || waiters || owner from leasehold_internal.get_scope('c', 'held')), 'true1w4', 'get_scope: the holder and how many wait');
select is((select is_held::text || last_owner || last_end_reason from leasehold_internal.get_scope('c', 'r2')), 'falsew102expired', 'get_scope: a free one has its last hold');
select leasehold.acquire('l.x', k, '30 s', owner => 'o' || k) from unnest(array['b', 'a', 'C']) k;
select leasehold.acquire('l', 'z', '30 s'), leasehold.acquire('lx', 'z', '30 s');
select is((select array_agg(namespace || '/' || key) from leasehold_internal.list_leases('l', true, 100, null, null, null)), array['l/z', 'l.x/C', 'l.x/a', 'l.x/b'], 'list_leases: by namespace and key, children too');
select is((select array_agg(key) from leasehold_internal.list_leases('l', false, 100, null, null, null)), array['z'], 'list_leases: or not');
select is((select array_agg(key) from leasehold_internal.list_leases('l', true, 2, 'l.x', 'C', null)), array['a', 'b'], 'list_leases: from a place on');
select is((select array_agg(key) from leasehold_internal.list_leases('l', true, 2, null, null, null)), array['z', 'C'], 'list_leases: at most that many');
select is((select array_agg(key) from leasehold_internal.list_leases('', true, 100, null, null, 'oa')), array['a'], 'list_leases: by owner');
select is((select array_agg(key) from leasehold_internal.list_leases('l', true, 100, null, null, null, 'X/A')), array['a'], 'list_leases: by a part of its name, in any case');
select is((select array_agg(key) from leasehold_internal.list_leases('l', true, 100, null, null, null, 'Oa')), array['a'], 'list_leases: or of its owner');
select is((select array_agg(key) from leasehold_internal.list_leases('l', true, 100, null, null, null, '%')), null, 'list_leases: which is no pattern');
select is((select array_agg(namespace || '/' || key || coalesce(' ' || owner, ' stop')) from leasehold_internal.list_leases('l', true, 100, null, null, 'oa', null, 2)), array['l.x/C stop'],
  'list_leases: stops where it has looked at as many rows as it may');
select is((select array_agg(namespace || '/' || key || coalesce(' ' || owner, ' stop')) from leasehold_internal.list_leases('l', true, 100, 'l.x', 'C', 'oa', null, 2)), array['l.x/a oa', 'l.x/b stop'],
  'list_leases: and goes on from there');
select is((select array_agg(token is null) from leasehold_internal.list_leases('l', true, 2, null, null, null, null, 2)), array[false, false], 'list_leases: a full page has no stop');

-- going cleanly
select pg_temp.ask(:'c1', 'bye', 201);
select leasehold_internal.coordinator_register(:'c2', 'host2', 4712, '0.1.0');
select pg_temp.ask(:'c1', 'bye', 202), pg_temp.ask(:'c2', 'bye', 203);
select leasehold_internal.coordinator_unregister(:'c1');
select is((select count(*) from leasehold.coordinator where id = :'c1'), 0::bigint, 'whoever shuts down cleanly has no row');
select leasehold.release_ok('c', 'bye', t.key(201));
select is(pg_temp.told(:'c2'), array['c/bye'], 'its waiters do not hold up the others');
select is(pg_temp.ask(:'c2', 'bye', 203), 'granted', 'who are granted');

-- one that comes back while it is swept
select '33333333-3333-4333-8333-333333333333' as c3 \gset
select leasehold_internal.coordinator_register(:'c3', 'host3', 4713, '0.1.0');
insert into leasehold.scope (namespace, key, check_at, queued) select 'sweep', 'k' || i, 'infinity', true from generate_series(1, 1001) i;
insert into leasehold.waiter (namespace, key, ticket, lease_key, coordinator, enqueued_at, duration)
select 'sweep', 'k' || i, nextval('leasehold.ticket'), t.key(1000 + i), :'c3', clock_timestamp(), '30 s' from generate_series(1, 1001) i;
update leasehold.coordinator set seen_at = clock_timestamp() - interval '16 s' where id = :'c3';
select count(*) from leasehold_internal.sweep_waiters(:'c2') \gset swept_
select is((select count(*) from leasehold.waiter where coordinator = :'c3'), 1::bigint, 'one sweep takes the waiters of a thousand scopes');
select is((select is_registered from leasehold_internal.coordinator_tick(:'c3', null) where namespace is null), false, 'whose waiters are gone in part is told that it is not registered');
select leasehold_internal.coordinator_register(:'c3', 'host3', 4713, '0.1.0');
select is((select is_registered from leasehold_internal.coordinator_tick(:'c3', null) where namespace is null), true, 'and registers again, to queue them all');
select count(*) from leasehold_internal.sweep_waiters(:'c2') \gset swept_
select is((select count(*) from leasehold.waiter where coordinator = :'c3'), 1::bigint, 'the one that was left is its own again');

-- Other sessions' transactions are unknown without pg_monitor, and not absent.
create role monitored_daemon login in role leasehold_coordinator;
set role monitored_daemon;
select is((select oldest_us from leasehold_internal.survey()), -1::bigint, 'without pg_monitor the oldest transaction is unknown');
reset role;
grant pg_monitor to leasehold_owner;
set role monitored_daemon;
select is((select coalesce(oldest_us, 0) >= 0 from leasehold_internal.survey()), true, 'known where leasehold_owner is in pg_monitor');
reset role;
revoke pg_monitor from leasehold_owner;
grant pg_monitor to monitored_daemon;
set role monitored_daemon;
select is((select coalesce(oldest_us, 0) >= 0 from leasehold_internal.survey()), true, 'or the daemon''s role');
reset role;
-- After an outage of all coordinators, with the database up or not, the first that is back keeps the others' places for them.
delete from leasehold.coordinator;
select leasehold_internal.coordinator_register('aaaaaaaa-0000-4000-8000-000000000001', 'h', 1, '0'), leasehold_internal.coordinator_register('aaaaaaaa-0000-4000-8000-000000000002', 'h', 2, '0');
select leasehold.acquire('outage', 'a', '30 s', lease_key => t.key(900));
select outcome from leasehold_internal.acquire_batch('aaaaaaaa-0000-4000-8000-000000000002', null, array['outage', 'outage'], array['a', 'a'], array[t.key(901), t.key(902)],
       array['o', 'o'], array['{}', '{}'], array[30000000, 30000000]::bigint[], array[true, true], array[null, null]::bigint[], array[0, 0]::bigint[]);
update leasehold.waiter set away_until = clock_timestamp() - interval '9 s' where lease_key = t.key(902);
update leasehold.coordinator set seen_at = clock_timestamp() - interval '20 s';
select id as before_outage from leasehold.incarnation \gset
select leasehold_internal.coordinator_tick('aaaaaaaa-0000-4000-8000-000000000001', null);
select isnt((select id from leasehold.incarnation), :before_outage::bigint, 'a tick after a time in which no coordinator could write begins a new life');
select leasehold_internal.reap_batch('aaaaaaaa-0000-4000-8000-000000000001', null, null, true, 1000, true);
select is((select count(*) from leasehold.waiter where namespace = 'outage'), 2::bigint, 'the other''s waiters have their places');
select is((select seen_at < clock_timestamp() - interval '5 s' from leasehold.coordinator where id = 'aaaaaaaa-0000-4000-8000-000000000002'), true, 'without being taken for live');
update leasehold.coordinator set seen_at = clock_timestamp() - interval '20 s' where id = 'aaaaaaaa-0000-4000-8000-000000000002';
select leasehold_internal.reap_batch('aaaaaaaa-0000-4000-8000-000000000001', null, null, true, 1000, true);
select is((select count(*) from leasehold.waiter where namespace = 'outage' and lease_key = t.key(901)), 0::bigint, 'one that does not come back is swept all the same');
select * from finish();
