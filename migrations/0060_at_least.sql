-- The minimum hold: a scope whose lease ended before its at_least was over rests, and is granted to nobody until then. ACCESS EXCLUSIVE
-- locks on leasehold.scope and leasehold.policy for a moment; neither is rewritten.
alter table leasehold.scope add column at_least interval, add column at_least_incarnation bigint;
comment on column leasehold.scope.at_least is
  'The scope is granted to nobody before acquired_at + at_least; null: no minimum, or it is over. A row that has one is queued, so that '
  'the quick paths leave it alone';
comment on column leasehold.scope.at_least_incarnation is
  'The life of the database in which the minimum hold began; in a later one it lasts its whole length from the start of that life';
comment on column leasehold.scope.queued is
  'Somebody may wait for it, or it has a minimum hold: false says that no daemon''s caller waits, and no SQL user who joined while it was '
  'free, and that at_least is null';

-- The same bound as that of a request. No CHECK ties at_least to queued: each CHECK costs every grant and release 1 to 2 %.
alter table leasehold.policy
  add column at_least interval,
  add constraint policy_at_least check (at_least between interval '0' and interval '1 day');
comment on column leasehold.policy.at_least is 'A scope rests until so long after its grant, whenever the lease ends; null: 0';

alter type leasehold.rules add attribute at_least interval;

-- They have other arguments or columns now. By name, whatever their arguments were.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where p.pronamespace = 'leasehold_internal'::regnamespace
           and p.proname = any (array[
             'acquire_batch', 'acquire_general', 'acquire_hooked', 'acquire_problem', 'queue_one', 'hand_over_batch', 'leave_batch',
             'get_scope', 'policies_in_force', 'own_policies', 'policy_get', 'policy_list', 'policy_update'])
        or p.pronamespace = 'leasehold'::regnamespace and p.proname = any (array['acquire', 'set_policy', 'explain'])
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
