-- The principal beside the owner: what is written on each way to a lease, a place or the end of one, and where it is read.
select no_plan();
select leasehold.reap();
select '11111111-1111-4111-8111-111111111111' as c1 \gset
select t.enroll(:'c1');
select leasehold.set_policy('p', history => true);
select leasehold_internal.watch_add(:'c1', '', true);

-- Lease key n is acquired by token:wN, of each of these keys.
create function pg_temp.ask(p_keys text[], p_leases integer[], p_queue boolean default false) returns text[] language sql as $$
  select array_agg(b.outcome || coalesce(' ' || b.principal, '') order by b.n)
    from leasehold_internal.acquire_batch(
           '11111111-1111-4111-8111-111111111111', null, array(select 'p' from unnest(p_keys)), p_keys, array(select t.key(l) from unnest(p_leases) l),
           array(select 'w' || l from unnest(p_leases) l), array(select '{}' from unnest(p_keys)), array(select 30000000::bigint from unnest(p_keys)),
           array(select p_queue from unnest(p_keys)), array(select null::bigint from unnest(p_keys)), array(select 0::bigint from unnest(p_keys)),
           array(select 'token:w' || l from unnest(p_leases) l)) b
$$;
create function pg_temp.of(p_key text) returns text language sql as $$ select principal from leasehold.scope where namespace = 'p' and key = p_key $$;
create function pg_temp.release(p_key text, p_lease integer) returns boolean language sql as $$ select leasehold.release_ok('p', p_key, t.key(p_lease)) $$;

-- ways to a lease
select is(pg_temp.ask(array['one'], array[1]), array['granted token:w1'], 'a new scope');
select is(pg_temp.of('one'), 'token:w1', 'has it');
select is(pg_temp.ask(array['one'], array[2]), array['held token:w1'], 'a refusal names who stands in the way');
select is(pg_temp.ask(array['one', 'two', 'three'], array[2, 3, 4]), array['held token:w1', 'granted token:w3', 'granted token:w4'], 'each of a batch its own');
select pg_temp.release('one', 1), pg_temp.release('two', 3), pg_temp.release('three', 4);
select is(pg_temp.of('one'), 'token:w1', 'a free scope remembers whose it was');
select is(pg_temp.ask(array['one'], array[5]), array['granted token:w5'], 'a free scope, alone');
select is(pg_temp.ask(array['two', 'three'], array[6, 7]), array['granted token:w6', 'granted token:w7'], 'free scopes, together');
select is(array[pg_temp.of('one'), pg_temp.of('two'), pg_temp.of('three')], array['token:w5', 'token:w6', 'token:w7'], 'and all have them');
select is((select principal from leasehold_internal.acquire_batch(:'c1', null, array['p'], array['one'], array[t.key(5)], array['w5'], array['{}'], array[30000000::bigint],
                                                                  array[false], array[null::bigint], array[0::bigint], array['dns:b'])), 'dns:b', 'a renewal takes the new one');
select is(pg_temp.of('one'), 'dns:b', 'as it takes the owner');

-- the queue
select is(pg_temp.ask(array['one'], array[8], true), array['queued dns:b'], 'a waiter of a batch of one');
select is(pg_temp.ask(array['one', 'two'], array[9, 10], true), array['queued dns:b', 'queued token:w6'], 'waiters of a batch of several');
select leasehold.join_queue('p', 'one', t.key(11)), leasehold.join_queue('p', 'one', t.key(11));
select results_eq($$select principal from leasehold.queue where key = 'one' order by position$$,
                  array['token:w8', 'token:w9', 'role:' || session_user::text collate "default"], 'the queue shows who waits; a SQL user is its role');
select is((select h.outcome || ' ' || h.principal
             from leasehold_internal.hand_over_batch(:'c1', array['p'], array['one'], array[t.key(5)], array[false], array[null], null, array['p'], array['one'], array[t.key(8)],
                                                     array['w8'], array['{}'], array[30000000::bigint], array[true], array[null::bigint], array[0::bigint], array['token:w8']) h
            where h.part = 'acquire'), 'granted token:w8', 'a hand-over');
