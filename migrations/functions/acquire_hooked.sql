-- Acquiring where there are hooks: what acquire_batch() leaves to this. acquire_general() decides; nothing is decided here again.

-- One item whose namespace has hooks. In a subtransaction: where a hook vetoes, nothing was done (rejected), and where this
-- lease key waited, its place goes, and the next is woken; waiters_ahead is -1 where that is `p_coordinator`'s own.
-- Locks what acquire_general() does, and the row first, so that it stays ours whatever the hook says.
create or replace function leasehold_internal.acquire_hooked(
  p_coordinator uuid, p_clock timestamptz, p_namespace text, p_key text, p_lease_key uuid, p_owner text,
  p_labels text, p_duration_us bigint, p_queue boolean, p_wait_us bigint, p_ticket bigint, p_principal text, p_at_least_us bigint, p_units integer,
  p_priority integer default null)
returns setof leasehold_internal.answer
language plpgsql
as $$
declare
  v_answer leasehold_internal.answer;
  v_scope leasehold.scope;
begin
  select s.* into v_scope
    from leasehold.scope s
   where s.namespace = p_namespace and s.key = p_key
     for no key update skip locked;
  begin
    return query
      select c.*
        from leasehold_internal.acquire_general(
               p_coordinator, p_clock, array[p_namespace], array[p_key], array[p_lease_key], array[p_owner], array[p_labels],
               array[p_duration_us], array[p_queue], array[p_wait_us], array[p_ticket], array[p_principal], array[p_at_least_us], array[p_units],
               p_priority => array[p_priority]) c;
    return;
  exception when sqlstate 'LH905' then
    v_answer.message := sqlerrm;
  end;

  v_answer.n := 1;
  v_answer.outcome := 'rejected';
  v_answer.waiters_ahead := 0;
  if v_scope.namespace is not null then
    delete from leasehold.waiter w
     where w.lease_key = p_lease_key and (w.namespace, w.key) is not distinct from (p_namespace, p_key);
    if found and (v_scope.state <> 'held' or v_scope.lapsed or v_scope.deadline + v_scope.grace <= clock_timestamp())
       and leasehold_internal.wake_head(p_coordinator, p_namespace, p_key) then
      v_answer.waiters_ahead := -1;
    end if;
  end if;
  return next v_answer;
end
$$;

-- The hooks of reaping for leases that are about to be taken over: where there are any, each in a subtransaction with the end of its lease. Where
-- one vetoes, that is written down, the item gets no lease, and the others' hooks do not run. The caller has the rows locked FOR UPDATE.
create or replace function leasehold_internal.reap_for_takeover(inout p_work leasehold.acquire_work[], out veto text)
language plpgsql
as $$
declare
  v_item leasehold.acquire_work;
begin
  for v_item in
    select w.* from unnest(p_work) w where w.outcome = 'granted' and w.hold = 'expired' order by w.namespace collate "C", w.key collate "C"
  loop
    continue when leasehold_internal.hooked(array[v_item.namespace], 'reap') = '{}';
    veto := leasehold_internal.try_hooks(
              leasehold_internal.event_of('reap', v_item.scope, (v_item.scope).deadline, null, null),
              row(v_item.namespace, v_item.key, 'expired', null, null, (v_item.scope).queued, null, null)::leasehold.lease_end);
    if veto is not null then
      perform leasehold_internal.note_reap_failure(
                v_item.namespace, v_item.key, (v_item.scope).token, veto, (v_item.rules).max_reap_failures);
      v_item.hold := 'locked';
      v_item.head_ticket := null;
      v_item.outcome := case when v_item.queue then 'queued' else 'held' end;
      p_work[v_item.n] := v_item;
      return;
    end if;
  end loop;
end
$$;

-- The hooks of grants and renewals, after the change, in byte order. Raises LH905 where one vetoes, with the number of the item in DETAIL; and
-- where a hook has ended the lease of another item. The caller has the rows locked.
create or replace function leasehold_internal.hook_grants(p_work leasehold.acquire_work[]) returns void
language plpgsql
as $$
declare
  v_item leasehold.acquire_work;
  v_scope leasehold.scope;
  v_event text;
  v_veto text;
  v_has_run boolean := false;
begin
  for v_item in
    select w.* from unnest(p_work) w order by w.namespace collate "C", w.key collate "C", w.n
  loop
    v_event := case when v_item.outcome = 'granted' then 'acquire'
                    when v_item.outcome = 'renewed' and v_item.hold = 'locked' then 'heartbeat' end;
    if v_event is not null and leasehold_internal.hooked(array[v_item.namespace], v_event) <> '{}' then
      v_scope := leasehold_internal.holder_now(v_item.namespace, v_item.key, v_item.lease_key);
      v_veto := leasehold_internal.try_hooks(leasehold_internal.event_of(v_event, v_scope, v_scope.deadline, null, null));
      if v_veto is not null then
        raise sqlstate 'LH905' using message = v_veto, detail = v_item.n;
      end if;
      v_has_run := true;
      perform leasehold_internal.be_durable();
    end if;
  end loop;
  if v_has_run and cardinality(p_work) > 1 then
    perform 1
       from unnest(p_work) w
      where w.outcome in ('granted', 'renewed')
        and (leasehold_internal.holder_now(w.namespace, w.key, w.lease_key)).token is null;
    if found then
      raise sqlstate 'LH905' using message = 'a hook has ended a lease that was acquired together with its own', detail = 1;
    end if;
  end if;
end
$$;

-- Items that need a hook, where this call runs none, become 'hooked'; and so do those of the same scope that came later, and where
-- it is a grant, all that it would have left waiting: so nobody overtakes. Locks nothing.
create or replace function leasehold_internal.leave_hooked(p_work leasehold.acquire_work[]) returns leasehold.acquire_work[]
language plpgsql
as $$
declare
  v_namespaces text[] := array(select distinct w.namespace from unnest(p_work) w where w.outcome in ('granted', 'renewed'));
  v_item leasehold.acquire_work;
  v_acquire text[];
  v_heartbeat text[];
  v_reap text[];
begin
  v_acquire := leasehold_internal.hooked(v_namespaces, 'acquire');
  v_heartbeat := leasehold_internal.hooked(v_namespaces, 'heartbeat');
  v_reap := leasehold_internal.hooked(v_namespaces, 'reap');
  if v_acquire = '{}' and v_heartbeat = '{}' and v_reap = '{}' then
    return p_work;
  end if;
  for v_item in
    select (w.item).*
      from (select i.item,
                   bool_or(i.is_grant) over (partition by (i.item).namespace, (i.item).key)
                   or bool_or(i.is_renewal) over (partition by (i.item).namespace, (i.item).key order by (i.item).n) as is_left
              from (select u as item,
                           u.outcome = 'granted'
                           and (u.namespace = any (v_acquire) or (u.hold = 'expired' and u.namespace = any (v_reap))) as is_grant,
                           u.outcome = 'renewed' and u.hold = 'locked' and u.namespace = any (v_heartbeat) as is_renewal
                      from unnest(p_work) u) i) w
     where w.is_left and (w.item).outcome in ('granted', 'renewed', 'queued', 'held')
  loop
    v_item.outcome := 'hooked';
    p_work[v_item.n] := v_item;
  end loop;
  return p_work;
end
$$;
