-- For a database that was restored or failed over behind Leasehold's back, as with the source epoch each one is: begin a new life, and lift the fencing
-- tokens and tickets above everything that was ever handed out. Returns nothing. Waits for another jump, and for who writes down a life. Locks
-- the row of leasehold.life_source, and what begin_life() does.
create or replace function leasehold.bump_epoch() returns void
language plpgsql
security definer
as $$
begin
  update leasehold.life_source s set epoch = leasehold_internal.next_epoch(s.epoch);
  perform leasehold_internal.begin_life('bump_epoch');
end
$$;
comment on function leasehold.bump_epoch is
  'After a failover or restore that Leasehold cannot see: begin a new life, and lift all future fencing tokens far above those handed out so far. Example:
  select leasehold.bump_epoch()';

grant execute on function leasehold.bump_epoch to leasehold_admin;
