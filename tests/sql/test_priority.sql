-- Priority of waiters (promise 6): of one priority first come, first served; among several the earliest by enqueued_at - priority * ageing is next.
select no_plan();
select leasehold.reap();
select t.enroll(t.key(901)), t.enroll(t.key(902)), leasehold_internal.coordinator_register(t.key(903), 'host', 3, '0.1.0');
update leasehold.coordinator set seen_at = seen_at - interval '1 hour' where id = t.key(903);
select leasehold.set_policy('', grace => '7 min', max_duration => '2 h');
select leasehold.set_policy('p', max_priority => 10, ageing => '1 min');

create function pg_temp.asked(p_key text, p_lease integer, p_priority integer default 0, p_coordinator integer default 901, p_units integer default null,
                              p_queue boolean default true)
returns leasehold_internal.answer language sql as $$
  select a::leasehold_internal.answer from leasehold_internal.acquire_batch(t.key(p_coordinator), null, array['p'], array[p_key], array[t.key(p_lease)],
                                              array['w' || p_lease], array['{}'], array[3600000000], array[p_queue], array[null::bigint],
                                              array[0::bigint], array['token:w' || p_lease], null, array[p_units], array[p_priority]) a
$$;
create function pg_temp.ask(p_key text, p_lease integer, p_priority integer default 0, p_coordinator integer default 901, p_units integer default null,
                            p_queue boolean default true)
returns text language sql as $$ select (pg_temp.asked(p_key, p_lease, p_priority, p_coordinator, p_units, p_queue)).outcome $$;
create function pg_temp.release(p_key text, p_lease integer, p_coordinator integer default 901) returns text language sql as $$
  select upper(outcome) from leasehold_internal.release_batch(t.key(p_coordinator), array['p'], array[p_key], array[t.key(p_lease)], array[false], array[null::text])
$$;
create function pg_temp.pass(p_key text, p_lease integer, p_next integer, p_priority integer default 0) returns text language sql as $$
  select string_agg(h.outcome, ' ' order by h.part desc)
    from leasehold_internal.hand_over_batch(t.key(901), array['p'], array[p_key], array[t.key(p_lease)], array[false], array[null::text], null,
                                   array['p'], array[p_key], array[t.key(p_next)], array['w' || p_next], array['{}'], array[3600000000],
                                   array[true], array[null::bigint], array[1::bigint], array['token:w' || p_next],
                                   p_next_priority => array[p_priority]) h
$$;
-- It has come so many seconds earlier.
create function pg_temp.came(p_key text, p_lease integer, p_seconds integer) returns void language sql as $$
  update leasehold.waiter set enqueued_at = enqueued_at - p_seconds * interval '1 s' where key = p_key and lease_key = t.key(p_lease)
$$;
create function pg_temp.head(p_key text) returns integer language sql as $$
  select right(h.lease_key::text, 12)::integer
    from leasehold_internal.live_head('p', p_key, leasehold_internal.live_coordinators(clock_timestamp()), clock_timestamp()) h
$$;
-- In the order in which they would be granted: what the view says, what the function that counts says, and what happens.
create function pg_temp.in_view(p_key text) returns integer[] language sql as $$
  select array(select right(w.lease_key::text, 12)::integer
                 from leasehold.queue q join leasehold.waiter w using (namespace, key, ticket)
                where q.namespace = 'p' and q.key = p_key and q.position is not null order by q.position)
$$;
create function pg_temp.counted(p_key text) returns integer[] language sql as $$
  select array(select right(w.lease_key::text, 12)::integer
                 from leasehold_internal.live_tickets('p', p_key, leasehold_internal.live_coordinators(clock_timestamp()), clock_timestamp()) t,
                      unnest(t) with ordinality u (ticket, n)
                 join leasehold.waiter w on w.ticket = u.ticket and w.key = p_key order by u.n)
$$;
create function pg_temp.served(p_key text, p_holder integer) returns integer[] language plpgsql as $$
declare
  v_order integer[] := '{}';
  v_holder integer := p_holder;
begin
  loop
    perform pg_temp.release(p_key, v_holder);
    v_holder := pg_temp.head(p_key);
    exit when v_holder is null;
    if pg_temp.ask(p_key, v_holder, (select w.priority from leasehold.waiter w where w.key = p_key and w.lease_key = t.key(v_holder))) <> 'granted' then
      return v_order || -v_holder;
    end if;
    v_order := v_order || v_holder;
  end loop;
  return v_order;
