-- Renew many leases at once. Each item gets one row: ok with the new deadline, lost with how it ended, busy, rejected with a
-- hook's words; or, where this call runs no hooks, hooked with their time limit. A shared lease's row has its token and units, and whether it
-- has slots: somebody else may have downgraded it. A downgrade keeps the lowest slots, and an exclusive lease gets 1 to units, so that
-- its holder knows which.
-- Locks each scope's row FOR NO KEY UPDATE, skipping what another session has; of a shared holder its own row alone, so that nobody who has
-- the scope's row keeps it from renewing. A guard's FOR KEY SHARE does not conflict.
-- The common case in one statement: the lease is held under this lease key and its expiry has not passed. The clock is read after each
-- row's lock. What is left over, also where the expiry counts for nothing because of what happened to the database, is told apart by heartbeat_carefully.
-- `p_relax`: the transaction does nothing else, and where all are ok it need not be on disk when it is answered (relax_commit).
create or replace function leasehold_internal.heartbeat_batch(
  p_namespace text[], p_key text[], p_lease_key uuid[], p_relax boolean default false)
returns table (
  {{beat_answer.table}})
language plpgsql
security definer
{{batch.settings}}
as $$
#variable_conflict use_column
declare
  v_life_id bigint;
  v_started_at timestamptz;
  v_careful text[] := '{}';
  v_is_set boolean;
begin
  if cardinality(p_namespace) = 1 then
    return query
      update leasehold.scope s
         set {{beat.set w}},
             deadline = w.now + s.duration
        from (select f.id as life_id, f.started_at, x.row_id, clock_timestamp() as now
                from leasehold_internal.this_life() f
               cross join lateral (
                 select x.ctid as row_id
                   from leasehold.scope x
                  where x.namespace = p_namespace[1] and x.key = p_key[1] and x.lease_key = p_lease_key[1] and not x.lapsed
                    and f.id is not null
                    for no key update skip locked) x
               where not (exists (select from leasehold.registered_hook) and leasehold_internal.is_hooked(p_namespace[1], 'heartbeat'))
                 and not exists (select from leasehold.policy p
                                  where p.end_at_max_hold and leasehold_internal.covers(p.namespace, p_namespace[1]))
              offset 0) w
       where s.ctid = w.row_id
         and w.now < case when s.incarnation = w.life_id then s.deadline + s.grace
                          else w.started_at + s.duration + s.grace end
      returning 1, 'ok', leasehold_internal.to_us(s.duration), s.deadline, s.heartbeats, null::text, null::text, null::bigint, null::integer,
                null::boolean;
    if found then
      v_is_set := leasehold_internal.relax_commit(p_relax);
    else
      return query select * from leasehold_internal.heartbeat_rest(p_namespace, p_key, p_lease_key, '{}', p_relax);
    end if;
    return;
  end if;
  {{careful.text}}
  -- Nothing that is set here is indexed: the update stays HOT.
  return query
    with renewed as (
      update leasehold.scope s
         set {{beat.set w}},
             deadline = w.now + s.duration
        from (select i.n, x.row_id, clock_timestamp() as now, v_life_id as life_id
                from unnest(p_namespace, p_key, p_lease_key) with ordinality as i (namespace, key, lease_key, n)
               cross join lateral (
                 select x.ctid as row_id
                   from leasehold.scope x
                  where x.namespace = i.namespace and x.key = i.key and x.lease_key = i.lease_key and not x.lapsed
                    for no key update skip locked) x
               where i.namespace <> all (v_careful)
              offset 0) w
       {{unexpired.text}}
      returning w.n::integer as n, s.deadline, s.duration, s.heartbeats)
    select r.n, 'ok', leasehold_internal.to_us(r.duration), r.deadline, r.heartbeats, null::text, null::text, null::bigint, null::integer,
           null::boolean
      from renewed r
    union all
    select * from leasehold_internal.heartbeat_rest(p_namespace, p_key, p_lease_key, array(select r.n from renewed r), p_relax);
end
$$;
comment on function leasehold_internal.heartbeat_batch is 'Renew many leases at once, by a coordinator';

