-- Hooks: functions f(leasehold.lease_event) returns void that run in the transaction in which a lease changes. An error in one
-- vetoes the change; for a lease that is to be reaped it leaves it expired, to be tried again.
--
-- Promise 8: what a hook writes commits or rolls back with the lease's change.
--
-- When. Before a lease is renewed, released or reaped, while it is still held: leasehold.guard() passes in a hook, but for a reap's,
-- whose lease has expired. After it is granted, for only then it has a token. Each lease's hooks run in a subtransaction of their
-- own: what they did goes with their veto, and nothing else does. (Reaps that share a transaction go with the veto of any of them,
-- and are tried again alone: reap_together.)
--
-- Rights. A hook is called by leasehold_owner, and belongs to a member of leasehold_owner, who could be that role anyway. Looked
-- at right before each call, for a function may change. What it has queued for the end of the transaction runs before the call is
-- over (hook_effects.sql). `search_path` is pg_catalog, pg_temp: a hook without a `set search_path`
-- of its own must qualify every name.
--
-- How long. A time limit cannot be set from inside of SQL. A daemon sends what has a hook by itself, under
-- statement_timeout; SQL users are bounded by their own.
--
-- The setting leasehold.hooks says who runs them: 'on' a daemon, for one item in a transaction of its own (its timeout is a
-- veto); 'inline' the functions for SQL users (a cancelled statement is cancelled); 'reap' leasehold.reap() (its timeout is the
-- failure of that one lease). Without it a daemon's batch leaves alone what has hooks. Every session can set it, so each function
-- for SQL users sets its own value first.

-- Does this caller run hooks? Locks nothing.
create or replace function leasehold_internal.runs_hooks(p_is_sql_user boolean) returns boolean
language sql stable
as $$
  select p_is_sql_user or coalesce(current_setting('leasehold.hooks', true), '') in ('on', 'inline', 'reap')
$$;

-- Which of these namespaces have a hook for this event, of their own or of a parent. The caller asks first, for there may
-- be no hooks at all:
--
--   if exists (select from leasehold.registered_hook) then
--
-- Locks nothing.
create or replace function leasehold_internal.hooked(p_namespaces text[], p_event text) returns text[]
language plpgsql stable
as $$
begin
  if not exists (select from leasehold.registered_hook h where h.event = p_event) then
    return '{}';
  end if;
  -- By the index, prefix by prefix: there may be thousands of hooks.
  return array(
    select distinct n.namespace
      from (select distinct u as namespace, string_to_array(u, '.') as segments from unnest(p_namespaces) u offset 0) n
     cross join lateral generate_series(0, cardinality(n.segments)) depth
      join leasehold.registered_hook h
        on h.namespace = array_to_string(n.segments[:depth], '.') and h.event = p_event);
end
$$;

-- Has one namespace a hook for that event, or, with null, any hook? A call costs a plan nothing until it is made. Locks nothing.
create or replace function leasehold_internal.is_hooked(p_namespace text, p_event text) returns boolean
language plpgsql stable
as $$
begin
  return exists (select
                   from leasehold.registered_hook h
                  where h.namespace = any (leasehold_internal.prefixes(p_namespace)) and (p_event is null or h.event = p_event));
end
$$;

-- The name under which a function is written down: always qualified, whatever the search_path. Locks nothing.
create or replace function leasehold_internal.hook_name(p_function oid) returns text
language sql stable
as $$
  select format('%I.%I(leasehold.lease_event)', n.nspname, p.proname)
    from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n
      on n.oid = p.pronamespace
   where p.oid = p_function
$$;

-- The function of that name, or null. By the catalogs: to_regprocedure() is refused (from PostgreSQL 16 on: null) where the reader
-- may not look into its schema. Locks nothing.
create or replace function leasehold_internal.hook_function(p_function_name text) returns regprocedure
language sql stable
as $$
  select p.oid::regprocedure
    from pg_catalog.pg_proc p
   where p.pronargs = 1 and p.proargtypes[0] = 'leasehold.lease_event'::regtype and leasehold_internal.hook_name(p.oid) = p_function_name
$$;

