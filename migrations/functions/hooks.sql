-- Hooks: functions f(leasehold.lease_event) returns void that run in the transaction in which a lease changes. An error in one
-- vetoes the change; for a lease that is to be reaped it leaves it expired, to be tried again.
--
-- When. Before a lease is renewed, released or reaped, while it is still held: leasehold.guard() passes in a hook, but for a reap's,
-- whose lease has expired. After it is granted, for only then it has a token. Each lease's hooks run in a subtransaction of their
-- own: what they did goes with their veto, and nothing else does. (Reaps that share a transaction go with the veto of any of them,
-- and are tried again alone: reap_together.)
--
-- Rights. A hook is called by the owner of these functions. So a function that runs with its caller's rights must belong to
-- somebody who has that owner's rights anyway; everybody else's is `security definer`, and runs with its own owner's rights.
-- Looked at in each call, for a function may change. `search_path` is pg_catalog, pg_temp: a hook without a `set search_path`
-- of its own must qualify every name.
--
-- How long. A time limit cannot be set from inside of SQL. A daemon sends what has a hook by itself, under
-- statement_timeout; SQL users are bounded by their own.
--
-- The setting leasehold.hooks says who runs them: 'on' a daemon, for one item in a transaction of its own (its timeout is a
-- veto); 'inline' the functions for SQL users (a cancelled statement is cancelled); 'reap' leasehold.reap() (its timeout is the
-- failure of that one lease). Without it a daemon's batch leaves alone what has hooks.

-- Does this caller run hooks? Locks nothing.
create or replace function leasehold.runs_hooks(p_is_sql_user boolean) returns boolean
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
create or replace function leasehold.hooked(p_namespaces text[], p_event text) returns text[]
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

