-- The history of holds: written in the transaction that ends a lease, kept in partitions of a day.

-- Those of the given namespaces (valid, distinct) whose policy says history. Locks nothing.
create or replace function leasehold.with_history(p_namespaces text[]) returns text[]
language plpgsql stable
as $$
begin
  return array(
    select n
      from unnest(p_namespaces) n
     where (select p.history
              from leasehold.policy p
             where p.namespace = any (leasehold.prefixes(n)) and p.history is not null
             order by length(p.namespace) desc
             limit 1));
end
$$;

-- Write down the holds of scopes that have just become free, and of those that were taken over (`p_taken_over`: their rows from
-- before), where the policy asks for it. The caller has asked whether any does, and has the rows locked. Locks the history
-- ROW EXCLUSIVE.
create or replace function leasehold.record_holds(
  p_taken_over leasehold.scope[], p_now timestamptz, p_namespace text[], p_key text[])
returns void
language plpgsql
as $$
declare
  v_kept text[];
begin
  v_kept := leasehold.with_history(array(
    select n from unnest(p_namespace) n union select o.namespace from unnest(p_taken_over) o));
  if cardinality(v_kept) = 0 then
    return;
  end if;
  insert into leasehold.history (namespace, key, token, acquired_at, ended_at, outcome, owner, result, error, ended_by)
  select o.namespace, o.key, o.token, o.acquired_at, p_now, 'expired', o.owner, null, null, null
    from unnest(p_taken_over) o
   where o.namespace = any (v_kept)
  union all
  select s.namespace, s.key, s.token, s.acquired_at, s.ended_at, s.last_outcome, s.owner, s.last_result, s.last_error,
         case when s.last_outcome = 'forced' then session_user end
    from unnest(p_namespace, p_key) as c (namespace, key)
    join leasehold.scope s
      on s.namespace = c.namespace and s.key = c.key
   where c.namespace = any (v_kept) and s.state = 'free';
end
$$;

-- The partition of a day, by name. Locks nothing.
create or replace function leasehold.history_partition(p_day date) returns text
language sql immutable
as $$
  select 'history_' || to_char(p_day, 'YYYYMMDD')
$$;

-- Midnight in UTC, at which a day begins. Locks nothing.
create or replace function leasehold.day_begins(p_day date) returns timestamptz
language sql immutable
as $$
  select p_day::timestamp at time zone 'UTC'
$$;

-- The partitions of days that there are. Locks nothing.
create or replace function leasehold.history_days() returns setof date
language sql stable
as $$
  select to_date(substr(c.relname, 9), 'YYYYMMDD')
    from pg_inherits i
    join pg_class c
      on c.oid = i.inhrelid
   where i.inhparent = 'leasehold.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
   order by 1
$$;

-- Make the partitions of today and the next three days, as far as there are none; a day of which the default partition has rows
-- already stays there. Returns whether all was done. Locks the history SHARE UPDATE EXCLUSIVE, which holds up nobody, and the
-- default partition ACCESS EXCLUSIVE, to which nobody writes who has a partition; waits for neither longer than 50 ms.
create or replace function leasehold.make_history_days(p_now timestamptz) returns boolean
language plpgsql
set lock_timeout = '50ms'
as $$
declare
  v_day date;
  v_name text;
begin
  for v_day in
    select d::date from generate_series((p_now at time zone 'UTC')::date, (p_now at time zone 'UTC')::date + 3, interval '1 day') d
  loop
    v_name := leasehold.history_partition(v_day);
    continue when to_regclass(format('leasehold.%I', v_name)) is not null
               or exists (select from leasehold.history_default h
                           where h.ended_at >= leasehold.day_begins(v_day) and h.ended_at < leasehold.day_begins(v_day + 1));
    begin
      -- Made first and attached then: made as a partition it would lock the history ACCESS EXCLUSIVE.
      execute format('create table leasehold.%I (like leasehold.history including all)', v_name);
      execute format('comment on table leasehold.%I is %L', v_name, format('Holds that ended on %s in UTC', v_day));
      execute format('alter table leasehold.history attach partition leasehold.%I for values from (%L) to (%L)', v_name,
                     leasehold.day_begins(v_day), leasehold.day_begins(v_day + 1));
    exception when lock_not_available or check_violation or duplicate_table or deadlock_detected then
      return false;
    end;
  end loop;
  return true;
end
$$;

-- Forget what is past its retention in the partition of a day (null: in the default one): all of it, then the table goes; or only
-- that of some namespaces, then their rows, at most 10,000. Returns whether all was done. Locks the history ACCESS EXCLUSIVE
-- where the table goes, and waits for that no longer than 50 ms.
create or replace function leasehold.forget_history_day(p_day date, p_now timestamptz) returns boolean
language plpgsql
set lock_timeout = '50ms'
as $$
declare
  v_table regclass := format('leasehold.%I', coalesce(leasehold.history_partition(p_day), 'history_default'))::regclass;
  v_begin constant timestamptz := coalesce(leasehold.day_begins(p_day), '-infinity');
  v_end constant timestamptz := coalesce(leasehold.day_begins(p_day + 1), 'infinity');
  v_namespaces text[];
  v_befores timestamptz[];
  v_is_kept boolean;
  v_count bigint;
