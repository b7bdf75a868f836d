-- Have a function run at an event of a namespace and of all below it. Returns whether it is new there. It acts at once; leases
-- that could not be reaped are tried again now.
-- Locks what mark_hooks() does, the hook's row, and what retry_reaps() does.
create or replace function leasehold.add_hook(namespace text, event text, function regprocedure) returns boolean
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_name text := leasehold_internal.hook_name(add_hook.function);
  v_is_new boolean;
  v_problem leasehold_internal.problem := leasehold_internal.hook_event_problem(add_hook.namespace, add_hook.event);
begin
  if v_problem.field is null and leasehold_internal.hook_problem(add_hook.function) <> '' then
    v_problem := row('function', leasehold_internal.hook_problem(add_hook.function));
  end if;
  {{refused.text}}
  perform leasehold_internal.mark_hooks();
  insert into leasehold.registered_hook (namespace, event, function_name, added_at)
  values (add_hook.namespace, add_hook.event, v_name, clock_timestamp())
      on conflict do nothing;
  v_is_new := found;
  if v_is_new then
    perform leasehold_internal.audit_add(null, null, 'hook_add', add_hook.namespace, null, null, add_hook.event || ': ' || v_name);
  end if;
  if not exists (select
                   from pg_proc p, unnest(p.proconfig) c
                  where p.oid = add_hook.function and starts_with(c, 'search_path=')) then
    raise notice 'the hook % has no "set search_path": it runs with pg_catalog, pg_temp, and must qualify every other name',
      v_name;
  end if;
  if add_hook.event = 'reap' then
    perform leasehold_internal.retry_reaps(add_hook.namespace);
  end if;
  return v_is_new;
end
$$;
comment on function leasehold.add_hook is
  'Run a function f(leasehold.lease_event) returns void at an event of a namespace and all below it; an error in it vetoes. Example:
  select leasehold.add_hook(''jobs'', ''reap'', ''app.clean_up(leasehold.lease_event)'')';

-- The opposite. Returns whether it was there. For a function that does not exist any more: remove_hook_named().
-- Locks what mark_hooks() does, the hook's row, and what retry_reaps() does.
create or replace function leasehold.remove_hook(namespace text, event text, function regprocedure) returns boolean
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_problem leasehold_internal.problem := leasehold_internal.hook_event_problem(remove_hook.namespace, remove_hook.event);
begin
  if v_problem.field is null and remove_hook.function is null then
    v_problem := row('function', 'a function');
  end if;
  {{refused.text}}
  return leasehold.remove_hook_named(remove_hook.namespace, remove_hook.event, leasehold_internal.hook_name(remove_hook.function));
end
$$;
comment on function leasehold.remove_hook is
  'Run a function at an event of a namespace no more: whether it did. Example:
  select leasehold.remove_hook(''jobs'', ''reap'', ''app.clean_up(leasehold.lease_event)'')';

-- The same by the name that leasehold.hook shows, whether there is such a function or not.
create or replace function leasehold.remove_hook_named(namespace text, event text, function_name text) returns boolean
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_is_gone boolean;
  v_problem leasehold_internal.problem := leasehold_internal.hook_event_problem(remove_hook_named.namespace, remove_hook_named.event);
begin
  {{refused.text}}
  perform leasehold_internal.mark_hooks();
  delete from leasehold.registered_hook h
   where h.namespace = remove_hook_named.namespace and h.event = remove_hook_named.event
     and h.function_name = remove_hook_named.function_name;
  v_is_gone := found;
  if v_is_gone then
    perform leasehold_internal.audit_add(null, null, 'hook_remove', remove_hook_named.namespace, null, null,
                                         remove_hook_named.event || ': ' || remove_hook_named.function_name);
  end if;
  if v_is_gone and remove_hook_named.event = 'reap' then
    perform leasehold_internal.retry_reaps(remove_hook_named.namespace);
  end if;
  return v_is_gone;
end
$$;
comment on function leasehold.remove_hook_named is
  'Remove a hook by the function_name that leasehold.hook shows, also when its function was dropped: whether it was there. Example:
  select leasehold.remove_hook_named(''jobs'', ''reap'', ''app.clean_up(leasehold.lease_event)'')';

-- One after the other: a snapshot in which the marked transaction has ended sees what all before it changed (check_rule_marks). Writes the row 'hooks' of
-- leasehold.turn: by its version leasehold_core knows the hooks that it has read.
create or replace function leasehold_internal.mark_hooks() returns void
language plpgsql
as $$
begin
  update leasehold.turn t set name = t.name where t.name = 'hooks';
  perform setval('leasehold.hook_mark', pg_current_xact_id()::text::bigint);
end
$$;

