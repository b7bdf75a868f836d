-- Acquire for many at once: who is granted what. Each item gets exactly one row, in the order of n.
--
-- Returns what each item met (outcome: granted renewed queued held busy frozen elsewhere quota ended invalid rejected; or hooked, with the
-- time limit, where this call runs no hooks: nothing was done) and the lease: the
-- item's own when granted or renewed, else the holder's. Each column costs a statement over 5,000 instructions of the server: so the grant
-- of a free scope leaves out what the caller has said itself, and anything else is one column (`more`). It never waits: a row or a new
-- key that another session keeps is busy. Several items of one scope are decided in order of n.
--
-- Promise 1: only a scope that is free under its row's lock is granted here; decide() has the whole rule.
--
-- `p_principals` are who asks, as proved: a coordinator knows its clients. `p_at_least_us` is the minimum hold, null: the policy's. While
-- the scope has one that is not over, rests_in_us is how long it still lasts, whether somebody holds the scope or not.
--
-- Locks each scope's row FOR NO KEY UPDATE; FOR UPDATE where an expired lease is taken over. Where there
-- is no row yet, the row of its slot in leasehold.creation. In any order, for it waits for none of them.

-- Of the items `p_n`, whose names are new: those that nothing is against are granted, in two statements. The first locks the slots under which they
-- are created; the second sees what who had them before has committed. Its twin is what acquire_general() does about a new scope. Locks rows of
-- leasehold.creation, and waits for none of them.
create or replace function leasehold_internal.grant_new(
  p_coordinator uuid, p_namespace text[], p_key text[], p_lease_key uuid[], p_owner text[], p_labels text[], p_duration_us bigint[],
  p_wait_us bigint[], p_principals text[], p_rules leasehold.rules[], p_life_id bigint, p_has_room boolean, p_n integer[])
returns leasehold_internal.acquired[]
language plpgsql
{{few.settings}}
set plan_cache_mode = force_generic_plan
as $$
declare
  v_seed constant bigint := (select t.seed from leasehold.turn t where t.name = 'creation');
  v_slots constant integer[] := array(
    select c.slot
      from leasehold.creation c
     where c.slot = any (array(select leasehold_internal.creation_slot(p_namespace[n], p_key[n], v_seed) from unnest(p_n) n))
       for update skip locked);
  v_granted leasehold_internal.acquired[];
begin
  with wanted as materialized (
    select distinct on (i.namespace, i.key) i.*, d.duration, d.duration as lasts, p_life_id as life_id, r.grace, r.dead_after, r.max_hold,
           r.expiry, r.capacity, null::timestamptz as check_at, clock_timestamp() as now
      from (select n, p_namespace[n] as namespace, p_key[n] as key, p_lease_key[n] as lease_key, p_owner[n] as owner,
                   p_principals[n] as principal, p_labels[n]::jsonb as labels, p_duration_us[n] as duration_us
              from unnest(p_n) n
             where leasehold_internal.creation_slot(p_namespace[n], p_key[n], v_seed) = any (v_slots)
            offset 0) i
      join (select u.* from unnest(p_rules) u where leasehold_internal.namespace_problem(u.namespace) is null offset 0) r
        on r.namespace = i.namespace
     cross join lateral (select leasehold_internal.from_us(i.duration_us) as duration) d
     cross join lateral (
       select exists (select from leasehold.scope x where x.namespace = i.namespace and x.key = i.key)
              or exists (select from leasehold.waiter q where q.namespace = i.namespace and q.key = i.key) as is_there
       offset 0) e
     where not e.is_there and leasehold_internal.key_problem(i.key) is null
       and leasehold_internal.is_plain(r, i.key, i.owner, p_labels[i.n], i.duration_us, p_wait_us[i.n], p_has_room)
     order by i.namespace, i.key, i.n),
  created as (
    insert into leasehold.scope as s (namespace, key, {{grant.columns}})
    select w.namespace, w.key,
           {{grant.values w}}
      from (select o.* from wanted o order by o.n) w
        on conflict (namespace, key) do nothing
    returning s.namespace, s.key, s.token)
  select coalesce(array_agg(
           row(w.n, 'granted', c.token, w.now, leasehold_internal.to_us(w.grace),
               case when w.expiry <> 'manual' then w.duration_us + leasehold_internal.to_us(w.grace) end,
               leasehold_internal.to_us(least(coalesce(w.dead_after, w.duration * 2 / 3), w.max_hold)),
               case when w.capacity is not null then 0 end, null)::leasehold_internal.acquired), '{}')
    into v_granted
    from created c
    join wanted w
   using (namespace, key);
  return v_granted;
