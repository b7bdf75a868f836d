-- The coordinators that are live: seen within 3.5 s. The others look once a second, so the waiters of one that died are passed
-- over within 5 s. Locks nothing.
create or replace function leasehold_internal.live_coordinators(p_now timestamptz) returns uuid[]
language plpgsql stable
as $$
begin
  return array(select c.id from leasehold.coordinator c where c.seen_at > p_now - interval '3.5 s');
end
$$;

-- Of each priority in a queue the first live waiter that is none of `p_but`. `at` is when it came, earlier by one ageing for each step of its
-- priority. Locks nothing.
create or replace function leasehold_internal.live_heads(
  p_namespace text, p_key text, p_live uuid[], p_now timestamptz, p_but uuid[] default '{}')
returns table (ticket bigint, lease_key uuid, coordinator uuid, units integer, items smallint, priority integer, at timestamptz)
language plpgsql stable
set enable_seqscan = off
as $$
declare
  v_ageing constant interval := (leasehold_internal.policy_of(p_namespace)).ageing;
begin
  return query
    with recursive p (priority) as (
      select max(w.priority) from leasehold.waiter w where w.namespace = p_namespace and w.key = p_key and w.priority > 0
       union all
      select (select max(w.priority)
                from leasehold.waiter w
               where w.namespace = p_namespace and w.key = p_key and w.priority > 0 and w.priority < p.priority)
        from p
       where p.priority is not null)
    select h.ticket, h.lease_key, h.coordinator, h.units, h.items, h.priority, h.enqueued_at - h.priority * v_ageing
      from p
     cross join lateral (
       select w.*
         from leasehold.waiter w
        where w.namespace = p_namespace and w.key = p_key and w.priority > 0 and w.priority = p.priority
          and w.lease_key <> all (p_but)
          {{live.text}}
        order by w.namespace, w.key, w.priority, w.ticket
        limit 1) h
     union all
   (select w.ticket, w.lease_key, w.coordinator, w.units, w.items, 0, w.enqueued_at
      from leasehold.waiter w
     where w.namespace = p_namespace and w.key = p_key and w.priority = 0
       and w.lease_key <> all (p_but)
       {{live.text}}
     order by w.namespace, w.key, w.ticket
     limit 1);
end
$$;

-- The ticket of the one of them that is next; null: there is none. Locks nothing.
create or replace function leasehold_internal.first_by_priority(
  p_namespace text, p_key text, p_live uuid[], p_now timestamptz, p_but uuid[]) returns bigint
language sql stable
as $$
  select h.ticket from leasehold_internal.live_heads(p_namespace, p_key, p_live, p_now, p_but) h order by h.at, h.priority desc limit 1
$$;

-- Promise 6: among those who are live, first come, first served; where some have a priority, of the first of each priority the one with the
-- earliest `at`. So one with priority p is overtaken by one with q only where that one came less than (q - p) * ageing after it.
-- The first live waiter of a scope that is none of `p_but`, or no row: not away, its wait not over, its coordinator (if any) live. Read it in a
-- statement after the one that locked the scope's row, or lose a wake-up. Locks nothing.
create or replace function leasehold_internal.live_head(
  p_namespace text, p_key text, p_live uuid[], p_now timestamptz, p_but uuid[] default '{}')
returns table (ticket bigint, lease_key uuid, coordinator uuid, units integer, items smallint, priority integer)
language sql stable
as $$
  select w.ticket, w.lease_key, w.coordinator, w.units, w.items, w.priority
    from leasehold.waiter w
   where w.namespace = p_namespace and w.key = p_key
     and w.ticket >= case when exists (select from leasehold.waiter a
                                        where a.namespace = p_namespace and a.key = p_key and a.priority > 0)
                          then leasehold_internal.first_by_priority(p_namespace, p_key, p_live, p_now, p_but) else 0 end
     and w.lease_key <> all (p_but)
     {{live.text}}
   order by w.namespace, w.key, w.ticket
   limit 1
$$;

-- Does anybody in this queue have a priority? Locks nothing.
create or replace function leasehold_internal.has_priority(p_namespace text, p_key text) returns boolean
language plpgsql stable
set enable_seqscan = off
as $$
begin
  return exists (select from leasehold.waiter w where w.namespace = p_namespace and w.key = p_key and w.priority > 0);
end
$$;

