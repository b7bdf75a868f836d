-- Promise 9: after a restart, a crash, a failover, a clock that stepped, or a time without any coordinator, nothing is reaped or
-- taken over before its holder has had one whole duration and grace to renew. Each life is forged by changing what was noted of the last.
select no_plan();
select leasehold.reap();
create function pg_temp.taken(p_key text) returns boolean language sql as
  $$ select t.rows_of(format('select * from leasehold.acquire(%L, %L, %L)', 'n', p_key, '30 s')) = 1 $$;
create function pg_temp.reaped() returns bigint language sql as $$ select count(*) from leasehold.reap() $$;
create function pg_temp.id() returns bigint language sql as $$ select id from leasehold.incarnation $$;

-- An expired lease, then a new life, noticed by nobody yet: nothing counts as expired. Noticed: from then on one duration and grace.
create function pg_temp.forge(p_what text) returns text language plpgsql as $$
begin
  execute case p_what
    when 'another system' then 'update leasehold.incarnation set system_identifier = system_identifier - 1'
    when 'another table' then 'update leasehold.incarnation set table_oid = (table_oid::bigint - 1)::oid'
    when 'another timeline' then 'update leasehold.incarnation set timeline = timeline - 1'
    when 'a restart' then $u$update leasehold.incarnation set postmaster_start = postmaster_start - interval '1 hour'$u$
    when 'a crash' then 'delete from leasehold.incarnation_marker'
  end;
  return p_what;
end $$;
create function pg_temp.story(p_what text) returns setof text language plpgsql as $$
declare
  v_key text := replace(p_what, ' ', '_');
  v_id bigint;
begin
  perform leasehold.acquire('n', v_key, '30 s', lease_key => t.key(1)), leasehold.acquire('n', v_key || '2', '30 s', lease_key => t.key(2));
  perform t.age('n', v_key, '1 hour'), t.age('n', v_key || '2', '1 hour');
  v_id := pg_temp.id();
  perform pg_temp.forge(p_what);
  return next is(pg_temp.taken(v_key), false, p_what || ': not noticed yet, nothing is taken over');
  return next is(pg_temp.reaped(), 0::bigint, p_what || ': the reap that notices it ends nothing');
  return next isnt(pg_temp.id(), v_id, p_what || ': but writes down the new life');
  return next is(pg_temp.reaped(), 0::bigint, p_what || ': nor does the next reap');
  return next is(pg_temp.taken(v_key), false, p_what || ': nothing is taken over');
  return next isnt(leasehold.heartbeat('n', v_key, t.key(1)), null, p_what || ': its holder renews');
  return next is((select count(*) from leasehold.scope where key = v_key || '2' and check_at < clock_timestamp() - interval '1 s'), 0::bigint,
                 p_what || ': and the reaper does not turn around it');
  -- thirty seconds and the grace later
  update leasehold.incarnation set started_at = started_at - interval '29 s';
  update leasehold.scope set check_at = check_at - interval '29 s' where key = v_key || '2';
  return next is(pg_temp.taken(v_key || '2'), false, p_what || ': 29 s later it is not over');
  update leasehold.incarnation set started_at = started_at - interval '3 s';
  update leasehold.scope set check_at = check_at - interval '3 s' where key = v_key || '2';
  return next is(pg_temp.reaped(), 1::bigint, p_what || ': after one whole duration and grace the silent one is reaped');
  return next is(leasehold.heartbeat('n', v_key || '2', t.key(2)), null, p_what || ': and lost');
  return next is((select lease_key from leasehold.scope where key = v_key), t.key(1), p_what || ': the one that renewed stays');
  return next is(leasehold.release_ok('n', v_key, t.key(1)), true, p_what || ': until it releases');
end $$;
select pg_temp.story(what) from unnest(array['a restart', 'a crash']) what;

