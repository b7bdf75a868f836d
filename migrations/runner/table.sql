-- The table in which the migration runner records what it applied; its lock lets one migration run at a time. Run as
-- leasehold_owner, before anything else is. Only this role may take the lock, and readers do not wait for it.
create table if not exists leasehold.migration (
  number integer primary key,
  name text not null,
  checksum text not null,
  oldest_daemon text not null default '',
  version text not null,
  applied_at timestamptz not null default pg_catalog.clock_timestamp()
);
lock table leasehold.migration in exclusive mode nowait;
-- Only where it is missing: readers wait for this.
do $leasehold$
begin
  if not exists (select from pg_catalog.pg_attribute a where a.attrelid = 'leasehold.migration'::regclass and a.attname = 'revision') then
    alter table leasehold.migration add column revision integer not null default 0;
  end if;
end
$leasehold$;
comment on column leasehold.migration.revision is
  'Of the functions: grows with each change of one. A program with a lower one leaves them alone.';
comment on table leasehold.migration is
  'What was applied to this schema, by which version; number 0 stands for the functions as a whole.';
comment on column leasehold.migration.number is 'The number of its file; 0: the functions';
comment on column leasehold.migration.name is 'The name of its file';
comment on column leasehold.migration.checksum is 'SHA-256 of the file that was applied.';
comment on column leasehold.migration.oldest_daemon is 'The oldest version that may run on it, or empty.';
comment on column leasehold.migration.version is 'The version of the program that applied it.';
comment on column leasehold.migration.applied_at is 'When it was applied';
