-- set_policy, reset_policy, effective_policy and what the settings do: inheritance from the longest configured prefix.
select no_plan();
select leasehold.reap();
create function pg_temp.own(p_namespace text, p_column text) returns text language plpgsql as $$
declare v text;
begin
  execute format('select %I::text from leasehold.policy where namespace = $1', p_column) into v using p_namespace;
  return v;
end $$;
create function pg_temp.error_of_acquire(p_namespace text, p_key text, p_duration text) returns text language sql as
  $$ select t.error_of(format('select leasehold.acquire(%L, %L, %L)', p_namespace, p_key, p_duration)) $$;

-- the root and its defaults
select is((select count(*) from leasehold.policy where namespace = ''), 1::bigint, 'there is a root policy');
select is(row(min_duration, max_duration, grace, max_hold, expiry, reaper, frozen, max_reap_failures, hook_timeout, free_retention, history_retention)::text,
          row('1 s'::interval, '1 day'::interval, '1 s'::interval, null::interval, 'takeover', 'auto', false, 20, '5 s'::interval, '60 s'::interval, '30 days'::interval)::text,
          'the defaults hold')
  from leasehold.effective_policy where namespace = '';

-- setting
select leasehold.set_policy('p', grace => '5 s', max_duration => '1 hour');
select is(pg_temp.own('p', 'grace')::interval, '5 s'::interval, 'set');
select is(pg_temp.own('p', 'min_duration'), null, 'what is not named stays inherited');
select leasehold.set_policy('p', min_duration => '2 s');
select is(pg_temp.own('p', 'grace')::interval, '5 s'::interval, 'a second set leaves the first alone');
select leasehold.set_policy('p.q', grace => '7 s');
select is((select grace from leasehold.acquire('p', 'a', '30 s')), '5 s'::interval, 'a lease has its namespace''s grace');
select is((select grace from leasehold.acquire('p.q', 'a', '30 s')), '7 s'::interval, 'the child''s own comes first');
select is((select grace from leasehold.acquire('p.q.r', 'a', '30 s')), '7 s'::interval, 'the longest configured prefix wins');
select is((select grace from leasehold.acquire('p.x', 'a', '30 s')), '5 s'::interval, 'a child without its own inherits');
select is((select grace from leasehold.acquire('pq', 'a', '30 s')), '1 s'::interval, 'pq is no child of p');
select is(pg_temp.error_of_acquire('p.q.r', 'b', '61 min'), 'LH002 invalid_argument duration', 'each column is inherited by itself: max_duration from p');
select is(pg_temp.error_of_acquire('p.q.r', 'b', '1500 ms'), 'LH002 invalid_argument duration', 'and min_duration');
select is(pg_temp.error_of_acquire('p.q.r', 'b', '2 s'), '', 'the bounds themselves are allowed');
select is(pg_temp.error_of_acquire('p.q.r', 'c', '1 hour'), '', 'both of them');
select is((select grace from leasehold.effective_policy where namespace = 'p.q'), '7 s'::interval, 'effective_policy shows what is in force');
select is((select max_duration from leasehold.effective_policy where namespace = 'p.q'), '1 hour'::interval, 'inherited values too');

-- back to inheritance
select leasehold.reset_policy('p.q', 'grace');
select is((select grace from leasehold.acquire('p.q', 'd', '30 s')), '5 s'::interval, 'a column that was reset inherits again');
select leasehold.set_policy('p.q', grace => '9 s', frozen => true);
select leasehold.reset_policy('p.q');
select is((select grace from leasehold.acquire('p.q', 'e', '30 s')), '5 s'::interval, 'a policy that was reset inherits everything');
select leasehold.set_policy('', grace => '3 s');
select is((select grace from leasehold.acquire('other', 'a', '30 s')), '3 s'::interval, 'the root can be set');
select leasehold.reset_policy('');
select is((select grace from leasehold.acquire('other', 'b', '30 s')), '1 s'::interval, 'a root that was reset has the defaults again');

