-- Visit what is due: end expired leases, delete free rows past their retention, wake the heads of free scopes, and move
-- check_at of everything else on. `p_namespaces` null visits by check_at; names look at every expired lease there, those of
-- `reaper = external` too. Returns a row for each lease reaped (kind reaped), or whose hooks have vetoed that (failed, with the
-- error and the next try); where this call runs no hooks, for each that has some (hooked: their time limit is the error; it is
-- not due again until then, for reap_hooked() is to follow); for each free scope whose head is
-- `p_coordinator`'s own (wake), and one (more) where `p_max` was reached. Where the facts of the database differ from the
-- incarnation it writes a new one and ends nothing. With `p_by_name` false it ends in these namespaces only what a visit by check_at ends: for a caller
-- who named none, and may not reap in all. A reap by name is in the audit, with the leases that it ended or has left to their hooks;
-- With `p_key` it looks at that scope of the namespace alone. `p_by` and `p_peer` are the principal and the address of a daemon's caller.
-- Locks the rows FOR UPDATE SKIP LOCKED, and guarded ones FOR NO KEY UPDATE to look again in a second.
create or replace function leasehold_internal.reap_batch(
  p_coordinator uuid, p_clock timestamptz, p_namespaces text[], p_include_children boolean, p_max integer,
  p_automatic boolean, p_by text default null, p_peer text default null, p_by_name boolean default true,
  p_key text default null)
returns table (
  kind text, namespace text, key text, error text, reap_failures integer, next_try_at timestamptz, wake boolean,
  {{lease.table}}, lease_key uuid, {{shape.table}})
language plpgsql
security definer
{{lookups.settings}}
as $$
#variable_conflict use_column
declare
  v_by_name constant boolean := p_namespaces is not null and p_by_name;
  v_work leasehold.item_work[];
  v_rules leasehold.rules[];
  v_life leasehold.life_now;
  v_live uuid[];
  v_now timestamptz;
  v_hooked text[] := '{}';
  v_has_more boolean;
