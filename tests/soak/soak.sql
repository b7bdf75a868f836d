-- The calls of the soak, each with its line of history in the same transaction. The order of the lines of one scope is
-- the order of its changes: a number is drawn after the call has taken the scope's row and before the commit gives it up. Only those who
-- join a held scope share its row: their order is that of their tickets.
create schema soak;
create sequence soak.number;
create table soak.event (
  number bigint not null default nextval('soak.number'),
  at timestamptz not null,        -- when the database decided; queue: when the place says that it came
  kind text not null,
  scope text,
  lease uuid,
  token bigint,                   -- queue: the ticket; ask: the holder's; hear: of who was asked
  until timestamptz,              -- grant, down, renew: the expiry; rest: its end; queue: the end of the place, or null while its coordinator lives
  actor text not null,
  units integer,                  -- grant, down: of a shared lease
  slots integer[],
  priority integer                -- queue; grant: of one that was not in the queue
);
create index on soak.event (lease);
create table soak.setting (duration interval not null, is_calm boolean not null);

-- Half of the scopes have a capacity, which is that of their namespace.
create function soak.ns(p_scope text) returns text language sql immutable as $$
  select case when p_scope in ('hotter', 'cooler', 'colder') then 'soak.units' else 'soak' end
$$;
create function soak.ns(p_scopes text[]) returns text[] language sql immutable as $$
  select array(select soak.ns(u.s) from unnest(p_scopes) with ordinality u (s, n) order by u.n)
$$;

-- Each lease as it is, in whatever mode.
create view soak.held as
  select s.key as scope, s.lease_key as lease, s.token, s.acquired_at, s.heartbeat_at, s.deadline + s.grace as until, null::integer as units, null::integer[] as slots
    from leasehold.scope s where s.state = 'held'
  union all
  select h.key, h.lease_key, h.token, h.acquired_at, h.heartbeat_at, h.deadline + h.grace, h.units, h.slots from leasehold.share h where h.state = 'held';

-- The minimum hold of every fifth exclusive grant, up to the duration. Calm runs have none, for nobody is woken when one is over.
create function soak.at_least(p_units integer) returns interval language sql volatile as $$
  select case when p_units is null and not s.is_calm and random() < 0.2 then random() * s.duration end from soak.setting s
$$;
create function soak.note_grant(p_kind text, p_scope text, p_lease uuid, p_actor text, p_priority integer default null) returns void language sql as $$
  insert into soak.event (at, kind, scope, lease, token, until, actor, units, slots, priority)
  select case p_kind when 'grant' then h.acquired_at else h.heartbeat_at end, p_kind, p_scope, p_lease, h.token, h.until, p_actor, h.units, h.slots, p_priority
    from soak.held h where h.scope = p_scope and h.lease = p_lease;
  insert into soak.event (at, kind, scope, lease, until, actor)
  select s.acquired_at, 'rest', p_scope, p_lease, s.acquired_at + s.at_least, p_actor
    from leasehold.scope s
   where p_kind = 'grant' and s.namespace = soak.ns(p_scope) and s.key = p_scope and s.lease_key = p_lease and s.at_least is not null
$$;

-- `p_units` null: exclusively.
create function soak.acquire(p_scope text, p_lease uuid, p_actor text, p_units integer, p_priority integer) returns boolean language plpgsql as $$
begin
  perform l.* from soak.setting s, leasehold.acquire(soak.ns(p_scope), p_scope, s.duration, p_actor, p_lease, at_least => soak.at_least(p_units),
            mode => case when p_units is null then 'exclusive' else 'shared' end, units => coalesce(p_units, 1), priority => p_priority) l;
  if not found then
    return false;
  end if;
  perform soak.note_grant('grant', p_scope, p_lease, p_actor, p_priority);
  return true;
end $$;

-- A lease of each of these scopes, or none: the lines of each scope, and before them one for each that says which they are.
create function soak.note_all(p_scopes text[], p_lease uuid, p_actor text) returns void language sql as $$
  insert into soak.event (at, kind, scope, lease, actor)
  select clock_timestamp(), 'all', s, p_lease, p_actor
    from unnest(p_scopes) s
   where not exists (select from soak.event e where e.lease = p_lease and e.kind = 'all')
$$;

