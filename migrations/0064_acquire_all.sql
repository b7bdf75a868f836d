-- Several scopes acquired at once: whoever waits for them has a place in the queue of each, with one ticket. ACCESS EXCLUSIVE locks on
-- leasehold.scope, leasehold.share and leasehold.waiter for a moment; none is rewritten.
alter table leasehold.scope add column together bigint[];
comment on column leasehold.scope.together is
  'The token of a lease that was acquired together with others, and how many they are; of another token than the scope''s: no longer true';
alter table leasehold.share add column items smallint;
comment on column leasehold.share.items is 'It was acquired together with others: how many they are, itself included; null: alone';

alter table leasehold.waiter add column items smallint;
comment on column leasehold.waiter.items is
  'It waits for so many scopes together, with this ticket and lease key in each, and holds none of them; null: for this scope alone';
-- Nearly always empty: whether a lease key waits for several is asked often.
create index waiter_items on leasehold.waiter (lease_key) where items is not null;

-- They have other arguments or columns now. By name, whatever their arguments were.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where p.pronamespace = 'leasehold_internal'::regnamespace
           and p.proname = any (array['acquire_general', 'live_head', 'reap_for_takeover'])
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
