-- The CHECKs of leasehold.scope in fewer words: PostgreSQL reads the text of each for every statement that changes a row, which is a tenth of
-- what a grant costs. They say what they said. ACCESS EXCLUSIVE on leasehold.scope while it is read once.
alter table leasehold.scope
  drop constraint scope_state,
  add constraint scope_state check (state = any ('{free,held,shared}')),
  drop constraint scope_outcome,
  add constraint scope_outcome check (last_outcome = any ('{ok,failed,expired,forced}')),
  drop constraint scope_held_is_whole,
  -- A holder can be told when its lease ends, and with which token.
  add constraint scope_held_is_whole check (
    state <> 'held' or token > 0 and (lease_key, acquired_at, heartbeat_at, deadline, duration, grace) is not null);