-- Is a live waiter, none of `p_but`, before one that has this ticket, this priority and this `at`? Locks nothing.
create or replace function leasehold_internal.is_preceded(
  p_namespace text, p_key text, p_live uuid[], p_now timestamptz, p_but uuid[], p_ticket bigint, p_priority integer, p_at timestamptz)
returns boolean
language sql stable
as $$
  select exists (select
                   from leasehold_internal.live_heads(p_namespace, p_key, p_live, p_now, p_but) h
                  where case h.priority when p_priority then h.ticket < p_ticket else (h.at, p_priority) < (p_at, h.priority) end)
$$;

-- When one who comes now with this ticket came: before those of its priority that have later tickets, who queued while its place was lost. Locks
-- nothing.
create or replace function leasehold_internal.came_at(p_namespace text, p_key text, p_ticket bigint, p_priority integer, p_now timestamptz)
returns timestamptz
language plpgsql stable
set enable_seqscan = off
as $$
begin
  return least(p_now, (select w.enqueued_at
                         from leasehold.waiter w
                        where w.namespace = p_namespace and w.key = p_key and w.ticket > p_ticket and w.priority = p_priority
                        order by w.namespace, w.key, w.ticket
                        limit 1));
end
$$;

-- What decide() needs of items where anybody has a priority, or asks for one: that which its place has or, with `queue`, gets, and `at`, which is
-- that of the last one that comes before it. Locks nothing.
create or replace function leasehold_internal.with_priorities(p_work leasehold.acquire_work[], p_now timestamptz)
returns leasehold.acquire_work[]
language plpgsql
set enable_seqscan = off
as $$
declare
  v_found record;
  v_item leasehold.acquire_work;
begin
  for v_found in
    select i.item, i.priority,
           max(i.came_at - i.priority * ((i.item).rules).ageing)
             over (partition by (i.item).namespace, (i.item).key, i.priority order by i.place, (i.item).n) as at
      from (select u.item, coalesce(q.ticket, (u.item).ticket, 9223372036854775807) as place, case when (u.item).queue then u.priority else coalesce(q.priority, u.priority) end as priority,
                   coalesce(q.enqueued_at,
                            leasehold_internal.came_at((u.item).namespace, (u.item).key, (u.item).ticket, u.priority, p_now)) as came_at
              from (select w as item, coalesce(abs(w.priority), 0) as priority,
                           bool_or(w.priority <> 0) over (partition by w.namespace, w.key) as has_priority
                      from unnest(p_work) w) u
              left join leasehold.waiter q
                on q.lease_key = (u.item).lease_key and q.namespace = (u.item).namespace and q.key = (u.item).key
                   and (q.wait_until is null or q.wait_until > p_now)
             where (u.item).field is null and (u.has_priority or leasehold_internal.has_priority((u.item).namespace, (u.item).key))) i
  loop
    v_item := v_found.item;
    v_item.priority := v_found.priority;
    v_item.at := v_found.at;
    p_work[v_item.n] := v_item;
  end loop;
  return p_work;
end
$$;

-- What a priority may be of who has the right lease. Locks nothing.
create or replace function leasehold_internal.priority_bound(p_max_priority integer, p_priority integer) returns text
language sql immutable
as $$
  select format('at most %s, the max_priority of the namespace, without the right admin, is %s', p_max_priority, p_priority)
$$;

-- Why the session may not have this priority here, as that bound; null: it may. A place keeps what was allowed when it was taken. Locks nothing.
create or replace function leasehold_internal.priority_denial(p_namespace text, p_key text, p_lease_key uuid, p_priority integer) returns text
language plpgsql
as $$
declare
  v_max_priority integer;
begin
  if p_priority = 0 then
    return null;
  end if;
  v_max_priority := (leasehold_internal.policy_of(p_namespace)).max_priority;
  if p_priority <= v_max_priority or leasehold_internal.session_may('admin', p_namespace)
     or exists (select from leasehold.waiter w
                 where w.lease_key = p_lease_key and w.namespace = p_namespace and w.key = p_key and w.priority = p_priority) then
    return null;
  end if;
  raise log 'access denied principal=role:% right=admin namespace=% priority=%', session_user, p_namespace, p_priority;
  return leasehold_internal.priority_bound(v_max_priority, p_priority);
end
$$;

