-- Hooks that misbehave: whatever they do, the lease and the caller's transaction are as they should be.
select no_plan();
select leasehold.reap();
create schema app;
grant usage on schema app to leasehold_owner;
alter default privileges in schema app grant all on tables to leasehold_owner;
create table app.made (key text);
-- Does what the key says, after a write of its own.
create function app.trouble(e leasehold.lease_event) returns void language plpgsql as $$
declare
  v_n integer;
begin
  insert into app.made (key) values (e.key);
  case split_part(e.key, ':', 2)
    when 'divide' then v_n := 1 / 0;
    when 'assert' then assert false, 'never';
    when 'empty' then raise exception using errcode = 'UX002', message = '';
    when 'long' then raise exception '%', repeat('é', 5000);
    when 'state' then raise sqlstate 'LH001' using message = 'lease_lost: says the hook';
    when 'cancel' then raise query_canceled using message = 'not a timeout';
    when 'deadlock' then raise deadlock_detected;
    when 'sleep' then perform pg_sleep(20);
    when 'guard' then perform leasehold.guard(e.namespace, e.key, e.token);
    when 'other' then perform leasehold.acquire('t', 'other of ' || split_part(e.key, ':', 1), '30 s', lease_key => e.lease_key);
    when 'release' then perform leasehold.release_ok(e.namespace, e.key, e.lease_key);
    when 'force' then perform leasehold.force_release(e.namespace, e.key, 'so says the hook');
    when 'caught' then
      begin
        perform leasehold.release_ok(e.namespace, e.key, e.lease_key);
      exception when others then
        null;
      end;
    when 'deep' then perform leasehold.acquire(e.namespace, e.key || ':', '30 s');
    when 'reap' then perform leasehold.reap();
    when 'settings' then
      perform set_config('search_path', 'app, pg_catalog', true), set_config('synchronous_commit', 'off', true), set_config('enable_indexscan', 'off', true);
    else null;
  end case;
end $$;
-- What our functions would call, if a hook's search_path outlived it.
create function app.current_setting(text) returns text language plpgsql as $$ begin raise exception 'captured'; end $$;
create function t.hook(p_event text) returns void language sql as $$
  select leasehold.remove_hook_named(h.namespace, h.event, h.function_name) from leasehold.registered_hook h;
  select leasehold.add_hook('t', p_event, 'app.trouble(leasehold.lease_event)');
  truncate app.made;
$$;

create function t.is_cancelled(p_sql text) returns boolean language plpgsql as $$
begin
  execute p_sql;
  return false;
exception when query_canceled then
  return true;
end $$;

-- acquire
select t.hook('acquire');
select is(t.message_of(format('select leasehold.acquire(%L, %L, %L)', 't', 'a:' || k, '30 s')), m, 'acquire: ' || k)
  from (values ('divide', 'hook_rejected: division by zero'), ('assert', 'hook_rejected: never'), ('empty', 'hook_rejected: SQLSTATE UX002'),
               ('state', 'hook_rejected: lease_lost: says the hook'), ('deadlock', 'hook_rejected: deadlock_detected'),
               ('release', 'hook_rejected: a hook has itself ended the lease that it was called for'),
               ('force', 'hook_rejected: a hook has itself ended the lease that it was called for')) as c (k, m);
