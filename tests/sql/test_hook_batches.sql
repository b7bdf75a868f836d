-- Hooks in the batches of coordinators: left alone as hooked, then run one by one.
select no_plan();
select leasehold.reap();
create schema app;
grant usage on schema app to leasehold_owner;
alter default privileges in schema app grant all on tables to leasehold_owner;
create table app.seen (n bigint generated always as identity, e leasehold.lease_event);
create function app.note(e leasehold.lease_event) returns void language plpgsql as $$
begin
  insert into app.seen (e) select e;
  if e.key like '%no-' || e.event || '%' or e.owner = 'no-' || e.event then
    raise exception 'not this %', e.event;
  elsif e.key like '%slow%' then
    perform pg_sleep(20);
  end if;
end $$;
create function t.add(p_namespace text, p_event text) returns boolean language sql as $$
  select leasehold.add_hook(p_namespace, p_event, 'app.note(leasehold.lease_event)')
$$;
select t.add('all', e) from unnest(array['acquire', 'heartbeat', 'release_ok', 'release_fail', 'reap']) e;
select t.add('beat', 'heartbeat'), t.add('reap', 'reap'), t.add('ok', 'release_ok'), t.add('fail', 'release_fail');
select leasehold.set_policy('all', hook_timeout => '7 s');
\set c1 11111111-1111-4111-8111-111111111111
\set c2 22222222-2222-4222-8222-222222222222
select t.enroll(:'c1'), t.enroll(:'c2');
-- Items are 'namespace/key/number of the lease key'.
create function t.acquire(p_items text[], p_queue boolean default true, p_coordinator uuid default '11111111-1111-4111-8111-111111111111', p_owner text default 'o')
returns table (n integer, outcome text, message text, waiters_ahead integer, token bigint, expires_in_us bigint) language sql as $$
  select b.n, b.outcome, b.message, b.waiters_ahead, b.token, b.expires_in_us
    from (select array_agg(split_part(i, '/', 1) order by o) as ns, array_agg(split_part(i, '/', 2) order by o) as ks, array_agg(t.key(split_part(i, '/', 3)::integer) order by o) as ls, count(*)::integer as c
            from unnest(p_items) with ordinality u (i, o)) a,
         leasehold_internal.acquire_batch(p_coordinator, null, a.ns, a.ks, a.ls, array_fill(p_owner, array[a.c]), array_fill('{}'::text, array[a.c]), array_fill(30000000::bigint, array[a.c]),
                                 array_fill(p_queue, array[a.c]), array_fill(null::bigint, array[a.c]), array_fill(0::bigint, array[a.c])) b
   order by b.n
$$;
create function t.outcomes(p_items text[], p_queue boolean default true, p_coordinator uuid default '11111111-1111-4111-8111-111111111111') returns text[] language sql as $$
  select array_agg(a.outcome order by a.n) from t.acquire(p_items, p_queue, p_coordinator) a
$$;

-- left alone
select t.footprint() as before \gset
select results_eq($$select n, outcome, message from t.acquire(array['all/a/1', 'all/b/2'])$$, $$values (1, 'hooked', '7000000'), (2, 'hooked', '7000000')$$, 'what has a hook is left alone, with its time limit');
select is(t.footprint(), :'before', 'nothing has changed');
select is((select count(*) from app.seen), 0::bigint, 'and no hook was run');
select is(t.outcomes(array['all/a/1', 'none/a/1', 'beat/a/1', 'reap/a/1', 'ok/a/1', 'all/b..b/1', 'al..l/x/1']), array['hooked', 'granted', 'granted', 'granted', 'granted', 'hooked', 'invalid'], 'only that: a hook for another event does not matter');
select is(t.outcomes(array['none/a/1', 'beat/a/1', 'reap/a/1']), array['renewed', 'hooked', 'renewed'], 'a renewal is a heartbeat');
select is(t.outcomes(array['all/x/1', 'all/x/2', 'all/y/3', 'all/x/1', 'none/x/4']), array['hooked', 'hooked', 'hooked', 'hooked', 'granted'], 'nobody of the same scope overtakes one that is left alone');
select is((select count(*) from leasehold.waiter), 0::bigint, 'nor is queued before it');

