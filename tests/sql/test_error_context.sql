-- An error of the API tells the caller's mistake in its own words: SQLSTATE, message, DETAIL and HINT, and as CONTEXT the called function
-- alone, for each ordinary mistake.
select no_plan();
select leasehold.reap();
create function t.veto(e leasehold.lease_event) returns void language plpgsql set search_path = pg_catalog as $$
begin
  raise exception 'not now';
end
$$;
select leasehold.acquire('e', 'held', '30 s', lease_key => t.key(1));
select leasehold.acquire('e', 'ended', '30 s', lease_key => t.key(2)), leasehold.release_ok('e', 'ended', t.key(2));
select leasehold.acquire('e/x', 'ended', '30 s', lease_key => t.key(5)), leasehold.release_ok('e/x', 'ended', t.key(5));
select leasehold.acquire('e', 'expired', '1 s', lease_key => t.key(3)), t.age('e', 'expired', '1 hour');
select leasehold.set_policy('frozen', frozen => true);
select leasehold.set_policy('full', max_leases => 0, max_waiters => 0);
select leasehold.acquire('veto', 'held', '30 s', lease_key => t.key(4));
select leasehold.add_hook('veto', event, 't.veto(leasehold.lease_event)')
  from unnest(array['acquire', 'heartbeat', 'release_ok', 'release_fail', 'reap']) event;
select leasehold.set_policy('below.a', max_duration => '10 s');
select leasehold.set_schedule(name, 'every 1 h'), leasehold.run_schedule_now(name) from unnest(array['frozen.s', 'full.s', 'veto.s', 'tick.s']) name;
update leasehold.tick set state = 'done', attempts = 1, lease_key = t.key(6), next_try_at = null, ended_at = clock_timestamp() where schedule = 'tick.s';
create temporary table tick_key as select leasehold_internal.tick_key(at) as key from leasehold.tick where schedule = 'tick.s';

-- field and bound stand for LH002: its message, DETAIL and HINT
create temporary table mistake (nth serial, function text, arguments text, state text default 'LH002', message text, field text, bound text);
insert into mistake (function, arguments, field, bound)
select f.name, format(f.arguments, a.namespace, a.key), a.field, a.bound
  from (values ('acquire', '%L, %L, ''30 s'''), ('heartbeat', '%L, %L, t.key(1)'), ('release_ok', '%L, %L, t.key(1)'),
               ('release_fail', '%L, %L, t.key(1), ''no'''), ('guard', '%L, %L, 1'), ('end_reason', '%L, %L, t.key(9)'), ('join_queue', '%L, %L, t.key(9)'),
               ('leave_queue', '%L, %L, t.key(9)'), ('explain', '%L, %L'), ('force_release', '%L, %L, ''why'''), ('downgrade', '%L, %L, t.key(9)')) as f (name, arguments),
       (values ('a..b', 'k', 'namespace', 'segments of 1 to 63 bytes, has 0'), ('e', '', 'key', '1 to 1024 bytes, has 0')) as a (namespace, key, field, bound);
