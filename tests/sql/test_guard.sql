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

-- it locks what it should: the row, against whoever ends a lease, and nothing against heartbeats
begin;
select leasehold.guard('g', 'a', :two_token);
select isnt(leasehold.heartbeat('g', 'a', t.key(2)), null, 'the guarding transaction may send heartbeats');
select is(leasehold.release_ok('g', 'a', t.key(2)), true, 'and may release what it guards');
commit;
select is((select state from leasehold.scope where namespace = 'g' and key = 'a'), 'free', 'released by its guard');
select * from finish();