-- A new system, table or timeline is a jump of the tokens, too.
create function pg_temp.token() returns bigint language sql as $$ select (leasehold.acquire('n', gen_random_uuid()::text, '30 s')).token $$;
-- More than anybody draws unseen. Where the clock stands on the scale of the numbers: 2^36 a minute.
create function pg_temp.jump() returns bigint language sql immutable as $$ select (2 ^ 24)::bigint $$;
create function pg_temp.clock() returns bigint language sql as $$
  select (extract(epoch from clock_timestamp() - timestamptz '2025-01-01 00:00:00Z') / 60 * (2 ^ 36)::bigint)::bigint $$;
select pg_temp.token() as before \gset
select cmp_ok(pg_temp.token() - :before, '<', pg_temp.jump(), 'restarts and crashes are no jump');
select leasehold.bump_epoch();
select pg_temp.token() as after \gset
select cmp_ok(:after - :before, '>=', pg_temp.jump(), 'bump_epoch jumps');
select cmp_ok(:after, '<=', pg_temp.clock(), 'and not ahead of the clock');
select leasehold.bump_epoch();
select pg_temp.token() as third \gset
select cmp_ok(:third - :after, '>=', pg_temp.jump(), 'twice is twice');
select cmp_ok(pg_temp.token() - :third, '<', pg_temp.jump(), 'and no more by itself');

-- A failover: the sequences have not jumped for this timeline yet, and the incarnation is of the last one. Whoever is first to notice,
-- a grant or who writes the new incarnation, the next token is behind the jump.
create function pg_temp.fail_over() returns void language sql as $$
  select setval('leasehold.epoch_mark', 1);
  update leasehold.incarnation set timeline = timeline - 1, postmaster_start = postmaster_start - interval '1 day';
$$;
select pg_temp.fail_over();
select pg_temp.token() as fourth \gset
select cmp_ok(:fourth - :third, '>=', pg_temp.jump(), 'a grant after a failover is behind the jump');
select leasehold.reap();
select cmp_ok(pg_temp.token() - :fourth, '<', pg_temp.jump(), 'of which there is one alone');
select pg_temp.fail_over();
select leasehold.reap();
select cmp_ok(pg_temp.token() - :fourth, '>=', pg_temp.jump(), 'also where the new incarnation was written before');

-- With asynchronous standbys: a second failover, within the same minute, to a server that knows nothing of the first one, neither its
-- jump nor its numbers, and whose timeline has the same number.
create function pg_temp.forget() returns void language sql as $$
  select setval('leasehold.token', 1), setval('leasehold.ticket', 1);
  select pg_temp.fail_over();
$$;
select pg_temp.forget();
select max(pg_temp.token()) as lost from generate_series(1, 200) \gset
select pg_temp.forget();
select cmp_ok(pg_temp.token(), '>', :lost, 'a failover that knows nothing of the last one begins above its tokens');
select leasehold.reap();
select leasehold.acquire('n', 'ticket', '30 s', lease_key => t.key(50)), leasehold.join_queue('n', 'ticket', t.key(51));
select leasehold.bump_epoch();
select leasehold.join_queue('n', 'ticket', t.key(52));
select cmp_ok((select ticket from leasehold.waiter where lease_key = t.key(52)), '>=', (select ticket + pg_temp.jump() from leasehold.waiter where lease_key = t.key(51)),
              'tickets jump with the tokens, so the order of the queue stays');

-- Told LOST is lost, in a new life too.
select leasehold.acquire('n', 'told', '30 s', lease_key => t.key(60));
select t.age('n', 'told', '1 hour');
select is(leasehold.heartbeat('n', 'told', t.key(60)), null, 'told that it is lost');
select pg_temp.forge('a restart');
select is(leasehold.heartbeat('n', 'told', t.key(60)), null, 'a restart does not revive it');
select is(t.error_of($$select leasehold.acquire('n', 'told', '30 s', lease_key => t.key(60))$$), 'LH006 lease_ended', 'nor an acquire with its lease key');
select leasehold.reap();

