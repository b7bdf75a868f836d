-- What the database's clock wrote before it stepped: places in queues, and the next try of a reap that failed.
select no_plan();
select '11111111-1111-4111-8111-111111111111' as c1, '22222222-2222-4222-8222-222222222222' as c2 \gset
select t.enroll(:'c1'), t.enroll(:'c2');
select leasehold.set_policy('', ageing => '1 min', max_priority => 10);
update leasehold.incarnation set started_at = started_at - interval '1 day';

-- A queue as it stood before a step by `p_step`: 2 and 3 wait for ten minutes, 4 for ever and with a priority, 5 and 6 are SQL users with 20 s and
-- 10 s left, of whom 6 ended an hour ago unless `p_is_back`, and 7 keeps its place for a moment. All but 7 came 10 s ago or longer.
create function pg_temp.queue(p_key text, p_step interval) returns void language plpgsql as $$
begin
  perform leasehold_internal.acquire_batch('11111111-1111-4111-8111-111111111111', null, array['s'], array[p_key], array[t.key(n)], array['w' || n], array['{}'],
                                           array[3600000000], array[true], array[case when n in (2, 3) then 600000000 end], array[0::bigint], array['w'], null, null,
                                           array[case when n = 4 then 3 else 0 end])
     from unnest(array[1, 2, 3, 4, 7]) n;
  perform leasehold.join_queue('s', p_key, t.key(5), '20 s');
  perform leasehold_internal.leave_batch('11111111-1111-4111-8111-111111111111', array['s'], array[p_key], array[t.key(7)], array[true]);
  update leasehold.waiter w
     set enqueued_at = w.enqueued_at - p_step - interval '10 s', wait_until = w.wait_until - p_step, away_until = w.away_until - p_step
   where w.key = p_key;
  update leasehold.coordinator c set seen_at = clock_timestamp() - p_step;
end $$;
create function pg_temp.times(p_key text) returns text language sql as $$
  select string_agg(format('%s:%s,%s,%s', right(w.lease_key::text, 1), round(extract(epoch from clock_timestamp() - w.enqueued_at) / 60),
                           round(extract(epoch from w.wait_until - clock_timestamp()) / 60), round(extract(epoch from w.away_until - clock_timestamp()) / 60)),
                    ' ' order by w.lease_key)
    from leasehold.waiter w where w.key = p_key
$$;
create function pg_temp.tick(p_coordinator uuid, p_step interval) returns bigint language sql as $$
  select count(*) from leasehold_internal.coordinator_tick(p_coordinator, clock_timestamp() - p_step)
$$;

-- Back.
select pg_temp.queue('back', '-1 hour');
select is(pg_temp.times('back'), '2:-60,70, 3:-60,70, 4:-60,, 5:-60,60, 7:-60,,60', 'a clock that went back by an hour leaves times of the other one');
select leasehold.join_queue('s', 'back', t.key(8), '3 s');
select pg_temp.tick(:'c1', '-1 hour');
select is(pg_temp.times('back'), '2:0,10, 3:0,10, 4:0,, 5:0,0, 7:0,,0 8:0,0,', 'the tick that sees it takes them along; of the new clock''s it leaves them');
select cmp_ok((select wait_until from leasehold.waiter where lease_key = t.key(5)), '<', clock_timestamp() + interval '21 s', 'so a SQL user that is gone is passed over in its time');
select cmp_ok((select wait_until from leasehold.waiter where lease_key = t.key(8)), '>', (select enqueued_at from leasehold.waiter where lease_key = t.key(8)), 'and one that has just come waits');
select pg_temp.tick(:'c2', '-1 hour');
select is(pg_temp.times('back'), '2:0,10, 3:0,10, 4:0,, 5:0,0, 7:0,,0 8:0,0,', 'another daemon that sees it later moves nothing again');

