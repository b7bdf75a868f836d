-- What the specs share: short names for calls, and answers without a volatile value.
create schema iso;
grant usage on schema iso to leasehold_owner;
alter default privileges in schema iso grant all on tables to leasehold_owner;
create table iso.granted (n bigint generated always as identity, key text, token bigint);

create function iso.key(p_number integer) returns uuid language sql immutable as $$
  select ('00000000-0000-4000-8000-' || lpad(p_number::text, 12, '0'))::uuid
$$;

-- Acquire 'i/<key>' as number p_number, and note the token in the order of the grants.
create function iso.acquire(p_key text, p_number integer) returns boolean language plpgsql as $$
declare
  v_token bigint;
begin
  select l.token into v_token from leasehold.acquire('i', p_key, '1 hour', 'w' || p_number, iso.key(p_number)) l;
  if found then
    insert into iso.granted (key, token) values (p_key, v_token);
  end if;
  return v_token is not null;
end $$;

-- The same, shared.
create function iso.share(p_key text, p_number integer) returns boolean language plpgsql as $$
declare
  v_token bigint;
begin
  select l.token into v_token from leasehold.acquire('i', p_key, '1 hour', 'w' || p_number, iso.key(p_number), mode => 'shared') l;
  if found then
    insert into iso.granted (key, token) values (p_key, v_token);
  end if;
  return v_token is not null;
end $$;

create function iso.age_share(p_key text, p_number integer) returns void language sql as $$
  update leasehold.share
     set acquired_at = acquired_at - interval '3 hours', heartbeat_at = heartbeat_at - interval '3 hours',
         deadline = deadline - interval '3 hours', check_at = check_at - interval '3 hours'
   where namespace = 'i' and key = p_key and lease_key = iso.key(p_number);
  update leasehold.scope set incarnation = null where namespace = 'i' and key = p_key and state = 'shared'
$$;

-- Who shares it, oldest first.
create function iso.sharers(p_key text) returns text language sql as $$
  select coalesce(string_agg(h.owner, ' ' order by h.token), 'nobody') from leasehold.share h where h.namespace = 'i' and h.key = p_key and h.state = 'held'
$$;

create function iso.release(p_key text, p_number integer) returns boolean language sql as $$
  select leasehold.release_ok('i', p_key, iso.key(p_number))
$$;

create function iso.heartbeat(p_key text, p_number integer) returns boolean language sql as $$
  select leasehold.heartbeat('i', p_key, iso.key(p_number)) is not null
$$;

-- Guard with the token of the p_th grant of the key (1: the first).
create function iso.guard(p_key text, p_th integer) returns text language plpgsql as $$
declare
  v_token bigint;
begin
  select g.token into v_token from iso.granted g where g.key = p_key order by g.n offset p_th - 1 limit 1;
  perform leasehold.guard('i', p_key, v_token);
  return 'passed';
exception when sqlstate 'LH001' then
  return 'lost';  -- without the words, for they name the token
end $$;

create function iso.tokens_grow() returns boolean language sql as $$
  select coalesce(bool_and(token > previous), true)
    from (select token, lag(token) over (partition by key order by n) as previous from iso.granted) g
   where previous is not null
$$;

create function iso.age(p_key text) returns void language sql as $$
  update leasehold.scope
     set acquired_at = acquired_at - interval '3 hours', heartbeat_at = heartbeat_at - interval '3 hours',
         deadline = deadline - interval '3 hours', check_at = check_at - interval '3 hours'
   where namespace = 'i' and key = p_key
$$;

create function iso.holder(p_key text) returns text language sql as $$
  select coalesce((select s.owner from leasehold.scope s where s.namespace = 'i' and s.key = p_key and s.state = 'held'), 'nobody')
$$;

create function iso.waiters(p_key text) returns text language sql as $$
  select coalesce((select string_agg(ltrim(right(w.lease_key::text, 12), '0'), ' ' order by w.ticket)
                     from leasehold.waiter w where w.namespace = 'i' and w.key = p_key), 'none')
$$;

create function iso.coordinator(p_number integer) returns uuid language sql immutable as $$
  select (repeat(p_number::text, 8) || '-1111-4111-8111-111111111111')::uuid
$$;

