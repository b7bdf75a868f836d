-- Reaping lease by lease, with something of the caller's own in each lease's transaction: what the library's
-- lh_reap_stale and `leasehold reap` stand on. A sweep lists what is expired, then ends one after the other in a savepoint of
-- its own by reap_hooked(), or writes down by reap_failed() that it could not.

-- Candidates in the order of the sweep, after the last one seen (`p_after_token` tells those apart that share a scope), and which of them are expired (is_stale), or wait for
-- their next try (is_put_off): by check_at up to
-- `p_until_us` (null: now), or by name in `p_namespaces`, but not what has failed since `p_until_us`. No row where the database has begun a new life: that is
-- written down then, and nothing ends. Locks nothing else.
create or replace function leasehold_internal.reap_stale_list(
  p_namespaces text[], p_include_children boolean, p_max integer, p_until_us bigint,
  p_after_at_us bigint, p_after_namespace text, p_after_key text, p_after_token bigint default null)
returns table (
  is_stale boolean, is_put_off boolean, until_us bigint, check_at_us bigint, namespace text, key text, lease_key uuid, token bigint, owner text,
  principal text, labels text, duration_us bigint, grace_us bigint, acquired_at_us bigint, heartbeat_at_us bigint, deadline_at_us bigint,
  heartbeats bigint, limit_us bigint)
language plpgsql
security definer
{{few.settings}}
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
  v_now := clock_timestamp();
  v_life := leasehold_internal.life(null);
  if p_namespaces is null then
    v_found := leasehold_internal.stale_by_time(
      p_max, coalesce(leasehold_internal.at_us(p_until_us), v_now), leasehold_internal.at_us(p_after_at_us), p_after_namespace, p_after_key,
      coalesce(p_after_token, 9223372036854775807));
  else
    v_found := leasehold_internal.stale_by_name(
      p_namespaces, p_include_children, p_max, v_now, coalesce(leasehold_internal.at_us(p_until_us), 'infinity'), p_after_namespace,
      p_after_key, coalesce(p_after_token, 9223372036854775807));
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

-- The rows whose check_at has come, oldest first; shared holders among them as scope_of_share() has them. Locks nothing.
create or replace function leasehold_internal.stale_by_time(
  p_max integer, p_until timestamptz, p_after_at timestamptz, p_after_namespace text, p_after_key text, p_after_token bigint)
returns leasehold.scope[]
language sql stable
as $$
  select array(
    select x.scope
      from ((select s as scope, s.check_at, s.namespace, s.key, s.token
               from leasehold.scope s
              where s.check_at <= p_until
                and s.check_at >= coalesce(p_after_at, '-infinity')
                and (p_after_at is null or (s.check_at, s.namespace, s.key, s.token) > (p_after_at, p_after_namespace, p_after_key, p_after_token))
              order by s.check_at, s.namespace, s.key
              limit p_max)
            union all
            (select leasehold_internal.scope_of_share(h), h.check_at, h.namespace, h.key, h.token
               from leasehold.share h
              where h.check_at <= p_until and h.state = 'held'
                and h.check_at >= coalesce(p_after_at, '-infinity')
                and (p_after_at is null or (h.check_at, h.namespace, h.key, h.token) > (p_after_at, p_after_namespace, p_after_key, p_after_token))
              order by h.check_at, h.namespace, h.key, h.token
              limit p_max)) x
     order by x.check_at, x.namespace, x.key, x.token
     limit p_max)
$$;

-- What is held past its deadline in these namespaces, by name, but for what has failed since `p_until`; shared holders as scope_of_share()
-- has them. Locks nothing.
create or replace function leasehold_internal.stale_by_name(
  p_namespaces text[], p_include_children boolean, p_max integer, p_now timestamptz, p_until timestamptz,
  p_after_namespace text, p_after_key text, p_after_token bigint)
returns leasehold.scope[]
language sql stable
as $$
  select array(
    select c.scope
      from (select distinct on (d.namespace, d.key, d.token) d.scope, d.namespace, d.key, d.token
              from (select n.namespace as first, n.namespace as last from unnest(p_namespaces) as n (namespace)
                    union all
                    -- What is below a namespace: '/' is the byte after '.'.
                    select n.namespace || '.', n.namespace || '/' from unnest(p_namespaces) as n (namespace) where p_include_children) n
             cross join lateral (
               (select x as scope, x.namespace, x.key, x.token
                  from leasehold.scope x
                 where x.namespace >= n.first and (x.namespace < n.last or x.namespace = n.first)
                   and (x.namespace, x.key, x.token) > (coalesce(p_after_namespace, ''), coalesce(p_after_key, ''), p_after_token)
                   and x.state = 'held' and (x.lapsed or x.deadline <= p_now)
                   and not leasehold_internal.has_failed_since(x.reap_failures, x.reap_failed_at, p_until, p_now)
                 order by x.namespace, x.key
                 limit p_max)
               union all
               (select leasehold_internal.scope_of_share(h), h.namespace, h.key, h.token
                  from leasehold.share h
                 where h.namespace >= n.first and (h.namespace < n.last or h.namespace = n.first)
                   and (h.namespace, h.key, h.token) > (coalesce(p_after_namespace, ''), coalesce(p_after_key, ''), p_after_token)
                   and h.state = 'held' and (h.lapsed or h.deadline <= p_now)
                   and not leasehold_internal.has_failed_since(h.reap_failures, h.reap_failed_at, p_until, p_now)
                 order by h.namespace, h.key, h.token
                 limit p_max)) d
             order by d.namespace, d.key, d.token
             limit p_max) c
     order by c.namespace, c.key, c.token)
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
as $$
  select leasehold_internal.audit_add(null, null, 'reap', d.namespace, null, null, null, 'done', d.count)
    from (select n.namespace, count(*) from unnest(p_namespaces) n (namespace) group by n.namespace) d