-- A daemon that stood still for an hour, with its clock.
select pg_temp.queue('stood', '1 hour');
update leasehold.coordinator set seen_at = clock_timestamp() - interval '1 s' where id = :'c2';
select pg_temp.tick(:'c1', '1 hour');
select is(pg_temp.times('stood'), '2:60,-50, 3:60,-50, 4:60,, 5:60,-60, 7:60,,-60', 'no clock has stepped where another daemon lived in that hour');
select pg_temp.queue('alone', '1 hour');
update leasehold.waiter set enqueued_at = clock_timestamp() - interval '30 min', wait_until = clock_timestamp() - interval '29 min'
 where key = 'alone' and lease_key = t.key(5);
select pg_temp.tick(:'c1', '1 hour');
select is(pg_temp.times('alone'), '2:0,10, 3:0,10, 4:0,, 5:30,-29, 7:0,,0', 'nor does a wait go on that began and was over in that hour');

-- Forward.
select pg_temp.queue('forward', '1 hour');
select is(pg_temp.times('forward'), '2:60,-50, 3:60,-50, 4:60,, 5:60,-60, 7:60,,-60', 'a clock that went ahead by an hour has passed the end of every wait');
select pg_temp.tick(:'c1', '1 hour');
select is(pg_temp.times('forward'), '2:0,10, 3:0,10, 4:0,, 5:0,0, 7:0,,0', 'the tick that sees it takes them along');
select pg_temp.tick(:'c2', '1 hour');
select is(pg_temp.times('forward'), '2:0,10, 3:0,10, 4:0,, 5:0,0, 7:0,,0', 'and another one moves nothing again');
select is(array(select right(lease_key::text, 1)::integer from leasehold.waiter where key = 'forward' and ticket in (
                  select (leasehold_internal.live_head('s', 'forward', array[:'c1'::uuid], clock_timestamp(), b)).ticket
                    from (values (array[]::uuid[]), (array[t.key(4)]), (array[t.key(4), t.key(2)])) v (b))
                 order by priority desc, ticket), array[4, 2, 3], 'nobody lost the place that it had');

-- A reap that failed, an hour ahead.
create function public.may_fail(leasehold.lease_event) returns void language plpgsql as $$ begin if exists (select from t.fails) then raise 'not now'; end if; end $$;
create table t.fails as select 1;
alter function public.may_fail(leasehold.lease_event) owner to leasehold_owner;
select leasehold.add_hook('r', 'reap', 'public.may_fail(leasehold.lease_event)');
select leasehold.set_policy('r.ext', reaper => 'external');
update leasehold.incarnation set started_at = started_at - interval '1 day';
update leasehold.coordinator set seen_at = clock_timestamp() + interval '1 hour';
create temp table three as select * from (values ('r', 'taken'), ('r', 'reaped'), ('r.ext', 'named')) v (namespace, key);
select leasehold.acquire(namespace, key, '30 s') from three;
select t.age(namespace, key, '1 hour') from three;
select count(*) from leasehold.reap(array['r', 'r.ext']);
update leasehold.scope set next_try_at = next_try_at + interval '1 hour', reap_failed_at = reap_failed_at + interval '1 hour' where reap_failures > 0;
drop table t.fails;
create table t.fails (n integer);
select cmp_ok(t.rows_of($$select * from leasehold.reap_failure$$), '=', 3, 'three have failed');
select is(t.rows_of($$select * from leasehold.acquire('r', 'taken', '30 s')$$), 1, 'a lease whose next try lies an hour ahead is taken over');
update leasehold.scope set check_at = clock_timestamp() where key = 'reaped';
select is(array(select key collate "default" from leasehold.reap()), array['reaped'], 'or reaped when it is looked at');
select is(array(select key collate "default" from leasehold.reap(array['r.ext'])), array['named'], 'and by name');
-- A clock that went ahead by ten hours and a half, and was put right. The schedules have an instant each hour.
create temp table base as select date_trunc('second', clock_timestamp() - interval '100 hours 30 min') as starts_at;
select leasehold.set_schedule('t.' || c, 'every 1 h', starts_at => starts_at, catch_up => c) from base, unnest(array['last', 'all', 'none']) c;
select leasehold.set_schedule('t.later', 'every 1 h', starts_at => clock_timestamp() + interval '5 hours 30 min');
select leasehold.set_schedule('t.future', 'every 1 h', starts_at => clock_timestamp() + interval '50 hours');
select leasehold.set_schedule('t.short', 'every 1 h', starts_at => starts_at) from base;
select leasehold.set_policy('t.short', history_retention => '23 hours');
create function pg_temp.pass(p_by interval) returns void language sql as $$
  update leasehold.schedule set look_at = clock_timestamp();
  select leasehold_internal.make_ticks_of(s, clock_timestamp() + p_by) from leasehold.schedule s where s.name like 't.%';
