-- Acquire a lease, in the caller's transaction; never waits. Returns the lease, with its lease key, when it was granted or
-- renewed, and no row when the scope is held, busy, queued for, or rests after a lease with a minimum hold (`at_least`). `mode` is exclusive
-- or shared; a shared lease takes so many `units` of the capacity of the namespace's policy. `priority` counts where others wait.
-- Locks what acquire_batch() does for one item, and gives that back where nothing was granted: the look before it locks
-- nothing, and what the batch took goes with its subtransaction.
create or replace function leasehold.acquire(
  namespace text, key text, duration interval, owner text default null, lease_key uuid default gen_random_uuid(),
  labels jsonb default '{}', mode text default 'exclusive', units integer default 1, at_least interval default null,
  priority integer default 0)
returns setof leasehold.lease
language plpgsql
security definer
{{few.settings}}
as $$
#variable_conflict use_column
declare
  v_denial text := leasehold_internal.denial('lease', acquire.namespace);
  v_problem leasehold_internal.problem;
  v_outcome text;
  v_answer record;
  v_too_many text;
  v_denied text;
  v_lease leasehold.lease;
  v_units constant integer := case when acquire.mode = 'shared' then acquire.units end;
begin
  {{denied.text}}
  perform set_config('leasehold.hooks', 'inline', true);
  v_problem := leasehold_internal.acquire_problem(
                 acquire.namespace, acquire.key, acquire.duration, acquire.owner, acquire.lease_key, acquire.labels, acquire.mode,
                 acquire.units, acquire.at_least, acquire.priority);
  if v_problem.field is null then
    v_denied := leasehold_internal.priority_denial(acquire.namespace, acquire.key, acquire.lease_key, acquire.priority);
  end if;
  v_outcome := case when v_problem.field is not null then 'invalid'
                    when v_denied is not null then 'denied'
                    else leasehold_internal.early_outcome(acquire.namespace, acquire.key, acquire.lease_key, v_units, acquire.priority) end;

  if v_outcome is null then
    v_too_many := leasehold_internal.creation_problem(array[acquire.namespace], array[acquire.key]);
    if v_too_many is not null then
      raise exception 'quota_exceeded: %', v_too_many using errcode = 'LH004';
    end if;
    begin
      select b.outcome, coalesce(b.token, (b.more).token) as token, (b.more).message, (b.more).field, (b.more).bound into v_answer
        from leasehold_internal.acquire_items(
               null, null, array[acquire.namespace], array[acquire.key], array[acquire.lease_key], array[acquire.owner],
               array[acquire.labels::text], array[leasehold_internal.to_us(acquire.duration)], array[false], array[null::bigint],
               array[null::bigint], array['role:' || session_user],
               array[leasehold_internal.to_us(acquire.at_least)], array[v_units],
               array[-acquire.priority]) b;
      v_outcome := v_answer.outcome;
      v_problem := row(v_answer.field, v_answer.bound);
      -- Refused because the expired lease could not be reaped: that is written down, and stays.
      if v_outcome not in ('granted', 'renewed') and (v_outcome = 'rejected' or v_answer.message is null) then
        raise sqlstate 'LH900' using message = 'give the locks back';
      end if;
    exception when sqlstate 'LH900' then
      null;
    end;
  end if;

  case v_outcome
    when 'granted', 'renewed' then
      select l.* into v_lease from leasehold_internal.leases_of(acquire.namespace, acquire.key, v_answer.token) l;
      v_lease.lease_key := acquire.lease_key;
      return next v_lease;
    when 'held', 'busy' then
      null;
    when 'denied' then
      raise exception 'access_denied: priority must be %', v_denied using errcode = 'LH007', detail = 'priority', hint = v_denied;
    {{acquire_invalid.text}}
    when 'frozen' then
      raise exception 'namespace_frozen: % gives no new leases for now', acquire.namespace using errcode = 'LH003';
    when 'quota' then
      raise exception 'quota_exceeded: % has reached its limit, %', acquire.namespace, v_problem.bound
        using errcode = 'LH004', hint = v_problem.bound;
    when 'rejected' then
      raise exception 'hook_rejected: %', v_answer.message using errcode = 'LH005';
    when 'ended' then
      raise exception 'lease_ended: this lease key has held % before; a new acquisition takes a new one',
        leasehold_internal.scope_name(acquire.namespace, acquire.key) using errcode = 'LH006';
  end case;
end
$$;
comment on function leasehold.acquire is
  'Acquire a lease, or renew it under the same lease key: one row, or none when another holds it or waits for it. Never waits. With mode =>
  ''shared'' others may share it, as far as their units fit the policy''s capacity. Example:
  select lease_key, token, deadline from leasehold.acquire(''jobs'', ''nightly'', ''30 s'', owner => ''worker-3'')';

-- What is wrong with the arguments of acquire(): before it is known whether the scope is held. Locks nothing.
create or replace function leasehold_internal.acquire_problem(
  p_namespace text, p_key text, p_duration interval, p_owner text, p_lease_key uuid, p_labels jsonb, p_mode text,
  p_units integer, p_at_least interval, p_priority integer default 0)
returns leasehold_internal.problem
language plpgsql
as $$
declare
  v_problem leasehold_internal.problem := leasehold_internal.scope_problem(p_namespace, p_key);
  v_rules leasehold.rules;
