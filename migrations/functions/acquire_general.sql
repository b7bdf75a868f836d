-- An acquire in full: what acquire_batch() leaves over, which are renewals, queues, takeovers, new scopes, and what is refused. It locks the rows,
-- decide() decides, and this writes. Locks what acquire_batch() says.
-- With `p_all` the items, each of another scope and all with one lease key, are granted together or not at all (acquire_all_one).
-- Promise 10: rows are taken with SKIP LOCKED, and a new scope is created under the lock of its slot: nothing waits for a session.
create or replace function leasehold_internal.acquire_general(
  p_coordinator uuid, p_clock timestamptz, p_namespace text[], p_key text[], p_lease_key uuid[], p_owner text[],
  p_labels text[], p_duration_us bigint[], p_queue boolean[], p_wait_us bigint[], p_ticket bigint[], p_principals text[],
  p_at_least_us bigint[], p_units integer[], p_all boolean default false, p_priority integer[] default null)
returns setof leasehold_internal.answer
language plpgsql
{{lookups.settings}}
as $$
declare
  v_rules leasehold.rules[];
  v_work leasehold.acquire_work[];
  v_item leasehold.acquire_work;
  v_life leasehold.life_now;
  v_live uuid[];
  v_now timestamptz;
  v_has_hooks boolean := exists (select from leasehold.registered_hook);
  v_runs_hooks boolean := leasehold_internal.runs_hooks(p_coordinator is null);
  v_may_be_shared boolean := array_remove(p_units, null) <> '{}';
  v_is_new boolean;
  v_has_sharers boolean;
  v_has_parts boolean;
  v_is_shared boolean;
  v_is_held boolean;
  v_may_rest boolean;
  v_has_quotas boolean;
  v_grants boolean;
  v_queues boolean;
  v_renews boolean;
  v_tells_end boolean;
  v_leaves boolean;
  v_has_heads boolean;
  v_has_expired boolean := false;
  v_reap_veto text;