begin
  if leasehold_internal.notice_incarnation() then
    return;
  end if;
  perform leasehold_internal.be_durable();
  v_now := clock_timestamp();
  v_life := leasehold_internal.life(p_clock);
  if p_namespaces is null then
    v_work := leasehold_internal.take_due(p_max, v_now) || leasehold_internal.take_due_shares(p_max, v_now);
  else
    v_work := leasehold_internal.take_expired(p_namespaces, p_include_children, p_by_name, p_key, p_max, v_life, v_now)
              || leasehold_internal.take_expired_shares(p_namespaces, p_include_children, p_by_name, p_key, p_max, v_life, v_now);
  end if;
  v_now := clock_timestamp();
  v_life := leasehold_internal.life(p_clock);
  v_live := leasehold_internal.live_coordinators(v_now);
  v_rules := array(select r from leasehold_internal.policies_of(array(select distinct w.namespace from unnest(v_work) w)) r);
  -- What is to be done with each row, and who is next there. The queue is read here, after the locks.
  v_work := array(
    select row(w.n, w.namespace, w.key, w.lease_key, null, null, null, null, w.scope,
               case
                 when leasehold_internal.is_expired(w.scope, v_life, (r.rules).expiry, v_now)
                      and (v_by_name
                           or ((r.rules).reaper = 'auto'
                               and not leasehold_internal.is_put_off(w.scope, (r.rules).max_reap_failures, v_now))) then 'end'
                 when (w.scope).state = 'free' and not q.has_any and not q.has_shares and not q.rests
                      and coalesce((w.scope).ended_at + (r.rules).free_retention <= v_now, true) then 'delete'
                 else 'later'
               end,
               case when (w.scope).state <> 'held' and not leasehold_internal.is_share(w.scope) and not q.rests then 'ok' end, null, h.coordinator, h.lease_key, null)::leasehold.item_work
      from unnest(v_work) w
      left join lateral (select x as rules from unnest(v_rules) x where x.namespace = w.namespace) r on true
     cross join lateral (
       select not leasehold_internal.is_share(w.scope)
              and exists (select 1 from leasehold.waiter q where q.namespace = w.namespace and q.key = w.key) as has_any,
              -- A scope is remembered for as long as those who shared it.
              (w.scope).queued and not leasehold_internal.is_share(w.scope)
              and exists (select 1 from leasehold.share h where h.namespace = w.namespace and h.key = w.key) as has_shares,
              leasehold_internal.rests(w.scope, v_life, v_now) as rests) q
      left join lateral leasehold_internal.live_head(w.namespace, w.key, v_live, v_now) h
        on q.has_any and (w.scope).state <> 'shared');

  v_has_more := cardinality(v_work) >= p_max;
  if exists (select from leasehold.registered_hook) then
    v_hooked := leasehold_internal.hooked(array(select w.namespace from unnest(v_work) w where w.hold = 'end'), 'reap');
    if v_hooked <> '{}' then
      perform leasehold_internal.check_life_mark();
      v_work := leasehold_internal.hook_reaps(v_work, v_hooked, v_rules, leasehold_internal.runs_hooks(p_coordinator is null));
      v_has_more := v_has_more or exists (select from unnest(v_work) w where w.hold = 'skipped');
      v_now := clock_timestamp();
    end if;
  end if;
  if exists (select 1 from unnest(v_work) w where w.hold = 'end') then
    perform leasehold_internal.check_life_mark();
    perform leasehold_internal.end_leases(array(
      select row(w.namespace, w.key, 'expired', null, null, w.head_lease_key is not null,
                 v_now + case when w.head_lease_key is not null or leasehold_internal.is_blind() then interval '1 s'
                              else greatest(r.free_retention, interval '100 ms') end,
                 case when leasehold_internal.is_share(w.scope) then w.lease_key end)::leasehold.lease_end
        from unnest(v_work) w
       cross join lateral (select x.free_retention from unnest(v_rules) x where x.namespace = w.namespace) r
       where w.hold = 'end'), v_now);
  end if;
  delete from leasehold.scope s
   using unnest(v_work) w
   where w.hold = 'delete' and not leasehold_internal.is_share(w.scope) and s.namespace = w.namespace and s.key = w.key;
  update leasehold.scope s
     -- A minimum hold that is over must not begin again with a new life of the database.
     set at_least = case when s.state = 'held' or w.outcome is null then s.at_least end,
         check_at = case
           when s.state <> 'held' then
             case when w.outcome is null
                  then greatest(leasehold_internal.rests_until(w.scope, v_life, v_now), v_now + interval '100 ms')
                  when exists (select 1 from leasehold.waiter q where q.namespace = s.namespace and q.key = s.key) then v_now + interval '1 s'
                  when s.state = 'shared' then 'infinity'
                  -- Rows of shared holders that ended may have to go before it.
                  else greatest(coalesce(s.ended_at, v_now) + r.free_retention,
                                v_now + case when s.queued then interval '1 s' else interval '100 ms' end) end
           else leasehold_internal.next_look(w.scope, w.hold, r.rules, v_life, v_by_name, v_now)
         end
    from unnest(v_work) w
   cross join lateral (select x as rules, x.free_retention from unnest(v_rules) x where x.namespace = w.namespace) r
   where w.hold in ('later', 'hooked') and not leasehold_internal.is_share(w.scope) and s.namespace = w.namespace and s.key = w.key;
  perform leasehold_internal.put_off_shares(v_work, v_rules, v_life, v_by_name, p_namespaces is null and not v_has_more, v_now);
  -- Guarded rows hide from FOR UPDATE, not from this: look again in a second, so that they never hide others.
  if p_namespaces is null and not v_has_more then
    update leasehold.scope s
       set check_at = v_now + interval '1 s'
      from (select g.namespace, g.key
              from leasehold.scope g
             where g.check_at <= v_now
             order by g.check_at
             limit p_max
               for no key update skip locked) d
     where s.namespace = d.namespace and s.key = d.key;
  end if;
  -- 'ok' is what tell_heads looks at.
  v_work := array(
    select row(w.n, w.namespace, w.key, w.lease_key, null, null, null, w.error, w.scope, w.hold,
               case when w.hold in ('end', 'ended') or (w.hold = 'later' and w.outcome = 'ok') then 'ok' end, null,
               w.head_coordinator, w.head_lease_key, null)::leasehold.item_work
      from unnest(v_work) w);
  v_work := leasehold_internal.tell_heads(p_coordinator, v_work, v_now);
  if v_by_name then
    perform leasehold_internal.audit_add(p_by, p_peer, 'reap', d.namespace, p_key, null, null, 'done', d.count)
       from (select w.namespace, count(*) from unnest(v_work) w where w.hold in ('end', 'ended', 'hooked') group by w.namespace) d;
  end if;

  return query
    select case when w.hold in ('end', 'ended') then 'reaped' when w.hold in ('failed', 'hooked') then w.hold else 'wake' end,
           w.namespace, w.key, w.error, case when w.hold in ('failed', 'hooked') then (w.scope).reap_failures end,
           case when w.hold = 'failed' then (w.scope).next_try_at end,
           coalesce(w.head_coordinator = p_coordinator, false), {{lease.columns f}}, w.lease_key, {{shape.columns f}}
      from unnest(v_work) w
      left join lateral (select x as rules from unnest(v_rules) x where x.namespace = w.namespace) r on true
      left join lateral leasehold_internal.lease_facts(w.scope, r.rules, v_life, v_now) f on w.hold in ('end', 'ended', 'failed', 'hooked')
     where w.hold in ('end', 'ended', 'failed', 'hooked') or (w.outcome = 'ok' and w.head_coordinator = p_coordinator);
  if v_has_more then
    return query select 'more', null::text, null::text, null::text, null::integer, null::timestamptz, false, {{lease.nulls}}, null::uuid, {{shape.nulls}};
  end if;
  if p_automatic then
    return query
      select 'wake', k.namespace, k.key, null::text, null::integer, null::timestamptz, true, {{lease.nulls}}, null::uuid, {{shape.nulls}}
        from leasehold_internal.sweep_waiters(p_coordinator) k;
  end if;
