-- The limits of a policy on how many leases are held and how many callers wait: max_leases and max_waiters.
--
-- Neither is a counter, a row that every grant and every end of a lease would lock: an open transaction would delay all others. What is held is
-- counted once (leasehold.quota_base), and from then on by rows that grants and ends add (leasehold.quota_change). A row counts where its transaction
-- had not ended for the snapshot of that count, so that none has to be removed before it counts, and what is dead is not read.
-- It is counted anew in a new life, after a change of a policy, and now and then, should an end have been forgotten or a policy have come while
-- leases were granted. While the limit is far away, that is all. Near it, grants take turns.
--
-- Waiters are counted, and not often: what was counted, and the tickets that have been drawn since, bound what can wait now (leasehold.quota_count).
-- Near the limit each who comes counts, but where 10,000 or more wait: there a queue that was full is taken for full for 3 us for each of them, so that
-- counting takes a small part of the time, and room is noticed as much later. Never do more wait than the limit says.
--
-- Far is what the call wants, and more than what other sessions grant or queue at once and have not committed, for nobody sees that.

-- How many leases are held below a prefix. Locks nothing.
create or replace function leasehold_internal.leases_below(p_prefix text) returns bigint
language plpgsql stable
set enable_seqscan = on
as $$
begin
  if p_prefix = '' then
    return (select coalesce(sum(case s.state when 'held' then 1 else s.holders end), 0) from leasehold.scope s where s.state <> 'free');
  end if;
  return (select coalesce(sum(case s.state when 'held' then 1 else s.holders end), 0)
            from leasehold.scope s
           where s.state <> 'free'
             and (s.namespace = p_prefix or (s.namespace > p_prefix || '.' and s.namespace < p_prefix || '/')));
end
$$;

-- How many leases may still be granted under the prefix that sets max_leases; null where none does. Locks nothing.
create or replace function leasehold_internal.leases_left(p_rules leasehold.rules) returns bigint
language plpgsql
as $$
begin
  return case when p_rules.max_leases is not null then p_rules.max_leases - leasehold_internal.leases_below(p_rules.quota_prefix) end;
end
$$;

-- What is held below a prefix by the last count and what has changed since, how many changes that are, and when the leases themselves were counted
-- last; no row where no count is true any more. In one statement, which has one snapshot. To be used in FROM, where it becomes a part of the query.
-- Locks nothing.
create or replace function leasehold_internal.leases_counted(p_prefix text) returns table (held bigint, changes bigint, counted_at timestamptz)
language sql stable
as $$
  select b.amount + c.amount + r.amount, c.count + r.count, b.counted_at
    from (select q.*
            from leasehold.quota_base q
           where q.prefix = p_prefix
             and q.life = (select i.id from leasehold_internal.this_life() i)
             and q.mark = (select m.last_value from leasehold.policy_mark m)
           order by q.prefix desc, q.life desc, q.mark desc, q.seen desc
           limit 1) b
   cross join lateral (
     select coalesce(sum(x.amount), 0) as amount, count(*) as count
       from leasehold.quota_change x
      where x.prefix = p_prefix and x.changed_by >= b.next_one
        and (x.changed_by <> b.writer or x.number > b.last_own)) c
   cross join lateral (
     select coalesce(sum(x.amount), 0) as amount, count(*) as count
       from leasehold.quota_change x
      where x.prefix = p_prefix and x.changed_by < b.next_one and x.changed_by = any (b.running || b.writer)
        and (x.changed_by <> b.writer or x.number > b.last_own)) r
$$;

-- Write down what is held below a prefix: counted (`p_is_recount`), or what leases_counted() says. Former counts, and the changes that are counted
-- in, go: who does not see the new count sees those. Where two counts are there, the one is used for whose snapshot more transactions had ended
-- (`seen`, without its own). Another session's may not see this one's changes, and be used once these are committed: so its own stay, as one row,
-- until it has ended. In READ COMMITTED. Locks the rows that go, and waits for nobody.
create or replace function leasehold_internal.count_leases(p_prefix text, p_is_recount boolean) returns void
language plpgsql
set enable_seqscan = off
as $$
declare
  v_base leasehold.quota_base;