-- A guard believes the same.
select token as guarded from leasehold.acquire('n', 'guarded', '30 s', lease_key => t.key(61)) \gset
select t.age('n', 'guarded', '1 hour');
select is(t.error_of(format('select leasehold.guard(%L, %L, %s)', 'n', 'guarded', :guarded)), 'LH001 lease_lost', 'expired, so a guard fails');
select pg_temp.forge('a restart');
select is(t.error_of(format('select leasehold.guard(%L, %L, %s)', 'n', 'guarded', :guarded)), '', 'after a restart nothing counts as expired, so it passes');
select leasehold.reap();
select leasehold.reap();

-- Coordinators registered and none live: nothing expires, for five minutes; then the first who asks begins a new life.
create function pg_temp.last_seen(p_ago interval) returns void language sql as $$
  update leasehold.coordinator set seen_at = clock_timestamp() - p_ago;
  update leasehold.incarnation set started_at = least(started_at, clock_timestamp() - p_ago);
$$;
select '11111111-1111-4111-8111-111111111111' as c1 \gset
select leasehold_internal.coordinator_register(:'c1', 'host1', 1, '0.1.0');
select pg_temp.id() as with_coordinator \gset
select leasehold.acquire('n', 'hold', '30 s', lease_key => t.key(70)), leasehold.acquire('n', 'hold2', '30 s', lease_key => t.key(71));
select t.age('n', 'hold', '1 hour'), t.age('n', 'hold2', '1 hour');
select pg_temp.last_seen('4 min');
select is(pg_temp.taken('hold'), false, 'while every coordinator is down nothing is taken over');
select is(pg_temp.reaped(), 0::bigint, 'nor reaped');
select isnt(leasehold.heartbeat('n', 'hold', t.key(70)), null, 'a holder may renew');
select t.age('n', 'hold', '1 hour');
select pg_temp.last_seen('301 s');
select isnt(leasehold.heartbeat('n', 'hold', t.key(70)), null, 'nor is a holder lost then who comes before anybody else: so looks a clock that has just been stepped');
select t.age('n', 'hold', '1 hour');
select pg_temp.id() as unnoticed \gset
select is(pg_temp.taken('hold'), false, 'after five minutes the first who asks takes nothing over');
select is(pg_temp.id(), :unnoticed::bigint + 1, 'but begins a new life, for so looks a clock that has stepped by more');
select is(pg_temp.taken('hold'), false, 'in which nothing is taken over at once');
select is(pg_temp.id(), :unnoticed::bigint + 1, 'and which is the only one');
select t.age('n', 'hold', '1 hour');
update leasehold.incarnation set started_at = started_at - interval '32 s';
update leasehold.coordinator set seen_at = seen_at - interval '32 s';
select is(pg_temp.taken('hold'), true, 'after one whole duration and grace in it the hold is over');
select is(leasehold.heartbeat('n', 'hold', t.key(70)), null, 'and its holder has lost');
-- The first coordinator after that time begins a new life.
select leasehold_internal.coordinator_register('22222222-2222-4222-8222-222222222222', 'host2', 2, '0.1.0');
select isnt(pg_temp.id(), :with_coordinator::bigint, 'the first coordinator after a time with none begins a new life');
select is(pg_temp.reaped(), 0::bigint, 'so what was expired has a whole duration again');
select isnt(leasehold.heartbeat('n', 'hold2', t.key(71)), null, 'and its holder renews');
select pg_temp.id() as second \gset
select leasehold_internal.coordinator_register('33333333-3333-4333-8333-333333333333', 'host3', 3, '0.1.0');
select is(pg_temp.id(), :second::bigint, 'a second coordinator beside a live one begins none');

-- A site with cron alone is not held up by daemons that went cleanly. The last of them begins a new life, for the clock may just have stepped.
select t.age('n', 'hold2', '1 hour');
select pg_temp.id() as attended \gset
select leasehold_internal.coordinator_unregister('33333333-3333-4333-8333-333333333333');
select is(pg_temp.id(), :attended::bigint, 'one that goes while another is live begins no new life');
select leasehold_internal.coordinator_unregister(id) from leasehold.coordinator;
select is(pg_temp.id(), :attended::bigint + 1, 'the last one does');
select is(pg_temp.taken('hold2'), false, 'so that nothing is taken over as it goes');
update leasehold.incarnation set started_at = started_at - interval '32 s';
select is(pg_temp.taken('hold2'), true, 'after one whole duration and grace leases expire');

