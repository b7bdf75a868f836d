-- The times and lengths of leasehold.scope are NOT NULL: zero where the scope was never held. PostgreSQL reads the text of each CHECK for
-- every statement that changes a row, and NOT NULL costs nothing; so scope_held_is_whole and scope_free_has_no_key become one CHECK of half
-- the length, which forbids what they forbade. ACCESS EXCLUSIVE on leasehold.scope while it is read once, and rows that were never held are
-- written.
alter table leasehold.scope
  drop constraint scope_held_is_whole,
  drop constraint scope_free_has_no_key,
  alter column acquired_at set default 'epoch',
  alter column heartbeat_at set default 'epoch',
  alter column deadline set default 'epoch',
  alter column duration set default '0',
  alter column grace set default '0';
update leasehold.scope
   set acquired_at = coalesce(acquired_at, 'epoch'),
       heartbeat_at = coalesce(heartbeat_at, 'epoch'),
       deadline = coalesce(deadline, 'epoch'),
       duration = coalesce(duration, '0'),
       grace = coalesce(grace, '0')
 where (acquired_at, heartbeat_at, deadline, duration, grace) is not null is not true;
alter table leasehold.scope
  alter column acquired_at set not null,
  alter column heartbeat_at set not null,
  alter column deadline set not null,
  alter column duration set not null,
  alter column grace set not null,
  -- A holder can be told with which token it holds, a scope that was never granted has none to fence with, and a credential outlives nothing:
  -- shared holders have theirs in leasehold.share.
  add constraint scope_held_has_key check ((state = 'held') = (lease_key is not null) and (token > 0 or lease_key is null));

-- It has one argument more.
drop function if exists leasehold_internal.heartbeat_batch(text[], text[], uuid[]);
