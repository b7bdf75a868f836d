-- Promise 8: a lease whose hook fails stays expired and recorded, and holds up no other.
-- Reap one lease through its hooks, in a transaction of its own: what reap_batch() has told a daemon of as hooked. Returns one
-- row, reaped or failed (a hook has vetoed, or run over its time: written down, with the next try); none where the lease is not
-- held with that token any more, is not expired, busy or guarded: it is looked at again soon.
-- With the setting leasehold.lazy = 'on' a caller's synchronous_commit = off stays: a later commit of the same connection is
-- durable, and nobody is told before.
-- Locks the row FOR UPDATE SKIP LOCKED, then what the hooks lock.
create or replace function leasehold_internal.reap_hooked(
  p_coordinator uuid, p_clock timestamptz, p_namespace text, p_key text, p_token bigint)
returns table (
  kind text, namespace text, key text, error text, reap_failures integer, next_try_at timestamptz, wake boolean,
  {{lease.table}}, lease_key uuid)
language plpgsql
security definer
{{few.settings}}
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_is_lazy boolean := coalesce(current_setting('leasehold.lazy', true), '') = 'on' and current_setting('synchronous_commit') = 'off';
  v_scope leasehold.scope;
  v_rules leasehold.rules;
  v_life leasehold.life_now;
  v_expiry text := 'takeover';
  v_now timestamptz;
begin
  perform set_config('leasehold.hooks', 'on', true);
  select s.* into v_scope
    from leasehold.scope s
   where s.namespace = p_namespace and s.key = p_key and s.state = 'held' and s.token = p_token
     for update skip locked;
  if not found then
    v_scope := leasehold_internal.take_share(p_namespace, p_key, p_token);
  end if;
  if v_scope.namespace is null then
    perform leasehold_internal.look_soon(p_namespace, p_key, p_token, clock_timestamp() + interval '1 s');
    return;
  end if;
  v_now := clock_timestamp();
  v_life := leasehold_internal.life(p_clock);
  -- The policy is looked up only where it matters: this runs for each of 100,000 leases.
  if exists (select from leasehold.policy p where p.expiry = 'manual') then
    select r.expiry into v_expiry from leasehold_internal.policies_of(array[p_namespace]) r;
  end if;
  if not leasehold_internal.is_expired(v_scope, v_life, v_expiry, v_now) then
    perform leasehold_internal.look_soon(
              p_namespace, p_key, p_token,
              case when v_expiry = 'manual' then 'infinity'
                   else greatest(leasehold_internal.expires_at(v_scope, v_life, v_expiry, v_now), v_now + interval '1 s') end);
    return;
  end if;
  perform leasehold_internal.check_life_mark();

  begin
    perform leasehold_internal.call_hooks(leasehold_internal.event_of('reap', v_scope, v_scope.deadline, null, null));
    kind := 'reaped';
    v_now := clock_timestamp();
    -- What end_leases() does, for one that nobody waits for, in half of its time. check_at
    -- stays, so that it is HOT.
    if not v_scope.queued and not leasehold_internal.is_blind()
       and not exists (select from leasehold.waiter q
                        where q.coordinator is null and q.namespace = p_namespace and q.key = p_key) then
      update leasehold.scope s
         set {{free.set}},
             {{ended.set w}}
        from (select v_now as now, 'expired' as outcome, null::jsonb as result, null::text as error) w
       where s.namespace = p_namespace and s.key = p_key and s.state = 'held' and s.token = p_token;
      if not found then
        perform leasehold_internal.refuse_end_by_hook();
      end if;
      if exists (select from leasehold.watch) or exists (select from leasehold.policy p where p.history) then
        if exists (select from leasehold.policy p where p.history) then
          perform leasehold_internal.record_holds(null, v_now, array[p_namespace], array[p_key]);
        end if;
        perform leasehold_internal.tell_watchers(array[p_namespace], array[p_key]);
      end if;
      if exists (select from leasehold.policy p where p.max_leases is not null) then
        perform leasehold_internal.note_leases(array[p_namespace], -1);
      end if;
    else
      if not leasehold_internal.is_held(p_namespace, p_key, p_token) then
        perform leasehold_internal.refuse_end_by_hook();
      end if;
      -- The queue is read after the lock.
      perform leasehold_internal.end_leases(
                array[row(p_namespace, p_key, 'expired', null, null, true, null,
                          case when v_scope.units > 0 then v_scope.lease_key end)::leasehold.lease_end], v_now);
      wake := leasehold_internal.wake_head(p_coordinator, p_namespace, p_key);
      if leasehold_internal.is_blind() then
        perform leasehold_internal.wake_everybody(p_namespace, p_key, leasehold_internal.live_coordinators(v_now));
      end if;
    end if;
  exception
    when query_canceled or assert_failure or others then
      error := leasehold_internal.veto_text(sqlstate, sqlerrm);
  end;
  if error is not null then
    kind := 'failed';
    wake := false;
    select r.* into v_rules from leasehold_internal.policies_of(array[p_namespace]) r;
    select f.reap_failures, f.next_try_at
      into reap_failures, next_try_at
      from leasehold_internal.note_reap_failure(p_namespace, p_key, p_token, error, v_rules.max_reap_failures) f;
  end if;
  -- The hook may have set it otherwise; and end_leases() does not know of lazy.
  if v_is_lazy and current_setting('synchronous_commit') <> 'off' then
    perform set_config('synchronous_commit', 'off', true);
  elsif not v_is_lazy and current_setting('synchronous_commit') = 'off' then
    perform leasehold_internal.be_durable();
  end if;

  return query
    select kind, p_namespace, p_key, error, reap_failures, next_try_at, coalesce(wake, false), p_token, v_scope.owner,
           v_scope.principal, v_scope.labels::text, leasehold_internal.to_us(v_scope.duration), leasehold_internal.to_us(v_scope.grace),
           v_scope.acquired_at, v_scope.deadline, leasehold_internal.to_us(v_scope.deadline - v_now), leasehold_internal.to_us(v_now - v_scope.acquired_at),
           leasehold_internal.to_us(v_now - v_scope.heartbeat_at), v_scope.heartbeats, v_scope.heartbeat_at, 'expired', false,
           v_scope.lease_key;
