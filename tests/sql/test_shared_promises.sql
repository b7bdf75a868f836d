-- Promises 2, 3, 4, 6, 7 and 8 where several share a scope, by the public functions. Others: test_shared.sql, shared_*.spec.
select no_plan();
select leasehold.set_policy('', grace => '1 s');
select leasehold.set_policy('p', capacity => 3, history => true);
select leasehold.reap();
create table t.token (nth serial, token bigint);
-- The token of a grant to `p_lease`, shared for so many units (null: exclusively), or null.
create function t.take(p_key text, p_lease integer, p_units integer default 1) returns bigint language sql as $$
  select token from leasehold.acquire('p', p_key, '30 s', 'w' || p_lease, t.key(p_lease), mode => case when p_units is null then 'exclusive' else 'shared' end,
                                      units => coalesce(p_units, 1))
$$;
create function t.holders(p_key text) returns text language sql as $$
  select string_agg(owner, ' ' order by token) from leasehold.lease where namespace = 'p' and key = p_key
$$;
create function t.is_late(p_key text, p_lease integer) returns void language sql as $$
  update leasehold.share set acquired_at = acquired_at - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h', deadline = deadline - interval '1 h',
                             check_at = check_at - interval '1 h'
   where namespace = 'p' and key = p_key and lease_key = t.key(p_lease);
  update leasehold.scope set incarnation = null where namespace = 'p' and key = p_key and state = 'shared'
$$;

-- Promise 2: tokens only grow, over grants beside others, releases, a downgrade, an expiry, the deletion of the row and a new epoch.
insert into t.token (token) select t.take('grow', n) from generate_series(1, 3) n;
select is(t.take('grow', 4), null, 'all units are taken');
select leasehold.release_ok('p', 'grow', t.key(1));
insert into t.token (token) values (t.take('grow', 4));
select t.is_late('grow', 2);
insert into t.token (token) values (t.take('grow', 5));
select is(t.holders('grow'), 'w3 w4 w5', 'one has taken the place of one that expired');
select count(*) from (select leasehold.release_ok('p', 'grow', t.key(n)) from generate_series(3, 5) n) r;
insert into t.token (token) values (t.take('grow', 6, null));
insert into t.token (token) select token from leasehold.downgrade('p', 'grow', t.key(6), 2);
insert into t.token (token) values (t.take('grow', 7));
select leasehold.release_ok('p', 'grow', t.key(6)), leasehold.release_ok('p', 'grow', t.key(7));
select leasehold.set_policy('p', free_retention => '0 s');
update leasehold.share set check_at = clock_timestamp(), ended_at = ended_at - interval '1 h' where namespace = 'p';
update leasehold.scope set check_at = clock_timestamp(), ended_at = ended_at - interval '1 h' where namespace = 'p';
select leasehold.reap();
update leasehold.scope set check_at = clock_timestamp(), ended_at = ended_at - interval '1 h' where namespace = 'p';
select leasehold.reap();
select is((select count(*) from leasehold.scope where namespace = 'p') + (select count(*) from leasehold.share where namespace = 'p'), 0::bigint, 'the rows go');
insert into t.token (token) values (t.take('grow', 8));
select leasehold.bump_epoch();
insert into t.token (token) values (t.take('grow', 9));
select is((select count(token) from t.token), 10::bigint, 'ten grants');
select ok(bool_and(token > previous), 'each has a larger token than all before it') from (select token, max(token) over (order by nth rows between unbounded preceding and 1 preceding) as previous from t.token) x where previous is not null;
select leasehold.set_policy('p', free_retention => '1 h');

-- Promise 3: before its expiry each is renewed, after it never, whoever shares the scope with it.
select isnt(t.take('late', n), null, '') from generate_series(11, 12) n;
select isnt(leasehold.heartbeat('p', 'late', t.key(11)), null, 'one renews');
select t.is_late('late', 12);
select is(leasehold.heartbeat('p', 'late', t.key(12)), null, 'one that is late does not, though nobody has ended it');
select is((select deadline < clock_timestamp() from leasehold.share where lease_key = t.key(12)), true, 'nor is its deadline moved');
select isnt(leasehold.heartbeat('p', 'late', t.key(11)), null, 'the other renews again');