-- What keeps a function from being a hook, as the limit in words; '' when nothing does. Locks nothing.
create or replace function leasehold_internal.hook_problem(p_function oid) returns text
language plpgsql stable
as $$
begin
  return coalesce(
    (select case
              when p.prokind <> 'f' or p.proretset or p.prorettype <> 'void'::regtype or p.pronargs <> 1
                or p.proargtypes[0] <> 'leasehold.lease_event'::regtype
                then 'a function f(leasehold.lease_event) returns void'
              when not pg_has_role(p.proowner, 'leasehold_owner', 'member')
                then 'a function whose owner is a member of leasehold_owner'
              when not has_function_privilege(p.oid, 'execute') or not has_schema_privilege(p.pronamespace, 'usage')
                then format('a function that %I may execute', current_user)
              else ''
            end
       from pg_proc p
      where p.oid = p_function),
    'a function that exists');
end
$$;

-- The event of a lease, for its hooks. Locks nothing.
create or replace function leasehold_internal.event_of(
  p_event text, p_scope leasehold.scope, p_deadline timestamptz, p_result jsonb, p_error text)
returns leasehold.lease_event
language sql immutable
as $$
  select row(p_event, (p_scope).namespace, (p_scope).key, (p_scope).lease_key, (p_scope).token, (p_scope).owner, (p_scope).labels,
             (p_scope).duration, (p_scope).acquired_at, p_deadline, p_result, p_error, (p_scope).principal)::leasehold.lease_event
$$;

-- Run the hooks of an event: the parents' first, of one namespace in the order in which they were added. Raises what a hook
-- raises; and where the lease is not held with that token any more, for whoever runs hooks has decided about this one.
-- The caller has the scope's row locked. Locks what the hooks lock.
create or replace function leasehold_internal.run_hooks(p_event leasehold.lease_event) returns void
language plpgsql
as $$
declare
  v_running text := current_setting('leasehold.hook_tokens', true);
begin
  perform leasehold_internal.call_hooks(p_event);
  if not leasehold_internal.is_held(p_event.namespace, p_event.key, p_event.token) then
    perform leasehold_internal.refuse_end_by_hook();
  end if;
  perform set_config('leasehold.hook_tokens', coalesce(v_running, ''), true);
end
$$;

-- What it is told that ends its own lease.
create or replace function leasehold_internal.refuse_end_by_hook() returns void
language plpgsql
as $$
begin
  raise exception 'a hook has itself ended the lease that it was called for';
end
$$;

-- The names of the hooks of an event, in the order in which they are called. Locks nothing.
create or replace function leasehold_internal.hooks_of(p_namespace text, p_event text) returns text[]
language sql stable
as $$
  select coalesce(array_agg(r.function_name order by length(r.namespace), r.position), '{}')
    from leasehold.registered_hook r
   where r.event = p_event
     and r.namespace = any (array(
           select array_to_string(n.segments[:depth], '.')
             from (select string_to_array(p_namespace, '.') as segments) n
            cross join lateral generate_series(0, cardinality(n.segments)) depth))
$$;

-- Raise where a registered function must not be called. A function in a schema that is closed to us is found by the slower way, for
-- the words. Locks nothing.
create or replace function leasehold_internal.check_hook(p_function_name text, p_event text) returns void
language plpgsql
as $$
declare
  v_problem text := leasehold_internal.hook_problem(
                       coalesce(to_regprocedure(p_function_name), leasehold_internal.hook_function(p_function_name)));
begin
  if v_problem <> '' then
    raise exception 'the % hook % cannot be run: it must be %', p_event, p_function_name, v_problem;
  end if;
end
$$;

-- The calls alone: leaves the token in leasehold.hook_tokens, and the look at what has become of the lease to the caller. In few
-- statements, for it runs for each of 100,000 leases: a statement more was 10 to 20 us.
create or replace function leasehold_internal.call_hooks(p_event leasehold.lease_event) returns void
language plpgsql
as $$
declare
  v_running text := leasehold_internal.running_hooks();
  v_mode text := coalesce(current_setting('leasehold.hooks', true), '');
  v_before record;
  v_functions text[];
  v_function text;
begin
  -- A hook may call these functions, for other leases.
  if v_running <> '' then
    if position(',' || p_event.token || ',' in v_running) > 0 then
      raise exception 'a hook of this lease is running already';
    elsif length(v_running) > 200 then
      raise exception 'hooks call each other too deep';
    end if;
  end if;
  select leasehold_internal.hooks_of(p_event.namespace, p_event.event),
         set_config('leasehold.hook_tokens', md5(leasehold_internal.hook_salt() || t.tokens) || t.tokens, true)
    into v_functions
    from (select v_running || ',' || p_event.token || ',' as tokens) t;
  select d.* into v_before from leasehold_internal.deferrable_changes() d;
  foreach v_function in array v_functions loop
    perform leasehold_internal.call_hook(v_function, p_event);
  end loop;
  perform leasehold_internal.run_deferred(v_before.tables, v_before.counts);
  -- A hook may have called these functions.
  if current_setting('leasehold.hooks', true) is distinct from v_mode then
    perform set_config('leasehold.hooks', v_mode, true);
  end if;
