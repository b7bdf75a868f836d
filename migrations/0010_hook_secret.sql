-- What tells our own value of a setting from one that somebody else has set. Everything is new, so nothing is locked that anybody
-- uses.
create table leasehold.hook_secret (
  only_row boolean not null default true,
  secret   uuid not null default gen_random_uuid(),
  constraint hook_secret_pkey primary key (only_row),
  constraint hook_secret_only_row check (only_row)
);
insert into leasehold.hook_secret default values;
comment on table leasehold.hook_secret is 'Signs the setting leasehold.hook_tokens, which every session can set; nobody may read it';
comment on column leasehold.hook_secret.secret is 'A random one for each database';
