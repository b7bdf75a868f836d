-- Reaping through hooks: failures are counted, told, retried with backoff, and hold up nobody else.
select no_plan();
select leasehold.reap();
create schema app;
grant usage on schema app to leasehold_owner;
alter default privileges in schema app grant all on tables to leasehold_owner;
create table app.mode (fails boolean);
insert into app.mode values (true);
create table app.reaped (n bigint generated always as identity, e leasehold.lease_event);
create function app.put_back(e leasehold.lease_event) returns void language plpgsql as $$
begin
  insert into app.reaped (e) select e;
  if e.key like 'bad%' and (select fails from app.mode) then
    raise exception 'the work of % cannot be put back', e.key;
  elsif e.key like 'slow%' then
    perform pg_sleep(20);
  end if;
end $$;
select leasehold.add_hook('r', 'reap', 'app.put_back(leasehold.lease_event)');
select leasehold.set_policy('r', hook_timeout => '3 s');
create function t.dead(p_namespace text, p_keys text[]) returns void language plpgsql as $$
begin
  perform leasehold.acquire(p_namespace, k, '30 s', owner => 'gone', lease_key => t.key(1)), t.age(p_namespace, k, '1 hour') from unnest(p_keys) k;
end $$;
\set c1 11111111-1111-4111-8111-111111111111
select t.enroll(:'c1');
create function t.one(p_function text, p_key text, p_arguments text default '') returns table (kind text, error text, failures integer, wake boolean) language plpgsql as $$
begin
  return query execute format('select kind, error, reap_failures, wake from leasehold_internal.%1$I(%2$L, %3$s %4$L, %5$L, (select token from leasehold.scope where namespace = %4$L and key = %5$L) %6$s)', p_function,
    '11111111-1111-4111-8111-111111111111', case p_function when 'reap_hooked' then 'null,' else '' end, 'r', p_key, p_arguments);
end $$;

-- reap(): a visit to a lease that is alive, beside one that is not
select t.dead('r', array['gone']);
select leasehold.acquire('r', k, '1 h', lease_key => t.key(1)) from unnest(array['here1', 'here2']) k;
update leasehold.scope set check_at = clock_timestamp() - interval '1 s' where key like 'here%';
select set_eq($$select key from leasehold.reap()$$, array['gone'], 'only what has expired is reaped');
select set_eq($$select (e).key from app.reaped$$, array['gone'], 'and only its hook runs');
select is((select count(*) from leasehold.scope where key like 'here%' and state = 'held' and check_at > clock_timestamp() + interval '50 min'), 2::bigint,
          'the others are visited when they expire');
select leasehold.release_ok('r', k, t.key(1)) from unnest(array['here1', 'here2']) k;
delete from leasehold.scope;
truncate app.reaped;

-- reap(): every third fails
select t.dead('r', array(select case when n % 3 = 0 then 'bad' else 'good' end || n from generate_series(1, 9) n));
select results_eq($$select outcome, count(*), min(error) like 'the work of bad% cannot be put back', min(reap_failures) from leasehold.reap() group by 1 order by 1$$,
                  $$values ('failed', 3::bigint, true, 1), ('reaped', 6::bigint, null, null)$$, 'a failing hook leaves its own lease, and no other');
select set_eq($$select (e).key from app.reaped$$, $$select key from leasehold.scope where state = 'free'$$, 'what was reaped is what the hook did');
select results_eq($$select key collate "default", token, owner, reap_failures, error, next_try_at > failed_at from leasehold.reap_failure order by key$$,
                  $$select key collate "default", token, 'gone', 1, ('the work of ' || key || ' cannot be put back') collate "default", true from leasehold.scope where state = 'held' order by key$$, 'reap_failure tells which, and why');
select t.is_near(next_try_at, failed_at + interval '1 s', 'the next try is 1 s later', '1 ms') from leasehold.reap_failure where key = 'bad3';
select is(check_at, next_try_at, 'and the reaper visits it then') from leasehold.scope where key = 'bad3';
select is(t.rows_of('select * from leasehold.reap()'), 0, 'not before');
select is(leasehold.heartbeat('r', 'bad3', t.key(1)), null, 'its holder has lost it all the same');

