-- Shared leases: who is granted what, in which order, with which numbers; renewals, releases, expiry and takeover of each holder by itself.
select no_plan();
select leasehold.set_policy('', grace => '1 s');
select t.enroll(t.key(901)), t.enroll(t.key(902));
-- Ask in one batch for one scope: lease keys, and for each how many units (0: exclusively). 'granted 1 {1}' is outcome, units and numbers.
create function t.ask(p_ns text, p_leases integer[], p_units integer[], p_coordinator integer default 901, p_queue boolean default true)
returns text language sql as $$
  select string_agg(concat_ws(' ', b.outcome, case when b.outcome in ('granted', 'renewed') then nullif(b.units, 0) end,
                              case when b.outcome in ('granted', 'renewed') then b.slots end, b.field, b.bound), ', ' order by b.n)
    from leasehold_internal.acquire_batch(
           t.key(p_coordinator), null, array_fill(p_ns, array[cardinality(p_leases)]), array_fill('k'::text, array[cardinality(p_leases)]),
           array(select t.key(l) from unnest(p_leases) l), array(select 'w' || l from unnest(p_leases) l),
           array_fill('{}'::text, array[cardinality(p_leases)]), array_fill(30000000::bigint, array[cardinality(p_leases)]),
           array_fill(p_queue, array[cardinality(p_leases)]), array_fill(null::bigint, array[cardinality(p_leases)]),
           array_fill(null::bigint, array[cardinality(p_leases)]), null, null,
           array(select nullif(u, 0) from unnest(p_units) u)) b
$$;
create function t.ask(p_ns text, p_lease integer, p_units integer, p_coordinator integer default 901, p_queue boolean default true)
returns text language sql as $$ select t.ask(p_ns, array[p_lease], array[p_units], p_coordinator, p_queue) $$;
create function t.let_go(p_ns text, variadic p_leases integer[]) returns text language sql as $$
  select string_agg(r.outcome || coalesce(' ' || r.end_reason, '') || case when r.wake then ' wake' else '' end, ', ' order by r.n)
    from leasehold_internal.release_batch(
           t.key(901), array_fill(p_ns, array[cardinality(p_leases)]), array_fill('k'::text, array[cardinality(p_leases)]),
           array(select t.key(l) from unnest(p_leases) l), array_fill(false, array[cardinality(p_leases)]),
           array_fill(null::text, array[cardinality(p_leases)])) r
$$;
create function t.beat(p_ns text, variadic p_leases integer[]) returns text language sql as $$
  select string_agg(r.outcome || coalesce(' ' || r.end_reason, ''), ', ' order by r.n)
    from leasehold_internal.heartbeat_batch(
           array_fill(p_ns, array[cardinality(p_leases)]), array_fill('k'::text, array[cardinality(p_leases)]),
           array(select t.key(l) from unnest(p_leases) l)) r
$$;
-- 'shared 3 2': state, units and holders where there are some, which the rows of the holders bear out; then those who wait, in order.
create function t.stands(p_ns text) returns text language sql as $$
  select concat_ws(' ', s.state, s.units, nullif(s.holders, 0),
                   case when (coalesce(s.units, 0), coalesce(s.holders, 0)) <> (select coalesce(sum(h.units), 0), count(*) from leasehold.share h
                                                                                 where h.namespace = s.namespace and h.state = 'held') then 'WRONG' end,
                   case when s.state = 'shared' and not s.queued then 'NOT QUEUED' end,
                   (select 'waits ' || string_agg(right(w.lease_key::text, 3)::integer || coalesce('/' || w.units, ''), ' ' order by w.ticket)
                      from leasehold.waiter w where w.namespace = s.namespace))
    from leasehold.scope s where s.namespace = p_ns
$$;
create function t.age_share(p_ns text, p_lease integer, p_by interval) returns void language sql as $$
  update leasehold.share set acquired_at = acquired_at - p_by, heartbeat_at = heartbeat_at - p_by, deadline = deadline - p_by,
                             ended_at = ended_at - p_by, check_at = check_at - p_by
   where namespace = p_ns and lease_key = t.key(p_lease);
  -- What the scope says of all of them is not true then.
  update leasehold.scope set incarnation = null where namespace = p_ns and state = 'shared'
$$;
create function t.token_of(p_ns text, p_lease integer) returns bigint language sql as $$
  select token from leasehold.share where namespace = p_ns and lease_key = t.key(p_lease)
$$;

