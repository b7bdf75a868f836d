-- What people and programs see of shared leases: views, explain, lists, the history and events. The rows are forged where it matters who holds
-- what since when; nothing here waits.
select no_plan();
select leasehold.reap();
select t.enroll(t.key(901));
select leasehold.set_policy('s.gpus', capacity => 4);
create function pg_temp.share(p_key text, p_lease integer, p_units integer, p_slots integer[], p_owner text, p_age interval default '0 s', p_namespace text default 's.gpus')
returns void language sql as $$
  insert into leasehold.scope (namespace, key, state, token, check_at, queued, units, holders)
  values (p_namespace, p_key, 'shared', p_lease, clock_timestamp() + interval '1 hour', true, p_units, 1)
      on conflict (namespace, key) do update set units = scope.units + excluded.units, holders = scope.holders + 1, token = p_lease;
  insert into leasehold.share (namespace, key, lease_key, token, units, slots, owner, principal, acquired_at, heartbeat_at, deadline, incarnation, check_at, duration, grace)
  select p_namespace, p_key, t.key(p_lease), p_lease, p_units, p_slots, p_owner, 'token:' || p_owner, n - p_age, n - p_age, n - p_age + interval '30 s', i.id, n - p_age + interval '31 s',
         interval '30 s', interval '1 s'
    from (select clock_timestamp() as n) n, leasehold.incarnation i;
$$;
create function pg_temp.advice(p_key text, p_namespace text default 's.gpus') returns text language sql as $$
  select advice from leasehold.explain(p_namespace, p_key)
$$;

-- The policy
select is((select capacity from leasehold.effective_policy where namespace = 's.gpus'), 4, 'effective_policy shows the capacity');
select is((select capacity from leasehold.effective_policy where namespace = ''), null, 'there is none unless it is set');
select is((select sources->>'capacity' from leasehold.effective_policy where namespace = 's.gpus'), 's.gpus', 'with where it comes from');
select is((select array_agg(capacity) from leasehold_internal.policy_get('s.gpus.a100')), array[null, 4], 'programs read it, own and inherited');
select is((select capacity from leasehold_internal.policy_list(10, 's')), 4, 'and in the list');
select is((select capacity from leasehold_internal.policy_update('s.u', array['capacity'], array['1000000']) offset 1), 1000000, 'a million units is the most');
select is((select capacity from leasehold_internal.policy_update('s.u', array['capacity'], array['1']) offset 1), 1, 'one the least');
select is(t.error_of(format($$select leasehold.set_policy('s.bad', capacity => %s)$$, bad)), 'LH002 invalid_argument capacity', 'a capacity of ' || bad || ' is refused')
  from unnest(array[0, -1, 1000001, 2147483647]) bad;
select is(t.message_of($$select leasehold.set_policy('s.bad', capacity => 0)$$), 'invalid_argument: capacity must be 1 to 1000000, is 0', 'with the bound');
select is(t.error_of(format($$select leasehold_internal.policy_update('s.bad', array['capacity'], array[%L])$$, bad)), 'LH002 invalid_argument capacity', 'so is ' || bad || ' of a program')
  from unnest(array['0', '1000001', '1.5', '', 'many', '99999999999']) bad;
select throws_ok($$update leasehold.policy set capacity = 0 where namespace = 's.gpus'$$, '23514', null, 'the table refuses it too');
select leasehold.reset_policy('s.u', 'capacity');
select is((select count(*) from leasehold.policy where namespace in ('s.u', 's.bad')), 0::bigint, 'a capacity that was reset is none, and nothing bad was written');

-- The views
select pg_temp.share('box', 11, 2, array[1, 2], 'a', '10 s'), pg_temp.share('box', 12, 1, array[3], 'b', '5 s');
select leasehold.acquire('s', 'alone', '30 s', owner => 'c', lease_key => t.key(13));
select is((select array_agg(concat_ws(' ', key, mode, units, slots::text, owner, principal, liveness) order by token) from leasehold.lease where namespace = 's.gpus'),
          array['box shared 2 {1,2} a token:a alive', 'box shared 1 {3} b token:b alive'], 'a row for each shared holder');
