-- Rules and tokens: what the functions write, what they refuse, and that daemons hear of each change.
select no_plan();
select leasehold.reap();
create role access_daemon login in role leasehold_coordinator;
create role access_admin login in role leasehold_admin;
create function pg_temp.version() returns bigint language sql volatile as 'select a.version from leasehold.access_state a';
create function pg_temp.rule(p_principal text, p_namespace text) returns text language sql volatile as
  $$ select array_to_string(r.rights, ' ') from leasehold.access_rule r where r.principal = p_principal and r.namespace = p_namespace $$;

-- rules
select pg_temp.version() as version \gset
select is(leasehold.access_grant('token:ci', 'jobs', 'read'), true, 'a right that is new');
select is(pg_temp.version(), :version::bigint + 1, 'daemons hear of it');
select is(leasehold.access_grant('token:ci', 'jobs', 'read'), false, 'one that is not');
select is(pg_temp.version(), :version::bigint + 1, 'and there is nothing to hear');
select is(leasehold.access_grant('token:ci', 'jobs', 'lease', 'admin', 'lease'), true, 'more rights');
select is(pg_temp.rule('token:ci', 'jobs'), 'admin lease read', 'go into the one rule, sorted');
select is(leasehold.access_grant('spiffe://example.org/*', '', 'guard'), true, 'the beginning of a principal, at the root');
select is(leasehold.access_revoke('token:ci', 'jobs', 'admin', 'guard'), true, 'a right is taken');
select is(pg_temp.rule('token:ci', 'jobs'), 'lease read', 'the others stay');
select is(leasehold.access_revoke('token:ci', 'jobs', 'guard'), false, 'one that it does not have is not');
select is(leasehold.access_revoke('token:ci', 'jobs'), true, 'without a right the whole rule goes');
select is(pg_temp.rule('token:ci', 'jobs'), null, 'it has gone');
select is(leasehold.access_revoke('token:ci', 'jobs'), false, 'only once');
select leasehold.access_grant('token:ci', 'jobs', 'read', 'lease'), leasehold.access_revoke('token:ci', 'jobs', 'lease', 'read');
select is(pg_temp.rule('token:ci', 'jobs'), null, 'with its last right a rule goes');
select is((select array_agg(r.principal || ' ' || r.namespace || ' ' || array_to_string(r.rights, ',')) from leasehold_internal.access_rules() r),
          array['spiffe://example.org/*  guard'], 'a daemon reads the rules');
select is(t.error_of(sql), error, sql)
  from (values ($$select leasehold.access_grant('', 'jobs', 'read')$$, 'LH002 invalid_argument principal'),
               ($$select leasehold.access_grant(null, 'jobs', 'read')$$, 'LH002 invalid_argument principal'),
               ($$select leasehold.access_grant(E'token:a\nb', 'jobs', 'read')$$, 'LH002 invalid_argument principal'),
               ($$select leasehold.access_grant(repeat('x', 1025), 'jobs', 'read')$$, 'LH002 invalid_argument principal'),
               ($$select leasehold.access_grant('token:*i', 'jobs', 'read')$$, 'LH002 invalid_argument principal'),
               ($$select leasehold.access_grant('token:**', 'jobs', 'read')$$, 'LH002 invalid_argument principal'),
               ($$select leasehold.access_grant('token:ci', 'a..b', 'read')$$, 'LH002 invalid_argument namespace'),
               ($$select leasehold.access_grant('token:ci', null, 'read')$$, 'LH002 invalid_argument namespace'),
               ($$select leasehold.access_grant('token:ci', 'jobs', 'write')$$, 'LH002 invalid_argument rights'),
               ($$select leasehold.access_grant('token:ci', 'jobs', 'read', null)$$, 'LH002 invalid_argument rights'),
               ($$select leasehold.access_grant('token:ci', 'jobs', variadic '{}')$$, 'LH002 invalid_argument rights'),
               ($$select leasehold.access_revoke('token:ci', 'jobs', 'write')$$, 'LH002 invalid_argument rights'),
               ($$select leasehold.token_create('CI')$$, 'LH002 invalid_argument name'),
               ($$select leasehold.token_create(repeat('x', 64))$$, 'LH002 invalid_argument name'),
               ($$select leasehold.token_create(E'ci\n')$$, 'LH002 invalid_argument name'),
               ($$select leasehold.token_create('ci', '0 s')$$, 'LH002 invalid_argument expires'),
               ($$select leasehold.token_create('ci', '1001 years')$$, 'LH002 invalid_argument expires'),
               ($$select leasehold.token_revoke(null)$$, 'LH002 invalid_argument name_or_id')) as bad (sql, error);

-- tokens
select pg_temp.version() as version \gset
select token, id, expires_at from leasehold.token_create('ci', '90 days') \gset first_
select token, id from leasehold.token_create('ci') \gset second_
select is(pg_temp.version(), :version::bigint + 2, 'daemons hear of tokens');
select matches(:'first_token'::text, '^lht_[A-Za-z0-9_-]{49}$', 'a token has its form');
select is(right(:'first_token'::text, 6),
          left(translate(encode(sha256(convert_to(left(:'first_token', 47), 'UTF8')), 'base64'), '+/', '-_'), 6), 'and its checksum');
