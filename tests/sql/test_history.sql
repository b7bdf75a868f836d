-- leasehold.history: every hold that has ended, where the policy asks for it; its partitions; and leasehold.lease_summary.
select no_plan();
select leasehold.reap();
create role history_reader login in role leasehold_reader;
create temp view hold as
  select (namespace || '/' || key)::text collate "default" as scope, token, owner, outcome, result, error, ended_by from leasehold.history;
create function pg_temp.of(p_scope text, out outcome text, out owner text, out result jsonb, out error text, out ended_by text) returns setof record language sql as
  $$ select h.outcome, h.owner, h.result, h.error, h.ended_by from hold h where h.scope = p_scope order by h.token $$;

-- opt-in
select leasehold.acquire('off', 'a', '30 s', lease_key => t.key(1));
select leasehold.release_ok('off', 'a', t.key(1));
select is((select count(*) from leasehold.history), 0::bigint, 'nothing is kept where nobody asked for it');
select is((select count(*) from leasehold_internal.kept_days('history')), 0::bigint, 'nor are partitions made');
select leasehold.set_policy('on', history => true);
select leasehold.set_policy('on.not', history => false);
select is((select count(*) from leasehold_internal.kept_days('history') d where d between (clock_timestamp() at time zone 'UTC')::date and (clock_timestamp() at time zone 'UTC')::date + 3), 4::bigint,
          'the partitions of today and the next three days are there from the start');

-- every way to end
create temp table granted as
select * from leasehold.acquire('on', 'ok', '30 s', owner => 'w1', lease_key => t.key(10)) union all
select * from leasehold.acquire('on', 'fail', '30 s', owner => 'w2', lease_key => t.key(11)) union all
select * from leasehold.acquire('on.deep.er', 'reaped', '30 s', owner => 'w3', lease_key => t.key(12)) union all
select * from leasehold.acquire('on', 'taken', '30 s', owner => 'w4', lease_key => t.key(13)) union all
select * from leasehold.acquire('on', 'forced', '30 s', owner => 'w5', lease_key => t.key(14)) union all
select * from leasehold.acquire('on', 'waited', '30 s', owner => 'w6', lease_key => t.key(15)) union all
select * from leasehold.acquire('on.not', 'a', '30 s', lease_key => t.key(16)) union all
select * from leasehold.acquire('onto', 'a', '30 s', lease_key => t.key(17)) union all
select * from leasehold.acquire('off', 'a', '30 s', lease_key => t.key(18));
select leasehold.release_ok('on', 'ok', t.key(10), '{"n": 1}');
select leasehold.release_ok('on', 'ok', t.key(10), '{"n": 2}');
select leasehold.release_fail('on', 'fail', t.key(11), 'disk full');
select t.age('on.deep.er', 'reaped', '1 hour'), t.age('on', 'taken', '1 hour');
select is(t.rows_of($$select * from leasehold.acquire('on', 'taken', '30 s', owner => 'w7', lease_key => t.key(19))$$), 1, 'taken over');
select is(t.rows_of($$select * from leasehold.reap()$$), 1, 'reaped');
select is(t.rows_of($$select * from leasehold.force_release('on', 'forced', 'host is gone')$$), 1, 'forced');
select leasehold.join_queue('on', 'waited', t.key(20));
select leasehold.release_ok('on', 'waited', t.key(15));
select leasehold.release_ok('on.not', 'a', t.key(16)), leasehold.release_ok('onto', 'a', t.key(17)), leasehold.release_ok('off', 'a', t.key(18));
select results_eq($$select * from pg_temp.of('on/ok')$$, $$values ('ok', 'w1', '{"n": 1}'::jsonb, null, null)$$, 'a release, once, with its result');
select results_eq($$select * from pg_temp.of('on/fail')$$, $$values ('failed', 'w2', null::jsonb, 'disk full', null)$$, 'a failure, with its error');
select results_eq($$select * from pg_temp.of('on.deep.er/reaped')$$, $$values ('expired', 'w3', null::jsonb, null::text, null::text)$$, 'a reaped lease, below the namespace that asks');
select results_eq($$select * from pg_temp.of('on/taken')$$, $$values ('expired', 'w4', null::jsonb, null::text, null::text)$$, 'a takeover: the hold before, not the new one');
select results_eq($$select * from pg_temp.of('on/forced')$$, $$values ('forced', 'w5', null::jsonb, 'host is gone', session_user::text collate "default")$$, 'a force-release: why, and by whom');
select results_eq($$select * from pg_temp.of('on/waited')$$, $$values ('ok', 'w6', null::jsonb, null::text, null::text)$$, 'a release to a waiter');
select is((select count(*) from hold), 6::bigint, 'nothing else is kept: neither of on.not, onto nor off');
select is((select count(*) from leasehold.history h join granted g on g.namespace = h.namespace and g.key = h.key and g.token = h.token
            where h.acquired_at <= h.ended_at and (h.acquired_at = g.acquired_at or h.key in ('reaped', 'taken'))), 6::bigint, 'token and times are those of the hold');
