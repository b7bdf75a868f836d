-- The life of the database that was written down last. One row. To be used in FROM, where it becomes a part of the query. Locks nothing.
create or replace function leasehold_internal.this_life()
returns table (
  id bigint, started_at timestamptz, source text, system_identifier bigint, table_oid oid, timeline bigint, postmaster_start timestamptz)
language sql stable
as $$
  select i.id, i.started_at, i.source, i.system_identifier, i.table_oid, i.timeline, i.postmaster_start
    from leasehold.incarnation i
   order by i.id desc
   limit 1
$$;

-- Does it still describe the facts? Locks nothing.
create or replace function leasehold_internal.incarnation_is_current() returns boolean
language plpgsql volatile
as $$
begin
  return (
    select i.system_identifier is not distinct from f.system_identifier
           and i.table_oid is not distinct from f.table_oid
           and i.timeline is not distinct from f.timeline
           and i.postmaster_start is not distinct from f.postmaster_start
           and exists (select 1 from leasehold.incarnation_marker)
      from leasehold_internal.this_life() i, leasehold_internal.incarnation_facts() f);
end
$$;

-- The life that was written down last, and what tells whether it is still this one (`is_same`), whether holders could renew in it (`is_whole`: no
-- crash since, and no daemon has said since that it cannot write renewals), and whether coordinators are registered and none is live
-- (`is_unattended`). One row. To be used in FROM, where it becomes a part of the query. Locks nothing.
--
-- Nobody can tell a time without any coordinator from a clock that has stepped forward. So it lasts until a life is written down that began more
-- than 5 minutes after the last sign of life (notice_incarnation). A daemon that could not write renewals counts until one is that began
-- more than 5 s after its own.
--
-- With wal and epoch the start of the server tells: two servers cannot have the same, and a server that has written down a life is a primary, which
-- changes neither its system nor its timeline before it starts again. The other facts, which take longer to read, are compared by
-- incarnation_is_current().
create or replace function leasehold_internal.life_facts()
returns table (id bigint, started_at timestamptz, is_same boolean, is_whole boolean, is_unattended boolean)
language sql stable
as $$
  select i.id,
         i.started_at,
         coalesce(i.table_oid = 'leasehold.incarnation'::regclass::oid
                  and case i.source when 'engine' then leasehold_internal.is_life_of_engine(i.system_identifier, i.timeline)
                                    else i.postmaster_start = leasehold_internal.server_start() end, false),
         exists (select 1 from leasehold.incarnation_marker)
         and not exists (select from leasehold.coordinator c where c.cannot_write and c.seen_at > i.started_at - interval '5 s'),
         coalesce((select max(c.seen_at) between i.started_at - interval '5 min' and clock_timestamp() - interval '5 s'
                     from leasehold.coordinator c), false)
    from leasehold_internal.this_life() i
$$;

-- Promise 9: no mass expiry.
-- The life of the database, and whether anything may be taken for expired: not while the facts differ from it, not while the
-- database's clock runs over 1 s ahead of what the caller believes (`p_clock`, null: no belief), not while a daemon cannot write
-- renewals, and not while coordinators are registered and none is live. A time that is compared with an expiry is read before this is asked: who
-- is stopped between the two, or whose clock steps there, takes nothing for expired that was not. Locks nothing.
--
-- A standby cannot tell whether the facts differ: it shows the last life that it has replayed. Once its replay is 5 s late, nobody looks live there, and
-- nothing is shown as expired.
create or replace function leasehold_internal.life(p_clock timestamptz) returns leasehold.life_now
language plpgsql stable
as $$
declare
  v_life leasehold.life_now;
begin
  if pg_is_in_recovery() then
    select i.id,
           i.started_at,
           coalesce(max(c.seen_at) not between i.started_at - interval '5 min' and clock_timestamp() - interval '5 s'
                    and not bool_or(c.cannot_write and c.seen_at > i.started_at - interval '5 s'), true)
      into v_life
      from leasehold_internal.this_life() i
      left join leasehold.coordinator c on true
     group by i.id, i.started_at;
    return v_life;
  end if;
  select f.id,
         f.started_at,
         f.is_same and f.is_whole
         and (p_clock is null or clock_timestamp() <= p_clock + interval '1 s')
         and not f.is_unattended
    into v_life
    from leasehold_internal.life_facts() f;
  return v_life;
end
$$;

