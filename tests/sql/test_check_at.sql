-- check_at: the one indexed time. Never later than the expiry, moved forward lazily, by at least 100 ms a visit.
select no_plan();
select leasehold.reap();
create function pg_temp.due(p_key text) returns void language sql as $$ update leasehold.scope set check_at = clock_timestamp() - interval '1 ms' where key = p_key $$;
create function pg_temp.check_at(p_key text) returns timestamptz language sql as $$ select check_at from leasehold.scope where key = p_key $$;

select leasehold.acquire('k', 'a', '30 s', lease_key => t.key(1));
select is(pg_temp.check_at('a'), (select deadline + grace from leasehold.scope where key = 'a'), 'a new scope is looked at when it expires');
select pg_temp.check_at('a') as first \gset
select leasehold.heartbeat('k', 'a', t.key(1));
select is(pg_temp.check_at('a'), :'first'::timestamptz, 'a heartbeat does not touch it');
select leasehold.acquire('k', 'a', '60 s', lease_key => t.key(1));
select cmp_ok(pg_temp.check_at('a'), '<=', :'first'::timestamptz, 'nor does a renewal move it on');
select leasehold.acquire('k', 'a', '5 s', lease_key => t.key(1));
select cmp_ok(pg_temp.check_at('a'), '<=', (select deadline + grace from leasehold.scope where key = 'a'), 'but a shorter one lowers it');
select pg_temp.due('a');
select leasehold.reap();
select is(pg_temp.check_at('a'), (select deadline + grace from leasehold.scope where key = 'a'), 'a visit to a lease that is alive: its expiry');
select leasehold.release_ok('k', 'a', t.key(1));
select cmp_ok(pg_temp.check_at('a'), '<=', (select ended_at + interval '60 s' from leasehold.scope where key = 'a'), 'released: not later than its retention');
select pg_temp.due('a');
select leasehold.reap();
select is(pg_temp.check_at('a'), (select ended_at + interval '60 s' from leasehold.scope where key = 'a'), 'a visit to a free one: the end of its retention');
select leasehold.acquire('k', 'a', '1 s', lease_key => t.key(2));
select cmp_ok(pg_temp.check_at('a'), '<=', (select deadline + grace from leasehold.scope where key = 'a'), 'a grant may lower it');
select leasehold.release_ok('k', 'a', t.key(2));
select leasehold.acquire('k', 'a', '1 hour', lease_key => t.key(3));
select cmp_ok(pg_temp.check_at('a'), '<', clock_timestamp() + interval '2 min', 'and never raises it');

-- free with a waiter
select leasehold.acquire('k', 'w', '30 s', lease_key => t.key(10)), leasehold.join_queue('k', 'w', t.key(11), ttl => '1 hour'), leasehold.release_ok('k', 'w', t.key(10));
select pg_temp.due('w');
select leasehold.reap();
select ok(pg_temp.check_at('w') between clock_timestamp() + interval '100 ms' and clock_timestamp() + interval '2 s', 'a visit to a free one with waiters: again in a second');

-- manual and external
select leasehold.set_policy('man', expiry => 'manual'), leasehold.set_policy('ext', reaper => 'external');
select leasehold.acquire('man', 'm', '30 s'), leasehold.acquire('ext', 'e', '30 s');
select pg_temp.due('m'), pg_temp.due('e');
select leasehold.reap();
select is(pg_temp.check_at('m'), 'infinity'::timestamptz, 'a manual lease is never looked at again');
select is(pg_temp.check_at('e'), 'infinity'::timestamptz, 'nor an external one');
select t.age('ext', 'e', '1 hour'), t.age('man', 'm', '1 hour');
select is(t.rows_of($$select * from leasehold.reap(array['ext'])$$), 1, 'an external reap finds its rows all the same');
select leasehold.set_policy('man', expiry => 'takeover');
select isnt(pg_temp.check_at('m'), 'infinity'::timestamptz, 'a changed policy brings them back');
select is(t.rows_of('select * from leasehold.reap()'), 1, 'and the expired lease is reaped');
select leasehold.set_policy('man.p', expiry => 'manual');
select leasehold.acquire('man.p.child', 'c', '30 s');
select pg_temp.due('c');
select leasehold.reap();
select is(pg_temp.check_at('c'), 'infinity'::timestamptz, 'inherited manual');
select t.age('man.p.child', 'c', '1 hour');
select leasehold.reset_policy('man.p');
select is(t.rows_of('select * from leasehold.reap()'), 1, 'a reset policy brings children back too');

-- no busy loop, and none hides others: every row that is due is visited by one reap, and then none is due
select leasehold.acquire('bulk', 'k' || n, '30 s', lease_key => t.key(n)) from generate_series(1, 50) n;
select leasehold.release_ok('bulk', 'k' || n, t.key(n)) from generate_series(1, 50, 3) n;
select t.age('bulk', 'k' || n, '1 hour') from generate_series(2, 50, 3) n;
update leasehold.scope set check_at = clock_timestamp() - interval '1 ms' where namespace = 'bulk';
select is(t.rows_of('select * from leasehold.reap()'), 17, 'the expired ones among many are reaped');
select is((select count(*) from leasehold.scope where namespace = 'bulk' and check_at < clock_timestamp()), 0::bigint, 'and nothing is due any more');
select is((select count(*) from leasehold.scope where namespace = 'bulk' and state = 'held'), 16::bigint, 'the others are held still');

-- heartbeats stay HOT
select is((select count(*) from pg_index i, unnest(i.indkey::smallint[]) as k (attnum) join pg_attribute a on a.attname in ('deadline', 'heartbeat_at', 'heartbeats', 'duration', 'owner')
            where i.indrelid = 'leasehold.scope'::regclass and a.attrelid = i.indrelid and a.attnum = k.attnum), 0::bigint, 'nothing a heartbeat changes is indexed');
select is((select count(*) from pg_index where indrelid = 'leasehold.scope'::regclass and (pg_get_indexdef(indexrelid) ~ 'deadline|heartbeat')), 0::bigint, 'not by an expression either');
select leasehold.acquire('hot', 'k' || n, '30 s', lease_key => t.key(n)) from generate_series(1, 5) n;
vacuum leasehold.scope;
begin;
select pg_stat_get_xact_tuples_updated('leasehold.scope'::regclass) as updated, pg_stat_get_xact_tuples_hot_updated('leasehold.scope'::regclass) as hot \gset before_
select count(leasehold.heartbeat('hot', 'k' || n, t.key(n))) from generate_series(1, 5) n, generate_series(1, 4);
select is(pg_stat_get_xact_tuples_updated('leasehold.scope'::regclass) - :before_updated, 20::bigint, 'a heartbeat is one update');
select is(pg_stat_get_xact_tuples_hot_updated('leasehold.scope'::regclass) - :before_hot, 20::bigint, 'and every one is HOT');
commit;
select * from finish();
