-- From exclusive to shared without letting go, units that are given back; force-release and hooks of each shared holder.
select no_plan();
select t.enroll(t.key(901));
select leasehold.set_policy('d', capacity => 3, history => true);
create function t.take(p_key text, p_lease integer, p_units integer default 0, p_ns text default 'd') returns text language sql as $$
  select b.outcome
    from leasehold_internal.acquire_batch(t.key(901), null, array[p_ns], array[p_key], array[t.key(p_lease)], array['w' || p_lease], array['{}'], array[30000000], array[true],
                                          array[null::bigint], array[null::bigint], null, null, array[nullif(p_units, 0)]) b
$$;
create function t.down(p_key text, p_lease integer, p_units integer, p_ns text default 'd') returns text language sql as $$
  select concat_ws(' ', o.outcome, o.field, o.bound, o.mode, o.units, o.slots, o.units_free, o.holder_count, case when o.wake then 'wake' end)
    from leasehold_internal.downgrade_one(t.key(901), null, p_ns, p_key, t.key(p_lease), p_units) o
$$;
select is(t.take('k', 1), 'granted', 'an exclusive lease');
select is(t.take('k', 2, 1) || ' ' || t.take('k', 3, 1), 'queued queued', 'two wait to share it');
update leasehold.scope set acquired_at = acquired_at - interval '5 s', heartbeats = 7 where namespace = 'd';
select token as old from leasehold.scope where namespace = 'd' \gset
select acquired_at from leasehold.scope where namespace = 'd' \gset
select is(t.down('k', 1, 2), 'ok shared 2 {1,2} 1 1 wake', 'it is shared from now on, and the first who waits is woken');
select cmp_ok((select token from leasehold.share where namespace = 'd'), '>', :old, 'with a new token');
select is((select concat_ws(' ', heartbeats, acquired_at = :'acquired_at', lease_key = t.key(1), deadline > clock_timestamp() + interval '20 s') from leasehold.share where namespace = 'd'),
          '7 t t t', 'it keeps its lease key, its time of grant and its heartbeats, and is renewed');
select is((select concat_ws(' ', outcome, mode, token = :old) from leasehold.history where namespace = 'd'), 'downgraded exclusive t', 'the history ends the exclusive hold');
select throws_ok(format($$select leasehold.guard('d', 'k', %s)$$, :old), 'LH001', null, 'the old token guards no more');
select is(t.down('k', 1, 2), 'ok shared 2 {1,2} 1 1 wake', 'a repeat answers the same');
select is((select count(*) from leasehold.history where namespace = 'd'), 1::bigint, 'and is no new hold');
select is(t.take('k', 2, 1), 'granted', 'who waits gets what is free');
select is(t.take('k', 3, 1), 'queued', 'and no more');
select is(t.down('k', 1, 1), 'ok shared 1 {1} 1 2 wake', 'units are given back: the highest numbers go');
select is(t.take('k', 3, 1), 'granted', 'the next has them');
select is(t.down('k', 1, 2), 'invalid units 1 to 1, what the lease takes', 'more units than it takes are no downgrade');
select is(t.take('x', 1) || ' ' || t.down('x', 1, 4), 'granted invalid units 1 to 3', 'nor are more than the capacity');
select is(t.down('k', 9, 1), 'lost', 'a stranger''s lease key holds nothing');
select is(t.down('none', 9, 1), 'lost', 'nor does a scope that is not there');
select is(leasehold.release_ok('d', 'k', t.key(1)), true, 'it is released with the same lease key');
select is(t.down('k', 1, 1), 'lost', 'then it is lost');
select is((select array_agg(outcome || mode order by ended_at) from leasehold.history where namespace = 'd'), array['downgradedexclusive', 'okshared'], 'and the history ends the shared hold');
-- expired
select is(t.take('late', 4), 'granted', 'an exclusive lease');
select t.age('d', 'late', '1 hour');
select is(t.down('late', 4, 1), 'lost', 'that has expired is not shared');
select is((select lapsed from leasehold.scope where key = 'late'), true, 'and never revives');
-- the capacity is lowered
select is(t.down('x', 1, 3), 'ok shared 3 {1,2,3} 0 1', 'it takes the capacity');
select leasehold.set_policy('d', capacity => 1);
select is(t.down('x', 1, 3), 'ok shared 3 {1,2,3} 0 1', 'a repeat answers the same lease');
select is(t.down('x', 1, 2), 'ok shared 2 {1,2} 0 1', 'units are given back one by one');
select is(t.down('x', 1, 3), 'invalid units 1 to 2, what the lease takes', 'and do not come back');
select is((select units from leasehold.downgrade('d', 'x', t.key(1), 2)), 2, 'for people too');
select leasehold.set_policy('d', capacity => 3);
-- a renewal says what a shared lease is now: alone, in a batch, twice in one
create function t.renewed(p_keys text[], p_leases integer[]) returns text[] language sql as $$
  select array_agg(concat_ws(' ', b.outcome, b.token = (select max(h.token) from leasehold.share h where h.namespace = 'd' and h.key = p_keys[b.n]), b.units, b.has_slots)
                   order by b.n)
    from leasehold_internal.heartbeat_batch(array_fill('d'::text, array[cardinality(p_keys)]), p_keys, array(select t.key(l) from unnest(p_leases) l)) b
