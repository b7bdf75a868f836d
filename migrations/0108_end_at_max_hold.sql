-- A policy may end a hold at its max_hold. ACCESS EXCLUSIVE locks on the tables below for a moment; none is rewritten, and the CHECKs, which have one
-- word more, are not proved again (NOT VALID).
alter table leasehold.policy add column end_at_max_hold boolean;
update leasehold.policy set end_at_max_hold = false where namespace = '';
alter table leasehold.policy alter column end_at_max_hold set default false;
comment on column leasehold.policy.max_hold is 'Held longer than this is reported as overdue, and ended where end_at_max_hold says so; null: never';
comment on column leasehold.policy.end_at_max_hold is 'No renewal moves a deadline past acquired_at + max_hold: the lease ends then';
-- Every heartbeat on the quick path asks whether any policy does that: with this index no policy is read where none does.
create index policy_end_at_max_hold on leasehold.policy (namespace) where end_at_max_hold;

alter type leasehold.rules add attribute end_at_max_hold boolean;

alter table leasehold.scope
  drop constraint scope_outcome,
  add constraint scope_outcome check (last_outcome in ('ok', 'failed', 'expired', 'forced', 'max_hold')) not valid;
alter table leasehold.share
  drop constraint share_outcome,
  add constraint share_outcome check (outcome in ('ok', 'failed', 'expired', 'forced', 'max_hold')) not valid;
alter table leasehold.history
  drop constraint history_outcome,
  add constraint history_outcome check (outcome in ('ok', 'failed', 'expired', 'forced', 'downgraded', 'max_hold')) not valid;
comment on column leasehold.history.outcome is
  'ok and failed: its holder released it; expired: reaped or taken over; max_hold: the same, at the end that the policy sets; forced: an administrator '
  'ended it; downgraded: its holder kept it as a shared lease';
alter table leasehold.event
  drop constraint event_end_reason,
  add constraint event_end_reason check (end_reason in ('released', 'failed', 'expired', 'forced', 'max_hold')) not valid;

-- They have other arguments or columns now. By name, whatever their arguments were.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where p.pronamespace = 'leasehold_internal'::regnamespace
           and p.proname = any (array['policies_in_force', 'own_policies', 'policy_get', 'policy_list', 'policy_update'])
        or p.pronamespace = 'leasehold'::regnamespace and p.proname = 'set_policy'
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
