-- Promise 8.
-- Hooks for SQL users: who may be one, when they run, what they see, and that a veto leaves nothing behind.
select no_plan();
select leasehold.reap();
create schema app;
grant usage on schema app to leasehold_owner;
alter default privileges in schema app grant all on tables to leasehold_owner;
create table app.seen (n bigint generated always as identity, by text, e leasehold.lease_event, held boolean);
create table app.order_of (n bigint generated always as identity, name text);
-- Notes what it sees, and fails where the key says so, after its writes.
create function app.note(e leasehold.lease_event) returns void language plpgsql as $$
begin
  insert into app.seen (by, e, held) select current_user, e, exists (select from leasehold.scope s where s.namespace = e.namespace and s.key = e.key and s.state = 'held' and s.token = e.token);
  if e.key like '%no-' || e.event || '%' then
    raise exception using errcode = 'UX001', message = 'not this ' || e.event;
  end if;
end $$;
create function app.root(e leasehold.lease_event) returns void language sql as $$ insert into app.order_of (name) values ('root') $$;
create function app.parent(e leasehold.lease_event) returns void language sql as $$ insert into app.order_of (name) values ('parent') $$;
create function app.parent2(e leasehold.lease_event) returns void language sql as $$ insert into app.order_of (name) values ('parent2') $$;
create function app.child(e leasehold.lease_event) returns void language sql as $$ insert into app.order_of (name) values ('child') $$;
create function app.wrong_argument(e text) returns void language sql as $$ $$;
create function app.wrong_result(e leasehold.lease_event) returns integer language sql as $$ select 1 $$;
create function app.many(e leasehold.lease_event) returns setof void language sql as $$ select $$;
create role hooks_stranger;
create role hooks_admin login in role leasehold_admin;
create role hooks_reader login in role leasehold_reader;
create role hooks_daemon login in role leasehold_coordinator;
create role hooks_client login in role leasehold_client;
create role hooks_owner login in role leasehold_owner;
grant all on schema app to hooks_stranger, hooks_admin, hooks_owner;
grant all on all tables in schema app to hooks_owner;
create function app.strange(e leasehold.lease_event) returns void language sql security definer as $$ select $$;
alter function app.strange owner to hooks_stranger;
create function app.unsafe(e leasehold.lease_event) returns void language sql as $$ insert into app.order_of (name) values (current_user) $$;
alter function app.unsafe owner to hooks_admin;
create function app.own(e leasehold.lease_event) returns void language sql as $$ insert into app.order_of (name) values (current_user) $$;
alter function app.own owner to hooks_owner;
create function app.safe(e leasehold.lease_event) returns void language sql security definer as $$ insert into app.order_of (name) values (current_user) $$;
alter function app.safe owner to hooks_owner;
create function t.add(p_namespace text, p_event text, p_name text) returns boolean language sql as $$
  select leasehold.add_hook(p_namespace, p_event, ('app.' || p_name || '(leasehold.lease_event)')::regprocedure)
$$;
create function t.remove(p_namespace text, p_event text, p_name text) returns boolean language sql as $$
  select leasehold.remove_hook(p_namespace, p_event, ('app.' || p_name || '(leasehold.lease_event)')::regprocedure)
$$;