-- backoff
create function t.fail_again(p_key text) returns interval language plpgsql as $$
begin
  update leasehold.scope set next_try_at = clock_timestamp(), check_at = clock_timestamp() - interval '1 s' where key = p_key;
  perform leasehold.reap();
  return (select next_try_at - reap_failed_at from leasehold.scope where key = p_key);
end $$;
select is((select array_agg(extract(epoch from t.fail_again('bad3'))::integer order by n) from generate_series(1, 10) n), array[2, 4, 8, 16, 32, 64, 128, 256, 300, 300], 'twice as long each time, at most 5 min');
select leasehold.set_policy('r', max_reap_failures => 12);
select is(t.fail_again('bad3'), null, 'after max_reap_failures it stays for a person');
select is((select check_at from leasehold.scope where key = 'bad3'), 'infinity', 'the reaper visits it no more');
select results_eq($$select reap_failures, next_try_at from leasehold.reap_failure where key = 'bad3'$$, $$values (12, null::timestamptz)$$, 'but it is still listed');
select is(t.rows_of($$select * from leasehold.acquire('r', 'bad3', '30 s')$$), 0, 'and nobody gets it');
select matches(advice, '^reaping the lease of gone has failed 12 times, the last time [^ ]+ s ago: the work of bad3 cannot be put back; not tried again by itself: mend its callback, then select leasehold.reap\(array\[''r''\]\)$', 'explain says what to do')
  from leasehold.explain('r', 'bad3');
select matches(advice, '^reaping the lease of gone has failed once, .*; mend its callback, it is (tried again in|due to be tried again)', 'explain tells when it is tried again') from leasehold.explain('r', 'bad6');
-- A DBA puts the next try off for ever: all who read that say that there is none.
begin;
update leasehold.scope set next_try_at = 'infinity', reap_failures = 1 where key = 'bad6';
select results_eq($$select key, next_try_at, failed_at is not null from leasehold_internal.view_failures('{r}', true, 'bad6', 10, null)$$,
                  $$values ('bad6', null::text, true)$$, 'the console lists it without a next try');
select is(f.expires_in_us, null, 'a daemon does not count down to it')
  from leasehold.scope s, leasehold_internal.lease_facts(s, leasehold_internal.policy_of('r'), leasehold_internal.life(clock_timestamp()), clock_timestamp()) f
 where s.key = 'bad6';