-- A step of the clock that nobody has noticed yet: everything that was written is older by it. Whatever SQL users, reapers and daemons do
-- then ends no live lease and forgets no live daemon.
create function pg_temp.step(p_by interval) returns void language sql as $$
  update leasehold.scope set acquired_at = acquired_at - p_by, heartbeat_at = heartbeat_at - p_by, deadline = deadline - p_by, check_at = check_at - p_by;
  update leasehold.share set acquired_at = acquired_at - p_by, heartbeat_at = heartbeat_at - p_by, deadline = deadline - p_by, check_at = check_at - p_by;
  update leasehold.coordinator set seen_at = seen_at - p_by;
  update leasehold.incarnation set started_at = started_at - p_by;
$$;
create function pg_temp.stepped(p_by interval) returns setof text language plpgsql as $$
declare
  v_key text := 'by_' || extract(epoch from p_by);
  v_what text;
begin
  perform leasehold_internal.coordinator_register(t.key(900), 'host', 1, '0.1.0'), leasehold.set_policy('shared', capacity => 5);
  foreach v_what in array array['sql', 'daemon', 'visit', 'reap', 'stale', 'leave', 'holder'] loop
    perform leasehold.acquire('n', v_key || v_what, '60 s', lease_key => t.key(901));
    perform leasehold.acquire('shared', v_key || v_what, '60 s', lease_key => t.key(901), mode => 'shared');
    perform pg_temp.step(p_by);
    case v_what
      when 'sql' then perform pg_temp.taken(v_key || v_what);
      when 'daemon' then perform leasehold_internal.acquire_items(t.key(900), clock_timestamp(), array['n'], array[v_key || v_what], array[t.key(902)],
                                                                   array['d'], array['{}'], array[30000000], array[false], array[0], array[0]);
      when 'visit' then
        return next is((select count(*) from leasehold_internal.reap_batch(t.key(900), clock_timestamp() - p_by, null, null, 1000, true) where kind = 'reaped')
                       + (select count(*) from leasehold_internal.reap_batch(t.key(903), null, null, null, 1000, true) where kind = 'reaped'), 0::bigint,
                       p_by || ': a daemon''s reaper ends nothing');
      when 'reap' then return next is(pg_temp.reaped() + pg_temp.reaped(), 0::bigint, p_by || ': nor does reap()');
      when 'stale' then
        return next is((select count(*) from leasehold_internal.reap_stale_list(null, null, 100, null, null, null, null) where is_stale)
                       + (select count(*) from leasehold_internal.reap_stale_list(null, null, 100, null, null, null, null) where is_stale), 0::bigint,
                       p_by || ': nor a reaper with a callback');
        perform leasehold_internal.reap_stale_tidy(1000);
      when 'leave' then perform leasehold_internal.coordinator_unregister(t.key(900));
      when 'holder' then null;
    end case;
    if v_what <> 'leave' then
      return next is((select count(*) from leasehold.coordinator where id = t.key(900)), 1::bigint, p_by || ', ' || v_what || ': the daemon is still there');
    end if;
    return next is(pg_temp.taken(v_key || v_what), false, p_by || ', ' || v_what || ': nothing is taken over');
    return next is(t.rows_of(format($q$select * from leasehold.acquire('shared', %L, '30 s')$q$, v_key || v_what)), 0, p_by || ', ' || v_what || ': nor what is shared');
    perform leasehold_internal.coordinator_register(t.key(900), 'host', 1, '0.1.0');
    return next is(pg_temp.taken(v_key || v_what), false, p_by || ', ' || v_what || ': nor when the daemon is back');
    return next isnt(leasehold.heartbeat('n', v_key || v_what, t.key(901)), null, p_by || ', ' || v_what || ': its holder renews');
    return next isnt(leasehold.heartbeat('shared', v_key || v_what, t.key(901)), null, p_by || ', ' || v_what || ': and who shares');
    perform leasehold.release_ok('n', v_key || v_what, t.key(901)), leasehold.release_ok('shared', v_key || v_what, t.key(901));
  end loop;
  perform leasehold_internal.coordinator_unregister(t.key(900));