-- What heartbeat_batch has not renewed as the lease of one holder: p_done are the numbers of those that it has.
create or replace function leasehold_internal.heartbeat_rest(
  p_namespace text[], p_key text[], p_lease_key uuid[], p_done integer[], p_relax boolean)
returns table (
  {{beat_answer.table}})
language plpgsql
as $$
#variable_conflict use_column
declare
  v_life_id bigint;
  v_started_at timestamptz;
  v_done integer[] := p_done;
  v_shared integer[];
  v_deadlines timestamptz[];
  v_remaining bigint[];
  v_counts bigint[];
  v_tokens bigint[];
  v_units integer[];
  v_have_slots boolean[];
  v_left integer[];
  v_careful text[] := '{}';
  v_is_set boolean;
begin
  -- Shared holders. Wherever one is looked for by its lease key, its state is <> 'ended': = 'held' would let the planner
  -- take the index of held ones by token, and read all holders of the scope for each.
  if cardinality(v_done) < cardinality(p_namespace) then
    {{careful.text}}
    with renewed as (
      update leasehold.share s
         set {{beat.set w}},
             deadline = w.now + s.duration
        from (select i.n, x.row_id, clock_timestamp() as now, v_life_id as life_id
                from unnest(p_namespace, p_key, p_lease_key) with ordinality as i (namespace, key, lease_key, n)
               cross join lateral (
                 select x.ctid as row_id
                   from leasehold.share x
                  where x.namespace = i.namespace and x.key = i.key and x.lease_key = i.lease_key and x.state <> 'ended' and not x.lapsed
                    for no key update skip locked) x
               where i.namespace <> all (v_careful) and i.n <> all (v_done)
              offset 0) w
       {{unexpired.text}}
      returning w.n::integer as n, s.deadline, s.duration, s.heartbeats, s.token, s.units, s.slots is not null as has_slots)
    select coalesce(array_agg(r.n), '{}'), array_agg(r.deadline), array_agg(leasehold_internal.to_us(r.duration)), array_agg(r.heartbeats),
           array_agg(r.token), array_agg(r.units), array_agg(r.has_slots)
      into v_shared, v_deadlines, v_remaining, v_counts, v_tokens, v_units, v_have_slots
      from renewed r;
    return query
      select r.n, 'ok', r.remaining_us, r.deadline, r.heartbeats, null::text, null::text, r.token, r.units, r.has_slots
        from unnest(v_shared, v_remaining, v_deadlines, v_counts, v_tokens, v_units, v_have_slots)
               as r (n, remaining_us, deadline, heartbeats, token, units, has_slots);
    v_done := v_done || v_shared;
  end if;

  if cardinality(v_done) < cardinality(p_namespace) then
    v_left := array(select i::integer from generate_subscripts(p_namespace, 1) i except select unnest(v_done) order by 1);
    return query
      select v_left[c.n], c.outcome, c.remaining_us, c.deadline, c.heartbeats, c.end_reason, c.message, c.token, c.units, c.has_slots
        from (select array_agg(p_namespace[i] order by i) as namespaces, array_agg(p_key[i] order by i) as keys,
                     array_agg(p_lease_key[i] order by i) as lease_keys
                from unnest(v_left) i) a,
             leasehold_internal.heartbeat_carefully(a.namespaces, a.keys, a.lease_keys) c;
  else
    v_is_set := leasehold_internal.relax_commit(p_relax);
  end if;
end
$$;

-- What is left over: lost, busy, hooked, expired but manual, a hold that the policy ends, and the same lease twice in a batch. Where a lease is renewed
-- for less than its duration, for its hold ends then, end_reason says so, and message.
create or replace function leasehold_internal.heartbeat_carefully(p_namespace text[], p_key text[], p_lease_key uuid[])
returns table (
  {{beat_answer.table}})
language plpgsql
{{batch.settings}}
as $$
#variable_conflict use_column
declare
  v_work leasehold.item_work[];
  v_rules leasehold.rules[];
  v_life leasehold.life_now;
  v_now timestamptz;