-- who may be one
select is(t.error_of($$select t.add('h', 'expire', 'note')$$), 'LH002 invalid_argument event', 'an unknown event');
select is(t.error_of($$select t.add('h', null, 'note')$$), 'LH002 invalid_argument event', 'no event');
select is(t.error_of($$select t.add('h..i', 'reap', 'note')$$), 'LH002 invalid_argument namespace', 'a bad namespace');
select is(t.error_of($$select t.add(null, 'reap', 'note')$$), 'LH002 invalid_argument namespace', 'no namespace');
select is(t.error_of($$select leasehold.add_hook('h', 'reap', null)$$), 'LH002 invalid_argument function', 'no function');
select is(t.error_of($$select leasehold.add_hook('h', 'reap', 4294967290::oid::regprocedure)$$), 'LH002 invalid_argument function', 'a function that does not exist');
select is(t.error_of($$select leasehold.add_hook('h', 'reap', 'app.wrong_argument(text)')$$), 'LH002 invalid_argument function', 'another argument');
select is(t.error_of($$select t.add('h', 'reap', 'wrong_result')$$), 'LH002 invalid_argument function', 'another result');
select is(t.error_of($$select t.add('h', 'reap', 'many')$$), 'LH002 invalid_argument function', 'a set');
select is(t.error_of($$select t.add('h', 'reap', 'strange')$$), 'LH002 invalid_argument function', 'an owner who is no member of leasehold_owner');
select is(t.error_of($$select t.add('h', 'reap', 'unsafe')$$), 'LH002 invalid_argument function', 'nor is an administrator one');
select is((select count(*) from leasehold.hook), 0::bigint, 'none of them was written down');
select is(t.add('h', 'acquire', 'safe'), true, 'a function of a member is a hook');
select is(t.add('h', 'acquire', 'safe'), false, 'which it is only once');
select is(t.remove('h', 'acquire', 'safe'), true, 'until it is removed');
select is(t.remove('h', 'acquire', 'safe'), false, 'also only once');
select is((select array_agg(t.add('h', e, 'note')) from unnest(array['acquire', 'heartbeat', 'release_ok', 'release_fail', 'reap']) e), array[true, true, true, true, true], 'the five events');
select results_eq($$select namespace collate "default", event, function, function_name, position from leasehold.hook where event = 'reap'$$,
                  $$values ('h', 'reap', 'app.note(leasehold.lease_event)'::regprocedure, 'app.note(leasehold.lease_event)', 1::bigint)$$, 'the view shows it');

-- who may add, and read
select is(t.denied(r, $$select leasehold.add_hook('q', 'reap', 'app.safe(leasehold.lease_event)')$$), r <> 'hooks_owner', r || ': add_hook') from unnest(array['hooks_client', 'hooks_reader', 'hooks_daemon', 'hooks_admin', 'hooks_owner']) r;
select is(t.denied(r, $$select leasehold.remove_hook('q', 'reap', 'app.safe(leasehold.lease_event)')$$), r <> 'hooks_owner', r || ': remove_hook') from unnest(array['hooks_client', 'hooks_reader', 'hooks_daemon', 'hooks_admin', 'hooks_owner']) r;
select is(t.denied('hooks_reader', 'select * from leasehold.' || v), false, 'a reader reads ' || v) from unnest(array['hook', 'reap_failure']) v;
select is(t.denied('hooks_client', 'select * from leasehold.' || v), true, 'a client does not read ' || v) from unnest(array['hook', 'reap_failure']) v;
select is(t.denied('hooks_admin', $$insert into leasehold.registered_hook (namespace, event, function_name, added_at) values ('q', 'reap', 'x', now())$$), true, 'nobody writes the table');

-- what they see
select token as one, deadline as one_deadline from leasehold.acquire('h.c', 'a', '30 s', owner => 'w', lease_key => t.key(1), labels => '{"x": "y"}') \gset
select results_eq($$select (e).event, (e).namespace, (e).key, (e).lease_key, (e).token, (e).owner, (e).labels, (e).duration, (e).result, (e).error, held from app.seen where n = (select max(n) from app.seen)$$,
                  format($$values ('acquire', 'h.c', 'a', t.key(1), %s::bigint, 'w', '{"x": "y"}'::jsonb, '30 s'::interval, null::jsonb, null::text, true)$$, :one), 'acquire: the lease, held already');
