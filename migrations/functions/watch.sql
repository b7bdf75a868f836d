-- Watching: every grant and every end of a lease writes one row for each coordinator that watches its namespace, in the same
-- transaction; the coordinator takes its rows.
--
-- Order. An event's number is drawn while its transaction has the scope's row locked (or has inserted it), and the
-- next change of the scope locks that row only after this transaction has committed. So numbers of one scope
-- grow in the order of the commits, and a snapshot that sees one of them sees all before it. Rows are taken by one DELETE,
-- sorted by number: no cursor that a late commit with a low number could fall behind.
--
-- No gap. A change that does not see a new watch read the table before the watch was committed. In READ COMMITTED that read
-- is a statement of its own, after the one that changed the scope: its transaction had a number by then, and a RowExclusiveLock on
-- leasehold.scope, and keeps both to its end. So whoever waits, after the commit of the watch, until no such transaction is
-- left (watch_barrier, watch_settled) and then lists the leases, has seen what those did, and is sent all that comes later. Old
-- snapshots, which may have been taken before the scope was changed, are turned away (check_watch_mark).
--
-- Bounded. A coordinator that stops taking has at most about 100,000 rows, one that is not seen for 15 s gets no more; instead
-- of the rest a 'lagged' row is left, which tells it that it has to start again.

-- Watch a namespace ('' is everything), in a transaction of its own. Twice is once. The coordinator must be registered.
-- Takes the turn of all who add, until the commit, and waits for it for at most a second (then 55P03).
create or replace function leasehold_internal.watch_add(p_coordinator uuid, p_namespace text, p_include_children boolean) returns void
language plpgsql
security definer
set lock_timeout = '1s'
as $$
begin
  perform leasehold_internal.refuse(leasehold_internal.subtree_problem(p_namespace));
  if p_coordinator is null then
    perform leasehold_internal.refuse(row('coordinator', 'a UUID'));
  elsif p_include_children is null then
    perform leasehold_internal.refuse(row('include_children', 'true or false'));
  end if;
  -- One after the other: a snapshot in which the marked transaction has ended sees what all before it added.
  perform 1 from leasehold.turn t where t.name = 'watch' for update;
  perform setval('leasehold.watch_mark', pg_current_xact_id()::text::bigint);
  insert into leasehold.watch (coordinator, namespace, include_children, added_at)
  select p_coordinator, p_namespace, p_include_children, clock_timestamp()
   where not exists (select
                       from leasehold.watch w
                      where w.coordinator = p_coordinator and w.namespace = p_namespace
                        and w.include_children = p_include_children);
end
$$;
comment on function leasehold_internal.watch_add is 'Watch a namespace, by a coordinator';

-- Watch it no more. Returns whether it was watched. Its events that were not taken yet are still there, for another watch may
-- want them. Locks its own row.
create or replace function leasehold_internal.watch_remove(p_coordinator uuid, p_namespace text, p_include_children boolean) returns boolean
language plpgsql
security definer
as $$
begin
  delete from leasehold.watch w
   where w.id = any (array(
           select x.id
             from leasehold.watch x
            where x.coordinator = p_coordinator and x.namespace = p_namespace and x.include_children = p_include_children
              for update skip locked));
  return found;
end
$$;
comment on function leasehold_internal.watch_remove is 'Watch a namespace no more, by a coordinator';

-- Watch nothing, and forget what was not taken. Returns how many watches there were. Locks its own rows, and waits for nobody.
create or replace function leasehold_internal.watch_clear(p_coordinator uuid) returns integer
language plpgsql
security definer
as $$
declare
  v_count integer;
begin
  delete from leasehold.watch w
   where w.id = any (array(select x.id from leasehold.watch x where x.coordinator = p_coordinator for update skip locked));
  get diagnostics v_count = row_count;
  -- By ctid, here and below: a long array of numbers would be searched for each row.
  delete from leasehold.event e
   where e.ctid = any (array(select x.ctid from leasehold.event x where x.coordinator = p_coordinator for update skip locked));
  return v_count;