end
$$;
comment on function leasehold_internal.reap_batch is 'Visit what is due: end expired leases, delete old free rows, by a coordinator or reap()';

-- When the reaper looks again at a lease that it leaves alone: it is alive, its hooks are to run (hold 'hooked'), or reaping it has failed.
-- Locks nothing.
create or replace function leasehold_internal.next_look(
  p_scope leasehold.scope, p_hold text, p_rules leasehold.rules, p_life leasehold.life_now, p_by_name boolean, p_now timestamptz)
returns timestamptz
language sql stable
as $$
  select case
    when (p_rules).expiry = 'manual' or ((p_rules).reaper = 'external' and not p_by_name) then 'infinity'
    when p_hold = 'hooked' then p_now + coalesce(nullif((p_rules).hook_timeout, interval '0'), interval '5 min') + interval '5 s'
    when leasehold_internal.is_put_off(p_scope, (p_rules).max_reap_failures, p_now) then coalesce((p_scope).next_try_at, 'infinity')
    else greatest(leasehold_internal.expires_at(p_scope, p_life, (p_rules).expiry, p_now),
                  p_now + case when (p_life).is_settled then interval '100 ms' else interval '1 s' end)
  end
$$;

-- The rows whose check_at has come, oldest first. Locks them FOR UPDATE, skipping what is taken or guarded.
create or replace function leasehold_internal.take_due(p_max integer, p_now timestamptz) returns leasehold.item_work[]
language plpgsql volatile
as $$
begin
  return (select array(
            select row(0, (d.scope).namespace, (d.scope).key, (d.scope).lease_key, null, null, null, null, d.scope, 'locked', null, null, null,
                       null, null)::leasehold.item_work
              from (select s as scope
                      from leasehold.scope s
                     where s.check_at <= p_now
                     order by s.check_at
                     limit p_max
                       for update skip locked) d));
end
$$;

