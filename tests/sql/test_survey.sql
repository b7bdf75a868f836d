-- What wakes somebody: how it stands in each namespace, as daemons measure it.
select no_plan();
select leasehold.reap();
create function pg_temp.standing(p_max integer default 50) returns table (namespace text, counts text, oldest text, wait text) language sql as $$
  select n.namespace, concat_ws(' ', n.overdue, n.silent, n.held_too_long, n.expired), round(n.oldest_hold_us / 1e6 / 60)::text, round(n.longest_wait_us / 1e6 / 60)::text
    from leasehold_internal.survey_namespaces(p_max) n
$$;
select is((select count(*) from pg_temp.standing()), 0::bigint, 'nothing is held: no row');

select leasehold.set_policy('s', max_hold => '10 min'), leasehold.set_policy('s.manual', expiry => 'manual'), leasehold.set_policy('s.long', max_hold => '2 h'), leasehold.set_policy('s.quick', dead_after => '1 min');
select leasehold.acquire(n, k, '1 h') from unnest(array['s.ok', 's.manual', 's.late', 's.quick', 's.held', 's.long', 's.long.below', 'sx']) n, unnest(array['a', 'b']) k;
select leasehold.acquire('s.shared', 'k', '1 h', lease_key => t.key(n), mode => 'shared') from generate_series(1, 3) n;
-- no limit of holds: nobody is held too long; past the deadline: one that expires, one that never does by itself; silent; held too long, where the policy says 10 min and where it says 2 h
select t.age('s.late', 'a', '2 h'), t.age('s.manual', 'a', '2 h'), t.age('s.quick', 'a', '5 min');
update leasehold.scope set acquired_at = acquired_at - interval '1 h' where namespace in ('s.held', 's.long', 'sx') and key = 'a';
update leasehold.scope set acquired_at = acquired_at - interval '3 h' where namespace = 's.long.below' and key = 'a';
update leasehold.share set acquired_at = acquired_at - interval '1 h' where lease_key = t.key(2);
update leasehold.incarnation set started_at = started_at - interval '1 day';
select leasehold.join_queue('s.ok', 'a', t.key(20)), leasehold.join_queue('s.only', 'a', t.key(21));
update leasehold.waiter set enqueued_at = enqueued_at - interval '30 min' where lease_key = t.key(20);
select results_eq($$select namespace::text collate "default", counts, oldest, wait from pg_temp.standing() order by namespace collate "C"$$,
  $$values ('s.held', '0 0 1 0', '60', '0'), ('s.late', '0 0 1 1', '120', '0'), ('s.long', '0 0 0 0', '60', '0'), ('s.long.below', '0 0 1 0', '180', '0'),
           ('s.manual', '1 1 1 0', '120', '0'), ('s.ok', '0 0 0 0', '0', '30'), ('s.only', '0 0 0 0', '0', '0'), ('s.quick', '0 1 0 0', '5', '0'), ('s.shared', '0 0 1 0', '60', '0'),
           ('sx', '0 0 0 0', '60', '0')$$,
  'overdue, silent, held too long, expired; the oldest hold and the longest wait in minutes, by namespace');
select results_eq($$select namespace::text collate "default", counts from pg_temp.standing(2) order by namespace collate "C" nulls last$$,
  $$values ('s.late', '0 0 1 1'), ('s.manual', '1 1 1 0'), (null, '0 1 3 0')$$, 'of more than are wanted the worst, and the others together');
select results_eq('select * from pg_temp.standing(0)', $$values (null::text, '1 2 5 1', '180', '30')$$, 'of none all together');
-- what liveness says is what is counted
select is((select count(*) from leasehold.lease where liveness = 'suspected_dead'), (select sum(silent)::bigint from leasehold_internal.survey_namespaces(50)), 'silent are those that are suspected dead');
select is((select count(*) from leasehold.lease where liveness = 'expired'), (select sum(expired)::bigint from leasehold_internal.survey_namespaces(50)), 'expired are those that the view calls so');
-- and what the states of a lease say, by which it is listed
select results_eq($$select s::text collate "default", count(*) from leasehold.lease l cross join unnest(l.states) s group by s order by 1$$,
  $$select * from (select unnest(array['expired', 'held_too_long', 'overdue', 'silent']),
                          unnest(array[sum(n.expired), sum(n.held_too_long), sum(n.overdue), sum(n.silent)])::bigint
                     from leasehold_internal.survey_namespaces(50) n) x order by 1$$, 'the states of leases are what is counted');
create function pg_temp.listed(p_namespace text, p_state text, p_longer_than interval default null, p_page integer default 1, p_look_at integer default null) returns text[] language sql as $$
  with recursive page as (
    select 1 as n, l.* from leasehold_internal.list_leases(p_namespace, true, p_page, null, null, null, null, p_look_at, null, p_state, leasehold_internal.to_us(p_longer_than)) l
    union all
    select p.n + 1, l.*
      from (select distinct on (p.n) p.* from page p order by p.n, p.namespace desc, p.key desc, p.token desc) p
     cross join lateral leasehold_internal.list_leases(p_namespace, true, p_page, p.namespace, p.key, null, null, p_look_at,
                                                       case when p.mode = 'shared' then p.token end, p_state, leasehold_internal.to_us(p_longer_than)) l)
  select array_agg(concat_ws('/', namespace, key, token)::text order by n, namespace, key, token) from page where token is not null
$$;
create function pg_temp.viewed(p_state text, p_longer_than interval default null) returns text[] language sql as $$
  select array_agg(concat_ws('/', namespace, key, token)::text order by namespace, key, token)
    from leasehold.lease
   where (p_state is null or p_state = any (states)) and (p_longer_than is null or held >= p_longer_than)
$$;
select is(pg_temp.listed('', s, p_look_at => n), pg_temp.viewed(s), format('page by page those of the view: %s, looking at %s', s, n))
  from unnest(array['expired', 'held_too_long', 'overdue', 'silent', null]) s, unnest(array[1, 2, null]) n where s is not null or n is null;
select is(pg_temp.listed('', s, '50 min'), pg_temp.viewed(s, '50 min'), format('and of those what is held for long: %s', s))
  from unnest(array['held_too_long', 'overdue', null]) s;
select is(pg_temp.listed('s.long', 'held_too_long'), array(select concat_ws('/', namespace, key, token)::text from leasehold.lease where namespace = 's.long.below' and key = 'a'),
  'of a namespace alone, each by its own policy');
select is(cardinality(pg_temp.listed('s.shared', 'held_too_long')), 1, 'of several holders the one');
select is((select keeping from leasehold_internal.findings()), null, 'nothing is wrong with the partitions');
update leasehold.keeping set error = 'why', failing_since = '2026-01-02 03:04Z' where name = 'audit';
select is((select keeping from leasehold_internal.findings()), 'the partitions of leasehold.audit cannot be looked after since 2026-01-02 03:04 UTC: why', 'or it is told');
select * from finish();
