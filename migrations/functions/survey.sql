-- What a daemon measures every 15 s: how many leases are held (of a table over 64 MiB an estimate, from a sample of its
-- pages: 70 ms), and of the transactions that keep dead rows from being removed the one that is open longest, with who has it; a
-- row without it where there is none. Other sessions' transactions are shown to members of pg_monitor (pg_read_all_stats) only: where
-- neither the daemon's role nor leasehold_owner is one, oldest_us is -1, for unknown. Locks nothing.
create or replace function leasehold_internal.survey()
returns table (held bigint, oldest_us bigint, oldest_pid integer, oldest_user text, oldest_application text, oldest_state text)
language plpgsql
stable
security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_has_role('pg_read_all_stats', 'usage') then
    return query select leasehold_internal.count_held(), o.* from (select) x left join leasehold_internal.oldest_transaction() o on true;
  else
    return query select leasehold_internal.count_held(), o.* from (select) x left join leasehold_internal.oldest_transaction_by_owner() o on true;
  end if;
end
$$;
comment on function leasehold_internal.survey is 'What a daemon measures: leases held, and the transaction that holds back vacuum';

-- How it stands with the holders and waiters of each namespace, for whoever is to wake somebody: how many leases are past their deadline and not
-- expired yet, silent (suspected dead), held for longer than max_hold, expired and still there; how long the oldest is held and the first waiter
-- waits. The `p_max` namespaces that are worst, and the others together, whose namespace is null. Reads each held row
-- twice, so daemons ask the more seldom the longer it takes. Locks nothing.
create or replace function leasehold_internal.survey_namespaces(p_max integer)
returns table (
  namespace text, overdue bigint, silent bigint, held_too_long bigint, expired bigint, oldest_hold_us bigint, longest_wait_us bigint)
language plpgsql
volatile
security definer
set jit = off
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_life leasehold.life_now := leasehold_internal.life(null);
  v_names text[] := array(select s.namespace from leasehold.scope s where s.state <> 'free' group by s.namespace);
  -- Those that have the root's policy alone take one that stands for all.
  v_own text[] := array(
    select n
      from unnest(v_names) n
     where exists (select from leasehold.policy p where p.namespace <> '' and starts_with(n || '.', p.namespace || '.')));
  v_rules leasehold.rules[] := array(select r from leasehold_internal.policies_of(v_own) r);
  v_root leasehold.rules;
begin
  select r.*
    into v_root
    from leasehold_internal.policies_of(array(select n from unnest(v_names) n where not exists (select from unnest(v_own) o where o = n) limit 1)) r;
  return query
    with held as (
      -- Only what is past its deadline may be expired.
      select h.namespace, h.acquired_at, h.deadline <= v_now or h.lapsed as is_late,
             h.heartbeat_at + coalesce(h.dead_after, h.duration * 2 / 3) <= v_now as is_silent,
             h.acquired_at + h.max_hold <= v_now as is_long,
             case when h.deadline <= v_now or h.lapsed then leasehold_internal.is_expired(h.scope, v_life, h.expiry, v_now) else false end as is_expired
        from (select s.namespace, s.acquired_at, s.deadline, s.lapsed, s.heartbeat_at, s.duration, (r.rules).dead_after, (r.rules).max_hold, (r.rules).expiry, s as scope
                from leasehold.scope s
                left join unnest(v_rules) o
                  on o.namespace = s.namespace
               cross join lateral (select case when o.namespace is null then v_root else o end as rules) r
               where s.state = 'held'
               union all
              select s.namespace, s.acquired_at, s.deadline, s.lapsed, s.heartbeat_at, s.duration, (r.rules).dead_after, (r.rules).max_hold, (r.rules).expiry,
                     case when s.deadline <= v_now or s.lapsed then leasehold_internal.scope_of_share(s) end
                from leasehold.share s
                left join unnest(v_rules) o
                  on o.namespace = s.namespace
               cross join lateral (select case when o.namespace is null then v_root else o end as rules) r
               where s.state = 'held') h
    ), counted as (
      select c.namespace, sum(c.overdue)::bigint as overdue, sum(c.silent)::bigint as silent, sum(c.long)::bigint as long,
             sum(c.expired)::bigint as expired, min(c.acquired_at) as acquired_at, min(c.enqueued_at) as enqueued_at
        from (select h.namespace, count(*) filter (where h.is_late and not h.is_expired) as overdue,
                     count(*) filter (where h.is_silent and not h.is_expired) as silent, count(*) filter (where h.is_long) as long,
                     count(*) filter (where h.is_expired) as expired, min(h.acquired_at) as acquired_at, null::timestamptz as enqueued_at
                from held h
               group by h.namespace
               union all
              select w.namespace, 0, 0, 0, 0, null, min(w.enqueued_at)
                from leasehold.waiter w
               where (w.wait_until is null or w.wait_until > v_now) and (w.away_until is null or w.away_until > v_now)
               group by w.namespace) c
       group by c.namespace
    ), ranked as (
      select c.*,
             row_number() over (order by c.overdue + c.silent + c.long + c.expired desc, least(c.acquired_at, c.enqueued_at), c.namespace) <= p_max as is_named
        from counted c
    )
    select case when r.is_named then r.namespace end, sum(r.overdue)::bigint, sum(r.silent)::bigint, sum(r.long)::bigint, sum(r.expired)::bigint,
           coalesce(leasehold_internal.to_us(v_now - min(r.acquired_at)), 0), coalesce(leasehold_internal.to_us(v_now - min(r.enqueued_at)), 0)
      from ranked r
     group by case when r.is_named then r.namespace end;
