-- A page of what is held, as programs are told of it: in `p_namespace` ('' is everything), with what is below it or without,
-- of one owner (null: all), after (`p_after_namespace`, `p_after_key`) in the order of the bytes. Locks nothing.
create or replace function leasehold_internal.list_leases(
  p_namespace text, p_include_children boolean, p_limit integer, p_after_namespace text, p_after_key text, p_owner text)
returns table (
  namespace text, key text, token bigint, owner text, principal text, labels text, duration_us bigint, grace_us bigint,
  acquired_at timestamptz, deadline timestamptz, remaining_us bigint, held_us bigint, silent_us bigint, heartbeats bigint,
  heartbeat_at timestamptz, liveness text, is_manual boolean)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
-- By the primary key from where the page begins to where the namespace ends, never the whole table.
set enable_seqscan = off
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
begin
  perform leasehold_internal.refuse(leasehold_internal.subtree_problem(p_namespace));
  -- '/' is the byte after '.': what is below p comes before p || '/'.
  v_last := case
    when p_namespace = '' then (select max(s.namespace) from leasehold.scope s)
    when p_include_children then p_namespace || '/'
    else p_namespace
  end;
  v_scopes := array(
    select s
      from leasehold.scope s
     where s.namespace >= p_namespace and s.namespace <= v_last
       and (s.namespace, s.key) > (coalesce(p_after_namespace, '') collate "C", coalesce(p_after_key, '') collate "C")
       and leasehold_internal.is_in_subtree(s.namespace, p_namespace)
       and s.state = 'held'
       and (nullif(p_owner, '') is null or s.owner = p_owner)
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
end
$$;
comment on function leasehold_internal.list_leases is 'A page of what is held, as programs read it';

revoke execute on function leasehold_internal.list_leases(text, boolean, integer, text, text, text) from public;
grant execute on function leasehold_internal.list_leases(text, boolean, integer, text, text, text)
  to leasehold_coordinator, leasehold_admin;
