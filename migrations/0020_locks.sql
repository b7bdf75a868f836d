-- Rows instead of advisory locks: every role that can connect may take those, and so hold up whoever waits for one. The index is
-- built under a SHARE lock on leasehold.waiter, which waits for writers of that table and holds them up for a moment.

-- Locked by sessions that must go one after the other. Nothing is granted on it, so that nobody else can lock its rows.
create table leasehold.turn (
  name text not null,
  seed bigint,
  constraint turn_pkey primary key (name)
);
insert into leasehold.turn (name, seed)
values ('epoch', null), ('watch', null), ('creation', ('x' || right(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint);
comment on table leasehold.turn is 'Rows that are locked by sessions that must go one after the other';
comment on column leasehold.turn.name is
  'epoch: the sequences jump; watch: somebody begins to watch; creation: what the slots are reckoned with';
comment on column leasehold.turn.seed is 'Which slot is whose is not for clients to know';

-- A row is locked, and skipped by others, from the creation of a scope to its commit. 65,536 of them are 2.3 MB: with one transaction
-- open that has created a scope, 1 of 65,536 other new scopes is busy; of two batches at once that create 500 each, 4 scopes.
create table leasehold.creation (
  slot integer not null,
  constraint creation_pkey primary key (slot)
);
insert into leasehold.creation (slot) select i from generate_series(0, 65535) i;
comment on table leasehold.creation is 'Locks under which scopes are created; nothing is granted on it';
comment on column leasehold.creation.slot is 'A hash of the scope''s name';

-- SQL users who wait: a scope's `queued` does not tell of those who joined while it was held.
create index waiter_sql_user on leasehold.waiter (namespace, key) where coordinator is null;
comment on column leasehold.scope.queued is
  'Somebody may wait for it: false says that no daemon''s caller does, and no SQL user who joined while it was free';

-- Called by nobody any more.
drop function if exists leasehold.lock_scope(text, text);
drop function if exists leasehold.scope_lock(text, text);
drop function if exists leasehold.check_new_scopes();
