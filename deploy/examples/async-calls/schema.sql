-- A queue of calls whose claims are leases. Run it once, as a member of leasehold_owner.
create schema calls;
-- Which calls the hooks.
grant usage on schema calls to leasehold_owner;

create table calls.call (
  id       bigint not null generated always as identity,
  request  jsonb not null,
  state    text not null default 'waiting',
  attempts integer not null default 0,
  response jsonb,
  constraint call_pkey primary key (id),
  constraint call_state check (state in ('waiting', 'running', 'done')),
  constraint call_done_has_response check ((state = 'done') = (response is not null))
);
create index call_waiting on calls.call (id) where state = 'waiting';

-- Take the oldest call that waits: its row is marked and its lease is granted together, or neither.
create function calls.take(p_owner text) returns table (id bigint, lease_key uuid, request jsonb)
language plpgsql
as $$
#variable_conflict use_column
begin
  select c.id, c.request into id, request
    from calls.call c
   where c.state = 'waiting'
   order by c.id
   limit 1
     for update skip locked;
  if not found then
    return;
  end if;
  select l.lease_key into strict lease_key from leasehold.acquire('calls', id::text, '10 s', owner => p_owner) l;
  update calls.call c set state = 'running', attempts = c.attempts + 1 where c.id = take.id;
  return next;
end
$$;

-- Complete a call and give its lease back, in one transaction. False for somebody who does not hold it (any more).
create function calls.complete(p_id bigint, p_lease_key uuid, p_response jsonb) returns boolean
language plpgsql
as $$
begin
  if not leasehold.release_ok('calls', p_id::text, p_lease_key) then
    return false;
  end if;
  update calls.call c set state = 'done', response = p_response where c.id = p_id;
  return true;
end
$$;

-- The hook: what a worker left behind waits again, in the transaction in which its lease ends.
create function calls.put_back(p_event leasehold.lease_event) returns void
language sql
security definer
set search_path = pg_catalog, pg_temp
as $$
  update calls.call c set state = 'waiting' where c.id = p_event.key::bigint and c.state = 'running'
$$;
select leasehold.add_hook('calls', 'reap', 'calls.put_back(leasehold.lease_event)'),
       leasehold.add_hook('calls', 'release_fail', 'calls.put_back(leasehold.lease_event)');
