-- End a lease against its holder's will; `p_token` 0 or null: whoever holds it. Returns one row, with `p_all` one for each shared holder; without it
-- and without a token several holders are invalid (the message says what the token must be). A row is: ended with the lease and its
-- lease key, ended without a lease where the scope only rested (which is over then), not_held, or with a message: busy, which names the
-- sessions that have the scope's row, or rejected. Sessions that guard the scope
-- are ended first. `p_by` and `p_peer` are the principal and the address of a daemon's caller; only daemons are believed. The hooks of reaping run, with the reason as
-- their error; where one vetoes (rejected) the lease has not changed.
-- Locks the scope's row FOR UPDATE, and waits for nobody but the end of such sessions; then wakes the first live waiter.
create or replace function leasehold_internal.force_release_one(
  p_namespace text, p_key text, p_reason text, p_token bigint, p_peer text default null,
  p_by text default null, p_all boolean default false)
returns table (
  outcome text, message text, namespace text, key text, lease_key uuid, {{lease.table}}, {{shape.table}})
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_holders leasehold.scope[];
  v_holder leasehold.scope;
  v_locked leasehold.scope;
  v_rules leasehold.rules;
  v_count integer;
  v_now timestamptz;
  v_trouble text;
  v_by text;
begin
  perform leasehold_internal.refuse(leasehold_internal.force_problem(p_namespace, p_key, p_reason));
  -- Who is written down in the history, whatever the session had set.
  v_by := coalesce(nullif(p_by, 'anonymous'), p_peer);
  if v_by is null or not pg_has_role(session_user, 'leasehold_coordinator', 'member') then
    v_by := session_user;
  end if;
  perform set_config('leasehold.ended_by', v_by, true);
  namespace := p_namespace;
  key := p_key;
  v_count := cardinality(leasehold_internal.holders_by_force(p_namespace, p_key, p_token, false));
  if v_count > 1 and not p_all then
    outcome := 'invalid';
    message := format('that of one of the %s holders, or all of them', v_count);
    return next;
    return;
  end if;
  v_trouble := leasehold_internal.lock_by_force(p_namespace, p_key, p_token);
  select s.* into v_locked
    from leasehold.scope s
   where s.namespace = p_namespace and s.key = p_key and v_count > 0
     for update skip locked;
  v_holders := case when found then leasehold_internal.holders_by_force(p_namespace, p_key, p_token, true) else '{}' end;
  -- Another one may have been granted before the lock.
  if cardinality(v_holders) > 1 and not p_all then
    outcome := 'invalid';
    message := format('that of one of the %s holders, or all of them', cardinality(v_holders));
    return next;
    return;
  end if;
  if v_count = 0 and leasehold_internal.end_rest(p_namespace, p_key, p_token) then
    perform leasehold_internal.audit_add(coalesce(p_by, p_peer), p_peer, 'force_release', p_namespace, p_key, nullif(p_token, 0), p_reason);
    outcome := 'ended';
    return next;
    return;
  elsif v_holders = '{}' or cardinality(v_holders) < v_count then
    select case when count(*) = 0 then 'not_held' else 'busy' end,
           case when count(*) > 0 then format('%s is busy: %s', leasehold_internal.scope_name(p_namespace, p_key),
                                              leasehold_internal.row_sessions(p_namespace, p_key) || coalesce('; ' || v_trouble, '')) end
      into outcome, message
      from leasehold.scope s
     where s.namespace = p_namespace and s.key = p_key
       and (v_count > 0
            or leasehold_internal.rests(s, leasehold_internal.life(null), clock_timestamp()) and coalesce(p_token, 0) in (0, s.token));
    if outcome = 'busy' then
      perform leasehold_internal.audit_add(coalesce(p_by, p_peer), p_peer, 'force_release', p_namespace, p_key, nullif(p_token, 0), p_reason, 'refused');
    end if;
    return next;
    return;
  end if;

  select r.* into v_rules from leasehold_internal.policies_of(array[p_namespace]) r;
  foreach v_holder in array v_holders loop
    if leasehold_internal.hooked(array[p_namespace], 'reap') <> '{}' then
      if leasehold_internal.is_timed_out() then
        outcome := 'rejected';
        message := 'hook_rejected: no time was left for its hooks';
        perform leasehold_internal.audit_add(coalesce(p_by, p_peer), p_peer, 'force_release', p_namespace, p_key, v_holder.token, p_reason, 'refused');
        return next;
        continue;
      end if;
      message := 'hook_rejected: ' || leasehold_internal.try_hooks(
                                        leasehold_internal.event_of('reap', v_holder, v_holder.deadline, null, p_reason));
      if message is not null then
        outcome := 'rejected';
        perform leasehold_internal.audit_add(coalesce(p_by, p_peer), p_peer, 'force_release', p_namespace, p_key, v_holder.token, p_reason, 'refused');
        return next;
        continue;
      end if;
    end if;
    v_now := clock_timestamp();
    -- The queue is read in a statement after the lock.
    perform leasehold_internal.end_leases(
              array[row(p_namespace, p_key, 'forced', null, p_reason,
                        leasehold_internal.is_blind()
                        or exists (select 1 from leasehold.waiter w where w.namespace = p_namespace and w.key = p_key),
                        null, case when v_holder.units > 0 then v_holder.lease_key end)::leasehold.lease_end], v_now);
    perform leasehold_internal.audit_add(coalesce(p_by, p_peer), p_peer, 'force_release', p_namespace, p_key, v_holder.token, p_reason);
    return query
      select 'ended', null::text, p_namespace, p_key, v_holder.lease_key, {{lease.columns f}}, {{shape.columns f}}
        from leasehold_internal.lease_facts(v_holder, v_rules, leasehold_internal.life(null), v_now) f;
  end loop;
  perform leasehold_internal.wake_next(p_namespace, p_key);
