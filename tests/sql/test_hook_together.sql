-- reap_together(): several leases of a namespace through their hooks, all or nothing.
select no_plan();
select leasehold.reap();
create schema app;
grant usage on schema app to leasehold_owner;
alter default privileges in schema app grant all on tables to leasehold_owner;
create table app.reaped (n bigint generated always as identity, e leasehold.lease_event, path text, others bigint);
create function app.put_back(e leasehold.lease_event) returns void language plpgsql as $$
begin
  insert into app.reaped (e, path, others)
  select e, current_setting('search_path'), (select count(*) from leasehold.scope s where s.state = 'held' and s.namespace = e.namespace);
  if e.key like 'bad%' then
    raise exception 'the work of % cannot be put back', e.key;
  elsif e.key like 'fickle%' then
    set local search_path = app;
    set local enable_seqscan = off;
  elsif e.key like 'thief%' then
    perform leasehold.force_release('r', 'victim', 'because');
  elsif e.key like 'taker%' then
    perform leasehold.acquire('r', 'victim', '30 s', owner => 'taker');
  elsif e.key like 'user%' then
    perform leasehold.acquire('elsewhere', e.key, '30 s', owner => 'user');
  end if;
end $$;
create function app.second(e leasehold.lease_event) returns void language plpgsql as $$
begin
  insert into app.reaped (e, path) select e, current_setting('search_path');
end $$;
select leasehold.add_hook('r', 'reap', 'app.put_back(leasehold.lease_event)');
create function t.dead(p_keys text[]) returns void language plpgsql as $$
begin
  perform leasehold.acquire('r', k, '30 s', owner => 'gone', lease_key => t.key(1)), t.age('r', k, '1 hour') from unnest(p_keys) k;
end $$;
-- The keys of those that were reaped, in the answer's order.
create function t.together(p_keys text[], p_stranger text default '-') returns text[] language plpgsql as $$
begin
  return array(
    select s.key collate "default"
      from leasehold_internal.reap_together(null, 'r', p_keys, array(
             select coalesce((select x.token + (k = p_stranger)::integer * 1000 from leasehold.scope x where x.namespace = 'r' and x.key = k), 0)
               from unnest(p_keys) with ordinality as u (k, n) order by n)) with ordinality as r (token, n)
      join leasehold.scope s on s.token = r.token
     order by r.n);
end $$;
create function t.clear() returns void language sql as $$
  delete from leasehold.waiter; delete from leasehold.scope; delete from app.reaped $$;

-- all of them
select t.dead(array['c', 'a', 'b']);
select results_eq($$select n.key from unnest(t.together(array['c', 'a', 'b'])) as n (key)$$, $$values ('c'), ('a'), ('b')$$, 'they are reaped in the order in which they are asked for');
select results_eq($$select (e).key, (e).event, (e).owner, (e).lease_key, (e).token = (select token from leasehold.scope where key = (e).key), (e).error from app.reaped order by n$$,
                  $$values ('c', 'reap', 'gone', t.key(1), true, null), ('a', 'reap', 'gone', t.key(1), true, null), ('b', 'reap', 'gone', t.key(1), true, null)$$, 'the hook of each has run once');
select results_eq('select others from app.reaped order by n', array[3::bigint, 2, 1], 'a hook finds those before it ended: the last one can tell that it is');
select results_eq($$select distinct state, last_outcome, lease_key, reap_failures, ended_at > clock_timestamp() - interval '1 minute', ended_keys, ended_outcomes from leasehold.scope$$,
                  $$values ('free', 'expired', null::uuid, 0, true, array_fill(t.key(1), '{1}', '{0}'), array_fill('expired'::text, '{1}', '{0}'))$$, 'they have ended as reap_hooked() ends one');
select is(t.rows_of($$select * from leasehold.acquire('r', 'a', '30 s', lease_key => t.key(2))$$), 1, 'the next one gets it');
select t.clear();

-- none of them
select t.dead(array['a', 'bad', 'b']);
select t.footprint() as before \gset
select is(t.message_of($$select t.together(array['a', 'bad', 'b'])$$), 'the work of bad cannot be put back', 'a veto is an error');
select is(t.footprint(), :'before', 'nothing is ended, and no failure written down');
select is((select count(*) from app.reaped), 0::bigint, 'and what the hooks did is undone');
select is(t.together(array['a', 'b']), array['a', 'b'], 'without it the others are reaped');
select t.clear();

-- what is left alone
select t.dead(array['a', 'failed', 'waited', 'stranger', 'b']);
select leasehold.acquire('r', 'alive', '30 s', lease_key => t.key(1));
update leasehold.scope set reap_failures = 1, next_try_at = clock_timestamp() - interval '1 s' where key = 'failed';
select leasehold.set_policy('r', expiry => 'manual');
select leasehold.join_queue('r', 'waited', t.key(3));
select is(t.together(array['a', 'b']), '{}', 'where an administrator decides nothing is reaped');
select leasehold.reset_policy('r', 'expiry');
select is(t.together(array['a', 'failed', 'waited', 'stranger', 'alive', 'nobody', 'b'], 'stranger'), array['a', 'b'],
          'those that have failed before, that somebody waits for, of another token, alive or unknown are left alone');
