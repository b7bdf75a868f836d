-- The runners that are there, kept by hooks. Run it once, as a member of leasehold_owner.
create schema runners;
-- Which calls the hooks.
grant usage on schema runners to leasehold_owner;

create table runners.runner (
  name  text not null,
  state text not null,
  since timestamptz not null,
  constraint runner_pkey primary key (name),
  constraint runner_state check (state in ('present', 'left', 'gone'))
);

-- acquire: it is there. release_ok: it has left. reap: nobody has heard of it.
create function runners.note(p_event leasehold.lease_event) returns void
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
  insert into runners.runner as r (name, state, since)
  values (p_event.key,
          case p_event.event when 'acquire' then 'present' when 'release_ok' then 'left' else 'gone' end,
          clock_timestamp())
      on conflict (name) do update
     set state = excluded.state, since = excluded.since
$$;
select leasehold.add_hook('runners.present', event, 'runners.note(leasehold.lease_event)')
  from unnest(array['acquire', 'release_ok', 'reap']) event;