end
$$;
comment on function leasehold_internal.force_release_one is 'End a lease against its holder''s will, by a coordinator';

-- The same for people. Returns the lease that was ended, with `all_holders` each of them, or no row when it was not held (with that token), or
-- only rested, which is over then (a NOTICE says so); raises 55P03, and names the sessions, when others have the scope's row. Of several holders
-- each ends by itself (promise 8): where hooks veto for some, a WARNING says so; where they veto for all, that is an error (LH005).
create or replace function leasehold.force_release(
  namespace text, key text, reason text, token bigint default null, all_holders boolean default false)
returns setof leasehold.lease
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_leases leasehold.lease[];
  v_lease leasehold.lease;
  v_answer record;
  v_is_any boolean := false;
  v_vetoes text[] := '{}';
  v_problem leasehold_internal.problem := leasehold_internal.force_problem(
                                             force_release.namespace, force_release.key, force_release.reason);
begin
  {{refused.text}}
  perform set_config('leasehold.hooks', 'inline', true);
  -- With the row locked, what is shown is what is ended.
  if force_release.all_holders
     or cardinality(leasehold_internal.holders_by_force(force_release.namespace, force_release.key, force_release.token, false)) < 2 then
    perform leasehold_internal.lock_by_force(force_release.namespace, force_release.key, force_release.token);
  end if;
  perform 1
     from leasehold.scope s
    where s.namespace = force_release.namespace and s.key = force_release.key and s.state <> 'free'
      for update skip locked;
  if found then
    v_leases := array(
      select l from leasehold_internal.leases_of(force_release.namespace, force_release.key, nullif(force_release.token, 0)) l);
  end if;
  for v_answer in
    select f.*, l as lease
      from leasehold_internal.force_release_one(
             force_release.namespace, force_release.key, force_release.reason, force_release.token,
             p_all => coalesce(force_release.all_holders, false)) f
      left join unnest(v_leases) l on l.token = f.token
  loop
    if v_answer.outcome = 'busy' then
      raise exception '%', v_answer.message
        using errcode = '55P03', hint = 'End those sessions, or wait for them, and try again.';
    elsif v_answer.outcome = 'invalid' then
      raise exception 'invalid_argument: token must be %', v_answer.message
        using errcode = 'LH002', detail = 'token', hint = v_answer.message;
    elsif v_answer.outcome = 'rejected' then
      v_vetoes := v_vetoes || v_answer.message;
    elsif v_answer.outcome = 'ended' and v_answer.token is null then
      raise notice '% was not held any more, and rests no longer', leasehold_internal.scope_name(force_release.namespace, force_release.key);
    elsif v_answer.outcome = 'ended' then
      v_lease := v_answer.lease;
      v_lease.lease_key := v_answer.lease_key;
      v_is_any := true;
      return next v_lease;
    end if;
  end loop;
  if v_is_any and v_vetoes <> '{}' then
    raise warning '% of the leases of % stay: %', cardinality(v_vetoes), leasehold_internal.scope_name(force_release.namespace, force_release.key),
      v_vetoes[1];
  elsif v_vetoes <> '{}' then
    raise exception '%', v_vetoes[1]
      using errcode = 'LH005',
      hint = format('The lease stays. To end it all the same, first select leasehold.remove_hook(%L, ''reap'', ...).',
                    force_release.namespace);
  end if;
