-- Promise 5: guard.
-- Until the end of the caller's transaction nobody else can get this scope; where the lease is shared, nobody can get it exclusively. Returns
-- nothing; raises LH001 unless the scope is held with this token and not expired.
-- Locks leasehold.guard_session ROW SHARE, by which daemons see how long a guard is open, and waits for nobody there; then
-- the scope's row FOR KEY SHARE, which whoever ends or grants a lease waits for or skips, and heartbeats do not; of a shared lease its own row
-- alone, so that other holders come and go; then validates in a statement of its own, which sees what was committed before the lock.
create or replace function leasehold.guard(namespace text, key text, token bigint) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_denial text := leasehold_internal.denial('guard', guard.namespace);
  v_scope leasehold.scope;
  v_expiry text;
  v_now timestamptz;
  v_problem leasehold_internal.problem := leasehold_internal.scope_problem(guard.namespace, guard.key);
begin
  if v_problem.field is null and guard.token is null then
    v_problem := row('token', 'the token of the lease');
  end if;
  if v_problem.field is not null then
    raise exception 'invalid_argument: % must be %', v_problem.field, v_problem.bound
      using errcode = 'LH002', detail = v_problem.field, hint = v_problem.bound;
  end if;
  if v_denial is not null then
    raise exception '%', v_denial using errcode = 'LH007';
  end if;
  lock table leasehold.guard_session in row share mode;
  perform 1 from leasehold.scope s where s.namespace = guard.namespace and s.key = guard.key and s.state <> 'shared' for key share;
  if found then
    select s.* into v_scope from leasehold.scope s where s.namespace = guard.namespace and s.key = guard.key;
  else
    v_scope := leasehold_internal.guard_share(guard.namespace, guard.key, guard.token);
  end if;
  if v_scope.state = 'held' and v_scope.token = guard.token and not v_scope.lapsed then
    select r.expiry into v_expiry from leasehold_internal.policies_of(array[guard.namespace]) r;
    v_now := clock_timestamp();
    if not leasehold_internal.is_expired(v_scope, leasehold_internal.life(null), v_expiry, v_now) then
      return;
    end if;
    perform leasehold_internal.check_life_mark();
  end if;
  raise exception 'lease_lost: % is not held with token %', leasehold_internal.scope_name(guard.namespace, guard.key), guard.token
    using errcode = 'LH001';
end
$$;
comment on function leasehold.guard is
  'Raise lease_lost unless the scope is held with this token; if it passes, nobody else gets the scope before the transaction ends. Example:
  select leasehold.guard(''jobs'', ''nightly'', :token)';

-- The shared lease with this token, as scope_of_share() has it; null where it is not held. An old snapshot that cannot know the token is turned away
-- (40001). Locks its row FOR KEY SHARE.
create or replace function leasehold_internal.guard_share(p_namespace text, p_key text, p_token bigint) returns leasehold.scope
language plpgsql
as $$
begin
  perform 1
     from leasehold.share h
    where h.namespace = p_namespace and h.key = p_key and h.token = p_token and h.state = 'held'
      for key share;
  if not found and leasehold_internal.is_blind()
     and exists (select from leasehold.scope s where s.namespace = p_namespace and s.key = p_key and s.token < p_token) then
    raise exception 'could not serialize access: the lease was granted since the transaction''s snapshot was taken'
      using errcode = 'serialization_failure', hint = 'The transaction might succeed if retried.';
  end if;
  return (select leasehold_internal.scope_of_share(h)
            from leasehold.share h
           where h.namespace = p_namespace and h.key = p_key and h.token = p_token and h.state = 'held');
end
$$;

-- The other sessions that have an open guard in this database, without those of daemons, whose hooks have their own limit. A prepared
-- transaction has no session. Locks nothing.
create or replace function leasehold_internal.guarding() returns table (pid integer, transaction text)
language sql volatile
as $$
  select l.pid, l.virtualtransaction
    from pg_locks l
    join pg_stat_activity a
      on a.pid = l.pid
    join pg_roles r
      on r.oid = a.usesysid
   where l.locktype = 'relation' and l.granted and l.mode = 'RowShareLock'
     and l.database = (select d.oid from pg_database d where d.datname = current_database())
     and l.relation = 'leasehold.guard_session'::regclass
     and l.pid <> pg_backend_pid()
     and (r.rolsuper or not pg_has_role(r.oid, 'leasehold_coordinator', 'member'))
$$;

-- End a session. Returns null, or why it may not be ended. Locks nothing.
create or replace function leasehold_internal.end_session(p_pid integer) returns text
language plpgsql
as $$
begin
  perform pg_terminate_backend(p_pid);
  return null;
exception when insufficient_privilege then
  return case
    when (select r.rolsuper from pg_stat_activity a join pg_roles r on r.oid = a.usesysid where a.pid = p_pid)
      then 'it is a superuser''s session, which only a superuser may end'
    else 'Leasehold may not end sessions, unless somebody runs: grant pg_signal_backend to leasehold_owner'
  end;
end
$$;

-- End the sessions whose guard has been open for longer than `p_max_guard`, counted from when a daemon first saw it. Returns a row for
-- each: the session in words, and `trouble` where it may not be ended. Called by daemons every few seconds; of several at once one looks.
-- Locks the row 'guards' of leasehold.turn, without waiting, where any guard is open.
create or replace function leasehold_internal.end_long_guards(p_max_guard interval) returns table (session text, trouble text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_pids integer[];
  v_transactions text[];
  v_pid integer;
begin
  select coalesce(array_agg(g.pid), '{}'), coalesce(array_agg(g.transaction), '{}') into v_pids, v_transactions from leasehold_internal.guarding() g;
  if v_pids = '{}' and not exists (select from leasehold.guard_session) then
    return;
  end if;
  perform 1 from leasehold.turn t where t.name = 'guards' for update skip locked;
  if not found then
    return;
  end if;
  -- After a restart the numbers of processes and transactions begin anew; a clock that was set back begins anew, too.
  delete from leasehold.guard_session s
   where s.seen_at < pg_postmaster_start_time() or s.seen_at > v_now
      or not exists (select from unnest(v_pids, v_transactions) as g (pid, transaction)
                      where g.pid = s.pid and g.transaction = s.transaction);
  insert into leasehold.guard_session (pid, transaction, seen_at)
  select distinct g.pid, g.transaction, v_now
    from unnest(v_pids, v_transactions) as g (pid, transaction)
      on conflict do nothing;
  for v_pid in select s.pid from leasehold.guard_session s where s.seen_at <= v_now - p_max_guard order by s.seen_at, s.pid loop
    session := leasehold_internal.session_text(v_pid);
    trouble := leasehold_internal.end_session(v_pid);
    return next;
  end loop;
end
$$;
comment on function leasehold_internal.end_long_guards is 'End sessions whose guard has been open for too long, by a coordinator';

revoke execute on function leasehold.guard(text, text, bigint), leasehold_internal.guard_share(text, text, bigint), leasehold_internal.guarding(), leasehold_internal.end_session(integer),
  leasehold_internal.end_long_guards(interval) from public;
grant execute on function leasehold_internal.end_long_guards(interval) to leasehold_coordinator, leasehold_admin;
grant execute on function leasehold.guard(text, text, bigint) to leasehold_client, leasehold_admin;
