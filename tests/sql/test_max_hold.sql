-- A hold that the policy ends: no renewal moves the deadline past acquired_at + max_hold, and what ends there has an outcome of its own. Nothing here
-- waits: what was long ago is forged by t.age().
select no_plan();
select leasehold.reap();
select t.enroll(t.key(901));
select leasehold.set_policy('n', max_hold => '10 min', end_at_max_hold => true, history => true);
create function pg_temp.hold(p_key text, p_duration interval default '30 s', p_lease integer default 1) returns bigint language sql as
  $$ select l.token from leasehold.acquire('n', p_key, p_duration, owner => 'w', lease_key => t.key(p_lease)) l $$;
create function pg_temp.left_of(p_key text) returns interval language sql as
  $$ select deadline - acquired_at from leasehold.scope where namespace = 'n' and key = p_key $$;
-- What a daemon is told of a heartbeat: outcome, seconds left, to the nearest ten, how it ends.
create function pg_temp.beat(p_key text, p_lease integer default 1) returns text language sql as
  $$ select concat_ws(' ', outcome, round(remaining_us / 1e7) * 10, end_reason) from leasehold_internal.heartbeat_batch(array['n'], array[p_key], array[t.key(p_lease)]) $$;

-- Renewals
select pg_temp.hold('a');
select is(pg_temp.beat('a'), 'ok 30', 'far from its end a lease is renewed for its duration');
select t.age('n', 'a', '5 min');
select leasehold_internal.heartbeat_batch(array['n'], array['a'], array[t.key(1)]);
update leasehold.scope set acquired_at = acquired_at - interval '5 min' + interval '10 s' where key = 'a';
select is(regexp_replace((select message from leasehold_internal.heartbeat_batch(array['n'], array['a'], array[t.key(1)])), '[0-9.]+', 'N'),
          null, 'the lease expired meanwhile');
select pg_temp.hold('b'), t.age('n', 'b', '20 s');
update leasehold.scope set acquired_at = acquired_at - interval '9 min 20 s' where key = 'b';
select is(pg_temp.beat('b'), 'ok 20 max_hold', 'near it for what is left, and the holder is told why');
select is(pg_temp.left_of('b'), '10 min', 'its deadline is the end of the hold');
select is((select message from leasehold_internal.heartbeat_batch(array['n'], array['b'], array[t.key(1)])), 'the policy of n ends it after 600 s', 'in words too');
select is(leasehold.heartbeat('n', 'b', t.key(1)), (select acquired_at + interval '10 min' from leasehold.scope where key = 'b'), 'in SQL too');
select is((select array_agg(outcome || ' ' || coalesce(end_reason, '') order by n)
             from leasehold_internal.heartbeat_batch(array['n', 'm', 'n'], array['b', 'x', 'b'], array[t.key(1), t.key(1), t.key(1)])),
          array['ok max_hold', 'lost unknown', 'ok max_hold'], 'in a batch of several too');
select is((select array_agg(deadline - l.acquired_at) from leasehold.acquire('n', 'b', '1 hour', lease_key => t.key(1)) l), array[interval '10 min'],
          'an acquire by the holder moves it no further');
update leasehold.scope set grace = '1 hour' where key = 'b';
select t.age('n', 'b', '21 s');
select is(pg_temp.beat('b'), 'ok 0 max_hold', 'between its deadline and its expiry nothing is left');
select t.age('n', 'b', '1 hour');
select is(pg_temp.beat('b'), 'lost max_hold', 'after its expiry it is lost, with the reason');
select is(t.rows_of($$select * from leasehold.acquire('n', 'b', '30 s', lease_key => t.key(2))$$), 1, 'somebody takes it over');
select is(pg_temp.beat('b'), 'lost max_hold', 'and the reason is remembered');
select is((select outcome from leasehold.history where key = 'b'), 'max_hold', 'the history has it');
select is(t.error_of($$select * from leasehold.acquire('n', 'b', '30 s', lease_key => t.key(1))$$), 'LH006 lease_ended', 'its lease key is used up');
select pg_temp.hold('silent'), t.age('n', 'silent', '1 min');
select leasehold.reap();
select is((select last_outcome from leasehold.scope where key = 'silent'), 'expired', 'one that was not renewed expires as ever');

