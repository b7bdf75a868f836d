-- Requests to hand a lease over: who may ask, what a holder is told and answers, when a request ends.
select no_plan();
select t.enroll(t.key(901));
select leasehold.set_policy('h', capacity => 4, hand_over_grace => '20 s');
create function t.hold(p_key text, p_lease integer, p_units integer default 0) returns text language sql as $$
  select b.outcome
    from leasehold_internal.acquire_batch(t.key(901), null, array['h'], array[p_key], array[t.key(p_lease)], array['w' || p_lease], array['{}'], array[30000000], array[true],
                                          array[null::bigint], array[null::bigint], null, null, array[nullif(p_units, 0)]) b
$$;
create function t.ask(p_key text, p_lease integer, p_reason text default '') returns text language sql as $$
  select string_agg(concat_ws(' ', a.owner, a.asked_by, a.state, a.reason, a.refusal), ', ' order by a.token)
    from leasehold.ask_hand_over('h', p_key, t.key(p_lease), p_reason) a
$$;
create function t.told(variadic p_leases integer[]) returns text language sql as $$
  select string_agg(rtrim(concat_ws(' ', a.key, a.asked_by, a.reason)), ', ' order by a.key, a.token) from leasehold.asked(array(select t.key(l) from unnest(p_leases) l)) a
$$;
-- Time passes for the requests.
create function t.later(p_by interval) returns void language sql as $$
  update leasehold.hand_over set asked_at = asked_at - p_by, answer_by = answer_by - p_by
$$;

-- who may ask
select is(t.error_of($$select leasehold.ask_hand_over('h', 'k', t.key(1))$$), 'LH002 invalid_argument lease_key', 'who does not wait may not ask');
select is((select count(*) from leasehold.ask_hand_over('h', 'k')), 0::bigint, 'nobody holds it');
select is(t.hold('k', 1) || ' ' || t.hold('k', 2), 'granted queued', 'one holds, one waits');
select is(t.error_of($$select leasehold.ask_hand_over('h', 'k', t.key(1))$$), 'LH002 invalid_argument lease_key', 'a holder does not ask itself');
select is(t.error_of($$select leasehold.ask_hand_over('h', 'other', t.key(2))$$), 'LH002 invalid_argument lease_key', 'nor one who waits for another scope');
select is(t.told(1), null, 'nobody has asked yet');
select is(t.ask('k', 2, 'zone b is back'), 'w1 w2 open zone b is back', 'who waits asks');
select is(t.told(1, 2), 'k w2 zone b is back', 'the holder is told');
select is((select answer_in between interval '10 s' and interval '20 s' from leasehold.asked(array[t.key(1)])), true, 'and how long it has');
select is((select answer_by - asked_at from leasehold.hand_over), interval '20 s', 'which is hand_over_grace');
select is(t.ask('k', 2, 'again'), 'w1 w2 open zone b is back', 'a repeat is the same request');
select is((select asker from leasehold.hand_over), t.key(2), 'asked by one waiter');

-- refused
select is(leasehold.refuse_hand_over('h', 'k', t.key(9), 'no'), false, 'a stranger refuses nothing');
select is(leasehold.refuse_hand_over('h', 'k', t.key(2), 'no'), false, 'nor does who waits');
select is(leasehold.refuse_hand_over('h', 'k', t.key(1), 'five minutes'), true, 'the holder refuses');
select is(leasehold.refuse_hand_over('h', 'k', t.key(1), 'other words'), true, 'a repeat is done');
select is((select state || ' ' || refusal from leasehold.hand_over_request), 'refused five minutes', 'the first words stay');
select is(t.told(1), null, 'a refused request is not told any more');
select is(t.ask('k', 2, 'please'), 'w1 w2 refused zone b is back five minutes', 'before answer_by it stays refused');
select t.later('21 s');
select is((select state from leasehold.hand_over_request), 'refused', 'and refused it is later');
select leasehold_internal.hand_over_ask_all(array['h'], array['k'], array[t.key(2)]);
select is((select state from leasehold.hand_over_request), 'refused', 'who asks once does not ask again');
select is(t.ask('k', 2, 'please'), 'w1 w2 open please', 'but may by itself, once answer_by has passed');
select is(t.told(1), 'k w2 please', 'which the holder is told');

-- unanswered
select t.later('21 s');
select is((select state from leasehold.hand_over_request), 'unanswered', 'without an answer in time it is unanswered');
select is((select a.answer_in from leasehold.asked(array[t.key(1)]) a), interval '0', 'the holder may still answer');
select is((select unanswered::text || open || refused from leasehold_internal.survey_hand_overs()), '100', 'and it is counted');
select is((select advice from leasehold.explain('h', 'k')) ~ 'asked to hand over by w2 2\d(\.\d+)? s ago: not answered', true, 'explain says so') ;
select is((select deadline > clock_timestamp() from leasehold.lease where namespace = 'h'), true, 'the lease is as it was');