select leasehold.release_ok('on', 'taken', t.key(19));
select results_eq($$select outcome, owner from pg_temp.of('on/taken')$$, $$values ('expired', 'w4'), ('ok', 'w7')$$, 'the next hold of the scope comes after it');

-- batches: the short way, the long way, a place given up after the grant, and the daemon's force-release
select leasehold.set_policy('b', history => true);
select leasehold_internal.coordinator_register('11111111-1111-4111-8111-111111111111', 'h', 1, '0.1.0');
select leasehold.acquire('b', 'k' || n, '30 s', lease_key => t.key(100 + n)) from generate_series(1, 20) n;
select is((select count(*) from leasehold_internal.release_batch(null, array_fill('b'::text, array[25]), array(select 'k' || n from generate_series(1, 25) n),
                                                         array(select t.key(100 + n) from generate_series(1, 25) n), array(select n % 2 = 0 from generate_series(1, 25) n),
                                                         array(select case when n % 2 = 0 then 'e' || n else n::text end from generate_series(1, 25) n)) where outcome = 'ok'), 20::bigint, 'a batch of releases');
select is((select string_agg(outcome || coalesce(result::text, error), ' ' order by token) from leasehold.history where namespace = 'b'),
          (select string_agg(case when n % 2 = 0 then 'failede' else 'ok' end || n, ' ' order by n) from generate_series(1, 20) n), 'is a row each');
select count(*) from leasehold_internal.acquire_batch('11111111-1111-4111-8111-111111111111', null, array['b'], array['left'], array[t.key(130)], array['gone'], array['{}'], array[30000000::bigint], array[true], array[null::bigint], array[0::bigint]);
select count(*) from leasehold_internal.leave_batch('11111111-1111-4111-8111-111111111111', array['b'], array['left'], array[t.key(130)], array[false]);
select is((select outcome || owner from leasehold.history where key = 'left'), 'okgone', 'a lease whose caller went away in that instant');
select leasehold.acquire('b', 'one', '30 s', lease_key => t.key(131));
select count(*) from leasehold_internal.force_release_one('b', 'one', 'why', 0);
select is((select outcome || error from leasehold.history where key = 'one'), 'forcedwhy', 'the daemon''s force-release');

-- it belongs to the transaction
begin;
select leasehold.acquire('on', 'undone', '30 s', lease_key => t.key(30));
select leasehold.release_ok('on', 'undone', t.key(30));
rollback;
select is((select count(*) from leasehold.history where key = 'undone'), 0::bigint, 'what is rolled back has not happened');
begin isolation level serializable;
select leasehold.acquire('on', 'serial', '30 s', lease_key => t.key(31));
select leasehold.release_ok('on', 'serial', t.key(31));
commit;
select is((select count(*) from leasehold.history where key = 'serial'), 1::bigint, 'in any isolation level');

-- a change acts at once
select leasehold.acquire('on', 'change', '30 s', lease_key => t.key(40));
select leasehold.set_policy('on', history => false);
select leasehold.release_ok('on', 'change', t.key(40));
select is((select count(*) from leasehold.history where key = 'change'), 0::bigint, 'switched off');
select leasehold.set_policy('on', history => true);

-- who sees it
set role history_reader;
select count(*) as seen from leasehold.history \gset
select outcome as forced_by from leasehold.history where key = 'forced' \gset
reset role;
select ok(:seen > 20, 'a reader reads it');
select hasnt_column('leasehold', 'history', 'lease_key', 'there are no lease keys in it');
select is((select error || '' from leasehold.history where error ~ (select string_agg(lease_key::text, '|') from granted)), null, 'nowhere');

