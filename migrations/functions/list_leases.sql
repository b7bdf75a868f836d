-- A page of what is held, as programs are told of it: in `p_namespace` ('' is everything), with what is below it or without,
-- of one owner (null: all), with `p_search` in its name, owner, principal or token, whatever the case (null: all), after (`p_after_namespace`,
-- `p_after_key`) in the order of the bytes. Where `p_look_at` rows of the table (null: any number) did not fill the page, the last row has the scope
-- of the last one of them and no token. Locks nothing.
create or replace function leasehold_internal.list_leases(
  p_namespace text, p_include_children boolean, p_limit integer, p_after_namespace text, p_after_key text, p_owner text,
  p_search text default null, p_look_at integer default null)
returns table (
  namespace text, key text, token bigint, owner text, principal text, labels text, duration_us bigint, grace_us bigint,
  acquired_at timestamptz, deadline timestamptz, remaining_us bigint, held_us bigint, silent_us bigint, heartbeats bigint,
  heartbeat_at timestamptz, liveness text, is_manual boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
-- By the primary key from where the page begins to where the namespace ends, never the whole table.
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_life leasehold.life_now := leasehold_internal.life(null);
  v_scopes leasehold.scope[];
  v_rules leasehold.rules[];
  v_last text;
  v_search text := lower(nullif(p_search, '') collate "default");
  v_stop_namespace text;
  v_stop_key text;
begin
  perform leasehold_internal.refuse(leasehold_internal.subtree_problem(p_namespace));
  -- '/' is the byte after '.': what is below p comes before p || '/'.
  v_last := case
    when p_namespace = '' then (select max(s.namespace) from leasehold.scope s)
    when p_include_children then p_namespace || '/'
    else p_namespace
  end;
  if p_look_at is not null then
    select s.namespace, s.key
      into v_stop_namespace, v_stop_key
      from leasehold.scope s
     where s.namespace >= p_namespace and s.namespace <= v_last
       and (s.namespace, s.key) > (coalesce(p_after_namespace, '') collate "C", coalesce(p_after_key, '') collate "C")
     order by s.namespace, s.key
    offset p_look_at - 1
     limit 1;
  end if;
  v_scopes := array(
    select s
      from leasehold.scope s
     where s.namespace >= p_namespace and s.namespace <= v_last
       and (s.namespace, s.key) > (coalesce(p_after_namespace, '') collate "C", coalesce(p_after_key, '') collate "C")
       and (v_stop_namespace is null or (s.namespace, s.key) <= (v_stop_namespace collate "C", v_stop_key collate "C"))
       and leasehold_internal.is_in_subtree(s.namespace, p_namespace)
       and s.state = 'held'
       and (nullif(p_owner, '') is null or s.owner = p_owner)
       and (v_search is null
            or strpos(lower(concat_ws(E'\n', s.namespace || '/' || s.key, s.owner, s.principal, s.token) collate "default"), v_search) > 0)
     order by s.namespace, s.key
     limit p_limit);
  v_rules := array(select r from leasehold_internal.policies_of(array(select distinct s.namespace from unnest(v_scopes) s)) r);
  return query
    select u.namespace, u.key, f.token, f.owner, f.principal, f.labels, f.duration_us, f.grace_us, f.acquired_at, f.deadline, f.remaining_us,
           f.held_us, f.silent_us, f.heartbeats, f.heartbeat_at, f.liveness, f.is_manual
      from unnest(v_scopes) u
     cross join lateral (select r as rules from unnest(v_rules) r where r.namespace = u.namespace) r
     cross join lateral leasehold_internal.lease_facts(u, r.rules, v_life, v_now) f
     order by u.namespace, u.key;
  if v_stop_namespace is not null and cardinality(v_scopes) < p_limit then
    namespace := v_stop_namespace;
    key := v_stop_key;
    return next;
  end if;
end
$$;
comment on function leasehold_internal.list_leases is 'A page of what is held, as programs read it';

revoke execute on function leasehold_internal.list_leases(text, boolean, integer, text, text, text, text, integer) from public;
grant execute on function leasehold_internal.list_leases(text, boolean, integer, text, text, text, text, integer)
  to leasehold_coordinator, leasehold_admin;
