-- The minimum hold: a scope is granted to nobody before acquired_at + at_least, however and by whomever its lease ended, other than by
-- force. Nothing here waits: what was long ago is forged by pg_temp.age().
select no_plan();
select leasehold.reap();
select t.enroll(t.key(901)), t.enroll(t.key(902));
create function pg_temp.taken(p_key text, p_lease integer default 9) returns boolean language sql as
  $$ select t.rows_of(format('select * from leasehold.acquire(%L, %L, %L, lease_key => %L)', 'n', p_key, '30 s', t.key(p_lease))) = 1 $$;
create function pg_temp.hold(p_key text, p_at_least interval default '1 hour', p_lease integer default 1) returns bigint language sql as
  $$ select l.token from leasehold.acquire('n', p_key, '30 s', owner => 'w', lease_key => t.key(p_lease), at_least => p_at_least) l $$;
create function pg_temp.age(p_key text, p_by interval) returns void language sql as $$ select t.age('n', p_key, p_by) $$;
-- What a daemon is told: the outcome, and for how many seconds it rests.
create function pg_temp.ask(p_key text, p_lease integer, p_queue boolean, p_at_least_us bigint default null, p_coordinator integer default 901) returns text language sql as $$
  select outcome || coalesce(' ' || round(rests_in_us / 1e6 / 60) || ' min', '') || case when token is null then '' else ' with a lease' end
    from leasehold_internal.acquire_batch(t.key(p_coordinator), null, array['n'], array[p_key], array[t.key(p_lease)], array['w' || p_lease], array['{}'],
                                          array[3600000000], array[p_queue], array[null::bigint], array[0::bigint], array['token:w'],
                                          array[p_at_least_us])
$$;

-- However the lease ends
select isnt(pg_temp.hold('released'), null, 'a lease with a minimum hold is granted as any other');
select is(leasehold.release_ok('n', 'released', t.key(1)), true, 'its holder gives it back');
select is(pg_temp.taken('released'), false, 'and nobody gets the scope');
select is(t.error_of($$select * from leasehold.acquire('n', 'released', '30 s', lease_key => t.key(1))$$), 'LH006 lease_ended', 'nor does its holder, with the old lease key');
select is(leasehold.heartbeat('n', 'released', t.key(1)), null, 'who cannot renew it either');
select pg_temp.age('released', '59 min');
select is(pg_temp.taken('released'), false, 'not until the hour is over');
select pg_temp.age('released', '61 s');
select is(pg_temp.taken('released'), true, 'then it is granted');
select is((select at_least from leasehold.scope where key = 'released'), null, 'a grant without a minimum hold has none');
select leasehold.release_ok('n', 'released', t.key(9));
select is(pg_temp.taken('released', 10), true, 'and leaves none behind');

select pg_temp.hold('failed'), leasehold.release_fail('n', 'failed', t.key(1), 'no');
select is(pg_temp.taken('failed'), false, 'a lease that was released as failed rests');
select pg_temp.hold('expired'), pg_temp.age('expired', '10 min');
select is(pg_temp.taken('expired'), false, 'an expired lease is not taken over');
select is((select count(*) from leasehold.reap()), 1::bigint, 'the reaper ends it');
select is(pg_temp.taken('expired'), false, 'and the scope rests all the same');
select is((select state from leasehold.scope where key = 'expired'), 'free', 'though it is held by nobody');
select pg_temp.hold('taken over', '1 min'), pg_temp.age('taken over', '10 min');
select is(pg_temp.taken('taken over'), true, 'an expired lease is taken over when its minimum hold is over');
select pg_temp.hold('lapsed'), pg_temp.age('lapsed', '10 min'), leasehold.heartbeat('n', 'lapsed', t.key(1));
select is(pg_temp.taken('lapsed'), false, 'nor is one whose holder was told that it is lost');
select pg_temp.hold('forced');
select is((select count(*) from leasehold.force_release('n', 'forced', 'its host burned down')), 1::bigint, 'force_release ends the lease');
select is(pg_temp.taken('forced'), true, 'and its minimum hold');
create function t.hook(e leasehold.lease_event) returns void language sql as $$ select $$;
select leasehold.add_hook('n', 'reap', 't.hook(leasehold.lease_event)');
select pg_temp.hold('hooked'), pg_temp.age('hooked', '10 min');
select is((select array_agg(outcome) from leasehold.reap() where key = 'hooked'), array['reaped'], 'one that is reaped through hooks');
select is(pg_temp.taken('hooked'), false, 'rests');
select pg_temp.hold('daemon hooked'), pg_temp.age('daemon hooked', '10 min');
select is((select kind from leasehold_internal.reap_hooked(t.key(901), null, 'n', 'daemon hooked', (select token from leasehold.scope where key = 'daemon hooked'))), 'reaped', 'by a daemon too');
select is(pg_temp.taken('daemon hooked'), false, 'it rests');
select pg_temp.hold('together'), pg_temp.age('together', '10 min');
select is((select count(*) from leasehold_internal.reap_together(null, 'n', array['together'], array[(select token from leasehold.scope where key = 'together')])), 0::bigint, 'one with a minimum hold is not reaped together with others');
select leasehold.remove_hook('n', 'reap', 't.hook(leasehold.lease_event)');

