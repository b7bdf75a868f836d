-- How many scopes each open transaction of a SQL client has created. Everything is new.
create table leasehold.creator (
  xact xid8 not null,
  scopes integer not null,
  constraint creator_pkey primary key (xact)
);
comment on table leasehold.creator is 'Transactions of SQL clients that have created scopes; those that have ended are deleted by the next one';
comment on column leasehold.creator.xact is 'The transaction';
comment on column leasehold.creator.scopes is 'How many it has created';