-- partitions: where there is none
create function pg_temp.move_all(p_by interval) returns void language plpgsql as $$
begin
  -- What has happened, happened earlier; the rows go where their new day is.
  create temp table moved as select * from leasehold.history;
  delete from leasehold.history;
  insert into leasehold.history select namespace, key, token, acquired_at - p_by, ended_at - p_by, outcome, owner, result, error, ended_by from moved;
  drop table moved;
end $$;
create function pg_temp.rows_in(p_table text) returns bigint language plpgsql as $$
declare v bigint;
begin
  execute format('select count(*) from only leasehold.%I', p_table) into v;
  return v;
end $$;
create function pg_temp.day(p_ago integer) returns date language sql as $$ select (clock_timestamp() at time zone 'UTC')::date - p_ago $$;
create function pg_temp.keep() returns text language plpgsql as $$
begin
  update leasehold.keeping set look_at = clock_timestamp() where name = 'history';
  perform leasehold_internal.keep_days(clock_timestamp(), true);
  return (select string_agg(d::text, ' ') from leasehold_internal.kept_days('history') d where d < pg_temp.day(0));
end $$;
select is(pg_temp.rows_in('history_default'), 0::bigint, 'what ends today is in today''s partition');
select is(pg_temp.rows_in(leasehold_internal.day_partition('history', pg_temp.day(0))), (select count(*) from leasehold.history), 'all of it');
select pg_temp.move_all('5 days');
select is(pg_temp.rows_in('history_default'), (select count(*) from leasehold.history), 'without a partition for its day it is in the default one');
do $$ begin execute format('drop table leasehold.%I', leasehold_internal.day_partition('history', pg_temp.day(0))); end $$;
select leasehold.acquire('on', 'nowhere', '30 s', lease_key => t.key(50));
select is(leasehold.release_ok('on', 'nowhere', t.key(50)), true, 'a release does not fail for want of a partition');
select pg_temp.keep();
select is(to_regclass('leasehold.' || leasehold_internal.day_partition('history', pg_temp.day(0))), null, 'a day that the default partition has rows of stays there');
select is((select count(*) from leasehold_internal.kept_days('history') where kept_days > pg_temp.day(0)), 3::bigint, 'the days after have theirs');
delete from leasehold.history where key = 'nowhere';
select pg_temp.keep();
select isnt(to_regclass('leasehold.' || leasehold_internal.day_partition('history', pg_temp.day(0))), null, 'made again once it can be');
select is((select count(*) from pg_class c where c.relnamespace = 'leasehold'::regnamespace and c.relname ~ '^history_' and c.relkind = 'r' and obj_description(c.oid, 'pg_class') is null),
          0::bigint, 'partitions are commented');

-- retention
create function pg_temp.make_day(p_ago integer) returns void language plpgsql as $$
begin
  perform leasehold_internal.make_days('history', clock_timestamp() - p_ago * interval '1 day');