-- Grants
select pg_temp.hold('long', '1 hour');
select is(pg_temp.left_of('long'), '10 min', 'a grant for longer ends there too');
select is((select duration from leasehold.scope where key = 'long'), '1 hour', 'its duration is what was asked for');
select is((select check_at - deadline from leasehold.scope where key = 'long'), '1 s', 'and the reaper looks at its expiry');
select t.age('n', 'long', '10 min 2 s');
select leasehold.reap();
select is((select last_outcome from leasehold.scope where key = 'long'), 'max_hold', 'the reaper ends it with the outcome');
select pg_temp.hold('long', '1 hour', 2);
select is(pg_temp.left_of('long'), '10 min', 'a free row is granted so too');
select is((select advice ~ ': max_hold' from leasehold.explain('n', 'long')), false, 'explain tells who holds it');
select t.age('n', 'long', '10 min 2 s');
select leasehold.reap();
select is((select advice ~ ' ago: max_hold' from leasehold.explain('n', 'long')), true, 'and how the last one ended');
create function pg_temp.ask(p_key text, p_lease integer, p_queue boolean, p_units integer default null, p_ticket bigint default 0) returns text language sql as $$
  select outcome || coalesce(' ' || round(extract(epoch from deadline - acquired_at)), '')
    from leasehold_internal.acquire_batch(t.key(901), null, array['n'], array[p_key], array[t.key(p_lease)], array['w'], array['{}'],
                                          array[3600000000], array[p_queue], array[null::bigint], array[p_ticket], array['token:w'],
                                          array[null::bigint], array[p_units])
$$;
select is(pg_temp.ask('handed', 1, false), 'granted 600', 'a daemon''s grant');
select is(pg_temp.ask('handed', 2, true), 'queued 600', 'who waits is told of the holder');
select is((select array_agg(part || ' ' || outcome || coalesce(' ' || round(extract(epoch from deadline - acquired_at)), '') order by part desc)
             from leasehold_internal.hand_over_batch(t.key(901), array['n'], array['handed'], array[t.key(1)], array[false], array[null::text], null,
                    array['n'], array['handed'], array[t.key(2)], array['w'], array['{}'], array[3600000000], array[true], array[null::bigint],
                    array[(select ticket from leasehold.waiter where key = 'handed')])),
          array['release ok', 'acquire granted 600'], 'a hand-over');
select is((select array_agg(deadline - acquired_at) from leasehold.acquire_all(array['n', 'n'], array['all 1', 'all 2'], '1 hour')),
          array[interval '10 min', interval '10 min'], 'several scopes together');

-- Shared leases
select is(pg_temp.ask('shared', 1, false, 1), 'granted 600', 'a shared grant');
select is((select deadline - acquired_at from leasehold.scope where key = 'shared'), '601 s', 'the scope''s own row knows when the first may expire');
update leasehold.share set acquired_at = acquired_at - interval '590 s', duration = interval '30 s', heartbeat_at = heartbeat_at - interval '25 s',
                           deadline = heartbeat_at + interval '5 s' where key = 'shared';
select is(pg_temp.beat('shared'), 'ok 10 max_hold', 'its renewal');
select is(pg_temp.ask('shared', 1, false, 1), 'renewed 600', 'by an acquire too');
update leasehold.share set acquired_at = acquired_at - interval '20 s', heartbeat_at = heartbeat_at - interval '20 s', deadline = deadline - interval '20 s', check_at = now()
 where key = 'shared';
select is(pg_temp.beat('shared'), 'lost max_hold', 'it is lost');
select leasehold.reap();
select is((select outcome from leasehold.share where key = 'shared'), 'max_hold', 'it ends');
select is((select last_outcome from leasehold.scope where key = 'shared'), 'max_hold', 'as does the scope''s last lease');
select pg_temp.hold('down', '1 hour');
update leasehold.scope set acquired_at = acquired_at - interval '5 min', heartbeat_at = heartbeat_at - interval '5 min', deadline = deadline - interval '5 min' where key = 'down';
select is((select deadline - acquired_at from leasehold.downgrade('n', 'down', t.key(1))), '10 min', 'a downgrade renews for no longer');

-- Hooks
create function t.no_op(e leasehold.lease_event) returns void language plpgsql as $$ begin perform set_config('t.deadline', e.deadline::text, false); end $$;
select pg_temp.hold('hooked', '1 hour'), leasehold.add_hook('n', 'reap', 't.no_op(leasehold.lease_event)'), leasehold.add_hook('n', 'heartbeat', 't.no_op(leasehold.lease_event)');
select leasehold.heartbeat('n', 'hooked', t.key(1));
select is(current_setting('t.deadline')::timestamptz, (select deadline from leasehold.scope where key = 'hooked'), 'a heartbeat hook is told the deadline');
select t.age('n', 'hooked', '10 min 2 s');
select is((select array_agg(outcome) from leasehold.reap() where key = 'hooked'), array['reaped'], 'one with hooks is reaped');
select is((select last_outcome from leasehold.scope where key = 'hooked'), 'max_hold', 'with the outcome');
select pg_temp.hold('by daemon', '1 hour'), t.age('n', 'by daemon', '10 min 2 s');
select is((select kind from leasehold_internal.reap_hooked(t.key(901), null, 'n', 'by daemon', (select token from leasehold.scope where key = 'by daemon'))), 'reaped', 'by a daemon too');
select is((select last_outcome || array_to_string(ended_outcomes, ',') from leasehold.scope where key = 'by daemon'), 'max_holdmax_hold', 'so too');
select pg_temp.hold('together', '1 hour'), t.age('n', 'together', '10 min 2 s');
select leasehold_internal.reap_together(null, 'n', array['together'], array[(select token from leasehold.scope where key = 'together')]);
select is((select last_outcome || array_to_string(ended_outcomes, ',') from leasehold.scope where key = 'together'), 'max_holdmax_hold', 'or many together');
select leasehold.remove_hook('n', 'reap', 't.no_op(leasehold.lease_event)'), leasehold.remove_hook('n', 'heartbeat', 't.no_op(leasehold.lease_event)');