create function soak.acquire_all(p_scopes text[], p_lease uuid, p_actor text, p_units integer[]) returns boolean language plpgsql as $$
begin
  perform l.* from soak.setting s, leasehold.acquire_all(soak.ns(p_scopes), p_scopes, s.duration, p_actor, p_lease,
            modes => array(select case when u is null then 'exclusive' else 'shared' end from unnest(p_units) u), units => p_units) l;
  if not found then
    return false;
  end if;
  perform soak.note_all(p_scopes, p_lease, p_actor);
  perform soak.note_grant('grant', s, p_lease, p_actor) from unnest(p_scopes) s;
  return true;
end $$;

create function soak.downgrade(p_scope text, p_lease uuid, p_actor text, p_units integer) returns boolean language plpgsql as $$
begin
  perform d.* from leasehold.downgrade(soak.ns(p_scope), p_scope, p_lease, p_units) d;
  if not found then
    return false;
  end if;
  perform soak.note_grant('down', p_scope, p_lease, p_actor);
  return true;
end $$;

create function soak.heartbeat(p_scope text, p_lease uuid, p_actor text) returns boolean language plpgsql as $$
begin
  if leasehold.heartbeat(soak.ns(p_scope), p_scope, p_lease) is null then
    return false;
  end if;
  perform soak.note_grant('renew', p_scope, p_lease, p_actor);
  return true;
end $$;

create function soak.release(p_scope text, p_lease uuid, p_actor text) returns boolean language plpgsql as $$
begin
  if not leasehold.release_ok(soak.ns(p_scope), p_scope, p_lease) then
    return false;
  end if;
  insert into soak.event (at, kind, scope, lease, actor) values (clock_timestamp(), 'end', p_scope, p_lease, p_actor);
  return true;
end $$;

create function soak.join_queue(p_scope text, p_lease uuid, p_actor text, p_ttl interval, p_units integer, p_priority integer) returns text language plpgsql as $$
declare
  v_channel text;
begin
  select j.channel into v_channel from leasehold.join_queue(soak.ns(p_scope), p_scope, p_lease, p_ttl,
    mode => case when p_units is null then 'exclusive' else 'shared' end, units => coalesce(p_units, 1), priority => p_priority) j;
  insert into soak.event (at, kind, scope, lease, token, until, actor, priority)
  select w.enqueued_at, 'queue', p_scope, p_lease, w.ticket, w.wait_until, p_actor, w.priority
    from leasehold.waiter w where w.namespace = soak.ns(p_scope) and w.key = p_scope and w.lease_key = p_lease;
  return v_channel;
end $$;

create function soak.leave_queue(p_scope text, p_lease uuid, p_actor text) returns void language plpgsql as $$
begin
  perform leasehold.leave_queue(soak.ns(p_scope), p_scope, p_lease);
  insert into soak.event (at, kind, scope, lease, actor) values (clock_timestamp(), 'leave', p_scope, p_lease, p_actor);
end $$;

-- Requests to hand a lease over. Who writes a line about them has this lock, so that the lines have the order of what they tell.
create function soak.lock_requests(p_scope text) returns void language sql as $$
  select pg_advisory_xact_lock(hashtext('soak.requests'), hashtext(p_scope))
$$;

-- As a waiter, whose place may have been lost since.
create function soak.ask_hand_over(p_scope text, p_lease uuid, p_actor text) returns void language plpgsql as $$
begin
  perform soak.lock_requests(p_scope);
  if exists (select from leasehold.waiter w where w.lease_key = p_lease) then
    insert into soak.event (at, kind, scope, token, actor)
    select clock_timestamp(), 'ask', p_scope, a.token, p_actor
      from leasehold.ask_hand_over(soak.ns(p_scope), p_scope, p_lease, 'soak') a where a.state <> 'refused';
  end if;
exception when invalid_parameter_value then null;
end $$;

-- Is it held, and asked for?
create function soak.hear(p_scope text, p_lease uuid, p_actor text) returns boolean language plpgsql as $$
declare
  v_token bigint;
begin
  perform soak.lock_requests(p_scope);
  select a.token into v_token from leasehold.asked(array[p_lease]) a where a.key = p_scope;
  insert into soak.event (at, kind, scope, lease, token, actor)
  select clock_timestamp(), 'hear', p_scope, p_lease, v_token, p_actor from soak.held h where h.scope = p_scope and h.lease = p_lease;
  return v_token is not null;
end $$;

