-- {'', a, a.b, a.b.c} of a.b.c. Locks nothing.
create or replace function leasehold_internal.prefixes(p_namespace text) returns text[]
language plpgsql immutable strict parallel safe
as $$
declare
  v_prefixes text[] := array['', p_namespace];
  v_dot integer := strpos(p_namespace, '.');
begin
  while v_dot > 0 loop
    v_prefixes := v_prefixes || left(p_namespace, v_dot - 1);
    v_dot := nullif(strpos(substr(p_namespace, v_dot + 1), '.'), 0) + v_dot;
  end loop;
  return v_prefixes;
end
$$;

-- Is a prefix one of a namespace's own? Locks nothing.
create or replace function leasehold_internal.covers(p_prefix text, p_namespace text) returns boolean
language sql immutable parallel safe
as $$
  select p_prefix = '' or p_prefix = p_namespace or starts_with(p_namespace, p_prefix || '.')
$$;

-- The rules of a policy, on top of those of the prefixes above it (null: it is the root's): what it does not set is theirs. Locks nothing.
create or replace function leasehold_internal.rules_over(p_above leasehold.rules, p_policy leasehold.policy) returns leasehold.rules
language sql immutable parallel safe
as $$
  select row((p_policy).namespace, coalesce((p_policy).min_duration, (p_above).min_duration),
             coalesce((p_policy).max_duration, (p_above).max_duration),
             coalesce((p_policy).grace, (p_above).grace),
             coalesce((p_policy).max_hold, (p_above).max_hold),
             coalesce((p_policy).dead_after, (p_above).dead_after),
             coalesce((p_policy).expiry, (p_above).expiry),
             coalesce((p_policy).reaper, (p_above).reaper),
             coalesce((p_policy).frozen, (p_above).frozen),
             coalesce((p_policy).max_leases, (p_above).max_leases),
             case when (p_policy).max_leases is not null then (p_policy).namespace else (p_above).quota_prefix end,
             coalesce((p_policy).max_waiters, (p_above).max_waiters),
             coalesce((p_policy).free_retention, (p_above).free_retention),
             coalesce((p_policy).max_reap_failures, (p_above).max_reap_failures),
             coalesce((p_policy).hook_timeout, (p_above).hook_timeout),
             coalesce((p_policy).at_least, (p_above).at_least),
             coalesce((p_policy).capacity, (p_above).capacity),
             coalesce((p_policy).end_at_max_hold, (p_above).end_at_max_hold),
             coalesce((p_policy).max_priority, (p_above).max_priority),
             coalesce((p_policy).ageing, (p_above).ageing), null)::leasehold.rules
$$;

-- The rules in force for a namespace: every column from the longest prefix that sets it; no slots. Locks nothing.
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
     order by length(p.namespace)
  loop
    v_rules := leasehold_internal.rules_over(v_rules, v_policy);
  end loop;
  if v_rules.namespace is not null then
    v_rules.namespace := p_namespace;
  end if;
  return v_rules;
end
$$;

-- All rules at once, for a query over many namespaces: the rules of a namespace are rules[width_bucket(namespace || '.', starts)], for between two
-- starts the same policies cover everything. A policy covers what begins with its prefix and a dot; a slash comes next after the
-- dot, and there the policy above it goes on. In time that grows with the policies. Locks nothing.
create or replace function leasehold_internal.rules_by_range(out starts text[], out rules leasehold.rules[])
language plpgsql stable
as $$
declare
  v_open leasehold.rules[] := '{}';
  v_depth integer := 0;
  v_found record;
begin
  starts := '{}';
  rules := '{}';
  for v_found in
    select b.at, b.is_end, p as policy
      from leasehold.policy p
     cross join lateral (values (case when p.namespace = '' then '' else p.namespace || '.' end, false),
                                (case when p.namespace <> '' then p.namespace || '/' end, true)) b (at, is_end)
     where b.at is not null
     order by b.at collate "C"
  loop
    if v_found.is_end then
      v_depth := v_depth - 1;
    else
      v_open[v_depth + 1] := leasehold_internal.rules_over(case when v_depth > 0 then v_open[v_depth] end, v_found.policy);
      v_depth := v_depth + 1;
    end if;
    starts := starts || v_found.at;
    rules := rules || v_open[v_depth];
  end loop;
end
$$;

-- The same with the slots that this database has of it, for who grants. Locks nothing.
create or replace function leasehold_internal.granting_rules(p_namespace text) returns leasehold.rules
language plpgsql stable
as $$
declare
  v_rules leasehold.rules := leasehold_internal.policy_of(p_namespace);
begin
  if exists (select from leasehold.spread) then
    v_rules.slots := (leasehold_internal.spread_of(p_namespace)).slots;
  end if;
  return v_rules;
end
$$;

-- The same for each of the given (valid, distinct) namespaces. Returns one row for each. Locks nothing.
create or replace function leasehold_internal.policies_of(p_namespaces text[]) returns setof leasehold.rules
language plpgsql stable rows 1
as $$
declare
  v_namespace text;
  v_rules leasehold.rules;
begin
  foreach v_namespace in array p_namespaces loop
    v_rules := leasehold_internal.granting_rules(v_namespace);
    if v_rules.namespace is not null then
      return next v_rules;
    end if;
  end loop;
end
$$;

-- The same, to be used in FROM, where it becomes a part of the query: where only the root is configured for it, that is one row read. Locks
-- nothing.
create or replace function leasehold_internal.rules_of(p_namespace text) returns setof leasehold.rules
language sql stable
as $$
  select (o.rules).*
    from (select case when exists (select from leasehold.policy q where q.namespace > '' and q.namespace = any (leasehold_internal.prefixes(p_namespace)))
                      then leasehold_internal.granting_rules(p_namespace)
                      else row(p_namespace, p.min_duration, p.max_duration, p.grace, p.max_hold, p.dead_after, p.expiry, p.reaper, p.frozen,
                               p.max_leases, ''::text, p.max_waiters, p.free_retention, p.max_reap_failures, p.hook_timeout, p.at_least,
                               p.capacity, p.end_at_max_hold, p.max_priority, p.ageing,
                               case when exists (select from leasehold.spread) then (leasehold_internal.spread_of(p_namespace)).slots end
                              )::leasehold.rules end as rules
            from leasehold.policy p
           where p.namespace = ''
          offset 0) o
$$;

-- Those of one namespace. To be used in a query, where it becomes a part of it. Locks nothing.
create or replace function leasehold_internal.rules_at(p_rules leasehold.rules[], p_starts text[], p_namespace text) returns leasehold.rules
language sql immutable parallel safe
as $$
  select p_rules[width_bucket((p_namespace || '.') collate "C", p_starts)]
$$;
