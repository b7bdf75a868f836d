-- Tables in partitions of a day, each of which goes when its retention has passed: the history of holds and the audit. leasehold.keeping
-- has a row for each, and one for the ticks of schedules, which go row by row.

-- By which column a table is partitioned. Locks nothing.
create or replace function leasehold_internal.kept_by(p_name text) returns text
language sql immutable
as $$
  select case p_name when 'history' then 'ended_at' else 'at' end
$$;

-- Is anything written to a table? Locks nothing.
create or replace function leasehold_internal.is_kept(p_name text) returns boolean
language sql stable
as $$
  select p_name <> 'history' or exists (select from leasehold.policy p where p.history)
$$;

-- How long the rows of a namespace are kept. Locks nothing.
create or replace function leasehold_internal.retention_of(p_name text, p_namespace text) returns interval
language sql stable
as $$
  select coalesce(k.retention, (select h.history_retention from leasehold_internal.history_policy_of(p_namespace) h))
    from leasehold.keeping k
   where k.name = p_name
$$;

-- How long any row is kept at the least. Locks nothing.
create or replace function leasehold_internal.shortest_retention(p_name text) returns interval
language sql stable
as $$
  select coalesce(k.retention, (select min(p.history_retention) from leasehold.policy p)) from leasehold.keeping k where k.name = p_name
$$;

-- The partition of a day, by name. Locks nothing.
create or replace function leasehold_internal.day_partition(p_name text, p_day date) returns text
language sql immutable
as $$
  select p_name || '_' || to_char(p_day, 'YYYYMMDD')
$$;

-- Midnight in UTC, at which a day begins. Locks nothing.
create or replace function leasehold_internal.day_begins(p_day date) returns timestamptz
language sql immutable
as $$
  select p_day::timestamp at time zone 'UTC'
$$;

-- The partitions of days that there are. Locks nothing.
create or replace function leasehold_internal.kept_days(p_name text) returns setof date
language sql stable
as $$
  select to_date(right(c.relname, 8), 'YYYYMMDD')
    from pg_inherits i
    join pg_class c
      on c.oid = i.inhrelid
   where i.inhparent = format('leasehold.%I', p_name)::regclass and c.relname ~ ('^' || p_name || '_[0-9]{8}$')
   order by 1
$$;

-- Has the default partition rows of a day? Locks nothing.
create or replace function leasehold_internal.is_in_default(p_name text, p_day date) returns boolean
language plpgsql
as $$
declare
  v_is_there boolean;
begin
  execute format('select exists (select from leasehold.%I d where d.%2$I >= $1 and d.%2$I < $2)', p_name || '_default',
                 leasehold_internal.kept_by(p_name))
    into v_is_there using leasehold_internal.day_begins(p_day), leasehold_internal.day_begins(p_day + 1);
  return v_is_there;
end
$$;

-- Make the partitions of today and the next three days, as far as there are none; a day of which the default partition has rows
-- already stays there. Returns whether all was done. Locks the table SHARE UPDATE EXCLUSIVE, which holds up nobody, and the
-- default partition ACCESS EXCLUSIVE, to which nobody writes who has a partition; waits for neither longer than 50 ms. Where there is none
-- of today, it locks the table SHARE ROW EXCLUSIVE: a statement that is about to write to the default partition would fail.
create or replace function leasehold_internal.make_days(p_name text, p_now timestamptz) returns boolean
language plpgsql
set lock_timeout = '50ms'
as $$
declare
  v_day date;
  v_partition text;
begin
  for v_day in
    select d::date from generate_series((p_now at time zone 'UTC')::date, (p_now at time zone 'UTC')::date + 3, interval '1 day') d
  loop
    v_partition := leasehold_internal.day_partition(p_name, v_day);
    continue when to_regclass(format('leasehold.%I', v_partition)) is not null or leasehold_internal.is_in_default(p_name, v_day);
    begin
      if v_day = (p_now at time zone 'UTC')::date then
        execute format('lock table leasehold.%I in share row exclusive mode', p_name);
      end if;
      -- Made first and attached then: made as a partition it would lock the table ACCESS EXCLUSIVE.
      execute format('create table leasehold.%I (like leasehold.%I including all)', v_partition, p_name);
      -- LIKE does not copy it, and a publication of all tables lets no row go without (0086_replica_identity.sql).
      execute format('alter table leasehold.%I replica identity full', v_partition);
      execute format('comment on table leasehold.%I is %L', v_partition, format('What leasehold.%s has of %s in UTC', p_name, v_day));
      execute format('alter table leasehold.%I attach partition leasehold.%I for values from (%L) to (%L)', p_name, v_partition,
                     leasehold_internal.day_begins(v_day), leasehold_internal.day_begins(v_day + 1));
    exception when lock_not_available or check_violation or duplicate_table or deadlock_detected then
      return false;
    end;
  end loop;
  return true;
end
$$;