-- Promise 4: four things end one of several leases, and it alone.
select isnt(t.take('four', n), null, '') from generate_series(21, 23) n;
select is(leasehold.release_ok('p', 'four', t.key(24)), false, 'no stranger''s release does');
select is((select count(*) from leasehold.reap()), 1::bigint, 'nor the reaper before its expiry: it ends the late one of before');
select is(t.take('four', 24), null, 'nor an acquirer before it');
select throws_ok($$select leasehold.force_release('p', 'four', 'why')$$, 'LH002', null, 'nor force-release, where it does not say which');
select is(t.holders('four'), 'w21 w22 w23', 'all have it still');
select is(leasehold.release_ok('p', 'four', t.key(21)), true, 'its holder');
select t.is_late('four', 22);
select is((select array_agg(owner) from leasehold.reap(array['p'])), array['w22'], 'the reaper after its expiry');
select isnt(t.take('four', 24, 2), null, '');
select t.is_late('four', 24);
select isnt(t.take('four', 25, 2), null, 'an acquirer that needs its units after its expiry');
select is((select array_agg(owner) from leasehold.force_release('p', 'four', 'why', (select token from leasehold.share where lease_key = t.key(23)))), array['w23'], 'an administrator');
select is(t.holders('four'), 'w25', 'the last one has its own');
select is((select string_agg(owner || ' ' || outcome, ', ' order by owner) from leasehold.history where key = 'four'),
          'w21 ok, w22 expired, w23 forced, w24 expired', 'each end is written down once');

-- Promise 6: first come, first served.
select isnt(t.take('line', 31, 2), null, 'two units are taken');
select is((select position from leasehold.join_queue('p', 'line', t.key(32), mode => 'shared', units => 2)), 1, 'one waits for two');
select is((select position from leasehold.join_queue('p', 'line', t.key(33))), 2, 'one for all of it');
select is((select position from leasehold.join_queue('p', 'line', t.key(34), mode => 'shared')), 3, 'one for one');
select is(array[t.take('line', 34), t.take('line', 33, null), t.take('line', 35)], array[null, null, null]::bigint[], 'a unit is free, and nobody overtakes');
select leasehold.release_ok('p', 'line', t.key(31));
select is(array[t.take('line', 34), t.take('line', 33, null)], array[null, null]::bigint[], 'nor when there is more');
select isnt(t.take('line', 32, 2), null, 'the first is first');
select leasehold.release_ok('p', 'line', t.key(32));
select is(t.take('line', 34), null, '');
select isnt(t.take('line', 33, null), null, 'then the second');

-- Promise 7: a repeat is the same acquisition, until it has ended.
select isnt(t.take('again', 41, 2), null, '');
select is(t.take('again', 41, 2), (select token from leasehold.share where lease_key = t.key(41)), 'a repeat has the same token');
select isnt(t.take('again', 42, 1), null, 'and takes no more units');
select is((select array[units, holders] from leasehold.scope where key = 'again'), array[3, 2], '');
select leasehold.release_ok('p', 'again', t.key(41));
select is(leasehold.release_ok('p', 'again', t.key(41)), false, 'a release that is repeated ends nothing');
select throws_ok($$select t.take('again', 41, 2)$$, 'LH006', null, 'its lease key has ended');
select is(t.holders('again'), 'w42', 'which is nothing to the other');

-- Promise 8: what a hook has written commits or rolls back with the lease of its holder.
create table t.called (event text, owner text);
create function t.note(e leasehold.lease_event) returns void language plpgsql as $$
begin
  insert into t.called values (e.event, e.owner);
  if e.owner in ('w53', 'w52') and e.event <> 'release_ok' then raise exception 'not %', e.owner; end if;
end $$;
alter function t.note(leasehold.lease_event) owner to leasehold_owner;
grant all on t.called to leasehold_owner;
select isnt(t.take('hook', n), null, '') from generate_series(51, 52) n;
select leasehold.add_hook('p', e, 't.note(leasehold.lease_event)') from unnest(array['acquire', 'heartbeat', 'release_ok', 'reap']) e;
select throws_ok($$select t.take('hook', 53)$$, 'LH005', null, 'a hook refuses one of several');
select is(t.holders('hook'), 'w51 w52', 'it has no lease');
select is((select array[units, holders] from leasehold.scope where key = 'hook'), array[2, 2], 'and takes no units');
select isnt(leasehold.heartbeat('p', 'hook', t.key(51)), null, 'another renews');
select t.is_late('hook', n) from generate_series(51, 52) n;
select is((select string_agg(owner || ' ' || outcome, ', ' order by owner) from leasehold.reap(array['p']) where key = 'hook'), 'w51 reaped, w52 failed', 'a reap that fails delays no other lease of the scope');
select is((select reap_failures from leasehold.share where lease_key = t.key(52)), 1, 'and is recorded');
select is((select string_agg(event || ' ' || owner, ', ' order by event, owner) from t.called), 'heartbeat w51, reap w51', 'what the others wrote is there, what the refused wrote is not');
select * from finish();
