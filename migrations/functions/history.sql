-- The history of holds: written in the transaction that ends a lease, kept in partitions of a day (keeping.sql).

-- Those of the given namespaces (valid, distinct) whose policy says history. Locks nothing.
create or replace function leasehold_internal.with_history(p_namespaces text[]) returns text[]
language plpgsql stable
as $$
begin
  return array(
    select n
      from unnest(p_namespaces) n
     where (select p.history
              from leasehold.policy p
             where p.namespace = any (leasehold_internal.prefixes(n)) and p.history is not null
             order by length(p.namespace) desc
             limit 1));
end
$$;

-- Write down the holds of scopes that have just become free, and of those that were taken over (`p_taken_over`: their rows from
-- before), where the policy asks for it. The caller has asked whether any does, and has the rows locked. Locks the history
-- ROW EXCLUSIVE.
create or replace function leasehold_internal.record_holds(
  p_taken_over leasehold.scope[], p_now timestamptz, p_namespace text[], p_key text[])
returns void
language plpgsql
as $$
declare
  v_kept text[];
begin
  v_kept := leasehold_internal.with_history(array(
    select n from unnest(p_namespace) n union select o.namespace from unnest(p_taken_over) o));
  if cardinality(v_kept) = 0 then
    return;
  end if;
  insert into leasehold.history (namespace, key, token, acquired_at, ended_at, outcome, owner, result, error, ended_by, principal)
  select o.namespace, o.key, o.token, o.acquired_at, p_now, 'expired', o.owner, null, null, null, o.principal
    from unnest(p_taken_over) o
   where o.namespace = any (v_kept)
  union all
  select s.namespace, s.key, s.token, s.acquired_at, s.ended_at, s.last_outcome, s.owner, s.last_result, s.last_error,
         case when s.last_outcome = 'forced' then current_setting('leasehold.ended_by') end, s.principal
    from unnest(p_namespace, p_key) as c (namespace, key)
    join leasehold.scope s
      on s.namespace = c.namespace and s.key = c.key
   where c.namespace = any (v_kept) and s.state = 'free';
end
$$;

revoke execute on function leasehold_internal.with_history(text[]),
  leasehold_internal.record_holds(leasehold.scope[], timestamptz, text[], text[]) from public;
grant select on leasehold.history to leasehold_reader, leasehold_coordinator, leasehold_admin;
