-- A leader holds for as long as it lives, so a limit that every namespace has calls healthy leases overdue: max_hold is off where nobody has set it. A root that
-- still has the default of before, 10 minutes, has it no more. Locks the policy table ACCESS EXCLUSIVE for a moment.
alter table leasehold.policy alter column max_hold drop default;
update leasehold.policy set max_hold = null where namespace = '' and max_hold = interval '10 min';
comment on column leasehold.policy.max_hold is 'Held longer than this is reported as overdue, never ended for it; null: never';
