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

-- What is wrong though daemons can work: why partitions cannot be looked after (null: they can). And the checksum of the functions that are
-- installed. Locks nothing.
create or replace function leasehold_internal.findings() returns table (keeping text, functions text)
language sql
stable
security definer
set search_path = pg_catalog, pg_temp
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
set search_path = pg_catalog, pg_temp
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
set search_path = pg_catalog, pg_temp
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

revoke execute on function leasehold_internal.survey(), leasehold_internal.findings(), leasehold_internal.count_held(), leasehold_internal.oldest_transaction(),
  leasehold_internal.oldest_transaction_by_owner() from public;
grant execute on function leasehold_internal.survey(), leasehold_internal.findings(), leasehold_internal.count_held(), leasehold_internal.oldest_transaction(),
  leasehold_internal.oldest_transaction_by_owner() to leasehold_coordinator, leasehold_admin;