$$;
select is(t.take('mine', 8), 'granted', 'an exclusive lease');
select is(t.renewed('{x}', '{1}'), '{ok t 2 t}', 'a renewal tells token and units of a shared lease, and that it has slots');
select is(t.renewed('{mine}', '{8}'), '{ok}', 'and nothing of an exclusive one');
select is(t.renewed('{x,mine,x,x}', '{1,8,1,9}'), '{ok t 2 t,ok,ok t 2 t,lost}', 'so it does in a batch, to each who asks');
select is((select units from leasehold.downgrade('d', 'mine', t.key(8), 3)), 3, 'it is shared');
select is(t.renewed('{mine,x}', '{8,1}'), '{ok t 3 t,ok t 2 t}', 'the next renewal tells it');
select leasehold.reset_policy('d', 'capacity');
select is(t.take('bare', 8) || ' ' || t.down('bare', 8, 2), 'granted ok shared 2 1', 'without a capacity');
select is(t.renewed('{bare}', '{8}'), '{ok t 2 f}', 'there are no slots');
select leasehold.set_policy('d', capacity => 3);
-- while the scope rests nobody comes in
select is((select outcome from leasehold_internal.acquire_batch(t.key(901), null, array['d'], array['rest'], array[t.key(5)], array['w'], array['{}'], array[30000000], array[true],
                                                              array[null::bigint], array[null::bigint], null, array[3600000000])), 'granted', 'a lease with a minimum hold');
select is(t.take('rest', 6, 1), 'queued', 'one waits');
select is(t.down('rest', 5, 1), 'ok shared 1 {1} 2 1 wake', 'it is shared, and the first who waits asks until when the scope rests');
select is(t.take('rest', 6, 1), 'queued', 'nobody comes in');
select is((select outcome from leasehold_internal.heartbeat_batch(array['d'], array['rest'], array[t.key(5)])), 'ok', 'its holder renews');
select is(t.take('rest', 5, 1), 'renewed', 'by an acquire too');
select is((select count(*) from leasehold.force_release('d', 'rest', 'over')), 1::bigint, 'a force-release ends it');
select is(t.take('rest', 6, 1), 'granted', 'and the rest with it');
-- force-release
select is(t.take('f', 1, 1) || t.take('f', 2, 1) || t.take('f', 3, 1), 'grantedgrantedgranted', 'three share');
select throws_ok($$select leasehold.force_release('d', 'f', 'why')$$, 'LH002', 'invalid_argument: token must be that of one of the 3 holders, or all of them', 'one of several has to be named');
select is((select outcome || ': ' || message from leasehold_internal.force_release_one('d', 'f', 'why', 0)), 'invalid: that of one of the 3 holders, or all of them', 'to programs too');
select is((select units || ' ' || slots::text from leasehold.force_release('d', 'f', 'why', (select token from leasehold.share where key = 'f' and lease_key = t.key(2)))), '1 {2}', 'by its token');
select is((select holders from leasehold.scope where key = 'f'), 2, 'the others stay');
select is((select end_reason from leasehold_internal.heartbeat_batch(array['d'], array['f'], array[t.key(2)])), 'forced', 'its holder is told');
select is((select array_agg(slots order by token) from leasehold.force_release('d', 'f', 'why', all_holders => true)), array[array[1], array[3]], 'or all of them');
select is((select state from leasehold.scope where key = 'f'), 'free', 'then it is free');
select is((select count(*) from leasehold.force_release('d', 'f', 'why', all_holders => true)), 0::bigint, 'and nothing is left to end');
-- Promise 8: hooks run for each holder by itself
create table t.called (event text, owner text, nth serial);
create function t.note(e leasehold.lease_event) returns void language plpgsql as $$
begin
  if e.owner = 'w9' and e.event = 'reap' then raise exception 'not w9'; end if;
  insert into t.called (event, owner) values (e.event, e.owner);