end $$;
truncate leasehold.history;
select pg_temp.make_day(n) from generate_series(40, 4, -4) n;
insert into leasehold.history (namespace, key, token, acquired_at, ended_at, outcome)
select x, 'k', n, clock_timestamp() - n * interval '1 day', clock_timestamp() - n * interval '1 day', 'ok' from unnest(array['on', 'short']) x, generate_series(0, 40) n;
select is(pg_temp.rows_in('history_default'), 0::bigint, 'every day has its partition');
-- By a clock that has just gone ahead, all of it may be.
insert into leasehold.history (namespace, key, token, acquired_at, ended_at, outcome) select 'on', 'k', 99, d, d, 'ok' from (select clock_timestamp() - interval '90 days' as d) x;
select leasehold.set_schedule('on.hourly', '@hourly');
insert into leasehold.tick (schedule, at, due_at, claim_until, state, ended_at, instants) select 'on.hourly', d, d, 'infinity', 'missed', d, 1 from (select date_trunc('hour', clock_timestamp() - interval '90 days') as d) x;
update leasehold.incarnation set reason = 'the clock of the database stepped forward', started_at = clock_timestamp() - interval '59 min';
update leasehold.keeping set look_at = clock_timestamp();
select is(split_part(pg_temp.keep(), ' ', 1), pg_temp.day(40)::text, 'for an hour after a step forward no partition goes');
select is(pg_temp.rows_in('history_default'), 1::bigint, 'and nothing of the default one');
select is((select count(*) from leasehold.tick where at < clock_timestamp() - interval '80 days'), 1::bigint, 'and no tick');
update leasehold.incarnation set started_at = clock_timestamp() - interval '61 min';
update leasehold.keeping set look_at = clock_timestamp();
select is(split_part(pg_temp.keep(), ' ', 1), pg_temp.day(39)::text, 'a partition that is past the retention goes, one in a transaction');
select is((select count(*) from leasehold.tick where at < clock_timestamp() - interval '80 days'), 0::bigint, 'and old ticks do');
do $$ begin for i in 1 .. 20 loop perform pg_temp.keep(); end loop; end $$;
select is(split_part(pg_temp.keep(), ' ', 1), pg_temp.day(30)::text, 'until those within the retention are left');
select is((select count(*) from leasehold.history where namespace = 'on'), 30::bigint, 'with their rows');
select leasehold.set_policy('short', history_retention => '2 days');
select ok((select look_at <= clock_timestamp() from leasehold.keeping where name = 'history'), 'a change of the retention is looked at soon');
do $$ begin for i in 1 .. 3 loop perform pg_temp.keep(); end loop; end $$;
select is((select count(*) from leasehold.history where namespace = 'short'), 2::bigint, 'a namespace with a shorter retention loses its rows alone');
select is((select count(*) from leasehold.history where namespace = 'on'), 30::bigint, 'the others'' stay');
delete from leasehold.history where namespace = 'on' and ended_at < clock_timestamp() - interval '10 days';
do $$ begin for i in 1 .. 40 loop perform pg_temp.keep(); end loop; end $$;
select is(split_part(pg_temp.keep(), ' ', 1), pg_temp.day(9)::text, 'empty partitions go as soon as nothing is written to them');
insert into leasehold.history (namespace, key, token, acquired_at, ended_at, outcome) select 'on', 'k', 99, d, d, 'ok' from (select clock_timestamp() - interval '90 days' as d) x;
select is(pg_temp.rows_in('history_default'), 1::bigint, 'one in the default partition');
select pg_temp.keep();
select is(pg_temp.rows_in('history_default'), 0::bigint, 'goes as well');
select leasehold.reset_policy('short'), leasehold.set_policy('', history_retention => '0 s');
select leasehold.set_policy('on', history => false);
do $$ begin for i in 1 .. 40 loop perform pg_temp.keep(); end loop; end $$;
select is((select count(*) from leasehold.history), 0::bigint, 'a retention of 0 keeps nothing');
select is((select min(kept_days) from leasehold_internal.kept_days('history')), pg_temp.day(0), 'and drops no partition of today or later');
select leasehold.reset_policy('');

-- who looks after it: daemons and reap(), when it is time
update leasehold.keeping set look_at = clock_timestamp() - interval '1 s' where name = 'history';
select count(*) from leasehold_internal.coordinator_tick('11111111-1111-4111-8111-111111111111', null);
select ok((select look_at > clock_timestamp() + interval '1 min' from leasehold.keeping where name = 'history'), 'a daemon''s tick looks after it');
update leasehold.keeping set look_at = clock_timestamp() - interval '1 s' where name = 'history';
select leasehold.reap();
select ok((select look_at > clock_timestamp() + interval '1 min' from leasehold.keeping where name = 'history'), 'and so does reap()');
update leasehold.keeping set look_at = clock_timestamp() - interval '1 s' where name = 'history';
set role leasehold_owner;
select leasehold_internal.make_days('history', '2020-02-01 12:00+00');
reset role;
begin;
select 1;
select leasehold.reap();
select ok((select look_at < clock_timestamp() from leasehold.keeping where name = 'history'), 'less so in a transaction that goes on');
select is((select count(*) from pg_locks where pid = pg_backend_pid() and mode = 'AccessExclusiveLock' and relation = 'leasehold.history'::regclass), 0::bigint,
          'for a table that goes would stay locked until its end');
select isnt(to_regclass('leasehold.history_20200201'), null, 'it waits for the next one');
commit;
select leasehold.reap();
select is(to_regclass('leasehold.history_20200201'), null, 'which has it gone');
update leasehold.keeping set look_at = clock_timestamp() - interval '1 s' where name = 'history';
begin isolation level repeatable read;
select count(*) from leasehold_internal.coordinator_tick('11111111-1111-4111-8111-111111111111', null);
commit;
select ok((select look_at < clock_timestamp() from leasehold.keeping where name = 'history'), 'nor in an old snapshot');