insert into mistake (function, arguments, field, bound) values
  ('acquire', $$'e', 'k', '-30 s'$$, 'duration', '1 to 86400 s in this namespace, is -30 s'),
  ('acquire', $$'e', 'k', '30 s', owner => repeat('o', 256)$$, 'owner', 'at most 255 bytes, has 256'),
  ('acquire', $$'e', 'k', '30 s', lease_key => null$$, 'lease_key', 'a UUID'),
  ('acquire', $$'e', 'k', '30 s', labels => '{"a": 1}'$$, 'labels', 'values are strings'),
  ('acquire', $$'e', 'k', '30 s', mode => 'both'$$, 'mode', 'exclusive or shared, is both'),
  ('acquire', $$'e', 'k', '30 s', mode => 'shared', units => 0$$, 'units', '1 to 1000000, is 0'),
  ('acquire_all', $$'{}', '{}', '30 s'$$, 'namespaces', 'an array of 1 to 100 elements'),
  ('acquire_all', $$array_fill('e'::text, array[101]), array_fill('k'::text, array[101]), '30 s'$$, 'namespaces', 'an array of 1 to 100 elements'),
  ('acquire_all', $$null, array['k'], '30 s'$$, 'namespaces', 'an array of 1 to 100 elements'),
  ('acquire_all', $$'{{e},{e}}', '{a,b}', '30 s'$$, 'namespaces', 'an array of 1 to 100 elements'),
  ('acquire_all', $$'{e,e}', '{a}', '30 s'$$, 'keys', 'an array of 2 elements, as namespaces is'),
  ('acquire_all', $$'{e,e}', null, '30 s'$$, 'keys', 'an array of 2 elements, as namespaces is'),
  ('acquire_all', $$'{e,e}', '{a,b}', '30 s', modes => '{shared}'$$, 'modes', 'an array of 2 elements, as namespaces is'),
  ('acquire_all', $$'{e,e}', '{a,b}', '30 s', units => '{1,1,1}'$$, 'units', 'an array of 2 elements, as namespaces is'),
  ('acquire_all', $$'{e,a..b}', '{a,b}', '30 s'$$, 'namespaces[2]', 'segments of 1 to 63 bytes, has 0'),
  ('acquire_all', $$'{e,e}', array['a', null], '30 s'$$, 'keys[2]', '1 to 1024 bytes, has 0'),
  ('acquire_all', $$'{e,e,e}', '{a,b,a}', '30 s'$$, 'keys[3]', 'of a scope that comes once'),
  ('acquire_all', $$'{e,e}', '{a,b}', '-30 s'$$, 'duration', '1 to 86400 s in this namespace, is -30 s'),
  ('acquire_all', $$'{e,e}', '{a,b}', '30 s', lease_key => null$$, 'lease_key', 'a UUID'),
  ('acquire_all', $$'{e,e}', '{a,b}', '30 s', modes => '{shared,both}'$$, 'modes[2]', 'exclusive or shared, is both'),
  ('acquire_all', $$'{e,e}', '{a,b}', '30 s', modes => '{shared,shared}', units => '{1,0}'$$, 'units[2]', '1 to 1000000, is 0'),
  ('acquire_all', $$'{e,e}', '{a,held}', '30 s', lease_key => t.key(1), modes => '{exclusive,shared}'$$, 'modes[2]', 'exclusive, as this lease key holds it: downgrade it to share it'),
  ('acquire_all', $$'{e,e}', '{a,held}', '30 s', lease_key => t.key(1)$$, 'lease_key', 'one that holds all items, or none of them'),
  ('join_queue', $$'e', 'k', t.key(9), mode => null$$, 'mode', 'exclusive or shared, is null'),
  ('join_queue', $$'e', 'k', t.key(9), units => 2$$, 'units', '1 for an exclusive lease, is 2'),
  ('downgrade', $$'e', 'k', null$$, 'lease_key', 'a UUID'),
  ('set_life_source', $$'lsn'$$, 'source', 'one of wal, epoch, engine'),
  ('downgrade', $$'e', 'held', t.key(9), 0$$, 'units', '1 to 1000000, is 0'),
  ('heartbeat', $$'e', 'k', null$$, 'lease_key', 'a UUID'),
  ('release_ok', $$'e', 'k', null$$, 'lease_key', 'a UUID'),
  ('release_ok', $$'e', 'k', t.key(1), to_jsonb(repeat('x', 8193))$$, 'result', 'at most 8192 bytes as text, has 8195'),
  ('release_fail', $$'e', 'k', null, 'no'$$, 'lease_key', 'a UUID'),
  ('release_fail', $$'e', 'k', t.key(1), null$$, 'error', 'a text of at most 8192 bytes'),
  ('guard', $$'e', 'k', null$$, 'token', 'the token of the lease'),
  ('join_queue', $$'e', 'k', null$$, 'lease_key', 'a UUID'),
  ('join_queue', $$'e', 'k', t.key(9), '0 s'$$, 'ttl', 'more than 0, at most 1 day, is 0 s'),
  ('leave_queue', $$'e', 'k', null$$, 'lease_key', 'a UUID'),
  ('force_release', $$'e', 'k', ''$$, 'reason', '1 to 8192 bytes, has 0'),
  ('reap', $$array['e', 'a..b']$$, 'namespaces', 'segments of 1 to 63 bytes, has 0'),
  ('reap', $$include_children => null$$, 'include_children', 'true or false'),
  ('reap', $$max => 0$$, 'max', 'at least 1, is 0'),
  ('set_policy', $$'a..b', grace => '1 s'$$, 'namespace', 'segments of 1 to 63 bytes, has 0'),
  ('set_policy', $$'e', expiry => 'never'$$, 'expiry', 'takeover, reap or manual, is never'),
  ('set_policy', $$'e', min_duration => '2 d', max_duration => '1 d'$$, 'min_duration', 'at most max_duration'),
  ('set_policy', $$'below', min_duration => '20 s'$$, 'min_duration', 'at most max_duration in below.a'),
  ('reset_policy', $$'a..b'$$, 'namespace', 'segments of 1 to 63 bytes, has 0'),
  ('reset_policy', $$'e', 'color'$$, 'column_name', 'one of ' || array_to_string(leasehold_internal.policy_columns(), ', ')),
  ('add_hook', $$'a..b', 'reap', 't.veto(leasehold.lease_event)'$$, 'namespace', 'segments of 1 to 63 bytes, has 0'),
  ('add_hook', $$'e', 'ended', 't.veto(leasehold.lease_event)'$$, 'event', 'one of acquire, heartbeat, release_ok, release_fail, reap'),
  ('add_hook', $$'e', 'reap', 't.key(integer)'$$, 'function', 'a function f(leasehold.lease_event) returns void'),
  ('remove_hook', $$'e', 'end', 't.veto(leasehold.lease_event)'$$, 'event', 'one of acquire, heartbeat, release_ok, release_fail, reap'),
  ('remove_hook', $$'e', 'reap', null$$, 'function', 'a function'),
  ('remove_hook_named', $$'a..b', 'reap', 'x'$$, 'namespace', 'segments of 1 to 63 bytes, has 0'),
  ('access_grant', $$'', 'e', 'read'$$, 'principal', '1 to 1024 bytes without control characters'),
  ('access_grant', $$'a*b', 'e', 'read'$$, 'principal', 'a principal, or the beginning of one with * after it'),
  ('access_grant', $$'token:ci', 'e', 'write'$$, 'rights', 'of admin, guard, lease and read'),
  ('access_revoke', $$'token:ci', 'a..b'$$, 'namespace', 'segments of 1 to 63 bytes, has 0'),
  ('token_create', $$'CI'$$, 'name', '1 to 63 of a-z, 0-9, ''.'', ''_'' and ''-'''),
  ('token_create', $$'0123abcd'$$, 'name', 'other than 8 of 0-9 and a-f, which is what IDs of tokens are'),
  ('token_create', $$'ci', '0 s'$$, 'expires', 'more than 0, at most 1000 years, is 0 s'),
  ('set_audit_retention', $$'-1 s'$$, 'retention', '0 to 1000 years, is -1 s'),
  ('schedule_instants', $$'@never', up_to => 0$$, 'expression',
   'five fields, @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or every N s, min, h or d, is @never'),
  ('set_schedule', $$'e', '@daily', overlap => 0$$, 'overlap', '1 to 1000, is 0'),
  ('pause_schedule', $$'e'$$, 'name', 'the name of a schedule, is e'),
  ('remove_schedule', $$'a..b'$$, 'name', 'segments of 1 to 63 bytes, has 0'),
  ('run_schedule_now', $$'e'$$, 'name', 'the name of a schedule, is e'),
  ('claim_tick', $$'e'$$, 'name', 'the name of a schedule, is e'),
  ('claim_tick', $$'tick.s', duration => '-1 s'$$, 'duration', '1 to 86400 s in this namespace, is -1 s'),
  ('until_tick', $$'e'$$, 'name', 'the name of a schedule, is e'),
  ('ask_hand_over', $$'e', 'k', reason => repeat('r', 1025)$$, 'reason', '0 to 1024 bytes, has 1025'),
  ('refuse_hand_over', $$'e', 'k', t.key(9), ''$$, 'reason', '1 to 1024 bytes, has 0'),
  ('asked', $$null$$, 'lease_keys', 'at most 10000, is null'),
  ('token_revoke', $$null$$, 'name_or_id', 'a name or an ID');
