-- Reaping lease by lease, with something of the caller's own in each lease's transaction: what the library's
-- lh_reap_stale and `leasehold reap` stand on. A sweep lists what is expired, then ends one after the other in a savepoint of
-- its own by reap_hooked(), or writes down by reap_failed() that it could not.

-- Candidates in the order of the sweep, after the last one seen, and which of them are expired (is_stale), or wait for
-- their next try (is_put_off): by check_at up to
-- `p_until_us` (null: now), or by name in `p_namespaces`, but not what has failed since `p_until_us`. No row where the database has begun a new life: that is
-- written down then, and nothing ends. Locks nothing else.
create or replace function leasehold_internal.reap_stale_list(
  p_namespaces text[], p_include_children boolean, p_max integer, p_until_us bigint,
  p_after_at_us bigint, p_after_namespace text, p_after_key text)
returns table (
  is_stale boolean, is_put_off boolean, until_us bigint, check_at_us bigint, namespace text, key text, lease_key uuid, token bigint, owner text,
  principal text, labels text, duration_us bigint, grace_us bigint, acquired_at_us bigint, heartbeat_at_us bigint, deadline_at_us bigint,
  heartbeats bigint, limit_us bigint)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  v_found leasehold.scope[];
  v_rules leasehold.rules[];
  v_life leasehold.life_now;
  v_now timestamptz;
begin
  if leasehold_internal.notice_incarnation() then
    return;
  end if;
  v_life := leasehold_internal.life(null);
  v_now := clock_timestamp();
  if p_namespaces is null then
    v_found := leasehold_internal.stale_by_time(
      p_max, coalesce(leasehold_internal.at_us(p_until_us), v_now), leasehold_internal.at_us(p_after_at_us), p_after_namespace, p_after_key);
  else
    v_found := leasehold_internal.stale_by_name(
      p_namespaces, p_include_children, p_max, v_now, coalesce(leasehold_internal.at_us(p_until_us), 'infinity'), p_after_namespace,
      p_after_key);
  end if;
  v_rules := array(select r from leasehold_internal.policies_of(array(select distinct s.namespace from unnest(v_found) s)) r);
  return query
    select leasehold_internal.is_expired(f.scope, v_life, (r.rules).expiry, v_now)
           and (p_namespaces is not null
                or ((r.rules).reaper = 'auto'
                    and not leasehold_internal.is_put_off(f.scope, (r.rules).max_reap_failures, v_now))),
           leasehold_internal.is_put_off(f.scope, (r.rules).max_reap_failures, v_now),
           coalesce(p_until_us, leasehold_internal.us_at(v_now)), leasehold_internal.us_at((f.scope).check_at), (f.scope).namespace, (f.scope).key,
           (f.scope).lease_key, (f.scope).token, (f.scope).owner, (f.scope).principal, (f.scope).labels::text,
           leasehold_internal.to_us((f.scope).duration), leasehold_internal.to_us((f.scope).grace), leasehold_internal.us_at((f.scope).acquired_at),
           leasehold_internal.us_at((f.scope).heartbeat_at), leasehold_internal.us_at((f.scope).deadline), (f.scope).heartbeats,
           leasehold_internal.to_us((r.rules).hook_timeout)
      from (select v_found[i] as scope, i as place from generate_subscripts(v_found, 1) i) f
      left join lateral (select x as rules from unnest(v_rules) x where x.namespace = (f.scope).namespace) r on true
     order by f.place;
end
$$;
comment on function leasehold_internal.reap_stale_list is 'What a reaper with callbacks of its own is to look at next';

-- The rows whose check_at has come, oldest first. Locks nothing.
create or replace function leasehold_internal.stale_by_time(
  p_max integer, p_until timestamptz, p_after_at timestamptz, p_after_namespace text, p_after_key text)
returns leasehold.scope[]
language sql stable
as $$
  select array(
    select s
      from leasehold.scope s
     where s.check_at <= p_until
       and s.check_at >= coalesce(p_after_at, '-infinity')
       and (p_after_at is null or (s.check_at, s.namespace, s.key) > (p_after_at, p_after_namespace, p_after_key))
     order by s.check_at, s.namespace, s.key
     limit p_max)
$$;

-- What is held past its deadline in these namespaces, by name, but for what has failed since `p_until`. Locks nothing.
create or replace function leasehold_internal.stale_by_name(
  p_namespaces text[], p_include_children boolean, p_max integer, p_now timestamptz, p_until timestamptz,
  p_after_namespace text, p_after_key text)
returns leasehold.scope[]
language sql stable
as $$
  select array(
    select s
      from (select distinct d.namespace, d.key
              from unnest(p_namespaces) as n (namespace)
             cross join lateral (
               (select x.namespace, x.key
                  from leasehold.scope x
                 where x.namespace = n.namespace
                   and (x.namespace, x.key) > (coalesce(p_after_namespace, ''), coalesce(p_after_key, ''))
                   and x.state = 'held' and (x.lapsed or x.deadline <= p_now)
                   and (x.reap_failures = 0 or x.reap_failed_at < p_until)
                 order by x.namespace, x.key
                 limit p_max)
               union all
               (select x.namespace, x.key
                  from leasehold.scope x
                 where p_include_children and x.namespace > n.namespace || '.' and x.namespace < n.namespace || '/'
                   and (x.namespace, x.key) > (coalesce(p_after_namespace, ''), coalesce(p_after_key, ''))
                   and x.state = 'held' and (x.lapsed or x.deadline <= p_now)
                   and (x.reap_failures = 0 or x.reap_failed_at < p_until)
                 order by x.namespace, x.key
                 limit p_max)) d
             order by d.namespace, d.key
             limit p_max) c
      join leasehold.scope s
        on s.namespace = c.namespace and s.key = c.key
     order by s.namespace, s.key)