end
$$;
comment on function leasehold.force_release is
  'End a lease against its holder''s will, with a reason: the lease that was ended, or no row. The holder should be dead. Example:
  select key, owner, token from leasehold.force_release(''jobs'', ''nightly'', reason => ''its host burned down'')';

-- Let a scope rest no longer that nobody holds, after the lease with this token (0 or null: with any). Returns whether it rested. Locks
-- its row FOR NO KEY UPDATE, where nobody else has it, and wakes the first live waiter.
create or replace function leasehold_internal.end_rest(p_namespace text, p_key text, p_token bigint) returns boolean
language plpgsql
as $$
declare
  v_scope leasehold.scope;
begin
  select s.* into v_scope
    from leasehold.scope s
   where s.namespace = p_namespace and s.key = p_key and s.state = 'free' and s.at_least is not null
     and coalesce(p_token, 0) in (0, s.token)
     for no key update skip locked;
  if not leasehold_internal.rests(v_scope, leasehold_internal.life(null), clock_timestamp()) then
    return false;
  end if;
  update leasehold.scope s
     set at_least = null,
         check_at = least(s.check_at, clock_timestamp() + interval '1 s')
   where s.namespace = p_namespace and s.key = p_key;
  perform leasehold_internal.wake_next(p_namespace, p_key);
  return true;
end
$$;

-- What is wrong with the arguments of force_release(); null when nothing is. Locks nothing.
create or replace function leasehold_internal.force_problem(p_namespace text, p_key text, p_reason text)
returns leasehold_internal.problem
language plpgsql immutable parallel safe
as $$
begin
  return coalesce(
    leasehold_internal.scope_problem(p_namespace, p_key),
    case when coalesce(btrim(p_reason), '') = '' or octet_length(p_reason) > 8192
         then row('reason', '1 to 8192 bytes, has ' || coalesce(octet_length(p_reason), 0))::leasehold_internal.problem end);
end
$$;

-- The holders of a scope with this token (0 or null: all of them), the oldest first. With `p_lock` those shared ones whose rows nobody else
-- has, which it locks FOR UPDATE SKIP LOCKED; the caller has the scope's row locked.
create or replace function leasehold_internal.holders_by_force(p_namespace text, p_key text, p_token bigint, p_lock boolean)
returns leasehold.scope[]
language plpgsql
as $$
begin
  if p_lock then
    return array(
      select s from leasehold.scope s
       where s.namespace = p_namespace and s.key = p_key and s.state = 'held' and coalesce(p_token, 0) in (0, s.token)
      union all
      (select leasehold_internal.scope_of_share(l.share)
         from (select h as share
                 from leasehold.share h
                where h.namespace = p_namespace and h.key = p_key and h.state = 'held' and coalesce(p_token, 0) in (0, h.token)
                order by h.token
                  for update skip locked) l));
  end if;
  return array(
    select s from leasehold.scope s
     where s.namespace = p_namespace and s.key = p_key and s.state = 'held' and coalesce(p_token, 0) in (0, s.token)
    union all
    (select leasehold_internal.scope_of_share(h)
       from leasehold.share h
      where h.namespace = p_namespace and h.key = p_key and h.state = 'held' and coalesce(p_token, 0) in (0, h.token)
      order by h.token));
