-- Several scopes at once: all or none, one ticket in every queue, nothing held while it waits.
select no_plan();
select leasehold.set_policy('', grace => '1 s');
select t.enroll(t.key(901)), t.enroll(t.key(902));
-- Ask for keys of the namespace 'all' together; units 0: exclusively. 'granted a b': outcome and keys; else outcome, key, field, bound.
create function t.all(p_lease integer, p_keys text[], p_units integer[] default null, p_queue boolean default true, p_ticket bigint default 0,
  p_coordinator integer default 901, p_ns text default 'all')
returns text language sql as $$
  select concat_ws(' ', min(b.outcome), string_agg(p_keys[b.n], ' ' order by b.n), min(b.field), '(' || min(b.bound) || ')',
                   'after ' || nullif(min(b.waiters_ahead), 0), 'of ' || nullif(min(b.owner) filter (where b.outcome in ('held', 'queued')), ''))
    from leasehold_internal.acquire_all_one(
           t.key(p_coordinator), null, array_fill(p_ns, array[cardinality(p_keys)]), p_keys, t.key(p_lease), 'w' || p_lease, '{}', 30000000, p_queue,
           null, p_ticket, 'user:u' || p_lease, null, array(select nullif(u, 0) from unnest(p_units) u)) b
$$;
create function t.one(p_lease integer, p_key text, p_units integer default null, p_queue boolean default true, p_ns text default 'all')
returns text language sql as $$
  select concat_ws(' ', b.outcome, b.field, '(' || b.bound || ')')
    from leasehold_internal.acquire_batch(
           t.key(901), null, array[p_ns], array[p_key], array[t.key(p_lease)], array['w' || p_lease], array['{}'], array[30000000], array[p_queue],
           array[null::bigint], array[null::bigint], null, null, array[p_units]) b
$$;
create function t.free(p_lease integer, variadic p_keys text[]) returns text language sql as $$
  select string_agg(concat_ws(' ', r.outcome, r.end_reason, case when r.wake then 'wake' end), ', ' order by r.n)
    from leasehold_internal.release_batch(
           t.key(901), array_fill('all'::text, array[cardinality(p_keys)]), p_keys, array_fill(t.key(p_lease), array[cardinality(p_keys)]),
           array_fill(false, array[cardinality(p_keys)]), array_fill(null::text, array[cardinality(p_keys)])) r
$$;
create function t.leave(p_lease integer, variadic p_keys text[]) returns text language sql as $$
  select string_agg(concat_ws(' ', r.outcome, case when r.wake then 'wake' end), ', ' order by r.n)
    from leasehold_internal.leave_batch(
           t.key(901), array_fill('all'::text, array[cardinality(p_keys)]), p_keys, array_fill(t.key(p_lease), array[cardinality(p_keys)]),
           array_fill(false, array[cardinality(p_keys)])) r
$$;
-- 'a held 1; b free waits 2 3'
create function t.stands(variadic p_keys text[]) returns text language sql as $$
  select string_agg(concat_ws(' ', k, s.state, right(s.lease_key::text, 3)::integer,
                              (select 'by ' || string_agg(right(h.lease_key::text, 3)::integer::text, ' ' order by h.token)
                                 from leasehold.share h where h.namespace = 'all' and h.key = k and h.state = 'held'),
                              (select 'waits ' || string_agg(right(w.lease_key::text, 3)::integer::text, ' ' order by w.ticket)
                                 from leasehold.waiter w where w.namespace = 'all' and w.key = k)), '; ' order by k)
    from unnest(p_keys) k left join leasehold.scope s on s.namespace = 'all' and s.key = k
$$;

