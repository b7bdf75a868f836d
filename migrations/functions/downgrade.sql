-- From exclusive to shared, and from more units to fewer, without letting go in between. The lease keeps its lease key and its time of grant;
-- one that was exclusive gets a new token. It is renewed, and the hooks of a renewal run.

-- Let others share a lease that is held under this lease key: it takes `p_units` from then on. Of a shared lease the highest numbers go; one
-- that takes so many already is renewed. Returns one row, as acquire_batch() does: outcome ok with the lease, busy, lost (not held), invalid
-- with field and bound, quota, rejected with a hook's words; or, where this call runs no hooks, hooked, with their time limit. `wake`: the
-- first live waiter, for whom there is room now, is `p_coordinator`'s own; others are notified.
-- Locks the scope's row FOR UPDATE SKIP LOCKED, for an exclusive lease ends: a guard of it keeps that off; then the holder's FOR NO KEY UPDATE.
create or replace function leasehold_internal.downgrade_one(
  p_coordinator uuid, p_clock timestamptz, p_namespace text, p_key text, p_lease_key uuid, p_units integer, p_principal text default null)
returns table (
  {{answer.table}}, wake boolean)
language plpgsql
security definer
{{few.settings}}
as $$
#variable_conflict use_column
declare
  v_work leasehold.item_work[];
  v_item leasehold.item_work;
  v_holder leasehold.scope;
  v_scope leasehold.scope;
  v_rules leasehold.rules;
  v_life leasehold.life_now;
  v_now timestamptz;
  v_deadline timestamptz;
  v_granted_by uuid;
  v_problem leasehold_internal.problem := leasehold_internal.downgrade_problem(p_namespace, p_key, p_lease_key, p_units);
begin
  n := 1;
  wake := false;
  if v_problem.field is not null then
    outcome := 'invalid';
    field := v_problem.field;
    bound := v_problem.bound;
    return next;
    return;
  end if;

  perform leasehold_internal.be_durable();
  select r.* into v_rules from leasehold_internal.policies_of(array[p_namespace]) r;
  select s.* into v_scope from leasehold.scope s where s.namespace = p_namespace and s.key = p_key for update skip locked;
  v_work := array[row(1, p_namespace, p_key, p_lease_key, null, null, null, null, case when found then v_scope end,
                      case when found then 'locked' else 'missing' end, null, null, null, null, null)::leasehold.item_work];
  v_work := leasehold_internal.take_holders(leasehold_internal.mark_busy(v_work), false);
  {{lost_marked.text}}
  v_holder := (v_work[1]).scope;
  -- What a shared holder takes already it keeps, whatever the capacity is now.
  if (v_work[1]).outcome = 'ok' and p_units > coalesce(v_holder.units, v_rules.capacity) then
    outcome := 'invalid';
    field := 'units';
    bound := case when v_holder.units is null then format('1 to %s', v_rules.capacity)
                  else format('1 to %s, what the lease takes', v_holder.units) end;
    return next;
    return;
  end if;
  if exists (select from leasehold.registered_hook) then
    v_work := leasehold_internal.hook_items(v_work, 'heartbeat', leasehold_internal.runs_hooks(p_coordinator is null), v_now);
  end if;
  v_item := v_work[1];
  outcome := v_item.outcome;
  if outcome <> 'ok' then
    message := case when outcome in ('hooked', 'rejected') then v_item.error else v_item.end_reason end;
    return next;
    return;
  end if;

  v_deadline := leasehold_internal.renewed_until(v_holder, v_holder.duration, leasehold_internal.hold_limit(v_rules), v_life, v_now);
  -- As a renewal: by another coordinator, neither of the two takes it back.
  v_granted_by := case when p_coordinator is null or v_holder.granted_by = p_coordinator then v_holder.granted_by
                       else '00000000-0000-0000-0000-000000000000' end;
  if v_holder.units is null then
    perform leasehold_internal.ensure_epoch();
    if exists (select from leasehold.policy p where p.history) then
      perform leasehold_internal.record_holds(array[v_holder], v_now, null, null);
    end if;
    with shared as (
      insert into leasehold.share as h (
        {{share_grant.columns}})
      select {{share_grant.values o}}
        from (select p_namespace as namespace, p_key as key, p_lease_key as lease_key, p_units as units,
                     case when v_rules.capacity is not null then array(select generate_series(1, p_units)) end as slots,
                     v_holder.acquired_at, v_now as now, v_holder.heartbeats, v_deadline as deadline, v_life.id as life_id, v_holder.check_at,
                     v_granted_by as coordinator, v_holder.duration, v_holder.grace, v_holder.owner,
                     coalesce(p_principal, v_holder.principal) as principal, v_holder.labels) o
      returning h.token)
    update leasehold.scope s
       set state = 'shared',
           lease_key = null,
           token = h.token,
           units = p_units,
           holders = 1,
           lapsed = false,
           reap_failures = 0,
           incarnation = null,
           queued = true
      from shared h
     where s.namespace = p_namespace and s.key = p_key;
  else
    update leasehold.share h
       set units = p_units,
           slots = h.slots[:p_units],
           heartbeat_at = v_now,
           deadline = v_deadline,
           incarnation = v_life.id,
           granted_by = v_granted_by
     where h.namespace = p_namespace and h.key = p_key and h.lease_key = p_lease_key;
    update leasehold.scope s
       set units = s.units - v_holder.units + p_units
     where s.namespace = p_namespace and s.key = p_key and v_holder.units > p_units;
  end if;
  if v_holder.units is distinct from p_units
     and (exists (select from leasehold.watch) or leasehold_internal.is_blind()) then
    perform leasehold_internal.tell_watchers(array[p_namespace], array[p_key], array[p_lease_key], 'downgraded');
  end if;

  -- Who waits behind it, where there is room now. The queue is read in a statement after the lock. While the scope rests nobody
  -- comes in; whoever is woken learns until when.
  select s.* into v_scope from leasehold.scope s where s.namespace = p_namespace and s.key = p_key;
  if exists (select from leasehold.waiter q where q.namespace = p_namespace and q.key = p_key) then
    update leasehold.scope s
       set check_at = least(s.check_at, v_now + interval '1 s')
     where s.namespace = p_namespace and s.key = p_key and s.check_at > v_now + interval '1 s';
    wake := leasehold_internal.wake_head(p_coordinator, p_namespace, p_key);
  end if;
  if leasehold_internal.is_blind() then
    perform leasehold_internal.wake_everybody(p_namespace, p_key, leasehold_internal.live_coordinators(v_now));
  end if;
  v_life := leasehold_internal.life(p_clock);
  v_holder := leasehold_internal.holder_now(p_namespace, p_key, p_lease_key);
  return query
    select 1, 'ok', null::bigint, 0, f.expires_in_us, f.suspected_in_us, null::text, null::text, null::text,
           {{lease.columns f}}, leasehold_internal.rests_in_us(v_scope, v_life, v_now), {{shape.columns f}},
           leasehold_internal.units_free(v_scope, v_rules), leasehold_internal.holder_count(v_scope), wake
      from leasehold_internal.lease_facts(v_holder, v_rules, v_life, v_now) f;