-- without a capacity: any number of readers, or one writer
select is(t.ask('rw', array[1, 2, 3], array[1, 1, 5]), 'granted 1, granted 1, granted 5', 'readers share, and have no numbers without a capacity');
select is(t.stands('rw'), 'shared 7 3', 'the scope counts them');
select is(t.ask('rw', 4, 0), 'queued', 'a writer waits for them');
select is(t.ask('rw', 5, 1), 'queued', 'and a reader that comes later waits behind it: nobody overtakes');
select is(t.ask('rw', 9, 1, p_queue => false), 'held', 'nor does one that does not wait');
select is((select concat_ws(' ', mode, units, holder_count, units_free, owner) from leasehold_internal.acquire_batch(
             t.key(901), null, array['rw'], array['k'], array[t.key(10)], array['w10'], array['{}'], array[30000000], array[false], array[null::bigint], array[null::bigint])),
          'shared 1 3 w1', 'who is refused is told of the oldest holder, and how many there are');
select is(t.let_go('rw', 1, 3), 'ok, ok', 'two readers leave: nobody is woken, for one is left');
select is(t.stands('rw'), 'shared 1 1 waits 4 5/1', 'it has the scope still');
select is(t.let_go('rw', 2), 'ok wake', 'the last one wakes the writer');
select is(t.ask('rw', 5, 1), 'queued', 'whoever is not first waits on');
select is(t.ask('rw', 4, 0), 'granted', 'the writer has it');
select is(t.stands('rw'), 'held waits 5/1', 'alone');
select is(t.ask('rw', 5, 1), 'queued', 'a reader waits for a writer');
select is(t.let_go('rw', 4), 'ok wake', 'it is woken');
select is(t.ask('rw', array[6, 5], array[1, 1]), 'granted 1, granted 1', 'the longest prefix that fits is granted, newcomers behind those who waited');
select cmp_ok(t.token_of('rw', 5), '<', t.token_of('rw', 6), 'in the order of their places');
select is(t.ask('rw', array[7, 8, 9], array[1, 0, 1]), 'granted 1, queued, queued', 'of a batch too: nobody behind a writer');
select is(t.stands('rw'), 'shared 3 3 waits 8 9/1', 'they wait in that order');
select ok(bool_and(a.token < b.token), 'each grant has a larger token than all before it')
  from leasehold.share a join leasehold.share b on a.namespace = b.namespace and a.acquired_at < b.acquired_at where a.namespace = 'rw';

select is(t.ask('first', array[1, 2, 3], array[0, 1, 0]), 'granted, queued, queued', 'a writer that is first in a batch has it alone');
select is(t.stands('first'), 'held waits 2/1 3', 'the others wait');

-- a capacity: units and numbers
select leasehold.set_policy('sem', capacity => 5);
select is(t.ask('sem', array[1, 2, 3], array[1, 2, 1]), 'granted 1 {1}, granted 2 {2,3}, granted 1 {4}', 'each gets the lowest free numbers');
select is(t.ask('sem', array[4, 5], array[2, 1]), 'queued, queued', 'a small request does not overtake a large one that does not fit');
select is(t.let_go('sem', 1), 'ok wake', 'with one more free the large one is woken, for it fits now');
select is(t.ask('sem', array[5, 4], array[1, 2]), 'queued, granted 2 {1,5}', 'it gets the lowest free numbers, which need not be neighbours');
select is(t.stands('sem'), 'shared 5 3 waits 5/1', 'the capacity is taken');
select is(t.let_go('sem', 2), 'ok wake', 'two units come back');
select is(t.ask('sem', array[5, 6], array[1, 1]), 'granted 1 {2}, granted 1 {3}', 'and are granted to two');
select is(t.ask('sem', 7, 6), 'invalid units 1 to 5, the capacity, is 6', 'more than the capacity is invalid');
select is(t.ask('sem', 7, 0, p_queue => false), 'held', 'exclusively it is not free');
select is(t.ask('sem', array[11, 12], array[0, -1]), 'queued, invalid units 1 to 1000000, is -1', 'units are at least 1');
select is(t.ask('many', 12, 1000001), 'invalid units 1 to 1000000, is 1000001', 'at most a million');
select is((select units_free from leasehold_internal.acquire_batch(t.key(901), null, array['sem'], array['k'], array[t.key(13)], array['w'], array['{}'],
             array[30000000], array[false], array[null::bigint], array[null::bigint])), 0, 'what is free is told');
select throws_ok($$select leasehold.acquire('sem', 'k', '30 s', mode => 'shared', units => 6)$$, 'LH002', 'invalid_argument: units must be 1 to 5, is 6', 'in SQL too');
select throws_ok($$select leasehold.acquire('sem', 'k', '30 s', mode => 'some')$$, 'LH002', 'invalid_argument: mode must be exclusive or shared, is some', 'a mode has a name');
select throws_ok($$select leasehold.acquire('sem', 'k', '30 s', units => 2)$$, 'LH002', 'invalid_argument: units must be 1 for an exclusive lease, is 2', 'an exclusive lease has no units');
select throws_ok($$select leasehold.acquire('sem', 'k', '30 s', mode => 'shared', at_least => '2 s')$$, 'LH002',
                 'invalid_argument: at_least must be absent for a shared lease', 'a shared lease has no minimum hold');