select is((select concat_ws(' ', mode, units, coalesce(slots::text, 'none')) from leasehold.lease where namespace = 's'), 'exclusive 0 none', 'and one of an exclusive one');
select is((select array_agg(namespace || held || expired order by namespace) from leasehold.lease_summary where namespace like 's%'), array['s10', 's.gpus20'], 'the summary counts holders');
select is(leasehold_internal.count_held(), 3::bigint, 'so does what a daemon measures');
select pg_temp.share('late', 14, 1, array[1], 'late', '1 hour');
select is((select liveness from leasehold.lease where owner = 'late'), 'expired', 'one that has expired is shown as that');
select is((select expired from leasehold.lease_summary where namespace = 's.gpus'), 1::bigint, 'and counted');
update leasehold.share set reap_failures = 2, reap_error = 'no', reap_failed_at = clock_timestamp() where owner = 'late';
select is((select concat_ws(' ', key, token, owner, reap_failures, error) from leasehold.reap_failure), 'late 14 late 2 no', 'reap_failure shows one that could not be reaped');
select is((select failing from leasehold.lease_summary where namespace = 's.gpus'), 1::bigint, 'which the summary counts');
select is((select concat_ws(' ', key, token, principal) from leasehold_internal.view_failures(array['s'], true, null, 10, null)), 'late 14 token:late', 'and the console shows');
select matches(pg_temp.advice('late'), '^1 of 4 units taken by one holder: late \(1 unit\); reaping the lease of late has failed 2 times', 'explain says what is the matter with that one');
delete from leasehold.share where owner = 'late';
delete from leasehold.scope where key = 'late';

-- Those who wait
insert into leasehold.waiter (namespace, key, ticket, lease_key, enqueued_at, wait_until, owner, units)
values ('s.gpus', 'box', 1, t.key(21), clock_timestamp(), null, 'big', 2), ('s.gpus', 'box', 2, t.key(22), clock_timestamp(), null, 'writer', null);
select is((select array_agg(concat_ws(' ', position, owner, mode, units) order by ticket) from leasehold.queue), array['1 big shared 2', '2 writer exclusive 0'], 'the queue says who waits for what');
select is((select array_agg(concat_ws(' ', owner, mode, units)) from leasehold_internal.view_queue(array['s.gpus'], false, 'box', 10, null)), array['big shared 2', 'writer exclusive 0'], 'as the console does');
select is(pg_temp.advice('box'), 'join the queue: 3 of 4 units taken by 2 holders: a (2 units), b (1 unit); big (for a shared lease of 2 units) is next, of 2 waiting', 'explain says it in words');
select is((select concat_ws(' ', state, mode, units, holders, holder, waiters, first_waiter) from leasehold.explain('s.gpus', 'box')), 'shared shared 3 2 a 2 big', 'and in columns, of the oldest holder');
select is((select concat_ws(' ', state, mode, units, holders) from leasehold_internal.view_explain(array['s.gpus'], false, 'box', 1, null)), 'shared shared 3 2', 'the console has them');
select is((select concat_ws(' ', state, mode, units, holders) from leasehold.explain('s', 'alone')), 'held exclusive 0 1', 'of an exclusive lease, too');
select is((select concat_ws(' ', state, coalesce(mode, 'none'), coalesce(units::text, 'none'), holders) from leasehold.explain('s', 'unknown')), 'free none none 0', 'and of a free scope');
delete from leasehold.waiter;
select is(pg_temp.advice('box'), 'acquire it shared: 3 of 4 units taken by 2 holders: a (2 units), b (1 unit); an exclusive lease waits for all of them', 'where there is room');
select pg_temp.share('box', 15, 1, array[4], 'd');
select is(pg_temp.advice('box'), 'wait: 4 of 4 units taken by 3 holders: a (2 units), b (1 unit), d (1 unit), and all are alive', 'where there is none');
select leasehold.set_policy('s.gpus', capacity => 2);
select matches(pg_temp.advice('box'), '^wait: 4 of 2 units taken', 'where there is less than was given out');
select is((select units_free || ' ' || holder_count from leasehold_internal.get_scope('s.gpus', 'box')), '0 3', 'nothing is free then, and nobody has lost anything');
select leasehold.set_policy('s.gpus', capacity => 4, frozen => true);
select matches(pg_temp.advice('box'), 's\.gpus is frozen', 'where the namespace is frozen');
select leasehold.reset_policy('s.gpus', 'frozen');
select leasehold.set_policy('s', max_leases => 4);
select matches(pg_temp.advice('box'), 's has reached its limit, max_leases = 4', 'a quota counts holders');
select leasehold.reset_policy('s', 'max_leases');
select pg_temp.share('readers', n, 1, null, 'r' || n, '1 min' - n * interval '1 s', 's.open') from generate_series(31, 37) n;
update leasehold.share set deadline = deadline + interval '1 hour', duration = interval '1 hour' where key = 'readers';
select is(pg_temp.advice('readers', 's.open'), 'acquire it shared: 7 holders share it: r31, r32, r33, r34, r35 and 2 more; an exclusive lease waits for all of them', 'without a capacity');
update leasehold.share set heartbeat_at = heartbeat_at - interval '50 min' where owner = 'r36';
select matches(pg_temp.advice('readers', 's.open'), '^7 holders share it: r31, .* and 2 more; look at r36: silent for 5\d min', 'the worst off is looked at');
select leasehold.set_policy('s.open', expiry => 'manual');
select matches(pg_temp.advice('readers', 's.open'), 'force_release\(''s\.open'', ''readers'', reason => ''\.\.\.'', token => \.\.\.\)$', 'which of several has to be said');

