-- For leasehold_core, the extension in C (src/extension): the facts that it keeps, and what follows a change that it made. It decides nothing
-- that is not decided here, or in the functions whose common path it takes. Called by a coordinator, in its own transaction.

-- This life of the database, and the contract of the functions that the extension stands beside: it grows with each change of what their common
-- path reads or writes, and an extension of another contract leaves everything to them (LH_CORE_CONTRACT in src/extension/core.h). Locks nothing.
create or replace function leasehold_internal.core_life()
returns table (id bigint, started_at timestamptz, is_same boolean, contract integer)
language sql stable security definer
as $$
  -- An engine's answer may change within a session, which the extension does not see.
  select f.id, f.started_at, f.is_same and (select s.source <> 'engine' from leasehold.life_source s), 7 from leasehold_internal.life_facts() f
$$;
comment on function leasehold_internal.core_life is 'This life of the database, for the extension leasehold_core';

-- The rules of a namespace; no row where it is none. is_plain: a free scope is granted if the item's own values allow it (is_plain() in
-- single_item.sql); has_history: core_released() has
-- something to write down; may_wait: so is a wait for one that is held, a place in its queue (plain_wait() there); slots: of its keys this database has
-- those (has_key() in spread.sql). Locks nothing.
create or replace function leasehold_internal.core_rules(p_namespace text)
returns table (
  is_plain boolean, is_manual boolean, capacity integer, has_history boolean, has_acquire_hook boolean, has_heartbeat_hook boolean,
  has_release_ok_hook boolean, has_release_fail_hook boolean, min_duration interval, max_duration interval, grace interval, grace_us bigint,
  dead_after interval, dead_after_us bigint, max_hold interval, max_hold_us bigint, may_wait boolean,
  slots bytea)
language sql stable security definer
as $$
  select not r.frozen and r.max_leases is null and r.at_least is null and leasehold_internal.hold_limit(r) is null,
         r.expiry = 'manual',
         r.capacity,
         cardinality(leasehold_internal.with_history(array[p_namespace])) > 0 or r.max_leases is not null,
         h.events @> '{acquire}',
         -- What may be renewed for less than its duration is left to SQL, as where a hook is.
         h.events @> '{heartbeat}' or leasehold_internal.hold_limit(r) is not null,
         h.events @> '{release_ok}', h.events @> '{release_fail}',
         r.min_duration, r.max_duration, r.grace, leasehold_internal.to_us(r.grace), r.dead_after, leasehold_internal.to_us(r.dead_after),
         m.max_hold, leasehold_internal.to_us(m.max_hold), r.max_waiters is null, r.slots
    from leasehold_internal.rules_of(p_namespace) r
   -- The extension wants one: no hold lasts this long.
   cross join lateral (select coalesce(r.max_hold, interval '1000 years') as max_hold) m
   cross join lateral (
     select array(select k.event from leasehold.registered_hook k where k.namespace = any (leasehold_internal.prefixes(p_namespace))) as events) h
   where leasehold_internal.namespace_problem(p_namespace) is null and r.namespace is not null
$$;
comment on function leasehold_internal.core_rules is 'The rules of a namespace, for the extension leasehold_core';

-- These scopes have been granted, to shared holders where there is a lease key: tell who watches. Locks what tell_watchers() does.
create or replace function leasehold_internal.core_granted(p_namespace text[], p_key text[], p_lease_key uuid[]) returns void
language plpgsql security definer
as $$
begin
  {{told_of.text}}
end
$$;
comment on function leasehold_internal.core_granted is 'What follows the grant of scopes, for the extension leasehold_core';

-- The leases of these scopes have been ended, of shared holders where there is a lease key: history, limits, who watches, and SQL users who
-- wait. Locks what those functions do.
create or replace function leasehold_internal.core_released(p_namespace text[], p_key text[], p_lease_key uuid[] default null) returns void
language plpgsql security definer
as $$
begin
  if exists (select from leasehold.policy p where p.history) then
    perform leasehold_internal.record_holds(null, null, p_namespace, p_key, p_lease_key);
  end if;
  if exists (select from leasehold.policy p where p.max_leases is not null) then
    perform leasehold_internal.note_leases(p_namespace, -1);
  end if;
  {{told_of.text}}
  if exists (select from leasehold.waiter q where q.coordinator is null) then
    perform leasehold_internal.wake_sql_users(p_namespace, p_key);
  end if;
end
$$;
comment on function leasehold_internal.core_released is 'What follows the end of leases on the quick path, here and in the extension leasehold_core';

-- Null where the extension is not there; '' where a coordinator may leave the common path to it; else why not. As the caller, who needs the
-- right to it. Whoever owns its schema can put other functions there, which would run as the coordinator. Locks nothing.
create or replace function leasehold_internal.core_state() returns text
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_trouble text;
  v_owner oid;
  v_may boolean;
begin
  select n.nspowner, bool_and(has_schema_privilege(n.oid, 'usage') and has_function_privilege(p.oid, 'execute'))
    into v_owner, v_may
    from pg_namespace n
    join pg_proc p on p.pronamespace = n.oid
   where n.nspname = 'leasehold_core' and p.proname in ('acquire_items', 'hand_over_batch', 'heartbeat_batch', 'release_batch', 'trouble')
   group by n.nspowner;
  if v_may is null then
    return null;
  end if;
  if not pg_has_role(v_owner, 'leasehold_owner', 'member') then
    return format('its schema belongs to the role %I, which is no member of leasehold_owner', pg_get_userbyid(v_owner));
  end if;
  if not v_may then
    return format('the role %I may not use it', current_user);
  end if;
  if (select i.source from leasehold_internal.server_identity() i) = 'engine' then
    return 'an engine''s function tells which life of the database this is, which only the functions in SQL ask';
  end if;
  execute 'select leasehold_core.trouble()' into v_trouble;
  return coalesce(v_trouble, '');
-- A module that is missing, cannot be read, or is of another PostgreSQL: whatever it is, the functions in SQL do without it.
exception when others then
  return sqlerrm;
end
$$;
comment on function leasehold_internal.core_state is 'Whether the extension leasehold_core is used; by a coordinator';

grant execute on function leasehold_internal.core_state, leasehold_internal.core_life, leasehold_internal.core_rules,
  leasehold_internal.core_granted, leasehold_internal.core_released to leasehold_coordinator, leasehold_admin;
