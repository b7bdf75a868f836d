-- Promise 4.
-- The four roles: who may call what, who sees what, and that nobody writes tables.
select no_plan();
select leasehold.reap();
create role plain login;
create role a_client login in role leasehold_client;
create role a_reader login in role leasehold_reader;
create role a_daemon login in role leasehold_coordinator;
create role an_admin login in role leasehold_admin;
grant select on all tables in schema pg_temp to public;
select leasehold.acquire('p', 'a', '30 s', owner => 'w', lease_key => t.key(1));
select leasehold.acquire('p', 'd', '1 hour', lease_key => t.key(8));
select leasehold.join_queue('p', 'a', t.key(2));

create temp table client_call (sql text);
insert into client_call values
  ($$select leasehold.acquire('p', 'b', '30 s')$$), ($$select leasehold.heartbeat('p', 'a', t.key(1))$$), ($$select leasehold.release_ok('p', 'z', t.key(1))$$),
  ($$select leasehold.release_fail('p', 'z', t.key(1), 'no')$$), ($$select leasehold.join_queue('p', 'a', t.key(3))$$), ($$select leasehold.leave_queue('p', 'a', t.key(3))$$),
  ($$select leasehold.downgrade('p', 'd', t.key(8))$$), ($$select leasehold.acquire('p', 'shared', '30 s', mode => 'shared')$$),
  ($$select leasehold.acquire_all('{p,p}', '{b1,b2}', '30 s')$$), ($$select leasehold.explain('p', 'a')$$), ($$select leasehold.end_reason('p', 'a', t.key(1))$$);
create temp table admin_call (sql text);
insert into admin_call values
  ($$select leasehold.reap()$$), ($$select leasehold.force_release('p', 'zz', 'why')$$), ($$select leasehold.set_policy('p', grace => '1 s')$$),
  ($$select leasehold.reset_policy('p')$$), ($$select leasehold.bump_epoch()$$),
  ($$select leasehold.access_grant('role:a', 'z', 'read')$$), ($$select leasehold.access_revoke('role:a', 'z')$$),
  ($$select leasehold.token_create('ci')$$), ($$select leasehold.token_revoke('ci')$$);
