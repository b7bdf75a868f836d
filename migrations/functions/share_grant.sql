-- What acquire_general() does about shared leases.

-- The items whose lease key has a row in leasehold.share get it as their `holder`: busy where another session has it, a renewal or its
-- end. Locks these rows FOR NO KEY UPDATE SKIP LOCKED; the caller has the scopes' rows locked.
create or replace function leasehold_internal.take_own_shares(p_work leasehold.acquire_work[]) returns leasehold.acquire_work[]
language plpgsql
set enable_seqscan = off
as $$
declare
  v_found record;
  v_item leasehold.acquire_work;
begin
  for v_found in
    select w as item, h.holder, h.is_mine
      from unnest(p_work) w
     cross join lateral (
       select 1
         from leasehold.share x
        where w.hold = 'locked' and x.namespace = w.namespace and x.key = w.key and x.lease_key = w.lease_key
       offset 0) e
      left join lateral (
        select leasehold_internal.scope_of_share(x) as holder, true as is_mine
          from leasehold.share x
         where x.namespace = w.namespace and x.key = w.key and x.lease_key = w.lease_key
           for no key update skip locked) h on true
  loop
    v_item := v_found.item;
    v_item.hold := case when v_found.is_mine then 'locked' else 'busy' end;
    v_item.holder := v_found.holder;
    p_work[v_item.n] := v_item;
  end loop;
  return p_work;
end
$$;

-- Where shared holders are in the way of an item, for it wants the scope exclusively or does not fit beside them, those that have expired and
-- may be taken over end, each by itself. Returns the items with their scopes as they are then, and why one could not be reaped (veto), which
-- is written down. Where hooks have to run and this call runs none, these items become 'hooked'.
-- Locks the holders' rows FOR UPDATE SKIP LOCKED: one that is guarded stays. The caller has the scopes' rows locked.
create or replace function leasehold_internal.end_expired_shares(
  inout p_work leasehold.acquire_work[], p_life leasehold.life_now, p_runs_hooks boolean, p_now timestamptz, out veto text)
language plpgsql
{{joins.settings}}
as $$
#variable_conflict use_variable
declare
  v_hooked text[] := '{}';
  v_expired leasehold.scope[];
  v_holder leasehold.scope;
  v_item leasehold.acquire_work;
  v_veto text;
begin
  v_expired := array(
    select leasehold_internal.scope_of_share(d.share)
      from (select x.share
              from (select w.namespace, w.key, (array_agg(w.rules))[1] as rules
                      from unnest(p_work) w
                     where w.hold = 'locked' and (w.scope).state = 'shared' and w.holder is null and (w.rules).expiry = 'takeover'
                     group by w.namespace, w.key
                    having bool_or(w.units is null)
                        or min((w.scope).units) + sum(w.units) > min((w.rules).capacity)) b
             cross join lateral (
               select s as share
                 from leasehold.share s
                where s.namespace = b.namespace and s.key = b.key and s.state = 'held' and (s.lapsed or s.deadline <= p_now)
                  and leasehold_internal.is_expired(leasehold_internal.scope_of_share(s), p_life, 'takeover', p_now)
                  and not leasehold_internal.is_put_off(leasehold_internal.scope_of_share(s), (b.rules).max_reap_failures, p_now)
                order by s.namespace, s.key, s.token
                  for update skip locked) x) d);
  if v_expired = '{}' then
    return;
  end if;
  perform leasehold_internal.check_life_mark();
  if exists (select from leasehold.registered_hook) then
    v_hooked := leasehold_internal.hooked(array(select v.namespace from unnest(v_expired) v), 'reap');
  end if;
  if v_hooked <> '{}' and p_runs_hooks then
    foreach v_holder in array v_expired loop
      exit when leasehold_internal.is_timed_out();
      continue when v_holder.namespace <> all (v_hooked);
      v_veto := leasehold_internal.try_hooks(
                  leasehold_internal.event_of('reap', v_holder, v_holder.deadline, null, null),
                  row(v_holder.namespace, v_holder.key, 'expired', null, null, true, null, v_holder.lease_key)::leasehold.lease_end);
      if v_veto is not null then
        veto := v_veto;
        perform leasehold_internal.note_reap_failure(
                  v_holder.namespace, v_holder.key, v_holder.token, v_veto,
                  (select r.max_reap_failures from leasehold_internal.policies_of(array[v_holder.namespace]) r));
      end if;
    end loop;
  end if;
  if exists (select from unnest(v_expired) v where v.namespace <> all (v_hooked)) then
    perform leasehold_internal.end_leases(array(
      select row(v.namespace, v.key, 'expired', null, null, true, null, v.lease_key)::leasehold.lease_end
        from unnest(v_expired) v
       where v.namespace <> all (v_hooked)), p_now);
  end if;
  for v_item in
    select w.* from unnest(p_work) w where exists (select from unnest(v_expired) v where v.namespace = w.namespace and v.key = w.key)
  loop
    v_item.scope := (select s from leasehold.scope s where s.namespace = v_item.namespace and s.key = v_item.key);
    if not p_runs_hooks and v_item.namespace = any (v_hooked) and v_item.holder is null and v_item.hold = 'locked' then
      v_item.hold := 'hooked';
    end if;
    p_work[v_item.n] := v_item;
  end loop;
