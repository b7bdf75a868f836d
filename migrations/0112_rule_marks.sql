-- Which transaction changed the rules last: a snapshot that cannot see it is turned away (check_rule_marks). Locks nothing.
create sequence leasehold.policy_mark as bigint minvalue 0 start 0 cache 1;
comment on sequence leasehold.policy_mark is 'The transaction that changed the last policy (see check_rule_marks)';
create sequence leasehold.access_mark as bigint minvalue 0 start 0 cache 1;
comment on sequence leasehold.access_mark is 'The transaction that changed the last access rule (see check_rule_marks)';
create sequence leasehold.hook_mark as bigint minvalue 0 start 0 cache 1;
comment on sequence leasehold.hook_mark is 'The transaction that added or removed the last hook (see check_rule_marks)';
insert into leasehold.turn (name) values ('hooks');
comment on column leasehold.turn.name is
  'epoch: the sequences jump; watch: somebody begins to watch; creation: what the slots are reckoned with; guards: long guards are looked for; hooks: one is added or removed';