end
$$;

-- The order, in a table of queues: who came in which order, with which priority, and how many seconds before now.
create temp table line (name text, waiters jsonb, expected integer[]);
insert into line values
  ('without priorities by ticket, whatever the clock says', '[[11,0,0],[12,0,500],[13,0,0]]', '{11,12,13}'),
  ('the highest priority first', '[[11,0,0],[12,2,0],[13,9,0],[14,5,0]]', '{13,14,12,11}'),
  ('within one priority by ticket, whatever the clock says', '[[11,3,0],[12,3,900],[13,3,100],[14,0,0]]', '{11,12,13,14}'),
  ('one that came early enough is before a higher priority', '[[11,0,130],[12,2,0],[13,2,0]]', '{11,12,13}'),
  ('and one that came a little later is behind it', '[[11,0,110],[12,2,0],[13,2,0]]', '{12,13,11}'),
  ('so it is among priorities', '[[11,1,70],[12,3,0],[13,2,0],[14,0,170]]', '{12,14,11,13}'),
  ('who stands behind one that the clock puts late is as late', '[[11,0,30],[12,0,900],[13,1,0]]', '{13,11,12}');
create function pg_temp.fill(p_key text, p_waiters jsonb) returns void language plpgsql as $$
declare
  v_waiter jsonb;
begin
  perform pg_temp.ask(p_key, 1);
  for v_waiter in select w from jsonb_array_elements(p_waiters) w loop
    perform pg_temp.ask(p_key, (v_waiter ->> 0)::integer, (v_waiter ->> 1)::integer), pg_temp.came(p_key, (v_waiter ->> 0)::integer, (v_waiter ->> 2)::integer);
  end loop;
end
$$;
select pg_temp.fill(md5(q.name), q.waiters) from line q;
select is(pg_temp.in_view(md5(q.name)), q.expected, q.name || ': the view') from line q;
select is(pg_temp.counted(md5(q.name)), q.expected, q.name || ': the count of those ahead') from line q;
select is(pg_temp.head(md5(q.name)), q.expected[1], q.name || ': the first') from line q;
select is(pg_temp.served(md5(q.name), 1), q.expected, q.name || ': who is granted') from line q;
-- All in one batch, in the order of their keys turned round: the first gets it, and the others wait behind it.
select pg_temp.fill('batch ' || q.name, q.waiters) from line q;
select pg_temp.release('batch ' || q.name, 1) from line q;
select is(
  (select array_agg(right(w.lease_key::text, 12)::integer)
     from (select array_agg((w ->> 0)::integer order by w ->> 0 desc) as keys from jsonb_array_elements(q.waiters) w) k
    cross join lateral leasehold_internal.acquire_batch(
            t.key(901), null, array_fill('p'::text, array[cardinality(k.keys)]), array_fill('batch ' || q.name, array[cardinality(k.keys)]),
            array(select t.key(i) from unnest(k.keys) i), array_fill('w'::text, array[cardinality(k.keys)]), array_fill('{}'::text, array[cardinality(k.keys)]),
            array_fill(3600000000, array[cardinality(k.keys)]), array_fill(true, array[cardinality(k.keys)]),
            array_fill(null::bigint, array[cardinality(k.keys)]), array_fill(1::bigint, array[cardinality(k.keys)]),
            p_priority => array(select w.priority from unnest(k.keys) with ordinality i (lease, n)
                                  join leasehold.waiter w on w.key = 'batch ' || q.name and w.lease_key = t.key(i.lease) order by i.n)) a
    cross join lateral (select t.key(k.keys[a.n]) as lease_key) w
    where a.outcome = 'granted'), q.expected[1:1], q.name || ': a batch of all')
  from line q;

-- The promise: one of priority p is overtaken by one of q only where that came less than (q - p) * ageing after it, here 10 minutes.
select pg_temp.ask('promise', 1), pg_temp.ask('promise', 2), pg_temp.came('promise', 2, 599), pg_temp.ask('promise', 3, 10);
select is(pg_temp.head('promise'), 3, 'one that came 599 s later goes first, with 10 steps of a minute');
select pg_temp.came('promise', 2, 2);
select is(pg_temp.head('promise'), 2, 'one that came 601 s later does not: nobody starves');