end
$$;

-- Grant what was decided to be granted as shared, in the order of the places: each gets the lowest free numbers of its scope, where there is a
-- capacity, and a token of its own. The caller has the scopes' rows locked; they are free or shared.
create or replace function leasehold_internal.grant_shares(
  p_work leasehold.acquire_work[], p_coordinator uuid, p_principals text[], p_life leasehold.life_now, p_now timestamptz)
returns void
language plpgsql
{{joins.settings}}
as $$
begin
  if not exists (select 1 from unnest(p_work) w where w.outcome = 'granted' and w.units is not null) then
    return;
  end if;
  with wanted as materialized (
    select w.*, sum(w.units) over (partition by w.namespace, w.key order by coalesce(w.own_ticket, w.ticket, 9223372036854775807), w.n) as running
      from unnest(p_work) w
     where w.outcome = 'granted' and w.units is not null
  ), room as (
    -- What is taken leaves room below the sum of it and what is wanted.
    select d.namespace, d.key,
           array(select g.number
                   from generate_series(1, cardinality(t.taken) + d.units) as g (number)
                  where g.number not in (select k from unnest(t.taken) k)
                  order by g.number
                  limit d.units) as numbers
      from (select w.namespace, w.key, sum(w.units)::integer as units from wanted w where (w.rules).capacity is not null group by 1, 2) d
     cross join lateral (
       select array(select k
                      from leasehold.share h
                     cross join unnest(h.slots) k
                     where h.namespace = d.namespace and h.key = d.key and h.state = 'held') as taken offset 0) t
  ), granted as (
    insert into leasehold.share (
      {{share_grant.columns}})
    select {{share_grant.values o}}
      from (select w.namespace, w.key, w.lease_key, w.units, r.numbers[w.running - w.units + 1 : w.running] as slots, p_now as acquired_at,
                   p_now as now, 0 as heartbeats, p_now + least(w.duration, leasehold_internal.hold_limit(w.rules)) as deadline,
                   p_life.id as life_id, null::timestamptz as check_at, p_coordinator as coordinator, w.duration,
                   (w.rules).grace as grace, w.owner, p_principals[w.n] as principal, w.labels
              from wanted w
              left join room r on r.namespace = w.namespace and r.key = w.key
             order by w.namespace, w.key, w.running
            offset 0) o
    returning namespace, key, units, token, duration, deadline, grace)
  update leasehold.scope s
     set state = 'shared',
         units = coalesce(s.units, 0) + g.units,
         holders = coalesce(s.holders, 0) + g.count,
         queued = true,
         at_least = null,
         {{share_bounds.set g}}
    from (select g.*, p_now as now, p_life.id as life_id, x.row_id, x.holders > 0 as has_others
            from (select x.namespace, x.key, sum(x.units)::integer as units, count(*)::integer as count, max(x.token) as token,
                         min(x.deadline + x.grace) as until, min(x.duration) as duration
                    from granted x
                   group by x.namespace, x.key) g
           cross join lateral (
             select x.ctid as row_id, x.holders from leasehold.scope x where x.namespace = g.namespace and x.key = g.key offset 0) x
          offset 0) g
   where s.ctid = g.row_id;