-- a lowered capacity revokes nobody
select leasehold.set_policy('low', capacity => 4);
select is(t.ask('low', array[1, 2, 3], array[1, 2, 1]), 'granted 1 {1}, granted 2 {2,3}, granted 1 {4}', 'four units are taken');
select is(t.ask('low', array[4, 5], array[3, 1]), 'queued, queued', 'and two wait');
select leasehold.set_policy('low', capacity => 2);
select is(t.beat('low', 1, 2, 3), 'ok, ok, ok', 'all are held on');
select is(t.let_go('low', 1), 'ok wake', 'the first waiter can never fit any more: it is woken');
select is(t.ask('low', 4, 3), 'invalid units 1 to 2, the capacity, is 3', 'and is told so');
select is(t.stands('low'), 'shared 3 2 waits 5/1', 'the queue goes on');
select is(t.ask('low', 5, 1), 'queued', 'nothing is granted above the new capacity');
select is(t.let_go('low', 2), 'ok wake', 'one is left');
select is(t.ask('low', 5, 1), 'granted 1 {1}', 'then there is room');
select is((select slots from leasehold.share where namespace = 'low' and lease_key = t.key(3)), array[4], 'numbers above a lowered capacity stay until their lease ends');
select is(t.ask('low', 2, 2), 'ended', 'a lease key that has ended is refused');
select is(t.ask('low', 3, 1), 'renewed 1 {4}', 'a repeat keeps its numbers');
select leasehold.set_policy('late', max_waiters => 9);
select is(t.ask('late', 1, 1), 'granted 1', 'a holder from before a capacity was set');
select leasehold.set_policy('late', capacity => 2);
select is(t.ask('late', 2, 1), 'granted 1 {1}', 'has no number, and takes its units all the same');
select is(t.ask('late', 3, 1), 'queued', 'the capacity is taken');

-- units are at most a million in one scope: one who asks for as many as a call may name gets them
-- Promise 12.
select is(t.ask('many', array[1, 2], array[1000000, 1]), 'granted 1000000, quota units = 1000000 in one scope', 'more than a million units are too many');
select is(t.ask('many.a', array[1, 2, 3], array[1, 1000000, 2]), 'granted 1, quota units = 1000000 in one scope, granted 2', 'those behind it in the batch are granted');
select is(t.ask('many.b', array[1, 2, 3], array[999990, 11, 10]), 'granted 999990, quota units = 1000000 in one scope, granted 10', 'where they fit');
select is(t.stands('many.b'), 'shared 1000000 2', 'and it takes no units');
select is((select units from leasehold.acquire('many.d', 'k', '30 s', mode => 'shared', units => 1000000)), 1000000, 'in SQL too');
select is(t.error_of($$select leasehold.acquire('many.d', 'k', '30 s', mode => 'shared', units => 1000001)$$), 'LH002 invalid_argument units', 'and no call names more');
select leasehold.set_policy('many.c', capacity => 1000000);
select is(regexp_replace(t.ask('many.c', array[1, 2, 3], array[999000, 1001, 7]), '{[^}]*}', '{}', 'g'),
          'granted 999000 {}, queued, queued', 'with a capacity of a million what does not fit waits');
select is(t.ask('many.c', array[4, 5], array[1000000, 1]), 'queued, queued', 'and whoever is behind it');

-- repeats
-- Promise 7.
select is(t.ask('again', array[1, 2], array[2, 1]), 'granted 2, granted 1', 'two share');
select is(t.ask('again', 1, 2), 'renewed 2', 'a repeat renews');
select is((select heartbeats from leasehold.share where namespace = 'again' and lease_key = t.key(1)), 1::bigint, 'and counts as a heartbeat');
select is(t.ask('again', 1, 1), 'invalid units 2, as this lease key holds it', 'with other units it is invalid');
select is(t.ask('again', 1, 0), 'invalid mode shared, as this lease key holds it: release it before you acquire it exclusively', 'an upgrade is refused');
select is(t.ask('again', array[3, 3], array[1, 1]), 'granted 1, renewed 1', 'the same lease key twice in a batch is one acquisition');
select is(t.stands('again'), 'shared 4 3', 'and takes its units once');
select is(t.ask('mine', 1, 0), 'granted', 'an exclusive holder');
select is(t.ask('mine', 1, 1), 'invalid mode exclusive, as this lease key holds it: downgrade it to share it', 'that asks for a shared lease is told of downgrade');
-- what a daemon sends that knows no modes
select is((select outcome from leasehold_internal.acquire_batch(t.key(902), null, array['again'], array['k'], array[t.key(20)], array['old'], array['{}'],
             array[30000000], array[true], array[null::bigint], array[null::bigint], array['token:x'], array[null::bigint])), 'queued', 'an older daemon''s request waits for shared holders');
