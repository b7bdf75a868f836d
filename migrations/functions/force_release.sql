-- End a lease against its holder's will; `p_token` 0 or null: whoever holds it. Returns one row: ended with the lease and its
-- lease key, not_held, or busy with a message that names the sessions that have the scope's row. The hooks of reaping run, with
-- the reason as their error; one that vetoes is LH005, and nothing has changed.
-- Locks the scope's row FOR UPDATE, and waits for nobody; then wakes the first live waiter.
create or replace function leasehold.force_release_one(p_namespace text, p_key text, p_reason text, p_token bigint)
returns table (
  outcome text, message text, namespace text, key text, lease_key uuid, token bigint, owner text, labels text,
  duration_us bigint, grace_us bigint, acquired_at timestamptz, deadline timestamptz, remaining_us bigint, held_us bigint,
  silent_us bigint, heartbeats bigint, heartbeat_at timestamptz, liveness text, is_manual boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_scope leasehold.scope;
  v_rules leasehold.rules;
  v_has_waiters boolean;
  v_now timestamptz;
begin
  perform leasehold.check_scope(p_namespace, p_key);
  if coalesce(btrim(p_reason), '') = '' or octet_length(p_reason) > 8192 then
    perform leasehold.refuse('reason', '1 to 8192 bytes');
  end if;
  select s.* into v_scope
    from leasehold.scope s
   where s.namespace = p_namespace and s.key = p_key and s.state = 'held'
     and coalesce(p_token, 0) in (0, s.token)
     for update skip locked;
  if not found then
    select case when count(*) = 0 then 'not_held' else 'busy' end,
           case when count(*) > 0 then format('%s/%s is busy: %s', p_namespace, left(p_key, 128),
                                              leasehold.row_sessions(p_namespace, p_key)) end
      into outcome, message
      from leasehold.scope s
     where s.namespace = p_namespace and s.key = p_key and s.state = 'held'
       and coalesce(p_token, 0) in (0, s.token);
    namespace := p_namespace;
    key := p_key;
    return next;
    return;
  end if;

  -- The queue is read in a statement after the lock.
  if leasehold.hooked(array[p_namespace], 'reap') <> '{}' then
    message := leasehold.try_hooks(leasehold.event_of('reap', v_scope, v_scope.deadline, null, p_reason));
    if message is not null then
      raise exception 'hook_rejected: %', message using errcode = 'LH005',
        hint = format('The lease stays. To end it all the same, first select leasehold.remove_hook(%L, ''reap'', ...).', p_namespace);
    end if;
  end if;
  v_now := clock_timestamp();
  v_has_waiters := exists (select 1 from leasehold.waiter w where w.namespace = p_namespace and w.key = p_key);
  select r.* into v_rules from leasehold.policies_of(array[p_namespace]) r;
  perform leasehold.end_leases(
            array[row(p_namespace, p_key, 'forced', null, p_reason, v_has_waiters or leasehold.is_blind(),
                      null)::leasehold.lease_end], v_now);
  perform leasehold.wake_next(p_namespace, p_key);
  -- The scope remembers it for a while, the history where there is one; the server's log everywhere.
  raise log 'lease forced scope=%/% token=% owner=% by=%: %', p_namespace, left(p_key, 128), v_scope.token, v_scope.owner, session_user, p_reason;
  return query
    select 'ended', null::text, p_namespace, p_key, v_scope.lease_key, f.token, f.owner, f.labels, f.duration_us, f.grace_us,
           f.acquired_at, f.deadline, f.remaining_us, f.held_us, f.silent_us, f.heartbeats, f.heartbeat_at, f.liveness,
           f.is_manual
      from leasehold.lease_facts(v_scope, v_rules, leasehold.life(null), v_now) f;
end
$$;
comment on function leasehold.force_release_one is 'End a lease against its holder''s will, by a coordinator';

-- The same for people. Returns the lease that was ended, or no row when it was not held (with that token); raises 55P03, and
-- names the sessions, when others have the scope's row.
create or replace function leasehold.force_release(namespace text, key text, reason text, token bigint default null)
returns setof leasehold.lease
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set leasehold.hooks = 'inline'
as $$
#variable_conflict use_column
declare
  v_lease leasehold.lease;
  v_answer record;
begin
  perform leasehold.check_scope(force_release.namespace, force_release.key);
  -- With the row locked, what is shown is what is ended.
  perform 1
     from leasehold.scope s
    where s.namespace = force_release.namespace and s.key = force_release.key and s.state = 'held'
      for update skip locked;
  if found then
    select l.* into v_lease
      from leasehold.lease l
     where l.namespace = force_release.namespace and l.key = force_release.key;
  end if;
  select f.* into v_answer
    from leasehold.force_release_one(force_release.namespace, force_release.key, force_release.reason, force_release.token) f;
  if v_answer.outcome = 'busy' then
    raise exception '%', v_answer.message
      using errcode = '55P03', hint = 'End those sessions, or wait for them, and try again.';
  elsif v_answer.outcome = 'ended' then
    v_lease.lease_key := v_answer.lease_key;
    return next v_lease;
  end if;
end
$$;
comment on function leasehold.force_release is
  'End a lease against its holder''s will, with a reason: the lease that was ended, or no row. The holder should be dead';

-- The sessions that have a scope's row, in words: whose transaction its row names, or else who has changed or locked rows of
-- the table, oldest first. Locks nothing.
create or replace function leasehold.row_sessions(p_namespace text, p_key text) returns text
language plpgsql
as $$
declare
  v_lockers xid[];
  v_sessions text;
begin
  select array[s.xmax] into v_lockers from leasehold.scope s where s.namespace = p_namespace and s.key = p_key;
  begin
    -- Several lockers at once are a multixact, whose number is not a transaction's.
    v_lockers := v_lockers || array(select m.xid from pg_get_multixact_members(v_lockers[1]) m);
  exception when others then
    null;
  end;
  select string_agg(leasehold.session_text(l.pid), ', ' order by a.xact_start)
    into v_sessions
    from pg_locks l
    left join pg_stat_activity a
      on a.pid = l.pid
   where l.locktype = 'transactionid' and l.granted and l.transactionid = any (v_lockers);
  if v_sessions is null then
    select string_agg(leasehold.session_text(a.pid), ', ' order by a.xact_start)
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
create or replace function leasehold.session_text(p_pid integer) returns text
language sql stable
as $$
  select coalesce((select format('pid %s (user %s, application "%s", in a transaction for %s)', a.pid, a.usename,
                                 left(a.application_name, 64), leasehold.duration_text(clock_timestamp() - a.xact_start))
                     from pg_stat_activity a
                    where a.pid = p_pid), 'a prepared transaction')
$$;

revoke execute on function leasehold.force_release_one(text, text, text, bigint),
  leasehold.force_release(text, text, text, bigint), leasehold.row_sessions(text, text), leasehold.session_text(integer)
  from public;
grant execute on function leasehold.force_release_one(text, text, text, bigint) to leasehold_coordinator, leasehold_admin;
grant execute on function leasehold.force_release(text, text, text, bigint) to leasehold_admin;