end
$$;

-- Renew what shared holders ask for again. Of several items the last one's values count. The caller has their rows locked.
create or replace function leasehold_internal.renew_shares(
  p_work leasehold.acquire_work[], p_coordinator uuid, p_principals text[], p_life leasehold.life_now, p_now timestamptz)
returns void
language plpgsql
{{joins.settings}}
as $$
begin
  update leasehold.share h
     set {{renewal.set w}}
    from (select distinct on (u.namespace, u.key, u.lease_key) u.owner, p_principals[u.n] as principal, u.labels, u.duration,
                 (u.rules).grace as grace, p_life.id as life_id, p_now as now, x.row_id, x.check_at, x.heartbeats, x.granted_by,
                 leasehold_internal.renewed_until(u.holder, u.duration, leasehold_internal.hold_limit(u.rules), p_life, p_now) as deadline
            from unnest(p_work) u
           cross join lateral (
             select x.ctid as row_id, x.check_at, x.heartbeats, x.granted_by
               from leasehold.share x
              where x.namespace = u.namespace and x.key = u.key and x.lease_key = u.lease_key
             offset 0) x
           where u.outcome = 'renewed' and u.hold = 'locked' and (u.holder).state = 'held'
           order by u.namespace, u.key, u.lease_key, u.n desc) w
   where h.ctid = w.row_id;
  -- It may end sooner now than queue_shared() has found.
  update leasehold.scope s
     set incarnation = null
    from unnest(p_work) w
   cross join lateral (select x.ctid as row_id from leasehold.scope x where x.namespace = w.namespace and x.key = w.key offset 0) x
   where w.outcome = 'renewed' and w.hold = 'locked' and (w.holder).state = 'held'
     and (w.duration < (w.holder).duration or (w.rules).grace < (w.holder).grace) and s.ctid = x.row_id;
end
$$;

-- The oldest shared holder; no row where nobody shares the scope. To be used in FROM, where it becomes a part of the query. Locks nothing.
create or replace function leasehold_internal.oldest_facts(
  p_namespace text, p_key text, p_rules leasehold.rules, p_life leasehold.life_now, p_now timestamptz)
returns setof leasehold.lease_facts
language sql stable
as $$
  select f.*
    from (select h as share
            from leasehold.share h
           where h.namespace = p_namespace and h.key = p_key and h.state = 'held'
           order by h.namespace, h.key, h.token
           limit 1) o
   cross join lateral leasehold_internal.lease_facts(leasehold_internal.scope_of_share(o.share), p_rules, p_life, p_now) f
$$;

-- The same for whoever waits behind all of them: expires_in_us and suspected_in_us are the first of any. Null where nobody shares the scope.
-- Locks nothing.
create or replace function leasehold_internal.shared_facts(
  p_namespace text, p_key text, p_rules leasehold.rules, p_life leasehold.life_now, p_now timestamptz)
returns leasehold.lease_facts
language plpgsql stable
set enable_seqscan = off
as $$
declare
  v_facts leasehold.lease_facts;