-- Coordinators 1 and 2, live however slow the machine is.
create function iso.enroll() returns void language sql as $$
  select leasehold_internal.coordinator_register(iso.coordinator(1), 'host', 1, '0.1.0');
  select leasehold_internal.coordinator_register(iso.coordinator(2), 'host', 2, '0.1.0');
  update leasehold.coordinator set seen_at = clock_timestamp() + interval '1 day';
$$;

-- A batch of a coordinator: the outcomes in the order of the items.
create function iso.batch(p_coordinator integer, p_keys text[], p_number integer, p_queue boolean) returns text language sql as $$
  select string_agg(b.outcome, ' ' order by b.n)
    from leasehold_internal.acquire_batch(iso.coordinator(p_coordinator), null, array_fill('i'::text, array[cardinality(p_keys)]), p_keys,
           array_fill(iso.key(p_number), array[cardinality(p_keys)]), array_fill('w' || p_number, array[cardinality(p_keys)]),
           array_fill('{}'::text, array[cardinality(p_keys)]), array_fill(3600000000, array[cardinality(p_keys)]),
           array_fill(p_queue, array[cardinality(p_keys)]), array_fill(null::bigint, array[cardinality(p_keys)]),
           array_fill(0::bigint, array[cardinality(p_keys)])) b
$$;

create function iso.heartbeat_batch(p_keys text[], p_number integer) returns text language sql as $$
  select string_agg(b.outcome, ' ' order by b.n)
    from leasehold_internal.heartbeat_batch(array_fill('i'::text, array[cardinality(p_keys)]), p_keys, array_fill(iso.key(p_number), array[cardinality(p_keys)])) b
$$;

create function iso.release_batch(p_coordinator integer, p_keys text[], p_number integer) returns text language sql as $$
  select string_agg(b.outcome || case when b.wake then '+wake' else '' end, ' ' order by b.n)
    from leasehold_internal.release_batch(iso.coordinator(p_coordinator), array_fill('i'::text, array[cardinality(p_keys)]), p_keys,
           array_fill(iso.key(p_number), array[cardinality(p_keys)]), array_fill(false, array[cardinality(p_keys)]),
           array_fill(null::text, array[cardinality(p_keys)])) b
$$;

create function iso.leave_batch(p_coordinator integer, p_key text, p_number integer) returns text language sql as $$
  select b.outcome || case when b.wake then '+wake' else '' end
    from leasehold_internal.leave_batch(iso.coordinator(p_coordinator), array['i'], array[p_key], array[iso.key(p_number)], array[false]) b
$$;

-- Several at once: by SQL, each token noted; and by a coordinator, who waits.
create function iso.acquire_all(p_keys text[], p_number integer) returns boolean language plpgsql as $$
begin
  insert into iso.granted (key, token)
  select l.key, l.token
    from leasehold.acquire_all(array_fill('i'::text, array[cardinality(p_keys)]), p_keys, '1 hour', 'w' || p_number, iso.key(p_number)) l;
  return found;
end $$;

create function iso.ask_all(p_coordinator integer, p_keys text[], p_number integer) returns text language sql as $$
  select string_agg(b.outcome || ' ' || p_keys[b.n], ', ' order by b.n)
    from leasehold_internal.acquire_all_one(iso.coordinator(p_coordinator), null, array_fill('i'::text, array[cardinality(p_keys)]), p_keys, iso.key(p_number),
           'w' || p_number, '{}', 3600000000, true, null,
           coalesce((select min(w.ticket) from leasehold.waiter w where w.lease_key = iso.key(p_number)), 0)) b
$$;

create function iso.leave_all(p_coordinator integer, p_keys text[], p_number integer) returns text language sql as $$
  select string_agg(b.outcome || case when b.wake then '+wake' else '' end, ' ' order by b.n)
    from leasehold_internal.leave_batch(iso.coordinator(p_coordinator), array_fill('i'::text, array[cardinality(p_keys)]), p_keys,
           array_fill(iso.key(p_number), array[cardinality(p_keys)]), array_fill(false, array[cardinality(p_keys)])) b
$$;

create function iso.reset() returns void language sql as $$
  delete from leasehold.waiter;
  delete from leasehold.share; delete from leasehold.scope;
  delete from leasehold.coordinator;
  truncate iso.granted restart identity;
$$;
select leasehold.reap();
