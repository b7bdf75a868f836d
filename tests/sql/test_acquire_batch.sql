-- leasehold_internal.acquire_batch: every item one row, in a batch as alone.
select no_plan();
create function pg_temp.batch(p_coordinator uuid, p_items jsonb, p_clock timestamptz default null)
returns table (n integer, outcome text, ticket bigint, waiters_ahead integer, expires_in_us bigint, suspected_in_us bigint, message text, field text,
               bound text, token bigint, owner text, duration_us bigint, remaining_us bigint, deadline timestamptz, heartbeats bigint, liveness text, is_manual boolean)
language sql as $$
  with i as (select * from rows from (jsonb_array_elements(p_items)) with ordinality as i (item, nr))
  select b.n, b.outcome, b.ticket, b.waiters_ahead, b.expires_in_us, b.suspected_in_us, b.message, b.field, b.bound, b.token, b.owner, b.duration_us,
         b.remaining_us, b.deadline, b.heartbeats, b.liveness, b.is_manual
    from (select array_agg(coalesce(item->>'ns', 'b') order by nr) as ns,
                 array_agg(coalesce(item->>'key', 'a') order by nr) as keys,
                 array_agg(t.key((item->>'lk')::integer) order by nr) as lease_keys,
                 array_agg(coalesce(item->>'owner', 'w') order by nr) as owners,
                 array_agg(coalesce(item->>'labels', '{}') order by nr) as labels,
                 array_agg(coalesce((item->>'us')::bigint, 30000000) order by nr) as durations,
                 array_agg(coalesce((item->>'queue')::boolean, false) order by nr) as queues,
                 array_agg((item->>'wait')::bigint order by nr) as waits,
                 array_agg(coalesce((item->>'ticket')::bigint, 0) order by nr) as tickets
            from i) a,
         leasehold_internal.acquire_batch(p_coordinator, p_clock, a.ns, a.keys, a.lease_keys, a.owners, a.labels, a.durations, a.queues, a.waits, a.tickets) b
$$;
select '11111111-1111-4111-8111-111111111111' as c1, '22222222-2222-4222-8222-222222222222' as c2 \gset
select t.enroll(:'c1'), t.enroll(:'c2');

create temp table r as select * from pg_temp.batch(:'c1', '[{"key": "z", "lk": 1}, {"key": "a", "lk": 2, "owner": "w2", "us": 60000000}, {"key": "m", "lk": 3}]');
select results_eq('select n, outcome from r order by n', $$values (1, 'granted'), (2, 'granted'), (3, 'granted')$$, 'three new scopes, three grants, numbered as asked');
select is((select count(distinct token) from r), 3::bigint, 'each with a token of its own');
select is((select owner || ' ' || duration_us from r where n = 2), 'w2 60000000', 'an item gets its own lease');
select is((select b.token from r b where n = 1), (select token from leasehold.scope where key = 'z'), 'the token is the row''s');
select cmp_ok((select remaining_us from r where n = 2), '>', 50000000::bigint, 'what remains is counted in microseconds');
select is((select count(*) from leasehold.waiter), 0::bigint, 'nobody was queued');

-- renewed, held, queued
create temp table r2 as select * from pg_temp.batch(:'c1', '[{"key": "a", "lk": 2, "us": 30000000}, {"key": "a", "lk": 4}, {"key": "a", "lk": 5, "queue": true}, {"key": "a", "lk": 6, "queue": true}, {"key": "a", "lk": 7}]');
select is((select array_agg(outcome order by n) from r2), array['renewed', 'held', 'queued', 'queued', 'held'], 'several items of one scope are decided in their order');
select is((select duration_us from r2 where n = 1), 30000000::bigint, 'a renewal takes the new duration');
select is((select array_agg(waiters_ahead order by n) from r2 where outcome = 'queued'), array[0, 1], 'each waiter knows how many are ahead');
select is((select waiters_ahead from r2 where n = 5), 2, 'a newcomer would have all of them ahead');
select ok((select bool_and(ticket > 0) from r2 where outcome = 'queued'), 'a queued item has a ticket');
select cmp_ok((select ticket from r2 where n = 4), '>', (select ticket from r2 where n = 3), 'tickets grow in the order of arrival');
select is((select owner from r2 where n = 2), 'w', 'a refused item is told the holder');
select is((select count(distinct token) from r2), 1::bigint, 'which is the same for all');
select ok((select bool_and(expires_in_us between 20000000 and 31000000) from r2 where outcome in ('held', 'queued')), 'and when its lease expires');
select ok((select bool_and(suspected_in_us between 10000000 and 20000000) from r2 where outcome in ('held', 'queued')), 'and when it would be suspected dead');
select is((select array_agg(lease_key order by ticket) from leasehold.waiter), array[t.key(5), t.key(6)], 'the queue is in order');

