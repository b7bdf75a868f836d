-- The facts that make up this life of this database. Reads the control file; locks nothing.
create or replace function leasehold_internal.incarnation_facts(
  out system_identifier bigint, out table_oid oid, out timeline bigint, out postmaster_start timestamptz)
language plpgsql volatile
as $$
begin
  select c.system_identifier into system_identifier from pg_catalog.pg_control_system() c;
  table_oid := 'leasehold.incarnation'::regclass::oid;
  timeline := ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint;
  postmaster_start := pg_catalog.pg_postmaster_start_time();
end
$$;

-- Does the incarnation that is written down still describe the facts? Locks nothing.
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
      from leasehold.incarnation i, leasehold_internal.incarnation_facts() f);
end
$$;

-- The incarnation, and what tells whether it is this life of the database (`is_same`), whether holders could renew in it (`is_whole`:
-- no crash since, and no daemon that says that it cannot write renewals; one that is silent for 5 minutes says nothing any more), whether
-- coordinators are registered and none is live (`is_unattended`; after 5 minutes they are none), and when one was last seen. One row. To be used in FROM, where it becomes a part of the query. Locks nothing.
--
-- The system identifier is not compared here, for reading the control file is most of what it would cost: two systems cannot
-- have the same start of the postmaster, and within one the identifier cannot change.
create or replace function leasehold_internal.life_facts()
returns table (id bigint, started_at timestamptz, is_same boolean, is_whole boolean, is_unattended boolean, seen_at timestamptz)
language sql stable
as $$
  select i.id,
         i.started_at,
         coalesce(i.postmaster_start = pg_postmaster_start_time()
                  and i.table_oid = 'leasehold.incarnation'::regclass::oid
                  and i.timeline = ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint, false),
         exists (select 1 from leasehold.incarnation_marker)
         and not exists (select from leasehold.coordinator c
                          where c.cannot_write and c.seen_at > clock_timestamp() - interval '5 min'),
         coalesce((select max(c.seen_at) between clock_timestamp() - interval '5 min' and clock_timestamp() - interval '5 s'
                     from leasehold.coordinator c), false),
         (select max(c.seen_at) from leasehold.coordinator c)
    from leasehold.incarnation i
$$;

-- Promise 9: no mass expiry.
-- The incarnation, and whether anything may be taken for expired: not while the facts differ from it, not while the
-- database's clock runs over 1 s ahead of what the caller believes (`p_clock`, null: no belief), not while a daemon cannot write
-- renewals, and not while coordinators are registered and none is live, for at most 5 minutes (outage_hold). Locks nothing.
create or replace function leasehold_internal.life(p_clock timestamptz) returns leasehold.life_now
language plpgsql volatile
as $$
declare
  v_life leasehold.life_now;
begin
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

-- The same for holders who renew or give back what nobody has ended: not settled for as long as coordinators are registered and
-- none is live. Where the database's clock has just stepped forward by more than 5 minutes, this is how it looks until the
-- next tick notices; a holder who comes in that moment must not be told that it has lost. Locks nothing.
create or replace function leasehold_internal.life_of_holders() returns leasehold.life_now
language plpgsql volatile
as $$
declare
  v_life leasehold.life_now;
begin
  select f.id,
         f.started_at,
         f.is_same and f.is_whole and coalesce(f.seen_at >= clock_timestamp() - interval '5 s', true)
    into v_life
    from leasehold_internal.life_facts() f;
  return v_life;
end
$$;

-- Write down a new incarnation: from now on every lease has one whole duration + grace. Called only where nothing is ended.
-- Returns whether it was written; false when another session is at it. Locks the one row, without waiting.
create or replace function leasehold_internal.renew_incarnation(p_reason text) returns boolean
language plpgsql
as $$
begin
  perform 1 from leasehold.incarnation for update skip locked;
  if not found then
    return false;
  end if;
  -- Whoever finds the incarnation to be this life takes it that the sequences have jumped.
  perform leasehold_internal.ensure_epoch();
  update leasehold.incarnation i
     set id = i.id + 1,
         started_at = clock_timestamp(),
         system_identifier = f.system_identifier,
         table_oid = f.table_oid,
         timeline = f.timeline,
         postmaster_start = f.postmaster_start,
         reason = p_reason
    from leasehold_internal.incarnation_facts() f;
  insert into leasehold.incarnation_marker default values on conflict do nothing;
  return true;
end
$$;

-- The same where the facts differ, and where a daemon died that could not write renewals. Returns whether that was so, that is,
-- whether nothing may be ended in this call. Locks such daemons' rows too.
create or replace function leasehold_internal.notice_incarnation() returns boolean
language plpgsql
as $$
begin
  if not leasehold_internal.incarnation_is_current() then
    perform leasehold_internal.renew_incarnation('the database started, recovered, failed over or was restored');
    return true;
  end if;
  if not exists (select from leasehold.coordinator c
                  where c.cannot_write and c.seen_at < clock_timestamp() - interval '5 s') then
    return false;
  end if;
  if leasehold_internal.renew_incarnation('a daemon that could not write renewals is gone') then
    update leasehold.coordinator c
       set cannot_write = false
     where c.cannot_write and c.seen_at < clock_timestamp() - interval '5 s';
  end if;
  return true;
end
$$;

-- In REPEATABLE READ and SERIALIZABLE the incarnation was read from an old snapshot: lock its row, so that a newer one is
-- a serialization failure. Called before an expired lease is ended. Locks the incarnation FOR SHARE, in those levels only.
create or replace function leasehold_internal.pin_incarnation() returns void
language plpgsql
as $$
begin
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    perform 1 from leasehold.incarnation for share;
  end if;
end
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
    else (p_life).started_at + (p_scope).duration + (p_scope).grace
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

revoke execute on function leasehold_internal.incarnation_facts(), leasehold_internal.incarnation_is_current(), leasehold_internal.life(timestamptz),
  leasehold_internal.life_of_holders(), leasehold_internal.life_facts(),
  leasehold_internal.renew_incarnation(text), leasehold_internal.notice_incarnation(), leasehold_internal.pin_incarnation(),
  leasehold_internal.expires_at(leasehold.scope, leasehold.life_now, text, timestamptz),
  leasehold_internal.is_expired(leasehold.scope, leasehold.life_now, text, timestamptz), leasehold_internal.be_durable(),
  leasehold_internal.rest_ends_at(leasehold.scope, leasehold.life_now, timestamptz), leasehold_internal.rests(leasehold.scope, leasehold.life_now, timestamptz),
  leasehold_internal.rests_until(leasehold.scope, leasehold.life_now, timestamptz),
  leasehold_internal.rests_in_us(leasehold.scope, leasehold.life_now, timestamptz)
  from public;