begin
  perform leasehold_internal.be_durable();
  {{rules_of_items.text}}

  -- The items, in the order of n, with what is wrong with them; their rows; and where there is no row, the lock of its slot, under which it is
  -- created, for an insert would wait for another session's uncommitted one.
  v_work := array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.owner, w.labels, w.duration, w.queue, w.wait, w.ticket, w.field,
               case w.field
                 when 'namespace' then leasehold_internal.namespace_problem(w.namespace)
                 when 'key' then leasehold_internal.key_problem(w.key)
                 when 'lease_key' then 'a UUID'
                 when 'owner' then 'at most 255 bytes, has ' || octet_length(w.owner)
                 when 'labels' then leasehold_internal.labels_problem(w.labels)
                 when 'duration' then leasehold_internal.duration_bound((w.rules).min_duration, (w.rules).max_duration, w.duration)
                 when 'wait' then 'zero or more' || leasehold_internal.is_words(w.wait)
                 when 'at_least' then case when w.units is null then '0 to 86400 s' || leasehold_internal.is_words(leasehold_internal.from_us(w.at_least_us)) else 'absent for a shared lease' end
                 when 'units' then '1 to 1000000, is ' || w.units
                 when 'priority' then case when w.priority between 1 and 1000
                                           then leasehold_internal.priority_bound((w.rules).max_priority, w.priority)
                                           else '0 to 1000, is ' || abs(w.priority) end
               end,
               w.rules, s.scope,
               case when w.field is not null then 'invalid'
                    when s.is_mine then 'locked'
                    when c.is_mine and e.is_there is null then 'new'
                    else 'busy' end,
               null, null, 'invalid', w.units, null, w.priority, null)::leasehold.acquire_work
      from (select i.*, r.rules, d.duration,
                   case
                     when r.rules is null then 'namespace'
                     when leasehold_internal.key_problem(i.key) is not null then 'key'
                     when i.lease_key is null then 'lease_key'
                     when octet_length(i.owner) > 255 then 'owner'
                     when i.labels <> '{}' and leasehold_internal.labels_problem(i.labels) is not null then 'labels'
                     when d.duration is null or d.duration < (r.rules).min_duration or d.duration > (r.rules).max_duration
                       or i.duration_us < 100000 then 'duration'
                     when i.wait < interval '0' then 'wait'
                     when i.at_least_us not between 0 and 86400000000 or (i.at_least_us > 0 and i.units is not null) then 'at_least'
                     when i.units not between 1 and 1000000 then 'units'
                     when i.priority not between -1000 and 1000 then 'priority'
                     -- A place keeps what was allowed when it was taken.
                     when i.priority > (r.rules).max_priority
                          and not exists (select from leasehold.waiter q
                                           where q.lease_key = i.lease_key and q.namespace = i.namespace and q.key = i.key
                                             and q.priority = i.priority) then 'priority'
                   end as field
              from (select u.n::integer as n, u.namespace, u.key, u.lease_key, u.owner, coalesce(u.labels, '{}')::jsonb as labels,
                           u.duration_us, coalesce(u.queue, false) as queue, leasehold_internal.from_us(u.wait_us) as wait,
                           nullif(u.ticket, 0) as ticket, u.at_least_us, u.units, coalesce(u.priority, 0) as priority
                      from unnest(p_namespace, p_key, p_lease_key, p_owner, p_labels, p_duration_us, p_queue, p_wait_us, p_ticket,
                                  p_at_least_us, p_units, p_priority)
                           with ordinality as u (namespace, key, lease_key, owner, labels, duration_us, queue, wait_us, ticket, at_least_us,
                                                 units, priority, n)) i
              left join lateral (select x as rules from unnest(v_rules) x where x.namespace = i.namespace) r on true
             cross join lateral (select leasehold_internal.from_us(i.duration_us) as duration) d
             order by i.n
            offset 0) w
      left join lateral (
        select x as scope, true as is_mine
          from leasehold.scope x
         where x.namespace = w.namespace and x.key = w.key and w.field is null
           for no key update skip locked) s on true
      -- It is there, and another session has it.
      left join lateral (
        select true as is_there
          from leasehold.scope x
         where x.namespace = w.namespace and x.key = w.key and w.field is null and s.is_mine is null
        offset 0) e on true
      left join lateral (
        select true as is_mine
          from leasehold.creation x
         where w.field is null and s.is_mine is null and e.is_there is null
           and x.slot = leasehold_internal.creation_slot(w.namespace, w.key, (select t.seed from leasehold.turn t where t.name = 'creation'))
           for update skip locked) c on true);
  select bool_or(w.hold = 'new'), bool_or((w.scope).state = 'shared'), bool_or((w.scope).state = 'held'),
         bool_or((w.scope).at_least is not null), bool_or((w.rules).max_leases is not null or (w.rules).max_waiters is not null),
         -- Shared holders, of today or not long ago, who ask again.
         bool_or((w.scope).queued and exists (select from leasehold.share h
                                               where h.namespace = w.namespace and h.key = w.key and h.lease_key = w.lease_key)),
         bool_or(not p_all and (w.scope).queued
                 and exists (select from leasehold.waiter q where q.items is not null and q.lease_key = w.lease_key
                                                              and (q.namespace, q.key) is not distinct from (w.namespace, w.key)))
    into v_is_new, v_is_shared, v_is_held, v_may_rest, v_has_quotas, v_has_sharers, v_has_parts
    from unnest(v_work) w;

  -- Under the lock look again: the one who had it before may have committed the row.
  if v_is_new then
    for v_item in
      select w.*
        from unnest(v_work) w
       cross join lateral (
         select 1
           from leasehold.scope x
          where w.hold = 'new' and x.namespace = w.namespace and x.key = w.key
         offset 0) e
    loop
      v_item.hold := 'busy';
      v_work[v_item.n] := v_item;
    end loop;
  end if;

  if v_has_sharers then
    v_may_be_shared := true;
    v_work := leasehold_internal.take_own_shares(v_work);
  end if;

  if v_has_parts then
    v_work := leasehold_internal.refuse_parts(v_work);
  end if;

  v_now := clock_timestamp();
  v_life := leasehold_internal.life(p_clock);

  -- What could be granted but for its minimum hold rests.
  if v_may_rest then
    perform leasehold_internal.check_life_mark();
    foreach v_item in array v_work loop
      if v_item.hold = 'locked' and v_item.holder is null and leasehold_internal.rests(v_item.scope, v_life, v_now)
         and ((v_item.scope).state <> 'held' or leasehold_internal.is_expired(v_item.scope, v_life, (v_item.rules).expiry, v_now)) then
        v_item.hold := 'resting';
        v_work[v_item.n] := v_item;
      end if;
    end loop;
  end if;

  -- Whose lease has expired may be taken over, unless somebody guards it: FOR UPDATE, in a statement of its own.
  if v_is_held
     and exists (select 1 from unnest(v_work) w
                  where w.hold = 'locked' and leasehold_internal.is_expired(w.scope, v_life, (w.rules).expiry, v_now)
                    and not leasehold_internal.is_put_off(w.scope, (w.rules).max_reap_failures, v_now)) then
    v_has_expired := true;
    perform leasehold_internal.check_life_mark();
    for v_item in
      select w.*
        from unnest(v_work) w
       cross join lateral (
         select 1
           from leasehold.scope x
          where x.namespace = w.namespace and x.key = w.key and w.hold = 'locked' and (w.rules).expiry = 'takeover'
            and leasehold_internal.is_expired(w.scope, v_life, (w.rules).expiry, v_now)
            and not leasehold_internal.is_put_off(w.scope, (w.rules).max_reap_failures, v_now)
            for update skip locked) e
    loop
      v_item.hold := 'expired';
      v_work[v_item.n] := v_item;
    end loop;
  end if;

  -- Shared holders that have expired and are in somebody's way end now, each by itself.
  if v_is_shared then
    v_may_be_shared := true;
    select x.p_work, x.veto
      into v_work, v_reap_veto
      from leasehold_internal.end_expired_shares(v_work, v_life, v_runs_hooks, v_now) x;
  end if;

  -- The queue is read now that the rows are ours.
  v_live := leasehold_internal.live_coordinators(v_now);
  v_work := leasehold_internal.decide(v_work, v_life, v_live, v_now);
  if p_all then
    v_work := leasehold_internal.all_or_none(v_work);
  end if;

  -- A takeover reaps first. Where that fails, it is no takeover.
  if v_has_hooks and v_runs_hooks then
    select x.p_work, coalesce(x.veto, v_reap_veto) into v_work, v_reap_veto from leasehold_internal.reap_for_takeover(v_work) x;
  end if;
  if v_has_quotas then
    v_work := leasehold_internal.apply_quotas(v_work);
  end if;
  if v_has_hooks and not v_runs_hooks then
    v_work := leasehold_internal.leave_hooked(v_work);
  end if;
  if p_all then
    perform leasehold_internal.ensure_epoch();
    v_work := leasehold_internal.with_one_ticket(leasehold_internal.all_or_none(v_work));
  end if;
  select bool_or(w.outcome = 'granted'), bool_or(w.outcome = 'queued'), bool_or(w.outcome = 'renewed' and w.hold = 'locked'),
         bool_or(w.outcome = 'ended'),
         bool_or((w.outcome in ('granted', 'renewed', 'ended', 'frozen', 'elsewhere', 'quota', 'left') or w.outcome = 'invalid' and w.hold <> 'invalid')
                 and w.own_ticket is not null),
         bool_or(w.head_ticket is not null or w.outcome = 'queued' and w.hold in ('new', 'locked') and (w.scope).state is distinct from 'held')
    into v_grants, v_queues, v_renews, v_tells_end, v_leaves, v_has_heads
    from unnest(v_work) w;
  if v_grants or v_queues then
    perform leasehold_internal.ensure_epoch();
  end if;

  -- A takeover ends the lease before, where its hooks have not.
  if v_has_expired and v_grants then
    perform leasehold_internal.end_leases(array(
      select row(w.namespace, w.key, 'expired', null, null, (w.scope).queued, null, null)::leasehold.lease_end
        from (select distinct on (u.namespace, u.key) u.*
                from unnest(v_work) u
               where u.outcome = 'granted' and u.hold = 'expired'
               order by u.namespace, u.key, u.n) w
       where leasehold_internal.is_held(w.namespace, w.key, (w.scope).token)), v_now);
  end if;

  -- Grant. The token is drawn here, under the lock.
  -- A new scope is held at once.
  if v_grants then
    with granted as materialized (
      select u.namespace, u.key, u.hold, u.lease_key, u.owner, p_principals[u.n] as principal, u.labels, u.duration,
             least(u.duration, leasehold_internal.hold_limit(u.rules)) as lasts, (u.rules).grace as grace,
             leasehold_internal.at_least_of(p_at_least_us[u.n], u.rules) as at_least, v_life.id as life_id, v_now as now,
             x.row_id, x.check_at
        from unnest(v_work) u
        left join lateral (
          select x.ctid as row_id, x.check_at from leasehold.scope x where x.namespace = u.namespace and x.key = u.key offset 0) x
          on u.hold <> 'new'
       where u.outcome = 'granted' and u.units is null),
    created as (
      insert into leasehold.scope (
        namespace, key, queued,
        {{grant_rest.columns}},
        {{grant.columns}})
      select w.namespace, w.key, w.at_least is not null,
             {{grant_rest.values w}},
             {{grant.values w}}
        from granted w
       where w.hold = 'new'
          on conflict (namespace, key) do nothing)
    update leasehold.scope s
       set {{grant.set w}},
           {{grant_rest.set w}},
           queued = w.at_least is not null
                    or s.queued
                    and (leasehold_internal.is_blind()
                         or exists (select 1 from leasehold.waiter q
                                     where q.namespace = s.namespace and q.key = s.key and q.lease_key <> w.lease_key)
                         or exists (select 1 from leasehold.share h where h.namespace = s.namespace and h.key = s.key)),
           holders = case when s.holders is not null
                           and exists (select 1 from leasehold.share h where h.namespace = s.namespace and h.key = s.key) then 0 end
      from granted w
     where s.ctid = w.row_id;
  end if;

  -- A new scope is free where somebody only queues or is about to share it.
  if v_is_new and (v_grants or v_queues) then
    insert into leasehold.scope (namespace, key, check_at, queued)
    select w.namespace, w.key, v_now + interval '1 s', true
      from unnest(v_work) w
     where w.hold = 'new' and (w.outcome = 'queued' or w.outcome = 'granted' and w.units is not null)
        on conflict (namespace, key) do nothing;
  end if;
  if v_may_be_shared then
    perform leasehold_internal.grant_shares(v_work, p_coordinator, p_principals, v_life, v_now);
  end if;
  if v_grants and v_has_quotas then
    perform leasehold_internal.note_leases(array(select w.namespace from unnest(v_work) w where w.outcome = 'granted'), 1);
  end if;
  if p_all then
    perform leasehold_internal.mark_together(v_work);
  end if;
  if v_grants and (leasehold_internal.is_blind() or exists (select from leasehold.watch)) then
    perform leasehold_internal.tell_watchers(
              array_agg(w.namespace), array_agg(w.key), array_agg(case when w.units is not null then w.lease_key end))
       from unnest(v_work) w
      where w.outcome = 'granted'
     having count(*) > 0;
  end if;

  -- Renew. Of several items the last one's values count.
  if v_renews then
    update leasehold.scope s
       set {{renewal.set w}}
      from (select distinct on (u.namespace, u.key) u.owner, p_principals[u.n] as principal, u.labels, u.duration, (u.rules).grace as grace,
                   v_life.id as life_id, v_now as now, x.row_id, x.check_at, x.heartbeats, x.granted_by,
                   leasehold_internal.renewed_until(u.scope, u.duration, leasehold_internal.hold_limit(u.rules), v_life, v_now) as deadline
              from unnest(v_work) u
             cross join lateral (
               select x.ctid as row_id, x.check_at, x.heartbeats, x.granted_by
                 from leasehold.scope x
                where x.namespace = u.namespace and x.key = u.key
               offset 0) x
             where u.outcome = 'renewed' and u.hold = 'locked' and (u.scope).lease_key = u.lease_key
             order by u.namespace, u.key, u.n desc) w
     where s.ctid = w.row_id;
    if v_may_be_shared then
      perform leasehold_internal.renew_shares(v_work, p_coordinator, p_principals, v_life, v_now);
    end if;
  end if;

  -- Who is told that its lease has expired must never see it revive.
  if v_tells_end then
    update leasehold.scope s
       set lapsed = true
      from unnest(v_work) w
     where w.outcome = 'ended' and s.namespace = w.namespace and s.key = w.key
       and s.state = 'held' and s.lease_key = w.lease_key and not s.lapsed;
    update leasehold.share h
       set lapsed = true
      from unnest(v_work) w
     where w.outcome = 'ended' and (w.holder).lease_key = w.lease_key
       and h.namespace = w.namespace and h.key = w.key and h.lease_key = w.lease_key and h.state <> 'ended' and not h.lapsed;
  end if;

  -- The queue: a waiter that comes back keeps its place, or has a new one where its wait was over, and waits as long as its daemon says now:
  -- one whose wait is over here alone keeps those behind it from being asked.
  if v_queues then
    update leasehold.waiter q
       set coordinator = p_coordinator,
           away_until = null,
           ticket = case when q.wait_until <= v_now then nextval('leasehold.ticket') else q.ticket end,
           enqueued_at = case when q.wait_until <= v_now then v_now else q.enqueued_at end,
           wait_until = v_now + w.wait,
           owner = w.owner,
           principal = p_principals[w.n],
           duration = w.duration,
           units = w.units,
           priority = coalesce(abs(w.priority), 0)
      from unnest(v_work) w
     where w.outcome = 'queued' and w.own_ticket is not null
       and q.lease_key = w.lease_key and (q.namespace, q.key) is not distinct from (w.namespace, w.key)
       -- Who only asks whether it has its place writes nothing. Its end moves by what the request took to come here.
       and ((q.coordinator, q.away_until, q.owner, q.principal, q.duration, q.units, q.priority)
              is distinct from (p_coordinator, null, w.owner, p_principals[w.n], w.duration, w.units, coalesce(abs(w.priority), 0))
            or (q.wait_until is null) <> (w.wait is null)
            or q.wait_until <= v_now or abs(extract(epoch from q.wait_until - v_now - w.wait)) > 0.1);
    insert into leasehold.waiter (
      namespace, key, ticket, lease_key, coordinator, enqueued_at, wait_until, duration, owner, principal, units, items, priority)
    -- One who comes with a ticket draws another all the same: room_for_waiters() relies on it.
    select w.namespace, w.key,
           case when w.ticket is not null
                 and not exists (select 1 from leasehold.waiter t
                                  where t.namespace = w.namespace and t.key = w.key and t.ticket = w.ticket)
                then least(w.ticket, nextval('leasehold.ticket')) else nextval('leasehold.ticket') end,
           w.lease_key, p_coordinator,
           case when w.ticket is null then v_now else leasehold_internal.came_at(w.namespace, w.key, w.ticket, abs(w.priority), v_now) end,
           v_now + w.wait, w.duration, w.owner, p_principals[w.n], w.units,
           case when p_all then cardinality(p_namespace) end, coalesce(abs(w.priority), 0)
      from (select u.* from unnest(v_work) u where u.outcome = 'queued' and u.own_ticket is null order by u.n) w
        on conflict do nothing;
    -- A scope that is not held exclusively may be the first waiter's soon, without a lease that ends: the reaper looks, should the wake-up
    -- get lost. A free row is changed for each new waiter, as by join_queue(): an older snapshot, which cannot see it, cannot acquire either.
    update leasehold.scope s
       set queued = true,
           check_at = case when s.state <> 'held' then least(s.check_at, v_now + interval '1 s') else s.check_at end
      from (select u.namespace, u.key, bool_or(u.own_ticket is null) as is_new, x.row_id
              from unnest(v_work) u
             cross join lateral (
               select x.ctid as row_id from leasehold.scope x where x.namespace = u.namespace and x.key = u.key offset 0) x
             where u.outcome = 'queued'
             group by u.namespace, u.key, x.row_id) w
     where s.ctid = w.row_id
       and (not s.queued or s.state = 'free' and w.is_new or s.state <> 'held' and s.check_at > v_now + interval '1 s');
  end if;
  if v_leaves then
    delete from leasehold.waiter q
     using (select x.row_id
              from unnest(v_work) w
             cross join lateral (
               select x.ctid as row_id
                 from leasehold.waiter x
                where x.lease_key = w.lease_key and (x.namespace, x.key) is not distinct from (w.namespace, w.key)
               offset 0) x
             where (w.outcome in ('granted', 'renewed', 'ended', 'frozen', 'elsewhere', 'quota', 'left') or w.outcome = 'invalid' and w.hold <> 'invalid')
               and w.own_ticket is not null
            offset 0) w
     where q.ctid = w.row_id;
  end if;

  -- A scope that stays open, or has room left, belongs to its first live waiter: make sure that it knows. It may be one of this batch, for
  -- which who came before it there has been refused. Who waits for several scopes together does not wait for this one.
  if v_has_heads then
    perform leasehold_internal.wake_head(null, o.namespace, o.key)
       from (select distinct w.namespace, w.key
               from unnest(v_work) w
              where (w.head_ticket is not null
                     or not p_all and w.outcome = 'queued' and w.hold in ('new', 'locked') and (w.scope).state is distinct from 'held')
                and not exists (select 1 from unnest(v_work) g
                                 where (g.outcome = 'hooked' or g.outcome = 'granted' and g.units is null) and g.namespace = w.namespace and g.key = w.key)) o;
  end if;
  if v_has_hooks and v_runs_hooks then
    perform leasehold_internal.hook_grants(v_work);
  end if;

  -- Answers about a batch in which nothing is shared take half of the time.
  if v_may_be_shared then
    return query select * from leasehold_internal.answer_shared(v_work, v_life, v_live, v_reap_veto, v_now);
    return;
  end if;
  return query
    select w.n, w.outcome, w.own, case when w.own is null and w.is_told and w.priority <> 0
                                      then cardinality(leasehold_internal.tickets_by_priority(w.namespace, w.key, v_live, v_now, w.priority, w.at))
                                      else leasehold_internal.tickets_ahead(w.tickets, w.own) end,
           f.expires_in_us, f.suspected_in_us,
           case when w.outcome = 'hooked' then leasehold_internal.to_us((w.rules).hook_timeout)::text
                when w.outcome in ('held', 'queued') then v_reap_veto end, w.field, w.bound,
           {{lease.columns f}}, leasehold_internal.rests_in_us(s.scope, v_life, v_now),
           'exclusive', 0, null::integer[], leasehold_internal.units_free(s.scope, w.rules),
           case (s.scope).state when 'held' then 1 else 0 end
      from (select u.*, q.own,
                   -- Once for each scope, by its first item that is told its place. (With offset 0 below, for the planner would
                   -- else move the calls into the window, and make them for each item.)
                   first_value(t.tickets) over (partition by u.namespace, u.key order by t.tickets is null, u.n) as tickets
              from (select v.*, v.outcome in ('queued', 'held') as is_told,
                           row_number() over (partition by v.namespace, v.key, v.outcome in ('queued', 'held')
                                              order by v.n) as place_in_scope
                      from unnest(v_work) v) u
              {{own_ticket.text}}
             cross join lateral (
               select case when u.is_told and u.place_in_scope = 1
                           then leasehold_internal.live_tickets(u.namespace, u.key, v_live, v_now) end as tickets offset 0) t) w
      {{item_scope.text}}
      left join lateral leasehold_internal.lease_facts(s.scope, w.rules, v_life, v_now) f on true
     order by w.n;