-- Write down a new life: from its commit on every lease has one whole duration + grace. Called only where nothing is ended. Locks what ensure_epoch()
-- and write_life() do.
create or replace function leasehold_internal.renew_incarnation(p_reason text) returns void
language plpgsql
as $$
begin
  -- Whoever finds the incarnation to be this life takes it that the sequences have jumped.
  perform leasehold_internal.ensure_epoch();
  perform leasehold_internal.write_life(p_reason);
end
$$;

-- The same where the sequences have jumped. Locks the rows of former lives, which nobody waits for, and the row of leasehold.life_source FOR SHARE: only who
-- changes it waits.
create or replace function leasehold_internal.write_life(p_reason text) returns void
language plpgsql
as $$
declare
  v_id bigint;
begin
  -- Or a life of the former source could come after one of the new.
  perform 1 from leasehold.life_source s for share;
  perform setval('leasehold.life_mark', pg_current_xact_id()::text::bigint);
  v_id := nextval('leasehold.life_number');
  insert into leasehold.incarnation (id, started_at, source, system_identifier, table_oid, timeline, postmaster_start, reason)
  select v_id, clock_timestamp(), f.source, f.system_identifier, f.table_oid, f.timeline, f.postmaster_start, p_reason
    from leasehold_internal.incarnation_facts() f;
  insert into leasehold.incarnation_marker (life) select v_id where not exists (select from leasehold.incarnation_marker);
  -- What another session has goes with the next one.
  if not leasehold_internal.is_blind() then
    delete from leasehold.incarnation i
     where i.id = any (array(select x.id from leasehold.incarnation x where x.id < v_id for update skip locked));
  end if;
end
$$;

-- The same where the facts differ, where a daemon died that could not write renewals, and where no coordinator was seen for 5 minutes: so long
-- they have to come back, and so a clock looks that has stepped by more. Returns whether that was so, that is, whether nothing may be ended in
-- this call. Locks what renew_incarnation() does.
create or replace function leasehold_internal.notice_incarnation() returns boolean
language plpgsql
as $$
declare
  v_reason text;
begin
  if not leasehold_internal.incarnation_is_current() then
    v_reason := 'the database started, recovered, failed over or was restored';
  else
    select case when exists (select from leasehold.coordinator c
                              where c.cannot_write and c.seen_at between i.started_at - interval '5 s' and clock_timestamp() - interval '5 s')
                then 'a daemon that could not write renewals is gone'
                when (select max(c.seen_at) between i.started_at - interval '5 min' and clock_timestamp() - interval '5 min'
                        from leasehold.coordinator c)
                then 'no coordinator was seen for 5 minutes' end
      into v_reason
      from leasehold_internal.this_life() i;
  end if;
  if v_reason is null then
    return false;
  end if;
  perform leasehold_internal.renew_incarnation(v_reason);
  return true;
end
$$;

-- In REPEATABLE READ and SERIALIZABLE the life was read from an old snapshot: where one has been written down since, 40001, and the
-- caller starts again. Called before an expired lease is ended. Locks nothing.
create or replace function leasehold_internal.check_life_mark() returns void
language plpgsql
as $$
begin
  if leasehold_internal.is_blind() then
    perform leasehold_internal.check_mark((select m.last_value from leasehold.life_mark m), 'a new life of the database began');
  end if;
end
$$;

-- The same for what was changed by who decides: policies, access rules and hooks. Locks nothing.
create or replace function leasehold_internal.check_rule_marks() returns void
language plpgsql stable
as $$
begin
  if leasehold_internal.is_blind() then
    perform leasehold_internal.check_mark((select m.last_value from leasehold.policy_mark m), 'a policy was changed'),
            leasehold_internal.check_mark((select m.last_value from leasehold.access_mark m), 'an access rule was changed'),
            leasehold_internal.check_mark((select m.last_value from leasehold.hook_mark m), 'a hook or a spread namespace was changed');
  end if;
end
$$;

-- Raise 40001 where the transaction whose number is `p_mark` is not in this one's snapshot. A mark of another cluster, from a dump, is none.
-- Locks nothing.
create or replace function leasehold_internal.check_mark(p_mark bigint, p_what text) returns void
language plpgsql
as $$
declare
  v_mark xid8 := p_mark::text::xid8;
begin
  if pg_visible_in_snapshot(v_mark, pg_current_snapshot()) or v_mark = pg_current_xact_id_if_assigned() then
    return;
  end if;
  begin
    if pg_xact_status(v_mark) is null then
      return;
    end if;
  exception when invalid_parameter_value then
    -- It lies in the future.
    return;
  end;
  raise exception 'could not serialize access: % since the transaction''s snapshot was taken', p_what
    using errcode = 'serialization_failure', hint = 'The transaction might succeed if retried.';