-- bad values
select is(t.error_of(format('select leasehold.set_policy(%L, %s => %L)', 'bad', field, value)), 'LH002 invalid_argument ' || field,
          format('%s = %s is refused', field, value))
  from (values ('min_duration', '99 ms'), ('min_duration', '-1 s'), ('max_duration', '0 s'), ('grace', '-1 s'), ('max_hold', '-1 s'),
               ('dead_after', '-1 s'), ('expiry', 'never'), ('expiry', ''), ('reaper', 'cron'), ('max_leases', '-1'), ('max_waiters', '-1'),
               ('max_reap_failures', '-1'), ('hook_timeout', '-1 s'), ('free_retention', '-1 s'), ('history_retention', '-1 s')) as bad (field, value);
select is(t.error_of($$select leasehold.set_policy('a..b', grace => '1 s')$$), 'LH002 invalid_argument namespace', 'a bad namespace is refused');
select is(t.error_of($$select leasehold.set_policy(null, grace => '1 s')$$), 'LH002 invalid_argument namespace', 'so is none');
select is(t.error_of($$select leasehold.reset_policy('p', 'colour')$$), 'LH002 invalid_argument column_name', 'an unknown column is refused');
select is(t.error_of($$select leasehold.reset_policy('p', 'namespace')$$), 'LH002 invalid_argument column_name', 'namespace is no setting');
select is((select count(*) from leasehold.policy where namespace = 'bad'), 0::bigint, 'nothing was written');
select is(t.error_of($$select leasehold.set_policy('ok', min_duration => '100 ms')$$), '', '100 ms is the least');

-- the two durations contradict each other: here, with what is inherited, or in a namespace below
select is(t.error_of($$select leasehold.set_policy('two', min_duration => '2 hours', max_duration => '1 hour')$$), 'LH002 invalid_argument min_duration', 'min over max');
select is(t.error_of($$select leasehold.set_policy('two', min_duration => '25 hours')$$), 'LH002 invalid_argument min_duration', 'min over the inherited max');
select is(t.error_of($$select leasehold.set_policy('two', max_duration => '0.5 s')$$), 'LH002 invalid_argument max_duration', 'max under the inherited min');
select leasehold.set_policy('two.below', max_duration => '10 s');
select is(t.error_of($$select leasehold.set_policy('two', min_duration => '20 s')$$), 'LH002 invalid_argument min_duration', 'min over the max of a namespace below');
select ok(t.message_of($$select leasehold.set_policy('two', min_duration => '20 s')$$) like '%in two.below%', 'which is named');
select is(t.error_of($$select leasehold.set_policy('', max_duration => '0.5 s')$$), 'LH002 invalid_argument max_duration', 'at the root too');
select is((select count(*) from leasehold.policy where namespace = 'two'), 0::bigint, 'nothing was written');

-- frozen
select leasehold.acquire('ice', 'held', '30 s', lease_key => t.key(1));
select leasehold.acquire('ice', 'late', '30 s', lease_key => t.key(2));
select leasehold.acquire('ice', 'free', '30 s', lease_key => t.key(3));
select leasehold.release_ok('ice', 'free', t.key(3));
select leasehold.set_policy('ice', frozen => true);
select is(pg_temp.error_of_acquire('ice', 'new', '30 s'), 'LH003 namespace_frozen', 'no new grant in a frozen namespace');
select is(pg_temp.error_of_acquire('ice.child', 'new', '30 s'), 'LH003 namespace_frozen', 'nor in its children');
select is(pg_temp.error_of_acquire('ice', 'free', '30 s'), 'LH003 namespace_frozen', 'nor of a scope that is free');
select t.age('ice', 'late', '1 hour');
select isnt(pg_temp.error_of_acquire('ice', 'late', '30 s') || (select owner from leasehold.lease where key = 'late'), '', 'nor by takeover');
select is((select lease_key from leasehold.scope where namespace = 'ice' and key = 'late'), t.key(2), 'the old holder stays until it is reaped');
select isnt(leasehold.heartbeat('ice', 'held', t.key(1)), null, 'heartbeats go on');
select is(t.rows_of($$select * from leasehold.acquire('ice', 'held', '30 s', lease_key => t.key(1))$$), 1, 'a holder renews by acquiring');
select is(leasehold.release_ok('ice', 'held', t.key(1)), true, 'releases go on');
select leasehold.set_policy('ice', frozen => false);
select is(pg_temp.error_of_acquire('ice', 'new', '30 s'), '', 'thawed');