-- the end
select is(leasehold.release_ok('h', 'k', t.key(1)), true, 'it hands over');
select is((select count(*) from leasehold.hand_over_request), 0::bigint, 'the request counts for nothing');
select is((select count(*) from leasehold.hand_over), 1::bigint, 'the release has not looked at it');
select is(t.hold('k', 2), 'granted', 'the next one holds');
select is(t.told(2, 1), null, 'it has not been asked');
select leasehold_internal.coordinator_tick(t.key(901), clock_timestamp());
select is((select count(*) from leasehold.hand_over), 0::bigint, 'a daemon''s tick sweeps it');
select leasehold_internal.hand_over_ask_all(array['h'], array['k'], array[t.key(2)]);
select is((select count(*) from leasehold.hand_over), 0::bigint, 'who holds asks nobody');

-- each holder behind which one waits
select is(t.hold('k', 3), 'queued', 'another waits');
select leasehold_internal.hand_over_ask_all(array['h', 'h'], array['k', 'none'], array[t.key(3), t.key(3)]);
select is(t.told(2), 'k w3', 'a daemon asks for it');
select is(leasehold.release_ok('h', 'k', t.key(2)) and t.hold('k', 4) = 'queued' , true, 'the holder hands over');
select is(t.hold('k', 3), 'granted', 'it goes to the first who waits');
select leasehold_internal.hand_over_ask_all(array['h'], array['k'], array[t.key(4)]);
select is((select string_agg(o.asked_by || ' ' || (o.token = s.token), ',') from leasehold.hand_over o join leasehold.scope s using (namespace, key) where s.namespace = 'h' and s.key = 'k'), 'w4 true', 'the next holder is asked anew, and the old request is gone');

-- shared holders have each their own, and a downgrade ends a request
select is(t.hold('s', 11, 1) || t.hold('s', 12, 1) || t.hold('s', 13), 'grantedgrantedqueued', 'two share, one waits for all of it');
select is(t.ask('s', 13, 'all'), 'w11 w13 open all, w12 w13 open all', 'each is asked');
select is(leasehold.refuse_hand_over('h', 's', t.key(12), 'not I'), true, 'one refuses');
select is(t.told(11, 12), 's w13 all', 'the other is still asked');
select is((select string_agg(owner || ' ' || state, ',' order by owner) from leasehold.hand_over_request where key = 's'), 'w11 open,w12 refused', 'the view has both');
select token from leasehold.share where namespace = 'h' and lease_key = t.key(11) \gset
select is((select count(*) from leasehold.ask_hand_over('h', 's', token => :token)), 1::bigint, 'one of them by its token');
select is((select count(*) from leasehold.ask_hand_over('h', 's', token => 1)), 0::bigint, 'nobody holds it under another token');
select is(t.hold('d', 21) || t.hold('d', 22), 'grantedqueued', 'an exclusive lease');
select is(t.ask('d', 22, 'down'), 'w21 w22 open down', 'is asked for');
select is((select outcome from leasehold_internal.downgrade_one(t.key(901), null, 'h', 'd', t.key(21), 3)), 'ok', 'its holder downgrades');
select is(t.told(21), null, 'the new token has no request');
select leasehold_internal.hand_over_ask_all(array['h'], array['d'], array[t.key(22)]);
select is(t.told(21), 'd w22', 'one who waits on and asks by itself asks it anew');
select is((select outcome from leasehold_internal.downgrade_one(t.key(901), null, 'h', 'd', t.key(21), 2)), 'ok', 'units are given back');
select is(t.told(21), 'd w22', 'under the same token, and so it is still asked');

-- a lease told LOST is asked no more
update leasehold.scope set lapsed = true where namespace = 'h' and key = 'k';
select is(t.told(3) is null and leasehold.refuse_hand_over('h', 'k', t.key(3), 'late') = false, true, 'a holder that was told LOST is neither asked nor refuses');

-- a SQL user
select is((select "position" from leasehold.join_queue('h', 'x', t.key(31))) is not null, true, 'a SQL user waits');
select is((select count(*) from leasehold.ask_hand_over('h', 'x', t.key(31))), 0::bigint, 'nobody holds it');
select is((select count(*) from leasehold.acquire('h', 'x', '30 s', lease_key => t.key(31))), 1::bigint, 'it has it');
select is((select "position" from leasehold.join_queue('h', 'x', t.key(32))), 1, 'another waits');
select is((select state from leasehold.ask_hand_over('h', 'x', t.key(32), 'sql')), 'open', 'and asks');
select is((select reason from leasehold.asked(array[t.key(31)])), 'sql', 'the holder is told');
select leasehold.leave_queue('h', 'x', t.key(32));
select is((select reason from leasehold.asked(array[t.key(31)])), 'sql', 'the request stays when its asker leaves');

-- the daemon's functions
select is((select concat_ws(' ', owner, token is not null, asked_by, reason, answer_in > 0, mode) from leasehold_internal.hand_over_ask_by('token:me', 'peer', 'h', array['key', 'reason'], array['s', 'x']) limit 1),
          'w11 t w13 all t shared', 'a daemon has the lease with its request');