-- Programs
select is((select concat_ws(' ', is_held, token, owner, mode, units, slots::text, units_free, holder_count) from leasehold_internal.get_scope('s.gpus', 'box')), 't 11 a shared 2 {1,2} 0 3', 'a scope: its oldest holder');
select is((select concat_ws(' ', is_held, mode, units, coalesce(units_free::text, 'any'), holder_count) from leasehold_internal.get_scope('s.open', 'readers')), 't shared 1 any 7', 'without a capacity');
select is((select concat_ws(' ', is_held, mode, units, holder_count) from leasehold_internal.get_scope('s', 'alone')), 't exclusive 0 1', 'an exclusive lease');
select is((select array_agg(concat_ws(' ', owner, mode, units, slots::text)) from leasehold_internal.get_holders('s.gpus', 'box', 2)), array['a shared 2 {1,2}', 'b shared 1 {3}'], 'holders, the oldest first, so many');
select is((select array_agg(concat_ws(' ', owner, mode, units)) from leasehold_internal.get_holders('s', 'alone', 9)), array['c exclusive 0'], 'the exclusive one');
select is((select count(*) from leasehold_internal.get_holders('s', 'unknown', 9)), 0::bigint, 'or none');
select is(t.error_of($$select leasehold_internal.get_holders('a..b', 'k', 1)$$), 'LH002 invalid_argument namespace', 'a bad name is refused');
select is((select array_agg(owner) from leasehold_internal.list_leases('s', true, 100, null, null, null)), array['c', 'a', 'b', 'd', 'r31', 'r32', 'r33', 'r34', 'r35', 'r36', 'r37'], 'the list has all of them');
with recursive page as (
  select 1 as n, l.* from leasehold_internal.list_leases('s', true, 1, null, null, null) l
   union all
  select p.n + 1, l.* from page p cross join lateral leasehold_internal.list_leases('s', true, 1, p.namespace, p.key, null, p_after_token => p.token) l)
select is(array_agg(p.owner order by p.n), array['c', 'a', 'b', 'd', 'r31', 'r32', 'r33', 'r34', 'r35', 'r36', 'r37'], 'in pages of one') from page p;
select is((select array_agg(owner) from leasehold_internal.list_leases('s', true, 100, 's.gpus', 'box', null)), array['r31', 'r32', 'r33', 'r34', 'r35', 'r36', 'r37'], 'after a whole scope');
select is((select array_agg(key) from leasehold_internal.list_leases('s', true, 100, null, null, 'b')), array['box'], 'of one owner');
insert into leasehold.waiter (namespace, key, ticket, lease_key, enqueued_at, owner, principal) values ('s', 'alone', 3, t.key(23), clock_timestamp(), 'b', 'token:b');
update leasehold.waiter set lease_key = (select h.lease_key from leasehold.share h where h.owner = 'b' and h.key = 'box' and h.state = 'held') where lease_key = t.key(23);
select is((select count(*) from leasehold_internal.view_waits(array['s'], true, null, 10, null)), 0::bigint, 'a shared holder that waits elsewhere is no edge: another holder may make room');
delete from leasehold.waiter;

-- The reaper looks again when a policy changes
update leasehold.share set check_at = 'infinity' where owner in ('a', 'r31');
select leasehold.set_policy('s.gpus', grace => '2 s');
select is((select array_agg(owner order by owner) from leasehold.share where check_at < 'infinity' and owner in ('a', 'r31')), array['a'], 'at shared holders of that subtree');

-- The history and the events: each shared hold, and what a downgrade ends and begins
select leasehold.set_policy('w', history => true, capacity => 4);
select leasehold_internal.watch_add(t.key(901), 'w', true);
create function pg_temp.taken() returns text[] language sql as $$
  select array_agg(concat_ws(' ', type, owner, mode, units, slots::text, end_reason, reason, result, error) order by ordinality) from leasehold_internal.take_events(t.key(901), 1000) with ordinality
