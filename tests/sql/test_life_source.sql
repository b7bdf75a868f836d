-- Where the schema reads which life of the database this is: each source grants, renews, ends and begins a new life; what cannot be read is refused
-- with words that help; no source is left without a jump of the tokens.
select no_plan();
select leasehold.reap();
create function pg_temp.token() returns bigint language sql as $$ select (leasehold.acquire('n', gen_random_uuid()::text, '30 s')).token $$;
create function pg_temp.jump() returns bigint language sql immutable as $$ select (2 ^ 24)::bigint $$;
create function pg_temp.id() returns bigint language sql as $$ select max(id) from leasehold.incarnation $$;
create function pg_temp.taken(p_key text) returns boolean language sql as
  $$ select t.rows_of(format('select * from leasehold.acquire(%L, %L, %L)', 'n', p_key, '30 s')) = 1 $$;
create function pg_temp.source() returns text language sql as $$ select source || ': ' || words from leasehold_internal.server_identity() $$;

select matches(pg_temp.source(), '^wal: timeline \d+, running since ', 'wal is the default');
select is((select timeline from leasehold_internal.server_identity()), ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint, 'and tells the timeline');
select is((select system_identifier from leasehold_internal.server_identity()), (select system_identifier from pg_control_system()), 'and the system');
-- Only the jump of a failover may follow from an update of the schema.
select is(leasehold_internal.epoch_for(),
          (select hashtextextended(system_identifier || '/' || 'leasehold.incarnation'::regclass::oid || '/'
                                   || ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint, 0) & 9223372036854775807 | 1 from pg_control_system()),
          'the mark of the jump is what it was');

-- A server that hides them all, from leasehold_owner too: as some services do.
create procedure pg_temp.hide(p_names text[]) language plpgsql as $$
declare
  v_name text;
begin
  foreach v_name in array p_names loop
    execute format('revoke execute on function %s from public', v_name);
  end loop;
end $$;
create function pg_temp.hidden(p_sql text) returns text[] language plpgsql as $$
declare
  v_state text;
  v_message text;
begin
  execute p_sql;
  return '{}';
exception when others then
  get stacked diagnostics v_state = returned_sqlstate, v_message = message_text;
  return array[v_state, v_message];
end $$;
call pg_temp.hide(array['pg_control_system()', 'pg_walfile_name(pg_lsn)', 'pg_current_wal_lsn()']);
select is((pg_temp.hidden('select leasehold_internal.server_identity()'))[1], 'LH008', 'what a server hides is told');
select matches((pg_temp.hidden('select leasehold_internal.server_identity()'))[2],
               '^the server does not tell which life of the database this is \(source wal\): permission denied for function pg_', 'with its name');
select matches((pg_temp.hidden('select leasehold_internal.server_identity()'))[2], 'grant leasehold_owner execute on that function, or choose another source by leasehold\.set_life_source\(\)$', 'and what helps');
select is(t.error_of($$select leasehold.acquire('n', 'hidden', '30 s')$$), '', 'leases are granted in the life that is known');
update leasehold.incarnation set postmaster_start = postmaster_start - interval '1 hour';
select matches(t.error_of($$select leasehold.acquire('n', 'hidden', '30 s')$$), '^42501 permission denied', 'none after a restart');
select matches((pg_temp.hidden($$select leasehold.set_life_source('wal')$$))[2], 'permission denied for function pg_', 'wal is refused');

