-- What people look at through a daemon: rows of text, which it hands on. Times are microseconds since 1970, durations microseconds, booleans true and
-- false. All of them take the namespaces that the caller may see (with p_include_children what is below them too), a key (null: any), how many rows, and where
-- the page before ended: the column "after" of its last row. The daemon has judged the caller's rights.

create or replace function leasehold_internal.epoch_us(p_at timestamptz) returns text
language sql immutable
as $$
  select case when isfinite(p_at) then (extract(epoch from p_at) * 1000000)::bigint::text end
$$;

-- Is it one of these namespaces, or below one? Locks nothing.
create or replace function leasehold_internal.is_within(p_namespace text, p_namespaces text[], p_include_children boolean) returns boolean
language sql immutable
as $$
  select case when p_include_children then exists (select from unnest(p_namespaces) n where n = '' or starts_with(p_namespace || '.', n || '.'))
              else p_namespace = any (p_namespaces) end
$$;

-- The stretches of namespaces that these are, in order of their bytes: from `low` to `high`, so that an index is read there and nowhere else. None of
-- `p_namespaces` is below another one. '/' is the byte after '.'. Locks nothing.
create or replace function leasehold_internal.stretches(p_namespaces text[], p_include_children boolean) returns table (low text, high text)
language sql stable
as $$
  select n, case when n = '' and p_include_children
                 then greatest((select max(s.namespace) from leasehold.scope s), (select max(w.namespace) from leasehold.waiter w)) else n end
    from unnest(p_namespaces) n
   union all
  select n || '.', n || '/'
    from unnest(p_namespaces) n
   where p_include_children and n <> ''
$$;