-- quotas
select leasehold.set_policy('few', max_leases => 2);
select leasehold.acquire('few', 'a', '30 s', lease_key => t.key(11)), leasehold.acquire('few', 'b', '30 s');
select is(pg_temp.error_of_acquire('few', 'c', '30 s'), 'LH004 quota_exceeded', 'the third lease of two is refused');
select is((select count(*) from leasehold.scope where namespace = 'few' and state = 'held'), 2::bigint, 'and not written');
select is(t.rows_of($$select * from leasehold.acquire('few', 'a', '30 s', lease_key => t.key(11))$$), 1, 'a renewal does not count');
select is(t.rows_of($$select * from leasehold.acquire('few', 'a', '30 s')$$), 0, 'held is held, whatever the quota');
select leasehold.release_ok('few', 'a', t.key(11));
select is(pg_temp.error_of_acquire('few', 'c', '30 s'), '', 'a release makes room');
select leasehold.set_policy('line', max_waiters => 1);
select leasehold.acquire('line', 'a', '30 s');
select leasehold.join_queue('line', 'a', t.key(21));
select is(t.error_of($$select leasehold.join_queue('line', 'a', t.key(22))$$), 'LH004 quota_exceeded', 'the second waiter of one is refused');
select is(t.error_of($$select leasehold.join_queue('line', 'a', t.key(21))$$), '', 'a waiter that comes back does not count twice');
select is((select outcome from leasehold_internal.acquire_batch(null, null, array['line'], array['a'], array[t.key(23)], array['o'], array['{}'],
             array[30000000::bigint], array[true], array[null::bigint], array[0::bigint])), 'quota', 'in a batch it is the outcome quota');

-- new scopes take no room in the server's lock table
create function pg_temp.many(p_count integer) returns integer language plpgsql as $$
begin
  for i in 1..p_count loop
    perform leasehold.acquire('many', 'k' || i, '30 s');
  end loop;
  return p_count;
end $$;
select is(pg_temp.many(1500), 1500, 'a transaction may create as many scopes as it likes');
select is((select count(*) from pg_locks where locktype = 'advisory'), 0::bigint, 'without an advisory lock');

-- the daemon's forms
select is(array_agg(namespace order by n), array['p.q.r', 'p.q.r'], 'policy_get: own, then effective')
  from (select namespace, row_number() over () as n from leasehold_internal.policy_get('p.q.r')) g;
select is((select array_agg(grace_us) from leasehold_internal.policy_get('p.q.r')), array[null, 5000000::bigint], 'own ones may be missing');
select is((select array_agg(min_duration_us) from leasehold_internal.policy_get('p')), array[2000000::bigint, 2000000::bigint], 'own and effective');
select is((select sources[3] from leasehold_internal.policy_get('p.q.r') where grace_us is not null), 'p', 'sources say which prefix a value comes from');
select is((select sources[6] from leasehold_internal.policy_get('p.q.r') where grace_us is not null), '', 'or the root');
select ok((select array_agg(namespace) @> array['', 'p', 'ice', 'few'] from leasehold_internal.policy_list(1000, null)), 'policy_list: the configured ones');
select is((select array_agg(namespace) from leasehold_internal.policy_list(2, 'few')), (select array_agg(namespace) from (
             select namespace from leasehold.policy where namespace > 'few' order by namespace limit 2) l), 'a page after another');
select leasehold_internal.policy_update('u', array['grace', 'expiry', 'frozen', 'max_leases'], array['2500000', 'reap', 'true', '7']);
select is((select row(grace, expiry, frozen, max_leases)::text from leasehold.policy where namespace = 'u'),
          row('2.5 s'::interval, 'reap', true, 7::bigint)::text, 'policy_update writes what it names');
select leasehold_internal.policy_update('u', array['grace'], array[null::text]);
select is(pg_temp.own('u', 'grace'), null, 'NULL inherits again');
select is(pg_temp.own('u', 'expiry'), 'reap', 'and leaves the others');
select is(t.error_of(format('select leasehold_internal.policy_update(%L, %L, %L)', 'v', array[field], array[value])), 'LH002 invalid_argument ' || field,
          format('policy_update: %s = %s is refused', field, value))
  from (values ('grace', '-1'), ('min_duration', '99999'), ('expiry', 'never'), ('reaper', 'cron'), ('max_leases', '-5')) as bad (field, value);
select is((select count(*) from leasehold.policy where namespace = 'v'), 0::bigint, 'and not written');
select * from finish();