-- How many are ahead.
select is((pg_temp.asked('ahead', 1)).outcome, 'granted', 'a free scope is granted, whoever asks');
select is((pg_temp.asked('ahead', 2)).waiters_ahead, 0, 'nobody is ahead of the first waiter');
select is((pg_temp.asked('ahead', 3, 5)).waiters_ahead, 0, 'nor of one with a priority');
select is((pg_temp.asked('ahead', 4, 2)).waiters_ahead, 1, 'one is ahead of one with a smaller priority');
select is((pg_temp.asked('ahead', 5)).waiters_ahead, 3, 'all are ahead of a newcomer without');
select is((pg_temp.asked('ahead', 2)).waiters_ahead, 2, 'and two ahead of the first who came');
select is((pg_temp.asked('ahead', 9, 3, p_queue => false)).waiters_ahead, 1, 'who does not wait is told how many would be before it');
select is((select position::integer from leasehold.join_queue('p', 'ahead', t.key(6), priority => 4)), 2, 'a SQL user has a place by the same rule');
select is((select array_agg(q.priority order by q.position) from leasehold.queue q where q.key = 'ahead'), '{5,4,2,0,0}', 'the view shows the priorities');

-- A place keeps its priority: joined again, away and back, at another coordinator. A daemon's request that is asked again may change it.
select leasehold.join_queue('p', 'ahead', t.key(6));
select is(pg_temp.in_view('ahead'), '{3,6,4,2,5}', 'who joins again without a priority keeps its own');
select pg_temp.ask('ahead', 4, 0, 902);
select is(pg_temp.in_view('ahead'), '{3,6,2,4,5}', 'a request that has another one now stands by that');
select pg_temp.ask('ahead', 4, 2, 902);
select leasehold_internal.leave_batch(t.key(901), array['p'], array['ahead'], array[t.key(3)], array[true]);
select is(pg_temp.head('ahead'), 6, 'one that is away is passed over');
select is(pg_temp.ask('ahead', 3, 5), 'queued', 'it comes back');
select is(pg_temp.head('ahead'), 3, 'to its place');
update leasehold.waiter set coordinator = t.key(903) where key = 'ahead' and lease_key = t.key(3);
select is(pg_temp.head('ahead'), 6, 'one whose coordinator has died is passed over');
update leasehold.waiter set coordinator = t.key(901) where key = 'ahead' and lease_key = t.key(3);
select is(pg_temp.pass('ahead', 1, 3, 5), 'ok granted', 'a release hands the lease over to the first by priority');
select is(pg_temp.pass('ahead', 3, 2), 'ok queued', 'and not to another, whatever its ticket');

-- A place that was lost comes back with its ticket: before those of its priority that queued meanwhile, and it delays them against nobody.
select pg_temp.ask('lost', 1), pg_temp.ask('lost', 2, 1), pg_temp.came('lost', 2, 100), pg_temp.ask('lost', 3), pg_temp.came('lost', 3, 100);
select leasehold_internal.acquire_batch(t.key(901), null, array['p'], array['lost'], array[t.key(4)], array['w'], array['{}'], array[3600000000], array[true],
                                        array[null::bigint], array[(select w.ticket - 100 from leasehold.waiter w where w.key = 'lost' and w.priority = 1)],
                                        array['x'], p_priority => array[1]);
select is(pg_temp.in_view('lost'), '{4,2,3}', 'a place that was lost is where it was');
select pg_temp.ask('lost', 5, 2), pg_temp.came('lost', 5, 0);
select is(pg_temp.in_view('lost'), '{4,2,5,3}', 'and nobody overtakes those behind it who could not before');

-- A newcomer and a free scope that has a queue.
select pg_temp.ask('newcomer', 1), pg_temp.ask('newcomer', 2, 1), pg_temp.ask('newcomer', 3), pg_temp.release('newcomer', 1);
select is(pg_temp.ask('newcomer', 4, p_queue => false), 'held', 'a newcomer without a priority does not get a free scope that has a queue');
select is(pg_temp.ask('newcomer', 5, 1, p_queue => false), 'held', 'nor one with the same priority');
select is(t.rows_of($$select * from leasehold.acquire('p', 'newcomer', '30 s', lease_key => t.key(6), priority => 1)$$), 0, 'nor a SQL user');
select is(t.rows_of($$select * from leasehold.acquire('p', 'newcomer', '30 s', lease_key => t.key(7), priority => 2)$$), 1, 'one with a higher priority does');
select leasehold.release_ok('p', 'newcomer', t.key(7));
select is(pg_temp.ask('newcomer', 8, 2), 'granted', 'over a daemon too');
select is(pg_temp.ask('newcomer', 2, 1), 'queued', 'who was first waits on');