begin
  -- From one namespace to the next through the index: a day may have millions of rows.
  execute format($q$
    with recursive n (namespace) as (
      select min(h.namespace) from %1$s h
      union all
      select (select min(h.namespace) from %1$s h where h.namespace > n.namespace) from n where n.namespace is not null)
    select array_agg(n.namespace) filter (where b.before > $1), array_agg(b.before) filter (where b.before > $1),
           coalesce(bool_or(b.before < $2), false)
      from n
     cross join lateral (select $3 - p.history_retention as before from leasehold.history_policy_of(n.namespace) p) b
     where n.namespace is not null $q$, v_table)
    into v_namespaces, v_befores, v_is_kept using v_begin, v_end, p_now;
  if v_is_kept or p_day is null then
    execute format($q$
      delete from %1$s d
       using (select h.ctid
                from unnest($1, $2) as n (namespace, before)
                join %1$s h
                  on h.namespace = n.namespace and h.ended_at < n.before
               limit 10000) x
       where d.ctid = x.ctid $q$, v_table)
      using v_namespaces, v_befores;
    get diagnostics v_count = row_count;
    return v_count < 10000;
  end if;
  -- An empty one goes too, once nothing could be written to it that is kept.
  if v_end <= p_now - (select min(p.history_retention) from leasehold.policy p) then
    execute format('drop table %s', v_table);
  end if;
  return true;
exception when lock_not_available or deadlock_detected then
  return false;
end
$$;

-- Look after the partitions, when it is time: make those of the next days, and forget what is past its retention. Called once
-- a second by daemons, and by reap(). Where the transaction may go on after this call (`p_ends_soon` is false) nothing is locked
-- that others would wait for: no table goes, and none is made where that of today is missing.
-- Locks history_keeping's row, without waiting, and what the two above do, until the end of the transaction.
create or replace function leasehold.keep_history(p_now timestamptz, p_ends_soon boolean) returns void
language plpgsql
as $$
declare
  v_is_done boolean := false;
begin
  if leasehold.is_blind() then
    return;
  end if;
  perform 1 from leasehold.history_keeping k where k.look_at <= p_now for update skip locked;
  if not found then
    return;
  end if;
  -- Whatever is the matter with the history, a daemon's sign of life does not fail for it.
  begin
    v_is_done := leasehold.keep_history_days(p_now, p_ends_soon);
  exception when others then
    raise warning 'the partitions of leasehold.history cannot be looked after: %', sqlerrm;
  end;
  if p_ends_soon then
    update leasehold.history_keeping k
       set look_at = p_now + case when v_is_done then interval '10 min' else interval '10 s' end;
  end if;
end
$$;

-- What keep_history() does once it is time. Returns whether all was done.
create or replace function leasehold.keep_history_days(p_now timestamptz, p_ends_soon boolean) returns boolean
language plpgsql
as $$
declare
  v_day date;
  v_is_done boolean := true;
begin
  if exists (select from leasehold.policy p where p.history)
     and (p_ends_soon
          or to_regclass('leasehold.' || leasehold.history_partition((p_now at time zone 'UTC')::date)) is not null) then
    v_is_done := leasehold.make_history_days(p_now);
  end if;
  if exists (select from leasehold.history_default) then
    v_is_done := leasehold.forget_history_day(null, p_now) and v_is_done;
  end if;
  for v_day in
    select d from leasehold.history_days() d
     where p_ends_soon
       and leasehold.day_begins(d) <= p_now - (select min(p.history_retention) from leasehold.policy p)
  loop
    -- One table goes in a transaction, and where others are in the way nobody waits for the next.
    v_is_done := leasehold.forget_history_day(v_day, p_now) and v_is_done
                 and to_regclass(format('leasehold.%I', leasehold.history_partition(v_day))) is not null;
    exit when not v_is_done;
  end loop;
  return v_is_done;
end
$$;

revoke execute on function leasehold.with_history(text[]),
  leasehold.record_holds(leasehold.scope[], timestamptz, text[], text[]), leasehold.history_partition(date),
  leasehold.day_begins(date), leasehold.history_days(), leasehold.make_history_days(timestamptz),
  leasehold.forget_history_day(date, timestamptz), leasehold.keep_history(timestamptz, boolean),
  leasehold.keep_history_days(timestamptz, boolean) from public;
grant select on leasehold.history to leasehold_reader, leasehold_coordinator, leasehold_admin;