end $$;
select pg_temp.stepped(step) from unnest(array['18 s', '200 s', '400 s', '2 days']::interval[]) step;

-- One daemon that others take for dead is swept, but never by itself.
select t.enroll(:'c1'), leasehold_internal.coordinator_register(t.key(900), 'host', 1, '0.1.0');
update leasehold.coordinator set seen_at = clock_timestamp() - interval '20 s' where id = t.key(900);
select leasehold_internal.sweep_waiters(t.key(900));
select is((select count(*) from leasehold.coordinator where id = t.key(900)), 1::bigint, 'a daemon never sweeps itself');
select leasehold_internal.sweep_waiters(:'c1');
select is((select count(*) from leasehold.coordinator where id = t.key(900)), 0::bigint, 'another one does');
select leasehold_internal.coordinator_unregister(:'c1');

-- A clock that stepped forward is seen by the tick.
select t.enroll(:'c1');
select pg_temp.id() as stepped \gset
select leasehold.acquire('n', 'step', '30 s', lease_key => t.key(80));
select t.age('n', 'step', '1 hour');
select leasehold_internal.coordinator_tick(:'c1', clock_timestamp() - interval '500 ms');
select is(pg_temp.id(), :stepped::bigint, 'half a second is no step');
select leasehold_internal.coordinator_tick(:'c1', clock_timestamp() - interval '1 hour');
select isnt(pg_temp.id(), :stepped::bigint, 'a clock that went ahead by an hour begins a new life');
select is(pg_temp.reaped(), 0::bigint, 'and nothing is reaped');
select isnt(leasehold.heartbeat('n', 'step', t.key(80)), null, 'the holder renews');
select pg_temp.id() as steady \gset
select leasehold_internal.coordinator_tick(:'c1', null);
select is(pg_temp.id(), :steady::bigint, 'a daemon without a belief begins no new life');

-- A clock that stepped back: what was counted by the old one would stay held for as long as the step was wide.
select leasehold.acquire('n', 'back', '2 s', lease_key => t.key(81));
update leasehold.scope set deadline = deadline + interval '10 min', heartbeat_at = heartbeat_at + interval '10 min',
       acquired_at = acquired_at + interval '10 min', check_at = check_at + interval '10 min' where key = 'back';
select leasehold_internal.coordinator_tick(:'c1', clock_timestamp() + interval '10 min');
select isnt(pg_temp.id(), :steady::bigint, 'a clock that went back by ten minutes begins a new life');
select cmp_ok((select expires_at from leasehold.explain('n', 'back')), '<', clock_timestamp() + interval '4 s', 'its lease has its own duration and grace, from now on');
select cmp_ok((select check_at from leasehold.scope where key = 'back'), '<', clock_timestamp() + interval '2 s', 'and the reaper looks at it soon');
select isnt(leasehold.heartbeat('n', 'back', t.key(81)), null, 'until then its holder renews');
update leasehold.incarnation set started_at = started_at - interval '1 hour', reason = 'test';
update leasehold.scope set incarnation = 0 where key = 'back';
select t.age('n', 'back', '1 hour');
select is(pg_temp.taken('back'), true, 'a dead holder''s lease is taken over after that');
select pg_temp.id() as steady \gset

-- Facts that differ are written by a tick, too.
select pg_temp.forge('a crash');
select leasehold_internal.coordinator_tick(:'c1', clock_timestamp());
select isnt(pg_temp.id(), :steady::bigint, 'a tick after a crash begins a new life');
select is((select count(*) from leasehold.incarnation_marker), 1::bigint, 'and sets the marker again');

