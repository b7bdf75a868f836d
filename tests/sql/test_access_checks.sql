-- What a role may do once a rule names one: each right, each function, in its own namespace, below it, and elsewhere.
select no_plan();
select leasehold.reap();
create role rights_team;
create role rights_app login in role leasehold_client, rights_team;
create role rights_other login in role leasehold_client;
create role rights_reader login in role leasehold_reader;
create role rights_admin login in role leasehold_admin;
create role rights_daemon login in role leasehold_coordinator;

-- What a role that is logged in gets: the value, or the SQLSTATE.
create function pg_temp.as_role(p_role text, p_sql text) returns text language plpgsql as $$
declare
  v_value text;
begin
  execute format('set local session authorization %I', p_role);
  execute p_sql into v_value;
  reset session authorization;
  return v_value;
exception when others then
  return sqlstate;
end
$$;
create function t.no_rules() returns void language sql as $$ delete from leasehold.access_rule; select leasehold_internal.access_changed(); $$;
create temp table place (namespace text, is_own boolean);
insert into place values ('own', true), ('own.child', true), ('own.child.a%b_c', true), ('owner', false), ('own_', false), ('foreign', false), ('foreign.own', false);
create temp table api (name text, needs text, sql text);
insert into api values
  ('acquire', 'lease', $$select 'done' from leasehold.acquire(%1$L, 'new', '30 s', lease_key => t.key(9))$$), ('heartbeat', 'lease', $$select leasehold.heartbeat(%1$L, 'new', t.key(9)) is not null$$),
  ('release_ok', 'lease', $$select leasehold.release_ok(%1$L, 'none', t.key(9))$$), ('release_fail', 'lease', $$select leasehold.release_fail(%1$L, 'none', t.key(9), 'no')$$),
  ('end_reason', 'lease', $$select leasehold.end_reason(%1$L, 'none', t.key(9)) is not null$$),
  ('join_queue', 'lease', $$select q.position from leasehold.join_queue(%1$L, 'held', t.key(8)) q$$), ('leave_queue', 'lease', $$select leasehold.leave_queue(%1$L, 'held', t.key(8))$$),
  ('acquire_all', 'lease', $$select 'done' from leasehold.acquire_all(array[%1$L, %1$L], array['new 1', 'new 2'], '30 s', lease_key => t.key(9)) limit 1$$),
  ('guard', 'guard', $$select leasehold.guard(%1$L, 'held', %2$s)$$), ('explain', 'read', $$select e.holder from leasehold.explain(%1$L, 'held') e$$);
select leasehold.acquire(namespace, 'held', '1 hour', owner => 'w', lease_key => t.key(1)) from place;
create function pg_temp.call(p_role text, p_name text, p_namespace text) returns text language sql volatile as $$
  select pg_temp.as_role(p_role, format(a.sql, p_namespace, s.token)) from api a, leasehold.scope s
   where a.name = p_name and s.namespace = p_namespace and s.key = 'held' $$;
create function pg_temp.sees(p_role text) returns text[] language plpgsql volatile as $$
declare
  v text[];
begin
  execute format('set local session authorization %I', p_role);
  select array_agg(distinct l.namespace order by l.namespace) into v from leasehold.lease l;
  reset session authorization;
  return coalesce(v, '{}');
end $$;
create function pg_temp.own() returns text[] language sql as $$ select array_agg(namespace order by namespace) from place where is_own $$;

-- as long as no rule names a role nothing changes, and guard() asks who acquired the lease (test_guard)
select leasehold.access_grant('token:ci', 'foreign', 'lease'), leasehold.access_grant('*', 'nowhere', 'read'), leasehold.access_grant('spiffe://role:/*', '', 'read'),
       leasehold.access_grant('role', '', 'read'), leasehold.access_grant('rolf', '', 'read');
select isnt(pg_temp.call('rights_app', a.name, p.namespace), 'LH007', format('no rule names a role: %s in %s', a.name, p.namespace))
  from api a, place p where a.name <> 'guard';