-- epoch
select setval('leasehold.token', 1), setval('leasehold.ticket', 1);
select leasehold.set_life_source('epoch');
select matches(pg_temp.source(), '^epoch: epoch \d+, running since ', 'epoch does without');
select leasehold.reap();
select pg_temp.token() as first \gset
select cmp_ok(:first, '>=', pg_temp.jump(), 'the source is changed with a jump, for what the former one missed');
select leasehold.acquire('n', 'old', '30 s', lease_key => t.key(1)), leasehold.acquire('n', 'silent', '30 s', lease_key => t.key(2));
select isnt(leasehold.heartbeat('n', 'old', t.key(1)), null, 'a holder renews');
select pg_temp.id() as life \gset
select leasehold.reap();
select is(pg_temp.id(), :life::bigint, 'no new life begins by itself');
select cmp_ok(pg_temp.token() - :first, '<', pg_temp.jump(), 'nor do tokens jump');
select epoch from leasehold.life_source \gset
select is(extract(epoch from clock_timestamp())::bigint - :epoch::bigint between 0 and 300, true, 'the epoch is the second of its beginning');
-- An epoch that is ahead, as of another clock, and one that is far behind, as of a server that lost the last ones.
update leasehold.life_source set epoch = 5000000000;
select leasehold.bump_epoch();
select is((select epoch from leasehold.life_source), 5000000001::bigint, 'it only grows');
update leasehold.life_source set epoch = 7;
select leasehold.bump_epoch();
select cmp_ok((select epoch from leasehold.life_source), '>=', :epoch::bigint, 'also where the last one was lost');
-- A failover that lost the last tokens, and its call of bump_epoch().
select setval('leasehold.token', 1), setval('leasehold.ticket', 1);
select leasehold.bump_epoch();
select t.age('n', 'old', '1 hour'), t.age('n', 'silent', '1 hour');
select pg_temp.token() as lost \gset
select setval('leasehold.token', 1), setval('leasehold.ticket', 1);
select pg_temp.id() as life \gset
select leasehold.bump_epoch();
select isnt(pg_temp.id(), :life::bigint, 'bump_epoch begins a new life');
select is(pg_temp.taken('old'), false, 'in which nothing is taken over');
select is((select count(*) from leasehold.reap()), 0::bigint, 'nor reaped');
select isnt(leasehold.heartbeat('n', 'old', t.key(1)), null, 'a holder renews in it');
select cmp_ok(pg_temp.token(), '>', :lost::bigint, 'and tokens are above the lost ones');
update leasehold.incarnation set started_at = started_at - interval '32 s';
select is(pg_temp.taken('silent'), true, 'after one whole duration and grace the silent one is over');
-- A restart may be a failover that lost the last tokens.
select t.age('n', 'old', '1 hour');
select pg_temp.token() as lost \gset
select setval('leasehold.token', 1), setval('leasehold.ticket', 1), setval('leasehold.epoch_mark', 1);
update leasehold.incarnation set postmaster_start = postmaster_start - interval '1 hour';
select is(pg_temp.taken('old'), false, 'a restart is noticed with epoch too');
select leasehold.reap();
select isnt(leasehold.heartbeat('n', 'old', t.key(1)), null, 'so its holder renews');
select cmp_ok(pg_temp.token(), '>', :lost::bigint, 'and tokens jump with each start of the server');
select leasehold_internal.epoch_for() as mark \gset
select is((select last_value from leasehold.epoch_mark), :mark::bigint, 'once');
select isnt(:mark::bigint, (select hashtextextended('0/' || 'leasehold.incarnation'::regclass::oid || '/' || s.epoch, 0) & 9223372036854775807 | 1
                              from leasehold.life_source s), 'the start is a part of what it is made for');
update leasehold.incarnation set table_oid = (table_oid::bigint - 1)::oid;
select is((select is_same from leasehold_internal.life_facts()), false, 'a dump that was restored is noticed by the table');
select leasehold.reap();
select is(t.denied('leasehold_owner', 'select pg_control_system()'), true, 'all that without the right to what is hidden');
call pg_temp.hide(array['pg_postmaster_start_time()']);
select matches((pg_temp.hidden($$select leasehold.set_life_source('epoch')$$))[2],
               '\(source epoch\): permission denied for function pg_postmaster_start_time; grant leasehold_owner execute on that function, or ',
               'the start of the server is needed');
grant execute on function pg_control_system(), pg_walfile_name(pg_lsn), pg_current_wal_lsn(), pg_postmaster_start_time() to public;

-- Back to wal. Nobody called bump_epoch() after a failover that epoch did not see: the change makes up for it.
select pg_temp.token() as lost \gset
select setval('leasehold.token', 1), setval('leasehold.ticket', 1);
select leasehold.set_life_source('wal');
select cmp_ok(pg_temp.token(), '>', :lost::bigint, 'back to wal with a jump');
select matches(pg_temp.source(), '^wal: timeline ', 'it is wal again');

