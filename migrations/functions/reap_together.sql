-- Reap several leases of one namespace through its hooks in one transaction: what reap_batch() has told a daemon of as hooked.
-- Returns the tokens of those that were reaped. Whatever else happens, be it a veto, a limit that was run over or a hook that has
-- meddled with another of these leases, is an error and undoes all of it: reap_hooked() then does each of them alone, and only that
-- counts. So nothing is recorded here, and nothing done that needs more than the row: a lease that somebody waits for, that has failed
-- before, that is busy, guarded or not expired is left alone.
--
-- A transaction for each lease cost twice as much, most of it for what PostgreSQL prepares anew in each transaction.
--
-- The caller's statement_timeout bounds all of them together. It is short, for what one's hook has locked stays locked until the last
-- one's has run; and shorter than any deadlock_timeout, so that whoever waits for us is never the victim.
-- Locks the rows FOR UPDATE SKIP LOCKED, then what the hooks lock.
create or replace function leasehold_internal.reap_together(
  p_clock timestamptz, p_namespace text, p_keys text[], p_tokens bigint[])
returns setof bigint
language plpgsql
security definer
-- As hooks usually find them.
{{hooks.settings}}
set jit = off
as $$
declare
  v_is_lazy boolean := coalesce(current_setting('leasehold.lazy', true), '') = 'on' and current_setting('synchronous_commit') = 'off';
  v_scopes leasehold.scope[];
  v_before record;
begin
  perform set_config('leasehold.hooks', 'on', true);
  if leasehold_internal.is_blind() then
    return;
  end if;
  v_scopes := leasehold_internal.lock_expired(p_clock, p_namespace, p_keys, p_tokens);
  if v_scopes = '{}' then
    return;
  end if;
  select d.* into v_before from leasehold_internal.deferrable_changes() d;
  return query execute leasehold_internal.reaping_query(p_namespace) using v_scopes, leasehold_internal.hook_salt();
  perform leasehold_internal.run_deferred(v_before.tables, v_before.counts);
  perform leasehold_internal.tell_reaped(v_scopes);
  -- A hook may have set it otherwise.
  if v_is_lazy and current_setting('synchronous_commit') <> 'off' then
    perform set_config('synchronous_commit', 'off', true);
  elsif not v_is_lazy then
    perform leasehold_internal.be_durable();
  end if;
end
$$;
comment on function leasehold_internal.reap_together is 'Reap several leases through their hooks, all or nothing, by a coordinator';

-- Those of these leases that are to be reaped together, in this order. Locks their rows FOR UPDATE SKIP LOCKED.
create or replace function leasehold_internal.lock_expired(
  p_clock timestamptz, p_namespace text, p_keys text[], p_tokens bigint[])
returns leasehold.scope[]
language plpgsql
{{joins.settings}}
set plan_cache_mode = force_generic_plan
as $$
declare
  v_scopes leasehold.scope[];
  v_life leasehold.life_now;
  v_expiry text;
  v_now timestamptz;
begin
  v_scopes := array(
    select l.scope
      from unnest(p_keys, p_tokens) with ordinality w (key, token, n)
     cross join lateral (
       select s as scope
         from leasehold.scope s
        where s.namespace = p_namespace and s.key = w.key and s.state = 'held' and s.token = w.token
          for update skip locked) l
     order by w.n);
  select r.expiry into v_expiry from leasehold_internal.policies_of(array[p_namespace]) r;
  v_now := clock_timestamp();
  v_life := leasehold_internal.life(p_clock);
  return array(
    select s
      from unnest(v_scopes) s
     where leasehold_internal.is_expired(s, v_life, v_expiry, v_now) and not s.queued and s.reap_failures = 0
       and not exists (select from leasehold.waiter q
                        where q.coordinator is null and q.namespace = s.namespace and q.key = s.key));
end
$$;

-- The query that for each lease in its first argument, a leasehold.scope[], calls the hooks and then ends it. Planned once for all of them:
-- planning was most of what a call cost. Each hook finds the search_path that it was promised, whatever the one before it has set.
-- Locks nothing.
create or replace function leasehold_internal.reaping_query(p_namespace text) returns text
language plpgsql
as $$
declare
  v_calls text := '';
  v_function text;
begin
  foreach v_function in array leasehold_internal.hooks_of(p_namespace, 'reap') loop
    perform leasehold_internal.check_hook(v_function, 'reap');
    v_calls := v_calls
               || left(v_function, -length('(leasehold.lease_event)'))
               || $q$(leasehold_internal.event_of('reap', s, s.deadline, null, null)) is null,
                  pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true) is null,$q$;
  end loop;
  return $q$select leasehold_internal.end_reaped(s, array[
              pg_catalog.set_config('leasehold.hook_tokens', pg_catalog.md5($2 || ',' || s.token || ',') || ',' || s.token || ',', true)
                is null,$q$ || v_calls || $q$ true])
              from pg_catalog.unnest($1) s$q$;
end
$$;

-- End a lease whose hooks have run: they are an argument, for arguments are evaluated first. As reap_hooked() ends one that nobody
-- waits for. Returns its token. The caller has the row locked.
create or replace function leasehold_internal.end_reaped(p_scope leasehold.scope, p_have_run boolean[]) returns bigint
language plpgsql
set enable_seqscan = off
as $$
begin
  -- check_at stays, so that it is HOT.
  update leasehold.scope s
     set {{free.set}},
         {{ended.set w}}
    from (select clock_timestamp() as now, 'expired' as outcome, null::jsonb as result, null::text as error) w
   where s.namespace = p_scope.namespace and s.key = p_scope.key and s.state = 'held' and s.token = p_scope.token;
  if not found then
    perform leasehold_internal.refuse_end_by_hook();
  end if;
  return p_scope.token;
end
$$;

-- What has been reaped goes into the history, to limits, and to who watches. That is asked after the change: who begins to watch meanwhile
-- misses nothing. Locks what tell_watchers() does.
create or replace function leasehold_internal.tell_reaped(p_scopes leasehold.scope[]) returns void
language plpgsql
{{joins.settings}}
set plan_cache_mode = force_generic_plan
as $$
declare
  v_has_history boolean := exists (select from leasehold.policy p where p.history);
  v_namespaces text[];
  v_keys text[];
begin
  if exists (select from leasehold.policy p where p.max_leases is not null) then
    perform leasehold_internal.note_leases(array(select s.namespace from unnest(p_scopes) s), -1);
  end if;
  if not v_has_history and not exists (select from leasehold.watch) then
    return;
  end if;
  select array_agg(s.namespace), array_agg(s.key) into v_namespaces, v_keys from unnest(p_scopes) s;
  -- They are told as they are now, so a later one's hook must not have changed them.
  if exists (select
               from unnest(p_scopes) w
              cross join lateral (
                select x.state, x.token from leasehold.scope x where x.namespace = w.namespace and x.key = w.key) s
              where s.state <> 'free' or s.token <> w.token) then
    raise exception 'a hook has changed a lease that was reaped with its own';
  end if;
  if v_has_history then
    perform leasehold_internal.record_holds(null, clock_timestamp(), v_namespaces, v_keys);
  end if;
  perform leasehold_internal.tell_watchers(v_namespaces, v_keys);
end
$$;

grant execute on function leasehold_internal.reap_together to leasehold_coordinator, leasehold_admin;
