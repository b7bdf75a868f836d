-- Promise 5: guard.
-- Until the end of the caller's transaction nobody else can get this scope; where the lease is shared, nobody can get it exclusively. Returns
-- nothing; raises LH001 unless the scope is held with this token and not expired.
--
-- Tokens are drawn one after the other, so that another's is easily guessed, and a guard delays the end of its lease: a token alone does not
-- say that the caller has to do with it. (Gaps of chance would have to be larger than the bits that are left in a token.) A lease that a
-- SQL user acquired is guarded by its role, by a role that is a member of that one, or by whoever knows its lease key too. A lease of a
-- daemon's client is guarded by the application's database role, of which the daemon knows nothing: there the token is enough. Once
-- rules name roles, the right `guard` lets a role guard any lease by its token; with the right `lease` alone it guards its own, and others by
-- their lease keys, which cannot be guessed.
-- Locks leasehold.guard_session ROW SHARE, by which daemons see how long a guard is open, and waits for nobody there; then
-- the scope's row FOR KEY SHARE, which whoever ends or grants a lease waits for or skips, and heartbeats do not; of a shared lease its own row
-- alone, so that other holders come and go; then validates in a statement of its own, which sees what was committed before the lock.
create or replace function leasehold.guard(namespace text, key text, token bigint, lease_key uuid default null) returns void
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_needs_key constant boolean := leasehold_internal.guards_by_key(guard.namespace);
  v_denial text := leasehold_internal.denial(case when v_needs_key then 'lease' else 'guard' end, guard.namespace);
  v_scope leasehold.scope;
  v_expiry text;
  v_now timestamptz;
  v_life leasehold.life_now;
  v_problem leasehold_internal.problem := leasehold_internal.scope_problem(guard.namespace, guard.key);
begin
  if v_problem.field is null and guard.token is null then
    v_problem := row('token', 'the token of the lease');
  end if;
  {{checked.text}}
  lock table leasehold.guard_session in row share mode;
  perform 1 from leasehold.scope s where s.namespace = guard.namespace and s.key = guard.key and s.state <> 'shared' for key share;
  if found then
    select s.* into v_scope from leasehold.scope s where s.namespace = guard.namespace and s.key = guard.key;
  else
    v_scope := leasehold_internal.guard_share(guard.namespace, guard.key, guard.token);
  end if;
  if v_scope.state = 'held' and v_scope.token = guard.token and not v_scope.lapsed and v_scope.lease_key = coalesce(guard.lease_key, v_scope.lease_key) then
    select r.expiry into v_expiry from leasehold_internal.policies_of(array[guard.namespace]) r;
    v_now := clock_timestamp();
    v_life := leasehold_internal.life(null);
    if not leasehold_internal.is_expired(v_scope, v_life, v_expiry, v_now) then
      if guard.lease_key is null and not leasehold_internal.may_guard(v_scope, v_needs_key) then
        raise exception 'access_denied: the role % did not acquire %, and is no member of the role that did%',
            session_user, leasehold_internal.scope_name(guard.namespace, guard.key),
            case when v_needs_key then format('; it has the right lease in %s, and not the right guard', guard.namespace) else '' end
          using errcode = 'LH007', hint = 'Pass the lease key to guard() as its fourth argument.';
      end if;
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

-- Has the session the right `lease` in a namespace by a rule, and not the right `guard`? Locks nothing.
create or replace function leasehold_internal.guards_by_key(p_namespace text) returns boolean
language plpgsql stable
as $$
begin
  return (select a.names_roles from leasehold.access_state a)
         and not leasehold_internal.session_may('guard', p_namespace) and leasehold_internal.session_may('lease', p_namespace);
end
$$;

-- May the session guard this lease without its lease key? `p_needs_key`: only its own. Locks nothing.
create or replace function leasehold_internal.may_guard(p_scope leasehold.scope, p_needs_key boolean) returns boolean
language plpgsql stable
as $$
begin
  if not p_needs_key
     and (p_scope.granted_by is not null or p_scope.principal is null or p_scope.principal not like 'role:%'
          or (select a.names_roles from leasehold.access_state a)) then
    return true;
  end if;
  return p_scope.granted_by is null
         and (p_scope.principal = 'role:' || session_user
              or p_scope.principal = any (leasehold_internal.session_principals()))
         or leasehold_internal.is_above_rules();
end
$$;

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

-- Guards in prepared transactions, which have no session to end. Locks nothing.
create or replace function leasehold_internal.prepared_guards() returns table (transaction xid, prepared timestamptz)
language sql volatile
as $$
  select p.transaction, p.prepared
    from pg_locks l
    join pg_locks t
      on t.virtualtransaction = l.virtualtransaction and t.locktype = 'transactionid' and t.granted and t.pid is null
    join pg_prepared_xacts p
      on p.transaction = t.transactionid
   where l.locktype = 'relation' and l.granted and l.mode = 'RowShareLock' and l.pid is null
     and l.database = (select d.oid from pg_database d where d.datname = current_database())
     and l.relation = 'leasehold.guard_session'::regclass
$$;

-- End the sessions whose guard has been open for longer than `p_max_guard`, counted from when a daemon first saw it. Returns a row for
-- each: the session in words, and `trouble` where it may not be ended; prepared transactions, counted from their preparation, can only be named. Called by daemons every few seconds; of several at once one looks.
-- Locks the row 'guards' of leasehold.turn, without waiting, where any guard is open.
create or replace function leasehold_internal.end_long_guards(p_max_guard interval) returns table (session text, trouble text)
language plpgsql
security definer
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_pids integer[];
  v_transactions text[];
  v_pid integer;
begin
  select coalesce(array_agg(g.pid), '{}'), coalesce(array_agg(g.transaction), '{}') into v_pids, v_transactions from leasehold_internal.guarding() g;
  if v_pids = '{}' and not exists (select from leasehold.guard_session) and not exists (select from leasehold_internal.prepared_guards()) then
    return;
  end if;
  -- Who does not know how the clock stands ends nobody.
  if not (leasehold_internal.life(null)).is_settled then
    return;
  end if;
  perform 1 from leasehold.turn t where t.name = 'guards' for update skip locked;
  if not found then
    return;
  end if;
  -- After a restart the numbers of processes and transactions begin anew; and a clock that has stepped does.
  delete from leasehold.guard_session s
   where s.seen_at < (select l.started_at from leasehold_internal.this_life() l)
      or s.seen_at > v_now
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
  return query
    select leasehold_internal.prepared_text(g.transaction), 'a prepared transaction has no session'
      from leasehold_internal.prepared_guards() g
     where g.prepared <= v_now - p_max_guard;
end
$$;
comment on function leasehold_internal.end_long_guards is 'End sessions whose guard has been open for too long, by a coordinator';

grant execute on function leasehold_internal.end_long_guards to leasehold_coordinator, leasehold_admin;
grant execute on function leasehold.guard to leasehold_client, leasehold_admin;
