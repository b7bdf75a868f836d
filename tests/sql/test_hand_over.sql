-- hand_over_batch: releases, and behind them acquires of who is next, in one transaction.
select no_plan();
select '11111111-1111-4111-8111-111111111111' as c1, '22222222-2222-4222-8222-222222222222' as c2 \gset
select t.enroll(:'c1'), t.enroll(:'c2');
create function pg_temp.ask(p_coordinator uuid, p_key text, p_lease integer) returns text language sql as $$
  select outcome from leasehold_internal.acquire_batch(p_coordinator, null, array['b'], array[p_key], array[t.key(p_lease)], array['w' || p_lease], array['{}'],
                                              array[30000000::bigint], array[true], array[null::bigint], array[0::bigint])
$$;
-- Release p_from of p_keys, and p_to is next there.
create function pg_temp.hand(p_coordinator uuid, p_keys text[], p_from integer[], p_to integer[]) returns text[] language sql as $$
  select array_agg(h.part || ' ' || h.n || ' ' || h.outcome || coalesce(' ' || h.end_reason, '') || case when h.wake then ' wake' else '' end order by h.part desc, h.n)
    from leasehold_internal.hand_over_batch(
           p_coordinator, array(select 'b' from unnest(p_keys)), p_keys, array(select t.key(f) from unnest(p_from) f),
           array(select false from unnest(p_keys)), array(select null::text from unnest(p_keys)), null,
           array(select 'b' from unnest(p_keys)), p_keys, array(select t.key(g) from unnest(p_to) g),
           array(select 'w' || g from unnest(p_to) g), array(select '{}' from unnest(p_keys)),
           array(select 30000000::bigint from unnest(p_keys)), array(select true from unnest(p_keys)),
           array(select null::bigint from unnest(p_keys)),
           array(select coalesce((select w.ticket from leasehold.waiter w where w.lease_key = t.key(g.lease) and w.key = g.key), 0)
                   from unnest(p_keys, p_to) as g (key, lease))) h
$$;

select pg_temp.ask(:'c1', 'one', 1), pg_temp.ask(:'c1', 'one', 2), pg_temp.ask(:'c1', 'one', 3);
select token as before from leasehold.scope where key = 'one' \gset
select is(pg_temp.hand(:'c1', array['one'], array[1], array[2]), array['release 1 ok wake', 'acquire 1 granted'], 'one: released, and granted to who is next');
select is((select row(state, lease_key, token > :before, last_outcome, owner)::text from leasehold.scope where key = 'one'),
          row('held', t.key(2), true, 'ok', 'w2')::text, 'the row says both');
select is((select array_agg(lease_key) from leasehold.waiter where key = 'one'), array[t.key(3)], 'the others wait');
select is(pg_temp.hand(:'c1', array['one'], array[1], array[3]), array['release 1 lost released', 'acquire 1 queued'], 'not held any more: nobody is granted');

select is((select row(ended_keys, ended_outcomes, queued, heartbeats, granted_by, reap_failures)::text from leasehold.scope where key = 'one'),
          row(array_fill(t.key(1), '{1}', '{0}'), '{}'::text[], true, 0, :'c1', 0)::text, 'and what is remembered of the release');
select is(pg_temp.hand(:'c1', array['one'], array[2], array[3]), array['release 1 ok wake', 'acquire 1 granted'], 'and on to the last one');
select is((select row(queued, ended_keys)::text from leasehold.scope where key = 'one'), row(false, array_fill(t.key(2), '{1}', '{-1}') || t.key(1))::text, 'behind whom nobody waits');
select is(pg_temp.hand(:'c1', array['one'], array[3], array[1]), array['release 1 ok', 'acquire 1 ended'], 'an acquisition that has ended is not granted again');

select pg_temp.ask(:'c1', 'old', 1), pg_temp.ask(:'c1', 'old', 2);
select t.age('b', 'old', '1 hour');
select is(pg_temp.hand(:'c1', array['old'], array[1], array[2]), array['release 1 lost expired', 'acquire 1 granted'], 'an expired lease is lost, and taken over');
select is((select last_outcome from leasehold.scope where key = 'old'), 'expired', 'as what it is');

select pg_temp.ask(:'c1', 'far', 1), pg_temp.ask(:'c2', 'far', 2), pg_temp.ask(:'c1', 'far', 3);
select is(pg_temp.hand(:'c1', array['far'], array[1], array[3]), array['release 1 ok', 'acquire 1 queued'], 'another coordinator''s waiter is first: ours stays where it is');
select is((select row(state, queued)::text from leasehold.scope where key = 'far'), row('free', true)::text, 'and the scope waits for it');
select is(pg_temp.ask(:'c2', 'far', 2), 'granted', 'whose turn it is');

-- Its call has ended here and gone on there, which this coordinator may not know yet.
select pg_temp.ask(:'c1', 'moved', 1), pg_temp.ask(:'c1', 'moved', 2);
update leasehold.waiter set coordinator = :'c2' where key = 'moved';
select is((pg_temp.hand(:'c1', array['moved'], array[1], array[2]))[1], 'release 1 ok', 'a waiter that another coordinator has is not told here: that one is');

select pg_temp.ask(:'c1', k, 1), pg_temp.ask(:'c1', k, 2) from unnest(array['m1', 'm2', 'm3']) k;
select is(pg_temp.hand(:'c1', array['m3', 'm1', 'm2'], array[1, 9, 1], array[2, 2, 2]),
          array['release 1 ok wake', 'release 2 lost unknown', 'release 3 ok wake', 'acquire 1 granted', 'acquire 2 queued', 'acquire 3 granted'],
          'several: each by itself');

select pg_temp.ask(:'c1', 'cold', 1), pg_temp.ask(:'c1', 'cold', 2);
select leasehold.set_policy('b', frozen => true);
select is(pg_temp.hand(:'c1', array['cold'], array[1], array[2]), array['release 1 ok wake', 'acquire 1 frozen'], 'frozen: what is held may be released, nothing is granted');

select * from finish();
