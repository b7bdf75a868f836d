-- Open guards, as daemons have seen them: so a guard that stays open is ended after max_guard. Everything is new.
--
-- guard() locks this table ROW SHARE until its transaction ends. Nothing is granted on the table and nobody else locks it so: that lock
-- in pg_locks tells which sessions have an open guard.
create table leasehold.guard_session (
  pid         integer not null,
  transaction text not null,
  seen_at     timestamptz not null,
  constraint guard_session_pkey primary key (pid, transaction)
);
comment on table leasehold.guard_session is 'Transactions with an open guard that daemons have seen; locked ROW SHARE by each of them';
comment on column leasehold.guard_session.pid is 'The session''s process';
comment on column leasehold.guard_session.transaction is 'Its virtual transaction, as pg_locks names it';
comment on column leasehold.guard_session.seen_at is 'When a daemon saw it first: max_guard later the session is ended';

insert into leasehold.turn (name) values ('guards');
comment on column leasehold.turn.name is
  'epoch: the sequences jump; watch: somebody begins to watch; creation: what the slots are reckoned with; guards: long guards are looked for';