insert into mistake (function, arguments, state, message, bound) values
  ('acquire', $$'frozen', 'k', '30 s'$$, 'LH003', 'namespace_frozen: frozen gives no new leases for now', null),
  ('acquire', $$'full', 'k', '30 s'$$, 'LH004', 'quota_exceeded: full has reached its limit, max_leases = 0', 'max_leases = 0'),
  ('acquire', $$'veto', 'k', '30 s'$$, 'LH005', 'hook_rejected: not now', null),
  ('acquire', $$'e', 'ended', '30 s', lease_key => t.key(2)$$, 'LH006', 'lease_ended: this lease key has held e/ended before; a new acquisition takes a new one', null),
  ('acquire', $$'e', 'expired', '30 s', lease_key => t.key(3)$$, 'LH006', 'lease_ended: this lease key has held e/expired before; a new acquisition takes a new one', null),
  ('heartbeat', $$'veto', 'held', t.key(4)$$, 'LH005', 'hook_rejected: not now', null),
  ('release_ok', $$'veto', 'held', t.key(4)$$, 'LH005', 'hook_rejected: not now', null),
  ('release_fail', $$'veto', 'held', t.key(4), 'no'$$, 'LH005', 'hook_rejected: not now', null),
  ('guard', $$'e', 'held', 0$$, 'LH001', 'lease_lost: e/held is not held with token 0', null),
  ('join_queue', $$'e', 'ended', t.key(2)$$, 'LH006', 'lease_ended: this lease key has held e/ended before; a new acquisition takes a new one', null),
  ('join_queue', $$'frozen', 'k', t.key(9)$$, 'LH003', 'namespace_frozen: frozen gives no new leases for now', null),
  ('acquire_all', $$'{e,frozen}', '{k,k}', '30 s'$$, 'LH003', 'namespace_frozen: frozen gives no new leases for now', null),
  ('acquire_all', $$'{e,full}', '{k,k}', '30 s'$$, 'LH004', 'quota_exceeded: full has reached its limit, max_leases = 0', 'max_leases = 0'),
  ('acquire_all', $$'{e,veto}', '{k,k}', '30 s'$$, 'LH005', 'hook_rejected: not now', null),
  ('acquire_all', $$'{e,e}', '{held,ended}', '30 s', lease_key => t.key(2)$$, 'LH006', 'lease_ended: this lease key has held e/ended before; a new acquisition takes a new one', null),
  ('acquire_all', $$'{e,e}', '{k,expired}', '30 s', lease_key => t.key(3)$$, 'LH006', 'lease_ended: this lease key has held e/expired before; a new acquisition takes a new one', null),
  ('join_queue', $$'full', 'k', t.key(9)$$, 'LH004', 'quota_exceeded: full has reached its limit, max_waiters = 0', 'max_waiters = 0'),
  ('acquire', $$'e/x', 'ended', '30 s', lease_key => t.key(5)$$, 'LH006', 'lease_ended: this lease key has held "e/x"/ended before; a new acquisition takes a new one', null),
  ('acquire_all', $$'{e,e/x}', '{k,ended}', '30 s', lease_key => t.key(5)$$, 'LH006', 'lease_ended: this lease key has held "e/x"/ended before; a new acquisition takes a new one', null),
  ('join_queue', $$'e/x', 'ended', t.key(5)$$, 'LH006', 'lease_ended: this lease key has held "e/x"/ended before; a new acquisition takes a new one', null),
  ('guard', $$'e/x', 'k', 0$$, 'LH001', 'lease_lost: "e/x"/k is not held with token 0', null),
  ('downgrade', $$'e/x', 'k', t.key(9)$$, 'LH001', 'lease_lost: "e/x"/k is not held with this lease key', null),
  ('downgrade', $$'e', 'held', t.key(9)$$, 'LH001', 'lease_lost: e/held is not held with this lease key', null),
  ('downgrade', $$'veto', 'held', t.key(4)$$, 'LH005', 'hook_rejected: not now', null),
  ('claim_tick', $$'frozen.s'$$, 'LH003', 'namespace_frozen: frozen.s gives no new leases for now', null),
  ('claim_tick', $$'full.s'$$, 'LH004', 'quota_exceeded: full.s has reached its limit, max_leases = 0', 'max_leases = 0'),
  ('claim_tick', $$'veto.s'$$, 'LH005', 'hook_rejected: not now', null),
  ('claim_tick', $$'tick.s', lease_key => t.key(6)$$, 'LH006',
   'lease_ended: this lease key has held tick.s/' || (select key from tick_key) || ' before; a new claim takes a new one', null),
  ('force_release', $$'veto', 'held', 'why'$$, 'LH005', 'hook_rejected: not now',
   'The lease stays. To end it all the same, first select leasehold.remove_hook(''veto'', ''reap'', ...).');