begin
  -- In one statement, which has one snapshot.
  insert into leasehold.quota_base (prefix, life, mark, seen, next_one, running, writer, last_own, counted_at, amount)
  select p_prefix, i.id, m.last_value,
         pg_snapshot_xmax(s.now)::text::bigint - cardinality(r.running) - (s.own < pg_snapshot_xmax(s.now))::integer, pg_snapshot_xmax(s.now), r.running,
         s.own, (select n.last_value from leasehold.quota_number n),
         case when p_is_recount then clock_timestamp() else c.counted_at end,
         case when p_is_recount then leasehold_internal.leases_below(p_prefix) else c.held end
    from leasehold_internal.this_life() i
   cross join leasehold.policy_mark m
   cross join (select pg_current_snapshot() as now, pg_current_xact_id() as own offset 0) s
   cross join lateral (select array(select x from pg_snapshot_xip(s.now) x) as running) r
    left join leasehold_internal.leases_counted(p_prefix) c on true
   where p_is_recount or c.held is not null
  returning * into v_base;
  delete from leasehold.quota_base b
   where b.ctid = any (array(select x.ctid from leasehold.quota_base x
                              where x.prefix = p_prefix and (x.seen < v_base.seen or x.life < v_base.life) for update skip locked));
  -- Of a database that was restored the changes are those of another cluster, whose numbers may lie far ahead.
  delete from leasehold.quota_change c
   where c.ctid = any (array(select x.ctid from leasehold.quota_change x
                              where x.prefix = p_prefix
                                and x.changed_by <> v_base.writer
                                and (x.changed_by < v_base.next_one and x.changed_by <> all (v_base.running)
                                     or x.changed_by >= pg_snapshot_xmax(pg_current_snapshot()))
                                for update skip locked));
  with own as (
    select x.ctid, x.number, x.amount
      from leasehold.quota_change x
     where x.prefix = p_prefix and x.changed_by = v_base.writer and x.number <= v_base.last_own),
  gone as (
    delete from leasehold.quota_change c where c.ctid = any (array(select o.ctid from own o)) and (select count(*) from own) > 1)
  insert into leasehold.quota_change (prefix, changed_by, number, amount)
  select p_prefix, v_base.writer, max(o.number), sum(o.amount) from own o having count(*) > 1;
end
$$;

-- Leases of these namespaces were granted (`p_by` is 1) or have ended (-1). The caller has asked whether any policy limits them. Locks nothing.
create or replace function leasehold_internal.note_leases(p_namespaces text[], p_by integer) returns void
language plpgsql
as $$
begin
  insert into leasehold.quota_change (prefix, changed_by, number, amount)
  select c.prefix, pg_current_xact_id(), nextval('leasehold.quota_number'), p_by * c.count
    from (select p.namespace as prefix, count(*)
            from leasehold.policy p
            join unnest(p_namespaces) n
              on leasehold_internal.covers(p.namespace, n)
           where p.max_leases is not null
           group by p.namespace) c;
end
$$;

-- What can wait for a scope at most by what was counted and the tickets that were drawn since, up to `p_drawn`: by any count, which misses what was
-- not committed then, and by one under the turn, where that was just now. The longer a queue is, the longer it takes to count, and the longer
-- such a count is believed. Null, where there is none. Locks nothing.
create or replace function leasehold_internal.waiters_counted(p_namespace text, p_key text, p_drawn bigint, out about bigint, out exactly bigint)
language plpgsql
set enable_seqscan = off
as $$
begin
  select min(c.amount + p_drawn - c.number),
         min(c.amount + p_drawn - c.number)
           filter (where c.amount >= 10000 and clock_timestamp() between c.counted_at and c.counted_at + c.amount * interval '3 us')
    into about, exactly
    from leasehold.quota_count c
   where c.prefix = p_namespace and c.key = p_key;
end
$$;

-- How many wait for a scope. Locks nothing.
create or replace function leasehold_internal.waiters_of(p_namespace text, p_key text) returns bigint
language plpgsql
set enable_seqscan = off
as $$
begin
  return (select count(*) from leasehold.waiter w where w.namespace = p_namespace and w.key = p_key);
end
$$;

-- Write down how many wait; few are counted faster than looked up. `p_drawn` was read before; `p_at`: when, where it was under the turn. Rows about
-- the same go, and about scopes that are gone. Locks those, and waits for nobody.
create or replace function leasehold_internal.remember_waiters(
  p_namespace text, p_key text, p_waiting bigint, p_drawn bigint, p_at timestamptz)
