-- Shared leases. A scope that is `shared` has a row in leasehold.share for each holder, and counts them and their units itself, so that most
-- decisions need its row alone. Whoever grants or ends a shared lease locks the scope's row first and the holder's second. A renewal locks
-- the holder's alone, and waits for neither.

-- A shared holder as functions describe any holder: as a scope that it holds by itself. `units` tells it from the scope's own row, which has
-- none while it is `held`. One that has ended is a free scope that remembers its lease key. Locks nothing.
do $do$
declare
  c_other constant jsonb := $${
    "state": "case when (p_share).state = 'held' then 'held' else 'free' end",
    "lease_key": "case when (p_share).state = 'held' then (p_share).lease_key end",
    "queued": "true",
    "last_outcome": "(p_share).outcome",
    "last_result": "(p_share).result",
    "last_error": "(p_share).error",
    "ended_keys": "case when (p_share).state = 'ended' then array[(p_share).lease_key] else '{}' end",
    "ended_outcomes": "case when (p_share).state = 'ended' then array[(p_share).outcome] else '{}' end",
    "at_least": "null",
    "at_least_incarnation": "null",
    "holders": "1",
    "together": "array[(p_share).token, (p_share).items]"}$$;
begin
  execute format('
create or replace function leasehold_internal.scope_of_share(p_share leasehold.share) returns leasehold.scope
language sql immutable
as $$
  select row(%s)::leasehold.scope
$$;
',
    (select string_agg(coalesce(c_other->>a.attname, '(p_share).' || a.attname), ', ' order by a.attnum)
       from pg_attribute a
      where a.attrelid = 'leasehold.scope'::regclass and a.attnum > 0 and not a.attisdropped));
end
$do$;

-- What is left of the capacity of a scope; null where the policy sets none. Locks nothing.
create or replace function leasehold_internal.units_free(p_scope leasehold.scope, p_rules leasehold.rules) returns integer
language sql immutable
as $$
  select case when (p_rules).capacity is null then null
              when (p_scope).state = 'held' then 0
              else greatest((p_rules).capacity - coalesce((p_scope).units, 0), 0) end
$$;

-- How many hold a scope. Locks nothing.
create or replace function leasehold_internal.holder_count(p_scope leasehold.scope) returns integer
language sql immutable
as $$
  select case (p_scope).state when 'held' then 1 when 'shared' then (p_scope).holders else 0 end
$$;

-- May a waiter that wants so many units of a scope which is shared (null: all of it) ask now? Where there is room for it, or never will
-- be. Locks nothing.
create or replace function leasehold_internal.has_room(p_scope leasehold.scope, p_units integer) returns boolean
language plpgsql stable
as $$
declare
  v_capacity integer;
begin
  if p_units is null then
    return false;
  end if;
  select r.capacity into v_capacity from leasehold_internal.policies_of(array[p_scope.namespace]) r;
  return coalesce(p_units > v_capacity or coalesce(p_scope.units, 0) + p_units <= v_capacity, true);
end
$$;

-- Is it a shared holder, described as a scope, and not a scope's own row? Locks nothing.
create or replace function leasehold_internal.is_share(p_scope leasehold.scope) returns boolean
language sql immutable
as $$
  select coalesce((p_scope).units > 0 and (p_scope).state <> 'shared', false)
$$;

-- What holds the scope under this lease key, as a scope: exclusively or shared; all null where nothing does. Locks nothing.
create or replace function leasehold_internal.holder_now(p_namespace text, p_key text, p_lease_key uuid) returns leasehold.scope
language plpgsql stable
as $$
declare
  v_scope leasehold.scope;
begin
  select s.* into v_scope from leasehold.scope s where s.namespace = p_namespace and s.key = p_key and s.lease_key = p_lease_key;
  if not found then
    select o.* into v_scope
      from leasehold.share h
     cross join lateral leasehold_internal.scope_of_share(h) o
     where h.namespace = p_namespace and h.key = p_key and h.lease_key = p_lease_key and h.state <> 'ended';
  end if;
  return v_scope;
end
$$;

