-- Lift the fencing tokens and tickets above everything that was ever handed out, as after a failover: for a database that
-- was restored behind Leasehold's back. Returns nothing. Waits for another jump, and for nothing else.
create or replace function leasehold.bump_epoch() returns void
language plpgsql
security definer
as $$
begin
  perform leasehold_internal.jump_epoch(true);
end
$$;
comment on function leasehold.bump_epoch is
  'Lift all future fencing tokens far above those handed out so far. Example:
  select leasehold.bump_epoch()';

grant execute on function leasehold.bump_epoch to leasehold_admin;
