-- Two daemons with different sections may claim at the same time. So a claim has no slots until all databases of the namespace have one of the
-- same sections. And who moves keys must know when all daemons have read the rows. Locks both tables for the moment.
alter table leasehold.spread add column settled boolean not null default true;
comment on column leasehold.spread.settled is 'If not, it is a claim that has no slots yet';
alter table leasehold.coordinator add column spread_read_at timestamptz;
comment on column leasehold.coordinator.spread_read_at is
  'The newest changed_at of leasehold.spread that this daemon acts on; null: its configuration spreads no namespace here';

-- They have other arguments and columns now.
drop function if exists leasehold_internal.spread_claim(text, text, text[]);
drop function if exists leasehold_internal.spread_get();
