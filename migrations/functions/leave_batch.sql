-- Callers that no longer wait: `p_away` false gives the place up for good, true keeps it for 10 s, passed over. Only this
-- coordinator's own places and grants are touched: the caller may have come back by another one, and a lease that two have granted and
-- renewed may be held by a caller of the other, so that it ends by its holder or its expiry. So does one that was granted before
-- `p_unheard_since`: an earlier request with that lease key may have it. Where that lies ahead the clock has stepped back, and the coordinator does
-- not know it yet: busy. A lease that was granted in
-- the same instant is ended again (released), or with `p_away` returned: outcome granted, with its lease. Else ok, with the
-- holder's lease and how many live waiters were ahead, or busy. Ending it runs the hooks of release_fail; where they veto, it stays
-- and ends by its expiry (ok). Where this call runs no hooks: hooked, with their time limit as duration_us, and nothing changed.
-- Locks each scope's row FOR NO KEY UPDATE in (namespace, key) order; FOR UPDATE where a lease is ended. Where the scope is
-- not held the next live waiter is woken: `wake` is true where that is `p_coordinator`'s own.
drop function if exists leasehold_internal.leave_batch(uuid, text[], text[], uuid[], boolean[]);
create or replace function leasehold_internal.leave_batch(
  p_coordinator uuid, p_namespace text[], p_key text[], p_lease_key uuid[], p_away boolean[], p_unheard_since timestamptz[] default null)
returns table (
  n integer, outcome text, wake boolean, waiters_ahead integer, {{lease.table}}, rests_in_us bigint, {{shape.table}}, units_free integer,
  holder_count integer)
language plpgsql
security definer
{{lookups.settings}}
as $$
#variable_conflict use_column
declare
  v_work leasehold.item_work[];
  v_rules leasehold.rules[];
  v_life leasehold.life_now;
  v_live uuid[];
  v_now timestamptz;