select is((select outcome from leasehold_internal.acquire_batch(t.key(902), null, array['again'], array['k'], array[t.key(2)], array['old'], array['{}'],
             array[30000000], array[true], array[null::bigint], array[null::bigint], array['token:x'], array[null::bigint])), 'invalid', 'and does not turn a shared lease into an exclusive one');
select is((select string_agg(outcome, ',' order by part desc, n) from leasehold_internal.hand_over_batch(t.key(902), array['again'], array['k'], array[t.key(1)], array[false], array[null], null,
             array['again'], array['k'], array[t.key(20)], array['old'], array['{}'], array[30000000], array[true], array[null::bigint], array[null::bigint], array['token:x'], array[null::bigint])),
          'ok,queued', 'nor does its hand-over grant while others share it');
select is((select string_agg(outcome, ',' order by part desc, n) from leasehold_internal.hand_over_batch(t.key(902), array['again', 'again'], array['k', 'k'], array[t.key(2), t.key(3)], array[false, false], array[null, null], null,
             array['again'], array['k'], array[t.key(20)], array['old'], array['{}'], array[30000000], array[true], array[null::bigint], array[null::bigint], array['token:x'], array[null::bigint])),
          'ok,ok,granted', 'with the last holder it passes');
select is(t.stands('again'), 'held', 'and is exclusive then');
select is(t.ask('again', 1, 0), 'ended', 'the shared lease keys are remembered');
select is((select outcome from leasehold_internal.hand_over_batch(t.key(902), array['again'], array['k'], array[t.key(20)], array[false], array[null], null,
             array['again'], array['k'], array[t.key(1)], array['old'], array['{}'], array[30000000], array[true], array[null::bigint], array[null::bigint], array['token:x'], array[null::bigint]) where part = 'acquire'),
          'ended', 'by a hand-over too');
select is(t.ask('again', 3, 0), 'ended', 'by a grant of a free scope too');

-- several for one scope in a hand-over
select is(t.ask('over', 1, 0), 'granted', 'one has it alone');
select is(t.ask('over', array[2, 3, 4, 5], array[1, 1, 0, 1]), 'queued, queued, queued, queued', 'others wait');
select is((select string_agg(outcome || coalesce(' ' || nullif(units, 0), ''), ', ' order by part desc, n)
             from leasehold_internal.hand_over_batch(t.key(901), array['over'], array['k'], array[t.key(1)], array[false], array[null], null,
                    array['over', 'over'], array['k', 'k'], array[t.key(2), t.key(3)], array['w2', 'w3'], array['{}', '{}'], array[30000000, 30000000], array[true, true],
                    array[null, null]::bigint[], array[null, null]::bigint[], null, null, array[1, 1])), 'ok, granted 1, granted 1', 'a hand-over grants to several');
select is(t.stands('over'), 'shared 2 2 waits 4 5/1', 'and leaves those who may not share');

-- heartbeats touch the holder's row alone
select is(t.beat('over', 2, 3, 4), 'ok, ok, lost unknown', 'shared holders renew');
select is(t.beat('over', 3), 'ok', 'one by one too');
select is(leasehold.heartbeat('over', 'k', t.key(2)) is not null, true, 'in SQL too');
select is((select array_agg(heartbeats order by token) from leasehold.share where namespace = 'over'), array[2, 2]::bigint[], 'that is counted');
select is((select count(*) from pg_index i, unnest(i.indkey::smallint[]) as k (attnum) join pg_attribute a on a.attname in ('deadline', 'heartbeat_at', 'heartbeats', 'incarnation', 'lapsed')
            where i.indrelid = 'leasehold.share'::regclass and a.attrelid = i.indrelid and a.attnum = k.attnum), 0::bigint, 'nothing a heartbeat changes is indexed');
select is(t.let_go('over', 2, 2, 3), 'ok wake, lost released, ok wake', 'a lease twice in a batch is released once, and the last holder wakes the writer');
select is(t.beat('over', 2), 'lost released', 'a late heartbeat is told how it ended');
select is(t.let_go('over', 2), 'lost released', 'and a late release');
select is(leasehold.release_fail('over', 'k', t.key(2), 'late'), false, 'in SQL too');

