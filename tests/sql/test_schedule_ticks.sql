-- Ticks: each runs once, ends for good, and is never silent about why it did not run.
select no_plan();
select leasehold.reap();
create role scheduler login in role leasehold_client;
grant select on all tables in schema pg_temp to public;
-- The schedules below have an instant ten minutes ago, and each hour before and after it.
create temporary table base as select date_trunc('second', clock_timestamp() - interval '100 hours 10 min') as starts_at;
create function pg_temp.hourly(p_name text, p_catch_up text default 'last', p_deadline interval default null, p_overlap integer default 1,
                               p_attempts integer default 3, p_max integer default 100, p_backoff interval default '1 min') returns void language sql as $$
  select leasehold.set_schedule(p_name, 'every 1 h', starts_at => (select starts_at from base), catch_up => p_catch_up, tick_deadline => p_deadline,
                                overlap => p_overlap, attempts => p_attempts, catch_up_max => p_max, backoff => p_backoff)
$$;
-- Nobody has looked at it for so long.
create function pg_temp.away(p_name text, p_by interval) returns void language sql as $$
  update leasehold.schedule set made_until = made_until - p_by, look_at = clock_timestamp() where name = p_name
$$;
-- Let time pass for what waits and runs.
create function pg_temp.age(p_name text, p_by interval) returns void language sql as $$
  update leasehold.tick set next_try_at = next_try_at - p_by, claim_until = claim_until - p_by, started_at = started_at - p_by, ended_at = ended_at - p_by where schedule = p_name;
  update leasehold.schedule set look_at = clock_timestamp() where name = p_name;
  select t.age(namespace, key, p_by) from leasehold.scope where namespace = p_name
$$;
-- The ticks by how many hours ago (0: ten minutes ago), and their states.
create function pg_temp.ticks(p_name text) returns text language sql as $$
  select coalesce(string_agg(round(extract(epoch from (select starts_at from base) + interval '100 hours' - x.at) / 3600) || ' ' || x.state || case when x.instants > 1 then '*' || x.instants else '' end,
                             ', ' order by x.at), 'none')
    from leasehold.tick x where x.schedule = p_name
$$;
create function pg_temp.claim(p_name text, p_number integer, p_owner text default null) returns text language sql as $$
  select round(extract(epoch from (select starts_at from base) + interval '100 hours' - c.at) / 3600) || ' ' || c.attempt from leasehold.claim_tick(p_name, p_owner, lease_key => t.key(p_number)) c
$$;
create function pg_temp.key_of(p_number integer) returns text language sql as $$
  select leasehold_internal.tick_key(x.at) from leasehold.tick x where x.lease_key = t.key(p_number)
$$;

-- a life
select pg_temp.hourly('a.life');
select is(pg_temp.ticks('a.life'), 'none', 'a schedule begins when it is made: what passed before is no tick of it');
select t.is_near(clock_timestamp() + leasehold.until_tick('a.life'), (select starts_at + interval '101 hours' from base), 'until_tick() says when the next one is');
select is(pg_temp.claim('a.life', 1), null, 'nothing is due');
select pg_temp.away('a.life', '30 min');
select is(leasehold.until_tick('a.life'), interval '0', 'until_tick() finds what is due');
select is(pg_temp.claim('a.life', 1, 'w1'), '0 1', 'it is claimed, attempt 1');
select is((select (c.lease).namespace || '/' || (c.lease).key || ' ' || (c.lease).owner || ' ' || (c.lease).lease_key || ' ' || c.attempt from leasehold.claim_tick('a.life', 'w1', lease_key => t.key(1)) c),
          'a.life/' || pg_temp.key_of(1) || ' w1 ' || t.key(1) || ' 1', 'a repeat answers the same tick and lease');
