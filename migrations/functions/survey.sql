-- What a daemon measures every 15 s: how many leases are held (of a table over 64 MiB an estimate, from a sample of its
-- pages: 70 ms), and of the transactions that keep dead rows from being removed the one that is open longest, with who has it; a
-- row without it where there is none. Locks nothing.
create or replace function leasehold.survey()
returns table (held bigint, oldest_us bigint, oldest_pid integer, oldest_user text, oldest_application text, oldest_state text)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_pages bigint := greatest(pg_relation_size('leasehold.scope') / current_setting('block_size')::bigint, 1);
  v_percent real := least(100.0, 100.0 * 8192 / v_pages);
begin
  return query
    select c.held, (extract(epoch from clock_timestamp() - a.xact_start) * 1000000)::bigint, a.pid, a.usename::text,
           a.application_name, a.state
      from (select round(count(*) * 100 / v_percent)::bigint as held
              from leasehold.scope s tablesample system (v_percent)
             where s.state = 'held') c
      left join lateral (
           select t.*
             from pg_stat_activity t
            where (t.backend_xid is not null or t.backend_xmin is not null)
              and t.xact_start is not null
              and t.pid <> pg_backend_pid()
              and (t.datname is null or t.datname = current_database())
              -- A vacuum holds back nobody.
              and t.backend_type is distinct from 'autovacuum worker'
            order by t.xact_start
            limit 1) a
        on true;
end
$$;
comment on function leasehold.survey is 'What a daemon measures: leases held, and the transaction that holds back vacuum';

revoke execute on function leasehold.survey() from public;
grant execute on function leasehold.survey() to leasehold_coordinator, leasehold_admin;