-- each holder expires by itself
select leasehold.set_policy('exp', capacity => 3);
select is(t.ask('exp', array[1, 2, 3], array[1, 1, 1]), 'granted 1 {1}, granted 1 {2}, granted 1 {3}', 'three hold');
select t.age_share('exp', 2, '1 hour');
select is(t.beat('exp', 1, 3), 'ok, ok', 'two renew');
select is(t.ask('exp', 4, 1), 'granted 1 {2}', 'what has expired is taken over by whoever does not fit beside it');
select is((select concat_ws(' ', state, outcome) from leasehold.share where namespace = 'exp' and lease_key = t.key(2)), 'ended expired', 'it has ended as expired');
-- Promise 11.
select is(t.beat('exp', 2), 'lost expired', 'and its holder is told');
select is(t.stands('exp'), 'shared 3 3', 'the others have theirs');
select t.age_share('exp', 1, '1 hour');
select is(t.beat('exp', 1), 'lost expired', 'one that comes too late is lost before anybody reaped it');
update leasehold.share set heartbeat_at = clock_timestamp(), deadline = clock_timestamp() + interval '1 hour' where namespace = 'exp' and lease_key = t.key(1);
select is(t.beat('exp', 1), 'lost expired', 'and never revives');
select is(t.ask('exp', 1, 1), 'ended', 'nor by an acquire');
select is_empty($$select from leasehold_internal.reap_batch(t.key(901), null, array['exp'], false, 10, false, p_key => 'other')$$, 'the reaper of another scope leaves it');
select is((select kind || ' ' || mode || ' ' || slots::text from leasehold_internal.reap_batch(t.key(901), null, array['exp'], false, 10, false)), 'reaped shared {1}', 'the reaper ends it');
select is(t.stands('exp'), 'shared 2 2', 'alone');
select t.age_share('exp', 3, '1 hour'), t.age_share('exp', 4, '1 hour');
select is(t.ask('exp', 5, 0), 'granted', 'a writer takes over when all have expired');
select is(t.stands('exp'), 'held', 'and holds it');
select is((select array_agg(outcome order by lease_key) from leasehold.share where namespace = 'exp'), array_fill('expired'::text, array[4]), 'all have ended as expired');
select is(t.ask('way', array[1, 2], array[1, 1]), 'granted 1, granted 1', 'two readers');
select t.age_share('way', 1, '1 hour');
select is(t.ask('way', 3, 0), 'queued', 'a writer waits for the one that is alive');
select is(t.stands('way'), 'shared 1 1 waits 3', 'the other has ended');
-- by check_at
select is(t.ask('due', array[1, 2], array[1, 1]), 'granted 1, granted 1', 'two readers');
select t.age_share('due', 1, '1 hour');
select is((select string_agg(kind, ',') from leasehold_internal.reap_batch(t.key(901), null, null, false, 100, true) where namespace = 'due'), 'reaped', 'the one that is due is reaped');
update leasehold.share set check_at = clock_timestamp() - interval '1 s' where namespace = 'due';
update leasehold.scope set check_at = clock_timestamp() - interval '1 s' where namespace = 'due';
select is((select count(*) from leasehold_internal.reap_batch(t.key(901), null, null, false, 100, true) where namespace = 'due'), 0::bigint, 'a visit to what is alive ends nothing');
select is((select check_at = deadline + grace from leasehold.share where namespace = 'due' and state = 'held'), true, 'and moves on to its expiry');
select is((select check_at from leasehold.scope where namespace = 'due'), 'infinity', 'a shared scope that nobody waits for need not be visited');
select is(t.let_go('due', 2), 'ok', 'the last one leaves');
select t.age_share('due', 1, '1 hour'), t.age('due', 'k', '1 hour');
select count(*) from leasehold_internal.reap_batch(t.key(901), null, null, false, 100, true);
select is((select array_agg(right(lease_key::text, 1)) from leasehold.share where namespace = 'due'), array['2'], 'an ended row goes after free_retention');
select is((select count(*) from leasehold.scope where namespace = 'due'), 1::bigint, 'the scope stays while one is left');
select t.age_share('due', 2, '1 hour');
update leasehold.scope set check_at = clock_timestamp() - interval '1 s' where namespace = 'due';
select count(*) from leasehold_internal.reap_batch(t.key(901), null, null, false, 100, true);
update leasehold.scope set check_at = clock_timestamp() - interval '1 s' where namespace = 'due';
select count(*) from leasehold_internal.reap_batch(t.key(901), null, null, false, 100, true);
select is((select count(*) from leasehold.scope where namespace = 'due') + (select count(*) from leasehold.share where namespace = 'due'), 0::bigint, 'then it goes too');

