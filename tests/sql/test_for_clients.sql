-- What the client packages ask, in one statement.
select no_plan();
select leasehold.reap();
select leasehold.set_policy('c', capacity => 5), leasehold.set_policy('v', grace => '1 s');
create function pg_temp.hold(p_key text, p_lease integer, p_mode text default 'exclusive', p_units integer default 1, p_namespace text default 'c') returns void language sql as $$
  select leasehold.acquire(p_namespace, p_key, '1 min', 'w' || p_lease, t.key(p_lease), mode => p_mode, units => p_units)
$$;
create function pg_temp.way(p_keys text[], p_modes text[] default null) returns text language sql as $$
  select concat_ws(' ', n, state, coalesce(holder, '-'), waiters, holders, coalesce(units_free::text, '-'), coalesce(is_alive::text, '-'), advice <> '')
    from leasehold.contention(array_fill('c'::text, array[cardinality(p_keys)]), p_keys, p_modes)
$$;
select pg_temp.hold('held', 1), pg_temp.hold('shared', 2, 'shared', 2), pg_temp.hold('shared', 3, 'shared', 1), pg_temp.hold('queued', 4), pg_temp.hold('n', 1, p_namespace => 'n');
select leasehold.join_queue('c', 'queued', t.key(5), '1 h'), leasehold.release_ok('c', 'queued', t.key(4));

select is(pg_temp.way('{held}'), '1 held w1 0 1 0 true t', 'a holder, and no unit is free');
select is(pg_temp.way('{none}'), '1 free - 0 0 5 - t', 'nobody');
select is(pg_temp.way('{shared}'), '1 shared w2 0 2 2 true t', 'shared holders: the oldest, and what is free');
select is((select concat_ws(' ', state, coalesce(units_free::text, '-')) from leasehold.contention('{n}', '{n}')), 'held -', 'without a capacity no number is free');
select is(pg_temp.way('{none,held,shared}'), '2 held w1 0 1 0 true t', 'of several the first that is in the way');
select is(pg_temp.way('{none,queued,held}'), '2 free - 1 0 5 - t', 'that is also one for which somebody waits');
select is(pg_temp.way('{none,shared}', '{exclusive,exclusive}'), '2 shared w2 0 2 2 true t', 'or one that is shared, to an exclusive newcomer');
select is(pg_temp.way('{none,shared}', '{exclusive,shared}'), '1 free - 0 0 5 - t', 'not to one that shares: then it is the first of all');
select is(pg_temp.way('{none,shared}'), '2 shared w2 0 2 2 true t', 'whoever names no mode wants it alone');
select ok((select silent_s between 0 and 60 and held_s between 0 and 60 from leasehold.contention('{c}', '{held}')), 'silent and held, in seconds');
select ok((select silent_s is null and held_s is null from leasehold.contention('{c}', '{none}')), 'not of nobody');
select holders_now as before from leasehold.contention('{c}', '{held}') \gset
select leasehold.heartbeat('c', 'held', t.key(1));
select is((select holders_now from leasehold.contention('{c}', '{held}')), :'before', 'a heartbeat leaves the holders as they are');
select t.age('c', 'held', '20 s');
select ok((select silent_s between 20 and 60 and held_s between 20 and 60 from leasehold.contention('{c}', '{held}')), 'they grow');
select leasehold.release_ok('c', 'held', t.key(1)), pg_temp.hold('held', 6);
select isnt((select holders_now from leasehold.contention('{c}', '{held}')), :'before', 'another holder is another');

-- a hook tells how long its statement waits for a row
create table public.seen (event text, lock_timeout text);
create function t.seen(e leasehold.lease_event) returns void language sql security definer set search_path = public as $$
  insert into public.seen values (e.event, current_setting('lock_timeout'))
$$;
select leasehold.add_hook('v', event, 't.seen(leasehold.lease_event)') from unnest(array['heartbeat', 'release_ok', 'release_fail']) event;
select pg_temp.hold(k, n, p_namespace => 'v') from (values ('a', 11), ('b', 12), ('old', 13), ('forced', 14)) h (k, n);
select t.age('v', 'old', '1 h'), leasehold.force_release('v', 'forced', 'a test');
set lock_timeout = '3 s';
select is((select array_agg(concat_ws(' ', round(left_s), given_s >= 60, reason) order by n)
             from (select h.*, row_number() over () as n
                     from leasehold.heartbeat_each('{v,v,v,v,v}', '{b,old,a,forced,never}', array[t.key(12), t.key(13), t.key(11), t.key(14), t.key(15)]) h) x),
          array['60 t', 'expired', '60 t', 'forced', 'unknown'], 'heartbeat_each: in their order, and why a lease is lost');
select pg_temp.hold('s', 17, 'shared', p_namespace => 'v');
update leasehold.share set deadline = deadline - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h', acquired_at = acquired_at - interval '1 h' where key = 's';
select is((select reason from leasehold.heartbeat_each('{v}', '{s}', array[t.key(17)])), 'expired', 'also of a shared lease that nobody has reaped');
select is((select array_agg(distinct lock_timeout) from public.seen), '{200ms}', 'waits 200 ms for a row');
select is(current_setting('lock_timeout'), '3s', 'and the caller as long as before');
select leasehold.set_policy('v', max_hold => '70 s', end_at_max_hold => true), t.age('v', 'a', '30 s');
select ok((select given_s < 59 from leasehold.heartbeat_each('{v}', '{a}', array[t.key(11)])), 'given_s shows that a renewal gave less than the duration');
delete from public.seen;
select is((select array_agg(r) from leasehold.release_each('{v,v,v,v}', '{a,b,a,never}', array[t.key(11), t.key(12), t.key(11), t.key(15)], '{f,t,f,f}', array['{"n": 3}', 'no', null, ''], '0') r),
          array[null, null, 'released', 'unknown'], 'release_each: null, or why a lease is lost');