-- What is wrong with a namespace ('' is the root) or event; null when nothing is. Locks nothing.
create or replace function leasehold_internal.hook_event_problem(p_namespace text, p_event text)
returns leasehold_internal.problem
language plpgsql immutable parallel safe
as $$
begin
  return coalesce(
    leasehold_internal.subtree_problem(p_namespace),
    case when p_event is null or p_event not in ('acquire', 'heartbeat', 'release_ok', 'release_fail', 'reap')
         then row('event', 'one of acquire, heartbeat, release_ok, release_fail, reap')::leasehold_internal.problem end);
end
$$;

-- Let the leases of a subtree that could not be reaped be tried now. Locks their rows FOR NO KEY UPDATE SKIP LOCKED.
create or replace function leasehold_internal.retry_reaps(p_namespace text) returns void
language sql volatile
as $$
  update leasehold.scope s
     set next_try_at = clock_timestamp(),
         check_at = clock_timestamp()
    from (select x.namespace, x.key
            from leasehold.scope x
           where x.reap_failures > 0 and x.state = 'held' and leasehold_internal.is_in_subtree(x.namespace, p_namespace)
           order by x.namespace, x.key
             for no key update skip locked) a
   where s.namespace = a.namespace and s.key = a.key;
  update leasehold.share h
     set next_try_at = clock_timestamp(),
         check_at = clock_timestamp()
    from (select x.namespace, x.key, x.lease_key
            from leasehold.share x
           where x.reap_failures > 0 and x.state = 'held' and leasehold_internal.is_in_subtree(x.namespace, p_namespace)
           order by x.namespace, x.key, x.lease_key
             for no key update skip locked) a
   where h.namespace = a.namespace and h.key = a.key and h.lease_key = a.lease_key
$$;

create or replace view leasehold.hook with (security_barrier) as
  select h.namespace, h.event, leasehold_internal.hook_function(h.function_name) as function, h.function_name,
         row_number() over (partition by h.namespace, h.event order by h.position) as position,
         h.added_at
    from leasehold.registered_hook h
   where coalesce((h.namespace || '.') like any ((select leasehold_internal.readable())::text[]), false);
comment on view leasehold.hook is 'The functions that run when a lease changes, in its transaction; the parents'' run first';
comment on column leasehold.hook.namespace is 'For this namespace and all below it; '''' is everything';
comment on column leasehold.hook.event is 'acquire, heartbeat, release_ok, release_fail, reap';
comment on column leasehold.hook.function is 'The function; null: it does not exist any more, so that every such change is vetoed';
comment on column leasehold.hook.function_name is 'Its name, qualified';
comment on column leasehold.hook.position is 'Of several for one namespace and event, 1 runs first';
comment on column leasehold.hook.added_at is 'Since when';

create or replace view leasehold.reap_failure with (security_barrier) as
  select s.namespace, s.key, s.token, s.owner, s.reap_failures, s.error, s.failed_at, s.next_try_at
    from (select x.namespace, x.key, x.token, x.owner, x.reap_failures, x.reap_error as error, x.reap_failed_at as failed_at, x.next_try_at, x.lapsed, x.deadline
            from leasehold.scope x
           where x.reap_failures > 0 and x.state = 'held'
          union all
          select h.namespace, h.key, h.token, h.owner, h.reap_failures, h.reap_error, h.reap_failed_at, h.next_try_at, h.lapsed, h.deadline
            from leasehold.share h
           where h.reap_failures > 0 and h.state = 'held') s
   where (s.lapsed or s.deadline <= statement_timestamp())
     and coalesce((s.namespace || '.') like any ((select leasehold_internal.readable())::text[]), false);
comment on view leasehold.reap_failure is 'Expired leases that could not be reaped, for a callback failed; nobody else gets them';
comment on column leasehold.reap_failure.namespace is 'Dotted: payments.invoices';
comment on column leasehold.reap_failure.key is 'The name inside of the namespace';
comment on column leasehold.reap_failure.token is 'Fencing token of the lease';
comment on column leasehold.reap_failure.owner is 'Who held it';
comment on column leasehold.reap_failure.reap_failures is 'How often it has failed';
comment on column leasehold.reap_failure.error is 'What the callback said last';
comment on column leasehold.reap_failure.failed_at is 'When it failed last';
comment on column leasehold.reap_failure.next_try_at is
  'When it is tried again; null: it has failed max_reap_failures times, and waits for a reap() that names its namespace';

-- Members of leasehold_owner register hooks: what runs as that role is theirs to say.
revoke execute on function leasehold.add_hook, leasehold.remove_hook, leasehold.remove_hook_named from leasehold_admin;
grant execute on function leasehold_internal.hook_function, leasehold_internal.hook_name
  to leasehold_reader, leasehold_coordinator, leasehold_admin;
grant select on leasehold.hook, leasehold.reap_failure to leasehold_reader, leasehold_coordinator, leasehold_admin;
grant select on leasehold.registered_hook to leasehold_admin;
