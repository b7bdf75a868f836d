-- Holders that wait for each other around a circle: nobody of it goes on before one gives up. Whoever has the same owner and principal
-- counts as one, and only what its reader may read counts; who waits for itself is left out, for the owner of many programs is their host.
-- A holder past its deadline has lost, and is part of no circle. Locks nothing.
create or replace view leasehold.deadlock with (security_barrier) as
  with recursive held as (
    select s.namespace, s.key, s.owner, s.principal, (s.owner || e'\n' || coalesce(s.principal, '')) collate "C" as holder
      from leasehold_internal.life_and_time() n
     cross join (select x.namespace, x.key, x.owner, x.principal, x.deadline from leasehold.scope x where x.state = 'held'
                  union all
                 select h.namespace, h.key, h.owner, h.principal, h.deadline from leasehold.share h where h.state = 'held') s
     where s.owner <> '' and s.deadline > n.now
       and coalesce((s.namespace || '.') like any ((select leasehold_internal.readable())::text[]), false)
  ), wait as (
    select w.namespace, w.key, w.owner, w.principal, n.now - w.enqueued_at as waiting, w.wait_until, (w.owner || e'\n' || coalesce(w.principal, '')) collate "C" as waiter,
           h.owner as held_by, h.principal as held_by_principal, h.holder
      from leasehold_internal.life_and_time() n
     cross join leasehold.waiter w
      join held h
        on h.namespace = w.namespace and h.key = w.key
     where (w.wait_until is null or w.wait_until > n.now)
       and (w.away_until is null or w.away_until > n.now)
       and (w.owner || e'\n' || coalesce(w.principal, '')) collate "C" in (select o.holder from held o)
       and (w.owner || e'\n' || coalesce(w.principal, '')) collate "C" <> h.holder
  ), reach as (
    select w.waiter, w.holder from wait w
     union
    select r.waiter, w.holder from reach r join wait w on w.waiter = r.holder
  )
  select dense_rank() over (order by (select min(r.holder)
                                        from reach r
                                        join reach b
                                          on b.waiter = r.holder and b.holder = r.waiter
                                       where r.waiter = w.waiter)) as circle,
         w.owner, w.principal, w.namespace, w.key, w.held_by, w.held_by_principal, w.waiting, w.wait_until
    from wait w
   where exists (select from reach r where r.waiter = w.holder and r.holder = w.waiter);

comment on view leasehold.deadlock is 'Holders that wait for each other around a circle; a row for each of its waits';
comment on column leasehold.deadlock.circle is 'The rows of one circle have the same number';
comment on column leasehold.deadlock.owner is 'Who waits, and holds what another of the circle waits for';
comment on column leasehold.deadlock.principal is 'Who waits, as proved';
comment on column leasehold.deadlock.namespace is 'Of the scope that it waits for';
comment on column leasehold.deadlock.key is 'Of the scope that it waits for';
comment on column leasehold.deadlock.held_by is 'Who holds that scope, and waits, too';
comment on column leasehold.deadlock.held_by_principal is 'Who holds it, as proved';
comment on column leasehold.deadlock.waiting is 'For how long';
comment on column leasehold.deadlock.wait_until is 'When its wait is over, and with it the circle; null: never by itself';

-- Is a scope part of such a circle? Looks at all waiters only where a holder of it waits for something, too. For explain(), whose caller may
-- not read the rest of the circle, so it names nobody. Locks nothing.
create or replace function leasehold_internal.is_deadlocked(p_namespace text, p_key text) returns boolean
language plpgsql stable
as $$
begin
  if not exists (select
                   from leasehold.waiter w
                  where w.owner in (select s.owner from leasehold.scope s
                                     where s.namespace = p_namespace and s.key = p_key and s.state = 'held'
                                     union all
                                    select h.owner from leasehold.share h
                                     where h.namespace = p_namespace and h.key = p_key and h.state = 'held')
                    and w.owner <> '' and (w.namespace, w.key) <> (p_namespace, p_key)) then
    return false;
  end if;
  return exists (select from leasehold.deadlock d where d.namespace = p_namespace and d.key = p_key);
end
$$;

grant select on leasehold.deadlock to leasehold_reader, leasehold_coordinator, leasehold_admin;
