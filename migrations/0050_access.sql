-- Who may do what, tokens of clients, and the audit of what administrators did. Everything is new, but some functions, and what says when
-- the partitions of the history are looked after: that is about the audit too. Its lock holds up daemons for a moment.

create table leasehold.access_rule (
  principal  text collate "C" not null,
  namespace  text collate "C" not null,
  rights     text[] not null,
  created_at timestamptz not null,
  created_by text not null,
  constraint access_rule_pkey primary key (principal, namespace),
  constraint access_rule_rights check (cardinality(rights) > 0 and rights <@ array['admin', 'guard', 'lease', 'read'])
);
create index access_rule_namespace on leasehold.access_rule (namespace);
comment on table leasehold.access_rule is 'What a principal may do in a namespace and in all below it';
comment on column leasehold.access_rule.principal is 'The whole principal, or with * at its end what it begins with; * alone is everybody';
comment on column leasehold.access_rule.namespace is 'Dotted: payments.invoices; '''' is everything';
comment on column leasehold.access_rule.rights is 'Some of admin, guard, lease and read, sorted; admin includes lease and read';
comment on column leasehold.access_rule.created_at is 'When it was granted first';
comment on column leasehold.access_rule.created_by is 'The principal that granted it first';

-- The token itself is stored nowhere.
create table leasehold.access_token (
  id           text not null,
  name         text collate "C" not null,
  hash         bytea not null,
  created_at   timestamptz not null,
  created_by   text not null,
  expires_at   timestamptz,
  last_used_at timestamptz,
  constraint access_token_pkey primary key (id),
  constraint access_token_hash unique (hash)
);
create index access_token_name on leasehold.access_token (name);
comment on table leasehold.access_token is 'Bearer tokens of clients: who shows one is the principal token:NAME';
comment on column leasehold.access_token.id is 'Names this token, also in commands; it is no secret';
comment on column leasehold.access_token.name is 'Of the principal token:NAME; several tokens may have it';
comment on column leasehold.access_token.hash is 'SHA-256 of the token';
comment on column leasehold.access_token.created_at is 'When it was made';
comment on column leasehold.access_token.created_by is 'The principal that made it';
comment on column leasehold.access_token.expires_at is 'From then on it is not valid; null: it does not expire';
comment on column leasehold.access_token.last_used_at is 'When a daemon saw it last, to a minute; null: never';

-- Daemons read it once a second, and read rules and tokens again when it has changed; each call of the SQL API asks it whether there is
-- anything to check.
create table leasehold.access_state (
  only_row    boolean not null default true,
  version     bigint not null,
  names_roles boolean not null default false,
  constraint access_state_pkey primary key (only_row),
  constraint access_state_only_row check (only_row)
) with (fillfactor = 50);
insert into leasehold.access_state (version) values (1);
comment on table leasehold.access_state is 'What daemons and the SQL API look at before they look at rules and tokens';
comment on column leasehold.access_state.version is 'Grows with each change';
comment on column leasehold.access_state.names_roles is 'The principal of a rule begins with role:, so that SQL users may do what rules say';

create table leasehold.audit (
  at        timestamptz not null,
  principal text not null,
  peer      text,
  action    text not null,
  namespace text collate "C" not null,
  key       text collate "C",
  token     bigint,
  reason    text,
  outcome   text not null,
  count     bigint not null,
  constraint audit_outcome check (outcome in ('done', 'refused')),
  constraint audit_action check (action in (
    'force_release', 'reap', 'policy_set', 'policy_reset', 'hook_add', 'hook_remove', 'access_grant', 'access_revoke',
    'token_create', 'token_revoke', 'denied')),
  constraint audit_count check (count > 0)
) partition by range (at);
-- "Who did something to this?"
create index audit_scope on leasehold.audit (namespace, key, at);
create table leasehold.audit_default partition of leasehold.audit default;
comment on table leasehold.audit is 'What administrators did, and what was denied; a partition for each day in UTC';
comment on column leasehold.audit.at is 'When';
comment on column leasehold.audit.principal is 'Who: role:NAME for work in SQL, else the principal of the daemon''s caller';
comment on column leasehold.audit.peer is 'From where: the address of the caller, or of the session''s client; null: a unix socket of PostgreSQL';
comment on column leasehold.audit.action is
  'force_release, reap, policy_set, policy_reset, hook_add, hook_remove, access_grant, access_revoke, token_create, token_revoke, denied';
comment on column leasehold.audit.namespace is 'Where; '''' is the root, and whatever concerns no namespace';
comment on column leasehold.audit.key is 'Of the scope, where it is about one';
comment on column leasehold.audit.token is 'The fencing token of the lease, where it is about one';
comment on column leasehold.audit.reason is 'The reason that was given, or what was changed';
comment on column leasehold.audit.outcome is 'done or refused';
comment on column leasehold.audit.count is 'How many at once: leases that were reaped, denials since the last row about them';
comment on table leasehold.audit_default is 'What happened on a day for which no partition had been made';

create table leasehold.keeping (
  name      text not null,
  look_at   timestamptz not null,
  retention interval,
  constraint keeping_pkey primary key (name),
  constraint keeping_name check (name in ('history', 'audit')),
  -- That of the history is a matter of policies.
  constraint keeping_retention check ((retention is null) = (name = 'history') and retention >= interval '0')
) with (fillfactor = 50);
insert into leasehold.keeping (name, look_at, retention)
values ('history', clock_timestamp(), null), ('audit', clock_timestamp(), '400 days');
drop table leasehold.history_keeping;
comment on table leasehold.keeping is 'Tables in partitions of a day: when they are looked after again; the lock of a row says who is at it';
comment on column leasehold.keeping.name is 'history or audit';
comment on column leasehold.keeping.look_at is 'Not before then';
comment on column leasehold.keeping.retention is 'How long a row is kept; null: as long as its namespace''s policy says';

grant select on leasehold.access_rule to leasehold_admin;
grant select on leasehold.audit, leasehold.keeping to leasehold_reader, leasehold_admin;
grant select (id, name, created_at, created_by, expires_at, last_used_at) on leasehold.access_token
  to leasehold_coordinator, leasehold_admin;

-- They have other columns or arguments now.
drop function if exists
  leasehold_internal.coordinator_tick(uuid, timestamptz, boolean),
  leasehold_internal.force_release_one(text, text, text, bigint, text),
  leasehold_internal.change_policy(text, text[], text[]),
  leasehold_internal.policy_update(text, text[], text[]),
  leasehold_internal.reap_batch(uuid, timestamptz, text[], boolean, integer, boolean),
  -- They are for any table of days now (functions/keeping.sql).
  leasehold_internal.history_partition(date),
  leasehold_internal.history_days(),
  leasehold_internal.make_history_days(timestamptz),
  leasehold_internal.forget_history_day(date, timestamptz),
  leasehold_internal.keep_history(timestamptz, boolean),
  leasehold_internal.keep_history_days(timestamptz, boolean);
