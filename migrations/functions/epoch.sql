-- Tokens must grow across a failover that lost the last values of the sequence, and in a dump that is restored elsewhere.
-- So on a new system, table or timeline both sequences jump ahead, once, to an epoch: the high bits of the numbers.
--
--   epoch = greatest(highest number / 2^36 + 2, minutes since 2025 + timeline), numbers begin at epoch * 2^36
--
-- 2^36 numbers in an epoch are 69 thousand million grants. Minutes reach 2^27, where bigint ends, in the year 2280. The
-- timeline is added so that two failovers within a minute, the first jump lost with the first, differ all the same.

-- What the jump is made for: a positive number for this system, table and timeline. Locks nothing.
create or replace function leasehold.epoch_for() returns bigint
language plpgsql volatile
as $$
begin
  return (select hashtextextended(
                   c.system_identifier || '/' || 'leasehold.incarnation'::regclass::oid || '/'
                   || ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint, 0)
                 & 9223372036854775807 | 1
            from pg_control_system() c);
end
$$;

-- Jump, whatever the mark says, unless another session did it meanwhile (`p_even_if_marked`: jump again all the same).
-- Takes and gives back a session advisory lock: nobody waits for longer than a jump takes, whatever transactions are open.
create or replace function leasehold.jump_epoch(p_even_if_marked boolean) returns void
language plpgsql
as $$
declare
  v_mark bigint := leasehold.epoch_for();
  v_lock constant bigint := hashtextextended('leasehold.epoch', 0);
  v_first bigint;
begin
  perform pg_advisory_lock(v_lock);
  begin
    if p_even_if_marked or (select m.last_value from leasehold.epoch_mark m) <> v_mark then
      select greatest((greatest(t.last_value, k.last_value) >> 36) + 2,
                      (extract(epoch from clock_timestamp() - timestamptz '2025-01-01 00:00:00+00') / 60)::bigint
                      + f.timeline) << 36
        into v_first
        from leasehold.token t, leasehold.ticket k, leasehold.incarnation_facts() f;
      perform setval('leasehold.token', v_first, false);
      perform setval('leasehold.ticket', v_first, false);
      -- Last: whoever sees the mark finds the sequences ahead.
      perform setval('leasehold.epoch_mark', v_mark);
    end if;
  -- A cancelled statement too: the lock belongs to the session, and the session to a pool.
  exception when others or query_canceled then
    perform pg_advisory_unlock(v_lock);
    raise;
  end;
  perform pg_advisory_unlock(v_lock);
end
$$;

-- Before a token or a ticket is drawn. Locks nothing once the jump is made. Where the incarnation is this life of the database
-- (life_facts().is_same) it was made before that was written down.
create or replace function leasehold.ensure_epoch() returns void
language plpgsql
as $$
begin
  if (select f.is_same from leasehold.life_facts() f) then
    return;
  end if;
  if (select m.last_value from leasehold.epoch_mark m) <> leasehold.epoch_for() then
    perform leasehold.jump_epoch(false);
  end if;
end
$$;

revoke execute on function leasehold.epoch_for(), leasehold.jump_epoch(boolean), leasehold.ensure_epoch() from public;
