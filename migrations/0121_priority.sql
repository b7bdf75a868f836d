-- A waiter may have a priority, as far as a policy allows it; waiting raises it (ageing). ACCESS EXCLUSIVE locks on leasehold.waiter and
-- leasehold.policy for a moment; neither is rewritten, and the new CHECK of waiters is not proved for those of before (NOT VALID), which have 0.
alter table leasehold.waiter add column priority integer not null default 0;
alter table leasehold.waiter add constraint waiter_priority check (priority between 0 and 1000) not valid;
comment on column leasehold.waiter.priority is 'Each step of it counts as one ageing of the policy that it has waited longer';
comment on table leasehold.waiter is 'Who waits for what: of one priority in the order of the tickets';
-- Whatever looks for the next of a queue asks first whether anybody there has a priority: with this index that is one look at nothing where
-- nobody has. It is also the order of those who have.
create index waiter_by_priority on leasehold.waiter (namespace, key, priority, ticket) where priority > 0;

alter table leasehold.policy
  add column max_priority integer,
  add column ageing interval,
  add constraint policy_max_priority check (max_priority between 0 and 1000),
  add constraint policy_ageing check (ageing between interval '1 ms' and interval '1 day');
update leasehold.policy set max_priority = 0, ageing = '10 s' where namespace = '';
alter table leasehold.policy alter column max_priority set default 0, alter column ageing set default '10 s';
comment on column leasehold.policy.max_priority is 'The highest priority for who has the right lease; the right admin goes up to 1000';
comment on column leasehold.policy.ageing is 'How long one step of priority is worth';
alter type leasehold.rules add attribute max_priority integer, add attribute ageing interval;

-- priority: what it asks for, negative by the right admin; from decide() on, that of its place. at: by what it stands among other priorities, null
-- where nobody in its scope has one.
alter type leasehold.acquire_work add attribute priority integer, add attribute at timestamptz;

-- They have other arguments or columns now. By name, whatever their arguments were.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where p.pronamespace = 'leasehold_internal'::regnamespace
           and p.proname = any (array['policies_in_force', 'own_policies', 'policy_get', 'policy_list', 'policy_update', 'acquire_items',
                                      'acquire_batch', 'acquire_general', 'acquire_hooked', 'hand_over_batch', 'hand_over_share', 'live_head', 'acquire_problem', 'early_outcome'])
        or p.pronamespace = 'leasehold'::regnamespace and p.proname in ('set_policy', 'acquire', 'join_queue')
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
