-- New scopes lock something of all namespaces until they are committed: a transaction of a client creates a limited number of them.
select no_plan();
select leasehold.reap();
create role maker login in role leasehold_client;

-- How many of these a client creates in one transaction until it is refused, and with what.
create function pg_temp.creates(p_sql text, p_most integer) returns text language plpgsql as $$
declare
  v_done integer := 0;
begin
  set local session authorization maker;
  begin
    for i in 1..p_most loop
      execute format(p_sql, i);
      v_done := i;
    end loop;
  exception when others then
    return v_done || ' ' || sqlstate;
  end;
  return v_done;
end
$$;
begin;
select is(pg_temp.creates($$select leasehold.acquire('make', 'k%s', '30 s')$$, 1001), '1000 LH004', 'a thousand new scopes, and no more');
reset session authorization;
rollback;
begin;
select is(pg_temp.creates($$select leasehold.join_queue('make', 'k%s', gen_random_uuid())$$, 1001), '1000 LH004', 'with join_queue too');
reset session authorization;
rollback;
begin;
select is(pg_temp.creates($$select leasehold.acquire_all('{make,make}', '{a%1$s,b%1$s}', '30 s')$$, 501),
          '500 LH004', 'and with several at once');
reset session authorization;
rollback;

-- savepoints do not help, for the transaction is counted
begin;
set local session authorization maker;
do $$ begin
  for i in 1..1000 loop
    begin
      perform leasehold.acquire('make', 'k' || i, '30 s');
    exception when division_by_zero then null;
    end;
  end loop;
end $$;
\set ON_ERROR_STOP off
\set VERBOSITY terse
select leasehold.acquire('make', 'more', '30 s');
\set ON_ERROR_STOP on
\set refusal :LAST_ERROR_SQLSTATE
rollback;
reset session authorization;
select is(:'refusal'::text, 'LH004', 'however many savepoints there were');

-- scopes that exist cost nothing of it, and each transaction counts for itself
set session authorization maker;
select leasehold.acquire('make', 'k' || i, '30 s', lease_key => lpad(i::text, 32, '0')::uuid) from generate_series(1, 999) i;
begin;
select leasehold.release_ok('make', 'k' || i, lpad(i::text, 32, '0')::uuid) from generate_series(1, 999) i;
select leasehold.acquire('make', 'k' || i, '30 s') from generate_series(1, 999) i;
select count(*) as held from leasehold.acquire('make', 'new', '30 s') \gset
commit;
reset session authorization;
select is(:held, 1, 'scopes that exist do not count');
select is((select count(*) from leasehold.creator), 1::bigint, 'what ended transactions created is forgotten');
select is((select count(*) from leasehold.acquire('make', 'm' || 1, '30 s')), 1::bigint, 'an administrator is not counted');
select is(t.rows_of($$select leasehold.acquire('make', 'n' || i, '30 s') from generate_series(1, 1100) i$$), 1100, 'nor bounded');
select * from finish();