select is(pg_temp.call('rights_app', 'guard', p.namespace), 'LH007', format('no rule names a role: a guard of another role''s lease in %s', p.namespace)) from place p;
select is(cardinality(pg_temp.sees('rights_app')), 7, 'no rule names a role: a client sees all leases');
select is(pg_temp.as_role('rights_app', 'select count(token) from leasehold.lease'), '0', 'without tokens');
select t.no_rules();

-- each right alone, by a group that the role is a member of; and what is not below the namespace
create function pg_temp.only(p_right text) returns void language plpgsql as $$
begin
  perform t.no_rules();
  perform leasehold.access_grant('role:rights_team', 'own', p_right);
end $$;
create function pg_temp.check_right(p_right text) returns setof text language plpgsql as $$
begin
  perform pg_temp.only(p_right);
  return query
    select is(pg_temp.call('rights_app', a.name, p.namespace) = 'LH007',
              not (p.is_own and a.needs = any (case p_right when 'admin' then array['admin', 'read', 'lease'] else array[p_right] end)),
              format('with the right %s: %s in %s', p_right, a.name, p.namespace))
      from api a, place p order by p.namespace, a.name;
  return next is(pg_temp.sees('rights_app'), case when p_right in ('read', 'admin') then pg_temp.own() else '{}' end, format('with the right %s: the view', p_right));
end $$;
select pg_temp.check_right(r) from unnest(array['read', 'lease', 'guard', 'admin']) r;
select is(pg_temp.call('rights_other', a.name, 'own'), 'LH007', 'another role may not: ' || a.name) from api a;
select is(pg_temp.sees('rights_other'), '{}', 'nor see anything');

-- several scopes at once, of which some are foreign: the first that is denied is named, and nothing is done
create function pg_temp.words(p_role text, p_sql text) returns text language plpgsql as $$
begin
  execute format('set local session authorization %I', p_role);
  execute p_sql;
  reset session authorization;
  return 'done';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end
$$;
select pg_temp.only('lease');
select matches(pg_temp.words('rights_app', $$select from leasehold.acquire_all('{own,own_,foreign,own.child}', '{mixed,mixed,mixed,mixed}', '30 s')$$), '^LH007 .* in own_ or above$',
               'of several namespaces the first that is denied is named');
select matches(pg_temp.words('rights_app', $$select from leasehold.acquire_all('{own,foreign}', '{mixed,held}', '1 century', modes => '{x}')$$), '^LH007 ',
               'before anything else is looked at');
select matches(pg_temp.words('rights_app', $$select from leasehold.acquire_all('{own,null}', '{mixed,held}', '30 s')$$), '^LH', 'no namespace is none that it may use');
select is((select count(*) from leasehold.scope where key = 'mixed') + (select count(*) from leasehold.waiter where key in ('mixed', 'held')), 0::bigint, 'nothing is left behind');

-- how a rule names a role
create temp table named (principal text, is_app boolean);
insert into named values ('role:rights_app', true), ('role:rights_*', true), ('role:*', true), ('role:rights_team*', true), ('role:leasehold_client', true), ('role:rights_ap', false),
  ('role:rights_apps', false), ('role:rights_appx*', false), ('role:nobody', false), ('role:', false), ('role:rights_app' || repeat('x', 60), false), ('role:RIGHTS_APP', false);
create function pg_temp.check_name(p_principal text, p_is_app boolean) returns text language plpgsql as $$
begin
  perform t.no_rules();
  perform leasehold.access_grant(p_principal, 'own', 'read');
  return is(pg_temp.call('rights_app', 'explain', 'own') <> 'LH007', p_is_app, p_principal || ' is meant: ' || p_is_app);
end $$;
select pg_temp.check_name(principal, is_app) from named;
-- a name of 63 bytes is not one that begins with them
create role rights_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx login in role leasehold_client;
select t.no_rules();
select leasehold.access_grant('role:' || rpad('rights_', 63, 'x') || 'x', 'own', 'read');
select is(pg_temp.call(rpad('rights_', 63, 'x'), 'explain', 'own'), 'LH007', 'a longer name is another');
-- with a rule that names some role, * is everybody, and so is the beginning of role:
select t.no_rules();
select leasehold.access_grant('role:nobody', 'own', 'read'), leasehold.access_grant('*', 'own', 'read'), leasehold.access_grant('ro*', 'own.child', 'lease');
select is(pg_temp.call('rights_app', 'explain', 'own'), 'w', '* is everybody');
select is(pg_temp.call('rights_app', 'leave_queue', 'own.child'), 'false', 'and so is ro*');
select is(pg_temp.call('rights_app', 'leave_queue', 'own'), 'LH007', 'where it says so');