-- The tickets of the live waiters of a scope, in order: the first 1,000, so that joining a long queue costs no more than
-- joining a short one. Places beyond are told as 1,000 ahead. Where anybody has a priority the first subscript is 0, and each ticket's is how many
-- are before it. Locks nothing.
create or replace function leasehold_internal.live_tickets(p_namespace text, p_key text, p_live uuid[], p_now timestamptz)
returns bigint[]
language plpgsql stable
as $$
begin
  return case
    when exists (select from leasehold.waiter w where w.namespace = p_namespace and w.key = p_key and w.priority > 0)
      then leasehold_internal.tickets_by_priority(p_namespace, p_key, p_live, p_now)
    else array(
      select w.ticket
        from leasehold.waiter w
       where w.namespace = p_namespace and w.key = p_key
         {{live.text}}
       order by w.namespace, w.key, w.ticket
       limit 1000)
  end;
end
$$;

-- How many are before one that comes now and has no priority, up to 1,000: all of them. Locks nothing.
create or replace function leasehold_internal.count_before_last(p_namespace text, p_key text, p_live uuid[], p_now timestamptz) returns integer
language plpgsql stable
as $$
begin
  return (
    select count(*)
      from (select
              from leasehold.waiter w
             where w.namespace = p_namespace and w.key = p_key
               {{live.text}}
             order by w.namespace, w.key, w.ticket
             limit 1000) w);
end
$$;

-- The same where anybody has a priority: of those who are before one that comes now with a priority and its `at`, or of all. Whoever stands behind
-- one of its own priority that came later by the clock counts as that one. Locks nothing.
create or replace function leasehold_internal.tickets_by_priority(
  p_namespace text, p_key text, p_live uuid[], p_now timestamptz, p_priority integer default null, p_at timestamptz default null)
returns bigint[]
language plpgsql stable
set enable_seqscan = off
as $$
declare
  v_ageing constant interval := (leasehold_internal.policy_of(p_namespace)).ageing;
  v_sorted bigint[];
begin
  v_sorted := array(
    select s.ticket
      from (select o.ticket, o.priority,
                   max(o.enqueued_at - o.priority * v_ageing) over (partition by o.priority order by o.ticket) as at
              from leasehold_internal.live_heads(p_namespace, p_key, p_live, p_now) h
             cross join lateral (
               select w.ticket, w.priority, w.enqueued_at
                 from leasehold.waiter w
                where w.namespace = p_namespace and w.key = p_key and w.priority = h.priority and w.ticket >= h.ticket
                  {{live.text}}
                order by w.namespace, w.key, w.ticket
                limit 1000) o) s
     where p_at is null or s.priority = p_priority or (s.at, p_priority) < (p_at, s.priority)
     order by s.at, s.priority desc, s.ticket
     limit 1000);
  if v_sorted = '{}' then
    return v_sorted;
  end if;
  -- PL/pgSQL of PostgreSQL 13 assigns to no slice.
  return format('[0:%s]=%s', cardinality(v_sorted) - 1, v_sorted)::bigint[];
end
$$;

-- How many of the tickets come before this one; all of them when it is null. Locks nothing.
create or replace function leasehold_internal.tickets_ahead(p_tickets bigint[], p_ticket bigint) returns integer
language sql immutable
as $$
  select case
    when cardinality(p_tickets) = 0 then 0
    when p_ticket is null then cardinality(p_tickets)
    when array_lower(p_tickets, 1) = 0 then coalesce(array_position(p_tickets, p_ticket), cardinality(p_tickets))
    else width_bucket(p_ticket - 1, p_tickets)
  end
$$;

-- Where a waiter is told that its turn has come: its coordinator's channel, or the SQL user's own. Locks nothing.
create or replace function leasehold_internal.channel_of(p_coordinator uuid, p_lease_key uuid) returns text
language sql immutable
as $$
  select 'leasehold_' || case when p_coordinator is null then left(md5(p_lease_key::text), 16)
                              else replace(p_coordinator::text, '-', '') end
$$;

-- Tell the first live waiter of a scope that is not held exclusively; where it is shared, if there is room for it. Returns true where that is `p_coordinator`'s own, which is then
-- told by this answer and not by NOTIFY. The caller has the scope's row locked, by an earlier statement.
create or replace function leasehold_internal.wake_head(p_coordinator uuid, p_namespace text, p_key text) returns boolean
language plpgsql
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_head record;
begin
  select h.* into v_head
    from leasehold_internal.live_head(p_namespace, p_key, leasehold_internal.live_coordinators(v_now), v_now) h;
  if not found
     or exists (select from leasehold.scope s
                 where s.namespace = p_namespace and s.key = p_key and s.state = 'shared'
                   and not leasehold_internal.has_room(s, v_head.units)) then
    return false;
  end if;
  if v_head.coordinator = p_coordinator then
    return true;
  end if;
  perform pg_notify(leasehold_internal.channel_of(v_head.coordinator, v_head.lease_key), p_namespace || chr(10) || p_key);
  return false;
