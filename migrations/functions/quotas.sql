-- The limits of a policy on how many leases are held and how many callers wait: max_leases and max_waiters.

-- How many leases may still be granted under the prefix that sets max_leases; null where none does. Locks nothing.
create or replace function leasehold_internal.leases_left(p_rules leasehold.rules) returns bigint
language plpgsql
set enable_seqscan = on
as $$
begin
  if p_rules.max_leases is null then
    return null;
  end if;
  return p_rules.max_leases
         - (select coalesce(sum(leasehold_internal.holder_count(s)), 0)
              from leasehold.scope s
             where s.state <> 'free'
               and (p_rules.quota_prefix = ''
                    or s.namespace = p_rules.quota_prefix
                    or (s.namespace > p_rules.quota_prefix || '.' and s.namespace < p_rules.quota_prefix || '/')));
end
$$;

-- Near a limit grants go one after the other, so that it is exact: whoever has the turn of the prefix counts what all before it have
-- committed. Returns the prefixes near their limit whose turn another session has: their grants are busy. Far from it nobody takes a
-- turn; 2,000 is more than what batches in flight grant at once. Locks the policies' rows in leasehold.quota_turn.
create or replace function leasehold_internal.take_quota_turns(p_work leasehold.acquire_work[]) returns text[]
language plpgsql
as $$
declare
  v_rules leasehold.rules;
  v_busy text[] := '{}';
begin
  for v_rules in
    select distinct on ((w.rules).quota_prefix) (w.rules).*
      from unnest(p_work) w
     where w.outcome = 'granted' and (w.hold <> 'expired' or w.units is not null) and (w.rules).max_leases is not null
     order by (w.rules).quota_prefix
  loop
    if leasehold_internal.leases_left(v_rules) <= 2000 then
      perform 1 from leasehold.quota_turn t where t.prefix = v_rules.quota_prefix for update skip locked;
      if not found then
        v_busy := v_busy || v_rules.quota_prefix;
      end if;
    end if;
  end loop;
  return v_busy;
end
$$;

-- Grants beyond max_leases and places beyond max_waiters become 'quota'; grants whose turn another session has, 'busy'. Leases are
-- counted under the prefix that sets the limit, in a statement after the one that took its turn. Locks nothing.
create or replace function leasehold_internal.apply_quotas(p_work leasehold.acquire_work[], p_busy text[])
returns leasehold.acquire_work[]
language plpgsql
as $$
declare
  v_found record;
  v_item leasehold.acquire_work;
begin
  for v_found in
    select w.n, w.is_busy, w.is_over
      from (select u.*,
                   u.outcome = 'granted' and not u.replaces and (u.rules).quota_prefix = any (p_busy) as is_busy,
                   coalesce(
                     case u.outcome
                       when 'granted' then
                         not u.replaces
                         and row_number() over (partition by (u.rules).quota_prefix, u.outcome, u.replaces order by u.n)
                             > l.leases_left
                       when 'queued' then
                         u.own_ticket is null
                         and row_number() over (partition by u.namespace, u.key, u.outcome, u.own_ticket is null order by u.n)
                             + (select count(*) from leasehold.waiter q where q.namespace = u.namespace and q.key = u.key)
                             > (u.rules).max_waiters
                     end, false) as is_over
              from (select p.*,
                           -- A takeover frees the lease that it replaces; of several shared ones the first.
                           p.hold = 'expired' and row_number() over (partition by p.namespace, p.key, p.outcome order by p.n) = 1 as replaces
                      from unnest(p_work) p) u
              left join (select d.quota_prefix, leasehold_internal.leases_left(d.rules) as leases_left
                           from (select distinct on ((x.rules).quota_prefix) (x.rules).quota_prefix, x.rules
                                   from unnest(p_work) x
                                  where x.outcome = 'granted' and (x.rules).max_leases is not null
                                 offset 0) d
                         offset 0) l
                on l.quota_prefix = (u.rules).quota_prefix) w
     where w.is_busy or w.is_over
  loop
    v_item := p_work[v_found.n];
    if v_found.is_over then
      v_item.bound := case when v_item.outcome = 'granted' then format('max_leases = %s', (v_item.rules).max_leases)
                           else format('max_waiters = %s', (v_item.rules).max_waiters) end;
    end if;
    v_item.outcome := case when v_found.is_busy then 'busy' else 'quota' end;
    p_work[v_item.n] := v_item;
  end loop;
  return p_work;
end
$$;

revoke execute on function leasehold_internal.apply_quotas(leasehold.acquire_work[], text[]),
  leasehold_internal.leases_left(leasehold.rules), leasehold_internal.take_quota_turns(leasehold.acquire_work[]) from public;
