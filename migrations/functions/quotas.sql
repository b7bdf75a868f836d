-- The limits of a policy on how many leases are held and how many callers wait: max_leases and max_waiters.
--
-- Nothing is counted up and down: such a counter is a row that every grant and every end of a lease would lock or add to, an open transaction
-- would delay all others under the prefix, and it is wrong for ever after one end that forgets it. Instead the leases are counted, and not
-- often. What was counted, and the tokens that have been drawn since, bound what can be held now, however leases end (leasehold.quota_count).
-- While that bound is far from the limit, an acquire reads one row. Near it, grants take turns, and each counts: that is exact, and costs
-- as much as there is to count. The same for waiters with tickets, within one scope.
--
-- Far is what the call wants, and more than what other sessions grant or queue at once and have not committed, for nobody sees that.

-- How many leases are held below a prefix. Locks nothing.
create or replace function leasehold_internal.leases_below(p_prefix text) returns bigint
language plpgsql
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

-- Does what was counted say that a limit is far away? `p_drawn`: the number that has been drawn last. Locks nothing.
create or replace function leasehold_internal.is_far(
  p_limit bigint, p_prefix text, p_key text, p_drawn bigint, p_far bigint)
returns boolean
language plpgsql
set enable_seqscan = off
as $$
begin
  return coalesce(p_limit - p_drawn - p_far
                  > (select min(c.amount - c.number)
                       from leasehold.quota_count c
                      where c.prefix = p_prefix and c.key is not distinct from p_key), false);
end
$$;

-- Write down what was counted in this transaction; `p_drawn` was read before. Rows about the same go, and about scopes that are gone. Locks those,
-- and waits for nobody.
create or replace function leasehold_internal.remember_count(p_prefix text, p_key text, p_amount bigint, p_drawn bigint) returns void
language plpgsql
as $$
begin
  delete from leasehold.quota_count c
   where c.ctid in (select d.ctid
                      from leasehold.quota_count d
                     where d.prefix = p_prefix and d.key is not distinct from p_key
                        or d.key is not null
                           and not exists (select from leasehold.scope s where s.namespace = d.prefix and s.key = d.key)
                     limit 100
                       for update skip locked);
  insert into leasehold.quota_count (prefix, key, amount, number) values (p_prefix, p_key, p_amount, p_drawn);
end
$$;

-- How many of `p_wanted` leases may be granted now: null far from the limit, -1 where another session has the turn. Whoever has it sees what all before it
-- have committed; it changes the turn's row, so that an older snapshot, which cannot see that, is turned away (40001).
-- Locks the policy's row in leasehold.quota_turn, SKIP LOCKED: near the limit, and in REPEATABLE READ and SERIALIZABLE always.
create or replace function leasehold_internal.room_for_leases(p_rules leasehold.rules, p_wanted bigint) returns bigint
language plpgsql
as $$
declare
  v_far constant bigint := 2000 + p_wanted;
  v_drawn bigint := (select t.last_value from leasehold.token t);
  v_held bigint;
begin
  if not leasehold_internal.is_blind() then
    if leasehold_internal.is_far(p_rules.max_leases, p_rules.quota_prefix, null, v_drawn, v_far) then
      return null;
    end if;
    v_held := leasehold_internal.leases_below(p_rules.quota_prefix);
    if p_rules.max_leases - v_held > v_far then
      perform leasehold_internal.remember_count(p_rules.quota_prefix, null, v_held, v_drawn);
      return null;
    end if;
  end if;
  perform 1 from leasehold.quota_turn t where t.prefix = p_rules.quota_prefix for update skip locked;
  if not found then
    return -1;
  end if;
  update leasehold.quota_turn t set prefix = t.prefix where t.prefix = p_rules.quota_prefix;
  return greatest(leasehold_internal.leases_left(p_rules), 0);
end
$$;

-- How many of `p_wanted` may join the queue of a scope now, of `p_limit` in all: null far from the limit, -1 where another session has the turn. The caller has the
-- scope's row locked, by an earlier statement. It keeps off all but SQL users who join while the scope is held: near the limit these,
-- and whoever else queues, take the turn, which is the row of the scope's slot in leasehold.creation; they change it, as above.
-- Locks that row: with `p_waits` it waits for it, else SKIP LOCKED.
create or replace function leasehold_internal.room_for_waiters(p_namespace text, p_key text, p_limit bigint, p_wanted bigint, p_waits boolean)
returns bigint
language plpgsql
set enable_seqscan = off
as $$
declare
  v_far constant bigint := 200 + p_wanted;
  v_drawn bigint := (select t.last_value from leasehold.ticket t);
  v_waiting bigint;
  v_slot integer;
begin
  if p_limit > v_far and not p_waits and not leasehold_internal.is_blind() then
    if leasehold_internal.is_far(p_limit, p_namespace, p_key, v_drawn, v_far) then
      return null;
    end if;
    select count(*) into v_waiting from leasehold.waiter w where w.namespace = p_namespace and w.key = p_key;
    if p_limit - v_waiting > v_far then
      -- Few are counted faster than looked up.
      if v_waiting > v_far then
        perform leasehold_internal.remember_count(p_namespace, p_key, v_waiting, v_drawn);
      end if;
      return null;
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
  return greatest(p_limit - (select count(*) from leasehold.waiter w where w.namespace = p_namespace and w.key = p_key), 0);
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
    select row(d.quota_prefix, null, leasehold_internal.room_for_leases(d.rules, d.count))::leasehold_internal.quota_room
      from (select distinct on ((w.rules).quota_prefix) (w.rules).quota_prefix, w.rules, count(*) over (partition by (w.rules).quota_prefix) as count
              from unnest(p_work) w
             where w.outcome = 'granted' and (w.hold <> 'expired' or w.units is not null) and (w.rules).max_leases is not null
             order by (w.rules).quota_prefix
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

revoke execute on function leasehold_internal.leases_below(text), leasehold_internal.leases_left(leasehold.rules),
  leasehold_internal.is_far(bigint, text, text, bigint, bigint), leasehold_internal.remember_count(text, text, bigint, bigint),
  leasehold_internal.room_for_leases(leasehold.rules, bigint), leasehold_internal.room_for_waiters(text, text, bigint, bigint, boolean),
  leasehold_internal.apply_quotas(leasehold.acquire_work[]) from public;