end
$$;

-- The common case first, in one statement, which finds each row once and updates what it has locked (ctid; a row that somebody has
-- changed since the statement began is left over): a free scope that nobody waits for. `queued` is false; it is set in the same
-- transaction as the first waiter, under the row's lock, so that this statement sees it when it takes that lock. And no SQL user has
-- joined while it was held, which leaves the row as it was: who did before this statement began is seen. A scope with a minimum hold is
-- `queued`, and so a free row that this statement takes has none. What is left over is decided by acquire_general.
--
-- decide() can decide about everything, and acquire_general() writes it. For speed the common cases are decided a second time, and
-- written in a statement of their own (its columns are those of columns.txt): a free scope here, in a batch of one and in a batch of several; a new
-- one in grant_new(); a wait behind a holder here, and for room in queue_shared(); the
-- hand-over to the first waiter in hand_over_batch(). Each leaves alone what is unusual. A change of one is a change of its twins:
-- tests/sql/test_one_and_many.sql does each operation both ways and compares answers, rows, queue, history and notifications.
create or replace function leasehold_internal.acquire_items(
  p_coordinator uuid, p_clock timestamptz, p_namespace text[], p_key text[], p_lease_key uuid[], p_owner text[],
  p_labels text[], p_duration_us bigint[], p_queue boolean[], p_wait_us bigint[], p_ticket bigint[],
  p_principals text[] default null, p_at_least_us bigint[] default null, p_units integer[] default null,
  p_priority integer[] default null)
returns setof leasehold_internal.acquired
language plpgsql
security definer
{{batch.settings}}
as $$
declare
  v_rules leasehold.rules[];
  v_life_id bigint;
  v_is_same boolean;
  v_granted leasehold_internal.acquired[] := '{}';
  v_left integer[];
  v_hooked text[] := '{}';
  v_has_sql_users boolean;
  v_has_hooks boolean;
  v_late bigint[] := '{}';
  v_found record;
  v_may_be_plain boolean := false;
  v_is_new boolean := false;
  v_is_alone boolean;
  v_has_room boolean := false;