begin
  v_work := array(
    select row(w.n, w.namespace, w.key, w.lease_key, null, null, null, null, s.scope,
               case when s.scope is null then 'missing' else 'locked' end, null, null, null, null, null)::leasehold.item_work
      from (select u.n::integer as n, u.namespace, u.key, u.lease_key
              from unnest(p_namespace, p_key, p_lease_key) with ordinality as u (namespace, key, lease_key, n)
             order by u.namespace, u.key, u.n) w
      left join lateral (
        select x as scope
          from leasehold.scope x
         where x.namespace = w.namespace and x.key = w.key
           and not exists (select from leasehold.share h where h.namespace = w.namespace and h.key = w.key and h.lease_key = w.lease_key)
           for no key update skip locked) s on true);
  -- A lease may have become shared in between.
  v_work := leasehold_internal.mark_busy(leasehold_internal.take_holders(v_work, false));
  {{lost_marked.text}}
  if exists (select from leasehold.registered_hook) then
    v_work := leasehold_internal.hook_items(v_work, 'heartbeat', leasehold_internal.runs_hooks(false), v_now);
  end if;
  v_rules := leasehold_internal.ending_rules(p_namespace);

  -- Nothing that is set here is indexed: the update stays HOT.
  update leasehold.scope s
     set {{beat.set w}},
         deadline = w.deadline
    from (select distinct x.row_id, v_now as now, v_life.id as life_id, leasehold_internal.next_deadline(u.scope, v_rules, v_life, v_now) as deadline
            from unnest(v_work) u
           cross join lateral (select x.ctid as row_id from leasehold.scope x where x.namespace = u.namespace and x.key = u.key offset 0) x
           where u.outcome = 'ok' and (u.scope).units is null) w
   where s.ctid = w.row_id;
  if exists (select 1 from unnest(v_work) w where w.outcome = 'ok' and (w.scope).units > 0) then
    update leasehold.share s
       set {{beat.set w}},
           deadline = w.deadline
      from (select distinct x.row_id, v_now as now, v_life.id as life_id, leasehold_internal.next_deadline(u.scope, v_rules, v_life, v_now) as deadline
              from unnest(v_work) u
             cross join lateral (
               select x.ctid as row_id
                 from leasehold.share x
                where x.namespace = u.namespace and x.key = u.key and x.lease_key = u.lease_key
               offset 0) x
             where u.outcome = 'ok' and (u.scope).units > 0) w
     where s.ctid = w.row_id;
  end if;

  return query
    select w.n, w.outcome,
           case when w.outcome = 'ok' then leasehold_internal.to_us(d.deadline - v_now) end,
           d.deadline,
           case when w.outcome = 'ok' then (w.scope).heartbeats + 1 end,
           case when d.is_last then 'max_hold' else w.end_reason end,
           case when w.outcome in ('hooked', 'rejected') then w.error
                when d.is_last
                  then format('the policy of %s ends it after %s s', w.namespace,
                              (select leasehold_internal.seconds_text(leasehold_internal.hold_limit(r))
                                 from unnest(v_rules) r where r.namespace = w.namespace)) end,
           case when h.is_share then (w.scope).token end, case when h.is_share then (w.scope).units end,
           case when h.is_share then (w.scope).slots is not null end
      from unnest(v_work) w
     cross join lateral (select w.outcome = 'ok' and leasehold_internal.is_share(w.scope) as is_share) h
      left join lateral (
        select x.deadline, x.deadline < v_now + (w.scope).duration as is_last
          from (select leasehold_internal.next_deadline(w.scope, v_rules, v_life, v_now) as deadline) x
         where w.outcome = 'ok') d on true
     order by w.n;
end
$$;