create function soak.refuse(p_scope text, p_lease uuid, p_actor text) returns void language plpgsql as $$
begin
  perform soak.lock_requests(p_scope);
  if leasehold.refuse_hand_over(soak.ns(p_scope), p_scope, p_lease, 'soon') then
    insert into soak.event (at, kind, scope, lease, actor) values (clock_timestamp(), 'refuse', p_scope, p_lease, p_actor);
  end if;
end $$;

create function soak.guard(p_scope text, p_lease uuid, p_actor text) returns void language plpgsql as $$
declare
  v_token bigint;
begin
  select max(e.token) into v_token from soak.event e where e.scope = p_scope and e.lease = p_lease and e.kind in ('grant', 'down');
  perform leasehold.guard(soak.ns(p_scope), p_scope, v_token);
  insert into soak.event (at, kind, scope, lease, token, actor) values (clock_timestamp(), 'guard', p_scope, p_lease, v_token, p_actor);
end $$;

create function soak.unguard(p_scope text, p_lease uuid, p_actor text) returns void language sql as $$
  insert into soak.event (at, kind, scope, lease, actor) values (clock_timestamp(), 'unguard', p_scope, p_lease, p_actor)
$$;

-- A client that was killed, or (without a scope) a coordinator that died: nobody needs to serve it any more.
create function soak.is_gone(p_scope text, p_lease uuid, p_actor text) returns void language sql as $$
  insert into soak.event (at, kind, scope, lease, actor) values (clock_timestamp(), 'gone', p_scope, p_lease, p_actor)
$$;

-- Reaped leases by their token; free rows go, for their retention is 0.
create function soak.reap(p_actor text) returns void language sql as $$
  insert into soak.event (at, kind, scope, token, actor)
  select clock_timestamp(), 'reap', r.key, r.token, p_actor from leasehold.reap() r
$$;

-- --- a coordinator's calls ---

create function soak.alive(p_coordinator uuid) returns table (scope text) language plpgsql as $$
begin
  if not exists (select from leasehold.coordinator c where c.id = p_coordinator) then
    perform leasehold_internal.coordinator_register(p_coordinator, 'soak', 1, '0.1.0');
  end if;
  insert into soak.event (at, kind, actor) values (clock_timestamp(), 'alive', p_coordinator::text);
  return query select t.key from leasehold_internal.coordinator_tick(p_coordinator, null) t where t.namespace in ('soak', 'soak.units');
  update leasehold.coordinator c set seen_at = clock_timestamp() + interval '1 day' from soak.setting s
   where s.is_calm and c.id = p_coordinator;
end $$;

-- What one call decides has one order: by the tokens; who came and has to queue, before those of its priority that stand behind it in the call.
create function soak.ask(p_coordinator uuid, p_scopes text[], p_leases uuid[], p_units integer[], p_priorities integer[])
returns table (n integer, outcome text) language plpgsql as $$
declare
  v_one record;
  v_items integer := cardinality(p_scopes);
  v_us bigint;
begin
  select extract(epoch from s.duration) * 1000000 into v_us from soak.setting s;
  for v_one in
    select * from leasehold_internal.acquire_batch(p_coordinator, null, soak.ns(p_scopes), p_scopes, p_leases,
      array_fill('batch'::text, array[v_items]), array_fill('{}'::text, array[v_items]), array_fill(v_us, array[v_items]),
      array_fill(true, array[v_items]), array_fill(null::bigint, array[v_items]), array_fill(0::bigint, array[v_items]), null,
      array(select leasehold_internal.to_us(soak.at_least(u.units)) from unnest(p_units) with ordinality u (units, n) order by u.n), p_units, p_priorities) b
     cross join lateral (
       select b.outcome = 'granted' as is_granted,
              exists (select from soak.event e where e.lease = p_leases[b.n] and e.kind = 'queue') as has_place) q
     order by case when q.has_place then b.token
                   else min(case when q.is_granted then b.token end)
                          over (partition by p_scopes[b.n], p_priorities[b.n], q.has_place order by b.n rows between current row and unbounded following)
              end, q.is_granted, b.n
  loop
    n := v_one.n;
    outcome := v_one.outcome;
    if outcome = 'granted' then
      perform soak.note_grant('grant', p_scopes[n], p_leases[n], p_coordinator::text, p_priorities[n]);
    elsif outcome = 'queued' and not exists (select from soak.event e where e.lease = p_leases[n] and e.kind = 'queue') then
      insert into soak.event (at, kind, scope, lease, token, actor, priority)
      select w.enqueued_at, 'queue', w.key, w.lease_key, w.ticket, p_coordinator, w.priority from leasehold.waiter w where w.lease_key = p_leases[n];
    end if;
    return next;
  end loop;
