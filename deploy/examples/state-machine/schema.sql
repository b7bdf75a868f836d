-- Parcels and the steps that they may take. Run it once, as a member of leasehold_owner.
create schema parcels;
-- Which calls the hooks.
grant usage on schema parcels to leasehold_owner;

create table parcels.allowed (
  from_state text not null,
  to_state   text not null,
  constraint allowed_pkey primary key (from_state, to_state)
);
insert into parcels.allowed values ('new', 'packed'), ('packed', 'sent'), ('sent', 'delivered'), ('sent', 'packed');

create table parcels.parcel (
  id      bigint not null,
  state   text not null default 'new',
  by      text,
  token   bigint not null default 0,
  constraint parcel_pkey primary key (id)
);

-- The hook of release_ok: the result names the step. Without a result it was only looked at.
create function parcels.step(p_event leasehold.lease_event) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_state text;
begin
  if p_event.result is null then
    return;
  end if;
  select p.state into v_state from parcels.parcel p where p.id = p_event.key::bigint for update;
  if not exists (select from parcels.allowed a where a.from_state = v_state and a.to_state = p_event.result ->> 'to') then
    raise exception 'parcel % is %: it cannot become %', p_event.key, coalesce(v_state, 'unknown'), coalesce(p_event.result ->> 'to', 'nothing');
  end if;
  update parcels.parcel p
     set state = p_event.result ->> 'to', by = p_event.owner, token = p_event.token
   where p.id = p_event.key::bigint;
end
$$;
select leasehold.add_hook('parcels', 'release_ok', 'parcels.step(leasehold.lease_event)');