-- above the rules; SET ROLE changes nothing
select pg_temp.only('guard');
select isnt(pg_temp.call('rights_admin', a.name, 'foreign'), 'LH007', 'an administrator may: ' || a.name) from api a;
select isnt(pg_temp.call(session_user, a.name, 'foreign'), 'LH007', 'a superuser may: ' || a.name) from api a;
select is(cardinality(pg_temp.sees(r::text)), 7, r || ' sees everything') from unnest(array['rights_admin', 'rights_daemon', session_user]) r;
grant rights_team to rights_other;
grant rights_app to rights_other;
revoke rights_team from rights_other;
select pg_temp.only('read');
select is(pg_temp.call('rights_other', 'explain', 'own'), 'w', 'a membership counts through another');
create role rights_free login noinherit in role leasehold_client, rights_team;
set session authorization rights_free;
set role leasehold_client;
select holder from leasehold.explain('own', 'held') \gset
select count(*) as shown from leasehold.lease where key = 'held' \gset
reset role;
reset session authorization;
select is(:'holder'::text, 'w', 'after SET ROLE it is who is logged in');
select is(:shown, 3, 'in the views, too');

-- what people read: rows of what may be read, with their tokens; no names or numbers of anything else
insert into leasehold.policy (namespace, grace) values ('own', '1 s'), ('own.child', '2 s'), ('foreign', '3 s'), ('own_', '1 s');
update leasehold.policy set history = true where namespace = '';
insert into leasehold.history (namespace, key, token, acquired_at, ended_at, outcome) select namespace, 'old', 1, clock_timestamp(), clock_timestamp(), 'ok' from place;
insert into leasehold.waiter (namespace, key, ticket, lease_key, enqueued_at, wait_until) select namespace, 'held', nextval('leasehold.ticket'), t.key(7), clock_timestamp(), clock_timestamp() + interval '1 hour' from place;
insert into leasehold.watch (coordinator, namespace, include_children, added_at) select t.key(5), namespace, true, clock_timestamp() from place;
insert into leasehold.registered_hook (namespace, event, function_name, added_at) select namespace, 'reap', 't.none', clock_timestamp() from place;
update leasehold.scope set reap_failures = 1, lapsed = true where key = 'held';
insert into leasehold.audit (at, principal, action, namespace, outcome, count) select clock_timestamp(), 'token:a', 'denied', namespace, 'refused', 1 from place;
grant rights_team to rights_reader;
create temp table shown (name text);
insert into shown values ('lease'), ('queue'), ('lease_summary'), ('effective_policy'), ('history'), ('hook'), ('reap_failure'), ('watch'), ('audit');
create function pg_temp.names(p_role text, p_view text) returns text[] language plpgsql volatile as $$
declare
  v text[];
begin
  execute format('set local session authorization %I', p_role);
  execute format('select array_agg(distinct namespace collate "C" order by namespace collate "C") from leasehold.%I where namespace <> ''''', p_view) into v;
  reset session authorization;
  return v;
end $$;
select is(pg_temp.names('rights_reader', name), pg_temp.own(), 'a reader sees its own namespaces in ' || name) from shown;
select is(pg_temp.as_role('rights_reader', 'select string_agg(namespace, '','' order by namespace) from leasehold.policy'), ',own,own.child', 'and the policies that are in force there');
select is(pg_temp.names('rights_admin', name) @> array['foreign', 'foreign.own', 'own_', 'owner'], true, 'an administrator sees all in ' || name) from shown;
select is(pg_temp.as_role('rights_app', 'select count(token) from leasehold.lease where key = ''held'''), '3', 'with their tokens');
select is(pg_temp.as_role('rights_app', $$select token is not null from leasehold.explain('own', 'held')$$), 'true', 'here too');
select is(pg_temp.as_role('rights_app', 'select count(lease_key) from leasehold.lease'), '0', 'not with lease keys');
select is(pg_temp.as_role('rights_app', 'select grace from leasehold.lease where namespace = ''own.child'' and key = ''held'''),
          (select grace::text from leasehold.scope where namespace = 'own.child' and key = 'held'), 'and their facts as they are');