end
$$;

-- Call one. In a function of its own, which gives it settings as they usually are, and takes back what it sets.
create or replace function leasehold_internal.call_hook(p_function_name text, p_event leasehold.lease_event) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
{{hooks.settings}}
as $$
begin
  perform leasehold_internal.check_hook(p_function_name, p_event.event);
  execute 'select ' || left(p_function_name, -length('(leasehold.lease_event)')) || '($1)' using p_event;
end
$$;

-- The same in a subtransaction, and then, where `p_end` names a lease, its end. Returns null, or the veto in words. A cancelled
-- statement is raised again, unless it is a daemon's, or reap()'s own timeout.
create or replace function leasehold_internal.try_hooks(p_event leasehold.lease_event, p_end leasehold.lease_end default null)
returns text
language plpgsql
as $$
declare
  v_mode text := current_setting('leasehold.hooks', true);
begin
  perform leasehold_internal.run_hooks(p_event);
  if (p_end).namespace is not null then
    perform leasehold_internal.end_leases(array[p_end], clock_timestamp());
  end if;
  return null;
exception
  when query_canceled then
    if v_mode = 'on' or (v_mode = 'reap' and leasehold_internal.is_timed_out()) then
      return leasehold_internal.veto_text(sqlstate, sqlerrm);
    end if;
    raise;
  when serialization_failure then
    -- The caller's transaction has to be repeated as a whole.
    if leasehold_internal.is_blind() and v_mode is distinct from 'reap' then
      raise;
    end if;
    return leasehold_internal.veto_text(sqlstate, sqlerrm);
  when others or assert_failure then
    return leasehold_internal.veto_text(sqlstate, sqlerrm);
end
$$;

-- What a hook's error is told as. A daemon counts timeouts by how their words begin. Locks nothing.
create or replace function leasehold_internal.veto_text(p_state text, p_message text) returns text
language plpgsql stable
as $$
begin
  return case
    when p_state <> '57014' then coalesce(nullif(left(p_message, 1024), ''), 'SQLSTATE ' || p_state)
    when leasehold_internal.is_timed_out()
      then format('the hook ran over its limit of %s s', leasehold_internal.seconds_text(current_setting('statement_timeout')::interval))
    else 'the hook was cancelled'
  end;
end
$$;

-- Has this statement run for as long as its timeout allows? The timeout fires once: from then on nothing bounds it. A tenth
-- less will do, for the timeout counts from the Bind of a statement, and statement_timestamp() is its Execute. Locks nothing.
create or replace function leasehold_internal.is_timed_out() returns boolean
language sql stable
as $$
  select current_setting('statement_timeout') <> '0'
         and clock_timestamp() >= statement_timestamp() + current_setting('statement_timeout')::interval * 0.9
$$;

-- The limit of a namespace's hooks in microseconds, as a daemon is told of it. Locks nothing.
create or replace function leasehold_internal.hook_limit(p_namespace text) returns text
language sql stable
as $$
  select leasehold_internal.to_us(r.hook_timeout)::text from leasehold_internal.policies_of(array[p_namespace]) r
$$;

-- Run the hooks of the items of a heartbeat, release or leave batch that are to be done (outcome ok): where one vetoes, the outcome
-- is rejected; where this caller runs none, hooked. `error` is then the veto, or the limit. `p_event` null: release_ok or
-- release_fail, as the item says; `p_now` is the time of a heartbeat. The caller has the rows locked.
create or replace function leasehold_internal.hook_items(
  p_work leasehold.item_work[], p_event text, p_runs boolean, p_now timestamptz)
returns leasehold.item_work[]
language plpgsql
as $$
declare
  v_namespaces text[] := array(select distinct w.namespace from unnest(p_work) w where w.outcome = 'ok');
  v_event_hooked text[];
  v_failure_hooked text[];
  v_rules leasehold.rules[];
  v_life leasehold.life_now;
  v_work leasehold.item_work[];