-- A scope that rests, by force
select pg_temp.hold('by force') as token \gset
select leasehold.release_ok('n', 'by force', t.key(1));
select is((select outcome from leasehold_internal.force_release_one('n', 'by force', 'again', :token + 1)), 'not_held', 'with another token it rests on');
select is((select f.outcome || coalesce(' ' || f.lease_key, '') || coalesce(' ' || f.token, '') from leasehold_internal.force_release_one('n', 'by force', 'again', :token) f), 'ended',
          'with the token of its last lease it rests no longer, and there is no lease');
select is(pg_temp.taken('by force'), true, 'so that it can be granted');
select leasehold.release_ok('n', 'by force', t.key(9));
select pg_temp.hold('by people', '1 hour'), leasehold.release_ok('n', 'by people', t.key(1));
select is((select count(*) from leasehold.force_release('n', 'by people', 'again')), 0::bigint, 'people get no row');
select is(pg_temp.taken('by people'), true, 'and it rests no longer');
select is((select array_agg(a.key order by a.at) from leasehold.audit a where a.action = 'force_release' and a.reason = 'again' and a.outcome = 'done'), array['by force', 'by people'], 'which the audit says');
select is((select outcome from leasehold_internal.force_release_one('n', 'released', 'again', (select token - 1 from leasehold.scope where key = 'released'))), 'not_held', 'a scope with another lease is left alone');

-- Who asks for how long
select pg_temp.hold('renewed', '1 hour'), pg_temp.hold('renewed', '5 hours');
select is((select at_least from leasehold.scope where key = 'renewed'), '1 hour', 'a repeat by the holder keeps the first');
select leasehold.set_policy('n', at_least => '2 hours');
select pg_temp.hold('by policy', null), pg_temp.hold('by request', '1 hour'), pg_temp.hold('none', '0 s');
select is((select array_agg(at_least order by key) from leasehold.scope where key in ('by policy', 'by request', 'none')), array['2 hours', '1 hour', null]::interval[],
          'the request decides, else the policy; 0 is a value');
select is((select at_least from leasehold.effective_policy where namespace = 'n'), '2 hours', 'effective_policy shows it');
select is((select at_least_us from leasehold_internal.policy_get('n') offset 1), 7200000000, 'and programs read it');
select is((select sources->>'at_least' from leasehold.effective_policy where namespace = 'n'), 'n', 'with where it comes from');
select is(pg_temp.ask('batch', 1, false), 'granted 120 min with a lease', 'the policy is that of daemons'' callers, too');
select leasehold.set_policy('n', at_least => '0 s');
select is(pg_temp.ask('batch of none', 1, false), 'granted with a lease', 'a policy may say 0');
select leasehold.reset_policy('n', 'at_least');
select is(t.error_of(format($$select * from leasehold.acquire('n', 'bad', '30 s', at_least => %L)$$, bad)), 'LH002 invalid_argument at_least', 'at_least ' || bad || ' is refused')
  from unnest(array['-1 us', '24 h 1 us', '1 month']) bad;
select is(t.error_of(format($$select leasehold.set_policy('n', at_least => %L)$$, bad)), 'LH002 invalid_argument at_least', 'as a policy too')
  from unnest(array['-1 s', '24 h 1 s']) bad;
