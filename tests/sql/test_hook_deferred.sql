-- What a hook queues for the end of the transaction runs inside of the call, and never with the rights of the session; the caller's
-- own deferred triggers do not run with ours.
select no_plan();
select leasehold.reap();
create schema app;
grant usage on schema app to leasehold_owner;
alter default privileges in schema app grant all on tables to leasehold_owner;
create role deferred_client login in role leasehold_client;
create role deferred_owner login in role leasehold_owner;
grant all on schema app to deferred_client, deferred_owner;
create table app.ran (n bigint generated always as identity, what text, as_user text);
create table app.written (n integer);
create table app.chained (n integer);
grant all on all tables in schema app to deferred_owner, deferred_client;
create function app.note() returns trigger language plpgsql as $$
begin
  insert into app.ran (what, as_user) values (tg_table_name, current_user);
  if tg_table_name = 'written' then
    insert into app.chained values (new.n);
  end if;
  if new.n < 0 then
    raise exception 'not below 0';
  end if;
  return null;
end $$;
create constraint trigger written_note after insert on app.written deferrable initially deferred for each row execute function app.note();
create constraint trigger chained_note after insert on app.chained deferrable initially deferred for each row execute function app.note();
create function app.hook(e leasehold.lease_event) returns void language plpgsql as $$
begin
  insert into app.written values (case when e.key like 'bad%' then -1 else 1 end);
end $$;
create function app.slow_hook(e leasehold.lease_event) returns void language plpgsql as $$
begin
  -- As if it wanted to.
  set constraints all deferred;
  perform app.hook(e);
end $$;
create function app.cursor_hook(e leasehold.lease_event) returns void language plpgsql as $$
begin
  execute 'declare left_open cursor with hold for select 1';
end $$;
alter function app.hook owner to deferred_owner;
select leasehold.add_hook(ns, 'acquire', h) from (values ('d', 'app.hook(leasehold.lease_event)'::regprocedure), ('s', 'app.slow_hook(leasehold.lease_event)'),
  ('c', 'app.cursor_hook(leasehold.lease_event)')) v (ns, h);
select leasehold.add_hook('d', 'reap', 'app.hook(leasehold.lease_event)');

begin;
select leasehold.acquire('d', 'a', '30 s');
select results_eq('select what, as_user from app.ran order by n', $$values ('written', 'leasehold_owner'), ('chained', 'leasehold_owner')$$,
                  'deferred triggers, and what they queue, run inside of the call, as leasehold_owner');
commit;
select is((select count(*) from app.ran), 2::bigint, 'and nothing is left for the commit');
truncate app.ran;
begin;
select leasehold.acquire('s', 'a', '30 s');
select is((select count(*) from app.ran), 2::bigint, 'whatever mode the hook asks for');
commit;
select is((select count(*) from app.ran where as_user <> 'leasehold_owner'), 0::bigint, 'none as the session''s user');
select is(t.message_of($$select leasehold.acquire('d', 'bad', '30 s')$$), 'hook_rejected: not below 0', 'an error of such a trigger is the hook''s veto');
select is(t.message_of($$select leasehold.acquire('c', 'a', '30 s')$$), 'hook_rejected: a hook has left a cursor WITH HOLD open', 'a cursor that would be read at COMMIT is one too');
select is((select count(*) from pg_cursors where name = 'left_open'), 0::bigint, 'and is gone');

-- reaping, one by one and together
truncate app.ran;
select leasehold.release_fail(l.namespace, l.key, l.lease_key, 'x') from leasehold.lease l;
select leasehold.acquire('d', 'r' || n, '1 s', lease_key => t.key(n)) from generate_series(1, 3) n;
truncate app.ran;
select t.age('d', 'r' || n, '1 hour') from generate_series(1, 3) n;
begin;
select is((select array_agg(r order by r) from leasehold_internal.reap_together(null, 'd', array['r1', 'r2'], array(select token from leasehold.lease where key in ('r1', 'r2') order by key)) r),
          array(select token from leasehold.scope where key in ('r1', 'r2') order by key), 'two are reaped together');
select is((select count(*) from app.ran where as_user = 'leasehold_owner'), 4::bigint, 'the triggers of their hooks have run');
select is((select outcome from leasehold.reap()), 'reaped', 'the third alone');
select is((select count(*) from app.ran where as_user = 'leasehold_owner'), 6::bigint, 'and its triggers');
commit;
select is((select count(*) from app.ran), 6::bigint, 'none at the commit');

-- the caller's own
truncate app.ran;
set role deferred_client;
create table app.mine (n integer);
grant all on app.mine to public;
create constraint trigger mine_note after insert on app.mine deferrable initially deferred for each row execute function app.note();
begin;
insert into app.mine values (1);
select is((select count(*) from leasehold.acquire('d', 'b', '30 s')), 1::bigint, 'a client with a deferred trigger of its own');
reset role;
select is((select count(*) from app.ran where what = 'mine'), 0::bigint, 'which does not run in the call');
set role deferred_client;
insert into app.written values (5);
reset role;
select is((select count(*) from app.ran where what = 'written'), 1::bigint, 'what the hook has set is deferred again');
set role deferred_client;
commit;
reset role;
select is((select array_agg(as_user) from app.ran where what = 'mine'), array['deferred_client'], 'but at the commit, as the client');
-- A constraint of the same name elsewhere would be run with it.
set role deferred_client;
create constraint trigger written_note after insert on app.mine deferrable initially deferred for each row execute function app.note();
reset role;
select is(t.message_of($$select leasehold.acquire('d', 'e', '30 s')$$),
          'hook_rejected: a hook has changed a table with the deferrable constraint written_note on app.mine, which is not the only one of that name',
          'one of the same name is not run unseen');
drop trigger written_note on app.mine;

-- the settings of the hooks: everybody can set them
create table app.depth (n integer);
create function app.quiet(e leasehold.lease_event) returns void language sql as $$ select $$;
select leasehold.add_hook('q', 'reap', 'app.quiet(leasehold.lease_event)'), leasehold.add_hook('q', 'acquire', 'app.quiet(leasehold.lease_event)');
select token as q_token from leasehold.acquire('q', 'a', '1 s') \gset
select t.age('q', 'a', '1 hour');
set role deferred_client;
select set_config('leasehold.hook_tokens', ',' || :q_token || ',', false), set_config('leasehold.hooks', 'on', false);
select is((select count(*) from leasehold.acquire('q', 'a', '30 s')), 1::bigint, 'a client that says that the hooks run already fails nobody''s reap');
select set_config('leasehold.hook_tokens', repeat(',1,', 200), false);
select is((select count(*) from leasehold.acquire('q', 'b', '30 s')), 1::bigint, 'nor its own hooks');
reset role;
create function app.itself(e leasehold.lease_event) returns void language plpgsql as $$
begin
  perform leasehold.release_ok(e.namespace, e.key, e.lease_key);
end $$;
select leasehold.add_hook('i', 'release_ok', 'app.itself(leasehold.lease_event)');
select leasehold.acquire('i', 'a', '30 s', lease_key => t.key(50));
select is(t.message_of($$select leasehold.release_ok('i', 'a', t.key(50))$$), 'hook_rejected: hook_rejected: a hook of this lease is running already', 'a hook that ends its own lease is noticed as ever');

select * from finish();
