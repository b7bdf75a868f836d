-- History and audit have no key, and rows of them are deleted: where a publication is for all tables (change data capture, a copy for an
-- upgrade) the server refuses that for a table without replica identity. The whole row is theirs: of the few rows that go one by one.
-- And what the looking after partitions failed for is kept, for status and metrics. Locks the partitions ACCESS EXCLUSIVE for a
-- moment, and leasehold.keeping.
do $$
declare
  v_table regclass;
begin
  for v_table in
    select c.oid
      from pg_class c
     where c.oid in ('leasehold.history'::regclass, 'leasehold.audit'::regclass)
        or c.oid in (select i.inhrelid from pg_inherits i where i.inhparent in ('leasehold.history'::regclass, 'leasehold.audit'::regclass))
     order by c.oid
  loop
    execute format('alter table %s replica identity full', v_table);
  end loop;
end
$$;

alter table leasehold.keeping add column failing_since timestamptz, add column error text;
comment on column leasehold.keeping.failing_since is 'Since when the partitions could not be looked after; null: they can';
comment on column leasehold.keeping.error is 'Why not';

-- It returns the error too.
drop function if exists leasehold_internal.keep_days_of(text, timestamptz, boolean);