-- Is a lease of the scope held with this token, exclusively or shared? Locks nothing.
create or replace function leasehold_internal.is_held(p_namespace text, p_key text, p_token bigint) returns boolean
language plpgsql stable
as $$
begin
  return exists (select from leasehold.scope s
                  where s.namespace = p_namespace and s.key = p_key and s.token = p_token and s.state = 'held')
         or exists (select from leasehold.share h
                     where h.namespace = p_namespace and h.key = p_key and h.token = p_token and h.state = 'held');
end
$$;

-- In items of a batch, where the lease key has a row in leasehold.share, the shared holder takes the place of the scope: 'busy' where
-- another session has that row. Locks it FOR UPDATE SKIP LOCKED where the lease may end here (`p_ends`), else FOR NO KEY UPDATE SKIP LOCKED.
create or replace function leasehold_internal.take_holders(p_work leasehold.item_work[], p_ends boolean) returns leasehold.item_work[]
language plpgsql
{{joins.settings}}
as $$
declare
  v_found integer[];
  v_holders leasehold.scope[];
begin
  if not exists (select 1
                   from unnest(p_work) w
                  cross join lateral (
                    select 1
                      from leasehold.share x
                     where x.namespace = w.namespace and x.key = w.key and x.lease_key = w.lease_key
                    offset 0) h
                  where w.hold <> 'busy' and (w.scope).lease_key is distinct from w.lease_key) then
    return p_work;
  end if;
  if p_ends then
    {{named_shares.text}}
                  for update skip locked) h) d;
  else
    {{named_shares.text}}
                  for no key update skip locked) h) d;
  end if;
  return array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, w.is_failure, w.result, w.error, coalesce(f.holder, w.scope),
               case when f.n is not null then 'locked' when e.is_there and w.hold <> 'busy' then 'busy' else w.hold end,
               w.outcome, w.end_reason, w.head_coordinator, w.head_lease_key, w.waiters_ahead)::leasehold.item_work
      from unnest(p_work) w
      left join (select v_found[i] as n, v_holders[i] as holder from generate_subscripts(v_found, 1) i) f on f.n = w.n
      left join lateral (
        select true as is_there
          from leasehold.share x
         where x.namespace = w.namespace and x.key = w.key and x.lease_key = w.lease_key
           and (w.scope).lease_key is distinct from w.lease_key
        offset 0) e on true
     order by w.n);
end
$$;

-- End the leases of shared holders: what end_leases() does about them. A scope whose last holder it was is free then, and remembers how
-- that one's lease ended. The caller has locked the scopes' rows and the holders', these FOR UPDATE.
create or replace function leasehold_internal.end_shares(p_ends leasehold.lease_end[], p_now timestamptz) returns void
language plpgsql
{{joins.settings}}
as $$
begin
  with ended as (
    update leasehold.share h
       set {{share_ended.set e}},
           check_at = coalesce(e.check_at, p_now + interval '1 min')
      from (select e.*, p_now as now, x.row_id
              from unnest(p_ends) e
             cross join lateral (
               select x.ctid as row_id
                 from leasehold.share x
                where x.namespace = e.namespace and x.key = e.key and x.lease_key = e.lease_key and x.state <> 'ended'
               offset 0) x
            offset 0) e
     where h.ctid = e.row_id
    returning h as share)
  update leasehold.scope s
     set units = nullif(s.units - d.units, 0),
         holders = s.holders - d.count,
         state = case when s.holders > d.count then 'shared' else 'free' end,
         {{share_last.set (d.last)}},
         -- The scope rests for what is left of it; a force-release ends that too.
         at_least = case when (d.last).outcome <> 'forced' or s.holders > d.count then s.at_least end,
         -- With waiters the reaper looks soon, should the wake-up get lost.
         check_at = case
           when exists (select from leasehold.waiter q where q.namespace = s.namespace and q.key = s.key) or leasehold_internal.is_blind()
             then least(s.check_at, p_now + interval '1 s')
           else least(s.check_at, p_now + interval '1 min') end
    from (select (x.share).namespace, (x.share).key, sum((x.share).units)::integer as units, count(*)::integer as count,
                 (array_agg(x.share order by (x.share).token desc))[1] as last
            from ended x
           group by (x.share).namespace, (x.share).key) d
   cross join lateral (select x.ctid as row_id from leasehold.scope x where x.namespace = d.namespace and x.key = d.key offset 0) x
   where s.ctid = x.row_id;
end
$$;
