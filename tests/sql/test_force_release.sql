-- Promise 4.
-- leasehold.force_release: an administrator ends a lease, with a reason.
select no_plan();
select leasehold.reap();
select is(t.rows_of($$select * from leasehold.force_release('f', 'a', 'why')$$), 0, 'nothing to end in an unknown scope');
select is((select count(*) from leasehold.scope), 0::bigint, 'and no row for it');
select * from leasehold.acquire('f', 'a', '30 s', owner => 'stuck', lease_key => t.key(1)) \gset one_
select is(t.rows_of(format('select * from leasehold.force_release(%L, %L, %L, %s)', 'f', 'a', 'why', :one_token - 1)), 0, 'another token is not ended');
select is((select state from leasehold.scope where key = 'a'), 'held', 'and the holder stays');
select results_eq($$select (namespace || '/' || key || '/' || owner)::text collate "default", token from leasehold.force_release(namespace => 'f', key => 'a', reason => 'host is gone')$$,
                  format($$values ('f/a/stuck', %s::bigint)$$, :one_token), 'the answer is the lease that was ended');
select is((select state from leasehold.scope where key = 'a'), 'free', 'the scope is free');
select is((select last_outcome from leasehold.scope where key = 'a'), 'forced', 'it ended as forced');
select ok((select last_error like '%host is gone%' from leasehold.scope where key = 'a'), 'the reason is kept');
select is(leasehold.heartbeat('f', 'a', t.key(1)), null, 'its holder has lost');
select is(leasehold.release_ok('f', 'a', t.key(1)), false, 'and has nothing to release');
select is(t.error_of(format('select leasehold.guard(%L, %L, %s)', 'f', 'a', :one_token)), 'LH001 lease_lost', 'nor to guard');
select is(t.rows_of($$select * from leasehold.force_release('f', 'a', 'why')$$), 0, 'twice ends nothing');
select * from leasehold.acquire('f', 'a', '30 s', lease_key => t.key(2)) \gset two_
select is(t.rows_of(format('select * from leasehold.force_release(%L, %L, %L, token => %s)', 'f', 'a', 'why', :one_token)), 0,
          'the old token does not end the next hold');
select is(t.rows_of(format('select * from leasehold.force_release(%L, %L, %L, token => %s)', 'f', 'a', 'why', :two_token)), 1, 'its own does');
-- the next in line is next
select leasehold.acquire('f', 'a', '30 s', lease_key => t.key(3));
select leasehold.join_queue('f', 'a', t.key(4));
select leasehold.force_release('f', 'a', 'why');
select is(t.rows_of($$select * from leasehold.acquire('f', 'a', '30 s', lease_key => t.key(5))$$), 0, 'the first waiter comes before a newcomer');
select is(t.rows_of($$select * from leasehold.acquire('f', 'a', '30 s', lease_key => t.key(4))$$), 1, 'and gets it');
-- the daemon's form
select is((select outcome from leasehold_internal.force_release_one('f', 'zz', 'why', 0)), 'not_held', 'force_release_one: not held');
select is((select outcome || ' ' || lease_key from leasehold_internal.force_release_one('f', 'a', 'why', 0)), 'ended ' || t.key(4), 'force_release_one: ended, with the lease key');
select is((select outcome from leasehold_internal.force_release_one('f', 'a', 'why', null)), 'not_held', 'force_release_one: not held any more');

-- Several holders: each ends by itself.
create function pg_temp.share(p_key text, p_lease integer) returns bigint language sql as $$
  select token from leasehold.acquire('s', p_key, '30 s', 'w' || p_lease, t.key(p_lease), mode => 'shared')
$$;
create function pg_temp.holders(p_key text) returns text language sql as $$
  select string_agg(owner, ' ' order by token) from leasehold.lease where namespace = 's' and key = p_key
$$;
create sequence t.calls;
grant all on t.calls to leasehold_owner;
create function t.keeps_w1(e leasehold.lease_event) returns void language plpgsql as $$
begin
  perform nextval('t.calls');
  if e.owner = 'w1' then raise exception 'w1 is on leave'; end if;
end $$;
alter function t.keeps_w1(leasehold.lease_event) owner to leasehold_owner;
select leasehold.add_hook('s', 'reap', 't.keeps_w1(leasehold.lease_event)');
select pg_temp.share('some', 1), pg_temp.share('some', 2), pg_temp.share('some', 3);
select is(t.message_of($$select leasehold.force_release('s', 'some', 'why')$$), 'invalid_argument: token must be that of one of the 3 holders, or all of them', 'which of several has to be said');
select is((select string_agg(owner, ' ' order by token) from leasehold.force_release('s', 'some', 'why', all_holders => true)), 'w2 w3', 'those that no hook vetoes for end');
select is(pg_temp.holders('some'), 'w1', 'the other stays');
select throws_ok($$select leasehold.force_release('s', 'some', 'why', all_holders => true)$$, 'LH005', 'hook_rejected: w1 is on leave', 'where none ends, that is an error');
select is((select string_agg(outcome, ', ') from leasehold_internal.force_release_one('s', 'some', 'why', null, p_all => true)), 'rejected', 'as a daemon is told');
select leasehold.remove_hook('s', 'reap', 't.keeps_w1(leasehold.lease_event)');
select is((select string_agg(owner, ' ') from leasehold.force_release('s', 'some', 'why', all_holders => true)), 'w1', 'without the hook it ends');

-- A hook that uses up the time: no other one is called then, for nothing would bound it.
create function t.sleeps(e leasehold.lease_event) returns void language plpgsql as $$
begin
  perform nextval('t.calls'), pg_sleep(6);
end $$;
alter function t.sleeps(leasehold.lease_event) owner to leasehold_owner;
select leasehold.add_hook('s', 'reap', 't.sleeps(leasehold.lease_event)');
select pg_temp.share('late', 1), pg_temp.share('late', 2), pg_temp.share('late', 3);
select setval('t.calls', 100);
delete from leasehold.audit;
set leasehold.hooks = 'on';
set statement_timeout = '3 s';
select outcome, message from leasehold_internal.force_release_one('s', 'late', 'why', null, p_all => true) \g /dev/null
set statement_timeout = 0;
reset leasehold.hooks;
select is((select last_value from t.calls), 101::bigint, 'the hook of the first is called, and no other');
select is((select array_agg(outcome || ' ' || token::text order by token) from leasehold.audit where namespace = 's'),
          (select array_agg('refused ' || token::text order by token) from leasehold.lease where namespace = 's' and key = 'late'), 'each that stays is written down');
select is(pg_temp.holders('late'), 'w1 w2 w3', 'all of them stay');
select leasehold.remove_hook('s', 'reap', 't.sleeps(leasehold.lease_event)');

-- A holder that comes while the scope is being locked is not ended in place of the one that was meant.
select pg_temp.share('meant', 1);
select replace(pg_get_functiondef('leasehold_internal.lock_by_force'::regproc), 'begin', 'begin perform leasehold.acquire(''s'', ''meant'', ''30 s'', ''w2'', mode => ''shared'');') \gexec
select is((select outcome || ': ' || message from leasehold_internal.force_release_one('s', 'meant', 'why', null)), 'invalid: that of one of the 2 holders, or all of them',
          'which of them has to be said');
select is(pg_temp.holders('meant'), 'w1 w2', 'neither has ended');
select * from finish();
