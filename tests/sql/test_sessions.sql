-- Nothing depends on the session: not its time zone, its styles, its search_path, nor its isolation level.
select no_plan();
select leasehold.reap();

-- time zones: each session's lease means the same to all
set time zone 'UTC';
select leasehold.acquire('tz', 'utc', '1 hour', lease_key => t.key(1));
set time zone 'America/New_York';
select leasehold.acquire('tz', 'new_york', '1 hour', lease_key => t.key(2));
set time zone 'Asia/Tokyo';
select leasehold.acquire('tz', 'tokyo', '1 hour', lease_key => t.key(3));
select t.is_near(deadline, clock_timestamp() + interval '1 hour', 'granted in ' || key || ', read in Tokyo: an hour from now') from leasehold.scope where namespace = 'tz';
set time zone 'America/New_York';
select t.is_near(deadline, clock_timestamp() + interval '1 hour', 'granted in ' || key || ', read in New York: an hour from now') from leasehold.scope where namespace = 'tz';
select t.is_near(leasehold.heartbeat('tz', 'tokyo', t.key(3)), clock_timestamp() + interval '1 hour', 'a heartbeat from New York for Tokyo''s lease');
select is(t.rows_of('select * from leasehold.reap()'), 0, 'a reaper in New York reaps none of them');
set time zone 'Asia/Tokyo';
select is(t.rows_of('select * from leasehold.reap()'), 0, 'nor one in Tokyo');
select is(t.rows_of($$select * from leasehold.acquire('tz', 'new_york', '1 hour')$$), 0, 'an acquirer in Tokyo takes over none');
select t.age('tz', 'utc', '61 min');
select is(t.rows_of('select * from leasehold.reap()'), 1, 'what expired is reaped from Tokyo');
set time zone 'America/New_York';
select leasehold.join_queue('tz', 'new_york', t.key(4), ttl => '10 s');
set time zone 'Asia/Tokyo';
select t.is_near((select enqueued_at from leasehold.waiter where key = 'new_york'), clock_timestamp(), 'a waiter from New York, seen from Tokyo');
-- a day is 24 hours on the day the clocks change, too
select is((select duration::text from leasehold.acquire('tz', 'day', '1 day')), '24:00:00', 'one day is 24 hours for the lease, so that no calendar can stretch it');
select is((select extract(epoch from deadline - acquired_at)::bigint from leasehold.scope where key = 'day'), 86400::bigint, 'to the second');
reset time zone;

-- styles
set intervalstyle = 'sql_standard';
set datestyle = 'SQL, DMY';
select is(t.error_of($$select leasehold.set_policy('style', grace => '1500 ms', max_duration => '2 days 3 hours')$$), '', 'a policy is set under other styles');
select is((select extract(epoch from grace)::numeric from leasehold.acquire('style', 'a', '-0:00:30'::interval * -1)), 1.5, 'and read');
select is((select grace_us from leasehold_internal.policy_get('style') limit 1), 1500000::bigint, 'and listed');
select is(t.rows_of($$select * from leasehold.explain('style', 'a')$$), 1, 'and explained');
reset intervalstyle;
reset datestyle;

-- a hostile search_path
create schema evil;
create function evil.clock_timestamp() returns timestamptz language sql as $$ select timestamptz '1970-01-01' $$;
create function evil.nextval(regclass) returns bigint language sql as $$ select 1::bigint $$;
create function evil.gen_random_uuid() returns uuid language sql as $$ select '00000000-0000-0000-0000-000000000000'::uuid $$;
create table evil.scope (namespace text, key text);
set search_path = evil, pg_catalog, public;
select leasehold.acquire('path', 'a', '30 s', lease_key => t.key(5));
reset search_path;
select t.is_near((select deadline from leasehold.scope where namespace = 'path'), clock_timestamp() + interval '30 s', 'a hostile search_path changes nothing');
select cmp_ok((select token from leasehold.scope where namespace = 'path'), '>', (select max(token) from leasehold.scope where namespace = 'style'), 'not the tokens either');

-- isolation levels: the API answers the same in each
create function pg_temp.tour(p_key text, p_token bigint) returns text language plpgsql as $$
declare
  v_lease record;
  v_said text := '';
begin
  select * into v_lease from leasehold.acquire('iso', p_key, '30 s', lease_key => t.key(7));
  v_said := v_said || (v_lease.token > p_token) || ' ';
  v_said := v_said || (select count(*) from leasehold.acquire('iso', p_key, '30 s')) || ' ';
  v_said := v_said || (leasehold.heartbeat('iso', p_key, t.key(7)) is not null) || ' ';
  perform leasehold.guard('iso', p_key, v_lease.token);
  perform leasehold.join_queue('iso', p_key, t.key(8));
  v_said := v_said || (select waiters from leasehold.explain('iso', p_key)) || ' ';
  v_said := v_said || leasehold.release_ok('iso', p_key, t.key(7), '1') || ' ';
  v_said := v_said || (select count(*) from leasehold.acquire('iso', p_key, '30 s')) || ' ';
  v_said := v_said || (select count(*) from leasehold.acquire('iso', p_key, '30 s', lease_key => t.key(8))) || ' ';
  v_said := v_said || leasehold.release_fail('iso', p_key, t.key(8), 'no') || ' ';
  v_said := v_said || (select count(*) from leasehold.reap());
  return v_said;
end $$;
begin isolation level read committed;
select is(pg_temp.tour('rc', 0), 'true 0 true 1 true 0 1 true 0', 'the whole tour in READ COMMITTED');
commit;
begin isolation level repeatable read;
select is(pg_temp.tour('rr', 0), 'true 0 true 1 true 0 1 true 0', 'the whole tour in REPEATABLE READ');
commit;
begin isolation level serializable;
select is(pg_temp.tour('ser', 0), 'true 0 true 1 true 0 1 true 0', 'the whole tour in SERIALIZABLE');
commit;
select is((select count(*) from leasehold.scope where namespace = 'iso' and state = 'free' and last_outcome = 'failed'), 3::bigint, 'and it is written');
select * from finish();