create temp table daemon_call (sql text);
insert into daemon_call values
  ($$select leasehold_internal.coordinator_register('11111111-1111-4111-8111-111111111111', 'h', 1, '0.1.0')$$), ($$select leasehold_internal.coordinator_tick('11111111-1111-4111-8111-111111111111', null)$$),
  ($$select leasehold_internal.acquire_items('11111111-1111-4111-8111-111111111111', null, array['p'], array['c'], array[t.key(9)], array['o'], array['{}'], array[30000000::bigint], array[true], array[null::bigint], array[0::bigint])$$),
  ($$select leasehold_internal.acquire_batch('11111111-1111-4111-8111-111111111111', null, array['p'], array['c'], array[t.key(9)], array['o'], array['{}'], array[30000000::bigint], array[true], array[null::bigint], array[0::bigint])$$),
  ($$select leasehold_internal.acquire_all_one('11111111-1111-4111-8111-111111111111', null, array['p', 'p'], array['c1', 'c2'], t.key(10), 'o', '{}', 30000000, true, null, 0)$$),
  ($$select leasehold_internal.heartbeat_batch(array['p'], array['c'], array[t.key(9)])$$),
  ($$select leasehold_internal.leave_batch('11111111-1111-4111-8111-111111111111', array['p'], array['c'], array[t.key(9)], array[false])$$),
  ($$select leasehold_internal.release_batch('11111111-1111-4111-8111-111111111111', array['p'], array['c'], array[t.key(9)], array[false], array[null::text])$$),
  ($$select leasehold_internal.pass_on('11111111-1111-4111-8111-111111111111', 'p', 'c')$$), ($$select leasehold_internal.reap_batch('11111111-1111-4111-8111-111111111111', null, null, true, 10, true)$$),
  ($$select leasehold_internal.get_scope('p', 'a')$$), ($$select leasehold_internal.get_holders('p', 'a', 10)$$),
  ($$select leasehold_internal.downgrade_one('11111111-1111-4111-8111-111111111111', null, 'p', 'a', t.key(9), 1, null)$$), ($$select leasehold_internal.list_leases('', true, 10, null, null, null)$$), ($$select leasehold_internal.force_release_one('p', 'zz', 'why', 0)$$),
  ($$select leasehold_internal.policy_get('p')$$), ($$select leasehold_internal.policy_list(10, null)$$), ($$select leasehold_internal.policy_update('p', array['grace'], array['1000000'])$$),
  ($$select leasehold_internal.watch_add('11111111-1111-4111-8111-111111111111', 'p', true)$$), ($$select leasehold_internal.watch_barrier('11111111-1111-4111-8111-111111111111')$$),
  ($$select leasehold_internal.watch_settled('1')$$), ($$select leasehold_internal.take_events('11111111-1111-4111-8111-111111111111', 10)$$),
  ($$select leasehold_internal.watch_remove('11111111-1111-4111-8111-111111111111', 'p', true)$$), ($$select leasehold_internal.watch_clear('11111111-1111-4111-8111-111111111111')$$),
  ($$select leasehold_internal.end_long_guards('1 min')$$),
  ($$select leasehold_internal.access_list(10, null, null)$$), ($$select leasehold_internal.token_list(10, null, null)$$),
  ($$select leasehold_internal.access_rules()$$), ($$select leasehold_internal.access_tokens()$$), ($$select leasehold_internal.token_used('{}')$$),
  ($$select leasehold_internal.audit_write('token:ci', null, 'denied', 'p', null, null, 'lease', 'refused', 1)$$),
  ($$select leasehold_internal.access_grant_by('user:root', null, 'token:ci', 'p', array['read'])$$),
  ($$select leasehold_internal.access_revoke_by('user:root', null, 'token:ci', 'p', '{}')$$),
  ($$select leasehold_internal.token_create_by('user:root', null, 'ci', null)$$), ($$select leasehold_internal.token_revoke_by('user:root', null, 'ci')$$),
  ($$select leasehold_internal.coordinator_unregister('11111111-1111-4111-8111-111111111111')$$);
create temp table reader_view (name text);
insert into reader_view values ('lease'), ('queue'), ('effective_policy'), ('lease_summary'), ('history'), ('reap_failure'), ('hook'), ('coordinator'), ('policy'), ('watch'), ('audit'), ('keeping');

select is(t.denied('a_client', sql), false, 'a client may: ' || sql) from client_call;
select token from leasehold.acquire('p', 'mine', '30 s') \gset
select is(t.denied('a_client', format('select leasehold.guard(%L, %L, %s)', 'p', 'mine', :token)), false, 'a client may guard');
select is(t.denied('plain', sql), true, 'a stranger may not: ' || sql) from client_call;
select is(t.denied('plain', $$select leasehold.guard('p', 'a', 1)$$), true, 'a stranger may not guard');
select is(t.denied('a_client', sql), true, 'a client may not: ' || sql) from admin_call union all select is(t.denied('a_client', sql), true, 'a client may not: ' || sql) from daemon_call;
select is(t.denied('a_reader', sql), true, 'a reader may not: ' || sql) from admin_call union all select is(t.denied('a_reader', sql), true, 'a reader may not: ' || sql) from daemon_call;
select is(t.denied('a_reader', sql), true, 'a reader may not: ' || sql) from client_call where sql !~ 'explain';
select is(t.denied('a_reader', 'select * from leasehold.' || name), false, 'a reader sees ' || name) from reader_view;
select is(t.denied('plain', 'select * from leasehold.' || name), true, 'a stranger does not see ' || name) from reader_view;
select is(t.denied('a_daemon', sql), false, 'a daemon may: ' || sql) from daemon_call;
select is(t.denied('an_admin', sql), false, 'an administrator may: ' || sql) from client_call union all select is(t.denied('an_admin', sql), false, 'an administrator may: ' || sql) from admin_call;
select is(t.denied('an_admin', 'select * from leasehold.' || name), false, 'an administrator sees ' || name) from reader_view;

