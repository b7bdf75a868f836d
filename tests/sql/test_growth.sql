-- What a statement costs as the tables grow: rows read are counted, no time is taken. And the rules of many namespaces at once are those of each.
select no_plan();
select leasehold.reap();

create function pg_temp.reads(variadic p_tables text[]) returns bigint language sql as $$
  select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint
    from pg_stat_xact_user_tables
   where schemaname = 'leasehold' and relname = any (p_tables)
$$;

-- How many rows of scopes, holders and waiters one call of a function reads, on average of the calls for keys from p_from to p_to.
create function pg_temp.read_by(p_call text, p_from integer, p_to integer) returns numeric language plpgsql as $$
declare
  v_before constant bigint := pg_temp.reads('scope', 'share', 'waiter', 'creator');
begin
  execute format('select count(*) from (select * from key where i between %s and %s) k, lateral %s x', p_from, p_to, p_call);
  return round((pg_temp.reads('scope', 'share', 'waiter', 'creator') - v_before)::numeric / (p_to - p_from + 1), 1);
end
$$;
create function pg_temp.grows_not(p_name text, p_call text) returns text language plpgsql as $$
declare
  v_few constant numeric := pg_temp.read_by(p_call, 1, 30);
  v_many constant numeric := pg_temp.read_by(p_call, 31, 150);
begin
  return ok(v_many <= v_few + 1 and v_few > 0, format('%s: the 150th call in a statement reads what the first does', p_name))
      || case when v_many <= v_few + 1 then '' else format(E'\n# %s rows each, then %s', v_few, v_many) end;
end
$$;
create temp table key as select i, 'k' || i as key, gen_random_uuid() as a, gen_random_uuid() as b from generate_series(1, 150) i;
analyze key;

-- Plans are made while the tables are empty, and the planner knows that they are.
vacuum leasehold.scope, leasehold.share, leasehold.waiter;
begin;
select leasehold.heartbeat('n', 'x', gen_random_uuid()), leasehold.release_ok('n', 'x', gen_random_uuid()),
       leasehold.release_fail('n', 'x', gen_random_uuid(), 'x'), leasehold.leave_queue('n', 'x', gen_random_uuid());
select pg_temp.grows_not('acquire', $$leasehold.acquire('n', key, '1 h', lease_key => a)$$);
select pg_temp.grows_not('renew', $$leasehold.acquire('n', key, '1 h', lease_key => a)$$);
select pg_temp.grows_not('held', $$leasehold.acquire('n', key, '1 h')$$);
select pg_temp.grows_not('heartbeat', $$leasehold.heartbeat('n', key, a)$$);
select pg_temp.grows_not('join_queue', $$leasehold.join_queue('n', key, b)$$);
select pg_temp.grows_not('leave_queue', $$leasehold.leave_queue('n', key, b)$$);
select pg_temp.grows_not('release_ok', $$leasehold.release_ok('n', key, a)$$);
select pg_temp.grows_not('acquire what is free', $$leasehold.acquire('n', key, '1 h', lease_key => b)$$);
select pg_temp.grows_not('downgrade', $$leasehold.downgrade('n', key, b)$$);
select pg_temp.grows_not('release_fail', $$leasehold.release_fail('n', key, b, 'x')$$);
select pg_temp.grows_not('acquire shared', $$leasehold.acquire('s', key, '1 h', lease_key => a, mode => 'shared')$$);
select pg_temp.grows_not('heartbeat of shared', $$leasehold.heartbeat('s', key, a)$$);
select pg_temp.grows_not('release of shared', $$leasehold.release_ok('s', key, a)$$);
rollback;

-- The views read the policies once, not once for each lease.
create function pg_temp.policies_read_by(p_sql text) returns bigint language plpgsql as $$
declare
  v_before constant bigint := pg_temp.reads('policy');
begin
  execute p_sql;
  return pg_temp.reads('policy') - v_before;
end
$$;
create function pg_temp.hold(p_from integer, p_to integer) returns void language sql as $$
  insert into leasehold.scope (namespace, key, state, lease_key, token, acquired_at, heartbeat_at, deadline, duration, grace, incarnation, check_at)
  select 'v.n' || i % 7, 'k' || i, 'held', gen_random_uuid(), i, now(), now(), now() + interval '1 h', '1 h', '1 s',
         (select max(id) from leasehold.incarnation), now() + interval '1 h'
    from generate_series(p_from, p_to) i