-- Shared: a large request of a high priority that does not fit is not overtaken by small ones behind it.
select leasehold.set_policy('p', capacity => 10);
select pg_temp.ask('shared', 1, 0, p_units => 4), pg_temp.ask('shared', 2, 0, p_units => 4);
select is(pg_temp.ask('shared', 3, 5, p_units => 8), 'queued', 'a large one waits');
select is(pg_temp.ask('shared', 4, 0, p_units => 1), 'queued', 'a small one behind it too, though it fits');
select is(pg_temp.ask('shared', 5, 4, p_units => 2), 'queued', 'and one with a smaller priority');
select is(pg_temp.ask('shared', 6, 6, p_units => 2), 'granted', 'one with a higher priority that fits goes before it');
select pg_temp.release('shared', 1), pg_temp.release('shared', 2);
select is((select array_agg(a.outcome order by a.n)
             from leasehold_internal.acquire_batch(t.key(901), null, '{p,p,p}', '{shared,shared,shared}', array[t.key(4), t.key(5), t.key(3)], '{a,b,c}', array['{}', '{}', '{}'],
                    '{3600000000,3600000000,3600000000}', '{t,t,t}', '{null,null,null}', '{1,1,1}', '{x,x,x}', null, '{1,2,8}', '{0,4,5}') a),
          '{queued,queued,granted}', 'then the large one is granted, and takes all');
select is((select sum(h.units) from leasehold.share h where h.key = 'shared' and h.state = 'held'), 10::bigint, 'within the capacity');

-- Several scopes have no priority, and nobody waits around a circle: two such requests stand in one order everywhere.
select pg_temp.ask('x', 1), pg_temp.ask('y', 1);
create function pg_temp.all_of(p_lease integer, p_keys text[]) returns text language sql as $$
  select string_agg(distinct a.outcome, ' ')
    from leasehold_internal.acquire_all_one(t.key(901), null, array_fill('p'::text, array[cardinality(p_keys)]), p_keys, t.key(p_lease), 'w', '{}', 3600000000,
                                            true, null, 0, 'x', array_fill(null::bigint, array[cardinality(p_keys)]), array_fill(null::integer, array[cardinality(p_keys)])) a
$$;
select is(pg_temp.all_of(2, '{x,y}'), 'queued', 'one waits for both');
select is(pg_temp.all_of(3, '{y,x}'), 'queued', 'another too');
select pg_temp.ask('x', 4, 7), pg_temp.ask('y', 5, 7);
select is(pg_temp.in_view('x'), '{4,2,3}', 'one with a priority is before them');
select is(pg_temp.in_view('y'), '{5,2,3}', 'in the other queue too');
select pg_temp.release('x', 1), pg_temp.release('y', 1);
select is(pg_temp.all_of(2, '{x,y}'), 'queued', 'while those wait, neither is granted');
select pg_temp.ask('x', 4, 7), pg_temp.ask('y', 5, 7), pg_temp.release('x', 4);
select is(pg_temp.all_of(2, '{x,y}'), 'queued', 'nor with one of two');
select pg_temp.release('y', 5);
select is(pg_temp.all_of(3, '{y,x}'), 'queued', 'then the first of them');
select is(pg_temp.all_of(2, '{x,y}'), 'granted', 'is granted both');

-- Rights: the right lease up to max_priority, the right admin up to 1000.
select is(pg_temp.ask('rights', 1), 'granted', 'a scope is held');
select results_eq($$select (a).outcome, (a).field, (a).bound from pg_temp.asked('rights', 2, 11) a$$,
                  $$values ('denied', 'priority', 'at most 10, the max_priority of the namespace, without the right admin, is 11')$$, 'no more than max_priority');
select is((select count(*) from leasehold.waiter w where w.key = 'rights'), 0::bigint, 'and no place');
select is(pg_temp.ask('rights', 2, -1000), 'queued', 'by the right admin up to 1000');
select results_eq($$select (a).outcome, (a).field, (a).bound from pg_temp.asked('rights', 3, -1001) a$$,
                  $$values ('invalid', 'priority', '0 to 1000, is 1001')$$, 'and no more');