-- The expired leases of these namespaces, by their primary key, whatever their check_at; those that could not be reaped come
-- last, whenever their next try is, but only once for a caller's statement. Unless `p_by_name`, without those and without what only an
-- external reaper ends. Locks them FOR UPDATE, skipping
-- what is taken or guarded.
create or replace function leasehold_internal.take_expired(
  p_namespaces text[], p_include_children boolean, p_by_name boolean, p_key text, p_max integer, p_life leasehold.life_now, p_now timestamptz)
returns leasehold.item_work[]
language plpgsql
as $$
declare
  v_rules leasehold.rules[];
begin
  v_rules := array(
    select r
      from leasehold_internal.policies_of(array(
        select distinct s.namespace
          from unnest(p_namespaces) as n (namespace)
          join leasehold.scope s
            on s.namespace = n.namespace
            or (p_include_children and s.namespace > n.namespace || '.' and s.namespace < n.namespace || '/')
         where s.state = 'held' and (s.lapsed or s.deadline <= p_now))) r);
  return array(
    select row(0, (d.scope).namespace, (d.scope).key, (d.scope).lease_key, null, null, null, null, d.scope, 'locked', null, null, null,
               null, null)::leasehold.item_work
      from (select s as scope
              from unnest(v_rules) r
              join leasehold.scope s on s.namespace = r.namespace
             where s.state = 'held' and (p_key is null or s.key = p_key) and leasehold_internal.is_expired(s, p_life, r.expiry, p_now)
               and not leasehold_internal.has_failed_since(s.reap_failures, s.reap_failed_at, statement_timestamp(), p_now)
               and (p_by_name or (r.reaper = 'auto' and not leasehold_internal.is_put_off(s, r.max_reap_failures, p_now)))
             order by s.reap_failures > 0, s.namespace, s.key
             limit p_max
               for update of s skip locked) d);
end
$$;

-- The leases that are to end (hold 'end') and have hooks, each in a subtransaction with its end, for a hook may look at the next
-- one. hold becomes 'ended', or 'failed' where a hook vetoes, with the scope as it is then and the error; 'skipped' where there
-- is no time left, or another's hook has ended it; 'hooked' where this call runs none, with their limit as the error. The
-- caller has the rows locked FOR UPDATE.
create or replace function leasehold_internal.hook_reaps(
  p_work leasehold.item_work[], p_hooked text[], p_rules leasehold.rules[], p_runs boolean)
returns leasehold.item_work[]
language plpgsql
as $$
begin
  if not p_runs then
    return array(
      select row(w.n, w.namespace, w.key, w.lease_key, null, null, null,
                 case when h.is_hooked
                      then (select leasehold_internal.to_us(r.hook_timeout)::text from unnest(p_rules) r where r.namespace = w.namespace) end,
                 w.scope, case when h.is_hooked then 'hooked' else w.hold end, w.outcome, null, w.head_coordinator,
                 w.head_lease_key, null)::leasehold.item_work
        from unnest(p_work) w
       cross join lateral (select w.hold = 'end' and w.namespace = any (p_hooked) as is_hooked) h);
  end if;
  return array(
    select row(w.n, w.namespace, w.key, w.lease_key, null, null, null, r.error, coalesce(r.scope, w.scope),
               coalesce(r.hold, w.hold), w.outcome, null, w.head_coordinator, w.head_lease_key, null)::leasehold.item_work
      from unnest(p_work) w
     -- Which are due is an argument: a join calls the function for every row, whatever its condition says.
     cross join lateral leasehold_internal.reap_one(
             w.hold = 'end' and w.namespace = any (p_hooked), w.scope, w.head_lease_key is not null,
             (select x from unnest(p_rules) x where x.namespace = w.namespace)) r
     order by (w.scope).check_at, w.namespace, w.key);
end
$$;

-- One of them: what its hold becomes, the scope where that has failed, and the error; nulls for one that is not due. The caller
-- has the row locked FOR UPDATE.
create or replace function leasehold_internal.reap_one(
  p_is_due boolean, p_scope leasehold.scope, p_has_head boolean, p_rules leasehold.rules, out hold text,
  out scope leasehold.scope, out error text)