-- What keeps a function from being a hook, as the limit in words; '' when nothing does. Locks nothing.
create or replace function leasehold.hook_problem(p_function oid) returns text
language plpgsql stable
as $$
begin
  return coalesce(
    (select case
              when p.prokind <> 'f' or p.proretset or p.prorettype <> 'void'::regtype or p.pronargs <> 1
                or p.proargtypes[0] <> 'leasehold.lease_event'::regtype
                then 'a function f(leasehold.lease_event) returns void'
              when not pg_has_role(p.proowner, 'leasehold_admin', 'member')
                then 'a function whose owner is a member of leasehold_admin'
              when not p.prosecdef and not pg_has_role(p.proowner, current_user, 'member')
                then format('security definer, so that it runs with the rights of %I and not with those of %I',
                            p.proowner::regrole, current_user)
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
create or replace function leasehold.event_of(
  p_event text, p_scope leasehold.scope, p_deadline timestamptz, p_result jsonb, p_error text)
returns leasehold.lease_event
language sql immutable
as $$
  select row(p_event, (p_scope).namespace, (p_scope).key, (p_scope).lease_key, (p_scope).token, (p_scope).owner, (p_scope).labels,
             (p_scope).duration, (p_scope).acquired_at, p_deadline, p_result, p_error)::leasehold.lease_event
$$;

-- Run the hooks of an event: the parents' first, of one namespace in the order in which they were added. Raises what a hook
-- raises; and where the lease is not held with that token any more, for whoever runs hooks has decided about this one.
-- The caller has the scope's row locked. Locks what the hooks lock.
create or replace function leasehold.run_hooks(p_event leasehold.lease_event) returns void
language plpgsql
as $$
declare
  v_running text := current_setting('leasehold.hook_tokens', true);
begin
  perform leasehold.call_hooks(p_event);
  perform set_config('leasehold.hook_tokens', coalesce(v_running, ''), true)
     from leasehold.scope s
    where s.namespace = p_event.namespace and s.key = p_event.key and s.token = p_event.token and s.state = 'held';
  if not found then
    perform leasehold.refuse_end_by_hook();
  end if;
end
$$;

-- What it is told that ends its own lease.
create or replace function leasehold.refuse_end_by_hook() returns void
language plpgsql
as $$
begin
  raise exception 'a hook has itself ended the lease that it was called for';
end
$$;

-- The names of the hooks of an event, in the order in which they are called. Raises where one must not be. Locks nothing.
create or replace function leasehold.hooks_of(p_namespace text, p_event text) returns text[]
language plpgsql stable
as $$
declare
  v_functions text[];
  v_bad text;
begin
  select array_agg(h.function_name order by length(h.namespace), h.position),
         min(h.function_name) filter (where not h.is_good)
    into v_functions, v_bad
    from (select r.namespace, r.position, r.function_name,
                 -- Whom it runs as: what may change without our knowing. The rest its call finds out.
                 p.oid is not null and pg_has_role(p.proowner, 'leasehold_admin', 'member')
                 and (p.prosecdef or pg_has_role(p.proowner, current_user, 'member')) as is_good
            from leasehold.registered_hook r
            left join pg_proc p
              on p.oid = to_regprocedure(r.function_name)
           where r.event = p_event
             and r.namespace = any (array(
                   select array_to_string(n.segments[:depth], '.')
                     from (select string_to_array(p_namespace, '.') as segments) n
                    cross join lateral generate_series(0, cardinality(n.segments)) depth))
          offset 0) h;
  if v_bad is not null then
    raise exception 'the % hook % cannot be run: it must be %', p_event, v_bad, leasehold.hook_problem(to_regprocedure(v_bad));
  end if;
  return coalesce(v_functions, '{}');
end
$$;

-- The calls alone: leaves the token in leasehold.hook_tokens, and the look at what has become of the lease to the caller. In few
-- statements, for it runs for each of 100,000 leases: a statement more was 10 to 20 us.
create or replace function leasehold.call_hooks(p_event leasehold.lease_event) returns void
language plpgsql
as $$
declare
  v_running text := coalesce(current_setting('leasehold.hook_tokens', true), '');
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
  select leasehold.hooks_of(p_event.namespace, p_event.event),
         set_config('leasehold.hook_tokens', v_running || ',' || p_event.token || ',', true)
    into v_functions;
  foreach v_function in array v_functions loop
    perform leasehold.call_hook(v_function, p_event);
  end loop;
end
$$;

-- Call one. In a function of its own, which gives it settings as they usually are, and takes back what it sets.
create or replace function leasehold.call_hook(p_function_name text, p_event leasehold.lease_event) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = on
set enable_hashjoin = on
set enable_mergejoin = on
set plan_cache_mode = auto
as $$
begin
  execute 'select ' || left(p_function_name, -length('(leasehold.lease_event)')) || '($1)' using p_event;
end
$$;

-- The same in a subtransaction, and then, where `p_end` names a lease, its end. Returns null, or the veto in words. A cancelled
-- statement is raised again, unless it is a daemon's, or reap()'s own timeout.
create or replace function leasehold.try_hooks(p_event leasehold.lease_event, p_end leasehold.lease_end default null)
returns text
language plpgsql
as $$
declare
  v_mode text := current_setting('leasehold.hooks', true);
begin
  perform leasehold.run_hooks(p_event);
  if (p_end).namespace is not null then
    perform leasehold.end_leases(array[p_end], clock_timestamp());
  end if;
  return null;
exception
  when query_canceled then
    if v_mode = 'on' or (v_mode = 'reap' and leasehold.is_timed_out()) then
      return leasehold.veto_text(sqlstate, sqlerrm);
    end if;
    raise;
  when serialization_failure then
    -- The caller's transaction has to be repeated as a whole.
    if leasehold.is_blind() and v_mode is distinct from 'reap' then
      raise;
    end if;
    return leasehold.veto_text(sqlstate, sqlerrm);
  when others or assert_failure then
    return leasehold.veto_text(sqlstate, sqlerrm);
end
$$;

-- What a hook's error is told as. A daemon counts timeouts by how their words begin. Locks nothing.
create or replace function leasehold.veto_text(p_state text, p_message text) returns text
language plpgsql stable
as $$
begin
  return case
    when p_state <> '57014' then coalesce(nullif(left(p_message, 1024), ''), 'SQLSTATE ' || p_state)
    when leasehold.is_timed_out()
      then format('the hook ran over its limit of %s s', leasehold.seconds_text(current_setting('statement_timeout')::interval))
    else 'the hook was cancelled'
  end;
end
$$;

-- Has this statement run for as long as its timeout allows? The timeout fires once: from then on nothing bounds it. A tenth
-- less will do, for the timeout counts from the Bind of a statement, and statement_timestamp() is its Execute. Locks nothing.
create or replace function leasehold.is_timed_out() returns boolean
language sql stable
as $$
  select current_setting('statement_timeout') <> '0'
         and clock_timestamp() >= statement_timestamp() + current_setting('statement_timeout')::interval * 0.9
$$;

-- The limit of a namespace's hooks in microseconds, as a daemon is told of it. Locks nothing.
create or replace function leasehold.hook_limit(p_namespace text) returns text
language sql stable
as $$
  select leasehold.to_us(r.hook_timeout)::text from leasehold.policies_of(array[p_namespace]) r
$$;

-- Run the hooks of the items of a heartbeat, release or leave batch that are to be done (outcome ok): where one vetoes, the outcome
-- is rejected; where this caller runs none, hooked. `error` is then the veto, or the limit. `p_event` null: release_ok or
-- release_fail, as the item says; `p_now` is the time of a heartbeat. The caller has the rows locked.
create or replace function leasehold.hook_items(
  p_work leasehold.item_work[], p_event text, p_runs boolean, p_now timestamptz)
returns leasehold.item_work[]
language plpgsql
as $$
declare
  v_namespaces text[] := array(select distinct w.namespace from unnest(p_work) w where w.outcome = 'ok');
  v_event_hooked text[];
  v_failure_hooked text[];
  v_work leasehold.item_work[];
begin
  v_event_hooked := leasehold.hooked(v_namespaces, coalesce(p_event, 'release_ok'));
  v_failure_hooked := leasehold.hooked(v_namespaces, coalesce(p_event, 'release_fail'));
  if v_event_hooked = '{}' and v_failure_hooked = '{}' then
    return p_work;
  end if;
  v_work := array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, w.is_failure, w.result,
               case when w.is_hooked and not p_runs then leasehold.hook_limit(w.namespace) else coalesce(w.veto, w.error) end,
               w.scope, w.hold,
               case when w.is_hooked and not p_runs then 'hooked' when w.veto is not null then 'rejected' else w.outcome end,
               w.end_reason, w.head_coordinator, w.head_lease_key, w.waiters_ahead)::leasehold.item_work
      from (select h.*,
                   case when h.is_hooked and p_runs
                        then leasehold.try_hooks(leasehold.event_of(
                               coalesce(p_event, case when h.is_failure then 'release_fail' else 'release_ok' end), h.scope,
                               case when p_event = 'heartbeat' then p_now + (h.scope).duration else (h.scope).deadline end,
                               h.result, h.error)) end as veto
              from (select u.*,
                           u.outcome = 'ok'
                           and u.namespace = any (case when u.is_failure then v_failure_hooked else v_event_hooked end) as is_hooked
                      from unnest(p_work) u
                    offset 0) h
            offset 0) w);
  return case when p_runs then leasehold.mark_changed(v_work) else v_work end;