select is((select count(*) from app.reaped), 2::bigint, 'their hooks have not run');
select is((select count(*) from leasehold.scope where state = 'held'), 4::bigint, 'they are as they were');
update leasehold.coordinator set seen_at = clock_timestamp() - interval '1 minute';
select is(t.together(array['failed']), '{}', 'nothing is left to do');
select t.clear();
begin isolation level repeatable read;
select t.dead(array['a']);
select is(t.together(array['a']), '{}', 'in REPEATABLE READ they go one by one');
commit;
select t.clear();

-- hooks that call these functions
select t.dead(array['thief', 'victim']);
select is(t.message_of($$select t.together(array['thief', 'victim'])$$), 'a hook has itself ended the lease that it was called for', 'a lease that another''s hook has ended undoes all');
select is((select count(*) from app.reaped), 0::bigint, 'so its own hook has not run in vain');
select t.clear();
select t.dead(array['taker', 'victim']);
select is(t.message_of($$select t.together(array['taker', 'victim'])$$), 'a hook has itself ended the lease that it was called for', 'as one that another''s hook has taken over');
select is((select count(*) from app.reaped), 0::bigint, 'its hook ran in that takeover: once in all, and undone');
select t.clear();
select t.dead(array['user1', 'user2']);
select is(t.together(array['user1', 'user2']), array['user1', 'user2'], 'others'' leases are no concern');
select is((select count(*) from leasehold.scope where namespace = 'elsewhere' and state = 'held'), 2::bigint, 'what the hooks acquired is theirs');
select is(current_setting('leasehold.hook_tokens', true), '', 'no hook is running any more');
select t.clear();

-- settings
select leasehold.add_hook('r', 'reap', 'app.second(leasehold.lease_event)');
select t.dead(array['fickle', 'a']);
select is(t.together(array['fickle', 'a']), array['fickle', 'a'], 'hooks that set what they like');
select set_eq('select path from app.reaped', array['pg_catalog, pg_temp'], 'each hook finds the search_path that it was promised');
select is((select count(*) from app.reaped), 4::bigint, 'of two each has run for each lease');
select results_eq($$select (e).key, path is not null and others is null from app.reaped order by n$$, $$values ('fickle', false), ('fickle', true), ('a', false), ('a', true)$$, 'in the order in which they were added');
select leasehold.remove_hook('r', 'reap', 'app.second(leasehold.lease_event)');
select t.clear();
begin;
set local synchronous_commit = off;
select t.dead(array['a', 'b']);
set local synchronous_commit = off;
select t.together(array['a']);
select is(current_setting('synchronous_commit'), 'local', 'it is committed durably');
set local synchronous_commit = off;
set local leasehold.lazy = 'on';
select t.together(array['b']);
select is(current_setting('synchronous_commit'), 'off', 'unless the caller sees to that');
commit;
select t.clear();

-- history and watches
select leasehold.set_policy('r', history => true);
\set c1 11111111-1111-4111-8111-111111111111
select t.enroll(:'c1');
select leasehold_internal.watch_add(:'c1', 'r', true);
select t.dead(array['a', 'b']);
delete from leasehold.event;
select is(t.together(array['a', 'b']), array['a', 'b'], 'where somebody looks on');
select results_eq($$select key collate "default", outcome, owner from leasehold.history where namespace = 'r' order by key$$, $$values ('a', 'expired', 'gone'), ('b', 'expired', 'gone')$$, 'each is in the history');
select results_eq($$select key collate "default", type, end_reason from leasehold.event order by key$$, $$values ('a', 'expired', 'expired'), ('b', 'expired', 'expired')$$, 'and those who watch are told');
select t.dead(array['victim', 'taker']);
select is(t.message_of($$select t.together(array['victim', 'taker'])$$), 'a hook has changed a lease that was reaped with its own', 'where it could not be told as it was, nothing is done');
select leasehold_internal.watch_clear(:'c1');
select leasehold.reset_policy('r', 'history');
select is(t.together(array['victim', 'taker']), array['victim', 'taker'], 'where nobody looks on that is all right');
select results_eq($$select state, owner from leasehold.scope where key = 'victim'$$, $$values ('held', 'taker')$$, 'a hook may take what was reaped before');
select t.clear();

-- hooks that cannot be run
create function app.gone(e leasehold.lease_event) returns void language sql as 'select null::void';
select leasehold.add_hook('r', 'reap', 'app.gone(leasehold.lease_event)');
drop function app.gone;
select t.dead(array['a']);
select matches(t.message_of($$select t.together(array['a'])$$), '^the reap hook app.gone\(leasehold.lease_event\) cannot be run: it must be a function that exists$', 'a hook that was dropped is an error');
select leasehold.remove_hook_named('r', 'reap', 'app.gone(leasehold.lease_event)');
select leasehold.remove_hook('r', 'reap', 'app.put_back(leasehold.lease_event)');
select is(t.together(array['a']), array['a'], 'without any hook they are simply ended');
select * from finish();