-- granted
select is(t.all(1, array['b', 'c', 'a']), 'granted b c a', 'free scopes are granted together, in the order of the request');
select is(t.stands('a', 'b', 'c'), 'a held 1; b held 1; c held 1', 'all under one lease key');
select is((select count(distinct token) from leasehold.scope where namespace = 'all'), 3::bigint, 'each with a token of its own');
select is(t.all(1, array['b', 'c', 'a']), 'renewed b c a', 'a repeat gets the same leases again');
select is(t.all(1, array['c', 'a', 'b']), 'renewed c a b', 'in whatever order');
select is((select string_agg(concat_ws(' ', outcome, end_reason), ', ')
             from leasehold_internal.release_batch(t.key(901), '{all,all,all}', '{a,b,c}', array_fill(t.key(1), array[3]), array[null, null, null]::boolean[], '{null,null,null}')),
          'lost, lost, lost', 'and a daemon that believes that nobody heard of them takes nothing back');
select is(t.all(1, array['a', 'b']), 'invalid a items (those that were acquired with this lease key)', 'but not with fewer items');
select is(t.all(1, array['a', 'b', 'c', 'd']), 'invalid d lease_key (one that holds all items, or none of them)', 'nor with more');
select is(t.all(1, array['a', 'b', 'c'], array[0, 1, 0]), 'invalid b mode (exclusive, as this lease key holds it: downgrade it to share it)',
          'nor in another mode');
select is(t.stands('a', 'b', 'c', 'd'), 'a held 1; b held 1; c held 1; d', 'which leave no trace');

-- waiting
select is(t.all(2, array['c', 'd'], p_queue => false), 'held c of w1', 'where one is held, and it does not wait, none is granted');
select is(t.all(2, array['d', 'c']), 'queued c of w1', 'where it waits, it is told of what is in the way');
select is(t.stands('c', 'd'), 'c held 1 waits 2; d free waits 2', 'it holds nothing meanwhile, and has a place in each queue');
select is((select count(distinct ticket) from leasehold.waiter), 1::bigint, 'with one ticket');
select cmp_ok((select check_at from leasehold.scope where namespace = 'all' and key = 'd'), '<=', clock_timestamp() + interval '1 s',
              'the reaper looks soon at a free scope that it waits for');
select is(t.one(3, 'd', p_queue => false), 'held', 'nobody overtakes it where it would fit');
select is(t.one(3, 'd'), 'queued', 'whoever comes later waits behind it');
select is(t.all(4, array['e', 'd']), 'queued d after 2', 'and so does another request for several');
select is(t.all(2, array['d', 'c'], p_ticket => (select min(ticket) from leasehold.waiter)), 'queued c of w1', 'it may ask again');
select is((select count(*) from leasehold.waiter), 5::bigint, 'and keeps its places');
select is(t.one(2, 'd'), 'invalid lease_key (another: this one waits for 2 scopes together)', 'its lease key is for no ordinary acquire meanwhile');
select throws_ok($$select leasehold.leave_queue('all', 'd', t.key(2))$$, 'LH002', null, 'no place is given up alone');
select is((select count(*) from leasehold.waiter where lease_key = t.key(2)), 2::bigint, '');
select is(t.all(2, array['d', 'e']), 'invalid d items (those that this lease key waits for)', 'nor for other items');
select is(t.all(3, array['d', 'f']), 'invalid d lease_key (one that does not wait for one of the items alone)', 'nor may one that waits for one of them');
select is(t.free(1, 'c'), 'ok wake', 'it is woken where its turn comes');
select is(t.all(2, array['d', 'c'], p_ticket => (select min(ticket) from leasehold.waiter)), 'granted d c', 'and granted when all are free');
select is(t.stands('c', 'd', 'e'), 'c held 2; d held 2 waits 3 4; e free waits 4', 'its places go');

-- leaving
select is(t.free(2, 'd'), 'ok wake', 'its leases are leases like any others');
select is(t.one(3, 'd'), 'granted', 'the next is granted');
select is(t.leave(4, 'd', 'e'), 'ok, ok', 'who leaves gives all its places up');
select is(t.all(5, array['d', 'e']), 'queued d of w3', '');
select is(t.one(6, 'e'), 'queued', '');
select is(t.leave(5, 'd', 'e'), 'ok, ok wake', 'and the next is woken where there was room already');

