-- A daemon connects (again): its row is written, and a new life where the facts differ from the last one or where no coordinator was live, for
-- then nobody could renew. `database_now` is when that was looked at. Locks its own row.
create or replace function leasehold_internal.coordinator_register(p_coordinator uuid, p_host text, p_pid integer, p_version text)
returns table (database_now timestamptz, timeline bigint, schema_version integer)
language plpgsql
security definer
as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  if cardinality(leasehold_internal.live_coordinators(v_now)) = 0 then
    perform leasehold_internal.keep_places(v_now);
    perform leasehold_internal.renew_incarnation('the first coordinator after a time with none');
  else
    perform leasehold_internal.notice_incarnation();
  end if;
  insert into leasehold.coordinator as c (id, host, pid, version, started_at, seen_at)
  values (p_coordinator, p_host, p_pid, p_version, v_now, v_now)
      on conflict (id) do update
     set host = excluded.host, pid = excluded.pid, version = excluded.version, seen_at = excluded.seen_at;
  return query
    select v_now, f.timeline, (select max(m.number) from leasehold.migration m)
      from leasehold_internal.incarnation_facts() f;
end
$$;
comment on function leasehold_internal.coordinator_register is 'A daemon registers, or registers again';

-- A daemon's sign of life, once a second. The first row tells the time that was compared with the daemon's, whether it is registered and the version of
-- rules and tokens; then follows a row for each scope, free or expired, whose first live waiter is its own: the poll beneath the notifications.
-- `p_cannot_write`: since its last tick renewals or reaps of its own failed because the server could not write. A clock that stepped
-- by over 1 s against the daemon's, a time in which no coordinator could say that it lives, the end of one in which this one could not
-- write renewals, and facts that differ, begin a new life, with the sign of life in one transaction: nothing that holds expiry up ends before. Locks
-- its own row; after a step also those of waiters, and after a step back the rows whose check_at it moves, without waiting.
-- While a snapshot is open, a tick reads a page for each version of its row that the snapshot keeps, however the row is found: PostgreSQL asks of each
-- whether the new version's id is unique. With 2,000 of them a tick takes 7 ms. Nobody else reads them (see coordinator_seen_at). A sign of life apart
-- from its row would not cost that; but the row's absence, its seen_at and the lock on it tell who is dead, and must not disagree.
create or replace function leasehold_internal.coordinator_tick(p_coordinator uuid, p_clock timestamptz, p_cannot_write boolean default false)
returns table (database_now timestamptz, is_registered boolean, namespace text, key text, access_version bigint)
language plpgsql
security definer
{{lookups.settings}}
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_live uuid[];
  v_life leasehold.life_now;
  v_is_registered boolean;
  v_could_not_write boolean;
  v_was_nobody_live boolean := cardinality(leasehold_internal.live_coordinators(v_now)) = 0;
  v_moves_places boolean := false;