returns void
language plpgsql
as $$
begin
  if p_waiting <= 200 then
    return;
  end if;
  delete from leasehold.quota_count c
   where c.ctid in (select d.ctid
                      from leasehold.quota_count d
                     where d.prefix = p_namespace and d.key = p_key
                        or not exists (select from leasehold.scope s where s.namespace = d.prefix and s.key = d.key)
                     limit 100
                       for update skip locked);
  insert into leasehold.quota_count (prefix, key, amount, number, counted_at) values (p_namespace, p_key, p_waiting, p_drawn, p_at);
end
$$;

-- How many of `p_wanted` leases may be granted now: null far from the limit, -1 where another session has the turn. Whoever has it sees what all before it
-- have committed; it changes the turn's row, so that an older snapshot, which cannot see that, is turned away (40001).
-- Locks the policy's row in leasehold.quota_turn, SKIP LOCKED: near the limit, and in REPEATABLE READ and SERIALIZABLE always.
create or replace function leasehold_internal.room_for_leases(p_prefix text, p_limit bigint, p_wanted bigint) returns bigint
language plpgsql
set enable_seqscan = off
as $$
declare
  v_counted record;
begin
  if not leasehold_internal.is_blind() then
    select c.* into v_counted from leasehold_internal.leases_counted(p_prefix) c;
    if not found or v_counted.counted_at not between clock_timestamp() - greatest(interval '1 min', v_counted.held * interval '1 ms') and clock_timestamp() then
      perform leasehold_internal.count_leases(p_prefix, true);
      select c.* into v_counted from leasehold_internal.leases_counted(p_prefix) c;
    elsif v_counted.changes > 100 then
      perform leasehold_internal.count_leases(p_prefix, false);
    end if;
    if p_limit - v_counted.held > 2000 + p_wanted then
      return null;
    end if;
  end if;
  update leasehold.quota_turn t
     set prefix = t.prefix
   where t.prefix = (select x.prefix from leasehold.quota_turn x where x.prefix = p_prefix for update skip locked);
  if not found then
    return -1;
  end if;
  select c.held into v_counted from leasehold_internal.leases_counted(p_prefix) c;
  return greatest(p_limit - coalesce(v_counted.held, leasehold_internal.leases_below(p_prefix)), 0);
end
$$;

-- Has a limit room for a lease for each of these items, whose rules these are? No, where any of their scopes is not free, for then acquire_general()
-- decides. Locks what room_for_leases() does.
create or replace function leasehold_internal.has_room_for(p_namespace text[], p_key text[], p_rules leasehold.rules[]) returns boolean
language plpgsql
set enable_seqscan = off
as $$
declare
  v_found record;
begin
  if exists (select
               from unnest(p_namespace, p_key) i (namespace, key)
               left join leasehold.scope s
                 on s.namespace = i.namespace and s.key = i.key
              where s.state is distinct from 'free' or s.queued) then
    return false;
  end if;
  for v_found in
    select r.quota_prefix, r.max_leases, count(*)
      from unnest(p_rules) r
      join unnest(p_namespace) n
        on n = r.namespace
     where r.max_leases is not null
     group by 1, 2
     order by 1
  loop
    if leasehold_internal.room_for_leases(v_found.quota_prefix, v_found.max_leases, v_found.count) < v_found.count then
      return false;
    end if;
  end loop;
  return true;
end
$$;

-- How many of `p_wanted` may join the queue of a scope now, of `p_limit` in all: null far from the limit, -1 where another session has the turn. The caller has the
-- scope's row locked, by an earlier statement. It keeps off all but SQL users who join while the scope is held: near the limit these,
-- and whoever else queues, take the turn, which is the row of the scope's slot in leasehold.creation; they change it, as above.
-- Locks that row: with `p_waits` it waits for it, else SKIP LOCKED.
create or replace function leasehold_internal.room_for_waiters(p_namespace text, p_key text, p_limit bigint, p_wanted bigint, p_waits boolean)
returns bigint
language plpgsql
as $$
declare
  v_far constant bigint := 200 + p_wanted;
  v_drawn bigint := (select t.last_value from leasehold.ticket t);
  v_is_blind constant boolean := leasehold_internal.is_blind();
  v_counted record;
  v_waiting bigint;
  v_slot integer;
