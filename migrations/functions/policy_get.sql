-- The rules of keeping history that are in force for a namespace: they matter to no grant, so policies_of() leaves them out.
-- Locks nothing.
create or replace function leasehold_internal.history_policy_of(p_namespace text)
returns table (history boolean, history_retention interval)
language sql stable
as $$
  select (array_agg(p.history order by length(p.namespace) desc) filter (where p.history is not null))[1],
         (array_agg(p.history_retention order by length(p.namespace) desc) filter (where p.history_retention is not null))[1]
    from leasehold.policy p
   where p.namespace = any (leasehold_internal.prefixes(p_namespace))
$$;

-- How long a holder in a namespace has to answer a request to hand over. Locks nothing.
create or replace function leasehold_internal.hand_over_grace_of(p_namespace text) returns interval
language sql stable
as $$
  select (array_agg(p.hand_over_grace order by length(p.namespace) desc) filter (where p.hand_over_grace is not null))[1]
    from leasehold.policy p
   where p.namespace = any (leasehold_internal.prefixes(p_namespace))
$$;

-- The settings in force for each of the given namespaces, durations in microseconds, and where each comes from. Locks
-- nothing.
create or replace function leasehold_internal.policies_in_force(p_namespaces text[])
returns table (
  {{policy.table}})
language sql stable
as $$
  select r.namespace, leasehold_internal.to_us(r.min_duration), leasehold_internal.to_us(r.max_duration), leasehold_internal.to_us(r.grace),
         leasehold_internal.to_us(r.max_hold), leasehold_internal.to_us(r.dead_after), r.expiry, r.reaper, r.frozen, r.max_leases,
         r.max_waiters, h.history, r.max_reap_failures, leasehold_internal.to_us(r.hook_timeout), leasehold_internal.to_us(r.free_retention),
         leasehold_internal.to_us(h.history_retention), leasehold_internal.to_us(r.at_least), r.capacity, r.end_at_max_hold,
         r.max_priority, leasehold_internal.to_us(r.ageing),
         leasehold_internal.to_us(leasehold_internal.hand_over_grace_of(r.namespace)),
         leasehold_internal.policy_sources(r.namespace)
    from leasehold_internal.policies_of(p_namespaces) r
   cross join lateral leasehold_internal.history_policy_of(r.namespace) h
$$;

-- The policies that are configured, as they are written down: null is inherited. Locks nothing.
create or replace function leasehold_internal.own_policies()
returns table (
  {{policy.table}})
language sql stable
as $$
  select p.namespace, leasehold_internal.to_us(p.min_duration), leasehold_internal.to_us(p.max_duration), leasehold_internal.to_us(p.grace),
         leasehold_internal.to_us(p.max_hold), leasehold_internal.to_us(p.dead_after), p.expiry, p.reaper, p.frozen, p.max_leases,
         p.max_waiters, p.history, p.max_reap_failures, leasehold_internal.to_us(p.hook_timeout), leasehold_internal.to_us(p.free_retention),
         leasehold_internal.to_us(p.history_retention), leasehold_internal.to_us(p.at_least), p.capacity, p.end_at_max_hold, p.max_priority,
         leasehold_internal.to_us(p.ageing), leasehold_internal.to_us(p.hand_over_grace), null::text[]
    from leasehold.policy p
$$;

-- A namespace's policy for programs: first its own row (all null when there is none), then what is in force. Locks nothing.
create or replace function leasehold_internal.policy_get(p_namespace text)
returns table (
  {{policy.table}})
language plpgsql
security definer
as $$
#variable_conflict use_column
begin
  perform leasehold_internal.refuse(leasehold_internal.subtree_problem(p_namespace));
  return query select o.* from leasehold_internal.own_policies() o where o.namespace = p_namespace;
  if not found then
    namespace := p_namespace;
    return next;
  end if;
  return query select f.* from leasehold_internal.policies_in_force(array[p_namespace]) f;
end
$$;
comment on function leasehold_internal.policy_get is 'A namespace''s own policy, then the one in force, as programs read it';

-- The configured policies after `p_after` (null: from the first), at most `p_limit`, by namespace. Locks nothing.
create or replace function leasehold_internal.policy_list(p_limit integer, p_after text)
returns table (
  {{policy.table}})
language sql stable
security definer
as $$
  select o.*
    from leasehold_internal.own_policies() o
   where p_after is null or o.namespace collate "C" > p_after
   order by o.namespace collate "C"
   limit p_limit
$$;
comment on function leasehold_internal.policy_list is 'The policies that are configured, by namespace, as programs read them';

grant execute on function leasehold_internal.policy_get, leasehold_internal.policy_list to leasehold_coordinator, leasehold_admin;
