-- The reaper's visits to shared holders. As items of reap_batch() they look like scopes that they hold by themselves (is_share).

-- The rows of leasehold.share whose check_at has come, oldest first: holders, and those that have ended, which are remembered no longer. Locks
-- a holder's scope FOR NO KEY UPDATE SKIP LOCKED, then the rows FOR UPDATE SKIP LOCKED.
create or replace function leasehold_internal.take_due_shares(p_max integer, p_now timestamptz) returns leasehold.item_work[]
language plpgsql
{{joins.settings}}
as $$
begin
  if not exists (select from leasehold.share h where h.check_at <= p_now) then
    return '{}';
  end if;
  return array(
    select row(0, h.namespace, h.key, h.lease_key, null, null, null, null, leasehold_internal.scope_of_share(h.share), 'locked', null, null,
               null, null, null)::leasehold.item_work
      from (select x.namespace, x.key, x.lease_key, x.state
              from leasehold.share x
             where x.check_at <= p_now
             order by x.check_at) d
      left join lateral (
        select true as is_mine
          from leasehold.scope s
         where d.state = 'held' and s.namespace = d.namespace and s.key = d.key
           for no key update skip locked) o on true
     cross join lateral (
       select x as share, x.namespace, x.key, x.lease_key
         from leasehold.share x
        where (d.state = 'ended' or o.is_mine)
          and x.namespace = d.namespace and x.key = d.key and x.lease_key = d.lease_key and x.state = d.state
          for update skip locked) h
     limit p_max);
end
$$;

-- The expired shared holders of these namespaces, whatever their check_at, as take_expired() finds the exclusive ones. Locks their scopes FOR
-- NO KEY UPDATE SKIP LOCKED, then their rows FOR UPDATE SKIP LOCKED.
create or replace function leasehold_internal.take_expired_shares(
  p_namespaces text[], p_include_children boolean, p_by_name boolean, p_key text, p_max integer, p_life leasehold.life_now, p_now timestamptz)
returns leasehold.item_work[]
language plpgsql
{{joins.settings}}
as $$
begin
  return array(
    select row(0, h.namespace, h.key, h.lease_key, null, null, null, null, leasehold_internal.scope_of_share(h.share), 'locked', null, null,
               null, null, null)::leasehold.item_work
      from (select x.namespace, x.key, x.lease_key
              from (select distinct y.namespace
                      from unnest(p_namespaces) as n (namespace)
                      join leasehold.share y
                        on y.namespace = n.namespace
                        or (p_include_children and y.namespace > n.namespace || '.' and y.namespace < n.namespace || '/')
                     where y.state = 'held' and (y.lapsed or y.deadline <= p_now)) e
             cross join lateral leasehold_internal.policies_of(array[e.namespace]) r
              join leasehold.share x on x.namespace = e.namespace
             where x.state = 'held' and (p_key is null or x.key = p_key) and (x.lapsed or x.deadline <= p_now)
               and leasehold_internal.is_expired(leasehold_internal.scope_of_share(x), p_life, r.expiry, p_now)
               and not leasehold_internal.has_failed_since(x.reap_failures, x.reap_failed_at, statement_timestamp(), p_now)
               and (p_by_name
                    or (r.reaper = 'auto'
                        and not leasehold_internal.is_put_off(leasehold_internal.scope_of_share(x), r.max_reap_failures, p_now)))
             order by x.reap_failures > 0, x.namespace, x.key, x.token) d
     cross join lateral (
       select true as is_mine from leasehold.scope s where s.namespace = d.namespace and s.key = d.key for no key update skip locked) o
     cross join lateral (
       select x as share, x.namespace, x.key, x.lease_key
         from leasehold.share x
        where o.is_mine and x.namespace = d.namespace and x.key = d.key and x.lease_key = d.lease_key and x.state <> 'ended'
          for update skip locked) h
     limit p_max);
end
$$;

-- What reap_batch() does to the rows of shared holders that do not end now: those that ended longer than free_retention ago are forgotten,
-- and check_at of the others moves on. `p_by_name`: an external reaper asks. Where all that is due was taken (`p_is_all`), rows that others have
-- are looked at again in a second. The caller has the items' rows locked.
create or replace function leasehold_internal.put_off_shares(
  p_work leasehold.item_work[], p_rules leasehold.rules[], p_life leasehold.life_now, p_by_name boolean, p_is_all boolean, p_now timestamptz)
returns void
language plpgsql
{{joins.settings}}
as $$
begin
  if exists (select 1 from unnest(p_work) w where w.hold in ('delete', 'later', 'hooked') and leasehold_internal.is_share(w.scope)) then
    delete from leasehold.share h
     using unnest(p_work) w
     where w.hold = 'delete' and leasehold_internal.is_share(w.scope)
       and h.namespace = w.namespace and h.key = w.key and h.lease_key = (w.scope).ended_keys[1] and h.state = 'ended';
    update leasehold.share h
       set check_at = case
             when h.state = 'ended' then greatest(h.ended_at + r.free_retention, p_now + interval '100 ms')
             else leasehold_internal.next_look(w.scope, w.hold, r.rules, p_life, p_by_name, p_now) end
      from unnest(p_work) w
     cross join lateral (select x as rules, x.free_retention from unnest(p_rules) x where x.namespace = w.namespace) r
     where w.hold in ('later', 'hooked') and leasehold_internal.is_share(w.scope)
       and h.namespace = w.namespace and h.key = w.key and h.lease_key = coalesce((w.scope).lease_key, (w.scope).ended_keys[1]);
  end if;
  if p_is_all and exists (select from leasehold.share h where h.check_at <= p_now) then
    update leasehold.share h
       set check_at = p_now + interval '1 s'
      from (select x.namespace, x.key, x.lease_key
              from leasehold.share x
             where x.check_at <= p_now
             order by x.check_at
             limit 1000
               for no key update skip locked) d
     where h.namespace = d.namespace and h.key = d.key and h.lease_key = d.lease_key;
  end if;
end
$$;