-- what is wrong with the history is no daemon's death
create function pg_temp.no_tables() returns event_trigger language plpgsql as $$ begin raise exception 'no more tables'; end $$;
create event trigger no_tables on ddl_command_start when tag in ('CREATE TABLE') execute function pg_temp.no_tables();
do $$ begin execute format('drop table leasehold.%I', leasehold_internal.day_partition('history', pg_temp.day(-1))); end $$;
update leasehold.keeping set look_at = clock_timestamp() - interval '1 s' where name = 'history';
select leasehold.set_policy('still', frozen => false);
set client_min_messages = error;
update leasehold.policy set history = true where namespace = 'still';
select is((select is_registered from leasehold_internal.coordinator_tick('11111111-1111-4111-8111-111111111111', null) limit 1), true, 'a tick that cannot make a partition ticks all the same');
reset client_min_messages;
select ok((select look_at > clock_timestamp() from leasehold.keeping where name = 'history'), 'and looks again later');
select is((select error from leasehold.keeping where name = 'history'), 'no partition can be made: no more tables', 'which is known to whoever asks');
select is((select failing_since <= clock_timestamp() from leasehold.keeping where name = 'history'), true, 'with its time');
drop event trigger no_tables;

-- nor does one half of it stop the other
create function pg_temp.no_deletes() returns trigger language plpgsql as $$ begin raise exception 'no deletes'; end $$;
create trigger no_deletes before delete on leasehold.history_default for each row execute function pg_temp.no_deletes();
insert into leasehold.history (namespace, key, token, acquired_at, ended_at, outcome)
values ('old', 'k', 1, clock_timestamp() - interval '1000 days', clock_timestamp() - interval '1000 days', 'ok');
select leasehold_internal.make_days('history', clock_timestamp() - interval '1000 days' + n * interval '10 days') from generate_series(1, 1) n;
do $$ begin execute format('drop table if exists leasehold.%I', leasehold_internal.day_partition('history', pg_temp.day(-2))); end $$;
create function pg_temp.keep_history() returns text language plpgsql as $$
begin
  update leasehold.keeping set look_at = clock_timestamp() where name = 'history';
  perform leasehold_internal.keep_days(clock_timestamp(), true);
  return (select k.error from leasehold.keeping k where k.name = 'history');
end $$;
set client_min_messages = error;
select is(pg_temp.keep_history(), 'old rows of the default partition cannot be deleted: no deletes', 'rows that cannot be deleted are told of');
reset client_min_messages;
select isnt(to_regclass('leasehold.' || leasehold_internal.day_partition('history', pg_temp.day(-2))), null, 'partitions are made all the same');
do $$ begin for i in 1 .. 9 loop perform pg_temp.keep_history(); end loop; end $$;
select is((select count(*) from leasehold_internal.kept_days('history') d where d < pg_temp.day(100)), 0::bigint, 'and go');
drop trigger no_deletes on leasehold.history_default;
select is(pg_temp.keep_history(), null, 'an error that is over is forgotten');
select is((select failing_since from leasehold.keeping where name = 'history'), null, 'with its time');
select is((select count(*) from leasehold.history where namespace = 'old'), 0::bigint, 'and what was to go is gone');

-- lease_summary
select is((select count(*) from leasehold.lease_summary where namespace like 'sum%'), 0::bigint, 'a namespace without leases is not listed');
select leasehold.acquire('sum', 'k' || n, '30 s', lease_key => t.key(200 + n)) from generate_series(1, 5) n;
select leasehold.acquire('sum.man', 'k', '30 s');
select leasehold.set_policy('sum.man', expiry => 'manual');
select t.age('sum', 'k1', '1 hour'), t.age('sum', 'k2', '1 hour'), t.age('sum.man', 'k', '1 hour');
update leasehold.scope set reap_failures = 3 where namespace = 'sum' and key = 'k1';
select leasehold.join_queue('sum', 'k3', t.key(210)), leasehold.join_queue('sum', 'k3', t.key(211)), leasehold.join_queue('sum.only', 'k', t.key(212));
update leasehold.waiter set wait_until = clock_timestamp() where lease_key = t.key(211);
set role history_reader;
select results_eq($$select namespace::text collate "default", held, waiting, expired, failing from leasehold.lease_summary where namespace like 'sum%' order by 1$$,
                  $$values ('sum', 5::bigint, 1::bigint, 2::bigint, 1::bigint), ('sum.man', 1, 0, 0, 0), ('sum.only', 0, 1, 0, 0)$$,
                  'lease_summary counts what is held, waited for, expired and failing, for a reader too');
reset role;
select * from finish();
