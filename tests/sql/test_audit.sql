-- The audit: who did what, and how long that is known. Rules and tokens: test_access.sql.
select no_plan();
select leasehold.reap();
create role audit_daemon login in role leasehold_coordinator;
create role audit_admin login in role leasehold_admin;
create role audit_reader login in role leasehold_reader;
create role audit_hooks login in role leasehold_owner;
create function t.nothing(e leasehold.lease_event) returns void language sql set search_path = pg_catalog as '';
create function t.veto(e leasehold.lease_event) returns void language plpgsql set search_path = pg_catalog as $$ begin raise exception 'not now'; end $$;
create function pg_temp.of(p_namespace text) returns text[] language sql volatile as $$
  select array_agg(concat_ws(' ', a.action, a.outcome, a.principal, a.peer, a.key, a.token - (select min(s.token) - 1 from leasehold.history s), a.count) || coalesce(': ' || a.reason, '') order by a.at, a.reason)
    from leasehold.audit a where a.namespace = p_namespace $$;

-- each action of an administrator in SQL
select leasehold.set_policy('h', history => true);
select leasehold.acquire('h', 'k', '30 s', lease_key => t.key(1)), leasehold.acquire('h', 'k2', '30 s', lease_key => t.key(2)),
       leasehold.acquire('v', 'k', '30 s', lease_key => t.key(3));
set session authorization audit_admin;
select leasehold.force_release('h', 'k', 'its host is gone');
select leasehold.force_release('h', 'nobody', 'its host is gone');
select leasehold.set_policy('p', grace => '2 s', frozen => true);
select leasehold.reset_policy('p', 'grace');
reset session authorization;
select is(pg_temp.of('h'), array['policy_set done role:' || session_user || ' 1: history = true', 'force_release done role:audit_admin k 1 1: its host is gone'],
          'a force-release is in it, with the token; one that found nothing is not');
select is(pg_temp.of('p'), array['policy_set done role:audit_admin 1: frozen = true, grace = 2 secs', 'policy_reset done role:audit_admin 1: grace = inherited'], 'and changes of policies');
select is(t.error_of($$select leasehold.set_policy('q', grace => '-1 s')$$), 'LH002 invalid_argument grace', 'what is refused for its arguments');
select is(pg_temp.of('q'), null, 'is not in it');
set session authorization audit_hooks;
select leasehold.add_hook('h.x', 'reap', 't.nothing(leasehold.lease_event)'), leasehold.add_hook('v', 'reap', 't.veto(leasehold.lease_event)');
select leasehold.add_hook('h.x', 'reap', 't.nothing(leasehold.lease_event)');
select leasehold.remove_hook('h.x', 'reap', 't.nothing(leasehold.lease_event)');
select leasehold.remove_hook('h.x', 'reap', 't.nothing(leasehold.lease_event)');
reset session authorization;
select is(pg_temp.of('h.x'), array['hook_add done role:audit_hooks 1: reap: t.nothing(leasehold.lease_event)', 'hook_remove done role:audit_hooks 1: reap: t.nothing(leasehold.lease_event)'],
          'and of hooks, where there was a change');

-- reaps by name, with how many; others are everyday
select leasehold.acquire('r' || n % 2, 'k' || n, '1 s') from generate_series(1, 5) n;
select t.age('r' || n % 2, 'k' || n, '1 hour') from generate_series(1, 3) n;
select is(t.rows_of($$select leasehold.reap(array['r0', 'r1'])$$), 3, 'three are reaped by name');
select is(pg_temp.of('r0') || pg_temp.of('r1'), array['reap done role:' || session_user || ' 1', 'reap done role:' || session_user || ' 2'], 'a reap by name is in it');
select leasehold.reap(array['r0', 'r1']);
select t.age('r' || n % 2, 'k' || n, '1 hour') from generate_series(4, 5) n;
select is(t.rows_of($$select leasehold.reap()$$), 2, 'two by their time');
select is((select count(*) from leasehold.audit where action = 'reap'), 2::bigint, 'no other is');

-- one for somebody who named no namespace, and may reap in some
select leasehold.set_policy('r3', reaper => 'external');
select leasehold.acquire('r' || n, 'k', '1 s') from generate_series(2, 3) n;
select t.age('r' || n, 'k', '1 hour') from generate_series(2, 3) n;
select results_eq($$select kind, namespace, principal from leasehold_internal.reap_batch(null, null, array['r2', 'r3'], true, 10, false, p_by_name => false)$$,
                  $$values ('reaped', 'r2', 'role:' || session_user::text collate "default")$$, 'it leaves what only an external reaper ends');
select is(pg_temp.of('r2'), null, 'and is not in it either');
select results_eq($$select key, principal, outcome from leasehold.reap(array['r3'])$$, $$values ('k', 'role:' || session_user::text collate "default", 'reaped')$$,
                  'by name it is reaped; its holder''s principal is shown');