-- run one by one
set leasehold.hooks = 'on';
select results_eq($$select outcome, (token > 0) from t.acquire(array['all/a/1'])$$, $$values ('granted', true)$$, 'with hooks on it is granted');
select results_eq($$select (e).event, (e).lease_key from app.seen$$, $$values ('acquire', t.key(1))$$, 'through its hook');
select results_eq($$select outcome, message from t.acquire(array['all/no-acquire/1'])$$, $$values ('rejected', 'not this acquire')$$, 'a veto is rejected, in the hook''s own words');
select is((select count(*) from leasehold.scope where key = 'no-acquire'), 0::bigint, 'and leaves nothing');
select is(t.outcomes(array['all/m1/1', 'all/no-acquire/1', 'none/m/1', 'all/m2/1']), array['granted', 'rejected', 'granted', 'granted'], 'several at once: each for itself');
reset leasehold.hooks;
select is(t.outcomes(array['all/a/2', 'all/a/1'], false), array['held', 'hooked'], 'who is refused needs no hook');
select is(t.outcomes(array['all/a/3']), array['queued'], 'nor who queues');

-- heartbeats and releases
create function t.beat(p_namespace text, p_key text, p_number integer) returns table (outcome text, message text, is_new boolean) language sql as $$
  select b.outcome, b.message, b.deadline > clock_timestamp() from leasehold_internal.heartbeat_batch(array[p_namespace], array[p_key], array[t.key(p_number)]) b
$$;
create function t.release(p_namespace text, p_key text, p_number integer, p_failed boolean) returns table (outcome text, message text, wake boolean) language sql as $$
  select b.outcome, b.message, b.wake from leasehold_internal.release_batch('11111111-1111-4111-8111-111111111111', array[p_namespace], array[p_key], array[t.key(p_number)], array[p_failed],
                                                         array[case when p_failed then 'broken' else '"fine"' end]) b
$$;
select t.footprint() as before \gset
select results_eq($$select * from t.beat('all', 'a', 1)$$, $$values ('hooked', '7000000', null::boolean)$$, 'a heartbeat is left alone');
select results_eq($$select * from t.release('all', 'a', 1, true)$$, $$values ('hooked', '7000000', false)$$, 'so is a release');
select is(t.footprint(), :'before', 'nothing has changed');
select results_eq($$select outcome from t.beat('all', 'a', 9)$$, $$values ('lost')$$, 'who has lost is told at once');
select results_eq($$select outcome from t.release('all', 'a', 9, false)$$, $$values ('lost')$$, 'in a release too');
select results_eq($$select outcome from t.release('ok', 'a', 1, true)$$, $$values ('ok')$$, 'a failure has another hook than a success');
select t.outcomes(array['fail/a/1']);
select results_eq($$select outcome from t.release('fail', 'a', 1, true)$$, $$values ('hooked')$$, 'and a success');
select results_eq($$select outcome from t.release('fail', 'a', 1, false)$$, $$values ('ok')$$, 'another than a failure');
set leasehold.hooks = 'on';
truncate app.seen;
select results_eq($$select * from t.beat('all', 'a', 1)$$, $$values ('ok', null, true)$$, 'with hooks on it is renewed');
select is((select (e).deadline from app.seen), (select deadline from leasehold.scope where namespace = 'all' and key = 'a'), 'the hook is told the new deadline');
update leasehold.scope set owner = 'no-heartbeat' where namespace = 'all' and key = 'a';
select t.footprint() as before \gset
select results_eq($$select * from t.beat('all', 'a', 1)$$, $$values ('rejected', 'not this heartbeat', null::boolean)$$, 'a veto');
select results_eq($$select outcome, message from t.acquire(array['all/a/1'], p_owner => 'no-heartbeat')$$, $$values ('rejected', 'not this heartbeat')$$, 'a renewal by acquire is vetoed by the same hook');
update leasehold.scope set owner = 'no-release_ok' where namespace = 'all' and key = 'a';
select results_eq($$select * from t.release('all', 'a', 1, false)$$, $$values ('rejected', 'not this release_ok', false)$$, 'so is a release');
update leasehold.scope set owner = 'no-heartbeat' where namespace = 'all' and key = 'a';
select is(t.footprint(), :'before', 'nothing has changed');
truncate app.seen;
select results_eq($$select * from t.release('all', 'a', 1, true)$$, $$values ('ok', null, true)$$, 'with hooks on it is released, and its first waiter woken');
select results_eq($$select (e).event, (e).error, (e).result from app.seen$$, $$values ('release_fail', 'broken', null::jsonb)$$, 'with its error');
select results_eq($$select outcome from t.acquire(array['all/a/3'])$$, $$values ('granted')$$, 'the waiter gets it');