-- the wait is bounded, a repeat keeps the ticket and waits as long as it says
create temp table r3 as select * from pg_temp.batch(:'c1', '[{"key": "w", "lk": 10}, {"key": "w", "lk": 11, "queue": true, "wait": 5000000}]');
select t.is_near((select wait_until from leasehold.waiter where key = 'w'), clock_timestamp() + interval '5 s', 'the wait is bounded', '3 s');
create temp table r4 as select * from pg_temp.batch(:'c1', '[{"key": "w", "lk": 11, "queue": true, "wait": 500000000}]');
select is((select ticket from r4), (select ticket from r3 where n = 2), 'a repeat has its old ticket');
select t.is_near((select wait_until from leasehold.waiter where key = 'w'), clock_timestamp() + interval '500 s', 'a repeat waits as long as it says', '3 s');
select is((select count(*) from leasehold.waiter where key = 'w'), 1::bigint, 'nor adds a row');

-- a ticket that is brought along, when its row was lost
delete from leasehold.waiter where lease_key = t.key(5);
select is((select ticket from pg_temp.batch(:'c1', jsonb_build_array(jsonb_build_object('key', 'a', 'lk', 5, 'queue', true, 'ticket', (select ticket from r2 where n = 3))))),
          (select ticket from r2 where n = 3), 'a waiter whose row was lost gets its old ticket back');
select is((select array_agg(lease_key order by ticket) from leasehold.waiter where key = 'a'), array[t.key(5), t.key(6)], 'and its old place');

-- released: the first gets it, in one batch with a newcomer before it
select outcome from leasehold_internal.release_batch(:'c1', array['b'], array['a'], array[t.key(2)], array[false], array[null::text]) \gset rel_
select is(:'rel_outcome'::text, 'ok', 'released');
create temp table r5 as select * from pg_temp.batch(:'c2', '[{"key": "a", "lk": 20, "queue": true}, {"key": "a", "lk": 21}]');
select is((select array_agg(outcome order by n) from r5), array['queued', 'held'], 'newcomers do not overtake, whichever coordinator they come by');
select is((select waiters_ahead from r5 where n = 1), 2, 'two are ahead');
select is((select token from r5 where n = 1), null, 'nobody holds it');
select is((select expires_in_us from r5 where n = 1), null, 'and nothing will expire');
create temp table r6 as select * from pg_temp.batch(:'c1', '[{"key": "a", "lk": 6, "queue": true}, {"key": "a", "lk": 5, "queue": true}]');
select is((select array_agg(outcome order by n) from r6), array['queued', 'granted'], 'the first in the queue is granted, the second stays');
select is((select array_agg(lease_key order by ticket) from leasehold.waiter where key = 'a'), array[t.key(6), t.key(20)], 'the queue moves up');

-- bad items do not spoil the others
create temp table r7 as select * from pg_temp.batch(:'c1', jsonb_build_array(
  '{"key": "ok1", "lk": 30}'::jsonb, '{"ns": "a..b", "lk": 31}'::jsonb, jsonb_build_object('key', repeat('k', 1025), 'lk', 32), '{"key": "d", "lk": 33, "us": 0}'::jsonb,
  '{"key": "d", "lk": 34, "us": 86400000001}'::jsonb, jsonb_build_object('key', 'o', 'lk', 35, 'owner', repeat('o', 256)), '{"key": "l", "lk": 36, "labels": "{\"a\": 1}"}'::jsonb,
  '{"key": "ok2", "lk": 37}'::jsonb));
select is((select array_agg(outcome order by n) from r7), array['granted', 'invalid', 'invalid', 'invalid', 'invalid', 'invalid', 'invalid', 'granted'], 'a bad item is invalid, the others are granted');
select is((select array_agg(field order by n) from r7 where outcome = 'invalid'), array['namespace', 'key', 'duration', 'duration', 'owner', 'labels'], 'each names its field');
select ok((select bool_and(bound <> '') from r7 where outcome = 'invalid'), 'and the limit');
select is((select count(*) from leasehold.scope where key in ('o', 'l', 'd') or namespace = 'a..b' or length(key) > 1000), 0::bigint, 'nothing of them was written');
select is((select outcome || ' ' || field from pg_temp.batch(:'c1', '[{"key": "neg", "lk": 38, "queue": true, "wait": -1}]')), 'invalid wait', 'a negative wait is invalid');