begin
  if v_now not between p_clock - interval '1 s' and p_clock + interval '1 s' then
    v_moves_places := leasehold_internal.is_first_of_step(p_clock, v_now);
  end if;
  if v_was_nobody_live then
    perform leasehold_internal.keep_places(v_now);
  end if;
  -- Of one that is being swept (seen at the epoch) some waiters are gone already: it registers again, with all of them.
  update leasehold.coordinator c
     set seen_at = v_now, cannot_write = c.cannot_write or p_cannot_write
   where c.id = p_coordinator and c.seen_at > 'epoch'
  returning c.cannot_write into v_could_not_write;
  v_is_registered := found;
  if v_now > p_clock + interval '1 s' then
    perform leasehold_internal.renew_incarnation('the clock of the database stepped forward');
  elsif v_now < p_clock - interval '1 s' then
    -- Nobody's sign of life may lie in the future, or the dead would look alive. Nor may an expiry: that of each lease is counted
    -- from now on.
    update leasehold.coordinator c set seen_at = v_now where c.seen_at > v_now;
    perform leasehold_internal.renew_incarnation('the clock of the database stepped back');
  elsif v_was_nobody_live then
    perform leasehold_internal.renew_incarnation('no coordinator could write for a time');
  elsif v_could_not_write and not p_cannot_write then
    perform leasehold_internal.renew_incarnation('renewals can be written again');
    update leasehold.coordinator c set cannot_write = false where c.id = p_coordinator;
  else
    perform leasehold_internal.notice_incarnation();
  end if;
  if v_moves_places then
    perform leasehold_internal.move_places(v_now - p_clock, v_now);
  end if;
  perform leasehold_internal.look_again_after_step_back(v_now);
  if exists (select from leasehold.keeping k where k.look_at <= v_now) then
    perform leasehold_internal.keep_days(v_now, true);
  end if;
  if exists (select from leasehold.schedule s where s.look_at <= v_now) then
    perform leasehold_internal.make_all_ticks(v_now);
  end if;
  perform leasehold_internal.forget_hand_overs();
  return query select v_now, v_is_registered, null::text, null::text, a.version from leasehold.access_state a;
  if v_is_registered and exists (select 1 from leasehold.waiter q where q.coordinator = p_coordinator) then
    v_life := leasehold_internal.life(p_clock);
    v_live := leasehold_internal.live_coordinators(v_now);
    -- A free scope with waiters is due within a second, an expired one is due now (see check_at).
    return query
      select null::timestamptz, null::boolean, d.namespace, d.key, null::bigint
        from (select s as scope, s.namespace, s.key
                from leasehold.scope s
               where s.check_at <= v_now + interval '1 s'
               order by s.check_at
               limit 10000) d
       cross join lateral leasehold_internal.live_head(d.namespace, d.key, v_live, v_now) h
       where h.coordinator = p_coordinator
         and case (d.scope).state when 'free' then true when 'held' then leasehold_internal.is_expired(d.scope, v_life, 'takeover', v_now)
                  else leasehold_internal.has_room(d.scope, h.units)
                       or exists (select
                                    from leasehold.share x
                                   where x.namespace = d.namespace and x.key = d.key and x.state = 'held'
                                     and (x.lapsed or x.deadline <= v_now)
                                     and leasehold_internal.is_expired(leasehold_internal.scope_of_share(x), v_life, 'takeover', v_now)) end
         and not leasehold_internal.rests(d.scope, v_life, v_now)
       limit 1000;
  end if;
end
$$;
comment on function leasehold_internal.coordinator_tick is 'A daemon''s sign of life, and its slow poll';

-- No coordinator could say that it lives, and this is the first that can again. The others have 10 s to do the same before they are
-- swept, and callers who were told to come again have their 10 s from now on: so places outlive an outage of up to outage_hold
-- (5 min). Locks the coordinators' rows, and those of waiters who are away, without waiting for the latter.
create or replace function leasehold_internal.keep_places(p_now timestamptz) returns void
language plpgsql
as $$
begin
  update leasehold.coordinator c
     set seen_at = p_now - interval '5 s'
   where c.seen_at between p_now - interval '5 min' and p_now - interval '5 s';
  update leasehold.waiter w
     set away_until = p_now + interval '10 s'
    from (select x.namespace, x.key, x.ticket
            from leasehold.waiter x
           where x.away_until between p_now - interval '5 min' and p_now + interval '10 s'
             for update skip locked) a
   where w.namespace = a.namespace and w.key = a.key and w.ticket = a.ticket;
end
$$;

-- Is this tick the first that meets a step of the clock? Its lock tells who else meets it now. Who met a step back before has put signs of life back.
-- Where somebody else's sign of life is of the time that was skipped, that one met the step before, or there was none: this daemon stood still, with its
-- clock. Locks the row of the newest life, for which nobody waits.
create or replace function leasehold_internal.is_first_of_step(p_clock timestamptz, p_now timestamptz) returns boolean
language plpgsql
as $$
begin
  perform 1 from leasehold.incarnation i where i.id = (select max(x.id) from leasehold.incarnation x) for no key update skip locked;
  return found and case
    when p_now < p_clock then exists (select from leasehold.coordinator c where c.seen_at > p_now)
    else not exists (select from leasehold.coordinator c where c.seen_at > p_clock + interval '1 s') end;
end
$$;