begin
  {{problem.text}}
  select r.* into v_rules from leasehold_internal.policies_of(array[p_namespace]) r;
  if p_duration is null or p_duration < greatest(v_rules.min_duration, interval '100 ms')
     or p_duration > v_rules.max_duration then
    return row('duration', leasehold_internal.duration_bound(v_rules.min_duration, v_rules.max_duration, p_duration))::leasehold_internal.problem;
  elsif octet_length(p_owner) > 255 then
    return row('owner', 'at most 255 bytes, has ' || octet_length(p_owner))::leasehold_internal.problem;
  elsif p_lease_key is null then
    return row('lease_key', 'a UUID')::leasehold_internal.problem;
  elsif leasehold_internal.labels_problem(p_labels) is not null then
    return row('labels', leasehold_internal.labels_problem(p_labels))::leasehold_internal.problem;
  elsif p_at_least not between interval '0' and interval '1 day' then
    return row('at_least', '0 to 86400 s' || leasehold_internal.is_words(p_at_least))::leasehold_internal.problem;
  elsif p_priority is null or p_priority not between 0 and 1000 then
    return row('priority', '0 to 1000, is ' || coalesce(p_priority::text, 'null'))::leasehold_internal.problem;
  elsif p_mode is null or p_mode not in ('exclusive', 'shared') then
    return row('mode', 'exclusive or shared, is ' || coalesce(left(p_mode, 64), 'null'))::leasehold_internal.problem;
  elsif p_mode = 'exclusive' and p_units is distinct from 1 then
    return row('units', '1 for an exclusive lease, is ' || coalesce(p_units::text, 'null'))::leasehold_internal.problem;
  elsif p_mode = 'shared' and (p_units is null or p_units not between 1 and coalesce(v_rules.capacity, 1000000)) then
    return row('units', format('1 to %s, is %s', coalesce(v_rules.capacity, 1000000), coalesce(p_units::text, 'null')))::leasehold_internal.problem;
  elsif p_mode = 'shared' and p_at_least > interval '0' then
    return row('at_least', 'absent for a shared lease')::leasehold_internal.problem;
  end if;
  return null;
end
$$;

-- What it is clear without a lock that an acquire of this lease key meets: held, where another holds the scope and it is not to be taken
-- over, or another is queued for it; ended, where the lease key has ended here; else null. `p_units` null: it wants the scope exclusively.
-- Locks what notice_incarnation() does.
create or replace function leasehold_internal.early_outcome(p_namespace text, p_key text, p_lease_key uuid, p_units integer, p_priority integer default 0)
returns text
language plpgsql
as $$
declare
  v_scope leasehold.scope;
  v_share leasehold.share;
  v_rules leasehold.rules;
  v_life leasehold.life_now;
  v_now timestamptz;
begin
  select s.* into v_scope from leasehold.scope s where s.namespace = p_namespace and s.key = p_key;
  if not found or v_scope.lease_key = p_lease_key then
    return null;
  elsif leasehold_internal.end_reason(v_scope, p_lease_key) is not null then
    return 'ended';
  end if;
  select h.* into v_share from leasehold.share h where h.namespace = p_namespace and h.key = p_key and h.lease_key = p_lease_key;
  if found then
    return case when v_share.state = 'ended' then 'ended' end;
  end if;
  v_now := clock_timestamp();
  if v_scope.state <> 'free' or v_scope.at_least is not null then
    v_life := leasehold_internal.life(null);
    -- Where nothing expires by itself, who asks is the first to know, and there may be no other.
    if not v_life.is_settled and not leasehold_internal.is_blind() then
      perform leasehold_internal.notice_incarnation();
    end if;
  end if;
  if v_scope.state <> 'held' and leasehold_internal.rests(v_scope, v_life, v_now) then
    return 'held';
  elsif v_scope.state = 'shared'
        and (leasehold_internal.is_blind()
             or not leasehold_internal.has_room(v_scope, p_units)
                -- None of the holders has expired, whatever the policy says.
                and not exists (select
                                  from leasehold.share h
                                 where h.namespace = p_namespace and h.key = p_key and h.state = 'held'
                                   and (h.lapsed or h.deadline + h.grace <= v_now)))
        -- An old snapshot cannot see who has queued since. A place that it does see is in order: those before it are older.
        and not (leasehold_internal.is_blind()
                 and exists (select 1 from leasehold.waiter w
                              where w.namespace = p_namespace and w.key = p_key and w.lease_key = p_lease_key)) then
    return 'held';
  elsif v_scope.state = 'held' then
    select r.* into v_rules from leasehold_internal.policies_of(array[p_namespace]) r;
    if v_rules.expiry <> 'takeover' or not leasehold_internal.is_expired(v_scope, v_life, v_rules.expiry, v_now)
       or leasehold_internal.rests(v_scope, v_life, v_now)
       or leasehold_internal.is_put_off(v_scope, v_rules.max_reap_failures, v_now) then
      return 'held';
    end if;
    -- An old snapshot cannot see who has queued since. A place that it does see is in order: those before it are older.
    if leasehold_internal.is_blind()
       and not exists (select 1 from leasehold.waiter w
                        where w.namespace = p_namespace and w.key = p_key and w.lease_key = p_lease_key) then
      return 'held';
    end if;
  end if;
  return case
    when exists (select 1
                   from leasehold_internal.live_head(p_namespace, p_key, leasehold_internal.live_coordinators(v_now), v_now) h
                  where h.lease_key <> p_lease_key)
         and (p_priority = 0
              or exists (select from leasehold.waiter w where w.namespace = p_namespace and w.key = p_key and w.lease_key = p_lease_key)
              or leasehold_internal.is_preceded(
                   p_namespace, p_key, leasehold_internal.live_coordinators(v_now), v_now, array[p_lease_key], 9223372036854775807, p_priority,
                   v_now - p_priority * (leasehold_internal.policy_of(p_namespace)).ageing))
      then 'held'
  end;
end
$$;

grant execute on function leasehold.acquire to leasehold_client, leasehold_admin;
