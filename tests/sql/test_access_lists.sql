-- Rules and tokens a page at a time, as daemons ask for them.
select no_plan();
create function pg_temp.rules(p_limit integer, p_principal text, p_namespace text) returns text language sql volatile as
  $$ select string_agg(l.principal || '/' || l.namespace, ' ' order by n)
       from leasehold_internal.access_list(p_limit, p_principal, p_namespace) with ordinality as l (principal, namespace, r, a, b, n) $$;
create function pg_temp.tokens(p_limit integer, p_name text, p_id text) returns text language sql volatile as
  $$ select string_agg(l.name, ' ' order by n)
       from leasehold_internal.token_list(p_limit, p_name, p_id) with ordinality as l (id, name, c, b, e, u, n) $$;

-- rules: by bytes, whatever the database's collation
select is(pg_temp.rules(10, null, null), null, 'no rules');
select leasehold.access_grant(p, n, 'read') from unnest(array['b', 'B', 'a', '*']) p, unnest(array['', 'y', 'Y']) n;
select is(pg_temp.rules(20, null, null), '*/ */Y */y B/ B/Y B/y a/ a/Y a/y b/ b/Y b/y', 'all of them');
select is(pg_temp.rules(2, null, null), '*/ */Y', 'the first page');
select is(pg_temp.rules(2, '*', 'Y'), '*/y B/', 'the next one');
select is(pg_temp.rules(2, 'b', 'Y'), 'b/y', 'the last one');
select is(pg_temp.rules(2, 'b', 'y'), null, 'nothing behind it');
select is(pg_temp.rules(2, 'a', 'Z'), 'a/y b/', 'from a rule that is gone');

-- tokens
select is(pg_temp.tokens(10, null, null), null, 'no tokens');
select leasehold.token_create(n, '1 ms') from unnest(array['b', 'a', 'b', 'a.b']) n;
select is(pg_temp.tokens(10, null, null), 'a a.b b b', 'all of them, those that have expired too');
select id as first from leasehold.access_token where name = 'b' order by id collate "C" limit 1 \gset
select is(pg_temp.tokens(1, 'a', 'zzzzzzzz'), 'a.b', 'a page');
select is(pg_temp.tokens(2, 'b', :'first'), 'b', 'two of one name stand apart');
select is((select count(*) from leasehold_internal.token_list(10, null, null) l where l::text like '%lht_%'), 0::bigint, 'no secrets');
select * from finish();