-- Forget what is past its retention in the partition of a day (null: in the default one): all of it, then the table goes; or only
-- that of some namespaces, then their rows, at most 10,000. Returns whether all was done. Locks the whole table ACCESS EXCLUSIVE
-- where the partition goes, and waits for that no longer than 50 ms.
create or replace function leasehold_internal.forget_day(p_name text, p_day date, p_now timestamptz) returns boolean
language plpgsql
set lock_timeout = '50ms'
as $$
declare
  v_table regclass := format('leasehold.%I', coalesce(leasehold_internal.day_partition(p_name, p_day), p_name || '_default'))::regclass;
  v_begin constant timestamptz := coalesce(leasehold_internal.day_begins(p_day), '-infinity');
  v_end constant timestamptz := coalesce(leasehold_internal.day_begins(p_day + 1), 'infinity');
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
     cross join lateral (select $3 - leasehold_internal.retention_of($4, n.namespace) as before) b
     where n.namespace is not null $q$, v_table)
    into v_namespaces, v_befores, v_is_kept using v_begin, v_end, p_now, p_name;
  if v_is_kept or p_day is null then
    execute format($q$
      delete from %1$s d
       using (select h.ctid
                from unnest($1, $2) as n (namespace, before)
                join %1$s h
                  on h.namespace = n.namespace and h.%2$I < n.before
               limit 10000) x
       where d.ctid = x.ctid $q$, v_table, leasehold_internal.kept_by(p_name))
      using v_namespaces, v_befores;
    get diagnostics v_count = row_count;
    return v_count < 10000;
  end if;
  -- An empty one goes too, once nothing could be written to it that is kept.
  if v_end <= p_now - leasehold_internal.shortest_retention(p_name) then
    execute format('drop table %s', v_table);
  end if;
  return true;
exception when lock_not_available or deadlock_detected then
  return false;
end
$$;

-- May what is past its retention be forgotten? Not for an hour after a step forward was noticed: a clock that is put right again must not cost
-- anybody a month of history. Locks nothing.
create or replace function leasehold_internal.may_forget(p_now timestamptz) returns boolean
language sql stable
as $$
  select not exists (select from leasehold.incarnation i
                      where i.reason = 'the clock of the database stepped forward' and i.started_at > p_now - interval '1 hour')
$$;

-- Look after the partitions of each table for which it is time: make those of the next days, and forget what is past its retention. Called
-- once a second by daemons, and by reap(). Where the transaction may go on after this call (`p_ends_soon` is false) nothing is locked
-- that others would wait for: no table goes, and none is made where that of today is missing. A failure is written down in
-- leasehold.keeping, and warned of when it is another one than before.
-- Locks the rows of leasehold.keeping, without waiting, and what the functions above do, until the end of the transaction.
create or replace function leasehold_internal.keep_days(p_now timestamptz, p_ends_soon boolean) returns void
language plpgsql
as $$
declare
  v_keeping record;
  v_kept record;
begin
  if leasehold_internal.is_blind() then
    return;
  end if;
  for v_keeping in
    select k.name, k.error from leasehold.keeping k where k.look_at <= p_now order by k.name desc for update skip locked
  loop
    select * into v_kept from leasehold_internal.keep_days_of(v_keeping.name, p_now, p_ends_soon);
    if v_kept.error is distinct from v_keeping.error and v_kept.error is not null then
      raise warning 'the partitions of leasehold.% cannot be looked after: %', v_keeping.name, v_kept.error;
    end if;
    if p_ends_soon then
      update leasehold.keeping k
         set look_at = p_now + case when v_kept.is_done then interval '10 min' else interval '10 s' end,
             error = v_kept.error, failing_since = case when v_kept.error is not null then coalesce(k.failing_since, p_now) end
       where k.name = v_keeping.name;
    end if;
  end loop;
end
$$;

-- What keep_days() does for one table. Returns whether all was done, and the first error. Each step is a subtransaction: new partitions
-- stay where old rows cannot be forgotten, the other way round, and a daemon's sign of life does not fail for either.
create or replace function leasehold_internal.keep_days_of(
  p_name text, p_now timestamptz, p_ends_soon boolean, out is_done boolean, out error text)
language plpgsql
as $$
declare
  v_day date;
  v_may_forget constant boolean := leasehold_internal.may_forget(p_now);
  v_is_made boolean := true;
  v_may_go_on boolean;
begin
  if p_name = 'tick' then
    is_done := not v_may_forget or leasehold_internal.forget_ticks(p_now);
    return;
  end if;
  begin
    if leasehold_internal.is_kept(p_name)
       and (p_ends_soon
            or to_regclass('leasehold.' || leasehold_internal.day_partition(p_name, (p_now at time zone 'UTC')::date)) is not null) then
      v_is_made := leasehold_internal.make_days(p_name, p_now);
    end if;
  exception when others then
    v_is_made := false;
    error := format('no partition can be made: %s', sqlerrm);
  end;
  begin
    is_done := not v_may_forget or leasehold_internal.forget_day(p_name, null, p_now);
  exception when others then
    is_done := false;
    error := coalesce(error, format('old rows of the default partition cannot be deleted: %s', sqlerrm));
  end;
  for v_day in
    select d from leasehold_internal.kept_days(p_name) d
     where p_ends_soon and v_may_forget and leasehold_internal.day_begins(d) <= p_now - leasehold_internal.shortest_retention(p_name)
  loop
    begin
      -- One partition goes in a transaction, and where others are in the way nobody waits for the next.
      v_may_go_on := leasehold_internal.forget_day(p_name, v_day, p_now)
                   and to_regclass(format('leasehold.%I', leasehold_internal.day_partition(p_name, v_day))) is not null;
      is_done := is_done and v_may_go_on;
      exit when not v_may_go_on;
    exception when others then
      is_done := false;
      error := coalesce(error, format('what is past its retention on %s cannot be forgotten: %s', v_day, sqlerrm));
    end;
  end loop;
  is_done := is_done and v_is_made;
end
$$;