end
$$;

-- For how long the last renewal was: the duration, or less where the hold ends sooner. Locks nothing.
create or replace function leasehold_internal.renewed_for(p_scope leasehold.scope) returns interval
language sql stable
as $$
  select least((p_scope).duration,
               greatest(leasehold_internal.from_us(leasehold_internal.to_us((p_scope).deadline - (p_scope).heartbeat_at)), interval '0'))
$$;

-- Promise 3: before its expiry a lease can be renewed, after it never. Promise 9: in a new life it has a whole duration and grace.
-- When the lease in `p_scope` expires; null: never by itself. A grant or a renewal that ran while the new life was written down names the life
-- before, but may come after the start of the new one: then its own deadline counts. A time to come is one of another clock. Locks nothing.
-- What asks whether a lease is live in one statement (heartbeat_batch and its like) leaves such a lease to this function.
create or replace function leasehold_internal.expires_at(
  p_scope leasehold.scope, p_life leasehold.life_now, p_expiry text, p_now timestamptz)
returns timestamptz
language sql stable
as $$
  select case
    when p_expiry = 'manual' then null
    when (p_scope).incarnation = (p_life).id or (p_scope).heartbeat_at between (p_life).started_at and p_now
      then (p_scope).deadline + (p_scope).grace
    else (p_life).started_at + leasehold_internal.renewed_for(p_scope) + (p_scope).grace
  end
$$;

-- Is the lease in `p_scope` expired? A lapsed one is, for its holder was told so. Locks nothing.
create or replace function leasehold_internal.is_expired(
  p_scope leasehold.scope, p_life leasehold.life_now, p_expiry text, p_now timestamptz)
returns boolean
language sql stable
as $$
  select (p_scope).state = 'held' and p_expiry <> 'manual'
         and ((p_scope).lapsed
              or ((p_life).is_settled and p_now >= leasehold_internal.expires_at(p_scope, p_life, p_expiry, p_now)))
$$;

-- Minimum hold: nobody is granted a scope before acquired_at + at_least, whenever the lease ends.
-- When that of the scope in `p_scope` is over; null: it has none. Promise 9: in a new life it lasts its whole length from the start of that
-- life, though the holder renews in it. A grant that ran while the new life was written down names the one before, but may come after the
-- start of the new one: then it lasts its whole length from the grant. A time to come is one of another clock. Locks nothing.
create or replace function leasehold_internal.rest_ends_at(p_scope leasehold.scope, p_life leasehold.life_now, p_now timestamptz)
returns timestamptz
language sql stable
as $$
  select case when (p_scope).at_least_incarnation = (p_life).id or (p_scope).acquired_at between (p_life).started_at and p_now
              then (p_scope).acquired_at else (p_life).started_at end + (p_scope).at_least
$$;

-- Until when nobody is granted the scope in `p_scope` for its minimum hold, be it held or not; null: that is over, or it has none. Over a
-- second from now where nothing counts as expired for now. Locks nothing.
create or replace function leasehold_internal.rests_until(p_scope leasehold.scope, p_life leasehold.life_now, p_now timestamptz)
returns timestamptz
language sql stable
as $$
  select case
    when (p_scope).at_least is null then null
    when not (p_life).is_settled then greatest(leasehold_internal.rest_ends_at(p_scope, p_life, p_now), p_now + interval '1 s')
    when p_now < leasehold_internal.rest_ends_at(p_scope, p_life, p_now) then leasehold_internal.rest_ends_at(p_scope, p_life, p_now)
  end
$$;

-- Is the minimum hold not over? Locks nothing.
create or replace function leasehold_internal.rests(p_scope leasehold.scope, p_life leasehold.life_now, p_now timestamptz) returns boolean
language sql stable
as $$
  select (p_scope).at_least is not null and leasehold_internal.rests_until(p_scope, p_life, p_now) is not null
$$;

-- The same in microseconds from now, at least 1. Locks nothing.
create or replace function leasehold_internal.rests_in_us(p_scope leasehold.scope, p_life leasehold.life_now, p_now timestamptz)
returns bigint
language sql stable
as $$
  select case when leasehold_internal.rests(p_scope, p_life, p_now)
              then greatest(leasehold_internal.to_us(leasehold_internal.rests_until(p_scope, p_life, p_now) - p_now), 1) end
$$;

-- What grants or ends a lease is committed durably, whatever the caller's setting: at least to this machine's disk.
create or replace function leasehold_internal.be_durable() returns void
language plpgsql
as $$
begin
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'local', true);
  end if;
end
$$;