end
$$;

-- In REPEATABLE READ and SERIALIZABLE the queue cannot be seen: who queued since the snapshot was taken is invisible. Then
-- every live coordinator is told. Returns whether that is the case. Locks nothing.
create or replace function leasehold_internal.is_blind() returns boolean
language sql stable
as $$
  select current_setting('transaction_isolation') in ('repeatable read', 'serializable')
$$;

create or replace function leasehold_internal.wake_everybody(p_namespace text, p_key text, p_live uuid[]) returns void
language sql volatile
as $$
  select pg_notify(leasehold_internal.channel_of(c, null), p_namespace || chr(10) || p_key) from unnest(p_live) c
$$;

-- Leases of these scopes have been ended on the quick path, which does not look at the queue: tell SQL users who joined while they
-- were held, and let the reaper look soon, should that get lost. The caller has the rows locked, by an earlier statement.
create or replace function leasehold_internal.wake_sql_users(p_namespace text[], p_key text[]) returns void
language plpgsql
set enable_seqscan = off
as $$
begin
  update leasehold.scope s
     set queued = true,
         check_at = least(s.check_at, clock_timestamp() + interval '1 s')
    from unnest(p_namespace, p_key) as w (namespace, key)
   cross join lateral (select x.ctid as row_id from leasehold.scope x where x.namespace = w.namespace and x.key = w.key offset 0) x
   where s.ctid = x.row_id and s.state = 'free'
     and exists (select from leasehold.waiter q
                  where q.coordinator is null and q.namespace = w.namespace and q.key = w.key);
  perform leasehold_internal.wake_head(null, w.namespace, w.key)
     from unnest(p_namespace, p_key) as w (namespace, key)
    where exists (select from leasehold.waiter q
                   where q.coordinator is null and q.namespace = w.namespace and q.key = w.key);
end
$$;

-- The row of leasehold.creation under whose lock a scope that has none is created. Two scopes may share a slot; the seed, which no
-- client can read, keeps it from being chosen. Locks nothing by itself.
create or replace function leasehold_internal.creation_slot(p_namespace text, p_key text, p_seed bigint) returns integer
language sql immutable parallel safe
as $$
  select (hashtextextended(p_namespace || chr(10) || p_key, p_seed) & 65535)::integer
$$;

-- Why a SQL client may not create these scopes in its transaction, those among them that are new, or with `p_is_limited` join their queues where
-- max_waiters is set; null: it may. Each makes 1 of 65,536 others busy until the transaction ends, of any namespace. Locks rows of ended transactions in leasehold.creator, and the caller's
-- own; waits for nobody.
create or replace function leasehold_internal.creation_problem(p_namespace text[], p_key text[], p_is_limited boolean default false) returns text
language plpgsql
as $$
declare
  c_most constant integer := 1000;
  v_new constant integer := count(*)
                              from unnest(p_namespace, p_key) n (namespace, key)
                             where p_is_limited or not exists (select from leasehold.scope s
                                                              where s.namespace = n.namespace and s.key = n.key
                                                             offset 0);
  v_scopes integer;
begin
  if v_new = 0 or leasehold_internal.is_above_rules() then
    return null;
  end if;
  insert into leasehold.creator as c (xact, scopes)
  values (pg_current_xact_id(), v_new)
      on conflict (xact) do update set scopes = c.scopes + excluded.scopes
  returning c.scopes into v_scopes;
  -- A transaction with an older snapshot would fail on rows that are gone.
  if v_scopes = v_new and current_setting('transaction_isolation') in ('read committed', 'read uncommitted') then
    delete from leasehold.creator c
     where c.xact in (select e.xact
                        from leasehold.creator e
                       where e.xact < pg_snapshot_xmin(pg_current_snapshot())
                       limit 100
                         for update skip locked);
  end if;
  return case when v_scopes > c_most
              then format(case when p_is_limited then 'a transaction joins at most %s queues that have a limit, and this one has; '
                               else 'a transaction creates at most %s scopes, and this one has; ' end
                          || 'commit it, and go on in another', c_most) end;
end
$$;
