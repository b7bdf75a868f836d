-- What daemons show to people: of the given namespaces alone, in pages that leave out nothing.
select no_plan();
select leasehold.acquire('a', 'k', '30 s', owner => 'o', lease_key => t.key(1));
select leasehold.acquire('a.b', 'k', '30 s', owner => 'p', lease_key => t.key(2));
select leasehold.acquire('ab', 'k', '30 s', owner => 'o', lease_key => t.key(3));
select leasehold.acquire('a_b', 'k', '30 s', lease_key => t.key(4));

select is((select array_agg(v.namespace order by v.namespace collate "C") from leasehold_internal.view_namespaces(array['a'], true, null, 10, null) v), array['a', 'a.b'],
  'a namespace and what is below it, not what begins alike');
select is((select array_agg(v.namespace) from leasehold_internal.view_namespaces(array['a'], false, null, 10, null) v), array['a'], 'it alone');
select is((select array_agg(v.namespace) from leasehold_internal.view_namespaces(array['a_'], true, null, 10, null) v), null, 'a name is no pattern');
select is((select count(*) from leasehold_internal.view_namespaces(array[''], true, null, 10, null)), 4::bigint, 'the root is everything');
select is((select count(*) from leasehold_internal.view_namespaces(array[]::text[], true, null, 10, null)), 0::bigint, 'no namespace is nothing');
select is((select array_agg(v.namespace) from leasehold_internal.view_namespaces(array[''], true, null, 2, 'a') v), array['a.b', 'a_b'], 'a page goes on behind the one before');

-- Of waiters; the key may be anything but have control characters.
select leasehold.join_queue('a', 'k', t.key(11));
update leasehold.waiter set owner = 'x' where lease_key = t.key(11);
select leasehold.join_queue('a', 'k', t.key(12));
update leasehold.waiter set owner = 'p' where lease_key = t.key(12);
select leasehold.join_queue('a.b', 'k', t.key(13));
update leasehold.waiter set owner = 'o' where lease_key = t.key(13);
select is((select count(*) from leasehold_internal.view_waits(array[''], true, null, 10, null)), 0::bigint,
  'a request of the same name as a holder is not the holder: both may be threads of one process');
