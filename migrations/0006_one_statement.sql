-- For batches of one that are one statement. Locks nothing.
--
-- Whoever finds the incarnation to be this life of the database takes it, from now on, that the sequences have jumped for it. So they
-- have to, before: by the function as it is installed. Nothing to do where nothing is.
do $$
begin
  if to_regprocedure('leasehold.ensure_epoch()') is not null then
    perform leasehold.ensure_epoch();
  end if;
end
$$;

-- What did a part of it each, and is called by nobody any more.
drop function if exists leasehold.acquire_one(
  uuid, leasehold.life_now, leasehold.rules, text, text, uuid, text, text, bigint, bigint);
drop function if exists leasehold.queue_one(
  uuid, leasehold.life_now, leasehold.rules, text, text, uuid, text, text, bigint, bigint);
drop function if exists leasehold.heartbeat_one(leasehold.life_now, text, text, uuid);
drop function if exists leasehold.release_one(leasehold.life_now, text, text, uuid, boolean, text);
drop function if exists leasehold.hand_over_one(
  uuid, leasehold.life_now, leasehold.rules, text, text, uuid, boolean, text, uuid, text, text, bigint, bigint);
