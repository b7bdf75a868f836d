-- Requests to hand a lease over: a holder is asked, and answers or not; the server ends no lease for them. The table and the policy's column are new, but
-- for a CHECK, which has one word more and is not proved again (NOT VALID): ACCESS EXCLUSIVE locks on leasehold.audit and leasehold.policy for a moment.
create table leasehold.hand_over (
  namespace  text collate "C" not null,
  key        text collate "C" not null,
  token      bigint not null,
  lease_key  uuid not null,
  asked_at   timestamptz not null,
  asked_by   text not null,
  principal  text not null,
  reason     text not null,
  answer_by  timestamptz not null,
  asker      uuid,
  refusal    text,
  refused_at timestamptz,
  -- A holder has one request: who asks later joins it.
  constraint hand_over_pkey primary key (namespace, key, token),
  constraint hand_over_reason check (octet_length(reason) <= 1024),
  constraint hand_over_refusal check (octet_length(refusal) between 1 and 1024),
  constraint hand_over_refused_with_words check ((refusal is null) = (refused_at is null))
) with (fillfactor = 70);
create index hand_over_lease_key on leasehold.hand_over (lease_key);
create index hand_over_asked_at on leasehold.hand_over (asked_at);
comment on table leasehold.hand_over is 'Requests to hand a lease over; one whose lease has ended counts for nothing, and coordinators delete it';
comment on column leasehold.hand_over.namespace is 'Dotted: payments.invoices';
comment on column leasehold.hand_over.key is 'The name inside of the namespace';
comment on column leasehold.hand_over.token is 'That of the lease: the request ends with it';
comment on column leasehold.hand_over.lease_key is 'That of the holder, who is told by it';
comment on column leasehold.hand_over.asked_at is 'When it was asked last';
comment on column leasehold.hand_over.asked_by is 'Who asked, in its own words';
comment on column leasehold.hand_over.principal is 'Who asked, as proved';
comment on column leasehold.hand_over.reason is 'Why, in the asker''s words';
comment on column leasehold.hand_over.answer_by is 'asked_at + hand_over_grace: without an answer it is unanswered then';
comment on column leasehold.hand_over.asker is 'Lease key of the waiter who asked; null: an administrator did';
comment on column leasehold.hand_over.refusal is 'Why the holder refused; null: it did not';
comment on column leasehold.hand_over.refused_at is 'When it refused';

alter table leasehold.policy
  add column hand_over_grace interval,
  add constraint policy_hand_over_grace check (hand_over_grace between interval '0' and interval '1 day');
update leasehold.policy set hand_over_grace = interval '30 s' where namespace = '';
alter table leasehold.policy alter column hand_over_grace set default interval '30 s';
comment on column leasehold.policy.hand_over_grace is 'How long a holder has to answer a request to hand over';

alter table leasehold.audit
  drop constraint audit_action,
  add constraint audit_action check (action in (
    'force_release', 'reap', 'policy_set', 'policy_reset', 'hook_add', 'hook_remove', 'access_grant', 'access_revoke',
    'token_create', 'token_revoke', 'denied', 'schedule_set', 'schedule_pause', 'schedule_resume', 'schedule_remove', 'schedule_run',
    'ask_hand_over')) not valid;
comment on column leasehold.audit.action is
  'force_release, reap, policy_set, policy_reset, hook_add, hook_remove, access_grant, access_revoke, token_create, token_revoke, denied, schedule_set, '
  'schedule_pause, schedule_resume, schedule_remove, schedule_run, ask_hand_over';

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