begin
  if current_setting('synchronous_commit') = 'off' then
    perform leasehold_internal.be_durable();
  end if;

  -- Batches of one are what an idle coordinator sends: everything about the common cases is asked and done in one statement, or two.
  if cardinality(p_namespace) = 1 and coalesce(p_ticket[1] = 0, true) and p_at_least_us[1] is null and coalesce(p_priority[1] = 0, true)
     and not leasehold_internal.is_blind() then
    if p_queue[1] then
      if exists (select from leasehold.scope x where x.namespace = p_namespace[1] and x.key = p_key[1] and x.state = 'held') then
        -- Somebody has it: wait. Its twin is what acquire_general() does about an item that is queued.
        v_is_alone := pg_current_xact_id_if_assigned() is null;
        select i.life, i.rules, x.scope, clock_timestamp() as now
          into v_found
          from leasehold_internal.plain_wait(p_clock, p_namespace[1], p_key[1], p_owner[1], p_labels[1], p_duration_us[1], p_wait_us[1],
                                             p_units[1]) i
         cross join lateral (
           select x as scope
             from leasehold.scope x
            where x.namespace = p_namespace[1] and x.key = p_key[1] and i.life is not null
              and x.state = 'held' and not x.lapsed and x.lease_key <> p_lease_key[1] and p_lease_key[1] <> all (x.ended_keys)
              and x.at_least is null
              and (x.holders is null or not leasehold_internal.has_shared(x.namespace, x.key, p_lease_key[1]))
              for no key update skip locked) x;
        if found then
          -- The queue is read after the row's lock, so whoever is in it was there before.
          return query
            with placed as (
              insert into leasehold.waiter (
                namespace, key, ticket, lease_key, coordinator, enqueued_at, wait_until, duration, owner, principal, units)
              select p_namespace[1], p_key[1], nextval('leasehold.ticket'), p_lease_key[1], p_coordinator, v_found.now,
                     v_found.now + leasehold_internal.from_us(p_wait_us[1]), leasehold_internal.from_us(p_duration_us[1]), p_owner[1],
                     p_principals[1], p_units[1]
               where not leasehold_internal.is_expired(v_found.scope, v_found.life, (v_found.rules).expiry, v_found.now)
                  on conflict do nothing
              returning ticket),
            marked as (
              update leasehold.scope s
                 set queued = true
               where s.namespace = p_namespace[1] and s.key = p_key[1] and not s.queued and exists (select from placed))
            select 1, 'queued', null::bigint, null::timestamptz, null::bigint, null::bigint, null::bigint, null::integer,
                   row(1, 'queued', p.ticket,
                       leasehold_internal.count_before_last(
                                     p_namespace[1], p_key[1], leasehold_internal.live_coordinators(v_found.now), v_found.now),
                       f.expires_in_us, f.suspected_in_us, null, null, null, {{lease.columns f}}, null, 'exclusive', 0, null,
                       case when (v_found.rules).capacity is not null then 0 end, 1)::leasehold_internal.answer
              from placed p, leasehold_internal.lease_facts(v_found.scope, v_found.rules, v_found.life, v_found.now) f;
          if found then
            perform leasehold_internal.relax_commit(v_is_alone and p_coordinator is not null);
            return;
          end if;
        end if;
      end if;
    end if;
    if p_units[1] is null then
      v_has_room := exists (select from leasehold.policy p where p.max_leases is not null)
                    and leasehold_internal.has_room_for(p_namespace, p_key, array(select leasehold_internal.policy_of(p_namespace[1])));
      return query
        update leasehold.scope s
           set {{grant.set w}}
          from (select p_lease_key[1] as lease_key, p_owner[1] as owner, p_principals[1] as principal, p_labels[1]::jsonb as labels, d.duration,
                       d.duration as lasts, f.id as life_id, r.grace, r.dead_after, r.max_hold, r.expiry, r.capacity, x.row_id, x.check_at,
                       clock_timestamp() as now
                  from leasehold_internal.life_facts() f
                 cross join leasehold_internal.rules_of(p_namespace[1]) r
                 cross join (select leasehold_internal.from_us(p_duration_us[1]) as duration) d
                 cross join lateral (
                   select x.ctid as row_id, x.check_at
                     from leasehold.scope x
                    where x.namespace = p_namespace[1] and x.key = p_key[1]
                      and x.state = 'free' and not x.queued and p_lease_key[1] <> all (x.ended_keys)
                      and f.id is not null and r.namespace is not null
                      for no key update skip locked) x
                 where f.is_same and p_lease_key[1] is not null
                   and leasehold_internal.is_plain(r, p_key[1], p_owner[1], p_labels[1], p_duration_us[1], p_wait_us[1], v_has_room)
                   and not (exists (select from leasehold.registered_hook) and leasehold_internal.is_hooked(p_namespace[1], 'acquire'))
                   and not exists (select from leasehold.waiter q
                                    where q.coordinator is null and q.namespace = p_namespace[1] and q.key = p_key[1])
                offset 0) w
         where s.ctid = w.row_id
        returning 1, 'granted', s.token, w.now, leasehold_internal.to_us(w.grace),
                  case when w.expiry <> 'manual' then p_duration_us[1] + leasehold_internal.to_us(w.grace) end,
                  leasehold_internal.to_us(least(coalesce(w.dead_after, w.duration * 2 / 3), w.max_hold)),
                  case when w.capacity is not null then 0 end, null::leasehold_internal.answer;
      if found then
        -- Asked after the change: a watch that begins waits for who has changed something, and not for who is about to.
        {{told.text}}
        if v_has_room then
          perform leasehold_internal.note_leases(p_namespace, 1);
        end if;
        return;
      end if;
      v_is_new := not exists (select from leasehold.scope x where x.namespace = p_namespace[1] and x.key = p_key[1]);
    elsif p_queue[1] then
      return query
        select a.n, a.outcome, null::bigint, null::timestamptz, null::bigint, null::bigint, null::bigint, null::integer, a
          from leasehold_internal.queue_shared(p_coordinator, p_clock, p_namespace[1], p_key[1], p_lease_key[1], p_owner[1],
                                               p_labels[1], p_duration_us[1], p_wait_us[1], p_principals[1], p_units[1]) a;
      if found then
        return;
      end if;
    end if;
  else
    -- Whoever has a place waits for a scope that is `queued`; who wants to share one is decided by acquire_general().
    v_may_be_plain := coalesce(0 = any (p_ticket), true) and (p_units is null or array_position(p_units, null) is not null);
  end if;

  if v_may_be_plain or v_is_new then
    select f.id, f.is_same, exists (select from leasehold.waiter q where q.coordinator is null),
           exists (select from leasehold.registered_hook),
           case when p_namespace[1] = all (p_namespace) then array(select r from leasehold_internal.rules_of(p_namespace[1]) r) end
      into v_life_id, v_is_same, v_has_sql_users, v_has_hooks, v_rules
      from leasehold_internal.life_facts() f;
    if v_has_hooks is distinct from false then
      v_hooked := leasehold_internal.hooked(p_namespace, 'acquire');
    end if;
    if not v_is_same then
      perform leasehold_internal.ensure_epoch();
    end if;
    if v_rules is null then
      {{rules_of_items.text}}
    end if;
    -- Who wants to share a scope, or a minimum hold, is decided by acquire_general(), and whoever comes after it in the batch.
    if cardinality(array_remove(p_units, null)) > 0 or cardinality(array_remove(p_at_least_us, null)) > 0 then
      v_late := array(
        select i.n
          from (select u.n, bool_or(u.units is not null or u.at_least_us is not null) over (partition by u.namespace, u.key order by u.n) as is_late
                  from unnest(p_namespace, p_key, p_units, p_at_least_us) with ordinality as u (namespace, key, units, at_least_us, n)) i
         where i.is_late);
    end if;
    if exists (select from unnest(v_rules) r where r.max_leases is not null) then
      v_has_room := leasehold_internal.has_room_for(p_namespace, p_key, v_rules);
    end if;
    if v_may_be_plain then
      with granted as (
        update leasehold.scope s
           set {{grant.set w}}
          from (select i.n, i.lease_key, i.owner, p_principals[i.n] as principal, i.labels::jsonb as labels, i.duration_us, d.duration,
                       d.duration as lasts, v_life_id as life_id, r.grace, r.dead_after, r.max_hold, r.expiry, r.capacity,
                       x.row_id, x.check_at, clock_timestamp() as now
                  from unnest(p_namespace, p_key, p_lease_key, p_owner, p_labels, p_duration_us, p_wait_us, p_at_least_us)
                       with ordinality as i (namespace, key, lease_key, owner, labels, duration_us, wait_us, at_least_us, n)
                  join unnest(v_rules) r
                    on r.namespace = i.namespace
                 cross join lateral (select leasehold_internal.from_us(i.duration_us) as duration) d
                 cross join lateral (
                   select x.ctid as row_id, x.check_at
                     from leasehold.scope x
                    where x.namespace = i.namespace and x.key = i.key and r.namespace is not null
                      and x.state = 'free' and not x.queued and i.lease_key <> all (x.ended_keys)
                      and not (v_has_sql_users
                               and exists (select from leasehold.waiter q
                                            where q.coordinator is null and q.namespace = x.namespace and q.key = x.key))
                      for no key update skip locked) x
                 where i.namespace <> all (v_hooked) and i.lease_key is not null and i.at_least_us is null
                   and coalesce(p_priority[i.n] = 0, true) and i.n <> all (v_late)
                   and leasehold_internal.is_plain(r, i.key, i.owner, i.labels, i.duration_us, i.wait_us, v_has_room)
                offset 0) w
         where s.ctid = w.row_id
        returning row(w.n, 'granted', s.token, w.now, leasehold_internal.to_us(w.grace),
                      case when w.expiry <> 'manual' then w.duration_us + leasehold_internal.to_us(w.grace) end,
                      leasehold_internal.to_us(least(coalesce(w.dead_after, w.duration * 2 / 3), w.max_hold)),
                      case when w.capacity is not null then 0 end, null)::leasehold_internal.acquired as answer)
      select coalesce(array_agg(g.answer), '{}') into v_granted from granted g;
    end if;
    if cardinality(v_granted) < cardinality(p_namespace) and v_life_id is not null and not leasehold_internal.is_blind() then
      v_left := array(
        select l.n
          from (select i::integer as n from generate_subscripts(p_namespace, 1) i except select g.n from unnest(v_granted) g) l
         where p_lease_key[l.n] is not null and p_at_least_us[l.n] is null and p_units[l.n] is null and coalesce(p_ticket[l.n], 0) = 0
           and coalesce(p_priority[l.n], 0) = 0
           and p_namespace[l.n] <> all (v_hooked) and l.n <> all (v_late)
           and not exists (select from leasehold.scope x where x.namespace = p_namespace[l.n] and x.key = p_key[l.n] offset 0));
      if v_left <> '{}' then
        v_granted := v_granted || leasehold_internal.grant_new(p_coordinator, p_namespace, p_key, p_lease_key, p_owner, p_labels, p_duration_us,
                                                               p_wait_us, p_principals, v_rules, v_life_id, v_has_room, v_left);
      end if;
    end if;
    if v_has_room and v_granted <> '{}' then
      perform leasehold_internal.note_leases(array(select p_namespace[g.n] from unnest(v_granted) g), 1);
    end if;
    if exists (select from leasehold.watch) or leasehold_internal.is_blind() then
      perform leasehold_internal.tell_watchers(array_agg(p_namespace[g.n]), array_agg(p_key[g.n]))
         from unnest(v_granted) g
       having count(*) > 0;
    end if;
  end if;

  if cardinality(p_namespace) = 1 and cardinality(v_granted) = 0 and not exists (select from leasehold.registered_hook) then
    return query
      select a.n, a.outcome, null::bigint, null::timestamptz, null::bigint, null::bigint, null::bigint, null::integer, a
        from leasehold_internal.acquire_general(p_coordinator, p_clock, p_namespace, p_key, p_lease_key, p_owner, p_labels,
                                                p_duration_us, p_queue, p_wait_us, p_ticket, p_principals,
                                                p_at_least_us, p_units, p_priority => p_priority) a;
    return;
  end if;
  return query select * from unnest(v_granted);

  if cardinality(v_granted) < cardinality(p_namespace) then
    v_left := array(select i::integer from generate_subscripts(p_namespace, 1) i except select g.n from unnest(v_granted) g order by 1);
    if exists (select from leasehold.registered_hook) and leasehold_internal.runs_hooks(p_coordinator is null) then
      v_hooked := leasehold_internal.hooked(p_namespace, 'acquire') || leasehold_internal.hooked(p_namespace, 'heartbeat')
                  || leasehold_internal.hooked(p_namespace, 'reap');
      return query
        select i, h.outcome, null::bigint, null::timestamptz, null::bigint, null::bigint, null::bigint, null::integer, h
          from unnest(v_left) i
         cross join lateral leasehold_internal.acquire_hooked(
                 p_coordinator, p_clock, p_namespace[i], p_key[i], p_lease_key[i], p_owner[i], p_labels[i], p_duration_us[i],
                 p_queue[i], p_wait_us[i], p_ticket[i], p_principals[i], p_at_least_us[i], p_units[i], p_priority[i]) h
         where p_namespace[i] = any (v_hooked);
      v_left := array(select i from unnest(v_left) i where (p_namespace[i] = any (v_hooked)) is not true order by i);
    end if;
    return query
      select v_left[c.n], c.outcome, null::bigint, null::timestamptz, null::bigint, null::bigint, null::bigint, null::integer, c
        from (select array_agg(p_namespace[i] order by i) as namespaces, array_agg(p_key[i] order by i) as keys,
                     array_agg(p_lease_key[i] order by i) as lease_keys, array_agg(p_owner[i] order by i) as owners,
                     array_agg(p_labels[i] order by i) as labels, array_agg(p_duration_us[i] order by i) as durations,
                     array_agg(p_queue[i] order by i) as queues, array_agg(p_wait_us[i] order by i) as waits,
                     array_agg(p_ticket[i] order by i) as tickets, array_agg(p_principals[i] order by i) as principals,
                     array_agg(p_at_least_us[i] order by i) as at_least, array_agg(p_units[i] order by i) as units,
                     array_agg(p_priority[i] order by i) as priorities
                from unnest(v_left) i
              having count(*) > 0) a,
             leasehold_internal.acquire_general(p_coordinator, p_clock, a.namespaces, a.keys, a.lease_keys, a.owners, a.labels,
                                         a.durations, a.queues, a.waits, a.tickets, a.principals, a.at_least, a.units,
                                         p_priority => a.priorities) c;
  end if;