-- shared items: the units fit, or all wait
select leasehold.set_policy('all', capacity => 3);
select is(t.all(10, array['s', 't', 'u'], array[2, 0, 3]), 'granted s t u', 'items have a mode each');
select is((select array_agg(h.slots::text order by h.key) from leasehold.share h where h.lease_key = t.key(10)), array['{1,2}', '{1,2,3}'], 'and slots');
select is(t.all(10, array['s', 't', 'u'], array[2, 0, 3]), 'renewed s t u', 'repeated with the same modes');
select is((select array_agg(heartbeats order by key) from (select key, heartbeats from leasehold.share where lease_key = t.key(10)
                                                            union all select key, heartbeats from leasehold.scope where lease_key = t.key(10)) x),
          array[1, 1, 1]::bigint[], 'of which each lease has heard');
select is(t.all(10, array['s', 'u'], array[2, 3]), 'invalid s items (those that were acquired with this lease key)', 'and the same items');
select is(t.all(11, array['v', 's'], array[1, 1]), 'granted v s', 'another fits beside it');
select is(t.all(12, array['v', 's'], array[1, 1]), 'queued s of w10', 'a third does not');
select is(t.one(13, 'v', 1), 'queued', 'nor does one that would fit overtake it');
select is(t.all(14, array['v', 's'], array[4, 1], false), 'invalid v units (1 to 3, the capacity, is 4)', 'more than the capacity is invalid');
select is(t.free(11, 's'), 'ok wake', 'units that are given back wake it');
select is(t.all(12, array['v', 's'], array[1, 1], p_ticket => (select max(ticket) from leasehold.waiter where lease_key = t.key(12))), 'granted v s',
          'and it is granted');
select is(t.stands('s', 'v'), 's shared by 10 12; v shared by 11 12 waits 13', '');
select is((select outcome from leasehold_internal.downgrade_one(t.key(901), null, 'all', 't', t.key(10), 1)), 'ok', 'an exclusive one is downgraded');

-- what refuses one item refuses all, and leaves nothing behind
select leasehold.set_policy('all.frozen', frozen => true), leasehold.set_policy('all.few', max_leases => 2, max_waiters => 1);
create function t.in(p_lease integer, p_namespaces text[], p_keys text[], p_queue boolean default true, p_ticket bigint default 0) returns text language sql as $$
  select concat_ws(' ', min(b.outcome), string_agg(p_namespaces[b.n] || '/' || p_keys[b.n], ' ' order by b.n), min(b.field), '(' || min(b.bound) || ')', min(b.message))
    from leasehold_internal.acquire_all_one(t.key(901), null, p_namespaces, p_keys, t.key(p_lease), 'w' || p_lease, '{}', 30000000, p_queue, null, p_ticket) b
$$;
select is(t.in(20, '{all.x,all.frozen}', '{k,k}'), 'frozen all.frozen/k', 'a frozen namespace');
select is(t.in(20, '{all.few,all.x,all.few,all.few}', '{k,k,l,m}'), 'quota all.few/m (max_leases = 2)', 'max_leases counts all items of the namespace');
select is(t.in(20, '{all.few,all.x,all.few}', '{k,k,l}'), 'granted all.few/k all.x/k all.few/l', 'as many as it allows are granted');
select is(t.in(21, '{all.y,all.few}', '{k,m}'), 'quota all.few/m (max_leases = 2)', 'one more is not');
select is(t.in(21, '{all.y,all.few}', '{k,k}'), 'queued all.few/k', 'it may wait');
select is(t.in(22, '{all.y,all.few}', '{j,k}'), 'quota all.few/k (max_waiters = 1)', 'max_waiters counts it in each queue');
select is(t.in(22, '{a..b,all.y}', '{k,j}'), 'invalid a..b/k namespace (segments of 1 to 63 bytes, has 0)', 'what is no namespace');
select is(t.in(22, '{all.y,all.y}', '{j,j}'), 'invalid all.y/j items (different scopes)', 'a scope comes once');
select is((select count(*) from leasehold.scope where namespace = 'all.y' and key = 'j'), 0::bigint, 'what is refused leaves no row behind');
select leasehold.set_policy('all.y', frozen => true);
select is(t.in(21, '{all.y,all.few}', '{k,k}', p_ticket => (select ticket from leasehold.waiter where lease_key = t.key(21) limit 1)), 'frozen all.y/k',
          'one that waited is refused');
