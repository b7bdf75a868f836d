-- Beside the owner, which is what a holder says of itself: the principal, which is what it has proved. Null for a lease, a waiter or a hold
-- from before. ACCESS EXCLUSIVE locks on four tables for a moment; none is rewritten.
alter table leasehold.scope add column principal text;
comment on column leasehold.scope.principal is
  'Who holds it, or held it last, as proved: spiffe://, uri:, dns:, token:, user: or role: with a name; anonymous';
alter table leasehold.waiter add column principal text;
comment on column leasehold.waiter.principal is 'Who waits, as proved: spiffe://, uri:, dns:, token:, user: or role: with a name; anonymous';
alter table leasehold.event add column principal text;
comment on column leasehold.event.principal is 'Who holds it, or held it, as proved';
alter table leasehold.history add column principal text;
comment on column leasehold.history.principal is
  'Who held it, as proved: spiffe://, uri:, dns:, token:, user: or role: with a name; anonymous; null: from before there were any';

alter type leasehold.lease_facts add attribute principal text;
alter type leasehold.lease_event add attribute principal text;
comment on column leasehold.lease_event.principal is 'Who holds it, as proved: spiffe://, uri:, dns:, token:, user: or role: with a name; anonymous';

-- They take or return principals now. By name, whatever their arguments were.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where p.pronamespace = 'leasehold_internal'::regnamespace
       and p.proname = any (array[
         'acquire_batch', 'acquire_general', 'acquire_hooked', 'queue_one', 'hand_over_batch', 'leave_batch', 'reap_batch', 'reap_hooked',
         'reap_failed', 'get_scope', 'list_leases', 'force_release_one', 'take_events', 'reap_stale_list'])
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