create function pg_temp.told(p_sql text) returns text[] language plpgsql as $$
declare
  v_state text;
  v_message text;
  v_detail text;
  v_hint text;
  v_context text;
begin
  execute p_sql;
  return '{}';
exception when others then
  get stacked diagnostics v_state = returned_sqlstate, v_message = message_text, v_detail = pg_exception_detail,
                          v_hint = pg_exception_hint, v_context = pg_exception_context;
  -- The last two lines are this function's own: its EXECUTE of the statement.
  return array[v_state, v_message, v_detail, v_hint,
               regexp_replace(v_context, E'\\nSQL statement "' || '[^\n]*' || E'"\\nPL/pgSQL function [^\\n]* at EXECUTE$', '')];
end
$$;
create temporary table answer as
select m.*, pg_temp.told(format('select leasehold.%s(%s)', m.function, m.arguments)) as told from mistake m;
select is(told[:4], array[state, coalesce(message, format('invalid_argument: %s must be %s', field, bound)), coalesce(field, ''), coalesce(bound, '')],
          format('%s(%s) tells what is wrong', function, arguments)) from answer order by nth;
select matches(told[5], '^PL/pgSQL function leasehold\.' || function || E'\\([^()]*\\) line \\d+ at RAISE$',
               format('%s(%s) has the context of its function alone', function, arguments)) from answer order by nth;
select is(array_agg(distinct function::text order by function::text),
          (select array_agg(p.proname::text order by p.proname::text) from pg_proc p
            where p.pronamespace = 'leasehold'::regnamespace
              -- From contention on they tell what the functions tell that they call.
              and p.proname not in ('bump_epoch', 'tick_channel', 'contention', 'heartbeat_each', 'release_each', 'downgrade_soon', 'granted', 'acquire_one', 'leave_each', 'asked_each', 'ask_each')), 'all functions that take arguments were asked')
  from mistake;
select * from finish();