-- lease keys are credentials
set role a_reader;
select count(*) filter (where lease_key is not null) as shown from leasehold.lease \gset
reset role;
select is(:shown, 0, 'a reader sees no lease key');
select is(t.denied('a_reader', 'select lease_key from leasehold.scope'), true, 'not in the table either');
select is(t.denied('a_reader', 'select lease_key from leasehold.waiter'), true, 'nor in the queue');
select is(t.denied('a_client', 'select lease_key from leasehold.scope'), true, 'nor does a client');
select hasnt_column('leasehold', 'queue', 'lease_key', 'the view queue has none');
set role an_admin;
select count(*) filter (where lease_key is not null) as shown from leasehold.lease where namespace = 'p' and key = 'a' \gset
reset role;
select is(:shown, 1, 'an administrator sees them');
set role a_client;
select count(*) as granted from leasehold.acquire('p', 'own', '30 s') where lease_key is not null \gset
reset role;
select is(:granted, 1, 'a client is told its own');

select is(t.denied(role, $$select leasehold.set_audit_retention('1 day')$$), true, role || ' does not shorten the audit')
  from unnest(array['plain', 'a_client', 'a_reader', 'a_daemon', 'an_admin']) role;
-- nobody but the owner reads what a token is known by; an administrator makes tokens, and reads those of nobody
select is(t.denied(role, 'select hash from leasehold.access_token'), true, role || ' does not see the hashes of tokens')
  from unnest(array['plain', 'a_client', 'a_reader', 'a_daemon', 'an_admin']) role;
select is(t.denied(role, 'select id, name, created_at, created_by, expires_at, last_used_at from leasehold.access_token'), false, role || ' sees which there are')
  from unnest(array['a_daemon', 'an_admin']) role;
select is(t.denied('an_admin', sql), true, 'an administrator may not: ' || sql) from daemon_call where sql ~ 'audit_write|access_tokens|_by\(';
select is(t.denied('a_client', 'select * from leasehold.' || name), true, 'a client does not see ' || name) from unnest(array['access_rule', 'access_token', 'access_state', 'audit']) name;
select is(t.denied('a_reader', 'select principal from leasehold.access_rule'), true, 'nor does a reader see the rules');
select is(t.denied('an_admin', 'select principal from leasehold.access_rule'), false, 'an administrator does');

-- what the README shows a client
set role a_client;
select owner, coalesce(token::text, 'unknown') as token from leasehold.lease where namespace = 'p' and key = 'a' \gset seen_
reset role;
select is(:'seen_owner'::text, 'w', 'a client sees who holds what');
select is(:'seen_token'::text, 'unknown', 'but not others'' fencing tokens');
set role a_reader;
select token is not null as shown from leasehold.lease where namespace = 'p' and key = 'a' \gset
reset role;
select is(:'shown'::text, 't', 'a reader does');

-- nobody writes tables
select is(has_table_privilege(role, c.oid, privilege), false, format('%s may not %s %s', role, lower(privilege), c.relname))
  from pg_class c, unnest(array['a_client', 'a_reader', 'a_daemon', 'an_admin', 'plain']) role, unnest(array['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) privilege
 where c.relnamespace = 'leasehold'::regnamespace and c.relkind in ('r', 'v', 'p')
 order by c.relname, role, privilege;
select is((select count(*) from pg_proc p where p.pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) and has_function_privilege('plain', p.oid, 'execute')), 0::bigint,
          'no function is for everybody');
select is(has_schema_privilege('plain', 'leasehold', 'create'), false, 'nobody creates in the schema');
select is(has_schema_privilege('a_client', 'leasehold', 'create'), false, 'not even clients');
select * from finish();