select isnt(left(:'first_token'::text, 47), left(:'second_token'::text, 47), 'no two are the same');
select matches(:'first_id'::text, '^[a-z0-9]{8}$', 'an ID has its form');
select t.is_near(:'first_expires_at', clock_timestamp() + interval '90 days', 'it expires when it should');
select is((select count(*) from leasehold_internal.access_tokens() a where a.hash = sha256(convert_to(:'first_token', 'UTF8')) and a.id = :'first_id' and a.name = 'ci'),
          1::bigint, 'a daemon knows it by its hash');
select is((select count(*) from leasehold.access_token k where k::text like '%' || substr(:'first_token', 5, 43) || '%'), 0::bigint, 'the token is stored nowhere');
select is((select created_by from leasehold.access_token where id = :'first_id'), 'role:' || session_user, 'who made it');
update leasehold.access_token set expires_at = clock_timestamp() where id = :'second_id';
select is((select array_agg(a.id) from leasehold_internal.access_tokens() a), array[:'first_id'::text], 'one that has expired is not valid');
select leasehold_internal.token_used(array[:'first_id', 'unknown']);
select last_used_at as used from leasehold.access_token where id = :'first_id' \gset
select t.is_near(:'used', clock_timestamp(), 'when it was used');
select leasehold_internal.token_used(array[:'first_id']);
select is((select last_used_at from leasehold.access_token where id = :'first_id'), :'used', 'is written once a minute');
update leasehold.access_token set last_used_at = last_used_at - interval '61 s' where id = :'first_id';
select leasehold_internal.token_used(array[:'first_id']);
select t.is_near((select last_used_at from leasehold.access_token where id = :'first_id'), clock_timestamp(), 'and then again');
select is(leasehold.token_revoke(:'second_id'), 1::bigint, 'one is revoked by its ID');
select leasehold.token_create('ci'), leasehold.token_create('other');
select is(leasehold.token_revoke('ci'), 2::bigint, 'or all of a name');
select is((select array_agg(k.name) from leasehold.access_token k), array['other'], 'and nothing else');
select pg_temp.version() as version \gset
select is(leasehold.token_revoke('ci'), 0::bigint, 'there is none any more');
select is(pg_temp.version(), :version::bigint, 'and nothing to hear');

-- a daemon
select leasehold_internal.coordinator_register('11111111-1111-4111-8111-111111111111', 'h', 1, '0.1.0');
select is((select access_version from leasehold_internal.coordinator_tick('11111111-1111-4111-8111-111111111111', null) where namespace is null), pg_temp.version(),
          'its sign of life tells it the version');

-- the audit: everything above is in it, with who did it
select is((select array_agg(distinct a.principal) from leasehold.audit a), array['role:' || session_user], 'in SQL it is the role that is logged in');
select results_eq($$ select a.action, sum(a.count)::int from leasehold.audit a group by 1 order by 1 $$,
                  $$ values ('access_grant', 4), ('access_revoke', 3), ('token_create', 4), ('token_revoke', 3) $$, 'each change is in it, and nothing that changed nothing');
select is((select count(*) from leasehold.audit a where a.namespace = 'jobs' and a.reason = 'token:ci: admin, guard' and a.outcome = 'done'), 1::bigint, 'with what was changed');
select is((select count(*) from leasehold.audit a where a::text ~ 'lht_'), 0::bigint, 'no token is in it');
set session authorization access_admin;
select leasehold.access_grant('token:a', 'a', 'read');
set session authorization access_daemon;
select leasehold_internal.access_grant_by('token:boss', '192.0.2.7', 'token:b', 'b', array['read']);
select leasehold_internal.token_create_by('token:boss', '192.0.2.7', 'made', '1 day');
select leasehold_internal.token_revoke_by('token:boss', '192.0.2.7', 'made');
select leasehold_internal.access_revoke_by('token:boss', '192.0.2.7', 'token:b', 'b', '{}');
select leasehold_internal.audit_write('token:c', '192.0.2.8', 'denied', 'c', 'k', null, 'lease', 'refused', 3);
reset session authorization;
select is((select principal from leasehold.audit where namespace = 'a'), 'role:access_admin', 'an administrator in SQL');
select is((select array_agg(principal || ' ' || peer || ' ' || action order by at) from leasehold.audit where peer like '192%' and namespace <> 'c'),
          array['token:boss 192.0.2.7 access_grant', 'token:boss 192.0.2.7 token_create', 'token:boss 192.0.2.7 token_revoke', 'token:boss 192.0.2.7 access_revoke'],
          'what a daemon does is done by its caller');
select is((select row(principal, peer, action, key, token, reason, outcome, count)::text from leasehold.audit where namespace = 'c'),
          '(token:c,192.0.2.8,denied,k,,lease,refused,3)', 'a daemon writes down denials');
select is(t.error_of($$select leasehold_internal.access_grant_by('token:boss', null, 'token:b', 'b', '{}')$$), 'LH002 invalid_argument rights', 'programs are refused alike');
select is(t.error_of($$select leasehold_internal.token_create_by('token:boss', null, 'B', null)$$), 'LH002 invalid_argument name', 'programs are refused alike');
select * from finish();