select matches(advice, 'not tried again by itself', 'and explain says so') from leasehold.explain('r', 'bad6');
rollback;
select results_eq($$select key, outcome, reap_failures, next_try_at from leasehold.reap(array['r']) where key = 'bad3'$$, $$values ('bad3', 'failed', 13, null::timestamptz)$$, 'an explicit reap tries it again');
select leasehold.set_policy('r', max_reap_failures => 20);
update app.mode set fails = false;
select results_eq($$select key, outcome from leasehold.reap(array['r']) order by key$$, $$values ('bad3', 'reaped'), ('bad6', 'reaped'), ('bad9', 'reaped')$$, 'a mended one is reaped');
select is((select count(*) from leasehold.reap_failure), 0::bigint, 'nothing is failing any more');
select is((select reap_failures from leasehold.scope where key = 'bad3'), 0, 'it begins anew');
update app.mode set fails = true;
-- failing ones do not keep others from an explicit reap with a limit
select t.dead('r', array['bad1', 'bad2', 'fine1', 'fine2']);
select set_eq($$select key, outcome from leasehold.reap(array['r'], max => 4)$$, $$values ('bad1', 'failed'), ('bad2', 'failed'), ('fine1', 'reaped'), ('fine2', 'reaped')$$, 'each is tried once in a call');
select t.dead('r', array['fine3', 'fine4']);
select results_eq($$select key from leasehold.reap(array['r'], max => 2) order by key$$, $$values ('fine3'), ('fine4')$$, 'failing ones come last');
select is((select count(*) from leasehold.reap(array['r'])) + (select count(*) from leasehold.reap(array['r'])), 2::bigint, 'a caller that goes on within its statement meets each of them once');
-- adding or removing a hook tries again at once
update leasehold.scope set check_at = 'infinity', next_try_at = null, reap_failures = 20 where key in ('bad1', 'bad2');
select is(t.rows_of('select * from leasehold.reap()'), 0, 'they wait for a person');
select leasehold.remove_hook('r', 'reap', 'app.put_back(leasehold.lease_event)');
select results_eq('select key, outcome from leasehold.reap() order by key', $$values ('bad1', 'reaped'), ('bad2', 'reaped')$$, 'without its hook there is nothing to fail');
select leasehold.add_hook('r', 'reap', 'app.put_back(leasehold.lease_event)');
-- a policy that allows more failures
select t.dead('r', array['bad4']);
select leasehold.set_policy('r', max_reap_failures => 1);
select is((select outcome || reap_failures || coalesce(next_try_at::text, '-') from leasehold.reap()), 'failed1-', 'one failure is enough here');
select leasehold.set_policy('r', max_reap_failures => 3);
select is((select outcome || reap_failures from leasehold.reap()), 'failed2', 'a policy that allows more tries it again');
select leasehold.reset_policy('r', 'max_reap_failures');
delete from leasehold.scope;
truncate app.reaped;

-- takeovers
select t.dead('r', array['good']);
select token as old from leasehold.scope where key = 'good' \gset
select is((select owner from leasehold.acquire('r', 'good', '30 s', owner => 'next', lease_key => t.key(2))), 'next', 'an expired lease is taken over');
select results_eq($$select (e).event, (e).token, (e).owner from app.reaped$$, format($$values ('reap', %s::bigint, 'gone')$$, :old), 'through the hooks of reaping the old one');
select t.dead('r', array['bad']);
select is(t.rows_of($$select * from leasehold.acquire('r', 'bad', '30 s', owner => 'next', lease_key => t.key(3))$$), 0, 'where they fail it is held');
select results_eq($$select owner, reap_failures, error from leasehold.reap_failure$$, $$values ('gone', 1, 'the work of bad cannot be put back')$$, 'which is counted and written down');
update app.mode set fails = false;
select is(t.rows_of($$select * from leasehold.acquire('r', 'bad', '30 s', lease_key => t.key(3))$$), 0, 'and respected by the next one');
select is((select reap_failures from leasehold.scope where key = 'bad'), 1, 'who does not try');
update leasehold.scope set next_try_at = clock_timestamp() where key = 'bad';
select is(t.rows_of($$select * from leasehold.acquire('r', 'bad', '30 s', lease_key => t.key(3))$$), 1, 'when its time has come it is taken over');
update app.mode set fails = true;
select t.dead('r', array['bad2']);
select set_config('leasehold.hooks', 'on', false);
select results_eq(format($$select outcome, message, expires_in_us between 500000 and 1500000, owner from leasehold_internal.acquire_batch(%L, null, array['r'], array['bad2'], array[t.key(4)], array['w'], array['{}'], array[30000000::bigint], array[true], array[null::bigint], array[0::bigint])$$, :'c1'),
                  $$values ('queued', 'the work of bad2 cannot be put back', true, 'gone')$$, 'a coordinator''s is queued, until the next try');
select results_eq(format($$select outcome, message from leasehold_internal.acquire_batch(%L, null, array['r'], array['bad2'], array[t.key(5)], array['w'], array['{}'], array[30000000::bigint], array[false], array[null::bigint], array[0::bigint])$$, :'c1'),
                  $$values ('held', null)$$, 'another one is held, without a try');