-- engine: nothing of the server's own is asked
call pg_temp.hide(array['pg_control_system()', 'pg_walfile_name(pg_lsn)', 'pg_current_wal_lsn()', 'pg_postmaster_start_time()']);
create schema engine;
grant usage, create on schema engine to leasehold_owner;
create table engine.state (life bigint, words text);
insert into engine.state values (7, 'a');
grant select on engine.state to leasehold_owner;
set role leasehold_owner;
create function engine.life() returns bigint language sql as 'select life from engine.state';
create function engine.words() returns text language sql as 'select words from engine.state';
create function engine.wrong() returns integer language sql as 'select 1';
create function engine.with_argument(i integer) returns bigint language sql as 'select 1::bigint';
reset role;
create function engine.of_another() returns bigint language sql as 'select 1::bigint';
create role life_owner;
alter function engine.of_another() owner to life_owner;
create temporary table refused (arguments text, field text, bound text);
insert into refused values
  ($$null$$, 'source', 'one of wal, epoch, engine'), ($$'lsn'$$, 'source', 'one of wal, epoch, engine'),
  ($$'wal', 'engine.life()'$$, 'function', 'null, for only engine has one'), ($$'engine'$$, 'function', 'a function that exists'),
  ($$'engine', 'engine.wrong()'$$, 'function', 'a function f() returns bigint or text'),
  ($$'engine', 'engine.with_argument(integer)'$$, 'function', 'a function f() returns bigint or text'),
  ($$'engine', 'engine.of_another()'$$, 'function', 'a function whose owner is a member of leasehold_owner');
select is(t.message_of(format('select leasehold.set_life_source(%s)', arguments)), format('invalid_argument: %s must be %s', field, bound), 'refused: ' || arguments) from refused;
create function pg_temp.story(p_function text, p_change text, p_timeline bigint) returns setof text language plpgsql as $$
declare
  v_id bigint;
  v_token bigint;
begin
  perform leasehold.set_life_source('engine', p_function::regprocedure);
  perform leasehold.reap();
  return next is((select i.source || i.timeline from leasehold_internal.server_identity() i), 'engine' || p_timeline, p_function || ' is asked');
  return next is((select is_same from leasehold_internal.life_facts()), true, p_function || ': it tells this life');
  perform leasehold.acquire('n', p_function, '30 s', lease_key => t.key(10));
  perform t.age('n', p_function, '1 hour');
  v_token := pg_temp.token();
  v_id := pg_temp.id();
  execute p_change;
  return next is((select is_same from leasehold_internal.life_facts()), false, p_function || ': and the next one');
  return next is(pg_temp.taken(p_function), false, p_function || ': not noticed yet, nothing is taken over');
  perform leasehold.reap();
  return next isnt(pg_temp.id(), v_id, p_function || ': the change is a new life');
  return next isnt(leasehold.heartbeat('n', p_function, t.key(10)), null, p_function || ': in which its holder renews');
  return next cmp_ok(pg_temp.token() - v_token, '>=', pg_temp.jump(), p_function || ': and tokens jump');
end $$;
select pg_temp.story('engine.life()', 'update engine.state set life = 8', 7);
select pg_temp.story('engine.words()', $$update engine.state set words = 'b'$$, 0);
select is((select not is_same from leasehold_internal.core_life()), true, 'the extension leaves an engine''s life to SQL');
insert into leasehold.guard_session (pid, transaction, seen_at) values (1, 'gone', now());
select lives_ok('select leasehold_internal.end_long_guards(''1 hour'')', 'and guards are looked after');
update engine.state set words = null;
select matches((pg_temp.hidden('select leasehold_internal.server_identity()'))[2], 'must return a text or a bigint of at least 1, and returned null', 'no answer is an error');
grant execute on function pg_control_system(), pg_walfile_name(pg_lsn), pg_current_wal_lsn(), pg_postmaster_start_time() to public;
select leasehold.set_life_source('epoch');
update engine.state set life = 0;
select matches(t.message_of($$select leasehold.set_life_source('engine', 'engine.life()')$$), 'must return a text or a bigint of at least 1, and returned 0', 'and a number below 1 is refused');
select is((select source from leasehold.life_source), 'epoch', 'and the source stays');
update engine.state set life = 9;
select leasehold.set_life_source('engine', 'engine.life()');
alter function engine.life() owner to life_owner;
select matches(t.message_of('select leasehold.reap()'), 'must be a function whose owner is a member of leasehold_owner', 'a function that got another owner is not run');
drop function engine.life();
select matches(t.message_of('select leasehold.reap()'), 'must be a function that exists', 'nor one that is gone');
select leasehold.set_life_source('wal');
select leasehold.reap();
select is(t.error_of($$select leasehold.acquire('n', 'end', '30 s')$$), '', 'wal serves again');
create role life_admin login in role leasehold_admin;
select is(t.denied('life_admin', $$select leasehold.set_life_source('epoch')$$), true, 'members of leasehold_admin do not choose the source');
select is(t.denied('life_admin', 'select leasehold_internal.server_identity()'), false, 'they read it');
drop schema engine cascade;
select * from finish();
