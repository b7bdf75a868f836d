-- Lift the fencing tokens and tickets above everything that was ever handed out, as after a failover: for a database that
-- was restored behind Leasehold's back. Returns nothing. Takes and gives back a session advisory lock.
create or replace function leasehold.bump_epoch() returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform leasehold.jump_epoch(true);
end
$$;
comment on function leasehold.bump_epoch is 'Lift all future fencing tokens far above those handed out so far';

revoke execute on function leasehold.bump_epoch() from public;
grant execute on function leasehold.bump_epoch() to leasehold_admin;