-- Items whose row could not be taken: 'busy' where there is one, 'unknown' where there is none. Locks nothing.
create or replace function leasehold_internal.mark_busy(p_work leasehold.item_work[]) returns leasehold.item_work[]
language plpgsql
as $$
begin
  if not exists (select 1 from unnest(p_work) w where w.hold = 'missing') then
    return p_work;
  end if;
  return array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, w.is_failure, w.result, w.error, w.scope,
               case when w.hold <> 'missing' then w.hold when e.is_there then 'busy' else 'unknown' end,
               null, null, null, null, null)::leasehold.item_work
      from unnest(p_work) w
      left join lateral (
        select true as is_there
          from leasehold.scope x
         where x.namespace = w.namespace and x.key = w.key and w.hold = 'missing'
        offset 0) e on true);
end
$$;

-- Promise 11: a holder that lost its lease gets LOST with the reason, never OK.
-- Whether each item's lease key still holds its scope: ok, lost (with the reason) or busy. An expired lease is marked
-- lapsed here, for its holder is about to be told, and must never revive. The caller has the rows locked. A lease of a key that
-- another database has is busy, where its end is not known here: a daemon that asks here has not read yet that its key went away.
create or replace function leasehold_internal.mark_lost(
  p_work leasehold.item_work[], p_life leasehold.life_now, p_now timestamptz)
returns leasehold.item_work[]
language plpgsql
as $$
declare
  v_rules leasehold.rules[] := '{}';
  v_is_spread constant boolean := exists (select from leasehold.spread);
begin
  -- The policy matters only to what would have expired without one.
  if exists (select 1 from unnest(p_work) w where leasehold_internal.is_expired(w.scope, p_life, 'takeover', p_now)) then
    v_rules := array(
      select r from leasehold_internal.policies_of(array(
        select distinct w.namespace from unnest(p_work) w
         where leasehold_internal.is_expired(w.scope, p_life, 'takeover', p_now))) r);
    perform leasehold_internal.check_life_mark();
    update leasehold.scope s
       set lapsed = true
      from unnest(p_work) w
     where (w.scope).lease_key = w.lease_key and not (w.scope).lapsed
       and leasehold_internal.is_expired(
             w.scope, p_life, (select r.expiry from unnest(v_rules) r where r.namespace = w.namespace), p_now)
       and s.namespace = w.namespace and s.key = w.key and s.lease_key = w.lease_key;
    update leasehold.share s
       set lapsed = true
      from unnest(p_work) w
     where (w.scope).units > 0 and (w.scope).lease_key = w.lease_key and not (w.scope).lapsed
       and leasehold_internal.is_expired(
             w.scope, p_life, (select r.expiry from unnest(v_rules) r where r.namespace = w.namespace), p_now)
       and s.namespace = w.namespace and s.key = w.key and s.lease_key = w.lease_key and s.state <> 'ended';
  end if;
  return array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, w.is_failure, w.result, w.error, w.scope, w.hold,
               case when w.hold = 'busy' or a.is_away then 'busy' when h.is_mine and not h.is_over then 'ok' else 'lost' end,
               case when w.hold = 'busy' or a.is_away or (h.is_mine and not h.is_over) then null
                    when h.is_mine
                      then leasehold_internal.outcome_at_end('expired', (w.scope).deadline, (w.scope).heartbeat_at, (w.scope).duration)
                    else coalesce(a.end_reason, 'unknown') end,
               null, null, null)::leasehold.item_work
      from unnest(p_work) w
     cross join lateral (
       select coalesce((select r.expiry from unnest(v_rules) r where r.namespace = w.namespace), 'takeover') as expiry offset 0) e
     cross join lateral (
       select coalesce((w.scope).state = 'held' and (w.scope).lease_key = w.lease_key, false) as is_mine,
              coalesce((w.scope).lapsed, false) or leasehold_internal.is_expired(w.scope, p_life, e.expiry, p_now) as is_over) h
     cross join lateral (select case when not h.is_mine then leasehold_internal.end_reason(w.scope, w.lease_key) end as end_reason offset 0) o
     cross join lateral (
       select o.end_reason,
              case when v_is_spread and not h.is_mine and o.end_reason is null
                   then not leasehold_internal.has_key((leasehold_internal.spread_of(w.namespace)).slots, w.key)
                   else false end as is_away
       offset 0) a);
end
$$;

grant execute on function leasehold_internal.heartbeat_batch to leasehold_coordinator, leasehold_admin;