-- Each namespace in which something is held or waited for, with counts: of at most 10,000 rows of a table each, `partial` where there are more. A page that
-- has looked at 40,000 rows ends with a row without a namespace. Locks nothing.
create or replace function leasehold_internal.view_namespaces(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (namespace text, held text, waiting text, expired text, failing text, partial text, after text)
language plpgsql volatile
security definer
{{page.settings}}
as $$
#variable_conflict use_column
declare
  c_rows constant integer := 10000;
  v_now timestamptz := clock_timestamp();
  v_life leasehold.life_now := leasehold_internal.life(null);
  v_at text := coalesce(p_after, '');
  v_left integer := 40000;
  v_found integer := 0;
  v_stretch record;
  v_scopes record;
  v_shares record;
  v_waiters record;
begin
  for v_stretch in select t.low, t.high from leasehold_internal.stretches(p_namespaces, p_include_children) t order by t.low collate "C" loop
    while v_found < p_limit loop
      v_at := (
        select min(x.namespace collate "C")
          from ((select s.namespace from leasehold.scope s
                  where s.namespace >= v_stretch.low and s.namespace > v_at and s.namespace <= v_stretch.high
                  order by s.namespace limit 1)
                 union all
                (select w.namespace from leasehold.waiter w
                  where w.namespace >= v_stretch.low and w.namespace > v_at and w.namespace <= v_stretch.high
                  order by w.namespace limit 1)) x);
      exit when v_at is null;
      -- No expiry is before check_at.
      select count(*) as looked_at, count(*) filter (where s.state = 'held') as held,
             count(*) filter (where (s.lapsed or s.check_at <= v_now) and leasehold_internal.is_expired(s, v_life, r.expiry, v_now)) as expired,
             count(*) filter (where s.state = 'held' and s.reap_failures > 0) as failing
        into v_scopes
        from leasehold_internal.policies_of(array[v_at]) r
       cross join (select * from leasehold.scope s where s.namespace = v_at order by s.key limit c_rows + 1) s;
      select count(*) as held,
             count(*) filter (where (h.lapsed or h.check_at <= v_now)
                                    and leasehold_internal.is_expired(leasehold_internal.scope_of_share(h), v_life, r.expiry, v_now)) as expired,
             count(*) filter (where h.reap_failures > 0) as failing
        into v_shares
        from leasehold_internal.policies_of(array[v_at]) r
       cross join (select * from leasehold.share h where h.namespace = v_at and h.state = 'held' order by h.key, h.token limit c_rows + 1) h;
      select count(*) as looked_at, count(*) filter (where leasehold_internal.has_place(w, c.seen_at, v_now)) as waiting
        into v_waiters
        from (select * from leasehold.waiter w where w.namespace = v_at order by w.key, w.ticket limit c_rows + 1) w
        left join leasehold.coordinator c
          on c.id = w.coordinator;
      if v_scopes.held + v_shares.held > 0 or v_waiters.waiting > 0 then
        namespace := v_at;
        held := least(v_scopes.held + v_shares.held, c_rows);
        waiting := least(v_waiters.waiting, c_rows);
        expired := v_scopes.expired + v_shares.expired;
        failing := v_scopes.failing + v_shares.failing;
        partial := v_scopes.looked_at > c_rows or v_scopes.held + v_shares.held > c_rows or v_waiters.looked_at > c_rows;
        after := v_at;
        return next;
        v_found := v_found + 1;
      end if;
      v_left := v_left - v_scopes.looked_at - v_shares.held - v_waiters.looked_at;
      if v_left <= 0 then
        namespace := null;
        after := v_at;
        return next;
        return;
      end if;
    end loop;
    v_at := greatest(v_stretch.high, p_after);
  end loop;
end
$$;

-- explain(), of the one namespace. Locks nothing.
create or replace function leasehold_internal.view_explain(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  state text, holder text, principal text, token text, liveness text, since text, heartbeats text, last_heartbeat_at text, expires_at text, waiters text,
  first_waiter text, advice text, mode text, units text, holders text, rests_until text, policy text)
language sql stable
security definer
as $$
  select x.state, x.holder, x.principal, x.token::text, x.liveness, leasehold_internal.epoch_us(x.since), x.heartbeats::text,
         leasehold_internal.epoch_us(x.last_heartbeat_at), leasehold_internal.epoch_us(x.expires_at), x.waiters::text, x.first_waiter, x.advice,
         x.mode, x.units::text, x.holders::text, leasehold_internal.epoch_us(x.rests_until), x.policy::text
    from leasehold.explain(p_namespaces[1], p_key) x
$$;

-- Is this one in the queue, and not passed over? As the view leasehold.queue says. Locks nothing.
create or replace function leasehold_internal.has_place(p_waiter leasehold.waiter, p_seen_at timestamptz, p_now timestamptz) returns boolean
language sql stable
as $$
  select (((p_waiter).wait_until is null or (p_waiter).wait_until > p_now)
          and ((p_waiter).away_until is null or (p_waiter).away_until > p_now)
          and ((p_waiter).coordinator is null or p_seen_at > p_now - interval '3.5 s')) is true
$$;

-- Waiters, in the order of scopes and of their coming. Their places are those in which they are served; they are counted from where the page before ended: its
-- `after` has the number. Where anybody in a queue has a priority, the place of all behind the first 1,000 is 1,001. Locks nothing.
create or replace function leasehold_internal.view_queue(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  namespace text, key text, "position" text, owner text, principal text, waiting text, away text, enqueued_at text, wait_until text, duration text,
  coordinator text, ticket text, mode text, units text, rests_until text, scopes text, priority text, after text)
language plpgsql stable
security definer
{{page.settings}}
as $$
#variable_conflict use_column
declare
  -- The key may hold any character but a control character.
  v_after text[] := string_to_array(p_after, E'\n');
  v_life leasehold.life_now := leasehold_internal.life(null);
  v_now timestamptz := clock_timestamp();
  v_live uuid[] := leasehold_internal.live_coordinators(v_now);
begin
  return query
    with page as materialized (
      select x.*, p.has_place,
             count(*) filter (where p.has_place) over (partition by x.namespace, x.key order by x.ticket)
             + case when x.namespace = v_after[1] and x.key = v_after[2] then v_after[4]::bigint else 0 end as place
        from leasehold_internal.stretches(p_namespaces, p_include_children) t
       cross join lateral (
         select *
           from leasehold.waiter w
          where w.namespace >= t.low and w.namespace <= t.high
            and (p_key is null or w.key = p_key)
            and (p_after is null
                 or (w.namespace, w.key, w.ticket) > (v_after[1] collate "C", v_after[2] collate "C", v_after[3]::bigint))
          order by w.namespace, w.key, w.ticket
          limit p_limit) x
        left join leasehold.coordinator c
          on c.id = x.coordinator
       cross join lateral (select leasehold_internal.has_place(x, c.seen_at, v_now)) p (has_place)
       order by x.namespace, x.key, x.ticket
       limit p_limit
    ), ordered as materialized (
      select s.namespace, s.key, leasehold_internal.tickets_by_priority(s.namespace, s.key, v_live, v_now) as tickets
        from (select distinct g.namespace, g.key from page g) s
       where leasehold_internal.has_priority(s.namespace, s.key)
    )
    select w.namespace, w.key,
           case when w.has_place then (case when o.key is null then w.place else coalesce(array_position(o.tickets, w.ticket), 1000) + 1 end)::text end, w.owner, w.principal, leasehold_internal.to_us(v_now - w.enqueued_at)::text,
           coalesce(w.away_until > v_now, false)::text, leasehold_internal.epoch_us(w.enqueued_at), leasehold_internal.epoch_us(w.wait_until),
           leasehold_internal.to_us(w.duration)::text, w.coordinator::text, w.ticket::text,
           case when w.units is null then 'exclusive' else 'shared' end, coalesce(w.units, 0)::text,
           (select leasehold_internal.epoch_us(leasehold_internal.rests_until(s, v_life, v_now))
              from leasehold.scope s
             where s.namespace = w.namespace and s.key = w.key and s.at_least is not null),
           coalesce(w.items, 1)::text, w.priority::text,
           concat_ws(E'\n', w.namespace, w.key, w.ticket::text, w.place::text)
      from page w
      left join ordered o
        on o.namespace = w.namespace and o.key = w.key
     order by w.namespace, w.key, w.ticket;
end
$$;

-- Holders that wait for another scope: an edge from what they hold to what they want. The lease key tells that they are one: requests of one name may be
-- two threads, and a circle of names is none. Shared holds are left out, because another of their holders may make room; and what nobody waits for, however
-- much of it a waiter holds. With a key the edges from that scope on, over any number of others: what its holder waits for, and so on. Looked at are the first
-- 20,000 waiters; of edges the first 1,000. Where there are more, the last row has no owner. Locks nothing.
create or replace function leasehold_internal.view_waits(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (owner text, principal text, holds_namespace text, holds_key text, wants_namespace text, wants_key text, after text)
language sql stable
security definer
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
  with recursive stretch as materialized (
    select t.low, t.high, clock_timestamp() as now from leasehold_internal.stretches(p_namespaces, true) t
  ), waiter as materialized (
    select x.*, leasehold_internal.has_place(x, c.seen_at, t.now) as has_place
      from stretch t
     cross join lateral (
       select * from leasehold.waiter w
        where w.namespace >= t.low and w.namespace <= t.high
        order by w.namespace, w.key, w.ticket
        limit 20000) x
      left join leasehold.coordinator c
        on c.id = x.coordinator
     limit 20000
  ), holder as (
    select s.namespace, s.key, s.lease_key
      from (select w.namespace, w.key from waiter w where w.has_place union select p_after, p_key where p_key is not null) w
      join leasehold.scope s
        on s.namespace = w.namespace and s.key = w.key
     where s.state = 'held'
  ), edge as materialized (
    select distinct w.owner, w.principal, h.namespace as holds_namespace, h.key as holds_key, w.namespace as wants_namespace, w.key as wants_key
      from waiter w
      join holder h
        on h.lease_key = w.lease_key
     where w.has_place
     limit 1000
  ), reached as (
    select e.holds_namespace as namespace, e.holds_key as key
      from edge e
     where p_key is null
    union
    select p_after, p_key
     where p_key is not null
    union
    select e.wants_namespace, e.wants_key
      from reached r
      join edge e
        on e.holds_namespace = r.namespace and e.holds_key = r.key
     where p_key is not null
  )
  (select e.owner, e.principal, e.holds_namespace, e.holds_key, e.wants_namespace, e.wants_key, null
     from edge e
    where exists (select from reached r where r.namespace = e.holds_namespace and r.key = e.holds_key)
    order by 3, 4, 5, 6
    limit p_limit - 1)
   union all
  select null, null, null, null, null, null, null
   where (select count(*) from waiter) >= 20000 or (select count(*) from edge) >= 1000
$$;

-- Holds that have ended, the newest first: of a scope in the order of its tokens, of namespaces in that of their ends, from a span of days that
-- grows until there is enough, because a partition holds a day. Locks nothing.
create or replace function leasehold_internal.view_history(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  namespace text, key text, token text, acquired_at text, ended_at text, outcome text, owner text, principal text, result text, error text,
  ended_by text, mode text, units text, slots text, after text)
language plpgsql stable
security definer
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_after text[] := string_to_array(p_after, E'\n');
  v_until timestamptz := coalesce(to_timestamp(0) + v_after[1]::bigint * interval '1 us', 'infinity');
  v_from timestamptz;
  v_days integer := 1;
  v_found leasehold.history[];
begin
  if p_key is not null then
    v_found := array(
      select h
        from leasehold.history h
       where h.namespace = p_namespaces[1] and h.key = p_key and h.token < coalesce(p_after::bigint, 9223372036854775807)
       order by h.token desc
       limit p_limit);
  else
    loop
      v_from := case when v_days > 4096 then '-infinity' else least(v_until, clock_timestamp()) - v_days * interval '1 day' end;
      v_found := array(
        select h
          from leasehold.history h
         where h.ended_at <= v_until and h.ended_at > v_from
           and leasehold_internal.is_within(h.namespace, p_namespaces, p_include_children)
           and (p_after is null or h.ended_at < v_until
                or (h.namespace, h.key, -h.token) > (v_after[2] collate "C", v_after[3] collate "C", -v_after[4]::bigint))
         order by h.ended_at desc, h.namespace, h.key, h.token desc
         limit p_limit);
      exit when cardinality(v_found) >= p_limit or v_days > 4096;
      v_days := 4 * v_days;
    end loop;
  end if;
  return query
    select h.namespace, h.key, h.token::text, leasehold_internal.epoch_us(h.acquired_at), leasehold_internal.epoch_us(h.ended_at), h.outcome, h.owner,
           h.principal, h.result::text, h.error, h.ended_by, h.mode, h.units::text, array_to_string(h.slots, ','),
           case when p_key is null then concat_ws(E'\n', leasehold_internal.epoch_us(h.ended_at), h.namespace, h.key, h.token::text)
                else h.token::text end
      from unnest(v_found) h;
end
$$;

-- Expired leases whose reap failed; the condition is that of leasehold.reap_failure. Locks nothing.
create or replace function leasehold_internal.view_failures(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  namespace text, key text, token text, owner text, principal text, reap_failures text, error text, failed_at text, next_try_at text, after text)
language sql stable
security definer
as $$
  select f.namespace, f.key, f.token::text, f.owner, s.principal, f.reap_failures::text, f.error, leasehold_internal.epoch_us(f.failed_at),
         leasehold_internal.epoch_us(f.next_try_at), concat_ws(E'\n', f.namespace, f.key, f.token::text)
    from leasehold.reap_failure f
    join (select s.namespace, s.key, s.token, s.principal from leasehold.scope s where s.state = 'held'
           union all
          select h.namespace, h.key, h.token, h.principal from leasehold.share h where h.state = 'held') s
      on s.namespace = f.namespace and s.key = f.key and s.token = f.token
   where leasehold_internal.is_within(f.namespace, p_namespaces, p_include_children)
     and (p_key is null or f.key = p_key)
     and (p_after is null
          or (f.namespace collate "C", f.key collate "C", f.token)
             > (split_part(p_after, E'\n', 1) collate "C", split_part(p_after, E'\n', 2) collate "C",
                coalesce(nullif(split_part(p_after, E'\n', 3), '')::bigint, 9223372036854775807)))
   order by f.namespace collate "C", f.key collate "C", f.token
   limit p_limit
$$;

-- The audit, the newest first: from a span of days that doubles until there is enough, because a partition holds a day. Locks nothing.
create or replace function leasehold_internal.view_audit(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  at text, principal text, peer text, action text, namespace text, key text, token text, reason text, outcome text, count text, after text)
language plpgsql stable
security definer
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
returns table (id text, host text, pid text, version text, started_at text, seen_at text, live text, self text, seen text, waiters text, after text)
language sql stable
security definer
as $$
  select c.id::text, c.host, c.pid::text, c.version, leasehold_internal.epoch_us(c.started_at), leasehold_internal.epoch_us(c.seen_at),
         (c.seen_at > n.now - interval '5 s')::text, (c.id::text = p_key)::text, leasehold_internal.to_us(n.now - c.seen_at)::text,
         coalesce(w.waiters, 0)::text, c.id::text
    from leasehold.coordinator c
    left join (select q.coordinator, count(*) as waiters from leasehold.waiter q group by q.coordinator) w
      on w.coordinator = c.id
   cross join (select clock_timestamp() as now) n
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
as $$
  select current_setting('server_version'), case when pg_is_in_recovery() then 'standby' else 'primary' end,
         (select count(*)::text from leasehold.waiter),
         (select leasehold_internal.to_us(greatest(clock_timestamp() - least((select min(s.check_at) from leasehold.scope s),
                                                                            (select min(h.check_at) from leasehold.share h)), interval '0'))::text)
$$;

grant execute on function leasehold_internal.view_namespaces, leasehold_internal.view_explain, leasehold_internal.view_queue,
  leasehold_internal.view_waits, leasehold_internal.view_history, leasehold_internal.view_failures, leasehold_internal.view_audit,
  leasehold_internal.view_daemons, leasehold_internal.view_database to leasehold_coordinator;