select is((select count(*) from leasehold.waiter where lease_key = t.key(21)), 0::bigint, 'and loses its places');

-- takeovers, rests
select is(t.all(30, array['x1', 'x2']), 'granted x1 x2', '');
select t.age('all', 'x1', '1 hour');
select is(t.all(31, array['x1', 'x2']), 'queued x2 of w30', 'an expired lease is not taken over for one that has to wait for another scope');
select is(t.stands('x1'), 'x1 held 30 waits 31', '');
select t.age('all', 'x2', '1 hour');
select is(t.all(31, array['x1', 'x2'], p_ticket => (select ticket from leasehold.waiter where lease_key = t.key(31) limit 1)), 'granted x1 x2', 'all are taken over together');
select is((select array_agg(ended_outcomes[0]) from leasehold.scope where namespace = 'all' and key like 'x_'), array['expired', 'expired'], 'the leases before have expired');
select is(t.all(30, array['x1', 'x2']), 'ended x1', 'their lease key has ended');
create function t.rest(p_key text, p_lease integer) returns text language sql as $$
  select b.outcome from leasehold_internal.acquire_batch(t.key(901), null, array['all'], array[p_key], array[t.key(p_lease)], array['r'], array['{}'], array[30000000],
    array[false], array[null::bigint], array[null::bigint], null, array[60000000]) b
$$;
select is(t.rest('r1', 32), 'granted', '');
select is(t.free(32, 'r1'), 'ok', '');
select is(t.all(33, array['r2', 'r1'], p_queue => false), 'held r1', 'it waits for a scope that rests');
select is((select array_agg(b.n || ' ' || (b.rests_in_us > 0)) from leasehold_internal.acquire_all_one(t.key(901), null, '{all,all}', '{r2,r1}', t.key(33), 'w', '{}', 30000000, false, null, 0) b),
          array['2 true'], 'and is told until when');
select array_agg(b.outcome order by b.n)::text as minimum from leasehold_internal.acquire_all_one(t.key(901), null, '{all,all}', '{m1,m2}', t.key(34), 'w', '{}', 30000000, false, null, 0, null,
  array[null, 60000000]) b \gset
select is(:'minimum'::text, '{granted,granted}', 'at_least is per item');
select is((select array_agg(at_least order by key) from leasehold.scope where namespace = 'all' and key in ('m1', 'm2')), array[null, interval '1 min'], '');

-- wake-ups: what a leaving request had in the way of others, and a coordinator that dies
select is(t.all(40, array['y1', 'y2']), 'granted y1 y2', '');
select is(t.all(41, array['y2', 'y3'], p_coordinator => 902), 'queued y2 of w40', '');
select is(t.one(42, 'y3'), 'queued', '');
update leasehold.coordinator set seen_at = clock_timestamp() - interval '1 min' where id = t.key(902);
select is(t.one(42, 'y3'), 'granted', 'a request whose coordinator is dead is passed over in each queue');
select is((select count(*) from leasehold_internal.sweep_waiters(t.key(901))), 0::bigint, 'swept');
select is(t.stands('y2', 'y3'), 'y2 held 40; y3 held 42', 'all its places go');
select t.enroll(t.key(902));

-- in one transaction with another: busy, and the rest is not locked
select is((select explain.first_waiter || ': ' || explain.advice from leasehold.explain('all', 'v')), 'w13: join the queue: 2 of 3 units taken by 2 holders: w11 (1 unit), w12 (1 unit); w13 (for a shared lease of 1 unit) is next, of 1 waiting', '');
select is(t.all(43, array['z1', 'y1']), 'queued y1 of w40', '');
select is((select advice from leasehold.explain('all', 'z1')), 'join the queue: it is free, but w43 (waits for 2 scopes together) is next, of 1 waiting', 'explain says what it waits for');
select is((select array_agg(scopes order by key) from leasehold.queue where owner = 'w43'), array[2, 2], 'and so does the queue');
select is((select scopes from leasehold.queue where owner = 'w13'), 1, 'which is 1 for others');