-- promise 9: a new life of the database gives each holder its time
select is(t.ask('life', array[1, 2], array[1, 1]), 'granted 1, granted 1', 'two readers');
select t.age_share('life', 1, '1 hour'), t.age_share('life', 2, '1 hour');
select leasehold_internal.renew_incarnation('a test');
select is(t.ask('life', 3, 0), 'queued', 'nobody is taken over');
select is((select count(*) from leasehold_internal.reap_batch(t.key(901), null, array['life'], false, 10, false)), 0::bigint, 'or reaped');
select is(t.beat('life', 1), 'ok', 'a holder renews');
update leasehold.incarnation set started_at = started_at - interval '1 hour';
select is((select string_agg(lease_key::text, ',') from leasehold_internal.reap_batch(t.key(901), null, array['life'], false, 10, false)), t.key(2)::text, 'who has not is reaped then');

-- manual: nobody is taken over, and a late heartbeat succeeds
select leasehold.set_policy('man', expiry => 'manual');
select is(t.ask('man', 1, 1), 'granted 1', 'a reader');
select t.age_share('man', 1, '1 hour');
select is(t.ask('man', 2, 0), 'queued', 'it is not taken over');
select is(t.beat('man', 1), 'ok', 'and renews late');
-- frozen, quotas
select leasehold.set_policy('ice', frozen => true);
select is(t.ask('ice', 1, 1), 'frozen', 'a frozen namespace gives no shared leases');
select leasehold.set_policy('quota', max_leases => 2);
select is(t.ask('quota', array[1, 2, 3], array[1, 4, 1], p_queue => false), 'granted 1, granted 4, quota max_leases = 2', 'max_leases counts holders');

-- a waiter that leaves lets the next in
select leasehold.set_policy('leave', capacity => 2);
select is(t.ask('leave', array[1, 2, 3], array[1, 2, 1]), 'granted 1 {1}, queued, queued', 'a small request waits behind a large one');
select is((select concat_ws(' ', outcome, wake, mode, units, slots, units_free, holder_count) from leasehold_internal.leave_batch(t.key(901), array['leave'], array['k'], array[t.key(2)], array[false])),
          'ok t shared 1 {1} 1 1', 'the large one leaves: the next is woken, and the holder is told');
select is(t.ask('leave', 3, 1), 'granted 1 {2}', 'it fits');
select is((select outcome from leasehold_internal.leave_batch(t.key(901), array['leave'], array['k'], array[t.key(3)], array[true])), 'granted', 'one that was granted in the same instant is told so');
select is((select outcome from leasehold_internal.leave_batch(t.key(902), array['leave'], array['k'], array[t.key(3)], array[false])), 'ok', 'another coordinator''s grant is left alone');
select is(t.stands('leave'), 'shared 2 2', 'it is held');
select is((select outcome from leasehold_internal.leave_batch(t.key(901), array['leave'], array['k'], array[t.key(3)], array[false], array[clock_timestamp()])), 'ok', 'so is one from before the caller came');
select is(t.stands('leave'), 'shared 2 2', 'it is held, too');
select is((select outcome from leasehold_internal.leave_batch(t.key(901), array['leave'], array['k'], array[t.key(3)], array[false], array[clock_timestamp() - interval '1 min'])), 'ok', 'a caller that went away gives it back');
select is(t.stands('leave'), 'shared 1 1', 'it has ended');
begin;
set local track_functions = 'all';
select is((select string_agg(concat_ws(' ', outcome, mode, owner, holder_count), ', ' order by n)
             from leasehold_internal.leave_batch(t.key(901), array['leave', 'leave', 'leave'], array['k', 'k', 'k'], array[t.key(31), t.key(32), t.key(33)], array[false, true, false])),
          'ok shared w1 1, ok shared w1 1, ok shared w1 1', 'each who leaves is told of the holder');
select is((select calls from pg_stat_xact_user_functions where funcname = 'shared_facts'), 1::bigint, 'who is looked for once');
commit;
select is(t.ask('other', array[1, 2], array[1, 1]), 'granted 1, granted 1', 'readers');
select is(t.ask('other', 3, 0, 902) || ', ' || t.ask('other', 4, 1, 902), 'queued, queued', 'another coordinator''s waiters');
select is((select leasehold_internal.pass_on(t.key(902), 'other', 'k')), false, 'a writer is not woken while the scope is shared');
select is(t.let_go('other', 1, 2), 'ok, ok', 'its coordinator is notified, not ours');
select is((select leasehold_internal.pass_on(t.key(902), 'other', 'k')), true, 'a wake-up is passed on to it');

-- in one batch
select is(t.ask('newcomers', array[1, 2], array[1, 0]), 'granted 1, queued', 'of one batch who wants to share and came first is first');
select is(t.let_go('newcomers', 1), 'ok wake', 'it goes');
select is((select count(*) from leasehold_internal.leave_batch(t.key(901), array['newcomers'], array['k'], array[t.key(2)], array[false])), 1::bigint, 'the one who waited too');

