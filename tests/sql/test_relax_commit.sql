-- Renewals alone, and the place of one waiter, may be committed without waiting for the disk; nothing else may.
select no_plan();
create function pg_temp.commit() returns text language sql as $$ select current_setting('synchronous_commit') $$;
set synchronous_commit = on;

begin;
select leasehold_internal.relax_commit(true);
select is(pg_temp.commit(), 'off', 'renewals alone need not be on disk when they are answered');
commit;
select is(pg_temp.commit(), 'on', 'in that transaction only');

begin;
set local role leasehold_coordinator;
select leasehold_internal.relax_commit(true);
select is(pg_temp.commit(), 'off', 'a coordinator may say so: nothing else is its right');
commit;

begin;
select leasehold_internal.relax_commit(false);
select is(pg_temp.commit(), 'on', 'where one was lost, or busy, it is as it was');
select leasehold_internal.relax_commit(null);
select is(pg_temp.commit(), 'on', 'and where there were none');
commit;

begin;
set local leasehold.hooks = 'on';
select leasehold_internal.relax_commit(true);
select is(pg_temp.commit(), 'on', 'what a hook wrote with a renewal is on disk');
commit;

begin;
select leasehold_internal.relax_commit(true, 'standby1');
select is(pg_temp.commit(), 'on', 'where there are synchronous standbys a renewal waits for them: a primary that was cut off renews nothing');
commit;

begin;
select leasehold_internal.relax_commit(true);
select count(*) from leasehold.acquire('relaxed', 'k', '30 s');
select is(pg_temp.commit(), 'local', 'a grant in the same transaction is durable again');
commit;

-- The batch of a daemon asks for it by itself, when every lease of it was renewed.
select count(*) from leasehold.acquire('relaxed', 'a', '30 s', lease_key => t.key(1));
select count(*) from leasehold.acquire('relaxed', 'b', '30 s', lease_key => t.key(2));
select count(*) from leasehold.acquire('relaxed', 's', '30 s', lease_key => t.key(3), mode => 'shared');
create function pg_temp.beat(p_keys text[], p_numbers integer[], p_relax boolean default true) returns text language plpgsql as $$
declare
  v_outcomes text;
begin
  select string_agg(b.outcome, ' ' order by b.n)
    into v_outcomes
    from leasehold_internal.heartbeat_batch(array_fill('relaxed'::text, array[cardinality(p_keys)]), p_keys,
                                            array(select t.key(n) from unnest(p_numbers) with ordinality u (n, i) order by i), p_relax) b;
  return v_outcomes || ': ' || current_setting('synchronous_commit');
end $$;
select is(pg_temp.beat(array['a'], array[1]), 'ok: off', 'one lease');
select is(pg_temp.beat(array['a', 'b'], array[1, 2]), 'ok ok: off', 'several');
select is(pg_temp.beat(array['s'], array[3]), 'ok: off', 'a shared one');
select is(pg_temp.beat(array['a', 'b', 's'], array[1, 2, 3]), 'ok ok ok: off', 'both kinds');
select is(pg_temp.beat(array['a'], array[2]), 'lost: on', 'not where one is lost');
select is(pg_temp.beat(array['a', 'b'], array[1, 1]), 'ok lost: on', 'among several');
select is(pg_temp.beat(array['a'], array[1], false), 'ok: on', 'nor where the transaction does more');
select is(pg_temp.beat(array['a', 'b'], array[1, 2], false), 'ok ok: on', 'whatever it renews');
begin;
select leasehold.heartbeat('relaxed', 'a', t.key(1));
select is(pg_temp.commit(), 'on', 'a SQL user''s transaction waits for the disk');
commit;

-- So does that of a waiter, which asks again after a crash.
select leasehold_internal.coordinator_register('00000000-0000-0000-0000-00000000000a', 'h', 1, 't') is not null;
create function pg_temp.wait(p_number integer, p_key text default 'a', p_coordinator uuid default '00000000-0000-0000-0000-00000000000a') returns text
language plpgsql as $$
declare
  v_outcome text;
begin
  select a.outcome
    into v_outcome
    from leasehold_internal.acquire_items(p_coordinator, null, '{relaxed}', array[p_key], array[t.key(p_number)], '{w}', '{"{}"}', '{30000000}', '{t}',
                                          '{60000000}', '{0}') a;
  return v_outcome || ': ' || current_setting('synchronous_commit');
end $$;
select is(pg_temp.wait(11), 'queued: off', 'a place alone');
select is(pg_temp.wait(12), 'queued: off', 'another one');
select is(pg_temp.wait(12), 'queued: on', 'not one that is had already');
select is(pg_temp.wait(13, p_coordinator => null), 'queued: on', 'nor that of a caller who forgets it');
select is(pg_temp.wait(14, 'new'), 'granted: on', 'nor a grant');
begin;
select count(*) from leasehold.release_ok('relaxed', 'b', t.key(2));
select is(pg_temp.wait(15), 'queued: on', 'nor where the transaction has done more');
commit;
begin;
select is(pg_temp.wait(16), 'queued: off', 'what comes behind it in its transaction');
select count(*) from leasehold.release_ok('relaxed', 'new', t.key(14));
select is(pg_temp.commit(), 'local', 'is durable again');
commit;

select is(has_function_privilege('leasehold_client', 'leasehold_internal.relax_commit(boolean, text)', 'execute'), false, 'it is for coordinators');
select * from finish();