language plpgsql
as $$
begin
  if p_is_due is not true then
    return;
  end if;
  hold := 'skipped';
  if leasehold_internal.is_timed_out()
     or not leasehold_internal.is_held(p_scope.namespace, p_scope.key, p_scope.token) then
    return;
  end if;
  error := leasehold_internal.try_hooks(
             leasehold_internal.event_of('reap', p_scope, p_scope.deadline, null, null),
             row(p_scope.namespace, p_scope.key, 'expired', null, null, p_has_head,
                 clock_timestamp() + case when p_has_head or leasehold_internal.is_blind() then interval '1 s'
                                          else greatest(p_rules.free_retention, interval '100 ms') end,
                 case when leasehold_internal.is_share(p_scope) then p_scope.lease_key end)::leasehold.lease_end);
  if error is null then
    hold := 'ended';
    return;
  end if;
  scope := leasehold_internal.note_reap_failure(p_scope.namespace, p_scope.key, p_scope.token, error, p_rules.max_reap_failures);
  hold := case when scope.namespace is null then 'skipped' else 'failed' end;
end
$$;

-- Remove waiters that nobody waits for: of coordinators not seen for 15 s (together, with the coordinator's row and its
-- watches; the caller is none of them), places kept longer than their 10 s, SQL users whose ttl has passed. While nothing counts as expired it
-- removes nobody: whose sign of life is old may be about to give the next, and its row holds up every expiry until then. Where all are as old,
-- they have 15 s from the start of this life, too. Returns the scopes whose next head is
-- `p_coordinator`'s own; other heads are notified. Locks each scope's row FOR NO KEY UPDATE SKIP LOCKED, as every removal does.
create or replace function leasehold_internal.sweep_waiters(p_coordinator uuid) returns table (namespace text, key text)
language plpgsql
{{lookups.settings}}
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_life leasehold.life_now;
  v_dead uuid[];
  v_work leasehold.item_work[];
begin
  v_life := leasehold_internal.life(null);
  if not v_life.is_settled then
    return;
  end if;
  v_dead := array(
    select c.id
      from leasehold.coordinator c
     where c.seen_at < v_now - interval '15 s' and c.id is distinct from p_coordinator
       and (v_life.started_at < v_now - interval '15 s'
            or exists (select from leasehold.coordinator x where x.seen_at > v_now - interval '15 s'))
     order by c.id
       for update skip locked);
  update leasehold.coordinator c set seen_at = 'epoch' where c.id = any (v_dead);
  perform leasehold_internal.sweep_watches(v_dead);
  v_work := array(
    select row(0, w.namespace, w.key, null, null, null, null, null, s.scope, 'locked', null, null, null, null, null)::leasehold.item_work
      from (select distinct g.namespace, g.key
              from (select q.namespace, q.key from leasehold.waiter q where v_dead <> '{}' and q.coordinator = any (v_dead)
                    union all
                    select q.namespace, q.key from leasehold.waiter q where q.away_until <= v_now
                    union all
                    select q.namespace, q.key from leasehold.waiter q where q.coordinator is null and q.wait_until <= v_now
                    limit 10000) g
             order by g.namespace, g.key
             limit 1000) w
     cross join lateral (
       select x as scope
         from leasehold.scope x
        where x.namespace = w.namespace and x.key = w.key
          for no key update skip locked) s);
  if cardinality(v_work) > 0 then
    delete from leasehold.waiter q
     using unnest(v_work) w
     where q.namespace = w.namespace and q.key = w.key
       and (q.coordinator = any (v_dead) or q.away_until <= v_now or (q.coordinator is null and q.wait_until <= v_now));
  end if;
  delete from leasehold.coordinator c
   where c.id = any (v_dead) and not exists (select 1 from leasehold.waiter q where q.coordinator = c.id);
  return query
    select w.namespace, w.key
      from unnest(v_work) w
     where (w.scope).state <> 'held' and leasehold_internal.wake_head(p_coordinator, w.namespace, w.key);
end
$$;

grant execute on function leasehold_internal.reap_batch to leasehold_coordinator, leasehold_admin;