-- Of a batch the first is refused: whoever is behind it does not sleep on a free scope.
create table t.notified (channel text, payload text);
create function t.notify(p_channel text, p_payload text) returns void language sql as $$ insert into t.notified values (p_channel, p_payload) $$;
select pg_get_functiondef('leasehold_internal.wake_head'::regproc) as wake_head \gset
select replace(:'wake_head', 'pg_notify(', 't.notify(') \gexec
select leasehold.set_policy('first.q', max_leases => 1, history => false);
select is(t.ask('first.q', 1, 0), 'granted', 'a scope that is leased');
select is(t.let_go('first.q', 1), 'ok', 'and free again');
select leasehold.acquire('first.q', 'other', '30 s', lease_key => t.key(9));
update leasehold.scope set check_at = 'infinity' where namespace = 'first.q';
select is(t.ask('first.q', array[2, 3], array[0, 0]), 'quota max_leases = 1, queued', 'the quota is used up: the first is refused, the second waits');
select is((select array_agg(replace(payload, chr(10), '/')) from t.notified), array['first.q/k'], 'and is woken');
select cmp_ok((select check_at from leasehold.scope where namespace = 'first.q' and key = 'k'), '<', clock_timestamp() + interval '2 s', 'by the reaper too, should that get lost');
:wake_head;

-- over one lease that has expired
select leasehold.set_policy('together', max_leases => 1, history => true);
select is(t.ask('together', 1, 0), 'granted', 'one lease is all that there may be');
select t.age('together', 'k', '1 hour');
select is(t.ask('together', array[2, 3, 4], array[1, 1, 1]), 'granted 1, quota max_leases = 1, quota max_leases = 1',
          'of those who take it over together one is granted');
select is((select count(*) from leasehold.history where namespace = 'together'), 1::bigint, 'and it ended once');

-- A reaper takes so many shared holders as it is told to.
select is(t.ask('taken', array[1, 2, 3, 4, 5], array[1, 1, 1, 1, 1]), 'granted 1, granted 1, granted 1, granted 1, granted 1', 'five hold');
update leasehold.share set check_at = 'infinity';
update leasehold.scope set check_at = 'infinity';
select t.age_share('taken', l, '1 hour') from generate_series(1, 5) l;
update leasehold.share set check_at = deadline where namespace = 'taken';
begin;
select is((select cardinality(leasehold_internal.take_due_shares(2, clock_timestamp()))), 2, 'two of five that are due');
rollback;
select is((select count(*) from leasehold_internal.reap_batch(t.key(901), null, null, false, 2, true) where namespace = 'taken' and kind = 'reaped'), 2::bigint, 'two are reaped');
select is(t.stands('taken'), 'shared 3 3', 'three are left for the next visit');
select is((select count(*) from leasehold_internal.reap_batch(t.key(901), null, null, false, 100, true) where namespace = 'taken' and kind = 'reaped'), 3::bigint, 'which reaps them');

-- SQL users
select is((select position from leasehold.join_queue('leave', 'k', t.key(9), mode => 'shared', units => 2)), 1, 'a SQL user queues for units');
select is((select units from leasehold.waiter where namespace = 'leave'), 2, 'which its place knows');
select is(t.rows_of($$select * from leasehold.acquire('leave', 'k', '30 s', lease_key => t.key(9), mode => 'shared', units => 2)$$), 0, 'it does not fit yet');
select is(t.rows_of($$select * from leasehold.acquire('leave', 'k', '30 s', mode => 'shared')$$), 0, 'and nobody overtakes it');
select is(t.let_go('leave', 1), 'ok', 'the holder leaves');
select is((select concat_ws(' ', mode, units, slots) from leasehold.acquire('leave', 'k', '30 s', lease_key => t.key(9), mode => 'shared', units => 2)), 'shared 2 {1,2}', 'then it has it');
select is((select position from leasehold.join_queue('leave', 'k', t.key(9), mode => 'shared', units => 2)), 0, 'and its place is 0');
select throws_ok($$select leasehold.join_queue('leave', 'k', t.key(1))$$, 'LH006', null, 'a lease key that has ended cannot queue');
select throws_ok($$select leasehold.join_queue('leave', 'k', t.key(50), mode => 'shared', units => 3)$$, 'LH002', 'invalid_argument: units must be 1 to 2, is 3', 'nor more units than there are');
select is(leasehold.release_ok('leave', 'k', t.key(9), '{"n": 1}'), true, 'and gives it back');
select is((select last_result::text from leasehold.scope where namespace = 'leave'), '{"n": 1}', 'the scope remembers how the last one ended');
-- Several units pass from one to the next alone where they are the lowest free numbers and who waits behind does not fit.
select leasehold.reset_policy('together');
select leasehold.set_policy('three', capacity => 8);
create function t.pass(p_ns text, p_from integer, p_to integer, p_units integer, p_duration_us bigint default 30000000) returns text language sql as $$
  select string_agg(concat_ws(' ', h.outcome, h.slots, h.units_free, h.holder_count), ', ' order by h.part desc, h.n)
    from leasehold_internal.hand_over_batch(
           t.key(901), array[p_ns], array['k'], array[t.key(p_from)], array[false], array[null], null, array[p_ns], array['k'], array[t.key(p_to)],
           array['w'], array['{}'], array[p_duration_us], array[true], array[null::bigint], array[null::bigint], null, null, array[p_units]) h