end $$;
alter function t.note(leasehold.lease_event) owner to leasehold_owner;
grant all on all sequences in schema t to leasehold_owner;
select leasehold.add_hook('h', e, 't.note(leasehold.lease_event)') from unnest(array['acquire', 'heartbeat', 'release_ok', 'reap']) e;
select is(t.take('k', 8, 1, 'h'), 'hooked', 'a batch leaves what has hooks to one that runs them');
select is((select count(*) from leasehold.acquire('h', 'k', '30 s', 'w' || n, t.key(n), mode => 'shared')), 1::bigint, 'w' || n || ' shares it') from generate_series(8, 10) n;
select is(leasehold.heartbeat('h', 'k', t.key(8)) is not null, true, 'one renews');
select is(leasehold.release_ok('h', 'k', t.key(10)), true, 'one leaves');
select is((select array_agg(event || ' ' || owner order by nth) from t.called), array['acquire w8', 'acquire w9', 'acquire w10', 'heartbeat w8', 'release_ok w10'], 'the hooks of each have run');
update leasehold.share set acquired_at = acquired_at - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h', deadline = deadline - interval '1 h', check_at = check_at - interval '1 h'
 where namespace = 'h';
select is((select count(*) from leasehold.acquire('h', 'k', '30 s', 'w1', t.key(1))), 0::bigint, 'a writer cannot take over while one cannot be reaped');
select is((select array_agg(owner order by token) from leasehold.share where namespace = 'h' and state = 'held'), array['w9'], 'the other has been reaped');
select is((select reap_failures from leasehold.share where namespace = 'h' and lease_key = t.key(9)), 1, 'and that is written down');
select is((select array_agg(outcome || ' ' || owner) from leasehold.reap(array['h'])), array['failed w9'], 'a reap by name tries again');
select leasehold.remove_hook('h', 'reap', 't.note(leasehold.lease_event)');
update leasehold.share set next_try_at = clock_timestamp() - interval '1 s', reap_failed_at = reap_failed_at - interval '1 h' where namespace = 'h' and state = 'held';
select is((select array_agg(outcome || ' ' || owner) from leasehold.reap(array['h'])), array['reaped w9'], 'without the hook it is reaped');

-- by another coordinator, which has renewed it for a late request, too: a cancel of that request leaves the lease to its holder
select t.enroll(t.key(902));
select is(t.take('late request', 20), 'granted', '');
select is((select outcome from leasehold_internal.acquire_batch(t.key(902), null, '{d}', '{late request}', array[t.key(20)], '{w20}', '{"{}"}', '{30000000}', '{true}', '{null}', '{null}')),
          'renewed', '');
select is((select outcome from leasehold_internal.downgrade_one(t.key(902), null, 'd', 'late request', t.key(20), p_units)), 'ok', format('it takes %s', p_units))
  from generate_series(2, 1, -1) p_units;
select leasehold_internal.leave_batch(t.key(902), '{d}', '{late request}', array[t.key(20)], '{false}');
select is((select state || ' ' || units from leasehold.share where key = 'late request'), 'held 1', 'neither coordinator takes it back');
select * from finish();