select is((select (e).deadline from app.seen order by n desc limit 1), :'one_deadline'::timestamptz, 'with its deadline');
select leasehold.acquire('h.c', 'a', '40 s', owner => 'w2', lease_key => t.key(1));
select results_eq($$select (e).event, (e).token, (e).owner, (e).duration from app.seen order by n desc limit 1$$, format($$values ('heartbeat', %s::bigint, 'w2', '40 s'::interval)$$, :one), 'a repeated acquire is a heartbeat, with the new values');
select leasehold.heartbeat('h.c', 'a', t.key(1)) as beat \gset
select results_eq($$select (e).event, (e).deadline, held from app.seen order by n desc limit 1$$, format($$values ('heartbeat', %L::timestamptz, true)$$, :'beat'), 'heartbeat: the new deadline');
select leasehold.release_ok('h.c', 'a', t.key(1), '{"done": 1}');
select results_eq($$select (e).event, (e).token, (e).result, (e).error, held from app.seen order by n desc limit 1$$, format($$values ('release_ok', %s::bigint, '{"done": 1}'::jsonb, null::text, true)$$, :one), 'release_ok: the result, while it is still held');
select leasehold.acquire('h.c', 'a', '30 s', lease_key => t.key(2));
select leasehold.release_fail('h.c', 'a', t.key(2), 'broken');
select results_eq($$select (e).event, (e).result, (e).error from app.seen order by n desc limit 1$$, $$values ('release_fail', null::jsonb, 'broken')$$, 'release_fail: the error');
select token as two from leasehold.acquire('h.c', 'a', '30 s', owner => 'gone', lease_key => t.key(3)) \gset
select t.age('h.c', 'a', '1 hour');
select results_eq($$select outcome, token from leasehold.reap()$$, format($$values ('reaped', %s::bigint)$$, :two), 'an expired lease is reaped');
select results_eq($$select (e).event, (e).token, (e).owner, (e).lease_key, (e).error, (e).deadline < now(), held from app.seen order by n desc limit 1$$, format($$values ('reap', %s::bigint, 'gone', t.key(3), null::text, true, true)$$, :two), 'reap: the lease that ends');
select is((select count(*) from app.seen), 8::bigint, 'one event for each change');
select is(leasehold.heartbeat('h.c', 'a', t.key(3)), null, 'no hook for a lease that is lost');
select is(leasehold.release_ok('h.c', 'a', t.key(3)), false, 'nor for its release');
select is((select count(*) from app.seen), 8::bigint, 'they were not called');

-- a veto: LH005 with the hook's own words, and nothing is left
select t.footprint() as before \gset
select is(t.message_of($$select leasehold.acquire('h', 'no-acquire', '30 s', lease_key => t.key(11))$$), 'hook_rejected: not this acquire', 'acquire: the hook''s own words');
select is(t.error_of($$select leasehold.acquire('h', 'no-acquire', '30 s', lease_key => t.key(11))$$), 'LH005 hook_rejected', 'under our SQLSTATE');
select is(t.footprint(), :'before', 'nothing has changed');
select is((select count(*) from app.seen), 8::bigint, 'what the hook wrote is gone too');
create function t.vetoed(p_key text, p_sql text, p_message text) returns setof text language plpgsql as $$
declare
  v_before text := t.footprint();
begin
  return next is(t.message_of(p_sql), 'hook_rejected: ' || p_message, p_key || ': ' || p_message);
  return next is(t.footprint(), v_before, p_key || ': nothing has changed');
end $$;
select leasehold.acquire('h', 'no-heartbeat', '30 s', lease_key => t.key(12));
select t.vetoed('heartbeat', $$select leasehold.heartbeat('h', 'no-heartbeat', t.key(12))$$, 'not this heartbeat');
select t.vetoed('renewal', $$select leasehold.acquire('h', 'no-heartbeat', '30 s', lease_key => t.key(12))$$, 'not this heartbeat');
select is(leasehold.release_ok('h', 'no-heartbeat', t.key(12)), true, 'its release is another event');
select leasehold.acquire('h', 'no-release_ok', '30 s', lease_key => t.key(13));
select t.vetoed('release_ok', $$select leasehold.release_ok('h', 'no-release_ok', t.key(13))$$, 'not this release_ok');
select is(leasehold.release_fail('h', 'no-release_ok', t.key(13), 'then so'), true, 'and so is its failure');
select leasehold.acquire('h', 'no-release_fail', '30 s', lease_key => t.key(14));
select t.vetoed('release_fail', $$select leasehold.release_fail('h', 'no-release_fail', t.key(14), 'x')$$, 'not this release_fail');
select t.vetoed('force_release', $$select leasehold.force_release('h', 'no-reap', 'why')$$, 'not this reap') from leasehold.acquire('h', 'no-reap', '30 s', lease_key => t.key(15));
select results_eq($$select (e).event, (e).error from app.seen, leasehold.force_release('h', 'no-release_fail', 'the machine is gone') f where (e).key = f.key order by n desc limit 1$$, $$values ('acquire', null::text)$$, 'force_release');
select results_eq($$select (e).event, (e).error from app.seen order by n desc limit 1$$, $$values ('reap', 'the machine is gone')$$, 'force_release runs the hooks of reaping, with the reason');
-- the caller's own work before a veto can be kept behind a savepoint
begin;
insert into app.order_of (name) values ('mine');
select is(t.error_of($$select leasehold.acquire('h', 'no-acquire', '30 s')$$), 'LH005 hook_rejected', 'a veto behind a savepoint');
commit;
select is((select count(*) from app.order_of where name = 'mine'), 1::bigint, 'leaves the caller''s transaction as it was');