begin
  v_event_hooked := leasehold_internal.hooked(v_namespaces, coalesce(p_event, 'release_ok'));
  v_failure_hooked := leasehold_internal.hooked(v_namespaces, coalesce(p_event, 'release_fail'));
  if v_event_hooked = '{}' and v_failure_hooked = '{}' then
    return p_work;
  end if;
  if p_event = 'heartbeat' then
    v_rules := leasehold_internal.ending_rules(v_namespaces);
    v_life := leasehold_internal.life(null);
  end if;
  v_work := array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, w.is_failure, w.result,
               case when w.is_hooked and not p_runs then leasehold_internal.hook_limit(w.namespace) else coalesce(w.veto, w.error) end,
               w.scope, w.hold,
               case when w.is_hooked and not p_runs then 'hooked' when w.veto is not null then 'rejected' else w.outcome end,
               w.end_reason, w.head_coordinator, w.head_lease_key, w.waiters_ahead)::leasehold.item_work
      from (select h.*,
                   case when h.is_hooked and p_runs
                        then leasehold_internal.try_hooks(leasehold_internal.event_of(
                               coalesce(p_event, case when h.is_failure then 'release_fail' else 'release_ok' end), h.scope,
                               case when p_event = 'heartbeat' then leasehold_internal.next_deadline(h.scope, v_rules, v_life, p_now)
                                    else (h.scope).deadline end,
                               h.result, h.error)) end as veto
              from (select u.*,
                           u.outcome = 'ok'
                           and u.namespace = any (case when u.is_failure then v_failure_hooked else v_event_hooked end) as is_hooked
                      from unnest(p_work) u
                    offset 0) h
            offset 0) w);
  return case when p_runs then leasehold_internal.mark_changed(v_work) else v_work end;
end
$$;

-- Leases that were to be changed, but are not held as they were any more, for another one's hook has ended them: the outcome
-- ok becomes lost. Locks nothing.
create or replace function leasehold_internal.mark_changed(p_work leasehold.item_work[]) returns leasehold.item_work[]
language plpgsql
as $$
begin
  return array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, w.is_failure, w.result, w.error, w.scope, w.hold,
               case when w.outcome = 'ok' and not s.is_there then 'lost' else w.outcome end,
               case when w.outcome = 'ok' and not s.is_there then 'unknown' else w.end_reason end,
               w.head_coordinator, w.head_lease_key, w.waiters_ahead)::leasehold.item_work
      from unnest(p_work) w
     cross join lateral (
       select w.outcome = 'ok' and leasehold_internal.is_held(w.namespace, w.key, (w.scope).token) as is_there) s);
end
$$;

-- When reaping a lease that has failed so often before is tried again; null: not by itself any more. Locks nothing.
create or replace function leasehold_internal.next_try(p_failures integer, p_max_failures integer, p_now timestamptz) returns timestamptz
language sql immutable
as $$
  select case when p_failures + 1 < p_max_failures
              then p_now + least(interval '1 s' * 2 ^ least(p_failures, 9), interval '5 min') end
$$;

-- Write down that reaping a lease has failed: the next try is 1 s later, then twice as long each time, at most 5 min; after
-- max_reap_failures it stays for a person. Returns the scope as it is then, or the shared holder; null when it is not held with that token.
-- The caller has the row locked.
create or replace function leasehold_internal.note_reap_failure(
  p_namespace text, p_key text, p_token bigint, p_error text, p_max_failures integer)
returns leasehold.scope
language plpgsql
{{few.settings}}
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_scope leasehold.scope;
begin
  update leasehold.scope s
     set reap_failures = s.reap_failures + 1,
         reap_error = left(p_error, 1024),
         reap_failed_at = v_now,
         next_try_at = leasehold_internal.next_try(s.reap_failures, p_max_failures, v_now),
         check_at = coalesce(leasehold_internal.next_try(s.reap_failures, p_max_failures, v_now), 'infinity')
   where s.namespace = p_namespace and s.key = p_key and s.token = p_token and s.state = 'held'
  returning s.* into v_scope;
  if not found then
    update leasehold.share h
       set reap_failures = h.reap_failures + 1,
           reap_error = left(p_error, 1024),
           reap_failed_at = v_now,
           next_try_at = leasehold_internal.next_try(h.reap_failures, p_max_failures, v_now),
           check_at = coalesce(leasehold_internal.next_try(h.reap_failures, p_max_failures, v_now), 'infinity')
     where h.namespace = p_namespace and h.key = p_key and h.token = p_token and h.state = 'held'
    returning (leasehold_internal.scope_of_share(h)).* into v_scope;
  end if;
  return v_scope;
end
$$;

-- relax_commit asks, as whoever calls it.
grant execute on function leasehold_internal.runs_hooks to leasehold_coordinator, leasehold_admin;