select is(length(t.message_of($$select leasehold.acquire('t', 'a:long', '30 s')$$)), length('hook_rejected: ') + 1024, 'long words are cut');
select is((select count(*) from leasehold.scope), 0::bigint, 'no scope is left');
select is((select count(*) from app.made), 0::bigint, 'nor anything of the hook''s own');
select is(t.is_cancelled($$select leasehold.acquire('t', 'a:cancel', '30 s')$$), true, 'a SQL user''s cancelled statement is cancelled, not vetoed');
select is(t.rows_of($$select * from leasehold.acquire('t', 'a:guard', '30 s')$$), 1, 'a hook may guard its lease');
select is(t.rows_of($$select * from leasehold.acquire('t', 'a:other', '30 s', lease_key => t.key(1))$$), 1, 'and acquire another');
select is((select array_agg(key order by key) from leasehold.lease where lease_key = t.key(1)), array['a:other', 'other of a'], 'both are held');
select is((select count(*) from app.made where key in ('a:other', 'other of a')), 2::bigint, 'through the hooks of both');
select alike(t.message_of($$select leasehold.acquire('t', 'a:deep', '30 s')$$), 'hook_rejected: hook_rejected: %too deep', 'an endless chain ends');
select is((select count(*) from leasehold.scope where key like 'a:deep%'), 0::bigint, 'and leaves nothing');
select is(t.rows_of($$select * from leasehold.acquire('t', 'a:settings', '30 s')$$), 1, 'a hook''s search_path ends with it');
begin;
set local synchronous_commit = on;
set local search_path = public;
select leasehold.acquire('t', 'b:settings', '30 s');
select is(current_setting('search_path'), 'public', 'and is not the caller''s');
commit;
begin;
set local synchronous_commit = on;
select leasehold.acquire('t', 'c:settings', '30 s');
select is(current_setting('synchronous_commit'), 'local', 'what was granted is committed durably all the same');
commit;

-- release and heartbeat
select t.hook('release_ok');
select leasehold.acquire('t', 'r:' || k, '30 s', lease_key => t.key(2)) from unnest(array['force', 'release', 'caught', 'guard', 'plain']) k;
select is(t.message_of(format('select leasehold.release_ok(%L, %L, t.key(2))', 't', 'r:' || k)), m, 'release: ' || k)
  from (values ('force', 'hook_rejected: a hook has itself ended the lease that it was called for'),
               ('release', 'hook_rejected: hook_rejected: a hook of this lease is running already'), ('caught', ''), ('guard', ''), ('plain', '')) as c (k, m);
select is((select array_agg(key order by key) from leasehold.lease where namespace = 't' and key like 'r:%'), array['r:force', 'r:release'], 'vetoed ones are held, the others released');
select is((select ended_keys from leasehold.scope where key = 'r:caught'), array_fill(t.key(2), '{1}', '{0}'), 'and once only');
select t.hook('heartbeat');
select leasehold.acquire('t', 'h:force', '30 s', lease_key => t.key(3));
select is(t.message_of($$select leasehold.heartbeat('t', 'h:force', t.key(3))$$), 'hook_rejected: a hook has itself ended the lease that it was called for', 'a heartbeat''s hook does not end the lease');
select is((select state from leasehold.scope where key = 'h:force'), 'held', 'it is still held');

-- reap
select t.hook('reap');
select leasehold.acquire('t', 'x:' || k, '30 s') from unnest(array['divide', 'assert', 'cancel2', 'force', 'guard', 'plain', 'reap']) k;
select t.age('t', key, '1 hour') from leasehold.scope where key like 'x:%';
select results_eq($$select key, outcome, error from leasehold.reap() where key like 'x:%' order by key$$,
  $$values ('x:assert', 'failed', 'never'), ('x:cancel2', 'reaped', null), ('x:divide', 'failed', 'division by zero'),
           ('x:force', 'failed', 'hook_rejected: a hook of this lease is running already'), ('x:guard', 'failed', 'lease_lost: t/x:guard is not held with token ' || (select token from leasehold.scope where key = 'x:guard')),
           ('x:plain', 'reaped', null), ('x:reap', 'reaped', null)$$, 'each fails alone, or is reaped; a reap inside of a reap too');
select is((select count(*) from app.made where key in ('x:plain', 'x:cancel2', 'x:reap')), 3::bigint, 'each that was reaped has run once');
select is((select count(*) from app.made where key not in ('x:plain', 'x:cancel2', 'x:reap')), 0::bigint, 'and no other');
delete from leasehold.scope where key like 'x:%';

-- a hook that ends another lease of the same batch
create function app.ends_next(e leasehold.lease_event) returns void language plpgsql as $$
begin
  if e.key = 'y:1' then
    perform leasehold.force_release('u', 'y:2', 'of no use without the first');
    perform leasehold.acquire('u', 'y:2', '1 hour', lease_key => e.lease_key);
  end if;
