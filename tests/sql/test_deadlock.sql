-- leasehold.deadlock: who waits for whom around a circle, and the line of explain.
select no_plan();
select t.enroll('11111111-1111-4111-8111-111111111111');

-- An owner that queues: only a daemon's waiters have one.
create function t.waits(p_owner text, p_namespace text, p_key text, p_number integer, p_ttl interval default '1 day') returns void
language plpgsql
as $$
begin
  perform leasehold.join_queue(p_namespace, p_key, t.key(p_number), p_ttl);
  update leasehold.waiter set owner = p_owner where lease_key = t.key(p_number);
end
$$;

select leasehold.acquire('d', 'a', '30 s', owner => 'one', lease_key => t.key(1));
select leasehold.acquire('d', 'b', '30 s', owner => 'two', lease_key => t.key(2));
select leasehold.acquire('e', 'c', '30 s', owner => 'three', lease_key => t.key(3));
select is((select count(*) from leasehold.deadlock), 0::bigint, 'holders alone: no circle');

-- A chain is none.
select t.waits('one', 'd', 'b', 11);
select t.waits('two', 'e', 'c', 12);
select t.waits('one', 'd', 'a', 13);
select t.waits('bystander', 'd', 'a', 14);
select is((select count(*) from leasehold.deadlock), 0::bigint, 'one waits for two, and two for three: a chain; who waits for itself is left out');
select doesnt_match((select advice from leasehold.explain('d', 'b')), 'deadlock', 'explain says nothing of a chain');

-- Three make a circle, and who waits beside it is not of it.
select t.waits('three', 'd', 'a', 15);
select is((select string_agg(format('%s: %s/%s of %s', owner, namespace, key, held_by), ', ' order by owner) from leasehold.deadlock),
          'one: d/b of two, three: d/a of one, two: e/c of three', 'a circle of three, a row for each wait');
select is((select count(distinct circle) from leasehold.deadlock), 1::bigint, 'one circle');
select is((select count(*) from leasehold.deadlock where principal = 'role:' || session_user and held_by_principal = principal), 3::bigint, 'as proved');
select matches((select advice from leasehold.explain('d', key)), 'deadlock: .*leasehold.deadlock', 'explain says so of ' || key) from unnest(array['a', 'b']) key;
select matches((select advice from leasehold.explain('e', 'c')), 'deadlock: ', 'and of the third');

-- Another one has a number of its own; a shared holder is a holder.
select leasehold.acquire('s', 'p', '30 s', owner => 'four', lease_key => t.key(4), mode => 'shared');
select leasehold.acquire('s', 'p', '30 s', owner => 'six', lease_key => t.key(6), mode => 'shared');
select leasehold.acquire('s', 'q', '30 s', owner => 'five', lease_key => t.key(5));
select t.waits('four', 's', 'q', 16);
select t.waits('five', 's', 'p', 17);
select results_eq($$select count(*), count(distinct circle) from leasehold.deadlock$$, $$values (5::bigint, 2::bigint)$$, 'two circles');
select is((select string_agg(format('%s of %s', owner, held_by), ', ' order by owner) from leasehold.deadlock where namespace = 's'),
          'five of four, four of five', 'of two shared holders the one that waits, too');

-- The same name under another principal is somebody else.
update leasehold.waiter set principal = 'token:other' where lease_key = t.key(16);
select is((select count(*) from leasehold.deadlock where namespace = 's'), 0::bigint, 'who waits is not who holds');
update leasehold.waiter set principal = 'role:' || session_user where lease_key = t.key(16);
select is((select count(*) from leasehold.deadlock where namespace = 's'), 2::bigint, 'it is again');

-- A reader of one half sees no circle, and explain names nobody of the other.
select leasehold.access_grant('role:deadlock_reader', 'd', 'read');
create role deadlock_reader in role leasehold_reader;
set session authorization deadlock_reader;
select is((select count(*) from leasehold.deadlock), 0::bigint, 'who may read d alone does not see the circle through e');
select matches((select advice from leasehold.explain('d', 'a')), 'deadlock: ', 'but that there is one');
select doesnt_match((select advice from leasehold.explain('d', 'a')), 'three holds|e/c', 'without its names');
reset session authorization;
select leasehold.access_revoke('role:deadlock_reader', 'd');

-- It ends with a deadline, a wait, or a release.
select t.age('s', 'q', '31 s');
select is((select count(*) from leasehold.deadlock where namespace = 's'), 0::bigint, 'a holder past its deadline is part of none');
update leasehold.waiter set wait_until = clock_timestamp() - interval '1 s' where lease_key = t.key(12);
select is((select count(*) from leasehold.deadlock), 0::bigint, 'a wait that is over is part of none');
update leasehold.waiter set wait_until = null where lease_key = t.key(12);
select is((select count(*) from leasehold.deadlock), 3::bigint, 'without an end it is again');
select leasehold.release_ok('d', 'a', t.key(1));
select is((select count(*) from leasehold.deadlock), 0::bigint, 'a release breaks it');
select * from finish();