select is((select array_agg(concat_ws(' ', key, last_outcome, last_result, last_error) order by key) from leasehold.scope where namespace = 'v' and key in ('a', 'b')),
          array['a ok {"n": 3}', 'b failed no'], 'with result or error');
select is((select array_agg(concat_ws(' ', event, lock_timeout) order by event) from public.seen), '{release_fail 0,release_ok 0}', 'waits as long as it is told, here for ever');
select pg_temp.hold('c', 16, p_namespace => 'v');
delete from public.seen;
select leasehold.release_each('{v}', '{c}', array[t.key(16)], '{f}', '{""}');
select is((select array_agg(lock_timeout) || current_setting('lock_timeout') from public.seen), '{200ms,3s}', 'or for 200 ms; the caller as before');
select pg_temp.hold('e', 18, p_namespace => 'v');
delete from public.seen;
select is((select concat_ws(' ', mode, units, lease_key) from leasehold.downgrade_soon('v', 'e', t.key(18), 2)), concat_ws(' ', 'shared', 2, t.key(18)), 'downgrade_soon: the lease as it is then');
select is((select array_agg(event || lock_timeout) || current_setting('lock_timeout') from public.seen), '{heartbeat200ms,3s}', 'waits 200 ms for a row; the caller as before');
delete from public.seen;
select leasehold.join_queue('v', 'e', t.key(19), '1 h'), leasehold.join_queue('v', 'f', t.key(20), '1 h');
select is((select array_agg(l) from leasehold.leave_each('{v,v,v}', '{f,e,e}', array[t.key(20), t.key(19), t.key(19)]) l), '{t,t,f}', 'leave_each: in their order, whether there was a place');
select is((select count(*) from leasehold.queue where namespace = 'v'), 0::bigint, 'and there is none any more');
select is((select concat_ws(' ', token > 0, round(left_s), units, slots, is_final)
             from leasehold.acquire_one('c', 'taken', 40, 'me', t.key(21), '{"a": "b"}', 5, 'exclusive', 1, 0)), 't 40 0 f', 'acquire_one: the lease as its holder reads it');
select is((select concat_ws(' ', owner, duration, labels, rests_until > now()) from leasehold.lease where key = 'taken'), 'me 00:00:40 {"a": "b"} t', 'with everything that acquire takes');
select is((select concat_ws(' ', round(left_s), units, slots) from leasehold.acquire_one('c', 'shared', 40, 'me', t.key(22), '{}', null, 'shared', 2, 0)), '40 2 {4,5}', 'also a shared one');
select is((select count(*) from leasehold.acquire_one('c', 'taken', 40, 'other', t.key(23), '{}', null, 'exclusive', 1, 0)), 0::bigint, 'and no row where it is held');
select is((select string_agg(concat_ws(' ', g.token = a.token, round(g.left_s), g.units, g.is_final), ', ' order by a.key)
             from leasehold.acquire_all('{c,c}', '{x,y}', '30 s', lease_key => t.key(24)) a cross join lateral leasehold.granted(a) g), 't 30 0 f, t 30 0 f', 'granted: the same of any lease');
select leasehold.set_policy('c.short', max_hold => '20 s', end_at_max_hold => true);
select ok((select is_final and left_s < 21 from leasehold.acquire_one('c.short', 'k', 60, 'me', t.key(25), '{}', null, 'exclusive', 1, 0)), 'that it is final says that no renewal gives more');
select is((select count(*) from leasehold.asked_each('{c}', '{taken}', array[t.key(21)])), 0::bigint, 'asked_each: nobody asks');
select is((select string_agg(concat_ws(' ', n, reason, owner, refusal = '', token > 0, answer_in_us between 20e6 and 30e6, answer_by_us - asked_us,
                                       to_timestamp(asked_us / 1e6) between now() - interval '1 min' and clock_timestamp()), ', ' order by n)
             from leasehold.ask_each('c', 'shared', null, 'why')),
          (select string_agg(concat_ws(' ', n, 'why', o, 't t t 30000000 t'), ', ') from (values (1, 'w2'), (2, 'w3'), (3, 'me')) x (n, o)), 'ask_each: each holder');
select is((select string_agg(concat_ws(' ', n, reason, refusal, owner, token, answer_in_us between 20e6 and 30e6), ', ' order by n)
             from leasehold.asked_each('{c,c,n,c}', '{taken,shared,shared,shared}', array[t.key(21), t.key(22), t.key(3), t.key(3)])), '2 why   0 t, 4 why   0 t', 'which hears of it, by its place');
select leasehold.refuse_hand_over('c', 'shared', t.key(22), 'no');
select is((select refusal from leasehold.ask_each('c', 'shared', null, 'again') where owner = 'me'), 'no', 'and whose refusal is read');
select is((select array_agg(n) from leasehold.asked_each('{c,c}', '{shared,shared}', array[t.key(22), t.key(3)])), '{2}', 'a request that was refused is open no more');
select is(t.error_of($$select leasehold.release_each('{v,c}', '{d,held}', array[t.key(1), t.key(6)], '{f,t}', array[null, null])$$), 'LH002 invalid_argument error', 'what is out of bounds fails all');
select is((select state from leasehold.scope where namespace = 'c' and key = 'held'), 'held', 'and ends none');
select * from finish();