end $$;

-- Several scopes for one lease. What is noted is what became of each, whatever the answer says.
create function soak.ask_all(p_coordinator uuid, p_scopes text[], p_lease uuid, p_units integer[]) returns text language plpgsql as $$
declare
  v_outcome text;
begin
  select min(b.outcome) into v_outcome
    from soak.setting s, leasehold_internal.acquire_all_one(
           p_coordinator, null, soak.ns(p_scopes), p_scopes, p_lease, 'all', '{}', (extract(epoch from s.duration) * 1000000)::bigint, true, null, 0, null,
           array(select leasehold_internal.to_us(soak.at_least(u.units)) from unnest(p_units) with ordinality u (units, n) order by u.n), p_units) b;
  if v_outcome = 'granted' then
    perform soak.note_all(p_scopes, p_lease, p_coordinator::text);
    perform soak.note_grant('grant', s, p_lease, p_coordinator::text) from unnest(p_scopes) s;
  elsif v_outcome = 'queued' and not exists (select from soak.event e where e.lease = p_lease and e.kind = 'queue') then
    perform soak.note_all(p_scopes, p_lease, p_coordinator::text);
    insert into soak.event (at, kind, scope, lease, token, actor, priority)
    select w.enqueued_at, 'queue', w.key, p_lease, w.ticket, p_coordinator, w.priority from leasehold.waiter w where w.lease_key = p_lease;
  end if;
  return v_outcome;
end $$;

create function soak.down(p_coordinator uuid, p_scopes text[], p_leases uuid[], p_units integer[]) returns table (n integer, outcome text, wake boolean)
language plpgsql as $$
begin
  for i in 1 .. cardinality(p_scopes) loop
    n := i;
    select d.outcome, d.wake into outcome, wake
      from leasehold_internal.downgrade_one(p_coordinator, null, soak.ns(p_scopes[i]), p_scopes[i], p_leases[i], p_units[i], null) d;
    if outcome = 'ok' then
      perform soak.note_grant('down', p_scopes[i], p_leases[i], p_coordinator::text);
    end if;
    return next;
  end loop;
end $$;

create function soak.give(p_coordinator uuid, p_scopes text[], p_leases uuid[]) returns table (n integer, outcome text, wake boolean) language plpgsql as $$
declare
  v_items integer := cardinality(p_scopes);
begin
  for n, outcome, wake in
    select b.n, b.outcome, b.wake
      from leasehold_internal.release_batch(p_coordinator, soak.ns(p_scopes), p_scopes, p_leases,
             array_fill(false, array[v_items]), array_fill(null::text, array[v_items])) b
  loop
    if outcome = 'ok' then
      insert into soak.event (at, kind, scope, lease, actor) values (clock_timestamp(), 'end', p_scopes[n], p_leases[n], p_coordinator);
    end if;
    return next;
  end loop;
end $$;

-- Leaving for good; a lease that was granted in the same instant ends.
create function soak.go(p_coordinator uuid, p_scopes text[], p_leases uuid[]) returns table (n integer, outcome text, wake boolean) language plpgsql as $$
declare
  v_items integer := cardinality(p_scopes);
begin
  for n, outcome, wake in
    select b.n, b.outcome, b.wake
      from leasehold_internal.leave_batch(p_coordinator, soak.ns(p_scopes), p_scopes, p_leases,
             array_fill(false, array[v_items])) b
  loop
    if outcome = 'ok' then
      insert into soak.event (at, kind, scope, lease, actor) values (clock_timestamp(), 'leave', p_scopes[n], p_leases[n], p_coordinator);
    end if;
    return next;
  end loop;
end $$;

create function soak.sweep(p_coordinator uuid) returns table (scope text) language plpgsql as $$
declare
  v_one record;
begin
  for v_one in select * from leasehold_internal.reap_batch(p_coordinator, null, null, true, 100, true) loop
    if v_one.kind = 'reaped' then
      insert into soak.event (at, kind, scope, token, actor) values (clock_timestamp(), 'reap', v_one.key, v_one.token, p_coordinator);
    end if;
    if v_one.wake or v_one.kind = 'wake' then
      scope := v_one.key;
      return next;
    end if;
  end loop;
end $$;