select is(pg_temp.ask('bad', 1, true, 86400000001), 'invalid', 'and by a daemon');
select is((select count(*) from leasehold.scope where key = 'bad'), 0::bigint, 'nothing was written');
select is(pg_temp.ask('a day', 1, true, 86400000000), 'granted 1440 min with a lease', 'a day may be asked for');

-- A free row that has none takes the quick paths, unless the next lease has one
select pg_temp.ask('quick', 1, false), pg_temp.ask('quick too', 1, false), leasehold.release_ok('n', 'quick', t.key(1)), leasehold.release_ok('n', 'quick too', t.key(1));
select is(pg_temp.ask('quick', 2, false, 3600000000), 'granted 60 min with a lease', 'alone');
select is((select array_agg(outcome || ' ' || (rests_in_us is not null) order by n) from leasehold_internal.acquire_batch(
             t.key(901), null, array['n', 'n'], array['quick too', 'quick three'], array[t.key(2), t.key(2)], array['w', 'w'], array['{}', '{}'], array[3600000000, 3600000000],
             array[false, false], array[null::bigint, null], array[0::bigint, 0], array['token:w', 'token:w'], array[3600000000, null])), array['granted true', 'granted false'], 'or with another');
select pg_temp.ask('a free scope', 3, false), leasehold.release_ok('n', 'a free scope', t.key(3));
select is((select array_agg(outcome order by n) from leasehold_internal.acquire_batch(
             t.key(901), null, array['n', 'n'], array[a_name, a_name], array[t.key(1), t.key(2)], array['w', 'w'], array['{}', '{}'], array[3600000000, 3600000000],
             array[false, false], array[null::bigint, null], array[0::bigint, 0], array['token:w', 'token:w'], array[3600000000, null])), array['granted', 'held'],
          'the first of two in one batch gets ' || a_name)
  from unnest(array['a free scope', 'a new scope']) a_name;
select pg_temp.ask('quick four', 1, false), leasehold.release_ok('n', 'quick four', t.key(1)), leasehold.set_policy('n', at_least => '1 hour');
select is(pg_temp.ask('quick four', 2, false), 'granted 60 min with a lease', 'or for the policy');
select leasehold.reset_policy('n', 'at_least');

-- Waiters
select is(pg_temp.ask('queue', 1, true, 3600000000), 'granted 60 min with a lease', 'a daemon''s caller holds it');
select is(pg_temp.ask('queue', 2, false), 'held 60 min with a lease', 'another is told for how long the scope rests, beside who holds it');
select is(pg_temp.ask('queue', 2, true), 'queued 60 min with a lease', 'and may wait');
select is(pg_temp.ask('queue', 3, true, null, 902), 'queued 60 min with a lease', 'so may a third');
select is((select outcome || ' ' || wake from leasehold_internal.release_batch(t.key(901), array['n'], array['queue'], array[t.key(1)], array[false], array[null])), 'ok true',
          'whose lease ended wakes the first, who learns that it rests');
select is(pg_temp.ask('queue', 2, true), 'queued 60 min', 'it waits on, for nobody');
select is((select round(rests_in_us / 6e7) || ' ' || coalesce(token::text, 'none') || ' ' || waiters_ahead from leasehold_internal.leave_batch(t.key(902), array['n'], array['queue'], array[t.key(3)], array[true])),
          '60 none 1', 'whoever stops waiting hears it');