select pg_temp.only('guard');
select is(pg_temp.names('rights_reader', name), null, 'without the right to read there is nothing in ' || name) from shown;
select is(pg_temp.as_role('rights_reader', 'select count(*) from leasehold.policy'), '0', 'nor a policy');
select leasehold.access_grant('role:leasehold_reader', '', 'read');
select is(cardinality(pg_temp.names('rights_reader', name)) >= 7, true, 'a rule for all readers shows them everything in ' || name) from shown;

-- nor by functions and operators of the reader's own
select pg_temp.only('read');
create schema rights_trick authorization rights_app;
set session authorization rights_app;
create table rights_trick.seen (namespace text, key text);
create function rights_trick.leak(p_namespace text, p_key text) returns boolean language plpgsql cost 0.0000001 as $$
begin
  insert into rights_trick.seen values (p_namespace, p_key);
  return true;
end $$;
create function rights_trick.pg_has_role(name, text) returns boolean language sql as 'select true';
create function rights_trick.pg_has_role(text, text) returns boolean language sql as 'select true';
create function rights_trick.array_to_string(text[], text) returns text language sql as $$ select '' $$;
create function rights_trick.starts_with(text, text) returns boolean language sql as 'select true';
create operator rights_trick.|| (leftarg = text, rightarg = text, function = pg_catalog.textcat);
set search_path = rights_trick, pg_catalog;
select count(*) as shown, count(lease_key) as keys from leasehold.lease where rights_trick.leak(namespace, key) and key = 'held' \gset
select pg_catalog.array_agg(distinct namespace order by namespace) as seen from rights_trick.seen \gset
reset search_path;
reset session authorization;
select is(:shown, 3, 'the view shows no more to who has functions of the same names');
select is(:keys, 0, 'no lease keys');
select is(:'seen'::text[], pg_temp.own(), 'and a function in its WHERE sees nothing else');
select t.no_rules();
set session authorization rights_app;
set search_path = rights_trick, pg_catalog;
select count(token) as tokens from leasehold.lease \gset
reset search_path;
reset session authorization;
select is(:tokens, 0, 'nor does it show tokens of others, where no rule names a role');

-- the error has words, and no context but the function's own
select pg_temp.only('read');
create function pg_temp.words(p_sql text) returns text language plpgsql as $$
declare
  v_context text;
begin
  set local session authorization rights_app;
  execute p_sql;
  return '';
exception when others then
  get stacked diagnostics v_context = pg_exception_context;
  return sqlerrm || ' / ' || regexp_replace(split_part(v_context, E'\n', 1), '\d+ at', 'n at');
end $$;
select is(pg_temp.words($$select leasehold.acquire('own', 'k', '30 s')$$),
          'access_denied: role:rights_app needs the right lease in own or above / PL/pgSQL function leasehold.acquire(text,text,interval,text,uuid,jsonb,text,integer,interval,integer) line n at RAISE', 'the error says what is missing');
select is(pg_temp.as_role('rights_app', $$select leasehold.acquire('a..b', 'k', '30 s')$$), 'LH002', 'what is no namespace is an invalid argument');
select is(pg_temp.as_role('rights_app', $$select leasehold.acquire(null, 'k', '30 s')$$), 'LH002', 'nor is null');
-- A pattern of roles has no index: where sequential scans are off, its plan would be compiled for each call.
select ok((select p.proconfig @> array['enable_seqscan=off', 'jit=off'] from pg_proc p where p.oid = 'leasehold_internal.session_may(text, text)'::regprocedure),
          'a check of rights is not compiled');
select * from finish();