-- inherited, the parents' first
select t.add('o', 'acquire', 'parent'), t.add('o', 'acquire', 'parent2'), t.add('o.c', 'acquire', 'child'), t.add('', 'acquire', 'root');
truncate app.order_of;
select leasehold.acquire('o.c.d', 'k', '30 s');
select is((select array_agg(name order by n) from app.order_of), array['root', 'parent', 'parent2', 'child'], 'the parents'' hooks run first, of one namespace in the order in which they were added');
truncate app.order_of;
select leasehold.acquire('o', 'k', '30 s');
select is((select array_agg(name order by n) from app.order_of), array['root', 'parent', 'parent2'], 'a child''s hook is not the parent''s');
truncate app.order_of;
select leasehold.acquire('oo', 'k', '30 s');
select is((select array_agg(name order by n) from app.order_of), array['root'], 'oo is no child of o; the root''s hook is everybody''s');
select t.remove('', 'acquire', 'root'), t.remove('o', 'acquire', 'parent');
truncate app.order_of;
select leasehold.acquire('o.c', 'k', '30 s');
select is((select array_agg(name order by n) from app.order_of), array['parent2', 'child'], 'what was removed runs no more');

-- as whom
select t.add('r', 'acquire', 'safe');
truncate app.order_of;
set role hooks_client;
select leasehold.acquire('r', 'k', '30 s', lease_key => t.key(21));
reset role;
select is((select name from app.order_of), 'hooks_owner', 'a security definer hook has its owner''s rights, not the caller''s');
alter function app.safe(leasehold.lease_event) security invoker;
truncate app.order_of;
select leasehold.acquire('r', 'k1', '30 s');
select is((select name from app.order_of), 'leasehold_owner', 'any other those of leasehold_owner, which its own owner is a member of');
alter function app.safe(leasehold.lease_event) security definer;
revoke leasehold_owner from hooks_owner;
select is(t.message_of($$select leasehold.acquire('r', 'k2', '30 s')$$),
          'hook_rejected: the acquire hook app.safe(leasehold.lease_event) cannot be run: it must be a function whose owner is a member of leasehold_owner',
          'one whose owner is no member any more does not run');
grant leasehold_owner to hooks_owner;
select is(t.error_of($$select leasehold.acquire('r', 'k2', '30 s')$$), '', 'again as it was');
-- Looked at right before its call, for the first may change the second.
create function app.meddle(e leasehold.lease_event) returns void language plpgsql security definer as $$
begin
  alter function app.safe(leasehold.lease_event) owner to hooks_stranger;
end $$;
select t.add('', 'acquire', 'meddle');
select is(t.message_of($$select leasehold.acquire('r', 'k4', '30 s')$$),
          'hook_rejected: the acquire hook app.safe(leasehold.lease_event) cannot be run: it must be a function whose owner is a member of leasehold_owner',
          'nor one that the hook before it has given away');
select t.remove('', 'acquire', 'meddle');
drop function app.safe;
select is(t.error_of($$select leasehold.acquire('r', 'k3', '30 s')$$), 'LH005 hook_rejected', 'a hook that was dropped vetoes');
select is((select function from leasehold.hook where namespace = 'r'), null, 'the view shows that it is gone');
select is(leasehold.remove_hook_named('r', 'acquire', 'app.safe(leasehold.lease_event)'), true, 'it is removed by its name');
select is(t.error_of($$select leasehold.acquire('r', 'k3', '30 s')$$), '', 'then all is well');

select * from finish();