end
$$;
comment on function leasehold_internal.reap_hooked is 'Reap one lease through its hooks, by a coordinator';

-- The connection was lost while reap_hooked() ran: where the lease is still there and expired, that counts as a failure. Returns
-- one row (failed), or none. Locks the row FOR NO KEY UPDATE SKIP LOCKED.
create or replace function leasehold_internal.reap_failed(
  p_coordinator uuid, p_namespace text, p_key text, p_token bigint, p_error text)
returns table (
  kind text, namespace text, key text, error text, reap_failures integer, next_try_at timestamptz, wake boolean,
  {{lease.table}}, lease_key uuid)
language plpgsql
security definer
{{few.settings}}
as $$
#variable_conflict use_column
declare
  v_scope leasehold.scope;
  v_rules leasehold.rules;
  v_life leasehold.life_now;
  v_now timestamptz;
begin
  select s.* into v_scope
    from leasehold.scope s
   where s.namespace = p_namespace and s.key = p_key and s.state = 'held' and s.token = p_token
     for no key update skip locked;
  if not found then
    v_scope := leasehold_internal.take_share(p_namespace, p_key, p_token);
  end if;
  if v_scope.namespace is null then
    return;
  end if;
  v_life := leasehold_internal.life(null);
  v_now := clock_timestamp();
  select r.* into v_rules from leasehold_internal.policies_of(array[p_namespace]) r;
  -- After a restart nothing has expired; that it was tried in vain is written down all the same.
  if not (v_scope.lapsed or v_scope.deadline + v_scope.grace <= v_now) then
    return;
  end if;
  v_scope := leasehold_internal.note_reap_failure(
               p_namespace, p_key, p_token, coalesce(nullif(p_error, ''), 'the connection was lost'), v_rules.max_reap_failures);
  return query
    select 'failed', p_namespace, p_key, v_scope.reap_error, v_scope.reap_failures, v_scope.next_try_at, false,
           {{lease.columns f}}, v_scope.lease_key
      from leasehold_internal.lease_facts(v_scope, v_rules, v_life, v_now) f;
end
$$;
comment on function leasehold_internal.reap_failed is 'Write down that reaping a lease broke its connection, by a coordinator';

-- The shared holder with this token, as a scope; all null where there is none, or another session has its row. Locks its scope FOR NO KEY
-- UPDATE SKIP LOCKED, then its row FOR UPDATE SKIP LOCKED.
create or replace function leasehold_internal.take_share(p_namespace text, p_key text, p_token bigint) returns leasehold.scope
language plpgsql
as $$
declare
  v_share leasehold.share;
begin
  if not leasehold_internal.is_held(p_namespace, p_key, p_token) then
    return null;
  end if;
  perform 1
     from leasehold.scope s
    where s.namespace = p_namespace and s.key = p_key and s.state = 'shared'
      for no key update skip locked;
  if found then
    select h.* into v_share
      from leasehold.share h
     where h.namespace = p_namespace and h.key = p_key and h.token = p_token and h.state = 'held'
       for update skip locked;
  end if;
  return case when v_share.namespace is not null then leasehold_internal.scope_of_share(v_share) end;
end
$$;

-- Let the reaper look at a held lease at that time. Locks its row FOR NO KEY UPDATE SKIP LOCKED.
create or replace function leasehold_internal.look_soon(p_namespace text, p_key text, p_token bigint, p_at timestamptz) returns void
language sql volatile
as $$
  update leasehold.share h
     set check_at = p_at
    from (select x.namespace, x.key, x.lease_key
            from leasehold.share x
           where x.namespace = p_namespace and x.key = p_key and x.state = 'held' and x.token = p_token
             for no key update skip locked) a
   where h.namespace = a.namespace and h.key = a.key and h.lease_key = a.lease_key;
  update leasehold.scope s
     set check_at = p_at
    from (select x.namespace, x.key
            from leasehold.scope x
           where x.namespace = p_namespace and x.key = p_key and x.state = 'held' and x.token = p_token
             for no key update skip locked) a
   where s.namespace = a.namespace and s.key = a.key
$$;

grant execute on function leasehold_internal.reap_hooked, leasehold_internal.reap_failed to leasehold_coordinator, leasehold_admin;