-- a daemon's caller
select leasehold.acquire('d', 'k' || n, '30 s') from generate_series(1, 4) n;
set session authorization audit_daemon;
select leasehold_internal.force_release_one('d', 'k1', 'why', 0, '192.0.2.7', 'token:boss');
select leasehold_internal.force_release_one('d', 'k2', 'why', 0, '192.0.2.7', 'anonymous');
select leasehold_internal.force_release_one('d', 'k3', 'why', 0, 'user:root');
select leasehold_internal.force_release_one('v', 'k', 'why', 0, null, 'token:boss');
select leasehold_internal.policy_update('d', array['grace'], array['1000000'], 'token:boss', '192.0.2.7');
select leasehold_internal.policy_update('d', array['grace'], array[null], 'token:boss', '192.0.2.7');
reset session authorization;
select t.age('d', 'k4', '1 hour');
set session authorization audit_daemon;
select leasehold_internal.reap_batch('11111111-1111-4111-8111-111111111111', null, array['d'], false, 10, false, 'token:boss', '192.0.2.7');
reset session authorization;
select is((select array_agg(concat_ws(' ', action, principal, peer, outcome, key) order by at) from leasehold.audit where namespace = 'd'),
          array['force_release token:boss 192.0.2.7 done k1', 'force_release anonymous 192.0.2.7 done k2', 'force_release user:root user:root done k3',
                'policy_set token:boss 192.0.2.7 done', 'policy_reset token:boss 192.0.2.7 done', 'reap token:boss 192.0.2.7 done'], 'is who did it');
select is((select array_agg(concat_ws(' ', action, principal, outcome, key) order by at) from leasehold.audit where namespace = 'v' and action = 'force_release'),
          array['force_release token:boss refused k'], 'what a hook has vetoed is refused');
set session authorization audit_admin;
select leasehold_internal.policy_update('f', array['grace'], array['1000000'], 'token:boss', '192.0.2.7');
select leasehold_internal.force_release_one('h', 'k2', 'why', 0, '192.0.2.7', 'token:boss');
reset session authorization;
select is((select principal || coalesce(peer, '') from leasehold.audit where namespace = 'f'), 'role:audit_admin', 'nobody but a daemon names another');
select is((select principal from leasehold.audit where namespace = 'h' and key = 'k2'), 'role:audit_admin', 'nobody but a daemon names another');
select is((select ended_by from leasehold.history where key = 'k2'), 'audit_admin', 'in the history neither');

-- whoever reads it may change nothing, an administrator neither
set session authorization audit_reader;
select count(*) > 10 as is_read from leasehold.audit \gset
reset session authorization;
select is(:'is_read'::boolean, true, 'a reader reads it');
select is(t.denied('audit_admin', sql), true, sql)
  from unnest(array['delete from leasehold.audit', 'update leasehold.audit set principal = ''x''', 'truncate leasehold.audit', 'insert into leasehold.audit_default select * from leasehold.audit',
                    'update leasehold.keeping set retention = ''0''', 'select leasehold.set_audit_retention(''1 day'')']) sql;

-- its days, and how long they are kept
create function pg_temp.day(p_ago integer) returns date language sql as $$ select (clock_timestamp() at time zone 'UTC')::date - p_ago $$;
create function pg_temp.keep() returns text language plpgsql as $$
begin
  update leasehold.keeping set look_at = clock_timestamp();
  perform leasehold_internal.keep_days(clock_timestamp(), true);
  return (select string_agg(d::text, ' ') from leasehold_internal.kept_days('audit') d where d < pg_temp.day(0));
end $$;
delete from leasehold.audit;
select pg_temp.keep();
select is((select array_agg(d) from leasehold_internal.kept_days('audit') d), array(select pg_temp.day(-n) from generate_series(0, 3) n), 'today and the next three days have a partition');
select leasehold.set_policy('today', grace => '1 s');
select is((select tableoid::regclass::text from leasehold.audit), 'leasehold.' || leasehold_internal.day_partition('audit', pg_temp.day(0)), 'what happens goes there');
select leasehold_internal.make_days('audit', clock_timestamp() - n * interval '1 day') from unnest(array[402, 397]) n;
insert into leasehold.audit (at, principal, action, namespace, outcome, count)
select clock_timestamp() - n * interval '1 day', 'token:a', 'denied', 'n' || n, 'refused', 1 from unnest(array[600, 402, 401, 398, 20]) n;
select is((select retention from leasehold.keeping where name = 'audit'), interval '400 days', 'it is kept for 400 days');
do $$ begin for i in 1 .. 5 loop perform pg_temp.keep(); end loop; end $$;
select is((select array_agg(namespace order by at) from leasehold.audit), array['n398', 'n20', 'today'], 'older ones go, in the default partition too');
select is(split_part(pg_temp.keep(), ' ', 1), pg_temp.day(400)::text, 'with their partitions');
set session authorization audit_hooks;
select leasehold.set_audit_retention('10 days');
reset session authorization;
do $$ begin for i in 1 .. 9 loop perform pg_temp.keep(); end loop; end $$;
select is((select array_agg(namespace order by at) from leasehold.audit), array['today', ''], 'its owner may keep it for a shorter time');
select is((select principal || ' ' || reason from leasehold.audit where namespace = ''), 'role:audit_hooks audit_retention = 10 days', 'which is in it');
select is(t.error_of($$select leasehold.set_audit_retention('-1 s')$$), 'LH002 invalid_argument retention', 'not for less than nothing');
select is((select count(*) from leasehold.history where key = 'k2'), 1::bigint, 'the history has its own time');
select * from finish();
