-- Promise 5.
-- leasehold.guard: passes for the holder's token before the expiry, and for nothing else.
select no_plan();
select leasehold.reap();
create function pg_temp.guarded(p_key text, p_token bigint) returns text language sql as
  $$ select t.error_of(format('select leasehold.guard(%L, %L, %s)', 'g', p_key, p_token)) $$;

select * from leasehold.acquire('g', 'a', '30 s', lease_key => t.key(1)) \gset one_
select is(pg_temp.guarded('a', :one_token), '', 'the holder''s token passes');
select lives_ok(format('select leasehold.guard(namespace => %L, key => %L, token => %s)', 'g', 'a', :one_token), 'parameters have their names');
select is(pg_temp.guarded('a', :one_token - 1), 'LH001 lease_lost', 'an older token is lost');
select is(pg_temp.guarded('a', :one_token + 1), 'LH001 lease_lost', 'a token nobody has yet is lost');
select is(pg_temp.guarded('nobody', 1), 'LH001 lease_lost', 'an unknown scope is lost');
select is((select count(*) from leasehold.scope), 1::bigint, 'and gets no row');

select leasehold.heartbeat('g', 'a', t.key(1));
select is(pg_temp.guarded('a', :one_token), '', 'a heartbeat does not change what guards');

select t.age('g', 'a', '30.5 s');
select is(pg_temp.guarded('a', :one_token), '', 'within the grace it passes');
select t.age('g', 'a', '1 s');
select is(pg_temp.guarded('a', :one_token), 'LH001 lease_lost', 'past the expiry it is lost, though nobody reaped it');
select t.age('g', 'a', '-31.5 s');
select leasehold.release_ok('g', 'a', t.key(1));
select is(pg_temp.guarded('a', :one_token), 'LH001 lease_lost', 'after the release it is lost, though the row has that token still');
select * from leasehold.acquire('g', 'a', '30 s', lease_key => t.key(2)) \gset two_
select is(pg_temp.guarded('a', :one_token), 'LH001 lease_lost', 'a stale token is lost under the next holder');
select is(pg_temp.guarded('a', :two_token), '', 'whose own token passes');

select leasehold.set_policy('g.manual', expiry => 'manual');
select token as manual_token from leasehold.acquire('g.manual', 'a', '30 s', lease_key => t.key(3)) \gset
select t.age('g.manual', 'a', '1 hour');
select is(t.error_of(format('select leasehold.guard(%L, %L, %s)', 'g.manual', 'a', :manual_token)), '',
          'a manual lease does not expire, so its token passes');

-- Tokens are guessed easily: whose lease it is matters. A lease of a SQL user is its role's, and of the members of that.
create role guard_team;
create role guard_app login in role leasehold_client, guard_team;
create role guard_mate login in role leasehold_client, guard_app;
create role guard_thief login in role leasehold_client;
create schema guard_app;
create function guard_app.write(p_token bigint) returns void language sql security definer as $$ select leasehold.guard('g', 'own', p_token) $$;
grant usage on schema guard_app to public;
create function pg_temp.guarded_as(p_role text, p_sql text) returns text language plpgsql as $$
declare
  v_error text;
begin
  execute format('set local session authorization %I', p_role);
  v_error := t.error_of(p_sql);
  set local session authorization default;
  return split_part(v_error, ':', 1);
end $$;
set session authorization guard_app;
select token as own_token, lease_key as own_key from leasehold.acquire('g', 'own', '30 s', lease_key => t.key(20)) \gset
select token as team_token from leasehold.acquire('g', 'team', '30 s', lease_key => t.key(21), mode => 'shared') \gset
reset session authorization;
select leasehold_internal.coordinator_register(t.key(900), 'host', 1, '0.1.0');
select token as daemon_token
  from leasehold_internal.acquire_batch(t.key(900), null, '{g}', '{daemons}', array[t.key(22)], '{w}', '{"{}"}', '{30000000}', '{f}', '{null}', '{0}', '{role:somebody}') \gset
