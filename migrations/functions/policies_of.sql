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

-- The rules in force for each of the given (valid, distinct) namespaces: every column from the longest prefix that sets
-- it. Returns one row for each. Locks nothing.
create or replace function leasehold_internal.policies_of(p_namespaces text[]) returns setof leasehold.rules
language plpgsql stable
as $$
begin
  -- Where only the root is configured there is nothing to inherit.
  if not exists (select 1 from leasehold.policy p where p.namespace > '') then
    return query
    select n.namespace, p.min_duration, p.max_duration, p.grace, p.max_hold, p.dead_after, p.expiry, p.reaper, p.frozen,
           p.max_leases, ''::text, p.max_waiters, p.free_retention, p.max_reap_failures, p.hook_timeout, p.at_least, p.capacity
      from unnest(p_namespaces) as n (namespace), leasehold.policy p;
    return;
  end if;
  return query
  select n.namespace,
         (array_agg(p.min_duration order by length(p.namespace) desc) filter (where p.min_duration is not null))[1],
         (array_agg(p.max_duration order by length(p.namespace) desc) filter (where p.max_duration is not null))[1],
         (array_agg(p.grace order by length(p.namespace) desc) filter (where p.grace is not null))[1],
         (array_agg(p.max_hold order by length(p.namespace) desc) filter (where p.max_hold is not null))[1],
         (array_agg(p.dead_after order by length(p.namespace) desc) filter (where p.dead_after is not null))[1],
         (array_agg(p.expiry order by length(p.namespace) desc) filter (where p.expiry is not null))[1],
         (array_agg(p.reaper order by length(p.namespace) desc) filter (where p.reaper is not null))[1],
         (array_agg(p.frozen order by length(p.namespace) desc) filter (where p.frozen is not null))[1],
         (array_agg(p.max_leases order by length(p.namespace) desc) filter (where p.max_leases is not null))[1],
         (array_agg(p.namespace order by length(p.namespace) desc) filter (where p.max_leases is not null))[1],
         (array_agg(p.max_waiters order by length(p.namespace) desc) filter (where p.max_waiters is not null))[1],
         (array_agg(p.free_retention order by length(p.namespace) desc) filter (where p.free_retention is not null))[1],
         (array_agg(p.max_reap_failures order by length(p.namespace) desc)
            filter (where p.max_reap_failures is not null))[1],
         (array_agg(p.hook_timeout order by length(p.namespace) desc) filter (where p.hook_timeout is not null))[1],
         (array_agg(p.at_least order by length(p.namespace) desc) filter (where p.at_least is not null))[1],
         (array_agg(p.capacity order by length(p.namespace) desc) filter (where p.capacity is not null))[1]
    from unnest(p_namespaces) as n (namespace)
    join leasehold.policy p
      on p.namespace = any (leasehold_internal.prefixes(n.namespace))
   group by n.namespace;
end
$$;

-- The same for one namespace, to be used in FROM, where it becomes a part of the query: where only the root is configured for it,
-- that is one row read. Locks nothing.
create or replace function leasehold_internal.rules_of(p_namespace text) returns setof leasehold.rules
language sql stable
as $$
  select p_namespace, p.min_duration, p.max_duration, p.grace, p.max_hold, p.dead_after, p.expiry, p.reaper, p.frozen,
         p.max_leases, ''::text, p.max_waiters, p.free_retention, p.max_reap_failures, p.hook_timeout, p.at_least, p.capacity
    from leasehold.policy p
   where p.namespace = ''
     and not exists (select from leasehold.policy q where q.namespace > '' and leasehold_internal.covers(q.namespace, p_namespace))
  union all
  select r.*
    from leasehold_internal.policies_of(array[p_namespace]) r
   where exists (select from leasehold.policy q where q.namespace > '' and leasehold_internal.covers(q.namespace, p_namespace))
$$;

revoke execute on function leasehold_internal.policies_of(text[]), leasehold_internal.prefixes(text),
  leasehold_internal.covers(text, text), leasehold_internal.rules_of(text) from public;