-- in SQL
create function t.sql(p_lease integer, p_keys text[], p_modes text[] default null, p_units integer[] default null) returns text language sql as $$
  select string_agg(concat_ws(' ', l.key, l.mode, l.units, l.owner, l.principal = 'role:' || session_user, l.lease_key = t.key(p_lease)), ', ')
    from leasehold.acquire_all(array_fill('sql'::text, array[cardinality(p_keys)]), p_keys, '30 s', 'me', t.key(p_lease), '{}', p_modes, p_units) l
$$;
select is(t.sql(50, array['b', 'a']), 'b exclusive 0 me t t, a exclusive 0 me t t', 'the leases, in the order of the request');
select is((select array_agg(token order by key) from leasehold.lease where namespace = 'sql'), (select array_agg(token order by key) from leasehold.acquire_all('{sql,sql}', '{a,b}', '30 s', lease_key => t.key(50))),
          'the same again under the same lease key');
select is(t.sql(51, array['c', 'a']), null, 'no row where one is held');
select is((select count(*) from leasehold.scope where namespace = 'sql' and key = 'c'), 0::bigint, 'and nothing is done');
select is(t.sql(51, array['d', 'c'], array['shared', null], array[2, null]), 'd shared 2 me t t, c exclusive 0 me t t', 'modes and units');
select is(t.sql(52, array['e']), 'e exclusive 0 me t t', 'a single one is an ordinary acquire');
select "position" from leasehold.join_queue('sql', 'f', t.key(54));
select is(t.sql(53, array['g', 'f']), null, 'nobody overtakes a SQL user who waits');
select is(t.sql(54, array['g', 'f']), 'g exclusive 0 me t t, f exclusive 0 me t t', 'whose own place counts');
select is((select count(*) from leasehold.waiter where namespace = 'sql'), 0::bigint, '');
select is(t.error_of(format('select leasehold.join_queue(''all'', ''y1'', %L)', t.key(43))), 'LH002 invalid_argument lease_key', 'nobody joins with the lease key of one that waits for several');
select is(t.error_of($$select leasehold.acquire_all('{sql,frozen.x}', '{h,h}', '0.1 s')$$), 'LH002 invalid_argument duration', '');

-- its history, and who watches
select leasehold.set_policy('seen', history => true);
select leasehold_internal.watch_add(t.key(901), 'seen', true);
select count(*) from leasehold.acquire_all('{seen,seen}', '{a,b}', '30 s', 'me', t.key(60)) \gset seen_
select leasehold.release_ok('seen', 'a', t.key(60)), leasehold.release_fail('seen', 'b', t.key(60), 'no');
select is((select array_agg(type || ' ' || key order by e.number) from leasehold.event e), array['acquired a', 'acquired b', 'released a', 'released b'], 'a watch sees each lease');
select is((select array_agg(key || ' ' || outcome order by key) from leasehold.history where namespace = 'seen'), array['a ok', 'b failed'], 'the history too');

-- whose wait was over comes again: in all queues behind those who are there, with one ticket
create function t.wait_1ms(p_lease integer, p_ticket bigint) returns text language sql as $$
  select b.outcome
    from leasehold_internal.acquire_all_one(
           t.key(901), null, '{all,all}', '{over1,over2}', t.key(p_lease), 'w', '{}', 30000000, true, 1000, p_ticket) b
$$;
select is(t.one(70, 'over1') || ' ' || t.one(70, 'over2'), 'granted granted', '');
select is(t.wait_1ms(71, 0), 'queued', '');
select is(t.one(72, 'over2'), 'queued', '');
select pg_sleep(0.01);
select is(t.wait_1ms(71, (select min(ticket) from leasehold.waiter where lease_key = t.key(71))), 'queued', '');
select is(t.stands('over1', 'over2'), 'over1 held 70 waits 71; over2 held 70 waits 72 71', 'whose wait was over has a place behind others');
select is((select count(distinct ticket) from leasehold.waiter where lease_key = t.key(71)), 1::bigint, 'and one ticket in all queues');
select * from finish();