begin
  v_work := array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, null, null, null, s.scope,
               case when s.scope is null then 'missing' else 'locked' end, null, null, null, null, null)::leasehold.item_work
      from (select u.n::integer as n, u.namespace, u.key, u.lease_key, coalesce(u.away, false) as is_away
              from unnest(p_namespace, p_key, p_lease_key, p_away) with ordinality as u (namespace, key, lease_key, away, n)
             order by u.namespace, u.key, u.n) w
      left join lateral (
        select x as scope
          from leasehold.scope x
         where x.namespace = w.namespace and x.key = w.key
           for no key update skip locked) s on true);
  v_work := leasehold_internal.mark_busy(v_work);
  v_now := clock_timestamp();
  v_life := leasehold_internal.life(null);
  v_live := leasehold_internal.live_coordinators(v_now);
  v_rules := array(
    select r from leasehold_internal.policies_of(array(select distinct w.namespace from unnest(v_work) w where w.hold = 'locked')) r);

  -- A lease that this coordinator granted and nobody got: end it, FOR UPDATE, unless somebody guards it.
  if exists (select 1
               from unnest(v_work) w
              cross join lateral (
                select 1
                  from leasehold.share h
                 where w.hold = 'locked' and h.namespace = w.namespace and h.key = w.key and h.lease_key = w.lease_key
                   and h.state = 'held' and h.granted_by = p_coordinator) x) then
    v_work := array(
      select case when t.hold = 'busy' or ((t.scope).state = 'held' and (t.scope).units > 0 and (t.scope).granted_by = p_coordinator)
                  then t else w end
        from unnest(v_work) w
        join unnest(leasehold_internal.take_holders(v_work, true)) t on t.n = w.n);
  end if;
  if exists (select 1 from unnest(v_work) w
              where (w.scope).lease_key = w.lease_key and (w.scope).granted_by = p_coordinator) then
    v_work := array(
      select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, null, null, null, w.scope,
                 case when o.is_told_before and p_unheard_since[w.n] > v_now then 'busy'
                      when o.is_told_before or not o.is_granted then w.hold when w.is_away then 'granted' when e.is_mine then 'end' else 'busy' end,
                 null, null, null, null, null)::leasehold.item_work
        from (select u.* from unnest(v_work) u order by u.namespace, u.key, u.n) w
       cross join lateral (
         select g.is_granted, g.is_granted and coalesce((w.scope).acquired_at < p_unheard_since[w.n], false) as is_told_before
           from (select coalesce((w.scope).lease_key = w.lease_key and (w.scope).granted_by = p_coordinator and not (w.scope).lapsed, false)
                        as is_granted) g) o
        left join lateral (
          select true as is_mine
            from leasehold.scope x
           where x.namespace = w.namespace and x.key = w.key and o.is_granted and not o.is_told_before and not w.is_away
             for update skip locked) e on true);
    if exists (select from leasehold.registered_hook) then
      v_work := leasehold_internal.hook_leaving(v_work, leasehold_internal.runs_hooks(p_coordinator is null), v_now);
    end if;
  end if;

  -- How many were ahead, counted before anybody leaves, once for each scope.
  v_work := array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, null, null, w.error, w.scope, w.hold, null, null, null, null,
               leasehold_internal.tickets_ahead(w.tickets, coalesce(o.ticket, 0)))::leasehold.item_work
      from (select u.*, first_value(t.tickets) over (partition by u.namespace, u.key order by u.n) as tickets
              from (select v.*, row_number() over (partition by v.namespace, v.key order by v.n) as nth
                      from unnest(v_work) v) u
             cross join lateral (
               select case when u.nth = 1 and u.hold <> 'unknown'
                           then leasehold_internal.live_tickets(u.namespace, u.key, v_live, v_now) end as tickets offset 0) t) w
      left join lateral (
        select q.ticket
          from leasehold.waiter q
         where q.lease_key = w.lease_key and (q.namespace, q.key) is not distinct from (w.namespace, w.key)) o on true);

  delete from leasehold.waiter q
   using unnest(v_work) w
   where w.hold in ('locked', 'end') and not w.is_away
     and q.lease_key = w.lease_key and (q.namespace, q.key) is not distinct from (w.namespace, w.key) and q.coordinator = p_coordinator;
  update leasehold.waiter q
     set away_until = v_now + interval '10 s'
    from unnest(v_work) w
   where w.hold = 'locked' and w.is_away
     and q.lease_key = w.lease_key and (q.namespace, q.key) is not distinct from (w.namespace, w.key) and q.coordinator = p_coordinator;

  -- Who is next, where nobody holds it. 'ok' is what end_leases and tell_heads look at.
  v_work := array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, false, null, w.error, w.scope, w.hold,
               case when w.hold = 'end' or (w.hold = 'locked' and (w.scope).state <> 'held') then 'ok' end,
               null, h.coordinator, h.lease_key, w.waiters_ahead)::leasehold.item_work
      from unnest(v_work) w
      left join lateral leasehold_internal.live_head(w.namespace, w.key, v_live, v_now) h
        on (w.hold = 'end' and (w.scope).units is null) or (w.hold = 'locked' and (w.scope).state = 'free'));
  if exists (select 1 from unnest(v_work) w where w.hold = 'end') then
    perform leasehold_internal.end_leases(array(
      select row(w.namespace, w.key, case when w.error is null then 'ok' else 'failed' end, null, w.error, w.head_lease_key is not null or leasehold_internal.is_blind(),
                 null, case when (w.scope).units > 0 then w.lease_key end)::leasehold.lease_end
        from unnest(v_work) w
       where w.hold = 'end'), v_now);
  end if;
  v_work := leasehold_internal.tell_heads(p_coordinator, v_work, v_now);

  return query
    select w.n, case when w.hold in ('busy', 'granted', 'hooked') then w.hold else 'ok' end,
           coalesce(w.outcome = 'ok' and w.head_coordinator = p_coordinator, false), coalesce(w.waiters_ahead, 0),
           f.token, f.owner, f.principal, f.labels, case when w.hold = 'hooked' then w.error::bigint else f.duration_us end, f.grace_us,
           f.acquired_at, f.deadline, f.remaining_us, f.held_us, f.silent_us, f.heartbeats, f.heartbeat_at, f.liveness, f.is_manual,
           leasehold_internal.rests_in_us(w.scope, v_life, v_now),
           coalesce(f.mode, 'exclusive'), coalesce(f.units, 0), f.slots, leasehold_internal.units_free(w.scope, w.rules),
           leasehold_internal.holder_count(w.scope)
      -- The holders of a shared scope are looked at once. (offset 0 keeps that out of the window.)
      from (select u.*, first_value(t.facts) over (partition by u.namespace, u.key order by u.nth) as shared_facts
              from (select v.*, r.rules, row_number() over (partition by v.namespace, v.key order by (v.scope).state is distinct from 'shared', v.n) as nth
                      from unnest(v_work) v
                      left join lateral (select r as rules from unnest(v_rules) r where r.namespace = v.namespace) r on true) u
             cross join lateral (
               select case when u.nth = 1 and (u.scope).state = 'shared'
                           then leasehold_internal.shared_facts(u.namespace, u.key, u.rules, v_life, v_now) end as facts offset 0) t) w
      left join lateral (
        select x.* from leasehold_internal.lease_facts(w.scope, w.rules, v_life, v_now) x
         union all
        select (w.shared_facts).* where (w.scope).state = 'shared') f
        on w.hold in ('locked', 'granted')
     order by w.n;