$$;
create function pg_temp.ticks(p_name text) returns text language sql as $$
  select coalesce(string_agg(round(extract(epoch from t.at - clock_timestamp()) / 3600 + 0.5) || ' ' || t.state, ', ' order by t.at), 'none') from leasehold.tick t where t.schedule = p_name
$$;
select pg_temp.pass('10 hours 30 min 30 s');
select is(pg_temp.ticks('t.last'), (select string_agg(n || ' skipped', ', ' order by n) || ', 11 due' from generate_series(1, 10) n), 'all instants up to then have their rows');
update leasehold.tick set state = 'done', attempts = 1, lease_key = t.key(99), next_try_at = null, ended_at = clock_timestamp() where schedule = 't.last' and state = 'due';
select is(pg_temp.ticks('t.later'), '6 skipped, 7 skipped, 8 skipped, 9 skipped, 10 skipped, 11 due', 'from starts_at on');
insert into leasehold.tick (schedule, at, due_at, claim_until, state, instants, by_hand, next_try_at)
select 't.later', d, d, 'infinity', 'due', 1, true, d from (select date_trunc('second', clock_timestamp()) + interval '10 hours 1 min' as d) x;
update leasehold.coordinator set seen_at = clock_timestamp() + interval '10 hours';
update leasehold.keeping set look_at = clock_timestamp() + interval '10 hours 5 min';
select pg_temp.tick(:'c1', '-10 hours');
select is(pg_temp.ticks('t.last'), '11 done', 'the tick of a daemon that sees the step forgets those that are to come and did not run');
select is((select count(*) from leasehold.tick where schedule = 't.later' and by_hand), 1::bigint, 'but none that somebody asked for');
select is((select count(*) from leasehold.keeping where look_at > clock_timestamp() + interval '10 min'), 0::bigint, 'and looks after partitions again');
select is(pg_temp.ticks('t.none'), 'none', 'nor what waits to be claimed');
select is(pg_temp.ticks('t.all'), 'none', 'of catch_up all neither, or they would displace what comes now');
select is((select count(*) from leasehold.schedule where name like 't.%' and (made_until > clock_timestamp() + interval '1 min') is distinct from (name in ('t.later', 't.future', 't.short'))), 0::bigint,
          'the schedules go on from now, or from starts_at; not one whose ticks that ran may be forgotten');
select is((select count(*) from leasehold.schedule where name in ('t.last', 't.none') and next_at < clock_timestamp() + interval '1 hour'), 2::bigint, 'and say so');
select pg_temp.pass('31 min');
select is(pg_temp.ticks('t.last'), '1 due, 11 done', 'what comes is made when it comes');
select pg_temp.pass('10 hours 31 min');
select is((select count(*) || ' ' || max(state) from leasehold.tick where schedule = 't.last' and at > clock_timestamp() + interval '10 hours'), '1 done', 'and nothing a second time');
select is((select next_at - starts_at from leasehold.schedule where name = 't.future'), interval '0', 'a schedule that begins later begins then');

-- A holder that was asked an hour ahead.
select leasehold.acquire('h', 'asked', '30 s');
select count(*) from leasehold.ask_hand_over('h', 'asked', reason => 'first');
select is(reason, 'first', 'a request is open until its answer_by') from leasehold.ask_hand_over('h', 'asked', reason => 'second');
update leasehold.hand_over set asked_at = asked_at + interval '1 hour', answer_by = answer_by + interval '1 hour';
select is(reason, 'third', 'or until the clock steps back behind it') from leasehold.ask_hand_over('h', 'asked', reason => 'third');
select * from finish();
