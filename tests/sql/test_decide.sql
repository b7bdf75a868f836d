-- What decide() says about lease keys that waited or held before, and what a holder may still do when the policy has changed.
select no_plan();
select leasehold.reap();
select t.enroll(t.key(901));
update leasehold.incarnation set started_at = started_at - interval '2 hours';

create function pg_temp.ask(p_ns text, p_lease integer, p_units integer default null, p_queue boolean default true) returns text language sql as $$
  select outcome from leasehold_internal.acquire_batch(t.key(901), null, array[p_ns], array['k'], array[t.key(p_lease)], array['w'], array['{}'],
                                              array[60000000], array[p_queue], array[null::bigint], array[0::bigint], null, null, array[p_units])
$$;
create function pg_temp.release(p_ns text, p_lease integer) returns text language sql as $$
  select outcome from leasehold_internal.release_batch(t.key(901), array[p_ns], array['k'], array[t.key(p_lease)], array[false], array[null])
$$;
create function pg_temp.rest(p_ns text) returns void language sql as $$
  update leasehold.scope set at_least = '1 hour', queued = true, at_least_incarnation = (select i.id from leasehold.incarnation i) where namespace = p_ns
$$;

select is(array[pg_temp.ask('over', 1), pg_temp.ask('over', 2), pg_temp.ask('over', 3)], '{granted,queued,queued}', 'two wait');
update leasehold.waiter set wait_until = enqueued_at where namespace = 'over' and lease_key = t.key(2);
select is(pg_temp.release('over', 1), 'ok', 'the holder releases');
select is(pg_temp.ask('over', 2), 'queued', 'whose wait is over has lost its place');
select is(pg_temp.ask('over', 3), 'granted', 'and the next has it');

select is(pg_temp.ask('expired', 1), 'granted', 'a lease');
select t.age('expired', 'k', '1 hour');
select is(pg_temp.ask('expired', 1), 'ended', 'that has expired is not renewed');
select is(pg_temp.ask('failed', 1), 'granted', 'a lease');
select t.age('failed', 'k', '1 hour');
update leasehold.scope set reap_failures = 20 where namespace = 'failed';
select is(pg_temp.ask('failed', 1), 'ended', 'nor is one that could not be reaped');

select is(pg_temp.ask('told', 1), 'granted', 'a lease');
update leasehold.scope set lapsed = true where namespace = 'told';
select leasehold.set_policy('told', expiry => 'manual');
select is(pg_temp.ask('told', 1), 'ended', 'whose holder was told that it has expired is not renewed, though leases do not expire any more');

select is(array[pg_temp.ask('resting', 1), pg_temp.release('resting', 1)], '{granted,ok}', 'a lease that was released');
select pg_temp.rest('resting');
select is(pg_temp.ask('resting', 1), 'ended', 'has ended, while its scope rests');
select is(pg_temp.ask('resting', 2, p_queue => false), 'held', 'which nobody else gets');

select leasehold.set_policy('lower', capacity => 5);
select is(pg_temp.ask('lower', 1, 4), 'granted', 'a shared lease');
select leasehold.set_policy('lower', capacity => 2);
select is(pg_temp.ask('lower', 1, 4), 'renewed', 'that takes more than there is since renews');
select is(pg_temp.ask('lower', 2, 4), 'invalid', 'and another does not get as much');
select is(pg_temp.release('lower', 1), 'ok', 'it is released');
select is(pg_temp.ask('lower', 1, 4), 'ended', 'nor does it once it has ended, which is said first');

select is(pg_temp.ask('frozen', 1), 'granted', 'a lease');
select leasehold.set_policy('frozen', frozen => true);
select is(pg_temp.ask('frozen', 1), 'renewed', 'in a namespace that was frozen since renews');

-- Notifications, where they can be looked at.
create table t.notified (payload text);
create function t.notify(p_channel text, p_payload text) returns void language sql as $$ insert into t.notified values (p_payload) $$;
select replace(pg_get_functiondef('leasehold_internal.wake_head'::regproc), 'pg_notify(', 't.notify(') \gexec
create function pg_temp.prepare(p_ns text) returns text[] language sql as $$
  select array[pg_temp.ask(p_ns, 1), pg_temp.ask(p_ns, 2), pg_temp.release(p_ns, 1)]
$$;
select is(pg_temp.prepare('waited'), '{granted,queued,ok}', 'a free scope, and its first waiter');
select is(pg_temp.ask('waited', 3, p_queue => false), 'held', 'nobody else gets it');
select is((select array_agg(payload) from t.notified), array[E'waited\nk'], 'and the waiter is told');
delete from t.notified;
select is(pg_temp.prepare('waited, rests'), '{granted,queued,ok}', 'another');
select pg_temp.rest('waited, rests');
select is(pg_temp.ask('waited, rests', 3, p_queue => false), 'held', 'that rests');
select is((select array_agg(payload) from t.notified), null, 'is no news for its waiter');

-- In one batch.
select is((select array_agg(outcome order by n)
             from leasehold_internal.acquire_batch(t.key(901), null, array['b', 'b', 'b', 'b2'], array['k', 'k', 'k', 'k'],
                    array[t.key(1), t.key(2), t.key(1), t.key(1)], array['w', 'w', 'w', 'w'], array['{}', '{}', '{}', '{}'],
                    array[60000000, 60000000, 60000000, 60000000], array[true, true, true, true], array[null::bigint, null, null, null],
                    array[0::bigint, 0, 0, 0])),
          '{granted,queued,renewed,granted}', 'the first has the scope, and asks twice');
select is((select array_agg(outcome || coalesce(' ' || field || ': ' || bound, '') order by n)
             from leasehold_internal.acquire_batch(t.key(901), null, array['lower'], array['new'], array[t.key(1)], array['w'], array['{}'],
                    array[1::bigint], array[true], array[null::bigint], array[0::bigint], null, null, array[4])),
          array[(select 'invalid duration: ' || leasehold_internal.duration_bound(p.min_duration, p.max_duration, '1 us') from leasehold.policy p where p.namespace = '')],
          'of two fields that are wrong one is told, with its own bound');

select * from finish();
