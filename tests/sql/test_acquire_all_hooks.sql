-- Hooks of several scopes that are acquired at once: all run in one transaction, in byte order; a veto vetoes all.
select no_plan();
select leasehold.set_policy('', grace => '1 s');
select t.enroll(t.key(901)), t.enroll(t.key(902));
create table t.ran (nr integer generated always as identity, event text, key text, transaction xid8 default pg_current_xact_id());
create table t.veto (event text, key text);
create function t.note(e leasehold.lease_event) returns void language plpgsql set search_path = pg_catalog as $$
begin
  insert into t.ran (event, key) values (e.event, e.key);
  if exists (select from t.veto v where v.event = e.event and v.key = e.key) then
    raise exception 'no % of %', e.event, e.key;
  end if;
end $$;
select leasehold.add_hook('h', e, 't.note(leasehold.lease_event)') from unnest(array['acquire', 'heartbeat', 'reap']) e;
create function t.all(p_lease integer, p_keys text[], p_ticket bigint default 0, p_ns text default 'h', p_hooks text default 'on', p_queue boolean default true) returns text
language sql as $$
  select set_config('leasehold.hooks', p_hooks, true);
  select concat_ws(' ', min(b.outcome), string_agg(p_keys[b.n], ' ' order by b.n), min(b.message))
    from leasehold_internal.acquire_all_one(t.key(901), null, array_fill(p_ns, array[cardinality(p_keys)]), p_keys, t.key(p_lease), 'w' || p_lease, '{}', 30000000,
           p_queue, null, p_ticket) b
$$;
create function t.ran() returns text language sql as $$
  with gone as (delete from t.ran returning *)
  select string_agg(event || ' ' || key, ', ' order by nr) from gone
$$;
create function t.stands(variadic p_keys text[]) returns text language sql as $$
  select string_agg(concat_ws(' ', k, s.state, right(s.lease_key::text, 3)::integer,
                              (select 'waits ' || string_agg(right(w.lease_key::text, 3)::integer::text, ' ' order by w.ticket)
                                 from leasehold.waiter w where w.namespace = 'h' and w.key = k)), '; ' order by k)
    from unnest(p_keys) k left join leasehold.scope s on s.namespace = 'h' and s.key = k
$$;
create function t.ticket(p_lease integer) returns bigint language sql as $$ select min(ticket) from leasehold.waiter where lease_key = t.key(p_lease) $$;

select is(t.all(1, array['b', 'B', 'a'], p_hooks => ''), 'hooked b 15000000', 'a call that runs no hooks is told the time of all of them');
select is((select count(*) from leasehold.scope where namespace = 'h'), 0::bigint, 'and nothing was done');
select is(t.all(1, array['b', 'B', 'a']), 'granted b B a', '');
select is((select count(distinct transaction) from t.ran), 1::bigint, 'in one transaction');
select is(t.ran(), 'acquire B, acquire a, acquire b', 'the hooks run in byte order');
select is(t.all(1, array['b', 'B', 'a']), 'renewed b B a', '');
select is(t.ran(), 'heartbeat B, heartbeat a, heartbeat b', 'a repeat renews');
insert into t.veto values ('acquire', 'd');
select is(t.all(2, array['c', 'd', 'e']), 'rejected d no acquire of d', 'a veto vetoes all');
select is(t.ran(), null, 'what the other hooks did goes with it');
select is(t.stands('c', 'd', 'e'), 'c; d; e', 'and nothing was done');
select is(t.all(3, array['c', 'a']), 'queued a', 'one that waits runs no hooks');
select is(t.ran(), null, '');
insert into t.veto values ('acquire', 'c');
select leasehold.release_ok('h', 'a', t.key(1));
select is(t.all(4, array['c']), 'queued c', '');
select is(t.all(3, array['c', 'a'], t.ticket(3)), 'rejected c no acquire of c', 'is rejected when its turn comes');
select is(t.stands('a', 'c'), 'a free; c free waits 4', 'and loses all its places');
delete from t.veto;

-- takeovers: each reaped in the same transaction, with its hooks
select is(t.all(5, array['x', 'y', 'z']), 'granted x y z', '');
select t.age('h', 'x', '1 hour'), t.age('h', 'z', '1 hour'), t.ran();
select is(t.all(6, array['z', 'y', 'x'], p_queue => false), 'held y', 'where it has to wait, nothing is reaped');
select is(t.ran(), null, '');
select t.age('h', 'y', '1 hour');
insert into t.veto values ('reap', 'y');
select is(t.all(6, array['z', 'y', 'x']), 'queued y no reap of y', 'a lease that cannot be reaped is in the way');
select is(t.ran(), 'reap x', 'those before it were reaped');
select is(t.stands('x', 'y', 'z'), 'x free waits 6; y held 5 waits 6; z held 5 waits 6', 'and have ended; nothing was taken over');
select is((select reap_failures from leasehold.scope where namespace = 'h' and key = 'y'), 1, 'the failure is written down');
delete from t.veto;
update leasehold.scope set next_try_at = clock_timestamp() - interval '1 s' where namespace = 'h' and key = 'y';
select is(t.all(6, array['z', 'y', 'x'], t.ticket(6), p_hooks => ''), 'hooked z 15000000', '');
select is(t.all(6, array['z', 'y', 'x'], t.ticket(6)), 'granted z y x', '');
select is(t.ran(), 'reap y, reap z, acquire x, acquire y, acquire z', 'each lease is reaped once, and then all are granted');
select is((select array_agg(array_to_string(ended_outcomes, ',') order by key) from leasehold.scope where namespace = 'h' and key in ('x', 'y', 'z')), array['expired', 'expired', 'expired'],
          'and has ended once');
insert into t.veto values ('acquire', 'z');
select t.age('h', k, '1 hour') from unnest(array['x', 'y', 'z']) k;
select is(t.all(7, array['x', 'y', 'z']), 'rejected z no acquire of z', 'where the grant is vetoed');
select is(t.stands('x', 'y', 'z'), 'x held 6; y held 6; z held 6', 'nothing was reaped either');
delete from t.veto;

-- a hook that ends another lease of the same request
create function t.end_other(e leasehold.lease_event) returns void language plpgsql set search_path = pg_catalog as $$
begin
  if e.key = 'n' then
    perform leasehold.release_ok('o', 'm', e.lease_key);
  end if;
end $$;
select leasehold.add_hook('o', 'acquire', 't.end_other(leasehold.lease_event)');
select is(t.all(8, array['m', 'n'], p_ns => 'o'), 'rejected m a hook has ended a lease that was acquired together with its own', 'all are held, or none');
select is((select count(*) from leasehold.scope where namespace = 'o'), 0::bigint, '');

-- in SQL the hooks run at once
select is((select count(*) from leasehold.acquire_all('{h,free}', '{s1,s2}', '30 s', lease_key => t.key(9))), 2::bigint, '');
select is(t.ran(), 'acquire s1', 'each namespace has its own');
insert into t.veto values ('acquire', 's3');
select is(t.message_of($$select leasehold.acquire_all('{free,h}', '{s4,s3}', '30 s')$$), 'hook_rejected: no acquire of s3', '');
select is((select count(*) from leasehold.scope where key = 's4'), 0::bigint, '');
select * from finish();