begin
  select f.* into v_facts from leasehold_internal.oldest_facts(p_namespace, p_key, p_rules, p_life, p_now) f;
  if found then
    select leasehold_internal.to_us(
             min(case when h.reap_failures > 0 and leasehold_internal.is_put_off(leasehold_internal.scope_of_share(h), p_rules.max_reap_failures, p_now)
                        then h.next_try_at
                      when p_rules.expiry = 'manual' then null
                      when h.lapsed then p_now
                      when h.incarnation = p_life.id then h.deadline + h.grace
                      else p_life.started_at + h.duration + h.grace end) - p_now),
           greatest(0, leasehold_internal.to_us(
             min(least(h.heartbeat_at + coalesce(p_rules.dead_after, h.duration * 2 / 3), h.acquired_at + p_rules.max_hold)) - p_now))
      into v_facts.expires_in_us, v_facts.suspected_in_us
      from leasehold.share h
     where h.namespace = p_namespace and h.key = p_key and h.state = 'held';
  end if;
  return v_facts;
end
$$;

-- What acquire_general() answers about a batch in which anything is shared, or could be. The caller has the rows locked. Locks nothing.
create or replace function leasehold_internal.answer_shared(
  p_work leasehold.acquire_work[], p_life leasehold.life_now, p_live uuid[], p_reap_veto text, p_now timestamptz)
returns setof leasehold_internal.answer
language plpgsql
{{joins.settings}}
as $$
begin
  return query
    select w.n, w.outcome, w.own, case when w.own is null and w.is_told and w.priority <> 0
                                      then cardinality(leasehold_internal.tickets_by_priority(w.namespace, w.key, p_live, p_now, w.priority, w.at))
                                      else leasehold_internal.tickets_ahead(w.tickets, w.own) end,
           f.expires_in_us, f.suspected_in_us,
           case when w.outcome = 'hooked' then leasehold_internal.to_us((w.rules).hook_timeout)::text
                when w.outcome in ('held', 'queued') then p_reap_veto end, w.field, w.bound,
           {{lease.columns f}}, leasehold_internal.rests_in_us(s.scope, p_life, p_now),
           coalesce(f.mode, 'exclusive'), coalesce(f.units, 0), f.slots, leasehold_internal.units_free(s.scope, w.rules),
           leasehold_internal.holder_count(s.scope)
      from (select u.*, q.own,
                   -- Once for each scope, by its first item that is told its place. (With offset 0 below, for the planner would
                   -- else move the calls into the window, and make them for each item.)
                   first_value(t.tickets) over (partition by u.namespace, u.key order by t.tickets is null, u.n) as tickets,
                   first_value(t.facts) over (partition by u.namespace, u.key order by t.tickets is null, u.n) as shared_facts
              from (select v.*, v.outcome in ('queued', 'held') as is_told,
                           row_number() over (partition by v.namespace, v.key, v.outcome in ('queued', 'held')
                                              order by v.n) as place_in_scope
                      from unnest(p_work) v) u
              {{own_ticket.text}}
             cross join lateral (
               select case when u.is_told and u.place_in_scope = 1
                           then leasehold_internal.live_tickets(u.namespace, u.key, p_live, p_now) end as tickets,
                      case when u.is_told and u.place_in_scope = 1
                           then leasehold_internal.shared_facts(u.namespace, u.key, u.rules, p_life, p_now) end as facts offset 0) t) w
      {{item_scope.text}}
      left join lateral (
        select leasehold_internal.scope_of_share(x) as scope
          from leasehold.share x
         where w.outcome in ('granted', 'renewed')
           and x.namespace = w.namespace and x.key = w.key and x.lease_key = w.lease_key and x.state <> 'ended'
        offset 0) h on true
     cross join lateral (select coalesce(h.scope, s.scope) as scope offset 0) c
      left join lateral (
        select x.* from leasehold_internal.lease_facts(c.scope, w.rules, p_life, p_now) x
         union all
        select (w.shared_facts).* where w.is_told and (s.scope).state = 'shared') f on true
     order by w.n;
end
$$;
