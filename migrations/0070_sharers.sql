-- A scope counts its shared holders as 0, and no longer as null, while rows of leasehold.share remember who held it: an exclusive acquire looks
-- for its lease key there only where that is so. And its row has bounds of when the first of them expires, so that who waits need not read
-- them all. Nobody changes leasehold.share meanwhile (SHARE lock); few rows of leasehold.scope are locked and written.
lock table leasehold.share in share mode;
update leasehold.scope s
   set incarnation = null
 where s.state = 'shared';
update leasehold.scope s
   set holders = 0
 where s.holders is null and exists (select from leasehold.share h where h.namespace = s.namespace and h.key = s.key);
comment on column leasehold.scope.holders is
  'How many shared holders there are: the rows of leasehold.share that are held; 0: rows of others may be left there; null: there is no row';

comment on column leasehold.scope.deadline is
  'The owner must have stopped by then: last renewal + duration. While it is shared: no holder expires before it';
comment on column leasehold.scope.heartbeat_at is 'Last renewal, or the grant. While it is shared: each holder has renewed or begun since';
comment on column leasehold.scope.acquired_at is 'Time of the grant. While it is shared: no holder began before it';
comment on column leasehold.scope.duration is 'How long the lease lives without a heartbeat. While it is shared: no holder asks for less';
comment on column leasehold.scope.incarnation is
  'The life of the database in which it was last renewed (leasehold.incarnation). While it is shared: in which those four are true; null: in none';

-- It has become a part of acquire_batch(), and queue_shared(). By name, whatever its arguments were.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure from pg_catalog.pg_proc p where p.pronamespace = 'leasehold_internal'::regnamespace and p.proname = 'queue_one'
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;

-- It has one column more.
drop function if exists leasehold_internal.life_facts();