select set_config('leasehold.hooks', '', false);
-- both hooks in a takeover: where that of acquire vetoes, the old lease is as it was
create function app.never(e leasehold.lease_event) returns void language plpgsql as $$ begin raise exception 'never'; end $$;
select leasehold.add_hook('r', 'acquire', 'app.never(leasehold.lease_event)');
select leasehold.acquire('r.x', 'k', '30 s') where false;
delete from leasehold.scope;
delete from leasehold.waiter;
insert into leasehold.scope (namespace, key, state, lease_key, token, acquired_at, heartbeat_at, deadline, incarnation, check_at, duration, grace)
  select 'r', 'old', 'held', t.key(1), nextval('leasehold.token'), now() - interval '2 h', now() - interval '2 h', now() - interval '1 h', id, now() - interval '1 h', '1 h', '1 s' from leasehold.incarnation;
update leasehold.incarnation set started_at = now() - interval '1 day';
truncate app.reaped;
select t.footprint() as before \gset
select is(t.message_of($$select leasehold.acquire('r', 'old', '30 s')$$), 'hook_rejected: never', 'a takeover that the hook of acquire vetoes');
select is(t.footprint() || (select count(*) from app.reaped), :'before' || 0, 'leaves the expired lease, and nothing of its reaping');
select leasehold.remove_hook('r', 'acquire', 'app.never(leasehold.lease_event)');
delete from leasehold.scope;

-- a coordinator's batch: hooked, then one by one
select t.dead('r', array['good', 'bad', 'slow']), t.dead('free', array['plain']);
select results_eq(format($$select kind, namespace, error, lease_key, liveness from leasehold_internal.reap_batch(%L, null, null, true, 10, true) order by namespace, key$$, :'c1'),
                  $$values ('reaped', 'free', null, t.key(1), 'expired'), ('hooked', 'r', '3000000', t.key(1), 'expired'), ('hooked', 'r', '3000000', t.key(1), 'expired'), ('hooked', 'r', '3000000', t.key(1), 'expired')$$,
                  'what has hooks is told of, with their time limit');