end
$$;
comment on function leasehold_internal.survey_namespaces is 'What daemons measure: holders and waiters that somebody should look at, by namespace';

-- What is wrong though daemons can work: why partitions cannot be looked after (null: they can). And the checksum of the functions that are
-- installed. Locks nothing.
create or replace function leasehold_internal.findings() returns table (keeping text, functions text)
language sql
stable
security definer
as $$
  select (select string_agg(format('the partitions of leasehold.%s cannot be looked after since %s: %s', k.name,
                                   to_char(k.failing_since at time zone 'UTC', 'YYYY-MM-DD HH24:MI "UTC"'), k.error), '; ' order by k.name)
            from leasehold.keeping k
           where k.error is not null),
         (select m.checksum from leasehold.migration m where m.number = 0)
$$;
comment on function leasehold_internal.findings is 'What is wrong though daemons can work';

-- Leases that are held, each shared one, roughly where there are many. Locks nothing.
create or replace function leasehold_internal.count_held() returns bigint
language plpgsql
stable
security definer
as $$
declare
  v_pages bigint := greatest(pg_relation_size('leasehold.scope') / current_setting('block_size')::bigint, 1);
  v_percent real := least(100.0, 100.0 * 8192 / v_pages);
begin
  return (select round(coalesce(sum(leasehold_internal.holder_count(s)), 0) * 100 / v_percent)::bigint
            from leasehold.scope s tablesample system (v_percent)
           where s.state <> 'free');
end
$$;
comment on function leasehold_internal.count_held is 'Leases held, a part of survey()';

-- Of the transactions that hold back vacuum the oldest, as far as its caller may see them. Locks nothing.
create or replace function leasehold_internal.oldest_transaction()
returns table (us bigint, pid integer, usename text, application text, state text)
language sql
stable
as $$
  select (extract(epoch from clock_timestamp() - t.xact_start) * 1000000)::bigint, t.pid, t.usename::text, t.application_name, t.state
    from pg_stat_activity t
   where (t.backend_xid is not null or t.backend_xmin is not null)
     and t.xact_start is not null
     and t.pid <> pg_backend_pid()
     and (t.datname is null or t.datname = current_database())
     -- A vacuum holds back nobody.
     and t.backend_type is distinct from 'autovacuum worker'
   order by t.xact_start
   limit 1
$$;
comment on function leasehold_internal.oldest_transaction is 'The transaction that holds back vacuum, a part of survey()';

-- The same with the rights of leasehold_owner; -1 where it may not see them either. Locks nothing.
create or replace function leasehold_internal.oldest_transaction_by_owner()
returns table (us bigint, pid integer, usename text, application text, state text)
language plpgsql
stable
security definer
as $$
begin
  if pg_has_role('pg_read_all_stats', 'usage') then
    return query select o.* from leasehold_internal.oldest_transaction() o;
  else
    return query select -1::bigint, null::integer, null::text, null::text, null::text;
  end if;
end
$$;
comment on function leasehold_internal.oldest_transaction_by_owner is 'The transaction that holds back vacuum, a part of survey()';

grant execute on function leasehold_internal.survey, leasehold_internal.survey_namespaces, leasehold_internal.findings,
  leasehold_internal.count_held, leasehold_internal.oldest_transaction, leasehold_internal.oldest_transaction_by_owner
  to leasehold_coordinator, leasehold_admin;
