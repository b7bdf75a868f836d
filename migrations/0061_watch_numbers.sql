-- The numbers of watches come from a sequence that is logged. That of an identity column of an unlogged table is unlogged itself since
-- PostgreSQL 15, and a standby that was promoted before its first restartpoint could not read it: nobody could watch there
-- ("bad magic number in sequence"). Locks leasehold.watch for an instant.

alter table leasehold.watch alter column id drop identity;
create sequence leasehold.watch_number as bigint minvalue 1;
comment on sequence leasehold.watch_number is 'Numbers of watches';
select setval('leasehold.watch_number', coalesce(max(w.id), 0) + 1, false) from leasehold.watch w;
alter table leasehold.watch alter column id set default nextval('leasehold.watch_number');