$$;
create function pg_temp.hold(p_key text, p_lease integer, p_units integer default null) returns bigint language sql as $$
  select l.token from leasehold.acquire('w', p_key, '30 s', owner => 'h' || p_lease, lease_key => t.key(p_lease), mode => case when p_units is null then 'exclusive' else 'shared' end,
                                        units => coalesce(p_units, 1)) l
$$;
create function pg_temp.held(p_key text) returns text[] language sql as $$
  select array_agg(concat_ws(' ', owner, outcome, mode, units, slots::text, result, error, ended_by = session_user) order by token) from leasehold.history where namespace = 'w' and key = p_key
$$;
select pg_temp.hold('k', 51, 2), pg_temp.hold('k', 52, 1);
select is(pg_temp.taken(), array['acquired h51 shared 2 {1,2}', 'acquired h52 shared 1 {3}'], 'watchers see each shared grant');
select leasehold.release_ok('w', 'k', t.key(51), '{"n": 1}');
select is(pg_temp.held('k'), array['h51 ok shared 2 {1,2} {"n": 1}'], 'a shared hold that ended is in the history, while another goes on');
select leasehold.release_fail('w', 'k', t.key(52), 'no');
select is(pg_temp.taken(), array['released h51 shared 2 {1,2} released {"n": 1}', 'released h52 shared 1 {3} failed no'], 'watchers see each end');
select is(pg_temp.held('k'), array['h51 ok shared 2 {1,2} {"n": 1}', 'h52 failed shared 1 {3} no'], 'as the history has it');
select pg_temp.hold('down', 53);
select token as downgraded from leasehold.downgrade('w', 'down', t.key(53), 3) \gset
select is(pg_temp.taken(), array['acquired h53 exclusive 0', 'downgraded h53 shared 3 {1,2,3}'], 'watchers see a downgrade');
select is(pg_temp.held('down'), array['h53 downgraded exclusive 0'], 'which ends the exclusive hold in the history');
select leasehold.release_ok('w', 'down', t.key(53));
select is(pg_temp.held('down'), array['h53 downgraded exclusive 0', 'h53 ok shared 3 {1,2,3}'], 'and begins a shared one');
select is((select token from leasehold.history where key = 'down' and mode = 'shared'), :downgraded, 'with a token of its own');
select is((select array_agg(concat_ws(' ', outcome, mode, units, slots)) from leasehold_internal.view_history(array['w'], false, 'down', 10, null)), array['ok shared 3 1,2,3', 'downgraded exclusive 0'], 'the console shows both');
select pg_temp.hold('ends', 54, 1), pg_temp.hold('ends', 55, 1), pg_temp.taken();
select leasehold.force_release('w', 'ends', 'host is gone', (select token from leasehold.share where lease_key = t.key(54)));
update leasehold.share set acquired_at = acquired_at - interval '1 hour', heartbeat_at = heartbeat_at - interval '1 hour', deadline = deadline - interval '1 hour', check_at = check_at - interval '1 hour'
 where lease_key = t.key(55);
select leasehold.reap();
select is(pg_temp.held('ends'), array['h54 forced shared 1 {1} host is gone t', 'h55 expired shared 1 {2}'], 'by force, and by the reaper');
select is(pg_temp.taken(), array['forced h54 shared 1 {1} forced host is gone', 'expired h55 shared 1 {2} expired'], 'of which watchers hear');
select pg_temp.hold('over', 56, 1);
update leasehold.share set acquired_at = acquired_at - interval '1 hour', heartbeat_at = heartbeat_at - interval '1 hour', deadline = deadline - interval '1 hour', check_at = check_at - interval '1 hour'
 where lease_key = t.key(56);
select pg_temp.hold('over', 57);
select is(pg_temp.taken(), array['acquired h56 shared 1 {1}', 'expired h56 shared 1 {1} expired', 'acquired h57 exclusive 0'], 'a takeover: first the end, then the grant');
select is(pg_temp.held('over'), array['h56 expired shared 1 {1}'], 'and the history has the hold before');

-- Quotas count holders, exactly
select leasehold.set_policy('q', max_leases => 3);
select leasehold.acquire('q', 'k', '30 s', mode => 'shared', lease_key => t.key(60 + n)) from generate_series(1, 2) n;
select leasehold.acquire('q', 'x', '30 s', lease_key => t.key(63));
select is(t.error_of($$select leasehold.acquire('q', 'k', '30 s', mode => 'shared')$$), 'LH004 quota_exceeded', 'the fourth lease of three is refused');
select leasehold.release_ok('q', 'k', t.key(61));
select is(t.error_of($$select leasehold.acquire('q', 'k', '30 s', mode => 'shared')$$), '', 'a holder that went makes room');
select is(t.error_of($$select leasehold.acquire('q', 'y', '30 s')$$), 'LH004 quota_exceeded', 'once');
select is((select outcome from leasehold_internal.acquire_batch(t.key(901), null, array['q'], array['k'], array[t.key(69)], array['o'], array['{}'], array[30000000::bigint], array[true], array[null::bigint],
  array[0::bigint], p_units => array[1])), 'quota', 'of daemons too');