$$;
select is(t.ask('three', array[1, 2, 3, 4, 5], array[3, 3, 3, 3, 2]), 'granted 3 {1,2,3}, granted 3 {4,5,6}, queued, queued, queued', 'two of eight are left over');
select is(t.pass('three', 1, 3, 3), 'ok, granted {1,2,3} 2 2', 'the next gets the numbers of who goes');
select is((select array_agg(leasehold_internal.takes_all_there_is('three', 'k', '{4,5,6}', t.key(4), f, clock_timestamp()) order by f) from generate_series(1, 2) f), array[true, false],
          'nobody but the next is granted, unless who waits behind it fits');
select is(t.pass('three', 2, 4, 3), 'ok, granted {4,5,6} 2 2', 'so does the next, and who fits behind it comes in');
select is(t.ask('three', 5, 2), 'granted 2 {7,8}', 'when it asks');
select is(t.let_go('three', 3), 'ok', 'three are free');
select is(t.ask('three', array[6, 7, 8], array[1, 2, 4]), 'granted 1 {1}, granted 2 {2,3}, queued', 'and taken by two');
select is(t.let_go('three', 6), 'ok', 'the lowest is free');
select is(t.ask('three', 9, 3), 'queued', 'which is too little');
select is(t.let_go('three', 5), 'ok', 'three are free, and not enough for who is next');
delete from leasehold.waiter where namespace = 'three';
select is(t.ask('three', array[10, 11], array[3, 3]), 'granted 3 {1,7,8}, queued', 'they are not in one piece');
select is(t.let_go('three', 7), 'ok', '2 and 3 are free');
select is(t.pass('three', 4, 11, 3), 'ok, granted {2,3,4} 2 2', 'and go before the numbers of who goes');

-- When the first holder expires, in minutes, is known of the scope, and not read from all holders for each who waits.
select leasehold.set_policy('bound', capacity => 2);
create function t.first_end(p_ns text, p_lease integer, p_duration_us bigint default 30000000) returns text language sql as $$
  select outcome || ' ' || round(expires_in_us / 60000000.0)
    from leasehold_internal.acquire_batch(t.key(901), null, array[p_ns], array['k'], array[t.key(p_lease)], array['w'], array['{}'], array[p_duration_us], array[true],
                                          array[null::bigint], array[0::bigint], null, null, array[1])
$$;
select is(t.first_end('bound', 1, 3600000000), 'granted 60', 'one holder for an hour');
select is(t.first_end('bound', 2, 1800000000), 'granted 30', 'and one for half of it');
select is(t.first_end('bound', 3), 'queued 30', 'who waits is told of the first to expire');
update leasehold.share set deadline = deadline + interval '10 min' where namespace = 'bound';
select is(t.first_end('bound', 4), 'queued 30', 'and so is the next, at the earliest');
update leasehold.scope set deadline = deadline - interval '31 min' where namespace = 'bound';
select is(t.first_end('bound', 5), 'queued 40', 'when that time has come, all holders are looked at');
select is(t.first_end('bound', 2, 600000000), 'renewed 10', 'a holder that asks again for less');
select is(t.first_end('bound', 7), 'queued 10', 'is the first then');
select is(t.pass('bound', 2, 3, 1, p_duration_us => 300000000), 'ok, granted {2} 0 2', 'it gives it to who is next, for a shorter time');
select is(t.first_end('bound', 8), 'queued 5', 'which is the first then');
delete from leasehold.waiter where namespace = 'bound';
select is(t.let_go('bound', 1), 'ok', 'another goes');
select is(t.first_end('bound', 9, 60000000), 'granted 1', 'and who comes for a minute');
select is(t.first_end('bound', 10), 'queued 1', 'is the first');
update leasehold.scope set incarnation = incarnation - 1 where namespace = 'bound';
update leasehold.share set deadline = deadline + interval '1 min' where namespace = 'bound';
select is(t.first_end('bound', 11), 'queued 2', 'what an earlier life of the database knew is not used');
select * from finish();