end
$$;
comment on function leasehold_internal.watch_clear is 'Watch nothing any more, by a coordinator';

-- After watch_add has committed: the horizon to give to watch_settled(); null when the coordinator watches nothing (any
-- more). Its own transaction's number, and not the snapshot's xmax: that may lie below one that is running. Locks nothing.
create or replace function leasehold_internal.watch_barrier(p_coordinator uuid) returns xid8
language plpgsql
security definer
as $$
begin
  if not exists (select from leasehold.watch w where w.coordinator = p_coordinator) then
    return null;
  end if;
  return pg_current_xact_id();
end
$$;
comment on function leasehold_internal.watch_barrier is 'What a new watch has to wait for before it lists the leases';

-- Have all transactions ended that may have changed a scope before the horizon? What is listed in a later statement shows
-- what they did. A guard does not count, for it changes nothing. Locks nothing.
create or replace function leasehold_internal.watch_settled(p_horizon xid8) returns boolean
language plpgsql
security definer
as $$
begin
  return not exists (
    select
      from pg_locks s
      join pg_locks x
        on x.virtualtransaction = s.virtualtransaction
     where s.locktype = 'relation' and s.relation = 'leasehold.scope'::regclass and s.mode = 'RowExclusiveLock' and s.granted
       and s.database = (select d.oid from pg_database d where d.datname = current_database())
       and x.locktype = 'transactionid' and x.granted and x.mode = 'ExclusiveLock'
       -- The older of two numbers has the larger age, around the end of the 32 bits too.
       and age(x.transactionid) > age(p_horizon::xid));
end
$$;
comment on function leasehold_internal.watch_settled is 'Whether the leases may be listed now, for a new watch';

-- A transaction in REPEATABLE READ or SERIALIZABLE reads who watches from its snapshot. Where somebody began to watch since,
-- it could not tell him: 40001, and the caller starts again. In READ COMMITTED it does nothing. Locks nothing.
create or replace function leasehold_internal.check_watch_mark() returns void
language plpgsql
as $$
begin
  if leasehold_internal.is_blind() then
    perform leasehold_internal.check_mark((select m.last_value from leasehold.watch_mark m), 'somebody began to watch');
  end if;
end
$$;

-- Tell who watches of leases that were granted or ended: the scopes at (p_namespace, p_key) are read as they are now, and where `p_lease_key`
-- names a shared holder its row: held is acquired (or `p_type`), free is how the last lease ended.
-- The caller has the rows locked, by an earlier statement, and changed each once since. It asks first, for nobody may watch:
--
--   if exists (select from leasehold.watch) or leasehold_internal.is_blind() then
--
-- Writes the events, and NOTIFYs each coordinator that has any, once a transaction: payload 'watch'. Locks nothing.
create or replace function leasehold_internal.tell_watchers(
  p_namespace text[], p_key text[], p_lease_key uuid[] default null, p_type text default null)
returns void
language plpgsql
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_lost uuid[];
  v_told uuid[];
  v_first bigint;
  v_last bigint;
