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

-- Write down the holds of scopes that have just become free, those of the shared holders that `p_lease_key` names, and exclusive ones that
-- have become shared (`p_downgraded`: their rows from before), where the policy asks for it. The caller has asked whether any does, and has the rows locked. Locks the history
-- ROW EXCLUSIVE.
create or replace function leasehold_internal.record_holds(
  p_downgraded leasehold.scope[], p_now timestamptz, p_namespace text[], p_key text[], p_lease_key uuid[] default null)
returns void
language plpgsql
as $$
declare
  v_kept text[];
begin
  v_kept := leasehold_internal.with_history(array(
    select n from unnest(p_namespace) n union select o.namespace from unnest(p_downgraded) o));
  if cardinality(v_kept) = 0 then
    return;
  end if;
  insert into leasehold.history (
    namespace, key, token, acquired_at, ended_at, outcome, owner, result, error, ended_by, principal, mode, units, slots)
  select o.namespace, o.key, o.token, o.acquired_at, p_now, 'downgraded', o.owner, null, null, null, o.principal,
         'exclusive', 0, null
    from unnest(p_downgraded) o
   where o.namespace = any (v_kept)
  union all
  select s.namespace, s.key, s.token, s.acquired_at, s.ended_at, s.last_outcome, s.owner, s.last_result, s.last_error,
         case when s.last_outcome = 'forced' then current_setting('leasehold.ended_by') end, s.principal,
         case when s.units > 0 then 'shared' else 'exclusive' end, coalesce(s.units, 0), s.slots
    from unnest(p_namespace, p_key, p_lease_key) as c (namespace, key, lease_key)
   {{changed.text}}
   where c.namespace = any (v_kept) and s.state = 'free';
end
$$;

grant select on leasehold.history to leasehold_reader, leasehold_coordinator, leasehold_admin;