$$;
select leasehold.set_policy('v.n3', grace => '3 s');
begin;
select pg_temp.hold(1, 100);
select pg_temp.policies_read_by('select count(expires_at), count(liveness) from leasehold.lease') as lease,
       pg_temp.policies_read_by('select count(expired) from leasehold.lease_summary') as summary \gset few_
select pg_temp.hold(101, 400);
select is(pg_temp.policies_read_by('select count(expires_at), count(liveness) from leasehold.lease'), :few_lease::bigint,
          'leasehold.lease reads as many policies for 400 leases as for 100');
select is(pg_temp.policies_read_by('select count(expired) from leasehold.lease_summary'), :few_summary::bigint, 'lease_summary too');
rollback;

-- Who acquires, renews or ends a lease reads the policies of its own namespace, however many others there are.
insert into leasehold.policy (namespace, grace) select 'v' || i || '.x', interval '1 s' from generate_series(1, 3000) i;
vacuum analyze leasehold.policy;
select leasehold_internal.coordinator_register(t.key(900), 'host', 1, '0.1.0');
create function pg_temp.ask(p_key text, p_lease integer, p_wait_us bigint default null) returns text language sql as $$
  select outcome from leasehold_internal.acquire_batch(t.key(900), null, array['q'], array[p_key], array[t.key(p_lease)], array['w'], array['{}'],
                                                       array[3600000000], array[true], array[p_wait_us], array[0::bigint])
$$;
select cmp_ok(pg_temp.policies_read_by('select ' || c.call), '<', 30::bigint, c.name || ' reads few of 3,000 policies')
  from (values ('acquire', $$leasehold.acquire('q', 'p', '1 h', lease_key => t.key(1))$$),
               ('heartbeat', $$leasehold.heartbeat('q', 'p', t.key(1))$$),
               ('guard', $$leasehold.guard('q', 'p', (select s.token from leasehold.scope s where s.namespace = 'q' and s.key = 'p'))$$),
               ('join_queue', $$leasehold.join_queue('q', 'p', t.key(2))$$),
               ('downgrade', $$leasehold.downgrade('q', 'p', t.key(1))$$),
               ('release_ok', $$leasehold.release_ok('q', 'p', t.key(1))$$),
               ('acquire_all', $$leasehold.acquire_all('{q,q}', '{p1,p2}', '1 h')$$),
               ('a daemon''s acquire', $$pg_temp.ask('d', 11)$$),
               ('a daemon''s acquire of what is held', $$pg_temp.ask('d', 12, 60000000)$$),
               ('a daemon''s renewal', $$leasehold_internal.heartbeat_batch(array['q'], array['d'], array[t.key(11)])$$),
               ('a daemon''s release', $$leasehold_internal.release_batch(t.key(900), array['q'], array['d'], array[t.key(11)], array[false], array['{}'])$$)) c (name, call);
delete from leasehold.policy p where p.namespace like 'v%.x';

-- The rules by range are the rules of each namespace, whatever its characters, and its neighbours'.
create temp table name as
  select distinct array_to_string(array(select (array['a', 'b', 'a-', 'a/', 'a!', 'b0', 'é'])[1 + (random() * 6)::integer]
                                          from generate_series(1, 1 + (random() * 2 + 0 * i)::integer)), '.') as name
    from generate_series(1, 400) i;
insert into leasehold.policy (namespace, grace) select n.name, interval '1 ms' * row_number() over () from name n where random() < 0.4;
insert into leasehold.policy (namespace, max_leases) select n.name, 7 from name n where random() < 0.2 on conflict do nothing;
select is((select count(*) from name n, leasehold_internal.rules_by_range() g
            where (leasehold_internal.rules_at(g.rules, g.starts, n.name)).grace is distinct from (leasehold_internal.policy_of(n.name)).grace
               or (leasehold_internal.rules_at(g.rules, g.starts, n.name)).quota_prefix is distinct from (leasehold_internal.policy_of(n.name)).quota_prefix
               or (leasehold_internal.rules_at(g.rules, g.starts, n.name)).max_leases is distinct from (leasehold_internal.policy_of(n.name)).max_leases),
          0::bigint, 'the rules by range are those of each namespace');
select ok((select count(*) > 20 from leasehold.policy where namespace <> ''), 'of which there are many');

