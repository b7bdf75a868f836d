-- A daemon whose renewals cannot be written, for a full disk say, while its own row still can be, says so in that row. Locks
-- leasehold.coordinator for a moment; nothing is rewritten.
alter table leasehold.coordinator add column cannot_write boolean not null default false;
comment on column leasehold.coordinator.cannot_write is
  'It could not write renewals: nothing expires until it can, or until it has been silent for 5 minutes';

-- It has another argument now.
drop function if exists leasehold.coordinator_tick(uuid, timestamptz);