-- A policy that changes under a holder, and another life
select leasehold.set_policy('late', max_hold => '10 min');
select l.token from leasehold.acquire('late', 'k', '30 s', lease_key => t.key(1)) l;
update leasehold.scope set acquired_at = acquired_at - interval '1 hour' where namespace = 'late';
select deadline as before from leasehold.scope where namespace = 'late' \gset
select leasehold.set_policy('late', end_at_max_hold => true);
select is(leasehold.heartbeat('late', 'k', t.key(1)), :'before', 'a limit that is newer than the hold takes nothing back, and gives nothing');
select leasehold.set_policy('late', end_at_max_hold => false);
select ok(leasehold.heartbeat('late', 'k', t.key(1)) > :'before', 'without it the lease is renewed again');
select leasehold.set_policy('late', end_at_max_hold => true);
select deadline as before from leasehold.scope where namespace = 'late' \gset
update leasehold.scope set acquired_at = acquired_at - interval '5 s', heartbeat_at = heartbeat_at - interval '5 s', deadline = deadline - interval '5 s' where namespace = 'late';
select leasehold.heartbeat('late', 'k', t.key(1));
select leasehold_internal.renew_incarnation('a test');
select leasehold.heartbeat('late', 'k', t.key(1)) as until \gset
select ok(:'until'::timestamptz - (select max(started_at) from leasehold.incarnation) between '10 s' and '25 s', 'a new life gives once more what the last renewal gave');
select is(leasehold.heartbeat('late', 'k', t.key(1)), :'until', 'and no more');
update leasehold.scope set heartbeat_at = heartbeat_at + interval '1 day', acquired_at = acquired_at + interval '1 day', deadline = deadline + interval '1 day' where namespace = 'late';
select ok(leasehold.heartbeat('late', 'k', t.key(1)) < clock_timestamp() + interval '31 s', 'nothing makes it later than a renewal without a limit');

-- Settings that contradict each other
create function pg_temp.problem(p_arguments text) returns text language sql as
  $$ select t.message_of(format('select leasehold.set_policy(%s)', p_arguments)) $$;
select is(pg_temp.problem($$'c', end_at_max_hold => true$$), 'invalid_argument: end_at_max_hold must be false while max_hold is not set', 'without max_hold');
select is(pg_temp.problem($$'c', end_at_max_hold => true, max_hold => '0.5 s'$$), 'invalid_argument: max_hold must be at least min_duration while end_at_max_hold is true', 'with one below min_duration');
select is(pg_temp.problem($$'c', end_at_max_hold => true, max_hold => '1 h', expiry => 'manual'$$), 'invalid_argument: expiry must be takeover or reap while end_at_max_hold is true', 'with leases that never end by themselves');
select is(pg_temp.problem($$'n', min_duration => '11 min'$$), 'invalid_argument: min_duration must be at most max_hold while end_at_max_hold is true', 'a later min_duration');
select leasehold.set_policy('n.child', expiry => 'reap'), leasehold.set_policy('m.child', end_at_max_hold => true, max_hold => '1 h');
select is(pg_temp.problem($$'m', expiry => 'manual', end_at_max_hold => false$$), 'invalid_argument: expiry must be takeover or reap while end_at_max_hold is true in m.child', 'in a namespace below');
select is(t.message_of($$select leasehold.reset_policy('n', 'max_hold')$$), 'invalid_argument: max_hold must be set while end_at_max_hold is true', 'max_hold cannot go');
select is((select end_at_max_hold from leasehold.effective_policy where namespace = 'n.child'), true, 'the view has the setting, inherited');
select is((select array_agg(end_at_max_hold) from leasehold_internal.policy_get('n.child')), array[null, true], 'and programs');
select leasehold.reset_policy('n', 'end_at_max_hold');
select is((select array_agg(end_at_max_hold) from leasehold_internal.policy_get('n')), array[null, false], 'it is inherited again');

select * from finish();