end
$$;
comment on function leasehold_internal.leave_batch is 'Waiters that leave the queue, or keep their place for 10 s, by a coordinator';

-- The error of a lease that ends for that.
create or replace function leasehold_internal.unheard_words() returns text
language sql immutable
as $$
  select 'the caller went away before it heard of the grant'
$$;

-- The leases of callers that went away before they heard of the grant (hold 'end'), in namespaces with hooks: they end as failed,
-- with that as the error. hold becomes 'kept' where a hook vetoes, and where this call runs none 'hooked', with the limit as
-- `error`. The caller has the rows locked FOR UPDATE.
create or replace function leasehold_internal.hook_leaving(p_work leasehold.item_work[], p_runs boolean, p_now timestamptz)
returns leasehold.item_work[]
language plpgsql
as $$
declare
  v_hooked text[] := leasehold_internal.hooked(array(select w.namespace from unnest(p_work) w where w.hold = 'end'), 'release_fail');
  v_work leasehold.item_work[];
begin
  if v_hooked = '{}' then
    return p_work;
  end if;
  v_work := leasehold_internal.hook_items(array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, true, null,
               case when h.is_hooked then leasehold_internal.unheard_words() end, w.scope, w.hold,
               case when h.is_hooked then 'ok' end, null, null, null, null)::leasehold.item_work
      from unnest(p_work) w
     cross join lateral (select w.hold = 'end' and w.namespace = any (v_hooked) as is_hooked) h), 'release_fail', p_runs, p_now);
  return array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, w.is_failure, null, w.error, w.scope,
               case when w.outcome = 'hooked' then 'hooked' when w.outcome in ('rejected', 'lost') then 'kept' else w.hold end,
               null, null, null, null, null)::leasehold.item_work
      from unnest(v_work) w);
end
$$;

-- A wake-up reached a coordinator whose first waiter there has the ticket `p_first_ticket` (null: it has none): tell the current
-- head of a scope that is not held. Rows of its own before that ticket belong to nobody, for it asks for its first waiter
-- first: a batch was committed after its connection had been given up. They are removed once they are 10 s old; younger ones
-- may be on their way to it. Returns true where the head is `p_coordinator`'s own. Locks the scope's row FOR NO KEY UPDATE;
-- where another session has it, that one wakes.
create or replace function leasehold_internal.pass_on(
  p_coordinator uuid, p_namespace text, p_key text, p_first_ticket bigint default null)
returns boolean
language plpgsql
security definer
as $$
declare
  v_scope leasehold.scope;
begin
  select s.* into v_scope
     from leasehold.scope s
    where s.namespace = p_namespace and s.key = p_key and s.state <> 'held'
      for no key update skip locked;
  if not found then
    return false;
  end if;
  delete from leasehold.waiter w
   where w.namespace = p_namespace and w.key = p_key and w.coordinator = p_coordinator and w.away_until is null
     and w.ticket < coalesce(p_first_ticket, 9223372036854775807)
     and w.enqueued_at < clock_timestamp() - interval '10 s';
  -- It asks for its first of each priority: so one that is first all the same is unknown to it. By its ticket alone, it goes in its turn.
  update leasehold.waiter w
     set priority = 0
    from leasehold_internal.live_head(p_namespace, p_key, leasehold_internal.live_coordinators(clock_timestamp()), clock_timestamp()) h
   where w.namespace = p_namespace and w.key = p_key and w.ticket = h.ticket and h.coordinator = p_coordinator and w.priority > 0
     and w.ticket > p_first_ticket and w.enqueued_at < clock_timestamp() - interval '10 s';
  if v_scope.at_least is not null and leasehold_internal.rests(v_scope, leasehold_internal.life(null), clock_timestamp()) then
    return false;
  end if;
  return leasehold_internal.wake_head(p_coordinator, p_namespace, p_key);
end
$$;
comment on function leasehold_internal.pass_on is 'Pass a wake-up on to the current head of the queue, by a coordinator';

grant execute on function leasehold_internal.leave_batch, leasehold_internal.pass_on to leasehold_coordinator, leasehold_admin;