end
$$;

-- Leases that were to be changed, but are not held as they were any more, for another one's hook has ended them: the outcome
-- ok becomes lost. Locks nothing.
create or replace function leasehold.mark_changed(p_work leasehold.item_work[]) returns leasehold.item_work[]
language plpgsql
as $$
begin
  return array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, w.is_failure, w.result, w.error, w.scope, w.hold,
               case when w.outcome = 'ok' and s.is_there is null then 'lost' else w.outcome end,
               case when w.outcome = 'ok' and s.is_there is null then 'unknown' else w.end_reason end,
               w.head_coordinator, w.head_lease_key, w.waiters_ahead)::leasehold.item_work
      from unnest(p_work) w
      left join lateral (
        select true as is_there
          from leasehold.scope x
         where x.namespace = w.namespace and x.key = w.key and x.state = 'held' and x.token = (w.scope).token) s on true);
end
$$;

-- Is an expired lease left alone, for reaping it has failed? Until its next try, and after too many failures for good.
-- Locks nothing.
create or replace function leasehold.is_put_off(p_scope leasehold.scope, p_max_failures integer, p_now timestamptz)
returns boolean
language sql immutable
as $$
  select coalesce((p_scope).reap_failures, 0) > 0
         and coalesce((p_scope).next_try_at > p_now, (p_scope).reap_failures >= p_max_failures)
$$;

-- Write down that reaping a lease has failed: the next try is 1 s later, then twice as long each time, at most 5 min; after
-- max_reap_failures it stays for a person. Returns the scope as it is then; null when it is not held with that token.
-- The caller has the row locked.
create or replace function leasehold.note_reap_failure(
  p_namespace text, p_key text, p_token bigint, p_error text, p_max_failures integer)
returns leasehold.scope
language plpgsql
set enable_seqscan = off
set jit = off
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_scope leasehold.scope;
begin
  update leasehold.scope s
     set reap_failures = s.reap_failures + 1,
         reap_error = left(p_error, 1024),
         reap_failed_at = v_now,
         next_try_at = case when s.reap_failures + 1 < p_max_failures
                            then v_now + least(interval '1 s' * 2 ^ least(s.reap_failures, 9), interval '5 min') end,
         check_at = case when s.reap_failures + 1 < p_max_failures
                         then v_now + least(interval '1 s' * 2 ^ least(s.reap_failures, 9), interval '5 min')
                         else 'infinity' end
   where s.namespace = p_namespace and s.key = p_key and s.token = p_token and s.state = 'held'
  returning s.* into v_scope;
  return v_scope;
end
$$;

revoke execute on function leasehold.runs_hooks(boolean), leasehold.hooked(text[], text), leasehold.hook_problem(oid),
  leasehold.event_of(text, leasehold.scope, timestamptz, jsonb, text), leasehold.run_hooks(leasehold.lease_event),
  leasehold.hooks_of(text, text),
  leasehold.call_hooks(leasehold.lease_event), leasehold.call_hook(text, leasehold.lease_event),
  leasehold.refuse_end_by_hook(), leasehold.veto_text(text, text), leasehold.try_hooks(leasehold.lease_event, leasehold.lease_end),
  leasehold.is_timed_out(),
  leasehold.hook_limit(text), leasehold.hook_items(leasehold.item_work[], text, boolean, timestamptz),
  leasehold.mark_changed(leasehold.item_work[]), leasehold.is_put_off(leasehold.scope, integer, timestamptz),
  leasehold.note_reap_failure(text, text, bigint, text, integer) from public;