-- a waiter whose acquire is vetoed: its place goes, the next is woken
select is(t.outcomes(array['all/q/1']), array['granted'], 'held');
select is(t.outcomes(array['all/q/2', 'all/q/3', 'all/q/4']), array['queued', 'queued', 'queued'], 'three wait');
select is((t.outcomes(array['all/q/5'], true, :'c2'))[1], 'queued', 'and one of another coordinator');
select 'it is ' || outcome from t.release('all', 'q', 1, false);
select results_eq($$select outcome, waiters_ahead from t.acquire(array['all/q/2'], p_owner => 'no-acquire')$$, $$values ('rejected', -1)$$, 'the next is this coordinator''s own: it is told to ask for it');
select is((select array_agg(lease_key order by ticket) from leasehold.waiter where key = 'q'), array[t.key(3), t.key(4), t.key(5)], 'the place is gone');
select is(t.outcomes(array['all/q/4', 'all/q/3']), array['queued', 'granted'], 'the order stays');
select 'it is ' || outcome from t.release('all', 'q', 3, false);
select leasehold_internal.leave_batch(:'c1', array['all'], array['q'], array[t.key(4)], array[false]);
select results_eq($$select outcome, waiters_ahead from t.acquire(array['all/q/6'], false)$$, $$values ('held', 1)$$, 'a newcomer waits its turn');
select results_eq($$select outcome, waiters_ahead from t.acquire(array['all/q/5'], p_coordinator => '22222222-2222-4222-8222-222222222222', p_owner => 'no-acquire')$$, $$values ('rejected', 0)$$, 'nobody is left to be woken');
select is((select state || queued from leasehold.scope where key = 'q'), 'freetrue', 'the scope stays free');
select is(t.outcomes(array['all/q/6']), array['granted'], 'for whoever comes');

-- a caller that went away in the moment of its grant
reset leasehold.hooks;
select leasehold.release_fail('all', 'q', t.key(6), 'x');
set leasehold.hooks = 'on';
select is(t.outcomes(array['all/went/1']), array['granted'], 'granted');
reset leasehold.hooks;
select t.footprint() as before \gset
select results_eq(format($$select outcome, duration_us from leasehold_internal.leave_batch(%L, array['all'], array['went'], array[t.key(1)], array[false])$$, :'c1'), $$values ('hooked', 7000000::bigint)$$, 'leaving ends the lease: left alone, with its limit');
select is(t.footprint(), :'before', 'nothing has changed');
set leasehold.hooks = 'on';
update leasehold.scope set owner = 'no-release_fail' where key = 'went';
select results_eq(format($$select outcome, wake from leasehold_internal.leave_batch(%L, array['all'], array['went'], array[t.key(1)], array[false])$$, :'c1'), $$values ('ok', false)$$, 'a veto');
select is((select state from leasehold.scope where key = 'went'), 'held', 'leaves it to its expiry');
update leasehold.scope set owner = 'o' where key = 'went';
truncate app.seen;
select 'it is ' || outcome from leasehold_internal.leave_batch(:'c1', array['all'], array['went'], array[t.key(1)], array[false]);
select results_eq($$select (e).event, (e).error from app.seen$$, $$values ('release_fail', 'the caller went away before it heard of the grant')$$, 'the hook of a failed release runs');
select results_eq($$select state, last_outcome from leasehold.scope where key = 'went'$$, $$values ('free', 'failed')$$, 'and the lease has ended so');

-- time limits
set statement_timeout = '200ms';
select results_eq($$select outcome, message from t.acquire(array['all/slow/1'])$$, $$values ('rejected', 'the hook ran over its limit of 0.2 s')$$, 'a daemon''s timeout is a veto');
reset statement_timeout;
select is((select count(*) from leasehold.scope where key = 'slow'), 0::bigint, 'that leaves nothing');
reset leasehold.hooks;

-- a hook that is added or removed acts at once
select is(t.outcomes(array['later/a/1']), array['granted'], 'no hook');
select t.add('later', 'heartbeat');
select results_eq($$select outcome from t.beat('later', 'a', 1)$$, $$values ('hooked')$$, 'now there is one');
select leasehold.remove_hook('later', 'heartbeat', 'app.note(leasehold.lease_event)');
select results_eq($$select outcome from t.beat('later', 'a', 1)$$, $$values ('ok')$$, 'now there is none');
select * from finish();