select is((pg_temp.asked('rights', 3, 10)).outcome, 'queued', 'max_priority itself');
select leasehold.set_policy('p', max_priority => 1);
select is((pg_temp.asked('rights', 3, 10)).outcome, 'queued', 'a place keeps what was allowed when it was taken');
create role prio_app login;
grant leasehold_client to prio_app;
set session authorization prio_app;
select is(t.message_of($$select leasehold.acquire('p', 'r', '30 s', priority => 2)$$),
          'access_denied: priority must be at most 1, the max_priority of the namespace, without the right admin, is 2', 'a role is bound too');
select is(t.error_of($$select leasehold.join_queue('p', 'rights', t.key(7), priority => 2)$$), 'LH007 access_denied', 'in join_queue');
select is(t.error_of($$select leasehold.acquire('p', 'r', '30 s', priority => 1)$$), '', 'and may have what the policy allows');
select is(t.error_of($$select leasehold.acquire('p', 'r', '30 s', priority => 1001)$$), 'LH002 invalid_argument priority', 'more than 1000 is invalid');
select is(t.error_of($$select leasehold.acquire('p', 'r', '30 s', priority => -1)$$), 'LH002 invalid_argument priority', 'as is less than 0');
select is(t.error_of($$select leasehold.join_queue('p', 'r', t.key(7), priority => null)$$), 'LH002 invalid_argument priority', 'and null');
reset session authorization;
select leasehold.access_grant('role:prio_app', 'p', 'lease');
set session authorization prio_app;
select is(t.error_of($$select leasehold.acquire('p', 'r1', '30 s', priority => 2)$$), 'LH007 access_denied', 'the right lease is bound by max_priority');
reset session authorization;
select leasehold.access_grant('role:prio_app', 'p', 'admin');
set session authorization prio_app;
select is(t.error_of($$select leasehold.acquire('p', 'r1', '30 s', priority => 1000)$$), '', 'the right admin is not');
reset session authorization;
select is(t.error_of($$select leasehold.set_policy('p', max_priority => 1001)$$), 'LH002 invalid_argument max_priority', 'no policy allows more');
select is(t.error_of($$select leasehold.set_policy('p', ageing => '999 us')$$), 'LH002 invalid_argument ageing', 'an ageing has a least');
select is(t.error_of($$select leasehold.set_policy('p', ageing => '86401 s')$$), 'LH002 invalid_argument ageing', 'and a most');
select is((select (r.max_priority, r.ageing)::text from leasehold_internal.policies_of(array['elsewhere']) r), '(0,00:00:10)', 'by default nobody has one');
select is(t.message_of($$select leasehold.acquire('elsewhere', 'r', '30 s', priority => 5)$$), '', 'but for administrators');

-- Limits of waiters hold as ever.
select leasehold.set_policy('p', max_waiters => 1, max_priority => 10);
select pg_temp.ask('limit', 1), pg_temp.ask('limit', 2);
select is(pg_temp.ask('limit', 3, 9), 'quota', 'a priority makes no room');
select leasehold.reset_policy('p', 'max_waiters');

-- explain() says who is next, and why.
select pg_temp.ask('why', 1), pg_temp.ask('why', 2), pg_temp.ask('why', 3, 4), pg_temp.release('why', 1);
select matches(advice, 'w3 \(priority 4, and so before others who came earlier\) is next, of 2 waiting', 'by its priority') from leasehold.explain('p', 'why');
select pg_temp.came('why', 2, 300);
select matches(advice, 'w2 \(priority 0, and came so early that it is before priority 4\) is next, of 2 waiting', 'or for its age')
  from leasehold.explain('p', 'why');

-- In an old snapshot: who queued since cannot be seen, so a newcomer is refused, whatever its priority.
select pg_temp.ask('blind', 1), t.age('p', 'blind', '3 h');
begin isolation level repeatable read;
select is(t.rows_of($$select * from leasehold.acquire('p', 'blind', '30 s', lease_key => t.key(2), priority => 9)$$), 0, 'not by a takeover in REPEATABLE READ');
rollback;
select is(t.rows_of($$select * from leasehold.acquire('p', 'blind', '30 s', lease_key => t.key(2), priority => 9)$$), 1, 'in READ COMMITTED it is');
select * from finish();