-- the same lease key twice in one batch: one acquisition
create temp table r8 as select * from pg_temp.batch(:'c1', '[{"key": "twice", "lk": 40}, {"key": "twice", "lk": 40}]');
select is((select array_agg(outcome order by n) from r8), array['granted', 'renewed'], 'a duplicate in the same batch is a renewal');
select is((select count(distinct token) from r8), 1::bigint, 'of the same lease');

-- frozen, and a clock that stepped forward
select leasehold.set_policy('cold', frozen => true);
select is((select array_agg(outcome order by n) from pg_temp.batch(:'c1', '[{"ns": "cold", "lk": 50}, {"key": "warm", "lk": 51}]')), array['frozen', 'granted'], 'a frozen namespace spoils no other item');
select t.age('b', 'z', '1 hour');
select is((select outcome from pg_temp.batch(:'c1', '[{"key": "z", "lk": 60}]', clock_timestamp() - interval '5 s')), 'held', 'while the database''s clock is ahead of the daemon''s, nothing counts as expired');
select is((select outcome from pg_temp.batch(:'c1', '[{"key": "z", "lk": 60}]', clock_timestamp())), 'granted', 'with clocks in step the expired lease is taken over');
select is((select outcome from leasehold_internal.heartbeat_batch(array['b'], array['z'], array[t.key(1)])), 'lost', 'its holder has lost');

-- manual: never by itself
select leasehold.set_policy('hand', expiry => 'manual');
select outcome from pg_temp.batch(:'c1', '[{"ns": "hand", "lk": 70}]');
select is((select outcome || is_manual || coalesce(expires_in_us::text, 'never') from pg_temp.batch(:'c1', '[{"ns": "hand", "lk": 71, "queue": true}]')), 'queuedtruenever', 'behind a manual lease a waiter knows that it never expires');

-- five hundred at once
create temp table r9 as select * from pg_temp.batch(:'c1', (select jsonb_agg(jsonb_build_object('key', 'bulk' || i, 'lk', 1000 + i)) from generate_series(1, 500) i));
select is((select count(*) from r9 where outcome = 'granted'), 500::bigint, 'five hundred new scopes in a batch');
select is((select array_agg(n order by n) from r9), (select array_agg(i) from generate_series(1, 500) i), 'each answered once');
-- what is missing is refused, and costs no other item its answer: alone, and with others
insert into leasehold.scope (namespace, key, check_at) values ('nulls', 'a', 'infinity'), ('nulls', 'b', 'infinity');
select is((select outcome || ' ' || field from leasehold_internal.acquire_batch(:'c1', null, array['nulls'], array['a'], array[null::uuid], array['w'], array['{}'], array[30000000],
                                                                       array[false], array[null::bigint], array[0])),
          'invalid lease_key', 'a lease key that is null is refused');
select results_eq(format($$select n, outcome from leasehold_internal.acquire_batch(%L, null, array['nulls', 'nulls'], array['a', 'b'], array[null, t.key(70)], array['w', 'w'], array['{}', '{}'],
                                                                          array[30000000, 30000000], array[false, false], array[null, null]::bigint[], array[0, 0]) order by n$$, :'c1'),
                  $$values (1, 'invalid'), (2, 'granted')$$, 'and only that item');
select is((select outcome || ' ' || labels from leasehold_internal.acquire_batch(:'c1', null, array['nulls'], array['a'], array[t.key(71)], array['w'], array[null], array[30000000],
                                                                        array[false], array[null::bigint], array[0])),
          'granted {}', 'labels that are null are none');
select results_eq(format($$select n, outcome, field from leasehold_internal.acquire_batch(%L, null, array_fill(repeat('x', 64), '{2}'), array['a', 'b'], array[t.key(72), t.key(73)],
                                                                          array['w', 'w'], array['{}', '{}'], array[30000000, 30000000], array[false, false],
                                                                          array[null, null]::bigint[], array[0, 0]) order by n$$, :'c1'),
                  $$values (1, 'invalid', 'namespace'), (2, 'invalid', 'namespace')$$, 'new names in one bad namespace are refused');

select * from finish();