select is((select count(*) from app.reaped), 0::bigint, 'and left alone');
select t.is_near(check_at, now() + interval '8 s', key || ' is not due before the limit and 5 s', '2 s') from leasehold.scope where namespace = 'r' order by key;
select is(t.rows_of(format($$select * from leasehold_internal.reap_batch(%L, null, null, true, 10, true)$$, :'c1')), 0, 'so nobody else takes it meanwhile');
select results_eq($$select kind, error, failures, wake from t.one('reap_hooked', 'good')$$, $$values ('reaped', null::text, null::integer, false)$$, 'reap_hooked reaps it');
select results_eq($$select state, last_outcome, ended_keys, ended_outcomes from leasehold.scope where namespace = 'r' and key = 'good'$$, $$values ('free', 'expired', array_fill(t.key(1), '{1}', '{0}'), array_fill('expired'::text, '{1}', '{0}'))$$, 'it has expired');
select is((select count(*) from app.reaped where (e).key = 'good'), 1::bigint, 'through its hook');
select is((select count(*) from t.one('reap_hooked', 'good')), 0::bigint, 'once');
select results_eq($$select kind, error, failures from t.one('reap_hooked', 'bad')$$, $$values ('failed', 'the work of bad cannot be put back', 1)$$, 'or tells why not');
select is((select next_try_at - failed_at from leasehold.reap_failure where key = 'bad'), '1 s', 'with the same backoff');
set statement_timeout = '200ms';
select results_eq($$select kind, error, failures from t.one('reap_hooked', 'slow')$$, $$values ('failed', 'the hook ran over its limit of 0.2 s', 1)$$, 'a timeout is a failure');
reset statement_timeout;
select is((select count(*) from leasehold_internal.reap_hooked(:'c1', null, 'r', 'bad', 1)), 0::bigint, 'not for another token');
select is((select count(*) from leasehold_internal.reap_hooked(:'c1', clock_timestamp() - interval '1 min', 'r', 'bad', (select token from leasehold.scope where key = 'bad'))), 0::bigint, 'not while the clock runs ahead');
select results_eq($$select kind, error, failures from t.one('reap_failed', 'bad', ', ''the connection was lost''')$$, $$values ('failed', 'the connection was lost', 2)$$, 'reap_failed counts a lost connection');
select is((select count(*) from t.one('reap_failed', 'good', ', ''the connection was lost''')), 0::bigint, 'but not where the lease has ended');
select leasehold.acquire('r', 'alive', '30 s', lease_key => t.key(1));
select is((select count(*) from t.one('reap_hooked', 'alive')), 0::bigint, 'a lease that is alive is not reaped');
select t.is_near(check_at, deadline + grace, 'it is visited when it expires', '1 ms') from leasehold.scope where key = 'alive';
select is((select count(*) from t.one('reap_failed', 'alive', ', ''x''')), 0::bigint, 'nor counted as failing');
select leasehold.set_policy('r', expiry => 'manual');
select is((select count(*) from t.one('reap_hooked', 'slow')), 0::bigint, 'nor one that only an administrator may end');
select leasehold.reset_policy('r', 'expiry');
-- the first waiter is woken
select t.dead('r', array['wait']);
insert into leasehold.waiter (namespace, key, ticket, lease_key, coordinator, enqueued_at) values ('r', 'wait', nextval('leasehold.ticket'), t.key(9), :'c1', now());
update leasehold.scope set queued = true where key = 'wait';
select results_eq($$select kind, wake from t.one('reap_hooked', 'wait')$$, $$values ('reaped', true)$$, 'a coordinator''s own waiter is told by the answer');
select ok(check_at <= clock_timestamp() + interval '1 s', 'and the reaper looks soon, should that get lost') from leasehold.scope where key = 'wait';
-- synchronous_commit
begin;
set local synchronous_commit = off;
select t.dead('r', array['lazy']);
set local synchronous_commit = off;
select kind from t.one('reap_hooked', 'lazy');
select is(current_setting('synchronous_commit'), 'local', 'what ends is committed durably');
commit;
begin;
select t.dead('r', array['lazy2']);
set local synchronous_commit = off;
set local leasehold.lazy = on;
select kind from t.one('reap_hooked', 'lazy2');
select is(current_setting('synchronous_commit'), 'off', 'unless a later commit of the same connection is');
commit;
begin;
set local synchronous_commit = off;
set local leasehold.lazy = on;
select leasehold.acquire('r', 'lazy3', '30 s');
select is(current_setting('synchronous_commit'), 'local', 'which nobody else may say');
commit;
-- history and watchers are told
select leasehold.set_policy('r', history => true);
select leasehold_internal.watch_add(:'c1', 'r', true);
select t.dead('r', array['told']);
select kind from t.one('reap_hooked', 'told');
select results_eq($$select key collate "default", outcome from leasehold.history where key = 'told'$$, $$values ('told', 'expired')$$, 'a hold that is reaped through a hook is in the history');
select is((select array_agg(type order by number) from leasehold.event where key = 'told'), array['acquired', 'expired'], 'and watchers hear of it');

-- one scope, whenever its next try is, and no other
update app.mode set fails = true;
select t.dead('r.one', array['bad1', 'bad2']);
select count(*) from leasehold.reap(array['r.one']);
update leasehold.scope set next_try_at = clock_timestamp() + interval '5 min', check_at = clock_timestamp() + interval '5 min' where namespace = 'r.one';
update app.mode set fails = false;
truncate leasehold.audit;
select results_eq($$select kind, key collate "default" from leasehold_internal.reap_batch(null, null, array['r.one'], false, 10, false, p_key => 'bad2')$$,
                  $$values ('reaped', 'bad2')$$, 'one scope is reaped at once');
select results_eq($$select namespace collate "default", key collate "default" from leasehold.audit where action = 'reap'$$, $$values ('r.one', 'bad2')$$, 'and the audit has its key');
select is((select state || ' ' || reap_failures from leasehold.scope where namespace = 'r.one' and key = 'bad1'), 'held 1', 'the other waits for its next try');
select * from finish();