select is((select string_agg(outcome || coalesce(' ' || refusal, ''), ',') from leasehold_internal.hand_over_refuse_by('p', 'q', 'h', array['key', 'lease_key', 'reason'], array['s', t.key(11)::text, 'busy'])),
          'refused busy', 'and refuses');
select is((select outcome from leasehold_internal.hand_over_refuse_by('p', 'q', 'h', array['key', 'lease_key', 'reason'], array['s', t.key(99)::text, 'busy'])), 'not_held', 'not for a stranger');
update leasehold.scope set lapsed = false where namespace = 'h' and key = 'k';
delete from leasehold.hand_over where key = 'k';
select is((select outcome from leasehold_internal.hand_over_refuse_by('p', 'q', 'h', array['key', 'lease_key', 'reason'], array['k', t.key(3)::text, 'busy'])), 'not_asked', 'nor where nobody asked');
select fingerprint from leasehold_internal.hand_overs(null) limit 1 \gset
select is((select count(*) from leasehold_internal.hand_overs(:fingerprint)), 1::bigint, 'nothing has changed');
select is((select count(*) from leasehold_internal.hand_overs(:fingerprint + 1)), 1 + (select count(*) from leasehold.hand_over), 'all of them are read');
select t.ask('k', 4);
select isnt((select fingerprint from leasehold_internal.hand_overs(null) limit 1), :fingerprint, 'a new one changes the fingerprint');
select fingerprint from leasehold_internal.hand_overs(null) limit 1 \gset
select leasehold.refuse_hand_over('h', 'k', t.key(3), 'no');
select isnt((select fingerprint from leasehold_internal.hand_overs(null) limit 1), :fingerprint, 'and so does a refusal');
select is((select count(*) from leasehold.audit where action = 'ask_hand_over' and principal = 'role:' || session_user and key = 's' and token = :token), 1::bigint, 'an administrator is audited');
select is((select count(*) from leasehold.audit where action = 'ask_hand_over' and key = 'd'), 0::bigint, 'a waiter is not');

-- bounds
select is((select string_agg(t.error_of('select leasehold.' || call), ', ' order by n)
             from (values (1, $$ask_hand_over('h', 'k', reason => repeat('r', 1025))$$), (2, $$ask_hand_over('h', 'k', reason => null)$$), (3, $$ask_hand_over('h', '')$$),
                          (4, $$ask_hand_over('', 'k')$$), (5, $$ask_hand_over('h', 'k', token => 0)$$), (6, $$refuse_hand_over('h', 'k', t.key(3), '')$$),
                          (7, $$refuse_hand_over('h', 'k', t.key(3), repeat('r', 1025))$$), (8, $$refuse_hand_over('h', 'k', null, 'r')$$), (9, $$asked(null)$$),
                          (10, $$asked(array_fill(t.key(3), array[10001]))$$), (11, $$set_policy('h', hand_over_grace => '25 hours')$$), (12, $$set_policy('h', hand_over_grace => '-1 s')$$)) c (n, call)),
          'LH002 invalid_argument reason, LH002 invalid_argument reason, LH002 invalid_argument key, LH002 invalid_argument namespace, LH002 invalid_argument token, '
          'LH002 invalid_argument reason, LH002 invalid_argument reason, LH002 invalid_argument lease_key, LH002 invalid_argument lease_keys, LH002 invalid_argument lease_keys, '
          'LH002 invalid_argument hand_over_grace, LH002 invalid_argument hand_over_grace', 'bad input names its field');
select is(t.message_of($$select leasehold.refuse_hand_over('h', 'k', t.key(3), repeat('r', 1025))$$), 'invalid_argument: reason must be 1 to 1024 bytes, has 1025', 'with value and limit');
select is(t.message_of($$select leasehold.ask_hand_over('h', 'k', reason => repeat('r', 1025))$$), 'invalid_argument: reason must be 0 to 1024 bytes, has 1025', 'of a request too');
select is((select string_agg(namespace || ' ' || hand_over_grace, ',' order by namespace) from leasehold.effective_policy where namespace in ('', 'h')), ' 00:00:30,h 00:00:20', '30 s by default');
select leasehold.set_policy('h', hand_over_grace => '0');
delete from leasehold.hand_over where key = 'x';
select is((select state from leasehold.ask_hand_over('h', 'x')), 'unanswered', 'without a grace it is unanswered at once');
select is((select answer_in from leasehold.asked(array[t.key(31)])), interval '0', 'and told all the same');

-- rights
create role hand_over_client login in role leasehold_client;
set role hand_over_client;
select is(t.error_of($$select leasehold.ask_hand_over('h', 's')$$), 'LH007 access_denied', 'without a lease key only an administrator asks');
select throws_ok('select * from leasehold.hand_over', '42501', null, 'lease keys are hidden');
reset role;
grant usage on schema t to hand_over_client;
set role hand_over_client;
select is((select token from leasehold.ask_hand_over('h', 'd', t.key(22))), null, 'a client does not see the tokens of others');
reset role;
revoke usage on schema t from hand_over_client;
drop role hand_over_client;
select * from finish();
