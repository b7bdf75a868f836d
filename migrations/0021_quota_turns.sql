-- A row for each prefix that sets max_leases: near the limit its grants go one after the other. Kept by a trigger, so that whoever
-- changes the policy need not know. Locks leasehold.policy against changes for a moment.
create table leasehold.quota_turn (
  prefix text collate "C" not null,
  constraint quota_turn_pkey primary key (prefix)
);
comment on table leasehold.quota_turn is 'Locked by the session that grants near a limit (max_leases); nothing is granted on it';
comment on column leasehold.quota_turn.prefix is 'The namespace whose policy sets max_leases';

create function leasehold.keep_quota_turns() returns trigger
language plpgsql
as $$
begin
  insert into leasehold.quota_turn (prefix) values (new.namespace) on conflict do nothing;
  return null;
end
$$;
comment on function leasehold.keep_quota_turns is 'A policy that sets max_leases has a row in leasehold.quota_turn';
revoke execute on function leasehold.keep_quota_turns() from public;
create trigger policy_quota_turn after insert or update of max_leases on leasehold.policy
  for each row when (new.max_leases is not null) execute function leasehold.keep_quota_turns();
insert into leasehold.quota_turn (prefix) select p.namespace from leasehold.policy p where p.max_leases is not null;

drop function if exists leasehold.apply_quotas(leasehold.acquire_work[], uuid[], timestamptz);