select is(pg_temp.of('one'), 'token:w8', 'passes it on');
select pg_temp.ask(array['two'], array[10], true);
select is((select array_agg(principal) from leasehold.waiter where key = 'two'), array['token:w10'], 'a waiter that comes back');

-- SQL, hooks
create role principal_client login in role leasehold_client;
set session authorization principal_client;
select is((select principal from leasehold.acquire('p', 'sql', '30 s', owner => 'me', lease_key => t.key(20))), 'role:principal_client', 'SQL: the role that is logged in');
reset session authorization;
create table t.heard (event text, principal text);
create function t.hear(e leasehold.lease_event) returns void language sql security definer as $$ insert into t.heard values (e.event, e.principal) $$;
alter function t.hear owner to leasehold_owner;
select leasehold.add_hook('p', e, 't.hear(leasehold.lease_event)') from unnest(array['acquire', 'release_ok']) e;
select leasehold.release_ok('p', 'sql', t.key(20)), leasehold.acquire('p', 'sql', '30 s', lease_key => t.key(21));
select results_eq('select event, principal from t.heard', format($$values ('release_ok', 'role:principal_client'), ('acquire', 'role:%s')$$, session_user), 'hooks hear it');
select leasehold.remove_hook('p', e, 't.hear(leasehold.lease_event)') from unnest(array['acquire', 'release_ok']) e;

-- where it is read
select is((select principal from leasehold.lease where key = 'one'), 'token:w8', 'the view');
select is((select principal from leasehold_internal.get_scope('p', 'one')), 'token:w8', 'GetLease');
select is((select array_agg(principal order by key) from leasehold_internal.list_leases('p', false, 10, null, null, null)), array['token:w8', 'role:' || session_user::text collate "default", 'token:w7', 'token:w6'], 'ListLeases');
select is((select principal from leasehold_internal.leave_batch(:'c1', array['p'], array['one'], array[t.key(9)], array[false])), 'token:w8', 'who leaves hears who holds it');
select is((select principal from leasehold_internal.force_release_one('p', 'three', 'gone', 0)), 'token:w7', 'ForceRelease');
select is((select last_principal from leasehold_internal.get_scope('p', 'three')), 'token:w7', 'and whose it was');
select t.age('p', 'two', '1 hour'), t.age('p', 'sql', '1 hour');
select is((select array_agg(principal) from leasehold_internal.reap_batch(:'c1', null, array['p'], true, 1, false) where kind = 'reaped'), array['role:' || session_user::text collate "default"], 'Reap');
select is((select principal from leasehold_internal.reap_stale_list(array['p'], false, 10, null, null, null, null) where is_stale), 'token:w6', 'lh_reap_stale');
select is((select principal from leasehold_internal.reap_hooked(:'c1', null, 'p', 'two', (select token from leasehold.scope where key = 'two'))), 'token:w6', 'with hooks');
select results_eq($$select key::text collate "default", principal, outcome from leasehold.history order by token$$,
                  format($$values ('one', 'token:w1', 'ok'), ('two', 'token:w3', 'ok'), ('three', 'token:w4', 'ok'), ('one', 'dns:b', 'ok'), ('two', 'token:w6', 'expired'),
                                  ('three', 'token:w7', 'forced'), ('sql', 'role:principal_client', 'ok'), ('sql', 'role:%s', 'expired')$$, session_user), 'the history');
select pg_temp.ask(array['taken'], array[30]), t.age('p', 'taken', '1 hour');
select is(pg_temp.ask(array['taken'], array[31]), array['granted token:w31'], 'a takeover');
select is((select principal from leasehold.history where key = 'taken'), 'token:w30', 'keeps whose it was');
select is((select array_agg(type || ' ' || principal) from leasehold_internal.take_events(:'c1', 1000) where key in ('one', 'taken')),
          array['acquired token:w1', 'released token:w1', 'acquired token:w5', 'released dns:b', 'acquired token:w8', 'acquired token:w30', 'expired token:w30', 'acquired token:w31'],
          'WatchLeases');
select * from finish();