end
$$;
comment on function leasehold_internal.acquire_items is 'Acquire for many at once, by a coordinator';

-- The same in rows that have every column, for daemons of before, which ask for those. Locks what acquire_items() does.
create or replace function leasehold_internal.acquire_batch(
  p_coordinator uuid, p_clock timestamptz, p_namespace text[], p_key text[], p_lease_key uuid[], p_owner text[],
  p_labels text[], p_duration_us bigint[], p_queue boolean[], p_wait_us bigint[], p_ticket bigint[],
  p_principals text[] default null, p_at_least_us bigint[] default null, p_units integer[] default null,
  p_priority integer[] default null)
returns setof leasehold_internal.answer
language plpgsql
security definer
as $$
begin
  return query
    select a.n, m.outcome, m.ticket, m.waiters_ahead, m.expires_in_us, m.suspected_in_us, m.message, m.field, m.bound,
           {{lease.columns m}}, m.rests_in_us, {{shape.columns m}}, m.units_free, m.holder_count
      from leasehold_internal.acquire_items(p_coordinator, p_clock, p_namespace, p_key, p_lease_key, p_owner, p_labels, p_duration_us, p_queue,
                                            p_wait_us, p_ticket, p_principals, p_at_least_us, p_units, p_priority) a
     cross join lateral (
       select (a.more).* where (a.more).n is not null
        union all
       select a.n, a.outcome, null, 0, a.expires_in_us, a.suspected_in_us, null, null, null, a.token, p_owner[a.n], p_principals[a.n],
              p_labels[a.n], p_duration_us[a.n], a.grace_us, a.acquired_at, a.acquired_at + leasehold_internal.from_us(p_duration_us[a.n]),
              p_duration_us[a.n], 0, 0, 0, a.acquired_at, 'alive', a.expires_in_us is null, null, 'exclusive', 0, null, a.units_free, 1
        where (a.more).n is null) m;
end
$$;

grant execute on function leasehold_internal.acquire_items, leasehold_internal.acquire_batch to leasehold_coordinator, leasehold_admin;