-- A row that ended is remembered for free_retention, and goes then
select leasehold.set_policy('r', free_retention => '1 hour');
select leasehold.acquire('r', 'k', '30 s', mode => 'shared', lease_key => t.key(71));
select leasehold.release_ok('r', 'k', t.key(71));
update leasehold.share set ended_at = ended_at - interval '50 min', check_at = clock_timestamp() where namespace = 'r';
select leasehold.reap();
select is((select count(*) from leasehold.share where namespace = 'r'), 1::bigint, 'a lease that ended is remembered');
select is(t.error_of($$select leasehold.acquire('r', 'k', '30 s', mode => 'shared', lease_key => t.key(71))$$), 'LH006 lease_ended', 'so that its lease key grants nothing more');
select leasehold.set_policy('r', free_retention => '40 min');
select leasehold.reap();
select is((select count(*) from leasehold.share where namespace = 'r'), 0::bigint, 'a shorter retention acts at once');

-- Who may see what
create role seen_client in role leasehold_client;
create role seen_reader in role leasehold_reader;
select is(t.denied(role, 'select * from leasehold.share'), true, role || ' does not read the table: lease keys are in it')
  from unnest(array['seen_client', 'seen_reader']) role;
set role seen_client;
select array_agg(coalesce(token::text, '-') || coalesce(lease_key::text, '-') || owner order by owner) as seen from leasehold.lease where key = 'box' \gset
reset role;
select is(:'seen'::text, '{--a,--b,--d}', 'a client sees who holds what, neither tokens nor lease keys');
set role seen_reader;
select array_agg(coalesce(token::text, '-') || coalesce(lease_key::text, '-') || owner order by owner) as seen from leasehold.lease where key = 'box' \gset
reset role;
select is(:'seen'::text, '{11-a,12-b,15-d}', 'a reader the tokens too');
create role seen_ruled login in role leasehold_reader;
select leasehold.access_grant('role:seen_ruled', 's.open', 'read');
set session authorization seen_ruled;
select count(*) as held, count(*) filter (where namespace <> 's.open') as others from leasehold.lease \gset
create function pg_temp.peek(p_text text) returns boolean language plpgsql cost 0.0001 as $$ begin perform set_config('seen.peeked', current_setting('seen.peeked', true) || p_text, false); return true; end $$;
select set_config('seen.peeked', '', false);
select count(*) from leasehold.lease where pg_temp.peek(owner);
reset session authorization;
select is(:'held'::text || ' ' || :'others', '7 0', 'where rules name roles, what may be read is shown alone');
select matches(current_setting('seen.peeked'), '^(r3\d)+$', 'and a function in the WHERE sees nothing else');
select leasehold.access_revoke('role:seen_ruled', 's.open');
-- What one holder of many does reads its own row, not those of the others: rows of leasehold.share that an index led to, in that transaction
select pg_temp.share('many', 10000 + n, 1, null, 'm' || n, '0 s', 's.many') from generate_series(1, 400) n;
create function pg_temp.rows_read(p_sql text) returns bigint language plpgsql as $$
declare
  v_before bigint;
begin
  select idx_tup_fetch into v_before from pg_stat_xact_user_tables where relid = 'leasehold.share'::regclass;
  execute p_sql;
  return (select idx_tup_fetch from pg_stat_xact_user_tables where relid = 'leasehold.share'::regclass) - v_before;
end
$$;
select cmp_ok(pg_temp.rows_read(format('select leasehold_internal.%s_batch(%s array_fill(%L::text, array[20]), array_fill(%L::text, array[20]),'
                                       ' array(select t.key(n) from generate_series(10101, 10120) n)%s)', verb, before, 's.many', 'many', after)),
              '<', 400::bigint, 'a batch of 20, ' || verb || ', does not read all of 400 holders for each')
  from (values (1, 'heartbeat', '', ''), (2, 'release', 'null,', ', array_fill(false, array[20]), array_fill(null::text, array[20])')) v (n, verb, before, after)
 order by n;
select is((select count(*) from leasehold.share where key = 'many' and state = 'held' and heartbeats = 0), 380::bigint, 'and they were renewed and released');

select * from finish();