-- A daemon whose own row can be written, and renewals cannot: so it is on a full disk. Nothing expires until they can.
select leasehold.acquire('n', 'full' || i, '2 s', lease_key => t.key(90 + i)) from generate_series(1, 6) i;
select t.age('n', 'full' || i, '1 hour') from generate_series(1, 6) i;
select pg_temp.id() as writable \gset
select leasehold_internal.coordinator_tick(:'c1', clock_timestamp(), true);
select is(pg_temp.taken('full1'), false, 'while a daemon cannot write renewals nothing is taken over');
select is(pg_temp.reaped(), 0::bigint, 'nor reaped');
select leasehold.guard('n', 'full1', (select token from leasehold.scope where key = 'full1'));
select isnt(leasehold.heartbeat('n', 'full1', t.key(91)), null, 'a holder whose renewal comes through is not lost');
select leasehold_internal.coordinator_tick(:'c1', clock_timestamp(), true);
select is(pg_temp.id(), :writable::bigint, 'no new life begins as long as it lasts');
select leasehold_internal.coordinator_tick('33333333-3333-4333-8333-333333333333', clock_timestamp(), false);
select is(pg_temp.taken('full2'), false, 'another daemon that knows of no trouble changes nothing');
select leasehold_internal.coordinator_tick(:'c1', clock_timestamp());
select is(pg_temp.id(), :writable::bigint + 1, 'when it can write again a new life begins');
select is(pg_temp.taken('full2'), false, 'in which a lease has a whole duration again');
select isnt(leasehold.heartbeat('n', 'full2', t.key(92)), null, 'and its holder renews');
select leasehold_internal.coordinator_tick(:'c1', clock_timestamp());
select is(pg_temp.id(), :writable::bigint + 1, 'one only');
-- It dies while it cannot write.
select leasehold_internal.coordinator_tick(:'c1', clock_timestamp(), true);
update leasehold.coordinator set seen_at = clock_timestamp() - interval '6 s' where id = :'c1';
select t.age('n', 'full3', '1 hour');
select is(pg_temp.taken('full3'), false, 'it dies, and nothing is taken over by that');
select leasehold_internal.coordinator_tick('33333333-3333-4333-8333-333333333333', clock_timestamp());
select is(pg_temp.id(), :writable::bigint + 2, 'another one begins a new life');
select is(pg_temp.taken('full3'), false, 'with a whole duration for each');
select leasehold_internal.coordinator_tick('33333333-3333-4333-8333-333333333333', clock_timestamp(), true);
update leasehold.coordinator set seen_at = clock_timestamp() - interval '6 s';
select is((select count(*) from leasehold.reap('{n}')), 0::bigint, 'a reap without any daemon ends nothing in the call that finds that out');
select is(pg_temp.id(), :writable::bigint + 3, 'and begins a new life');
select t.enroll(:'c1'), leasehold_internal.coordinator_tick(:'c1', clock_timestamp(), true);
select pg_temp.id() as leaving \gset
select leasehold_internal.coordinator_unregister(:'c1');
select is(pg_temp.id(), :leaving::bigint + 1, 'so does one that shuts down in that state');
-- Silent for five minutes: like any time without a coordinator it holds up nobody for longer.
select t.enroll(:'c1'), leasehold_internal.coordinator_tick(:'c1', clock_timestamp(), true);
select pg_temp.last_seen('301 s');
select isnt(leasehold.heartbeat('n', 'full4', t.key(94)), null, 'its holder renews meanwhile');
select t.age('n', 'full4', '1 hour');
select is(pg_temp.taken('full4'), false, 'after five minutes of silence who asks begins a new life');
update leasehold.incarnation set started_at = started_at - interval '4 s';
update leasehold.coordinator set seen_at = seen_at - interval '4 s';
select is(pg_temp.taken('full4'), true, 'and after a duration and grace in it the hold is over');
select * from finish();