begin
  if p_limit > v_far and not p_waits and not v_is_blind then
    select c.* into v_counted from leasehold_internal.waiters_counted(p_namespace, p_key, v_drawn) c;
    if p_limit - v_counted.about > v_far then
      return null;
    elsif v_counted.exactly is null then
      v_waiting := leasehold_internal.waiters_of(p_namespace, p_key);
      if p_limit - v_waiting > v_far then
        perform leasehold_internal.remember_waiters(p_namespace, p_key, v_waiting, v_drawn, null);
        return null;
      end if;
    end if;
  end if;
  v_slot := leasehold_internal.creation_slot(p_namespace, p_key, (select t.seed from leasehold.turn t where t.name = 'creation'));
  if p_waits then
    perform 1 from leasehold.creation c where c.slot = v_slot for update;
  else
    perform 1 from leasehold.creation c where c.slot = v_slot for update skip locked;
    if not found then
      return -1;
    end if;
  end if;
  update leasehold.creation c set slot = c.slot where c.slot = v_slot;
  -- Whoever had the turn before has drawn its tickets, and has committed.
  v_drawn := (select t.last_value from leasehold.ticket t);
  v_waiting := (select c.exactly from leasehold_internal.waiters_counted(p_namespace, p_key, v_drawn) c);
  if v_waiting is null or v_is_blind then
    v_waiting := leasehold_internal.waiters_of(p_namespace, p_key);
    perform leasehold_internal.remember_waiters(p_namespace, p_key, v_waiting, v_drawn, clock_timestamp()) where not v_is_blind;
  end if;
  return greatest(p_limit - v_waiting, 0);
end
$$;

-- Grants beyond max_leases and places beyond max_waiters become 'quota'; those whose turn another session has, 'busy'. A takeover frees the lease
-- that it replaces; of several shared ones the first. Locks what room_for_leases() and room_for_waiters() do.
create or replace function leasehold_internal.apply_quotas(p_work leasehold.acquire_work[]) returns leasehold.acquire_work[]
language plpgsql
as $$
declare
  v_rooms leasehold_internal.quota_room[];
  v_found record;
  v_item leasehold.acquire_work;
begin
  v_rooms := array(
    select row(d.quota_prefix, null, leasehold_internal.room_for_leases(d.quota_prefix, d.max_leases, d.count))::leasehold_internal.quota_room
      from (select (w.rules).quota_prefix, (w.rules).max_leases, count(*)
              from unnest(p_work) w
             where w.outcome = 'granted' and (w.hold <> 'expired' or w.units is not null) and (w.rules).max_leases is not null
             group by 1, 2
             order by 1
            offset 0) d)
    || array(
    select row(d.namespace, d.key, leasehold_internal.room_for_waiters(d.namespace, d.key, d.max_waiters, d.count, false))::leasehold_internal.quota_room
      from (select w.namespace, w.key, (w.rules).max_waiters, count(*)
              from unnest(p_work) w
             where w.outcome = 'queued' and w.own_ticket is null and (w.rules).max_waiters is not null
             group by 1, 2, 3
             order by 1, 2
            offset 0) d);
  for v_found in
    select w.n, r.room
      from (select u.n, u.outcome, u.namespace, u.key, (u.rules).quota_prefix,
                   row_number() over (partition by u.outcome,
                                                   case when u.outcome = 'granted' then (u.rules).quota_prefix else u.namespace end,
                                                   case when u.outcome = 'queued' then u.key end
                                      order by u.n) as place
              from (select p.*, p.hold = 'expired' and row_number() over (partition by p.namespace, p.key, p.outcome order by p.n) = 1 as replaces
                      from unnest(p_work) p) u
             where u.outcome = 'granted' and not u.replaces or u.outcome = 'queued' and u.own_ticket is null) w
      join unnest(v_rooms) r
        on w.outcome = 'granted' and r.key is null and r.prefix = w.quota_prefix
        or w.outcome = 'queued' and r.key = w.key and r.prefix = w.namespace
     where w.place > r.room
  loop
    v_item := p_work[v_found.n];
    if v_found.room >= 0 then
      v_item.bound := case when v_item.outcome = 'granted' then format('max_leases = %s', (v_item.rules).max_leases)
                           else format('max_waiters = %s', (v_item.rules).max_waiters) end;
    end if;
    v_item.outcome := case when v_found.room < 0 then 'busy' else 'quota' end;
    p_work[v_item.n] := v_item;
  end loop;
  return p_work;
end
$$;