end
$$;
-- 1.5 of an interval of 1.5 s: for people, whatever the session's IntervalStyle. Locks nothing.
create or replace function leasehold_internal.seconds_text(p_interval interval) returns text
language sql immutable
as $$
  select trim_scale(round(extract(epoch from p_interval)::numeric, 6))::text
$$;

-- The minimum hold of a grant: what the request says, else the policy; null is none. Locks nothing.
create or replace function leasehold_internal.at_least_of(p_at_least_us bigint, p_rules leasehold.rules) returns interval
language sql immutable
as $$
  select nullif(coalesce(leasehold_internal.from_us(p_at_least_us), (p_rules).at_least), interval '0')
$$;

-- What follows a bound: the duration that was refused. Locks nothing.
create or replace function leasehold_internal.is_words(p_interval interval) returns text
language sql immutable
as $$
  select ', is ' || case
    when p_interval is null then 'null'
    when u.us % 1000000 = 0 then trim_scale(u.us / 1000000)::text || ' s'
    when u.us % 1000 = 0 then trim_scale(u.us / 1000)::text || ' ms'
    else u.us::text || ' us'
  end
    from (select trim_scale(extract(epoch from p_interval)::numeric * 1000000) as us) u
$$;

-- The limits of a policy for a duration, in words, and that duration. Locks nothing.
create or replace function leasehold_internal.duration_bound(p_min interval, p_max interval, p_duration interval) returns text
language sql stable
as $$
  select format('%s to %s s in this namespace', leasehold_internal.seconds_text(greatest(p_min, interval '100 ms')),
                leasehold_internal.seconds_text(p_max)) || leasehold_internal.is_words(p_duration)
$$;
drop function if exists leasehold_internal.duration_bound(interval, interval);