begin
  perform leasehold_internal.check_watch_mark();
  if not exists (select from leasehold.watch) then
    return;
  end if;
  v_lost := array(select e.coordinator from leasehold.event e where e.type = 'lagged');

  with change as (
    select c.n, case when s.state = 'held' then coalesce(p_type, 'acquired') when s.last_outcome in ('expired', 'forced') then s.last_outcome
                when s.last_outcome = 'max_hold' then 'expired'
                else 'released' end as type,
           case when s.state = 'free'
                then case s.last_outcome when 'ok' then 'released' else s.last_outcome end end as end_reason,
           case when s.state = 'free' and s.last_outcome = 'forced' then s.last_error end as reason,
           case when s.state = 'free' then s.last_result end as result,
           case when s.state = 'free' and s.last_outcome = 'failed' then s.last_error end as error,
           s.namespace, s.key, s.token, s.owner, s.principal, s.labels, s.duration, s.grace, s.acquired_at, s.deadline,
           s.heartbeats, s.heartbeat_at, case when s.units > 0 then 'shared' else 'exclusive' end as mode, coalesce(s.units, 0) as units, s.slots
      from unnest(p_namespace, p_key, p_lease_key) with ordinality as c (namespace, key, lease_key, n)
     {{changed.text}}
  ), watching as (
    select distinct n.namespace, w.coordinator
      from (select distinct c.namespace, string_to_array(c.namespace, '.') as segments from change c) n
     cross join lateral generate_series(0, cardinality(n.segments)) depth
      join leasehold.watch w
        on w.namespace = array_to_string(n.segments[:depth], '.')
       and (w.include_children or depth in (0, cardinality(n.segments)))
     where w.coordinator <> all (v_lost) and leasehold_internal.is_taking(w.coordinator, v_now)
  ), written as (
    insert into leasehold.event (
      coordinator, number, type, at, namespace, key, token, owner, principal, labels, duration, grace, acquired_at, deadline,
      heartbeats, heartbeat_at, end_reason, reason, result, error, mode, units, slots)
    select o.coordinator, nextval('leasehold.event_number'), o.type, v_now, o.namespace, o.key, o.token, o.owner, o.principal,
           o.labels, o.duration, o.grace, o.acquired_at, o.deadline, o.heartbeats, o.heartbeat_at, o.end_reason, o.reason, o.result,
           o.error, {{shape.columns o}}
      -- The plan of the join is no order.
      from (select c.*, w.coordinator from change c join watching w on w.namespace = c.namespace order by c.n) o
    returning coordinator, number)
  select array_agg(distinct w.coordinator), min(w.number), max(w.number) into v_told, v_first, v_last from written w;

  perform pg_notify(leasehold_internal.channel_of(t, null), 'watch') from unnest(v_told) t;
  perform leasehold_internal.mark_lagged(v_lost, v_now, v_last / 1000 > (v_first - 1) / 1000);
end
$$;

-- Does this coordinator still take its events? One that is not seen for 15 s is swept away. An old snapshot cannot tell.
-- Locks nothing.
create or replace function leasehold_internal.is_taking(p_coordinator uuid, p_now timestamptz) returns boolean
language sql stable
as $$
  select leasehold_internal.is_blind()
         or exists (select
                      from leasehold.coordinator c
                     where c.id is not distinct from p_coordinator and c.seen_at > p_now - interval '15 s')
$$;

-- Leave a 'lagged' row for each coordinator that stopped taking: not seen for 15 s; or, where `p_is_turn` (every thousandth
-- event, for it costs), with more than 100,000 events. `p_lost` have one already. A row, and not a mark at the watch: to write
-- one never waits for anybody. Locks nothing.
create or replace function leasehold_internal.mark_lagged(p_lost uuid[], p_now timestamptz, p_is_turn boolean) returns void
language plpgsql
as $$
declare
  v_lagging uuid[];
begin
  with lagging as (
    insert into leasehold.event (coordinator, number, type, at)
    select w.coordinator, nextval('leasehold.event_number'), 'lagged', p_now
      from (select distinct x.coordinator from leasehold.watch x where x.coordinator <> all (p_lost)) w
     where not leasehold_internal.is_taking(w.coordinator, p_now)
        or (p_is_turn
            and exists (select from leasehold.event e where e.coordinator = w.coordinator order by e.number offset 100000 limit 1))
    returning coordinator)
  select array_agg(l.coordinator) into v_lagging from lagging l;
  perform pg_notify(leasehold_internal.channel_of(c, null), 'watch') from unnest(v_lagging) c;
end
$$;

-- Take the first `p_max` events, in order; whoever gets as many asks again. One row of type 'lagged' instead: events are missing,
-- and nothing is watched any more. The caller ends its watchers, for they start again, with watch_add. So it is told too when
-- a crash, a failover or a sweep has taken its watches away, or when it never had any.
-- Locks the rows that it takes. Only one call at a time for a coordinator keeps the order.
create or replace function leasehold_internal.take_events(p_coordinator uuid, p_max integer)
returns table (
  type text, namespace text, key text, reason text, end_reason text, result text, error text, {{lease.table}},
  {{shape.table}})