end
$$;

-- Before the scope's row is locked for a force-release of the lease with this token (0 or null: of any): end the sessions that guard it, and
-- wait for up to a second until they are gone. Returns null, or why one of them may not be ended. Locks the scope's row FOR UPDATE where
-- nobody has it.
create or replace function leasehold_internal.lock_by_force(p_namespace text, p_key text, p_token bigint) returns text
language plpgsql
as $$
declare
  v_pids integer[];
  v_pid integer;
  v_session text;
  v_trouble text;
begin
  if leasehold_internal.take_by_force(p_namespace, p_key, p_token) then
    return null;
  end if;
  v_pids := array(
    select distinct g.pid
      from leasehold_internal.guarding() g
      join pg_locks l
        on l.pid = g.pid and l.locktype = 'transactionid' and l.granted
       and l.transactionid = any (leasehold_internal.row_lockers(p_namespace, p_key, p_token)));
  foreach v_pid in array v_pids loop
    v_session := leasehold_internal.session_text(v_pid);
    v_trouble := coalesce(leasehold_internal.end_session(v_pid), v_trouble);
    raise log 'guard ended by force scope=% by=%: %', leasehold_internal.scope_name(p_namespace, p_key), session_user, v_session;
  end loop;
  for i in 1..100 loop
    exit when v_trouble is not null or not exists (select from leasehold_internal.guarding() g where g.pid = any (v_pids));
    perform pg_sleep(0.01);
  end loop;
  return v_trouble;
end
$$;

-- Lock what a force-release ends, as far as nobody else has it: the scope's row, and those of its shared holders, FOR UPDATE SKIP LOCKED.
-- Returns whether it has all of it.
create or replace function leasehold_internal.take_by_force(p_namespace text, p_key text, p_token bigint) returns boolean
language plpgsql
as $$
declare
  v_count integer;
begin
  perform 1
     from leasehold.scope s
    where s.namespace = p_namespace and s.key = p_key
      and (s.state = 'shared' or s.state = 'held' and coalesce(p_token, 0) in (0, s.token))
      for update skip locked;
  if not found then
    return leasehold_internal.holders_by_force(p_namespace, p_key, p_token, false) = '{}';
  end if;
  perform 1
     from leasehold.share h
    where h.namespace = p_namespace and h.key = p_key and h.state = 'held' and coalesce(p_token, 0) in (0, h.token)
      for update skip locked;
  get diagnostics v_count = row_count;
  return v_count = (select count(*)
                      from leasehold.share h
                     where h.namespace = p_namespace and h.key = p_key and h.state = 'held' and coalesce(p_token, 0) in (0, h.token));
end
$$;

-- Transactions that have a scope's row locked, or that of its shared holder with this token (0 or null: of any), as far as the rows tell. A row's
-- xmax is a transaction or, where there are several, a multixact, and does not say which: numbers of both kinds overlap. Where it can be, the row is
-- locked here as well: beside another locker xmax is a multixact then. Where not, one has it by itself, or its xmax says so.
-- Locks these rows FOR KEY SHARE SKIP LOCKED, and gives the locks back.
create or replace function leasehold_internal.row_lockers(p_namespace text, p_key text, p_token bigint) returns xid[]
language plpgsql
as $$
declare
  v_scopes tid[];
  v_shares tid[];
  v_row record;
  v_lockers xid[] := '{}';