select is((select rests_until from leasehold.queue where key = 'queue' and position = 1), (select acquired_at + interval '1 hour' from leasehold.scope where key = 'queue'), 'the queue says until when');
select is((select is_held || ' ' || round(rests_in_us / 6e7) from leasehold_internal.get_scope('n', 'queue')), 'false 60', 'so does GetLease');
update leasehold.scope set check_at = clock_timestamp() - interval '1 s' where key = 'queue';
select is((select count(*) from leasehold_internal.coordinator_tick(t.key(901), null) where key = 'queue'), 0::bigint, 'the slow poll does not name it');
select is(leasehold_internal.pass_on(t.key(901), 'n', 'queue'), false, 'nor is a wake-up passed on');
select is((select count(*) from leasehold_internal.reap_batch(t.key(901), null, null, true, 100, true) where key = 'queue'), 0::bigint, 'the reaper wakes nobody');
select is((select check_at from leasehold.scope where key = 'queue'), (select acquired_at + interval '1 hour' from leasehold.scope where key = 'queue'), 'and comes when the rest is over');
select leasehold_internal.reap_stale_tidy(1000);
select pg_temp.age('queue', '1 hour');
select is((select count(*) from leasehold_internal.coordinator_tick(t.key(901), null) where key = 'queue'), 1::bigint, 'then the slow poll names it');
select is(leasehold_internal.pass_on(t.key(901), 'n', 'queue'), true, 'a wake-up is passed on');
select is(pg_temp.ask('queue', 4, true), 'queued', 'a newcomer does not overtake');
select is((select wake from leasehold_internal.reap_batch(t.key(901), null, null, true, 100, true) where key = 'queue'), true, 'the reaper wakes the first');
select is((select at_least from leasehold.scope where key = 'queue'), null, 'and notes that the rest is over');
select is(pg_temp.ask('queue', 2, true), 'granted with a lease', 'who is granted it');
-- the release of one with what the next asks for, in one call
select pg_temp.ask('pass', 1, true, 3600000000), pg_temp.ask('pass', 2, true);
select is((select array_agg(part || ' ' || outcome || coalesce(' ' || round(rests_in_us / 6e7), '')) from leasehold_internal.hand_over_batch(
             t.key(901), array['n'], array['pass'], array[t.key(1)], array[false], array[null], null, array['n'], array['pass'], array[t.key(2)], array['w'], array['{}'], array[3600000000],
             array[true], array[null::bigint], array[0::bigint])), array['release ok', 'acquire queued 60'], 'it is not handed over before');
select pg_temp.ask('pass on', 1, true), pg_temp.ask('pass on', 2, true);
select is((select array_agg(part || ' ' || outcome || coalesce(' ' || round(rests_in_us / 6e7), '')) from leasehold_internal.hand_over_batch(
             t.key(901), array['n'], array['pass on'], array[t.key(1)], array[false], array[null], null, array['n'], array['pass on'], array[t.key(2)], array['w'], array['{}'], array[3600000000],
             array[true], array[null::bigint], array[0::bigint], p_next_at_least_us => array[3600000000])), array['release ok', 'acquire granted 60'], 'the next may have a minimum hold');
-- a daemon of before, which knows nothing of it
select pg_temp.hold('older', '1 hour', 21);
select leasehold.release_ok('n', 'older', t.key(21));
select is((select array_agg(outcome order by n) from leasehold_internal.acquire_batch(
             t.key(901), null, array['n', 'n'], array['older', 'older too'], array[t.key(20), t.key(20)], array['w', 'w'], array['{}', '{}'], array[3600000000, 3600000000],
             array[false, false], array[null::bigint, null], array[0::bigint, 0], array['token:w', 'token:w'])), array['held', 'granted'], 'an older daemon is told that it is held');
-- a SQL user
select pg_temp.hold('sql', '1 hour'), leasehold.release_ok('n', 'sql', t.key(1));
select is((select position from leasehold.join_queue('n', 'sql', t.key(2), '2 hours')), 1, 'a SQL user takes the first place');
select is(pg_temp.taken('sql', 2), false, 'and gets nothing before');
select pg_temp.age('sql', '1 hour');
select is(pg_temp.taken('sql', 3), false, 'then a newcomer does not overtake it');
select is(pg_temp.taken('sql', 2), true, 'and it is granted');

-- The row
select pg_temp.hold('kept', '1 hour'), leasehold.release_ok('n', 'kept', t.key(1)), pg_temp.age('kept', '30 min');
select is((select count(*) from leasehold.reap()) * 0 + (select count(*) from leasehold.scope where key = 'kept'), 1::bigint, 'a row that rests outlives its retention');
update leasehold.scope set check_at = clock_timestamp() where key = 'kept';
select leasehold_internal.reap_stale_tidy(1000);
select is((select count(*) from leasehold.scope where key = 'kept'), 1::bigint, 'by the other reaper as well');
select pg_temp.age('kept', '31 min');
select leasehold.reap();
select is((select count(*) from leasehold.scope where key = 'kept'), 0::bigint, 'and goes with the rest');
select is((select count(*) from leasehold.scope where at_least is not null and not queued), 0::bigint, 'no row with a minimum hold is left to the quick paths');