language plpgsql
security definer
{{lookups.settings}}
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  if not exists (select from leasehold.watch w where w.coordinator = p_coordinator)
     or exists (select from leasehold.event e where e.coordinator = p_coordinator and e.type = 'lagged') then
    perform leasehold_internal.watch_clear(p_coordinator);
    type := 'lagged';
    return next;
    return;
  end if;
  -- An array, for a join might ask for the first p_max again and again.
  return query
    with taken as (
      delete from leasehold.event e
       where e.ctid = any (array(
               select x.ctid
                 from leasehold.event x
                where x.coordinator = p_coordinator
                  -- Left meanwhile: the next call tells.
                  and not exists (select from leasehold.event l where l.coordinator = p_coordinator and l.type = 'lagged')
                order by x.number
                limit p_max
                  for update skip locked))
      returning e.*)
    select t.type, t.namespace::text, t.key::text, t.reason, t.end_reason, t.result::text, t.error, t.token, t.owner,
           t.principal, t.labels::text, leasehold_internal.to_us(t.duration), leasehold_internal.to_us(t.grace), t.acquired_at, t.deadline,
           -- A lease that has ended is told as it was then; one that was granted, as it is now.
           case when t.type in ('acquired', 'downgraded') then leasehold_internal.to_us(t.deadline - v_now) else 0::bigint end,
           leasehold_internal.to_us(f.at - t.acquired_at), leasehold_internal.to_us(f.at - t.heartbeat_at), t.heartbeats, t.heartbeat_at,
           case when t.type = 'expired' then 'expired' else 'alive' end,
           false, {{shape.columns t}}
      from taken t
     cross join lateral (select case when t.type in ('acquired', 'downgraded') then v_now else t.at end as at) f
     order by t.number;
end
$$;
comment on function leasehold_internal.take_events is 'Take the events of what is watched, by a coordinator';

-- Remove the watches of these coordinators and of unknown ones, the events that nobody takes, and those that a coordinator which
-- has lagged is not going to read (10,000 a visit). Locks what it removes, and waits for nobody.
create or replace function leasehold_internal.sweep_watches(p_dead uuid[]) returns void
language plpgsql
as $$
declare
  v_coordinator uuid;
begin
  if not exists (select from leasehold.watch) and not exists (select from leasehold.event) then
    return;
  end if;
  delete from leasehold.watch w
   where w.id = any (array(
           select x.id
             from leasehold.watch x
            where x.coordinator = any (p_dead)
               or not exists (select from leasehold.coordinator c where c.id = x.coordinator)
              for update skip locked));
  -- From one coordinator to the next, by the index.
  select e.coordinator into v_coordinator from leasehold.event e order by e.coordinator limit 1;
  while v_coordinator is not null loop
    delete from leasehold.event e
     where e.ctid = any (array(
             select x.ctid
               from leasehold.event x
              where x.coordinator = v_coordinator
                and (not exists (select from leasehold.watch w where w.coordinator = v_coordinator)
                     or (x.type <> 'lagged'
                         and exists (select from leasehold.event l where l.coordinator = v_coordinator and l.type = 'lagged')))
              limit 10000
                for update skip locked));
    select (select e.coordinator from leasehold.event e where e.coordinator > v_coordinator order by e.coordinator limit 1)
      into v_coordinator;
  end loop;
end
$$;

grant execute on function leasehold_internal.watch_add, leasehold_internal.watch_remove, leasehold_internal.watch_clear,
  leasehold_internal.watch_barrier, leasehold_internal.watch_settled, leasehold_internal.take_events
  to leasehold_coordinator, leasehold_admin;
grant select on leasehold.watch to leasehold_reader, leasehold_admin;
grant select on leasehold.event to leasehold_admin;