-- Signs of life leave versions of a daemon's row, which an open snapshot keeps: whoever grants or waits reads past none of them.
create function pg_temp.blocks_of(p_sql text) returns bigint language plpgsql as $$
declare
  v_plan json;
begin
  -- The first call plans.
  execute p_sql;
  execute 'explain (analyze, buffers, format json) ' || p_sql into v_plan;
  return (v_plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::bigint + (v_plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::bigint;
end
$$;
begin;
set local enable_seqscan = off;
set local enable_bitmapscan = off;
select leasehold_internal.coordinator_register(t.key(900), 'host', 1, '0.1.0');
do $$
begin
  for v_tick in 1 .. 1500 loop
    update leasehold.coordinator c set seen_at = clock_timestamp() where c.id = t.key(900);
  end loop;
end $$;
select cmp_ok(pg_temp.blocks_of(q.sql), '<', 30::bigint, q.name || ' reads past the versions of a daemon''s row')
  from (values ('the life of the database', 'select * from leasehold_internal.life_facts()'),
               ('who is live', 'select leasehold_internal.live_coordinators(clock_timestamp())')) q (name, sql);
select cmp_ok(pg_temp.blocks_of('select count(*) from leasehold_internal.coordinator_tick(t.key(900), clock_timestamp())'), '<', 2500::bigint,
              'a tick reads each of its 1,500 versions once');
commit;

-- Events are taken, and thrown away, one by one: none is looked for among the others.
create function pg_temp.entries_of(p_sql text) returns bigint language plpgsql as $$
declare
  v_before constant bigint := pg_temp.reads('event');
begin
  execute p_sql;
  return pg_temp.reads('event') - v_before;
end
$$;
begin;
select leasehold_internal.coordinator_register(t.key(910), 'host', 1, '0.1.0'), leasehold_internal.watch_add(t.key(910), '', true);
insert into leasehold.event (coordinator, number, type, at, namespace, key, token)
select t.key(910), n, 'acquired', now(), 'p', 'k', n from generate_series(1, 20000) n;
select cmp_ok(pg_temp.entries_of('select leasehold_internal.take_events(t.key(910), 10)'), '<', 200::bigint, 'ten events are taken from 20,000 without reading all');
commit;
begin;
insert into leasehold.event (coordinator, number, type, at) values (t.key(910), 20001, 'lagged', now());
select cmp_ok(pg_temp.entries_of('select leasehold_internal.take_events(t.key(910), 10)'), '<', 20100::bigint, 'and thrown away by reading each once');
select is((select count(*) from leasehold.event), 0::bigint, 'all of them');
commit;
-- PostgreSQL plans the body of a function in SQL anew in each statement that calls it, but where the body becomes a part of the statement.
-- That took a third of an acquire. So the usual calls use functions in SQL only where these disappear; those are not counted.
set track_functions = 'all';
create function pg_temp.calls_in_sql() returns table (name text, calls bigint) language sql as $$
  select p.proname::text, sum(f.calls)::bigint
    from pg_stat_xact_user_functions f
    join pg_proc p on p.oid = f.funcid
    join pg_language l on l.oid = p.prolang
   where f.schemaname in ('leasehold', 'leasehold_internal') and l.lanname = 'sql'
   group by p.proname
$$;
-- All is done seven times before, for planning computes what is constant, and after five times a plan may stay.
create function pg_temp.plans_none(p_name text, variadic p_calls text[]) returns text language plpgsql as $$
declare
  v_before jsonb;
begin
  for v_round in 1..8 loop
    v_before := (select jsonb_object_agg(c.name, c.calls) from pg_temp.calls_in_sql() c);
    for v_nth in 1 .. cardinality(p_calls) loop
      execute 'select count(x) from (select ' || replace(p_calls[v_nth], '$1', 'round' || v_round) || ') x';
    end loop;
  end loop;
  return is((select string_agg(c.name, ', ' order by c.name)
               from pg_temp.calls_in_sql() c
              where c.calls > coalesce((v_before ->> c.name)::bigint, 0)), null, p_name);
end
$$;
select pg_temp.plans_none('a SQL user''s calls plan no function in SQL',
  $$leasehold.acquire('q', '$1', '1 h', lease_key => t.key(1), labels => '{"a": "b"}')$$,
  $$leasehold.acquire('q', '$1', '1 h', lease_key => t.key(1))$$,
  $$leasehold.acquire('q', '$1', '1 h', lease_key => t.key(2))$$,
  $$leasehold.heartbeat('q', '$1', t.key(1))$$,
  $$leasehold.guard('q', '$1', (select s.token from leasehold.scope s where s.namespace = 'q' and s.key = '$1'))$$,
  $$leasehold.join_queue('q', '$1', t.key(2))$$, $$leasehold.leave_queue('q', '$1', t.key(2))$$, $$leasehold.join_queue('q', '$1', t.key(3))$$,
  $$leasehold.release_ok('q', '$1', t.key(1), '{}')$$,
  $$leasehold.acquire('q', '$1', '1 h', lease_key => t.key(3))$$, $$leasehold.release_fail('q', '$1', t.key(3), 'x')$$);
select pg_temp.plans_none('nor those for shared leases',
  $$leasehold.acquire('s', '$1', '1 h', lease_key => t.key(1), mode => 'shared', units => 2)$$, $$leasehold.heartbeat('s', '$1', t.key(1))$$,
  $$leasehold.downgrade('s', '$1', t.key(1), 1)$$, $$leasehold.release_ok('s', '$1', t.key(1))$$,
  $$leasehold.acquire('s', '$1d', '1 h', lease_key => t.key(1))$$, $$leasehold.downgrade('s', '$1d', t.key(1))$$, $$leasehold.release_ok('s', '$1d', t.key(1))$$);
select pg_temp.plans_none('nor acquire_all and reap',
  $$leasehold.acquire_all('{q,q}', '{$1a,$1b}', '1 h', lease_key => t.key(1))$$, $$leasehold.reap()$$);
select pg_temp.plans_none('nor a daemon''s',
  $$pg_temp.ask('$1', 11)$$, $$pg_temp.ask('$1', 12, 60000000)$$, $$pg_temp.ask('$1', 13, 60000000)$$,
  $$leasehold_internal.heartbeat_batch(array['q'], array['$1'], array[t.key(11)])$$,
  $$leasehold_internal.leave_batch(t.key(900), array['q'], array['$1'], array[t.key(13)], array[false])$$,
  $$leasehold_internal.release_batch(t.key(900), array['q'], array['$1'], array[t.key(11)], array[false], array['{}'])$$,
  $$pg_temp.ask('$1', 12, 60000000)$$,
  $$leasehold_internal.reap_batch(t.key(900), clock_timestamp(), null, null, 1000, true)$$);
select pg_temp.plans_none('nor who reads the views',
  $$to_jsonb(l) from leasehold.lease l$$, $$to_jsonb(l) from leasehold.queue l$$, $$to_jsonb(l) from leasehold.lease_summary l$$);

-- Leases that were acquired together are renewed together, in one transaction: each page has room for the next version of all of its rows.
create function pg_temp.renews_in_place(p_table text, p_namespace text, p_units integer) returns text language plpgsql as $$
declare
  v_keys constant text[] := array(select 'k' || i from generate_series(1, 500) i);
  v_names constant text[] := array_fill(p_namespace, array[500]);
  v_leases constant uuid[] := array(select gen_random_uuid() from generate_series(1, 500));
  v_granted integer;
  v_renewed integer;
  v_before bigint[];
  v_after bigint[];
begin
  select count(*) into v_granted
    from leasehold_internal.acquire_batch(t.key(900), null, v_names, v_keys, v_leases, array_fill('w'::text, array[500]),
           array_fill('{}'::text, array[500]), array_fill(3600000000, array[500]), array_fill(false, array[500]),
           array_fill(null::bigint, array[500]), array_fill(0::bigint, array[500]), p_units => array_fill(p_units, array[500]))
   where outcome = 'granted';
  select array[n_tup_upd, n_tup_hot_upd] into v_before from pg_stat_xact_user_tables where relid = p_table::regclass;
  select count(*) into v_renewed from leasehold_internal.heartbeat_batch(v_names, v_keys, v_leases) where outcome = 'ok';
  select array[n_tup_upd, n_tup_hot_upd] into v_after from pg_stat_xact_user_tables where relid = p_table::regclass;
  return is(array[v_granted, v_renewed, v_after[1] - v_before[1], v_after[2] - v_before[2]], array[500, 500, 500, 500]::bigint[],
            'granted, renewed, updates, HOT ones of ' || p_table);
end
$$;
begin;
select pg_temp.renews_in_place('leasehold.scope', 'together', null);
commit;
begin;
select pg_temp.renews_in_place('leasehold.share', 'shared', 1);
commit;
select * from finish();