$$;
comment on function leasehold_internal.audit_reaped is 'Write down in the audit what was reaped by name with a callback of the caller''s';

-- Rows of leasehold.share whose check_at has come, at most `p_max`: one that ended longer ago than its retention goes, the others are looked at
-- again when they expire, or at the end of the retention. One that has expired stays, for whoever reaps. Returns how many were visited. Locks them
-- FOR UPDATE SKIP LOCKED, in the order of check_at.
create or replace function leasehold_internal.tidy_shares(p_max integer, p_life leasehold.life_now, p_now timestamptz) returns integer
language plpgsql
as $$
declare
  v_rules leasehold.rules;
  v_share leasehold.share;
  v_holder leasehold.scope;
  v_visited integer := 0;
begin
  for v_share in
    select h.* from leasehold.share h where h.check_at <= p_now order by h.check_at limit greatest(p_max, 0) for update skip locked
  loop
    v_visited := v_visited + 1;
    v_holder := leasehold_internal.scope_of_share(v_share);
    select r.* into v_rules from leasehold_internal.policies_of(array[v_share.namespace]) r;
    if v_share.state = 'ended' and v_share.ended_at + v_rules.free_retention <= p_now then
      delete from leasehold.share h where h.namespace = v_share.namespace and h.key = v_share.key and h.lease_key = v_share.lease_key;
    elsif v_share.state = 'ended' or v_rules.reaper <> 'auto' or not leasehold_internal.is_expired(v_holder, p_life, v_rules.expiry, p_now)
          or leasehold_internal.is_put_off(v_holder, v_rules.max_reap_failures, p_now) then
      update leasehold.share h
         set check_at = case
               when h.state = 'ended' then h.ended_at + v_rules.free_retention
               when v_rules.expiry = 'manual' or v_rules.reaper = 'external' then 'infinity'
               when leasehold_internal.is_put_off(v_holder, v_rules.max_reap_failures, p_now) then coalesce(h.next_try_at, 'infinity')
               else greatest(leasehold_internal.expires_at(v_holder, p_life, v_rules.expiry, p_now), p_now + interval '1 s')
             end
       where h.namespace = v_share.namespace and h.key = v_share.key and h.lease_key = v_share.lease_key;
    end if;
  end loop;
  return v_visited;
end
$$;

-- What nobody else does where no daemon runs: waiters that nobody waits for any more go, free rows and history past their
-- retention too, heads of free scopes are woken, and check_at of what is not expired moves on. Returns how many rows were visited; `p_max` at most.
-- Locks them FOR UPDATE SKIP LOCKED, in the order of check_at.
create or replace function leasehold_internal.reap_stale_tidy(p_max integer) returns integer
language plpgsql
security definer
{{few.settings}}
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_life leasehold.life_now := leasehold_internal.life(null);
  v_rules leasehold.rules;
  v_scope leasehold.scope;
  v_visited integer := 0;
begin
  if leasehold_internal.notice_incarnation() then
    return 0;
  end if;
  perform leasehold_internal.sweep_waiters(null);
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
               else greatest(leasehold_internal.expires_at(v_scope, v_life, v_rules.expiry, v_now), v_now + interval '1 s')
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
    elsif exists (select from leasehold.share h where h.namespace = v_scope.namespace and h.key = v_scope.key) then
      -- It has shared holders, or their rows still remember how they ended.
      update leasehold.scope s
         set check_at = v_now + interval '1 min'
       where s.namespace = v_scope.namespace and s.key = v_scope.key;
    elsif coalesce(v_scope.ended_at + v_rules.free_retention <= v_now, true) then
      delete from leasehold.scope s where s.namespace = v_scope.namespace and s.key = v_scope.key;
    else
      update leasehold.scope s
         set at_least = null,
             check_at = greatest(v_scope.ended_at + v_rules.free_retention, v_now + interval '100 ms')
       where s.namespace = v_scope.namespace and s.key = v_scope.key;
    end if;
  end loop;
  return v_visited + leasehold_internal.tidy_shares(p_max - v_visited, v_life, v_now);
end
$$;
comment on function leasehold_internal.reap_stale_tidy is 'Visit what is due but not expired, where only reapers with callbacks run';

grant execute on function leasehold_internal.reap_stale_list, leasehold_internal.reap_stale_tidy, leasehold_internal.audit_reaped
  to leasehold_coordinator, leasehold_admin;