$$;

-- Microseconds since 1970, and back: whatever the session's time zone and date style. Lock nothing.
create or replace function leasehold_internal.us_at(p_at timestamptz) returns bigint
language sql immutable parallel safe
as $$
  select case when isfinite(p_at) then (extract(epoch from p_at) * 1000000)::bigint end
$$;

create or replace function leasehold_internal.at_us(p_us bigint) returns timestamptz
language sql immutable parallel safe
as $$
  select timestamptz '1970-01-01 00:00:00+00' + p_us * interval '1 microsecond'
$$;

-- Write down that leases in these namespaces, one name for each, were reaped by name with a callback of the caller's, in its transaction.
-- Without a callback reap_batch() does. Locks what audit_add() does.
create or replace function leasehold_internal.audit_reaped(p_namespaces text[]) returns void
language sql volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
  select leasehold_internal.audit_add(null, null, 'reap', d.namespace, null, null, null, 'done', d.count)
    from (select n.namespace, count(*) from unnest(p_namespaces) n (namespace) group by n.namespace) d
$$;
comment on function leasehold_internal.audit_reaped is 'Write down in the audit what was reaped by name with a callback of the caller''s';

-- What nobody else does where no daemon runs: waiters that nobody waits for any more go, free rows and history past their
-- retention too, heads of free scopes are woken, and check_at of what is not expired moves on. Returns how many rows were visited; `p_max` at most.
-- Locks them FOR UPDATE SKIP LOCKED, in the order of check_at.
create or replace function leasehold_internal.reap_stale_tidy(p_max integer) returns integer
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set jit = off
as $$
declare
  v_life leasehold.life_now := leasehold_internal.life(null);
  v_now timestamptz := clock_timestamp();
  v_rules leasehold.rules;
  v_scope leasehold.scope;
  v_visited integer := 0;
begin
  if leasehold_internal.notice_incarnation() then
    return 0;
  end if;
  if v_life.is_settled then
    perform leasehold_internal.sweep_waiters(null);
  end if;
  -- The library opens no transaction for this call, and refuses to reap in one.
  perform leasehold_internal.keep_days(v_now, true);
  for v_scope in
    select s.* from leasehold.scope s where s.check_at <= v_now order by s.check_at limit p_max for update skip locked
  loop
    v_visited := v_visited + 1;
    select r.* into v_rules from leasehold_internal.policies_of(array[v_scope.namespace]) r;
    if v_scope.state = 'held' then
      update leasehold.scope s
         set check_at = case
               when v_rules.expiry = 'manual' or v_rules.reaper = 'external' then 'infinity'
               when leasehold_internal.is_put_off(v_scope, v_rules.max_reap_failures, v_now) then coalesce(s.next_try_at, 'infinity')
               else greatest(leasehold_internal.expires_at(v_scope, v_life, v_rules.expiry), v_now + interval '1 s')
             end
       where s.namespace = v_scope.namespace and s.key = v_scope.key
         and not (leasehold_internal.is_expired(v_scope, v_life, v_rules.expiry, v_now) and v_rules.reaper = 'auto'
                  and not leasehold_internal.is_put_off(v_scope, v_rules.max_reap_failures, v_now));
    elsif leasehold_internal.rests(v_scope, v_life, v_now) then
      update leasehold.scope s
         set check_at = greatest(leasehold_internal.rests_until(v_scope, v_life, v_now), v_now + interval '100 ms')
       where s.namespace = v_scope.namespace and s.key = v_scope.key;
    elsif exists (select from leasehold.waiter w where w.namespace = v_scope.namespace and w.key = v_scope.key) then
      update leasehold.scope s
         set at_least = null,
             check_at = v_now + interval '1 s'
       where s.namespace = v_scope.namespace and s.key = v_scope.key;
      perform leasehold_internal.wake_head(null, v_scope.namespace, v_scope.key);
    elsif coalesce(v_scope.ended_at + v_rules.free_retention <= v_now, true) then
      delete from leasehold.scope s where s.namespace = v_scope.namespace and s.key = v_scope.key;
    else
      update leasehold.scope s
         set at_least = null,
             check_at = greatest(v_scope.ended_at + v_rules.free_retention, v_now + interval '100 ms')
       where s.namespace = v_scope.namespace and s.key = v_scope.key;
    end if;
  end loop;
  return v_visited;
end
$$;
comment on function leasehold_internal.reap_stale_tidy is 'Visit what is due but not expired, where only reapers with callbacks run';

revoke execute on function leasehold_internal.reap_stale_list(text[], boolean, integer, bigint, bigint, text, text),
  leasehold_internal.stale_by_time(integer, timestamptz, timestamptz, text, text),
  leasehold_internal.stale_by_name(text[], boolean, integer, timestamptz, timestamptz, text, text), leasehold_internal.us_at(timestamptz), leasehold_internal.at_us(bigint),
  leasehold_internal.reap_stale_tidy(integer), leasehold_internal.audit_reaped(text[]) from public;
grant execute on function leasehold_internal.reap_stale_list(text[], boolean, integer, bigint, bigint, text, text),
  leasehold_internal.reap_stale_tidy(integer), leasehold_internal.audit_reaped(text[]) to leasehold_coordinator, leasehold_admin;
