-- What people look at through a daemon: rows of text, which it hands on. Times are microseconds since 1970, durations microseconds, booleans true and
-- false. All of them take the namespaces that the caller may see (with p_include_children what is below them too), a key (null: any), how many rows, and where
-- the page before ended: the column "after" of its last row. The daemon has judged the caller's rights.

create or replace function leasehold_internal.epoch_us(p_at timestamptz) returns text
language sql immutable
as $$
  select (extract(epoch from p_at) * 1000000)::bigint::text
$$;

-- Is it one of these namespaces, or below one? Locks nothing.
create or replace function leasehold_internal.is_within(p_namespace text, p_namespaces text[], p_include_children boolean) returns boolean
language sql immutable
as $$
  select case when p_include_children then exists (select from unnest(p_namespaces) n where n = '' or starts_with(p_namespace || '.', n || '.'))
              else p_namespace = any (p_namespaces) end
$$;

-- Each namespace in which something is held or waited for, with counts. Locks nothing.
create or replace function leasehold_internal.view_namespaces(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (namespace text, held text, waiting text, expired text, failing text, after text)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select c.namespace, c.held::text, c.waiting::text, c.expired::text, c.failing::text, c.namespace
    from leasehold.lease_summary c
   where leasehold_internal.is_within(c.namespace, p_namespaces, p_include_children)
     and (p_after is null or c.namespace collate "C" > p_after)
   order by c.namespace collate "C"
   limit p_limit
$$;

-- explain(), of the one namespace. Locks nothing.
create or replace function leasehold_internal.view_explain(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  state text, holder text, principal text, token text, liveness text, since text, heartbeats text, last_heartbeat_at text, expires_at text, waiters text,
  first_waiter text, advice text)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select x.state, x.holder, x.principal, x.token::text, x.liveness, leasehold_internal.epoch_us(x.since), x.heartbeats::text,
         leasehold_internal.epoch_us(x.last_heartbeat_at), leasehold_internal.epoch_us(x.expires_at), x.waiters::text, x.first_waiter, x.advice
    from leasehold.explain(p_namespaces[1], p_key) x
$$;

-- Waiters, in the order of scopes and places. The view counts places within a scope, so that a condition on scopes goes first. Locks nothing.
create or replace function leasehold_internal.view_queue(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  namespace text, key text, "position" text, owner text, principal text, waiting text, away text, enqueued_at text, wait_until text, duration text,
  coordinator text, ticket text, after text)
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  -- The key may hold any character but a control character.
  v_after text[] := string_to_array(p_after, E'\n');
  v_namespaces text[] := p_namespaces;
begin
  if p_include_children then
    v_namespaces := array(
      select distinct w.namespace from leasehold.waiter w where leasehold_internal.is_within(w.namespace, p_namespaces, true));
  end if;
  return query
    select w.namespace, w.key, w.position::text, w.owner, w.principal, leasehold_internal.to_us(w.waiting)::text, w.away::text,
           leasehold_internal.epoch_us(w.enqueued_at), leasehold_internal.epoch_us(w.wait_until), leasehold_internal.to_us(w.duration)::text,
           w.coordinator::text, w.ticket::text, concat_ws(E'\n', w.namespace, w.key, w.ticket::text)
      from leasehold.queue w
     where w.namespace = any (v_namespaces)
       and (p_key is null or w.key = p_key)
       and (p_after is null
            or (w.namespace collate "C", w.key collate "C", w.ticket) > (v_after[1] collate "C", v_after[2] collate "C", v_after[3]::bigint))
     order by w.namespace collate "C", w.key collate "C", w.ticket
     limit p_limit;
end
$$;

-- Holders that wait for another scope: an edge from what they hold to what they want. With a key the edges that lead to that scope or come from
-- it, over any number of others. Locks nothing.
create or replace function leasehold_internal.view_waits(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (owner text, principal text, holds_namespace text, holds_key text, wants_namespace text, wants_key text, after text)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  with recursive edge as materialized (
    select distinct w.owner, w.principal, s.namespace as holds_namespace, s.key as holds_key, w.namespace as wants_namespace, w.key as wants_key
      from leasehold.queue w
      join leasehold.scope s
        on s.owner = w.owner and s.principal is not distinct from w.principal
     where s.state = 'held' and w.owner <> '' and w.position is not null
       and leasehold_internal.is_within(s.namespace, p_namespaces, true)
       and leasehold_internal.is_within(w.namespace, p_namespaces, true)
     limit 10000
  ), reached as (
    select e.holds_namespace as namespace, e.holds_key as key
      from edge e
     where p_key is null
    union
    select p_after, p_key
     where p_key is not null
    union
    select case when e.holds_namespace = r.namespace and e.holds_key = r.key then e.wants_namespace else e.holds_namespace end,
           case when e.holds_namespace = r.namespace and e.holds_key = r.key then e.wants_key else e.holds_key end
      from reached r
      join edge e
        on (e.holds_namespace = r.namespace and e.holds_key = r.key) or (e.wants_namespace = r.namespace and e.wants_key = r.key)
  )
  select e.owner, e.principal, e.holds_namespace, e.holds_key, e.wants_namespace, e.wants_key, null
    from edge e
   where exists (select from reached r where r.namespace = e.holds_namespace and r.key = e.holds_key)
   order by 3, 4, 5, 6
   limit p_limit
$$;

-- Holds of one scope that have ended, the newest first. Locks nothing.
create or replace function leasehold_internal.view_history(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  namespace text, key text, token text, acquired_at text, ended_at text, outcome text, owner text, principal text, result text, error text,
  ended_by text, after text)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select h.namespace, h.key, h.token::text, leasehold_internal.epoch_us(h.acquired_at), leasehold_internal.epoch_us(h.ended_at), h.outcome, h.owner,
         h.principal, h.result::text, h.error, h.ended_by, h.token::text
    from leasehold.history h
   where h.namespace = p_namespaces[1] and h.key = p_key and h.token < coalesce(p_after::bigint, 9223372036854775807)
   order by h.token desc
   limit p_limit
$$;

-- Expired leases whose reap failed; the condition is that of leasehold.reap_failure. Locks nothing.
create or replace function leasehold_internal.view_failures(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  namespace text, key text, token text, owner text, principal text, reap_failures text, error text, failed_at text, next_try_at text, after text)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select f.namespace, f.key, f.token::text, f.owner, s.principal, f.reap_failures::text, f.error, leasehold_internal.epoch_us(f.failed_at),
         leasehold_internal.epoch_us(f.next_try_at), concat_ws(E'\n', f.namespace, f.key)
    from leasehold.reap_failure f
    join leasehold.scope s
      on s.namespace = f.namespace and s.key = f.key
   where leasehold_internal.is_within(f.namespace, p_namespaces, p_include_children)
     and (p_key is null or f.key = p_key)
     and (p_after is null
          or (f.namespace collate "C", f.key collate "C") > (split_part(p_after, E'\n', 1) collate "C", split_part(p_after, E'\n', 2) collate "C"))
   order by f.namespace collate "C", f.key collate "C"
   limit p_limit
$$;

-- The audit, the newest first: from a span of days that doubles until there is enough, because a partition holds a day. Locks nothing.
create or replace function leasehold_internal.view_audit(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  at text, principal text, peer text, action text, namespace text, key text, token text, reason text, outcome text, count text, after text)
language plpgsql stable
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_after_us bigint := split_part(p_after, ' ', 1)::bigint;
  v_after_nth bigint := split_part(p_after, ' ', 2)::bigint;
  v_until timestamptz := coalesce(to_timestamp(0) + v_after_us * interval '1 us', clock_timestamp() + interval '1 day');
  v_days integer := 1;
  v_rows text[];
begin
  loop
    v_rows := array(
      select to_jsonb(x)::text
        from (select a.*, row_number() over (partition by a.at order by a.principal, a.action, a.namespace, a.key, a.token, a.reason, a.count) as nth
                from leasehold.audit a
               where a.at <= v_until and a.at > v_until - v_days * interval '1 day'
                 and leasehold_internal.is_within(a.namespace, p_namespaces, p_include_children)
                 and (p_key is null or a.key = p_key)) x
       where p_after is null or x.at < v_until or x.nth > v_after_nth
       order by x.at desc, x.nth
       limit p_limit);
    exit when cardinality(v_rows) >= p_limit or v_days > 4096;
    v_days := 4 * v_days;
  end loop;
  return query
    select leasehold_internal.epoch_us(a.at), a.principal, a.peer, a.action, a.namespace, a.key, a.token::text, a.reason, a.outcome, a.count::text,
           leasehold_internal.epoch_us(a.at) || ' ' || (r.one ->> 'nth')
      from (select one::jsonb as one, nth from unnest(v_rows) with ordinality u (one, nth)) r
     cross join lateral jsonb_populate_record(null::leasehold.audit, r.one) a
     order by r.nth;
end
$$;

-- The daemons; `p_key` is the id of the one that asks. Locks nothing.
create or replace function leasehold_internal.view_daemons(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (id text, host text, pid text, version text, started_at text, seen_at text, live text, self text, after text)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select c.id::text, c.host, c.pid::text, c.version, leasehold_internal.epoch_us(c.started_at), leasehold_internal.epoch_us(c.seen_at),
         (c.seen_at > clock_timestamp() - interval '5 s')::text, (c.id::text = p_key)::text, c.id::text
    from leasehold.coordinator c
   where p_after is null or c.id > p_after::uuid
   order by c.id
   limit p_limit
$$;

-- The database. The reaper moves check_at forward by its visit. Locks nothing.
create or replace function leasehold_internal.view_database(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (version text, role text, waiting text, reaper_lag text)
language sql stable
security definer
set search_path = pg_catalog, pg_temp
as $$
  select current_setting('server_version'), case when pg_is_in_recovery() then 'standby' else 'primary' end,
         (select count(*)::text from leasehold.waiter),
         (select leasehold_internal.to_us(greatest(clock_timestamp() - min(s.check_at), interval '0'))::text from leasehold.scope s)
$$;

do $$
declare
  v_name text;
begin
  foreach v_name in array array['namespaces', 'explain', 'queue', 'waits', 'history', 'failures', 'audit', 'daemons', 'database'] loop
    execute format('revoke execute on function leasehold_internal.%I(text[], boolean, text, integer, text) from public', 'view_' || v_name);
    execute format('grant execute on function leasehold_internal.%I(text[], boolean, text, integer, text) to leasehold_coordinator', 'view_' || v_name);
  end loop;
end
$$;
revoke execute on function leasehold_internal.epoch_us(timestamptz), leasehold_internal.is_within(text, text[], boolean) from public;