select leasehold.acquire('a', '%_''"\', '30 s', lease_key => t.key(5));
select leasehold.join_queue('a', '%_''"\', t.key(14));
update leasehold.waiter set owner = 'y' where lease_key = t.key(14);
select is((select array_agg(v.owner) from leasehold_internal.view_queue(array['a'], false, 'k', 10, null) v), array['x', 'p'], 'a queue in its order');
select is((select array_agg(v.position) from leasehold_internal.view_queue(array['a'], false, 'k', 10, null) v), array['1', '2'], 'with places');
select is((select array_agg(v.owner) from leasehold_internal.view_queue(array['a'], true, null, 10, null) v), array['y', 'x', 'p', 'o'], 'of all below');
with recursive page as (
  select 1 as n, v.owner, v.after from leasehold_internal.view_queue(array['a'], true, null, 1, null) v
   union all
  select p.n + 1, v.owner, v.after from page p cross join lateral leasehold_internal.view_queue(array['a'], true, null, 1, p.after) v)
select is(array_agg(p.owner order by p.n), array['y', 'x', 'p', 'o'], 'in pages of one') from page p;

select is((select array_agg(v.position || v.owner) from leasehold_internal.view_queue(array['a'], false, 'k', 10, E'a\nk\n0\n7') v), array['8x', '9p'], 'places go on behind the page before');
select is((select array_agg(v.owner) from leasehold_internal.view_queue(array['a.b', 'a_b'], true, null, 10, null) v), array['o'], 'of some namespaces alone');

-- o holds a/k and wants a.b/k, whose holder p wants a/k: they wait for each other. The holder of ab/k is o too.
update leasehold.waiter set lease_key = t.key(2) where lease_key = t.key(12);
update leasehold.waiter set lease_key = t.key(1) where lease_key = t.key(13);
update leasehold.scope set lease_key = t.key(1) where lease_key = t.key(3);
select is((select array_agg(v.holds_namespace || '>' || v.wants_namespace) from leasehold_internal.view_waits(array[''], true, null, 10, null) v),
  array['a>a.b', 'a.b>a'], 'holders that wait, of what is waited for');
select is((select count(*) from leasehold_internal.view_waits(array['a'], true, null, 10, null)), 2::bigint, 'in the given namespaces');
select is((select count(*) from leasehold_internal.view_waits(array[''], true, 'k', 10, 'ab')), 3::bigint, 'from one scope on, also where nobody waits for that one');
select is((select array_agg(v.holds_namespace || '>' || v.wants_namespace) from leasehold_internal.view_waits(array[''], true, 'k', 10, 'a') v),
  array['a>a.b', 'a.b>a'], 'never what its waiters hold elsewhere');
select is((select count(*) from leasehold_internal.view_waits(array[''], true, 'k', 10, 'a_b')), 0::bigint, 'a scope of which nobody wants anything');

select leasehold.set_policy('a', history => true);
select leasehold.release_ok('a', 'k', t.key(1), '{"n": 1}');
select leasehold.leave_queue('a', 'k', t.key(11));
select leasehold.leave_queue('a', 'k', t.key(2));
select is((select array_agg(v.outcome || v.owner || v.result) from leasehold_internal.view_history(array['a'], false, 'k', 10, null) v), array['oko{"n": 1}'], 'a hold that has ended');
-- of namespaces, page by page: on several days, several at once, several of one scope
insert into leasehold.history (namespace, key, token, acquired_at, ended_at, outcome, owner, principal, mode, units)
select n, 'k', 900000 + d * 10 + i, clock_timestamp(), date_trunc('hour', clock_timestamp()) - d * interval '1 day', 'ok', 'o', 'anonymous', 'exclusive', 0
  from unnest(array['h', 'h.b', 'h-c', 'i']) n, unnest(array[0, 1, 3, 40, 3000, 6000]) d, generate_series(1, 2) i;
with recursive page as (
  select 1 as n, v.* from leasehold_internal.view_history(array['h'], true, null, 3, null) v
  union all
  select p.n + 1, v.*
    from (select distinct on (p.n) p.n, p.after from page p order by p.n, p.ended_at::bigint, p.namespace desc, p.key desc, p.token::bigint) p
   cross join lateral leasehold_internal.view_history(array['h'], true, null, 3, p.after) v)
select is((select array_agg(concat_ws(' ', p.namespace, p.token) order by p.n, p.ended_at::bigint desc, p.namespace, p.key, p.token::bigint desc) from page p),
          array(select concat_ws(' ', h.namespace, h.token) from leasehold.history h where h.namespace in ('h', 'h.b')
                 order by h.ended_at desc, h.namespace, h.key, h.token desc), 'the holds of namespaces, the newest first, none twice');
delete from leasehold.history where namespace in ('h', 'h.b', 'h-c', 'i');

-- The audit: rows of one instant, and one of long ago.
insert into leasehold.audit (at, principal, action, namespace, key, outcome, count)
select timestamptz '2026-01-01', 'p' || i, 'force_release', 'old', 'k', 'done', 1 from generate_series(1, 5) i;
with recursive page as (
  select 1 as n, v.principal, v.after from leasehold_internal.view_audit(array['old'], false, null, 1, null) v
   union all
  select p.n + 1, v.principal, v.after from page p cross join lateral leasehold_internal.view_audit(array['old'], false, null, 1, p.after) v)
select is(array_agg(p.principal order by p.n), array['p1', 'p2', 'p3', 'p4', 'p5'], 'the audit in pages of one') from page p;
select is((select v.action from leasehold_internal.view_audit(array[''], true, null, 1, null) v), 'policy_set', 'the newest first');

-- Many rows in one namespace, before the others: counts end at 10,000, and so does the page after some more.
insert into leasehold.scope (namespace, key, state, check_at) select '0', 'k' || i, 'free', now() from generate_series(1, 29900) i;
insert into leasehold.scope (namespace, key, state, lease_key, token, acquired_at, heartbeat_at, deadline, check_at, duration, grace, owner, principal)
select case when i <= 200 then '0' else '00' end, 'x' || i, 'held', gen_random_uuid(), i, now(), now(), now() + interval '1 hour', now() + interval '1 hour', '1 h', '1 s', 'many', 'p'
  from generate_series(1, 40200) i;
select is((select array_agg(concat_ws(' ', v.namespace, v.held, v.partial, v.after) order by v.after) from leasehold_internal.view_namespaces(array['00', 'a'], true, null, 10, null) v),
  array['00 10000 true 00', 'a 1 false a', 'a.b 1 false a.b'], 'a count ends');
select is((select array_agg(concat_ws(' ', v.namespace, v.after) order by v.after) from leasehold_internal.view_namespaces(array[''], true, null, 10, '0') v limit 1) [1], '00 00', 'the next one');
update leasehold.scope set namespace = '0' || (substr(key, 2)::integer / 10500)::text || 'x' where namespace = '00';
select is((select array_agg(concat_ws('|', v.namespace, v.after)) from leasehold_internal.view_namespaces(array[''], true, null, 10, null) v),
  array['00x|00x', '01x|01x', '02x|02x', '02x'], 'a page ends where it has looked at enough, and says where to go on');
select is((select min(v.namespace) from leasehold_internal.view_namespaces(array[''], true, null, 10, '02x') v), '03x', 'and goes on there');
insert into leasehold.waiter (namespace, key, ticket, lease_key, enqueued_at, owner, principal)
select 'crowd', 'k', 1000000 + i, gen_random_uuid(), clock_timestamp(), 'many', 'p' from generate_series(1, 20000) i;
select is((select count(*) from leasehold_internal.view_waits(array[''], true, null, 100, null) v where v.owner is null), 1::bigint, 'a graph of a part says so');

create role console_client in role leasehold_client;
create role console_reader in role leasehold_reader;
set role console_reader;
select throws_ok($$select * from leasehold_internal.view_audit(array[''], true, null, 10, null)$$, '42501', null, 'only daemons look by them');
reset role;
set role console_client;
select throws_ok($$select * from leasehold_internal.view_queue(array[''], true, null, 10, null)$$, '42501', null, 'not clients either');
reset role;

-- Where anybody has a priority, a place is that in which one is served, and the list stays in the order of coming.
select leasehold.set_policy('p', max_priority => 9, ageing => '1 day');
select is((select count(*) from leasehold.acquire('p', 'k', '1 h', lease_key => t.key(80))), 1::bigint, 'held');
select leasehold.join_queue('p', 'k', t.key(80 + n), priority => n % 3) from generate_series(1, 5) n;
update leasehold.waiter w set owner = 'w' || n from generate_series(1, 5) n where w.lease_key = t.key(80 + n);
select is((select string_agg(v.owner || ' ' || v.priority || ' ' || v.position, ', ' order by v.ticket) from leasehold_internal.view_queue(array['p'], false, 'k', 10, null) v),
          'w1 1 3, w2 2 1, w3 0 5, w4 1 4, w5 2 2', 'places by priority');
select is((select array_agg(v.owner) from leasehold_internal.view_queue(array['p'], false, 'k', 10, null) v), array['w1', 'w2', 'w3', 'w4', 'w5'], 'in the order of coming');
select is((select string_agg(v.owner || ' ' || v.position, ', ') from leasehold_internal.view_queue(
             array['p'], false, 'k', 2, (select v.after from leasehold_internal.view_queue(array['p'], false, 'k', 1, null) v)) v), 'w2 1, w3 5', 'on a further page too');
select * from finish();