end $$;
select leasehold.add_hook('u', 'reap', 'app.ends_next(leasehold.lease_event)');
select leasehold.acquire('u', 'y:' || k, '30 s', lease_key => t.key(4 + k)) from generate_series(1, 2) k;
select t.age('u', 'y:1', '1 hour'), t.age('u', 'y:2', '1 hour');
select results_eq($$select key, outcome from leasehold.reap(array['u']) order by key$$, $$values ('y:1', 'reaped')$$, 'a lease that another one''s hook has ended and granted anew is not reaped');
select is((select state || ' ' || (lease_key = t.key(5)) from leasehold.scope where key = 'y:2'), 'held true', 'it is held by whom the hook gave it to');

-- every isolation level
create function app.serialize(e leasehold.lease_event) returns void language plpgsql as $$
begin
  if e.key like 'again%' then
    raise serialization_failure using message = 'could not serialize access: again';
  elsif e.key like 'no%' then
    raise exception 'no';
  end if;
  insert into app.made (key) values (e.event || ' ' || e.key);
end $$;
select leasehold.add_hook('s', e, 'app.serialize(leasehold.lease_event)') from unnest(array['acquire', 'heartbeat', 'release_ok', 'reap']) e;
begin isolation level repeatable read;
select is(t.rows_of($$select * from leasehold.acquire('s', 'rr', '30 s', lease_key => t.key(7))$$), 1, 'REPEATABLE READ: acquire');
select isnt(leasehold.heartbeat('s', 'rr', t.key(7)), null, 'heartbeat');
select is(leasehold.release_ok('s', 'rr', t.key(7)), true, 'release');
select is(t.error_of($$select leasehold.acquire('s', 'no', '30 s')$$), 'LH005 hook_rejected', 'a veto');
select is(t.error_of($$select leasehold.acquire('s', 'again', '30 s')$$), '40001 could not serialize access', 'a serialization failure stays one');
commit;
begin isolation level serializable;
select is(t.rows_of($$select * from leasehold.acquire('s', 'ser', '30 s', lease_key => t.key(7))$$), 1, 'SERIALIZABLE: acquire');
select t.age('s', 'ser', '1 hour');
select is((select outcome from leasehold.reap() where key = 'ser'), 'reaped', 'reap');
commit;
select is(t.error_of($$select leasehold.acquire('s', 'again', '30 s')$$), 'LH005 hook_rejected', 'in READ COMMITTED it is the hook''s own error');
select is((select array_agg(key order by key) from app.made where key like '% rr' or key like '% ser'), array['acquire rr', 'acquire ser', 'heartbeat rr', 'reap ser', 'release_ok rr'], 'the hooks ran');

-- time limits
set statement_timeout = '150ms';
select t.hook('acquire');
select is(t.is_cancelled($$select leasehold.acquire('t', 'z:sleep', '30 s')$$), true, 'a SQL user''s own statement_timeout is no veto');
select leasehold.acquire('t', 'z:after', '30 s', lease_key => t.key(6));
reset statement_timeout;
select is((select array_agg(key) from leasehold.scope where key like 'z:%'), array['z:after'], 'and leaves nothing');
select t.hook('reap');
select leasehold.acquire('t', k, '30 s') from unnest(array['v1:plain', 'v2:sleep', 'v3:plain']) k;
select t.age('t', 'v1:plain', '3 hours'), t.age('t', 'v2:sleep', '2 hours'), t.age('t', 'v3:plain', '1 hour');
set statement_timeout = '400ms';
select results_eq($$select key, outcome, error from leasehold.reap()$$, $$values ('v1:plain', 'reaped', null), ('v2:sleep', 'failed', 'the hook ran over its limit of 0.4 s')$$, 'a hook that takes all of reap()''s time is that lease''s failure, and ends the call');
select results_eq($$select key, outcome from leasehold.reap()$$, $$values ('v3:plain', 'reaped')$$, 'the next call goes on behind it');
reset statement_timeout;
select results_eq('select key collate "default", reap_failures, next_try_at > clock_timestamp() from leasehold.reap_failure', $$values ('v2:sleep', 1, true)$$, 'which was written down');
select * from finish();