-- Promise 6: the clock has stepped by `p_step`, and with it go the times of waiters. Else who waits for a while would lose its place to a step forward;
-- and after a step back nobody would be granted before a SQL user that is gone, or before its place is older than those of that hour. Rows that may be
-- of the new clock stay: after a step back those of the last 5 s, after one forward those that came since. An end that still lies ahead is none that
-- a step forward has passed. Locks the rows, skipping what others have.
create or replace function leasehold_internal.move_places(p_step interval, p_now timestamptz) returns void
language plpgsql
as $$
begin
  update leasehold.waiter w
     set enqueued_at = w.enqueued_at + p_step,
         wait_until = w.wait_until + case
           when p_step < interval '0' and (w.wait_until + p_step >= p_now or w.enqueued_at > p_now)
             or w.wait_until <= p_now and w.wait_until + p_step > p_now then p_step else interval '0' end,
         away_until = case when w.away_until <= p_now and w.away_until + p_step > p_now then w.away_until + p_step
                           when w.away_until > p_now + interval '10 s' then p_now + interval '10 s' else w.away_until end
    from (select x.namespace, x.key, x.ticket
            from leasehold.waiter x
           where x.enqueued_at not between p_now - greatest(p_step - interval '1 s', '5 s') and p_now
             for no key update skip locked) o
   where w.namespace = o.namespace and w.key = o.key and w.ticket = o.ticket;
end
$$;

-- For a minute after the database's clock stepped back: the reaper's visits that lie too far ahead come within a second, and what went ahead, as
-- schedules and the care of partitions, goes on from now. Locks the rows FOR NO KEY UPDATE SKIP LOCKED; those that others have are left to the next tick.
create or replace function leasehold_internal.look_again_after_step_back(p_now timestamptz) returns void
language plpgsql
set enable_seqscan = off
as $$
begin
  if not exists (select from leasehold.incarnation i
                  where i.reason = 'the clock of the database stepped back' and i.started_at > p_now - interval '1 min') then
    return;
  end if;
  perform leasehold_internal.rewind_schedules(p_now);
  update leasehold.keeping k
     set look_at = p_now
    from (select x.name from leasehold.keeping x where x.look_at > p_now + interval '10 min' for no key update skip locked) o
   where k.name = o.name;
  update leasehold.scope s
     set check_at = p_now + interval '1 s'
    from (select x.namespace, x.key
            from leasehold.scope x
           where x.check_at > p_now + interval '1 s' and x.check_at < 'infinity'
             and x.check_at > p_now + interval '2 s' + coalesce(x.duration + x.grace, interval '0')
             and (x.state = 'held' or x.queued or x.ended_at > p_now + interval '1 s')
           limit 10000
             for no key update skip locked) d
   where s.namespace = d.namespace and s.key = d.key;
  update leasehold.share s
     set check_at = p_now + interval '1 s'
    from (select x.namespace, x.key, x.lease_key
            from leasehold.share x
           where x.check_at > p_now + interval '1 s' and x.check_at < 'infinity'
             and x.check_at > p_now + interval '2 s' + x.duration + x.grace
             and (x.state = 'held' or x.ended_at > p_now + interval '1 s')
           limit 10000
             for no key update skip locked) d
   where s.namespace = d.namespace and s.key = d.key and s.lease_key = d.lease_key;
end
$$;

-- A daemon shuts down cleanly: its row and its watches go, its waiters' places are kept for 10 s, passed over. The last live one begins a new life as it
-- goes: a clock that has just stepped would have nobody else to notice it. So does one that could not write renewals. Locks its own row, and
-- a live one that stays, against its removal; the latter without waiting.
create or replace function leasehold_internal.coordinator_unregister(p_coordinator uuid) returns void
language plpgsql
security definer
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_could_not_write boolean;
begin
  delete from leasehold.coordinator c where c.id = p_coordinator returning c.cannot_write into v_could_not_write;
  -- Of two that go at once each takes itself for the last.
  perform 1 from leasehold.coordinator c where c.seen_at > v_now - interval '5 s' for key share skip locked;
  if v_could_not_write then
    perform leasehold_internal.renew_incarnation('a daemon that could not write renewals is gone');
  elsif not found and v_could_not_write is not null then
    perform leasehold_internal.renew_incarnation('the last coordinator is gone');
  end if;
  perform leasehold_internal.watch_clear(p_coordinator);
  update leasehold.waiter q
     set away_until = v_now + interval '10 s'
   where q.coordinator = p_coordinator and q.away_until is null;
  perform leasehold_internal.wake_head(null, s.namespace, s.key)
     from (select distinct q.namespace, q.key from leasehold.waiter q where q.coordinator = p_coordinator) q
     join leasehold.scope s on s.namespace = q.namespace and s.key = q.key
    where s.state <> 'held';
end
$$;
comment on function leasehold_internal.coordinator_unregister is 'A daemon shuts down cleanly';

grant execute on function leasehold_internal.coordinator_register, leasehold_internal.coordinator_tick,
  leasehold_internal.coordinator_unregister to leasehold_coordinator, leasehold_admin;
