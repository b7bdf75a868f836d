-- {'', a, a.b, a.b.c} of a.b.c. Locks nothing.
create or replace function leasehold_internal.prefixes(p_namespace text) returns text[]
language sql immutable parallel safe
as $$
  select array(select array_to_string(s.segments[1:i.i], '.')
                 from (select string_to_array(p_namespace, '.') as segments) s,
                      generate_series(0, cardinality(s.segments)) as i (i))
$$;

-- Is a prefix one of a namespace's own? Locks nothing.
create or replace function leasehold_internal.covers(p_prefix text, p_namespace text) returns boolean
language sql immutable parallel safe
as $$
  select p_prefix = '' or p_prefix = p_namespace or starts_with(p_namespace, p_prefix || '.')
$$;

-- The rules in force for a namespace: every column from the longest prefix that sets it. Locks nothing.
create or replace function leasehold_internal.policy_of(p_namespace text) returns leasehold.rules
language plpgsql stable
as $$
declare
  v_rules leasehold.rules;
  v_policy leasehold.policy;
begin
  for v_policy in
    select p.*
      from leasehold.policy p
     where p.namespace = any (leasehold_internal.prefixes(p_namespace))
     order by length(p.namespace) desc
  loop
    v_rules := row(
      p_namespace, coalesce(v_rules.min_duration, v_policy.min_duration),
      coalesce(v_rules.max_duration, v_policy.max_duration),
      coalesce(v_rules.grace, v_policy.grace),
      coalesce(v_rules.max_hold, v_policy.max_hold),
      coalesce(v_rules.dead_after, v_policy.dead_after),
      coalesce(v_rules.expiry, v_policy.expiry),
      coalesce(v_rules.reaper, v_policy.reaper),
      coalesce(v_rules.frozen, v_policy.frozen),
      coalesce(v_rules.max_leases, v_policy.max_leases),
      case when v_rules.max_leases is null and v_policy.max_leases is not null then v_policy.namespace else v_rules.quota_prefix end,
      coalesce(v_rules.max_waiters, v_policy.max_waiters),
      coalesce(v_rules.free_retention, v_policy.free_retention),
      coalesce(v_rules.max_reap_failures, v_policy.max_reap_failures),
      coalesce(v_rules.hook_timeout, v_policy.hook_timeout),
      coalesce(v_rules.at_least, v_policy.at_least),
      coalesce(v_rules.capacity, v_policy.capacity));
  end loop;
  return v_rules;
end
$$;

-- The same for each of the given (valid, distinct) namespaces. Returns one row for each. Locks nothing.
create or replace function leasehold_internal.policies_of(p_namespaces text[]) returns setof leasehold.rules
language sql stable
as $$
  select r.* from unnest(p_namespaces) as n (namespace) cross join lateral leasehold_internal.policy_of(n.namespace) r where r.namespace is not null
$$;

-- The same, to be used in FROM, where it becomes a part of the query: where only the root is configured for it, that is one row read. Locks
-- nothing.
create or replace function leasehold_internal.rules_of(p_namespace text) returns setof leasehold.rules
language sql stable
as $$
  select (o.rules).*
    from (select case when exists (select from leasehold.policy q where q.namespace > '' and leasehold_internal.covers(q.namespace, p_namespace))
                      then leasehold_internal.policy_of(p_namespace)
                      else row(p_namespace, p.min_duration, p.max_duration, p.grace, p.max_hold, p.dead_after, p.expiry, p.reaper, p.frozen,
                               p.max_leases, ''::text, p.max_waiters, p.free_retention, p.max_reap_failures, p.hook_timeout, p.at_least,
                               p.capacity)::leasehold.rules end as rules
            from leasehold.policy p
           where p.namespace = ''
          offset 0) o
$$;

revoke execute on function leasehold_internal.policies_of(text[]), leasehold_internal.policy_of(text), leasehold_internal.prefixes(text),
  leasehold_internal.covers(text, text), leasehold_internal.rules_of(text) from public;