end
$$;
comment on function leasehold_internal.downgrade_one is 'Let others share an exclusive lease, or give units of a shared one back, by a coordinator';

-- What is wrong with the arguments of a downgrade; null when nothing is. Locks nothing.
create or replace function leasehold_internal.downgrade_problem(p_namespace text, p_key text, p_lease_key uuid, p_units integer)
returns leasehold_internal.problem
language plpgsql
as $$
declare
  v_problem leasehold_internal.problem := leasehold_internal.holder_problem(p_namespace, p_key, p_lease_key);
begin
  if v_problem.field is null and (p_units is null or p_units not between 1 and 1000000) then
    v_problem := row('units', '1 to 1000000, is ' || coalesce(p_units::text, 'null'));
  end if;
  return v_problem;
end
$$;

-- The same for people: returns the lease, with its lease key. Raises LH001 where this lease key does not hold the scope.
-- Waits for whoever has the scope's row or guards it (bounded by lock_timeout), then locks what downgrade_one() does.
create or replace function leasehold.downgrade(namespace text, key text, lease_key uuid, units integer default 1)
returns setof leasehold.lease
language plpgsql
security definer
{{few.settings}}
as $$
#variable_conflict use_column
declare
  v_denial text := leasehold_internal.denial('lease', downgrade.namespace);
  v_problem leasehold_internal.problem := leasehold_internal.downgrade_problem(
                                             downgrade.namespace, downgrade.key, downgrade.lease_key, downgrade.units);
  v_answer record;
  v_lease leasehold.lease;
begin
  perform set_config('leasehold.hooks', 'inline', true);
  if v_problem.field is null and v_denial is not null then
    raise exception '%', v_denial using errcode = 'LH007';
  end if;
  if v_problem.field is null then
    begin
      perform 1
         from leasehold.scope s
        where s.namespace = downgrade.namespace and s.key = downgrade.key and s.lease_key = downgrade.lease_key
          for update;
      if not found and not leasehold_internal.lock_share(downgrade.namespace, downgrade.key, downgrade.lease_key) then
        raise sqlstate 'LH900' using message = 'give the lock back';
      end if;
      select d.* into v_answer
        from leasehold_internal.downgrade_one(
               null, null, downgrade.namespace, downgrade.key, downgrade.lease_key, downgrade.units, 'role:' || session_user) d;
      v_problem := row(v_answer.field, v_answer.bound);
    exception when sqlstate 'LH900' then
      select 'lost' as outcome into v_answer;
    end;
  end if;
  if v_problem.field is not null then
    raise exception 'invalid_argument: % must be %', v_problem.field, v_problem.bound
      using errcode = 'LH002', detail = v_problem.field, hint = v_problem.bound;
  elsif v_answer.outcome = 'quota' then
    raise exception 'quota_exceeded: % has reached its limit, %', downgrade.namespace, v_answer.bound
      using errcode = 'LH004', hint = v_answer.bound;
  elsif v_answer.outcome = 'rejected' then
    raise exception 'hook_rejected: %', v_answer.message using errcode = 'LH005';
  elsif v_answer.outcome <> 'ok' then
    raise exception 'lease_lost: % is not held with this lease key', leasehold_internal.scope_name(downgrade.namespace, downgrade.key)
      using errcode = 'LH001';
  end if;
  select l.* into v_lease from leasehold_internal.leases_of(downgrade.namespace, downgrade.key, v_answer.token) l;
  v_lease.lease_key := downgrade.lease_key;
  return next v_lease;
end
$$;
comment on function leasehold.downgrade is
  'Let others share a lease that is held exclusively, or give units of a shared one back, and renew it: the lease as it is then. Example:
  select token, mode, units from leasehold.downgrade(''jobs'', ''nightly'', :''lease_key'')';

grant execute on function leasehold_internal.downgrade_one to leasehold_coordinator, leasehold_admin;
grant execute on function leasehold.downgrade to leasehold_client, leasehold_admin;