-- What people read
select pg_temp.hold('told', '1 hour');
select is((select rests_until - acquired_at from leasehold.lease where key = 'told'), '1 hour', 'the view of leases says until when');
select alike((select advice from leasehold.explain('n', 'told')), 'wait: w is alive%; given back earlier, the scope still rests for 59 min %', 'explain says so of a holder');
select leasehold.release_ok('n', 'told', t.key(1));
select is((select state || ' ' || (rests_until = (select acquired_at + interval '1 hour' from leasehold.scope where key = 'told')) || ' ' || coalesce(holder, 'nobody') from leasehold.explain('n', 'told')),
          'resting true nobody', 'and of a scope that nobody holds');
select alike((select advice from leasehold.explain('n', 'told')), 'wait: it rests for another 59 min %, until % UTC: the lease of w was acquired with at_least = 60 min 0 s', 'with what to do');
select pg_temp.age('told', '61 min');
select is((select state || coalesce(' ' || rests_until, '') from leasehold.explain('n', 'told')), 'free', 'until it is over');
select pg_temp.hold('told expired', '1 hour'), pg_temp.age('told expired', '10 min');
select alike((select advice from leasehold.explain('n', 'told expired')), 'wait: it rests for another 49 min %', 'of an expired one it does not say that it can be had');

-- Promise 9: in a new life it lasts its whole length from then, though its holder renews
select pg_temp.hold('life', '1 hour'), pg_temp.hold('life renewed', '1 hour'), pg_temp.age('life', '50 min'), pg_temp.hold('rested', '1 hour'), leasehold.release_ok('n', 'life', t.key(1)),
       leasehold.release_ok('n', 'rested', t.key(1)), pg_temp.age('rested', '61 min');
update leasehold.scope set check_at = clock_timestamp() where key = 'rested';
select leasehold.set_policy('n', free_retention => '1 day');
select leasehold.reap();
delete from leasehold.incarnation_marker;
update leasehold.scope set acquired_at = acquired_at - interval '11 min' where key = 'life';
select is(pg_temp.ask('life', 2, false), 'held 0 min', 'a new life that nobody has noticed: whoever asks comes again soon');
select is(pg_temp.taken('life'), false, 'nothing is granted');
select leasehold.reap();
select is(pg_temp.ask('life', 2, false), 'held 60 min', 'then it rests for its whole length');
select isnt(leasehold.heartbeat('n', 'life renewed', t.key(1)), null, 'a holder renews');
update leasehold.scope set acquired_at = acquired_at - interval '59 min' where key = 'life renewed';
select leasehold.release_ok('n', 'life renewed', t.key(1));
select is(pg_temp.ask('life renewed', 2, false), 'held 60 min', 'which shortens nothing');
select is(pg_temp.taken('rested'), true, 'what had rested before does not begin again');
update leasehold.incarnation set started_at = started_at - interval '61 min';
update leasehold.scope set acquired_at = acquired_at - interval '61 min' where key like 'life%';
select is(pg_temp.taken('life') and pg_temp.taken('life renewed'), true, 'until it is over');
select pg_temp.hold('raced', '1 hour');
update leasehold.incarnation set id = id + 1, started_at = (select acquired_at - interval '10 min' from leasehold.scope where key = 'raced');
select leasehold.release_ok('n', 'raced', t.key(1));
select is((select rests_until from leasehold.explain('n', 'raced')), (select acquired_at + interval '1 hour' from leasehold.scope where key = 'raced'),
          'a grant that ran while a new life was written down has its whole length too');
update leasehold.scope set acquired_at = acquired_at + interval '20 min' where key = 'raced';
select is((select rests_until from leasehold.explain('n', 'raced')), (select started_at + interval '1 hour' from leasehold.incarnation),
          'and a grant that a clock ahead of this one has dated lasts from the start of the new life');
update leasehold.coordinator set seen_at = clock_timestamp() - interval '1 min';
select pg_temp.hold('away', '10 min'), leasehold.release_ok('n', 'away', t.key(1)), pg_temp.age('away', '1 hour');
select is(pg_temp.taken('away'), false, 'while all daemons are away nothing that rested is granted');
select * from finish();