select is(pg_temp.guarded_as(r.role, format('select leasehold.guard(%L, %L, %s)', 'g', r.key, r.token)), r.want, r.role || ' guards ' || r.key)
  from (values ('guard_app', 'own', :own_token, ''), ('guard_mate', 'own', :own_token, ''), ('postgres', 'own', :own_token, ''),
               ('guard_thief', 'own', :own_token, 'LH007 access_denied'), ('guard_thief', 'own', :own_token - 1, 'LH001 lease_lost'),
               ('guard_thief', 'team', :team_token, 'LH007 access_denied'), ('guard_app', 'team', :team_token, ''),
               ('guard_thief', 'daemons', :daemon_token, '')) as r (role, key, token, want);
select is(pg_temp.guarded_as('guard_app', format('select guard_app.write(%s)', :own_token)), '', 'a function of another role guards for its caller');
select is(pg_temp.guarded_as('guard_thief', format('select guard_app.write(%s)', :own_token)), 'LH007 access_denied', 'not for another caller');
select is(pg_temp.guarded_as('guard_thief', format('select leasehold.guard(%L, %L, %s, %L)', 'g', 'own', :own_token, :'own_key')), '', 'with the lease key anybody guards it');
select is(pg_temp.guarded_as('guard_app', format('select leasehold.guard(%L, %L, %s, %L)', 'g', 'own', :own_token, t.key(99))), 'LH001 lease_lost', 'with another one nobody');
select is(pg_temp.guarded_as('guard_thief', format('select leasehold.guard(%L, %L, %s, lease_key => %L)', 'g', 'team', :team_token, t.key(21))), '', 'a shared lease too');
select leasehold.access_grant('role:guard_thief', 'g', 'guard');
select is(pg_temp.guarded_as('guard_thief', format('select leasehold.guard(%L, %L, %s)', 'g', 'own', :own_token)), '', 'once rules name roles, the right is what counts');
select leasehold.access_revoke('role:guard_thief', 'g');

-- With the right lease, and not guard, a role guards what it acquired; by a token that it guessed nothing else, whoever acquired that.
select leasehold.access_grant('role:guard_thief', 'g', 'lease'), leasehold.access_grant('role:guard_app', 'g', 'lease'),
       leasehold.access_grant('role:guard_mate', 'g', 'guard');
select is(pg_temp.guarded_as(r.role, format('select leasehold.guard(%L, %L, %s, %L)', 'g', r.key, r.token, r.lease_key)), r.want,
          format('with its rights %s guards %s with %s', r.role, r.key, coalesce('the lease key ' || r.lease_key, 'no lease key')))
  from (values ('guard_app', 'own', :own_token, null, ''), ('guard_app', 'team', :team_token, null, ''),
               ('guard_app', 'daemons', :daemon_token, null, 'LH007 access_denied'), ('guard_app', 'daemons', :daemon_token, t.key(22), ''),
               ('guard_app', 'daemons', :daemon_token, t.key(99), 'LH001 lease_lost'),
               ('guard_app', 'daemons', :daemon_token - 1, null, 'LH001 lease_lost'),
               ('guard_thief', 'own', :own_token, null, 'LH007 access_denied'), ('guard_thief', 'own', :own_token, :'own_key'::uuid, ''),
               ('guard_thief', 'daemons', :daemon_token, null, 'LH007 access_denied'), ('guard_thief', 'daemons', :daemon_token, t.key(22), ''),
               ('guard_mate', 'daemons', :daemon_token, null, ''),
               ('postgres', 'daemons', :daemon_token, null, '')) as r (role, key, token, lease_key, want);
select leasehold.access_revoke('role:guard_mate', 'g');
select is(pg_temp.guarded_as('guard_thief', format('select leasehold.guard(%L, %L, %s, %L)', 'h', 'x', 1, t.key(1))), 'LH007 access_denied',
          'without either right nobody guards, with a lease key or not');
select leasehold.access_revoke('role:guard_thief', 'g'), leasehold.access_revoke('role:guard_app', 'g');

-- it locks what it should: the row, against whoever ends a lease, and nothing against heartbeats
begin;
select leasehold.guard('g', 'a', :two_token);
select isnt(leasehold.heartbeat('g', 'a', t.key(2)), null, 'the guarding transaction may send heartbeats');
select is(leasehold.release_ok('g', 'a', t.key(2)), true, 'and may release what it guards');
commit;
select is((select state from leasehold.scope where namespace = 'g' and key = 'a'), 'free', 'released by its guard');
select * from finish();