select ok(pg_temp.key_of(1) ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$', 'the key is the instant in UTC');
select is(pg_temp.claim('a.life', 2), null, 'nobody else gets it');
select t.is_near(clock_timestamp() + leasehold.until_tick('a.life'), (select expires_at from leasehold.lease where namespace = 'a.life'), 'until_tick() waits for the expiry of what runs', '2 s');
select is((select state || ' ' || attempts || ' ' || owner || ' ' || (token = (select token from leasehold.scope where namespace = 'a.life')) from leasehold.tick where schedule = 'a.life'), 'running 1 w1 true', 'it runs');
select lives_ok($$select leasehold.guard('a.life', pg_temp.key_of(1), (select token from leasehold.tick where schedule = 'a.life'))$$, 'its worker may guard');
select is(leasehold.release_ok('a.life', pg_temp.key_of(1), t.key(1), '{"rows": 3}'), true, 'released');
select is((select state || ' ' || result || ' ' || (ended_at is not null) from leasehold.tick where schedule = 'a.life'), 'done {"rows": 3} true', 'it is done, with its result');
select is((select count(*) from leasehold.tick_slot where at is not null), 0::bigint, 'and its slot is free');
select is(pg_temp.claim('a.life', 2), null, 'it never runs again');
select is(t.error_of($$select leasehold.claim_tick('a.life', lease_key => t.key(1))$$), 'LH006 lease_ended', 'a late repeat of the claim gets nothing');
select ok(t.message_of($$select leasehold.acquire('a.life', (select leasehold_internal.tick_key(at) from leasehold.tick where schedule = 'a.life'), '30 s')$$) like 'hook_rejected: % cannot be claimed: it is done', 'nor does a plain acquire');
update leasehold.schedule set made_until = made_until - interval '30 min', look_at = clock_timestamp() where name = 'a.life';
select is(pg_temp.claim('a.life', 2), null, 'nor after the clock or the schedule went back: the row is the fact');
select is(pg_temp.ticks('a.life'), '0 done', 'one row');

-- it fails, and its worker dies
select pg_temp.hourly('a.fail', p_attempts => 3), pg_temp.away('a.fail', '30 min');
select is(pg_temp.claim('a.fail', 11), '0 1', 'first attempt');
select is(leasehold.release_fail('a.fail', pg_temp.key_of(11), t.key(11), 'disk full'), true, 'fails');
select is((select state || ' ' || error from leasehold.tick where schedule = 'a.fail'), 'failed disk full', 'it waits for its next attempt');
select t.is_near(clock_timestamp() + leasehold.until_tick('a.fail'), clock_timestamp() + interval '1 min', 'until_tick() knows of that', '10 s');
select is(pg_temp.claim('a.fail', 12), null, 'not before its backoff');
select ok(t.message_of($$select leasehold.acquire('a.fail', (select leasehold_internal.tick_key(at) from leasehold.tick where schedule = 'a.fail'), '30 s')$$) like '%it may not be claimed before %', 'whoever asks');
select pg_temp.age('a.fail', '61 s');
select is(pg_temp.claim('a.fail', 12), '0 2', 'second attempt');
create temp table late as select token, pg_temp.key_of(12) as key from leasehold.tick where schedule = 'a.fail';
select pg_temp.age('a.fail', '1 hour');
select is(pg_temp.claim('a.fail', 13), null, 'its worker died: the next claim ends that lease, and waits for the backoff');
select is((select state || ' ' || error from leasehold.tick where schedule = 'a.fail'), 'failed its worker did not renew the lease in time', 'the tick says so');
select t.is_near((select next_try_at from leasehold.tick where schedule = 'a.fail'), clock_timestamp() + interval '2 min', 'the backoff doubles', '10 s');
select pg_temp.age('a.fail', '121 s');
select is(pg_temp.claim('a.fail', 13), '0 3', 'third attempt');
select is(t.error_of($$select leasehold.guard('a.fail', (select key from late), (select token from late))$$), 'LH001 lease_lost', 'the guard refuses what the late worker writes');
select is(leasehold.release_ok('a.fail', (select key from late), t.key(12), '{"late": true}'), false, 'and its release');
select is((select state || ' ' || (result is null) from leasehold.tick where schedule = 'a.fail'), 'running true', 'which changes nothing');
select leasehold_internal.end_tick('a.fail', k.at, k.token - 1, true, null, null) from leasehold.tick k where k.schedule = 'a.fail';
select is((select state from leasehold.tick where schedule = 'a.fail'), 'running', 'nor does the end of another claim');
select pg_temp.age('a.fail', '1 hour');
select is((select count(*) from leasehold.reap()), 1::bigint, 'the reaper ends the last attempt');
select is((select state from leasehold.tick where schedule = 'a.fail'), 'dead', 'the tick is dead');
select is(pg_temp.claim('a.fail', 14), null, 'and stays so');
select is((select dead from leasehold.schedule_status where name = 'a.fail'), 1::bigint, 'the status counts it');
select pg_temp.hourly('a.forced'), pg_temp.away('a.forced', '30 min'), pg_temp.claim('a.forced', 15);
select is(t.rows_of($$select * from leasehold.force_release('a.forced', pg_temp.key_of(15), 'host is gone')$$), 1, 'forced');
select is((select state || ' ' || error from leasehold.tick where schedule = 'a.forced'), 'failed host is gone', 'is a failed attempt');

-- overlap
select pg_temp.hourly('o.two', 'all', p_overlap => 2), pg_temp.away('o.two', '3 hours 30 min');
select is(pg_temp.claim('o.two', 21), '3 1', 'the oldest first');
select is(pg_temp.claim('o.two', 22), '2 1', 'overlap 2: a second one beside it');
select is(pg_temp.claim('o.two', 23), null, 'but no third');
select ok(t.message_of($$select leasehold.acquire('o.two', (select leasehold_internal.tick_key(max(at)) from leasehold.tick where schedule = 'o.two'), '30 s')$$) like '%2 of its ticks may run at once (overlap), and so many do', 'by whichever way');
select leasehold.release_ok('o.two', pg_temp.key_of(21), t.key(21));
select is(pg_temp.claim('o.two', 23), '1 1', 'once one has ended the next');
select pg_temp.hourly('o.two', 'all', p_overlap => 1);
select leasehold.release_ok('o.two', pg_temp.key_of(22), t.key(22));
select is(pg_temp.claim('o.two', 24), null, 'a smaller overlap counts at once');
select leasehold.release_ok('o.two', pg_temp.key_of(23), t.key(23));
select is(pg_temp.claim('o.two', 24), '0 1', 'then one at a time');

-- catch-up: nobody looked for three hours
select pg_temp.hourly('c.none', 'none'), pg_temp.away('c.none', '3 hours'), pg_temp.hourly('c.late', 'none', '20 min'), pg_temp.away('c.late', '3 hours'),
       pg_temp.hourly('c.last', 'last'), pg_temp.away('c.last', '3 hours'), pg_temp.hourly('c.strict', 'last', '5 min'), pg_temp.away('c.strict', '3 hours'),
       pg_temp.hourly('c.all', 'all'), pg_temp.away('c.all', '3 hours'), pg_temp.hourly('c.some', 'all', p_max => 2), pg_temp.away('c.some', '3 hours');
select leasehold.reap();
select is(pg_temp.ticks('c.none'), '2 missed, 1 missed, 0 missed', 'none: all are missed');
select is(pg_temp.ticks('c.late'), '2 missed, 1 missed, 0 due', 'none: one within tick_deadline runs');
select is(pg_temp.ticks('c.last'), '2 skipped, 1 skipped, 0 due', 'last: the newest runs, the others are skipped');
select is(pg_temp.ticks('c.strict'), '2 skipped, 1 skipped, 0 missed', 'last: but not after its deadline');
select is(pg_temp.ticks('c.all'), '2 due, 1 due, 0 due', 'all: they run');
select is(pg_temp.ticks('c.some'), '2 missed, 1 due, 0 due', 'all: at most catch_up_max');
select ok((select bool_and(error ~ '.') from leasehold.tick where schedule like 'c.%' and state in ('missed', 'skipped')), 'each says why');
select pg_temp.age('c.last', '1 hour');
select leasehold.reap();
select is(pg_temp.ticks('c.last'), '2 skipped, 1 skipped, 0 missed', 'one that nobody takes until the next is missed, though no worker asks');
select is((select instants || ' ' || error from leasehold.missed_tick where schedule = 'c.last') ~ '^1 not claimed until 2', true, 'the view tells of it');
select is((select missed from leasehold.schedule_status where name = 'c.last'), 1::bigint, 'and the status');
select pg_temp.away('c.all', '0'), pg_temp.age('c.all', '5 hours'), leasehold.reap();
select is(pg_temp.ticks('c.all'), '2 due, 1 due, 0 due', 'all: they wait');
select leasehold_internal.coordinator_register('11111111-1111-4111-8111-111111111111', 'h', 1, '0.1.0');
select pg_temp.hourly('c.daemon'), pg_temp.away('c.daemon', '30 min');
select count(*) from leasehold_internal.coordinator_tick('11111111-1111-4111-8111-111111111111', null);
select is(pg_temp.ticks('c.daemon'), '0 due', 'a daemon writes ticks once a second');
select leasehold_internal.coordinator_unregister('11111111-1111-4111-8111-111111111111');

-- long away: a bounded number of rows, and no instant without one
select leasehold.set_schedule('c.long', 'every 1 s', catch_up => 'last');
select pg_temp.away('c.long', '100 days'), leasehold.reap();
select ok(count(*) <= 1000 and sum(instants) between 8640000 and 8640300, 'every 1 s, a hundred days: ' || count(*) || ' rows for ' || sum(instants) || ' instants') from leasehold.tick where schedule = 'c.long';
select is((select count(*) from leasehold.tick where schedule = 'c.long' and instants > 1 and state = 'skipped' and until_at < (select min(x.at) from leasehold.tick x where x.schedule = 'c.long' and x.instants = 1)), 1::bigint,
          'the oldest in one row, which says from when to when');
select leasehold.remove_schedule('c.long');
select leasehold.set_schedule('c.cron', '* * * * *', 'Europe/Berlin', catch_up => 'all', catch_up_max => 3);
select pg_temp.away('c.cron', '12 days');
do $$ begin for v_pass in 1 .. 4 loop perform leasehold.reap(); end loop; end $$;
select ok(sum(instants) between 17280 and 17300 and count(*) <= 1002, 'each minute of 12 days in ' || count(*) || ' rows for ' || sum(instants) || ' instants') from leasehold.tick where schedule = 'c.cron';
select is((select count(*) from leasehold.tick where schedule = 'c.cron' and state = 'due'), 3::bigint, 'of which the newest wait');
select ok((select made_until > clock_timestamp() - interval '2 min' and next_at > clock_timestamp() - interval '1 min' from leasehold.schedule where name = 'c.cron'), 'in few passes');
select leasehold.remove_schedule('c.cron');

-- a clock that steps back
create temp table made as select made_until from leasehold.schedule where name = 'c.all';
select leasehold_internal.make_ticks_of(s, clock_timestamp() - interval '2 hours') from leasehold.schedule s where s.name = 'c.all';
select is((select made_until from leasehold.schedule where name = 'c.all'), (select made_until from made), 'makes no tick a second time');
select is(pg_temp.ticks('c.all'), '2 due, 1 due, 0 due', 'nor takes one back');

-- bounds of a schedule
select leasehold.set_schedule('b.start', 'every 1 h', starts_at => clock_timestamp() + interval '1 day');
select t.is_near((select next_at from leasehold.schedule where name = 'b.start'), clock_timestamp() + interval '1 day', 'starts_at is the first instant');
select leasehold.set_schedule('b.end', 'every 1 h', ends_at => clock_timestamp() - interval '1 s');
select is((select next_at from leasehold.schedule where name = 'b.end'), null, 'after ends_at there is none');
select is(leasehold.until_tick('b.end'), null, 'so that there is nothing to wait for');

-- jitter
select leasehold.set_schedule('j', 'every 1 h', jitter => '30 min');
select is((select count(distinct leasehold_internal.tick_delay('j', g, '30 min')) from generate_series(timestamptz '2026-01-01Z', '2026-01-05Z', '1 h') g), 97::bigint, 'each tick has its own delay');
select ok((select bool_and(d >= interval '0' and d < interval '30 min') and max(d) > interval '25 min' and min(d) < interval '5 min'
             from (select leasehold_internal.tick_delay('j', g, '30 min') as d from generate_series(timestamptz '2026-01-01Z', '2026-01-05Z', '1 h') g) x), 'less than the jitter');
select t.is_near(clock_timestamp() + leasehold.until_tick('j'), (select next_due_at from leasehold.schedule_status where name = 'j'), 'which until_tick() knows of', '2 s');

-- pause, resume, by hand
select pg_temp.hourly('p.a', 'all'), pg_temp.away('p.a', '30 min'), leasehold.reap();
select is(leasehold.pause_schedule('p.a'), true, 'paused');
select is(leasehold.pause_schedule('p.a'), false, 'once');
select is(pg_temp.claim('p.a', 41), null, 'what waits is not claimed');
select is(leasehold.until_tick('p.a'), null, 'and there is nothing to wait for');
select pg_temp.away('p.a', '2 hours');
select is(leasehold.pause_schedule('p.a', false), true, 'resumed');
select is(pg_temp.ticks('p.a'), '1 skipped, 0 due', 'what passed meanwhile is skipped, what waited still does');
select is(pg_temp.claim('p.a', 41), '0 1', 'and is claimed');
select leasehold.release_ok('p.a', pg_temp.key_of(41), t.key(41)), leasehold.pause_schedule('p.a');
create temp table by_hand as select leasehold.run_schedule_now('p.a') as at;
select t.is_near((select at from by_hand), clock_timestamp(), 'a tick of now, by hand');
select is((select at = date_trunc('second', at) from by_hand), true, 'to the second');
select is((select c.at from leasehold.claim_tick('p.a', lease_key => t.key(42)) c), (select at from by_hand), 'runs though the schedule is paused');
select is((select by_hand from leasehold.tick where lease_key = t.key(42)), true, 'and says what it is');
select is((select count(*) from leasehold.tick where schedule = 'p.a' and at = (select at from by_hand)), 1::bigint, 'one row');
select leasehold.release_ok('p.a', pg_temp.key_of(42), t.key(42));
select isnt(leasehold.run_schedule_now('p.a'), (select at from by_hand), 'once it has ended there is another one');
select is((select count(*) from leasehold.tick where schedule = 'p.a' and by_hand and at <= clock_timestamp()), 2::bigint, 'never of a second to come, which may be an instant');
select is(pg_temp.claim('p.a', 44) is not null, true, 'and runs');
select pg_temp.hourly('p.b', p_overlap => 2), leasehold.pause_schedule('p.b'), leasehold.run_schedule_now('p.b');
select is(pg_temp.claim('p.b', 45) is not null, true, 'where two may run, one by hand does, in a pause');
select t.is_near(clock_timestamp() + leasehold.until_tick('p.b'), (select expires_at from leasehold.lease where namespace = 'p.b'), 'should its worker die, others know when to look', '2 s');

select pg_temp.hourly('p.c', p_attempts => 3), leasehold.run_schedule_now('p.c');
select is(pg_temp.claim('p.c', 46) is not null, true, 'a tick runs');
select leasehold.release_fail('p.c', pg_temp.key_of(46), t.key(46), 'no'), leasehold.pause_schedule('p.c');
-- It is the one of this second, as the expression made it.
create function pg_temp.run_again(p_schedule text) returns boolean language plpgsql as $$
declare v_at timestamptz;
begin
  loop
    v_at := date_trunc('second', clock_timestamp());
    update leasehold.tick set at = v_at, by_hand = false where schedule = p_schedule;
    exit when leasehold.run_schedule_now(p_schedule) = v_at;
    delete from leasehold.tick where schedule = p_schedule and state = 'due';
  end loop;
  return true;
end $$;
select pg_temp.run_again('p.c');
select is((select row(state, attempts, by_hand, next_try_at <= clock_timestamp())::text from leasehold.tick where schedule = 'p.c'), '(failed,1,t,t)',
          'run-now of a tick that waits to be tried again lets it run at once, also in a pause');
select is((select count(*) > 1 from leasehold.audit where action = 'schedule_run' and namespace = 'p.c'), true, 'and the audit has it');
select is((select c.attempt from leasehold.claim_tick('p.c', lease_key => t.key(47)) c), 2, 'it runs');

-- other keys of the namespace, and below it
select is(t.message_of($$select leasehold.acquire('p.a', 'k', '30 s')$$), 'hook_rejected: p.a is a schedule: a key there is the instant of a tick, as 2026-11-28T03:00:00Z', 'a schedule''s namespace has ticks alone');
select ok(t.message_of($$select leasehold.acquire('p.a', '2001-01-01T00:00:00Z', '30 s')$$) like 'hook_rejected: % there is no such tick', 'and only those that there are');
select is(t.rows_of($$select * from leasehold.acquire('p.a.below', 'k', '30 s', lease_key => t.key(43))$$), 1, 'below it leases are as ever');
select is(leasehold.release_ok('p.a.below', 'k', t.key(43)), true, 'to their end');

-- a schedule below a schedule, and hooks of a user's own
create table t.told (event text, key text);
create function t.tell(e leasehold.lease_event) returns void language plpgsql set search_path = pg_catalog as $$
begin
  insert into t.told values (e.event, e.key);
  if e.owner = 'unwanted' then raise exception 'not you'; end if;
end $$;
alter function t.tell owner to leasehold_owner;
select leasehold.add_hook('h', event, 't.tell(leasehold.lease_event)') from unnest(array['acquire', 'release_ok']) event;
select leasehold.set_schedule('h', 'every 1 h'), pg_temp.hourly('h.sub'), pg_temp.away('h.sub', '30 min'), leasehold.until_tick('h.sub');
select is(t.message_of($$select leasehold.claim_tick('h.sub', 'unwanted', lease_key => t.key(51))$$), 'hook_rejected: not you', 'a user''s own hook may veto a claim');
select is((select state || attempts from leasehold.tick where schedule = 'h.sub'), 'due0', 'which leaves the tick as it was');
select is(pg_temp.claim('h.sub', 52), '0 1', 'a schedule below a schedule');
select is(leasehold.release_ok('h.sub', pg_temp.key_of(52), t.key(52)), true, 'released');
select is((select state || attempts from leasehold.tick where schedule = 'h.sub'), 'done1', 'counts once');
select is((select string_agg(event, ' ') from t.told), 'acquire release_ok', 'and the user''s hooks have run');

-- set again, removed
select pg_temp.hourly('r', 'all'), pg_temp.away('r', '2 hours 30 min');
select leasehold.set_schedule('r', 'every 1 h', starts_at => (select starts_at from base), catch_up => 'none');
select is(pg_temp.ticks('r'), '2 due, 1 due, 0 due', 'what passed goes by the settings of then');
select is((select count(*) from leasehold.hook where namespace = 'r'), 4::bigint, 'set twice, its hooks are there once');
select is(pg_temp.claim('r', 61), '2 1', 'claimed');
create temp table removed as select pg_temp.key_of(61) as key;
select is(leasehold.remove_schedule('r'), true, 'removed');
select is(leasehold.remove_schedule('r'), false, 'once');
select is((select count(*) from leasehold.hook where namespace = 'r'), 0::bigint, 'with its hooks');
select is(leasehold.release_ok('r', (select key from removed), t.key(61)), true, 'a lease that ran is then a lease as any other');
select is(t.error_of($$select leasehold.until_tick('r')$$), 'LH002 invalid_argument name', 'there is no such schedule');

-- a lease that is gone without its hook
select pg_temp.hourly('l', p_backoff => '0'), pg_temp.away('l', '30 min'), pg_temp.claim('l', 71);
delete from leasehold.scope where namespace = 'l';
select leasehold.until_tick('l');
select is(pg_temp.ticks('l'), '0 running', 'is not judged at once');
select pg_temp.age('l', '2 min');
select is(pg_temp.claim('l', 72), '0 2', 'and then claimed again');

-- history and retention
select leasehold.set_policy('a.life', history => true, history_retention => '1 hour');
select leasehold_internal.keep_days_of('tick', clock_timestamp(), true);
select is(pg_temp.ticks('a.life'), '0 done', 'an ended tick is remembered');
select pg_temp.age('a.life', '61 min');
update leasehold.keeping set look_at = clock_timestamp() where name = 'tick';
select leasehold.reap();
select is(pg_temp.ticks('a.life'), 'none', 'as long as the history of its namespace');
select is(pg_temp.claim('a.life', 3), null, 'and does not run again when it is forgotten');
select pg_temp.away('a.life', '0'), leasehold.run_schedule_now('a.life');
select leasehold.claim_tick('a.life', 'w4', lease_key => t.key(4));
select leasehold.release_ok('a.life', pg_temp.key_of(4), t.key(4), '4');
select is((select outcome || result || owner from leasehold.history where namespace = 'a.life'), 'ok4w4', 'the history has the hold');

-- a failure to write ticks
select pg_temp.hourly('x.fails');
update leasehold.schedule set time_zone = 'Not/There', expression = '@daily', look_at = clock_timestamp() where name = 'x.fails';
select leasehold.reap();
select is((select error from leasehold.schedule_status where name = 'x.fails'), 'time zone "Not/There" not recognized', 'is told');
select is((select count(*) from leasehold.schedule where look_at <= clock_timestamp()), 0::bigint, 'and holds up no other');
select leasehold.remove_schedule('x.fails');

-- words of bounds
create temporary table mistake (nth serial, arguments text, field text, bound text);
insert into mistake (arguments, field, bound) values
  ($$'a..b', '@daily'$$, 'name', 'segments of 1 to 63 bytes, has 0'),
  ($$'m', '@never'$$, 'expression', 'five fields, @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or every N s, min, h or d, is @never'),
  ($$'m', '@daily', 'Mars/Base'$$, 'time_zone', 'a name of pg_timezone_names, as Europe/Berlin, is Mars/Base'),
  ($$'m', '@daily', starts_at => '2027-01-02Z', ends_at => '2027-01-01Z'$$, 'ends_at', 'after starts_at, 2027-01-02 00:00:00+00, is 2027-01-01 00:00:00+00'),
  ($$'m', '@daily', starts_at => 'infinity'$$, 'starts_at', '1970 to 9000, is infinity'),
  ($$'m', '@daily', catch_up => 'some'$$, 'catch_up', 'none, last or all, is some'),
  ($$'m', '@daily', catch_up_max => 1001$$, 'catch_up_max', '1 to 1000, is 1001'),
  ($$'m', '@daily', tick_deadline => '0'$$, 'tick_deadline', '1 s to 366 days, is 00:00:00'),
  ($$'m', '@daily', overlap => 0$$, 'overlap', '1 to 1000, is 0'),
  ($$'m', '@daily', jitter => '2 days'$$, 'jitter', '0 to 1 day, is 2 days'),
  ($$'m', '@daily', attempts => null$$, 'attempts', '1 to 1000, is null'),
  ($$'m', '@daily', backoff => '-1 s'$$, 'backoff', '0 to 1 day, is -00:00:01');
select is(t.message_of(format('select leasehold.set_schedule(%s)', arguments)), format('invalid_argument: %s must be %s', field, bound), 'refused: ' || arguments) from mistake order by nth;
select is((select count(*) from leasehold.schedule where name = 'm'), 0::bigint, 'nothing is written');
select is(t.error_of(format('select leasehold.%s', call)), 'LH002 invalid_argument ' || field, call)
  from (values ('pause_schedule(''m'')', 'name'), ('pause_schedule(''p.a'', null)', 'paused'), ('run_schedule_now(''m'')', 'name'), ('claim_tick(''m'')', 'name'), ('until_tick(null)', 'name'),
               ('remove_schedule(''a..b'')', 'name'), ('claim_tick(''p.a'', duration => ''2 days'')', 'duration'), ('claim_tick(''p.a'', lease_key => null)', 'lease_key'),
               ('claim_tick(''p.a'', labels => ''[]'')', 'labels'), ('claim_tick(''p.a'', repeat(''o'', 256))', 'owner')) as c (call, field);

-- rights
select is(t.denied('scheduler', call), true, 'a client may not: ' || call)
  from unnest(array['select leasehold.set_schedule(''a.life'', ''@daily'')', 'select leasehold.pause_schedule(''a.life'')', 'select leasehold.remove_schedule(''a.life'')',
                    'select leasehold.run_schedule_now(''a.life'')', 'select * from leasehold.tick', 'update leasehold.tick set state = ''due''']) call;
select is(t.denied('scheduler', call), false, 'a client may: ' || call)
  from unnest(array['select leasehold.claim_tick(''a.life'')', 'select leasehold.until_tick(''a.life'')', 'select leasehold.schedule_instants(''@daily'')', 'select leasehold.tick_channel(''a.life'')']) call;
create role schedule_reader login in role leasehold_reader;
select is(t.denied('schedule_reader', 'select lease_key from leasehold.tick'), true, 'a reader sees no lease key');
select is(t.denied('schedule_reader', 'select schedule, at, state from leasehold.tick'), false, 'but ticks');
select is((select array_agg(distinct action order by action) from leasehold.audit where namespace = 'p.a'), array['schedule_pause', 'schedule_resume', 'schedule_run', 'schedule_set'], 'the audit knows who did what');

-- for daemons
select is((select name from leasehold_internal.set_schedule_by('token:ops', '10.0.0.1', 'd', '@hourly', 'UTC', null, null, 'last', 100, null, 1, '0', 3, '1 min')), 'd', 'a daemon sets');
select is((select principal || ' ' || peer from leasehold.audit where namespace = 'd'), 'token:ops 10.0.0.1', 'for its caller');
select isnt(leasehold_internal.run_schedule_now_by('token:ops', null, 'd'), null, 'runs');
select is((select c.attempt || ' ' || (c.lease).principal || ' ' || (c.lease).lease_key from leasehold_internal.claim_tick_by('token:w', null, 'd', 'w', null, t.key(81), '{}') c), '1 token:w ' || t.key(81), 'claims as its caller');
select is(leasehold_internal.pause_schedule_by('token:ops', null, 'd', true), true, 'pauses');
select is(leasehold_internal.remove_schedule_by('token:ops', null, 'd'), true, 'removes');
select is(t.error_of($$select leasehold_internal.claim_tick_by('token:w', null, 'd', 'w', null, t.key(81), '{}')$$), 'LH002 invalid_argument name', 'with the same words');

-- a worker that went away before it heard of its claim
select pg_temp.hourly('a.unheard');
select pg_temp.away('a.unheard', '30 min');
select is(pg_temp.claim('a.unheard', 91), '0 1', 'claimed');
select is((select r.outcome from leasehold_internal.release_batch(null, array['a.unheard'], array[pg_temp.key_of(91)], array[t.key(91)], array[null::boolean], array[null::text]) r),
          'ok', 'a daemon gives it back');
select is((select state || ' ' || attempts || ': ' || error from leasehold.tick where schedule = 'a.unheard'),
          'failed 1: the caller went away before it heard of the grant', 'nothing was done: it is tried again');
select pg_temp.age('a.unheard', '1 min');
select is(pg_temp.claim('a.unheard', 92), '0 2', 'by another');
select is((select r.outcome from leasehold_internal.release_batch(null, array['a.unheard', 'a.unheard'], array[pg_temp.key_of(92), 'other'], array[t.key(92), t.key(93)],
                                                                  array[null, false], array[null, null]) r where r.n = 1), 'ok', 'the same in a batch');
select is((select state || ' ' || attempts from leasehold.tick where schedule = 'a.unheard'), 'failed 2', 'tried again');
select * from finish();
