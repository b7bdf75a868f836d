-- A daemon connects (again): its row is written, and the incarnation is renewed where the facts differ from it or where no
-- coordinator was live, for then nobody could renew. Locks its own row, and the incarnation without waiting.
create or replace function leasehold.coordinator_register(p_coordinator uuid, p_host text, p_pid integer, p_version text)
returns table (database_now timestamptz, timeline bigint, schema_version integer)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  if not leasehold.notice_incarnation() and cardinality(leasehold.live_coordinators(v_now)) = 0 then
    perform leasehold.renew_incarnation('the first coordinator after a time with none');
  end if;
  insert into leasehold.coordinator as c (id, host, pid, version, started_at, seen_at)
  values (p_coordinator, p_host, p_pid, p_version, v_now, v_now)
      on conflict (id) do update
     set host = excluded.host, pid = excluded.pid, version = excluded.version, seen_at = excluded.seen_at;
  return query
    select clock_timestamp(), f.timeline, (select max(m.number) from leasehold.migration m)
      from leasehold.incarnation_facts() f;
end
$$;
comment on function leasehold.coordinator_register is 'A daemon registers, or registers again';

-- A daemon's sign of life, once a second. The first row tells the time and whether it is registered; then follows a row for
-- each scope, free or expired, whose first live waiter is its own: the poll beneath the notifications. A clock that stepped
-- forward by over 1 s against the daemon's, and facts that differ, renew the incarnation. Locks its own row.
create or replace function leasehold.coordinator_tick(p_coordinator uuid, p_clock timestamptz)
returns table (database_now timestamptz, is_registered boolean, namespace text, key text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_live uuid[];
  v_life leasehold.life_now;
  v_is_registered boolean;
begin
  -- Of one that is being swept (seen at the epoch) some waiters are gone already: it registers again, with all of them.
  update leasehold.coordinator c set seen_at = v_now where c.id = p_coordinator and c.seen_at > 'epoch';
  v_is_registered := found;
  if not leasehold.notice_incarnation() and v_now > p_clock + interval '1 s' then
    perform leasehold.renew_incarnation('the clock of the database stepped forward');
  end if;
  if v_now < p_clock - interval '1 s' then
    -- It stepped back: nobody's sign of life may lie in the future, or the dead would look alive.
    update leasehold.coordinator c set seen_at = v_now where c.seen_at > v_now;
  end if;
  if exists (select from leasehold.history_keeping k where k.look_at <= v_now) then
    perform leasehold.keep_history(v_now, true);
  end if;
  return query select clock_timestamp(), v_is_registered, null::text, null::text;
  if v_is_registered and exists (select 1 from leasehold.waiter q where q.coordinator = p_coordinator) then
    v_life := leasehold.life(p_clock);
    v_live := leasehold.live_coordinators(v_now);
    -- A free scope with waiters is due within a second, an expired one is due now (see check_at).
    return query
      select null::timestamptz, null::boolean, d.namespace, d.key
        from (select s as scope, s.namespace, s.key
                from leasehold.scope s
               where s.check_at <= v_now + interval '1 s'
               order by s.check_at
               limit 10000) d
       cross join lateral leasehold.live_head(d.namespace, d.key, v_live, v_now) h
       where h.coordinator = p_coordinator
         and ((d.scope).state = 'free' or leasehold.is_expired(d.scope, v_life, 'takeover', v_now))
       limit 1000;
  end if;
end
$$;
comment on function leasehold.coordinator_tick is 'A daemon''s sign of life, and its slow poll';

-- A daemon shuts down cleanly: its row and its watches go, its waiters' places are kept for 10 s, passed over. Locks its own row.
create or replace function leasehold.coordinator_unregister(p_coordinator uuid) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  delete from leasehold.coordinator c where c.id = p_coordinator;
  perform leasehold.watch_clear(p_coordinator);
  update leasehold.waiter q
     set away_until = v_now + interval '10 s'
   where q.coordinator = p_coordinator and q.away_until is null;
  perform leasehold.wake_head(null, s.namespace, s.key)
     from (select distinct q.namespace, q.key from leasehold.waiter q where q.coordinator = p_coordinator) q
     join leasehold.scope s on s.namespace = q.namespace and s.key = q.key
    where s.state = 'free';
end
$$;
comment on function leasehold.coordinator_unregister is 'A daemon shuts down cleanly';

revoke execute on function leasehold.coordinator_register(uuid, text, integer, text),
  leasehold.coordinator_tick(uuid, timestamptz), leasehold.coordinator_unregister(uuid) from public;
grant execute on function leasehold.coordinator_register(uuid, text, integer, text),
  leasehold.coordinator_tick(uuid, timestamptz), leasehold.coordinator_unregister(uuid)
  to leasehold_coordinator, leasehold_admin;
