-- Tokens must grow across a failover that lost the last values of the sequence, and in a dump that is restored elsewhere.
-- Promise 2: tokens only grow.
-- So on a new system, table or timeline both sequences jump ahead, once, to where a clock stands that no other primary has to know:
--
--   first = greatest(highest number + 2^24, minutes since 2025 * 2^36), the minutes with their fraction
--
-- The clock runs by a thousand numbers each microsecond, far faster than anybody draws them. So numbers do not run ahead of it, and a
-- primary that is made later begins above those of an earlier one, even if it knows nothing of that one's jump or timeline: with
-- asynchronous standbys two primaries can follow each other within seconds, on the same timeline. What was drawn and lost is less than
-- 2^24, should the new server's clock be behind. Minutes reach 2^27, where bigint ends, in the year 2280.

-- What the jump is made for: a positive number for this system, table and timeline. With the source epoch, which does not tell a failover from a
-- restart, each start of the server has its own. Locks what incarnation_facts() does.
create or replace function leasehold_internal.epoch_for() returns bigint
language plpgsql volatile
as $$
begin
  return (select hashtextextended(f.system_identifier || '/' || f.table_oid || '/' || f.timeline
                                    || case f.source when 'epoch' then '/' || extract(epoch from f.postmaster_start) else '' end, 0)
                 & 9223372036854775807 | 1
            from leasehold_internal.incarnation_facts() f);
end
$$;

-- Jump, whatever the mark says, unless another session did it meanwhile (`p_even_if_marked`: jump again all the same).
-- Takes its turn, and gives it back with the subtransaction that took it; what is set in a sequence stays. So nobody waits for longer
-- than a jump takes, whatever transactions are open.
create or replace function leasehold_internal.jump_epoch(p_even_if_marked boolean) returns void
language plpgsql
as $$
declare
  v_mark bigint := leasehold_internal.epoch_for();
  v_first bigint;
begin
  perform 1 from leasehold.turn t where t.name = 'epoch' for update;
  if p_even_if_marked or (select m.last_value from leasehold.epoch_mark m) <> v_mark then
    select greatest(greatest(t.last_value, k.last_value) + (1 << 24),
                    (extract(epoch from clock_timestamp() - timestamptz '2025-01-01 00:00:00+00') / 60 * (1::bigint << 36))::bigint)
      into v_first
      from leasehold.token t, leasehold.ticket k;
    perform setval('leasehold.token', v_first, false);
    perform setval('leasehold.ticket', v_first, false);
    -- Last: whoever sees the mark finds the sequences ahead.
    perform setval('leasehold.epoch_mark', v_mark);
  end if;
  raise sqlstate 'LH900' using message = 'give the turn back';
exception when sqlstate 'LH900' then
  null;
end
$$;

-- Before a token or a ticket is drawn. Locks nothing once the jump is made. Where the incarnation is this life of the database
-- (life_facts().is_same) it was made before that was written down.
create or replace function leasehold_internal.ensure_epoch() returns void
language plpgsql
as $$
begin
  if (select f.is_same from leasehold_internal.life_facts() f) then
    return;
  end if;
  if (select m.last_value from leasehold.epoch_mark m) <> leasehold_internal.epoch_for() then
    perform leasehold_internal.jump_epoch(false);
  end if;
end
$$;
