-- What a person wants to know of a scope, and what to do next. Returns one row, for an unknown scope too. Locks nothing.
create or replace function leasehold.explain(namespace text, key text)
returns table (
  state text, holder text, token bigint, liveness text, since timestamptz, heartbeats bigint, last_heartbeat_at timestamptz,
  expires_at timestamptz, waiters integer, first_waiter text, policy jsonb, advice text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_scope leasehold.scope;
  v_rules leasehold.rules;
  v_life leasehold.life_now := leasehold.life(null);
  v_now timestamptz := clock_timestamp();
  v_facts leasehold.lease_facts;
begin
  perform leasehold.check_scope(explain.namespace, explain.key);
  select s.* into v_scope from leasehold.scope s where s.namespace = explain.namespace and s.key = explain.key;
  select r.* into v_rules from leasehold.policies_of(array[explain.namespace]) r;
  state := coalesce(v_scope.state, 'free');
  waiters := cardinality(
    leasehold.live_tickets(explain.namespace, explain.key, leasehold.live_coordinators(v_now), v_now));
  select coalesce(w.owner, 'somebody')
    into first_waiter
    from leasehold.live_head(explain.namespace, explain.key, leasehold.live_coordinators(v_now), v_now) h
    join leasehold.waiter w
      on w.namespace = explain.namespace and w.key = explain.key and w.ticket = h.ticket;
  policy := jsonb_strip_nulls(to_jsonb(v_rules) - 'namespace' - 'quota_prefix')
            || (select to_jsonb(h) from leasehold.history_policy_of(explain.namespace) h);
  since := v_scope.ended_at;
  if state = 'held' then
    select f.* into v_facts from leasehold.lease_facts(v_scope, v_rules, v_life, v_now) f;
    holder := v_scope.owner;
    token := v_scope.token;
    liveness := v_facts.liveness;
    since := v_scope.acquired_at;
    heartbeats := v_scope.heartbeats;
    last_heartbeat_at := v_scope.heartbeat_at;
    expires_at := leasehold.expires_at(v_scope, v_life, v_rules.expiry);
  end if;
  advice := case when state = 'held'
    then leasehold.advice_held(v_scope, v_rules, v_facts, v_life.is_settled, v_now)
    else leasehold.advice_free(v_scope, v_rules, waiters, first_waiter, v_now)
  end;
  return next;
end
$$;
comment on function leasehold.explain is 'Who holds a scope, whether it is alive, who waits, and what to do: one row';

-- What to do about a held scope. Locks nothing.
create or replace function leasehold.advice_held(
  p_scope leasehold.scope, p_rules leasehold.rules, p_facts leasehold.lease_facts, p_is_settled boolean, p_now timestamptz)
returns text
language sql stable
as $$
  select case
    when p_facts.liveness = 'expired' and p_scope.reap_failures > 0 then
      format('reaping the lease of %s has failed %s, the last time %s ago: %s; ', w.holder,
             case p_scope.reap_failures when 1 then 'once' else p_scope.reap_failures || ' times' end,
             leasehold.duration_text(p_now - p_scope.reap_failed_at), left(p_scope.reap_error, 256))
      || case
           when p_scope.next_try_at > p_now then
             format('mend its callback, it is tried again in %s', leasehold.duration_text(p_scope.next_try_at - p_now))
           when p_scope.next_try_at is not null or p_scope.reap_failures < p_rules.max_reap_failures then
             'mend its callback, it is due to be tried again'
           else
             format('not tried again by itself: mend its callback, then select leasehold.reap(array[%L])', p_scope.namespace)
         end
    when p_facts.liveness = 'expired' and p_rules.frozen then
      format('it has expired, and %s is frozen: the reaper ends it, nobody gets it before the namespace is thawed', p_rules.namespace)
    when p_facts.liveness = 'expired' and p_rules.expiry = 'takeover' then
      format('acquire it: the lease of %s has expired', w.holder)
    when p_facts.liveness = 'expired' and p_rules.reaper = 'external' then
      format('it has expired: run its reaper, or select leasehold.reap(array[%L])', p_rules.namespace)
    when p_facts.liveness = 'expired' then
      format('it has expired: wait for the reaper, or select leasehold.reap(array[%L])', p_rules.namespace)
    when p_facts.is_manual and (p_facts.liveness = 'suspected_dead' or p_now > p_scope.deadline) then
      format('an administrator must decide: %s has been silent for %s, and expiry is manual; if it is dead, '
             'select leasehold.force_release(%L, %L, reason => ''...'')', w.holder, w.silent, p_scope.namespace, p_scope.key)
    when p_facts.liveness = 'suspected_dead' then
      format('look at %s: silent for %s, suspected dead; ', w.holder, w.silent)
      || case when not p_is_settled
              then 'nothing expires while the database or all daemons have just been away'
              else format('it expires in %s by itself', leasehold.duration_text(p_facts.expires_in_us * interval '1 us')) end
    when p_facts.liveness = 'overdue' then
      format('look at %s: alive, its last heartbeat was %s ago, but it has held this for %s, longer than the %s of max_hold', w.holder,
             w.silent, leasehold.duration_text(p_now - p_scope.acquired_at), leasehold.duration_text(p_rules.max_hold))
    else
      format(case when p_scope.heartbeats = 0 then 'wait: %s is alive, it acquired this %s ago'
                  else 'wait: %s is alive, its last heartbeat was %s ago' end, w.holder, w.silent)
  end
    from (select coalesce(nullif(p_scope.owner, ''), 'the holder') as holder,
                 leasehold.duration_text(p_now - p_scope.heartbeat_at) as silent) w
$$;

-- What to do about a free scope. Locks nothing.
create or replace function leasehold.advice_free(
  p_scope leasehold.scope, p_rules leasehold.rules, p_waiters integer, p_first_waiter text, p_now timestamptz)
returns text
language sql stable
as $$
  select case
    when p_rules.frozen then
      format('wait: %s is frozen, it gives no new leases; select leasehold.set_policy(%L, frozen => false) ends that',
             p_rules.namespace, p_rules.namespace)
    when p_waiters > 0 then
      format('join the queue: it is free, but %s is next, of %s waiting', p_first_waiter, p_waiters)
    when p_scope.last_outcome is null then 'free: acquire it'
    else
      format('free: acquire it; the last lease%s ended %s ago: %s', coalesce(' of ' || nullif(p_scope.owner, ''), ''),
             leasehold.duration_text(p_now - p_scope.ended_at),
             case p_scope.last_outcome when 'ok' then 'released' else p_scope.last_outcome end
             || coalesce(', ' || left(p_scope.last_error, 256), ''))
  end
$$;

revoke execute on function leasehold.explain(text, text),
  leasehold.advice_held(leasehold.scope, leasehold.rules, leasehold.lease_facts, boolean, timestamptz),
  leasehold.advice_free(leasehold.scope, leasehold.rules, integer, text, timestamptz) from public;
grant execute on function leasehold.explain(text, text) to leasehold_client, leasehold_reader, leasehold_admin;
