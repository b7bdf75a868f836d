-- Which life of the database this is comes from one source, which an administrator chooses: set_life_source(). The table is new;
-- leasehold.incarnation gets a column with a constant default: ACCESS EXCLUSIVE lock for a moment, nothing is rewritten.
create table leasehold.life_source (
  only_row      boolean not null default true,
  source        text not null,
  epoch         bigint not null,
  function_name text,
  constraint life_source_pkey primary key (only_row),
  constraint life_source_only_row check (only_row),
  constraint life_source_source check (source in ('wal', 'epoch', 'engine')),
  -- PostgreSQL's own sources need none.
  constraint life_source_function_of_engine check ((source = 'engine') = (function_name is not null)),
  constraint life_source_epoch check (epoch >= 0)
);
insert into leasehold.life_source (source, epoch) values ('wal', 0);
comment on table leasehold.life_source is 'Where the schema reads which life of the database this is (see set_life_source)';
comment on column leasehold.life_source.only_row is 'There is one';
comment on column leasehold.life_source.source is
  'wal: PostgreSQL''s control file, timeline and start; epoch: the column epoch, and the start; engine: the function';
comment on column leasehold.life_source.epoch is 'Grows with each bump_epoch(): at least the seconds since 1970';
comment on column leasehold.life_source.function_name is 'With engine: what is asked, qualified';

-- A copy of the source that the row was written by, so that who asks whether it is still this life reads one table.
alter table leasehold.incarnation add column source text not null default 'wal';
comment on column leasehold.incarnation.source is 'From leasehold.life_source';

-- Its answer has one column more.
drop function if exists leasehold_internal.this_life();
drop function if exists leasehold_internal.incarnation_facts();