begin
  begin
    v_scopes := array(select s.ctid from leasehold.scope s where s.namespace = p_namespace and s.key = p_key for key share skip locked);
    v_shares := array(
      select h.ctid
        from leasehold.share h
       where h.namespace = p_namespace and h.key = p_key and h.state = 'held' and coalesce(p_token, 0) in (0, h.token)
         for key share skip locked);
    for v_row in
      select r.xmax as locker, r.is_mine, l.pid is not null as is_running, coalesce(l.pid = pg_backend_pid(), false) as is_own
        from (select s.xmax, s.ctid = any (v_scopes) as is_mine from leasehold.scope s where s.namespace = p_namespace and s.key = p_key
               union all
              select h.xmax, h.ctid = any (v_shares)
                from leasehold.share h
               where h.namespace = p_namespace and h.key = p_key and h.state = 'held' and coalesce(p_token, 0) in (0, h.token)) r
        left join pg_locks l
          on l.locktype = 'transactionid' and l.granted and l.transactionid = r.xmax
       where r.xmax <> '0'::xid
    loop
      if v_row.is_mine and not v_row.is_own or not v_row.is_mine and not v_row.is_running then
        v_lockers := v_lockers || leasehold_internal.multixact_members(v_row.locker);
      elsif not v_row.is_own then
        v_lockers := v_lockers || v_row.locker;
      end if;
    end loop;
    raise sqlstate 'LH900' using message = 'give the locks back';
  exception when sqlstate 'LH900' then
    null;
  end;
  return v_lockers;
end
$$;

-- The transactions of a multixact, none where there is none of this number (any more). Locks nothing.
create or replace function leasehold_internal.multixact_members(p_multixact xid) returns xid[]
language plpgsql
as $$
begin
  return array(select m.xid from pg_get_multixact_members(p_multixact) m);
exception when others then
  return '{}';
end
$$;

-- The sessions that have a scope's row, in words: whose transaction its row names, or else who has changed or locked rows of
-- the table, oldest first. Locks nothing.
create or replace function leasehold_internal.row_sessions(p_namespace text, p_key text) returns text
language plpgsql
as $$
declare
  v_lockers constant xid[] := leasehold_internal.row_lockers(p_namespace, p_key, null);
  v_sessions text;
begin
  select string_agg(coalesce(leasehold_internal.prepared_text(p.transaction), leasehold_internal.session_text(l.pid)), ', '
                    order by coalesce(p.prepared, a.xact_start))
    into v_sessions
    from pg_locks l
    left join pg_stat_activity a
      on a.pid = l.pid
    left join pg_prepared_xacts p
      on p.transaction = l.transactionid
   where l.locktype = 'transactionid' and l.granted and l.transactionid = any (v_lockers);
  if v_sessions is null then
    select string_agg(leasehold_internal.session_text(a.pid), ', ' order by a.xact_start)
      into v_sessions
      from pg_stat_activity a
     where a.pid <> pg_backend_pid()
       and exists (select 1 from pg_locks l
                    where l.pid = a.pid and l.locktype = 'relation' and l.granted
                      and l.relation = 'leasehold.scope'::regclass and l.mode in ('RowShareLock', 'RowExclusiveLock'));
  end if;
  return coalesce('kept by ' || v_sessions, 'another session has just had it, try again');
end
$$;

-- A session in words; a prepared transaction has none. Locks nothing.
create or replace function leasehold_internal.session_text(p_pid integer) returns text
language sql stable
as $$
  select coalesce((select format('pid %s (user %s, application "%s", in a transaction for %s)', a.pid, a.usename,
                                 left(a.application_name, 64), leasehold_internal.duration_text(clock_timestamp() - a.xact_start))
                     from pg_stat_activity a
                    where a.pid = p_pid), 'a prepared transaction')
$$;

-- A prepared transaction in words, and how it ends; null where there is none. Locks nothing.
create or replace function leasehold_internal.prepared_text(p_transaction xid) returns text
language sql stable
as $$
  select format('the prepared transaction %L (user %s, prepared for %s): its owner or a superuser ends it with commit prepared %1$L or rollback prepared %1$L',
                p.gid, p.owner, leasehold_internal.duration_text(clock_timestamp() - p.prepared))
    from pg_prepared_xacts p
   where p.transaction = p_transaction
$$;

grant execute on function leasehold_internal.force_release_one to leasehold_coordinator, leasehold_admin;
grant execute on function leasehold.force_release to leasehold_admin;
