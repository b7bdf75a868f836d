-- What a person wants to know of a scope, and what to do next. Returns one row, for an unknown scope too. Of several shared holders the columns from
-- holder to expires_at show the oldest, and the advice looks at the one that is worst off. The token is shown to members
-- of leasehold_reader and leasehold_admin only, because a guard needs nothing else. Locks nothing.
create or replace function leasehold.explain(namespace text, key text)
returns table (
  state text, holder text, principal text, token bigint, liveness text, since timestamptz, heartbeats bigint, last_heartbeat_at timestamptz,
  expires_at timestamptz, waiters integer, first_waiter text, policy jsonb, advice text,
  rests_until timestamptz, mode text, units integer, holders integer)
language plpgsql stable
security definer
as $$
#variable_conflict use_column
declare
  v_denial text := leasehold_internal.denial('read', explain.namespace);
  v_scope leasehold.scope;
  v_rules leasehold.rules;
  v_life leasehold.life_now := leasehold_internal.life(null);
  v_now timestamptz := clock_timestamp();
  v_facts leasehold.lease_facts;
  v_shown leasehold.scope;
  v_next text;
  v_problem leasehold_internal.problem := leasehold_internal.scope_problem(explain.namespace, explain.key);
begin
  {{checked.text}}
  select s.* into v_scope from leasehold.scope s where s.namespace = explain.namespace and s.key = explain.key;
  select r.* into v_rules from leasehold_internal.policies_of(array[explain.namespace]) r;
  state := coalesce(v_scope.state, 'free');
  waiters := cardinality(
    leasehold_internal.live_tickets(explain.namespace, explain.key, leasehold_internal.live_coordinators(v_now), v_now));
  select coalesce(w.owner, 'somebody'),
         coalesce(w.owner, 'somebody') || coalesce(' (for a shared lease of ' || leasehold_internal.units_text(w.units) || ')', '')
         || coalesce(' (waits for ' || w.items || ' scopes together)', '')
         || coalesce(leasehold_internal.priority_words(explain.namespace, explain.key, w, v_now), '')
    into first_waiter, v_next
    from leasehold_internal.live_head(explain.namespace, explain.key, leasehold_internal.live_coordinators(v_now), v_now) h
    join leasehold.waiter w
      on w.namespace = explain.namespace and w.key = explain.key and w.ticket = h.ticket;
  policy := jsonb_strip_nulls(to_jsonb(v_rules) - 'namespace' - 'quota_prefix' - 'slots')
            || (select to_jsonb(h) from leasehold_internal.history_policy_of(explain.namespace) h)
            || jsonb_build_object('hand_over_grace', leasehold_internal.hand_over_grace_of(explain.namespace));
  since := v_scope.ended_at;
  holders := 0;
  if state <> 'free' then
    v_shown := case state when 'held' then v_scope else leasehold_internal.oldest_holder(explain.namespace, explain.key) end;
    units := coalesce(v_scope.units, 0);
    holders := leasehold_internal.holder_count(v_scope);
    select f.* into v_facts from leasehold_internal.lease_facts(v_shown, v_rules, v_life, v_now) f;
    mode := v_facts.mode;
    holder := v_shown.owner;
    principal := v_shown.principal;
    if leasehold_internal.may_read_tokens() then
      token := v_shown.token;
    end if;
    liveness := v_facts.liveness;
    since := v_shown.acquired_at;
    heartbeats := v_shown.heartbeats;
    last_heartbeat_at := v_shown.heartbeat_at;
    expires_at := leasehold_internal.expires_at(v_shown, v_life, v_rules.expiry, v_now);
  end if;
  rests_until := leasehold_internal.rests_until(v_scope, v_life, v_now);
  advice := case
    when rests_until is not null and (state = 'free' or v_facts.liveness = 'expired')
      then leasehold_internal.advice_resting(v_scope, rests_until, waiters, v_next, v_now)
    when state = 'held'
      then leasehold_internal.advice_held(v_scope, v_rules, v_facts, v_life.is_settled, v_now)
           || case when rests_until is null then ''
                   else format('; given back earlier, the scope still rests for %s', leasehold_internal.duration_text(rests_until - v_now)) end
    when state = 'shared' then leasehold_internal.advice_shared(v_scope, v_rules, v_life, waiters, v_next, v_now)
    else leasehold_internal.advice_free(v_scope, v_rules, waiters, v_next, v_now)
  end;
  if not leasehold_internal.has_key(v_rules.slots, explain.key) then
    advice := 'acquire it there: ' || leasehold_internal.elsewhere_words(explain.namespace, explain.key)
              || case when state = 'free' then '' when v_facts.liveness = 'expired' then '; here it has expired' else '; here ' || advice end;
  end if;
  if waiters > 0 and leasehold_internal.is_deadlocked(explain.namespace, explain.key) then
    advice := advice || '; deadlock: a holder of this waits for one of those who wait here; select * from leasehold.deadlock shows the circle';
  end if;
  advice := advice || coalesce(leasehold_internal.hand_over_text(explain.namespace, explain.key, v_now), '');
  if rests_until is not null and state = 'free' then
    state := 'resting';
  end if;
  if cardinality(leasehold_internal.live_coordinators(v_now)) = 0 then
    advice := advice || '; no daemon is live'
              || case when exists (select from leasehold.coordinator) then ', though some are registered' else '' end;
  end if;
  if pg_is_in_recovery() then
    advice := advice || coalesce(format('; this server is a standby, and the last transaction that it has replayed is %s old',
                                        leasehold_internal.duration_text(v_now - pg_last_xact_replay_timestamp())), '; this server is a standby');
  end if;
  return next;
end
$$;
comment on function leasehold.explain is
  'Who holds a scope, whether it is alive, who waits, and what to do: one row. Example:
  select * from leasehold.explain(''jobs'', ''nightly'')';

-- Why the first waiter is first, where anybody has a priority. Locks nothing.
create or replace function leasehold_internal.priority_words(p_namespace text, p_key text, p_first leasehold.waiter, p_now timestamptz) returns text
language plpgsql stable
as $$
declare
  v_live constant uuid[] := leasehold_internal.live_coordinators(p_now);
  v_others integer[];
begin
  if not leasehold_internal.has_priority(p_namespace, p_key) then
    return null;
  end if;
  select array_agg(h.priority order by h.priority) into v_others
    from leasehold_internal.live_heads(p_namespace, p_key, v_live, p_now) h
   where h.priority > p_first.priority;
  return format(' (priority %s%s)', p_first.priority,
                case when v_others is not null then format(', and came so early that it is before priority %s', array_to_string(v_others, ', '))
                     when exists (select
                                    from leasehold_internal.live_heads(p_namespace, p_key, v_live, p_now) h
                                   where h.ticket < p_first.ticket) then ', and so before others who came earlier'
                     else '' end);
end
$$;

-- What to do about a held scope. Locks nothing.
create or replace function leasehold_internal.advice_held(
  p_scope leasehold.scope, p_rules leasehold.rules, p_facts leasehold.lease_facts, p_is_settled boolean, p_now timestamptz)
returns text
language sql stable
as $$
  select case
    when p_facts.liveness = 'expired' and p_scope.reap_failures > 0 then
      format('reaping the lease of %s has failed %s, the last time %s ago: %s; ', w.holder,
             case p_scope.reap_failures when 1 then 'once' else p_scope.reap_failures || ' times' end,
             leasehold_internal.duration_text(p_now - p_scope.reap_failed_at), left(p_scope.reap_error, 256))
      || case
           when p_scope.next_try_at > p_now and isfinite(p_scope.next_try_at) then
             format('mend its callback, it is tried again in %s', leasehold_internal.duration_text(p_scope.next_try_at - p_now))
           when coalesce(p_scope.next_try_at <= p_now, p_scope.reap_failures < p_rules.max_reap_failures) then
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
             'select leasehold.force_release(%L, %L, reason => ''...''%s)', w.holder, w.silent, p_scope.namespace, p_scope.key,
             case when p_scope.units > 0 then ', token => ...' else '' end)
    when p_facts.liveness = 'suspected_dead' then
      format('look at %s: silent for %s, suspected dead; ', w.holder, w.silent)
      || case when not p_is_settled
              then 'nothing expires while the database or all daemons have just been away'
              else format('it expires in %s by itself', leasehold_internal.duration_text(p_facts.expires_in_us * interval '1 us')) end
    when p_facts.liveness = 'overdue' then
      format('look at %s: alive, its last heartbeat was %s ago, but it has held this for %s, longer than the %s of max_hold', w.holder,
             w.silent, leasehold_internal.duration_text(p_now - p_scope.acquired_at), leasehold_internal.duration_text(p_rules.max_hold))
    else
      format(case when p_scope.heartbeats = 0 then 'wait: %s is alive, it acquired this %s ago'
                  else 'wait: %s is alive, its last heartbeat was %s ago' end, w.holder, w.silent)
  end
    from (select coalesce(nullif(p_scope.owner, ''), 'the holder') as holder,
                 leasehold_internal.duration_text(p_now - p_scope.heartbeat_at) as silent) w
$$;

-- What to do about a scope whose last lease has ended or expired before its minimum hold was over. Locks nothing.
create or replace function leasehold_internal.advice_resting(
  p_scope leasehold.scope, p_rests_until timestamptz, p_waiters integer, p_first_waiter text, p_now timestamptz)
returns text
language sql stable
as $$
  select format('wait: it rests for another %s, until %s: the lease%s was acquired with at_least = %s',
                leasehold_internal.duration_text(p_rests_until - p_now), to_char(p_rests_until at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'),
                coalesce(' of ' || nullif(p_scope.owner, ''), ''), leasehold_internal.duration_text(p_scope.at_least))
         || case when p_waiters > 0 then format('; %s is next, of %s waiting', p_first_waiter, p_waiters) else '' end
$$;

-- What to do about a free scope. Locks nothing.
create or replace function leasehold_internal.advice_free(
  p_scope leasehold.scope, p_rules leasehold.rules, p_waiters integer, p_first_waiter text, p_now timestamptz)
returns text
language sql stable
as $$
  select case
    when p_rules.frozen then
      format('wait: %s is frozen, it gives no new leases; select leasehold.set_policy(%L, frozen => false) ends that',
             p_rules.namespace, p_rules.namespace)
    when leasehold_internal.leases_left(p_rules) <= 0 then
      format('wait: %s has reached its limit, max_leases = %s; a lease there must end first, or an administrator raise the limit',
             case p_rules.quota_prefix when '' then 'the root namespace' else p_rules.quota_prefix end, p_rules.max_leases)
    when p_waiters > 0 then
      format('join the queue: it is free, but %s is next, of %s waiting', p_first_waiter, p_waiters)
    when p_scope.last_outcome is null then 'free: acquire it'
    else
      format('free: acquire it; the last lease%s ended %s ago: %s', coalesce(' of ' || nullif(p_scope.owner, ''), ''),
             leasehold_internal.duration_text(p_now - p_scope.ended_at),
             case p_scope.last_outcome when 'ok' then 'released' else p_scope.last_outcome end
             || coalesce(', ' || left(p_scope.last_error, 256), ''))
  end
$$;

-- What to do about a shared scope: what there is to say of the holder that is worst off, if any is. Locks nothing.
create or replace function leasehold_internal.advice_shared(
  p_scope leasehold.scope, p_rules leasehold.rules, p_life leasehold.life_now, p_waiters integer, p_next text, p_now timestamptz)
returns text
language plpgsql stable
as $$
declare
  v_taken text := leasehold_internal.holders_text(p_scope, p_rules.capacity);
  v_worst record;
begin
  select leasehold_internal.scope_of_share(h) as share, f as facts
    into v_worst
    from leasehold.share h
   cross join lateral leasehold_internal.lease_facts(leasehold_internal.scope_of_share(h), p_rules, p_life, p_now) f
   where h.namespace = p_scope.namespace and h.key = p_scope.key and h.state = 'held' and f.liveness <> 'alive'
   order by array_position(array['expired', 'suspected_dead', 'overdue'], f.liveness), h.acquired_at, h.token
   limit 1;
  return case
    when found then v_taken || '; ' || leasehold_internal.advice_held(v_worst.share, p_rules, v_worst.facts, p_life.is_settled, p_now)
    when p_rules.frozen or leasehold_internal.leases_left(p_rules) <= 0
      then v_taken || '; ' || leasehold_internal.advice_free(p_scope, p_rules, p_waiters, p_next, p_now)
    when p_waiters > 0 then format('join the queue: %s; %s is next, of %s waiting', v_taken, p_next, p_waiters)
    when p_scope.units >= p_rules.capacity then format('wait: %s, and all are alive', v_taken)
    else format('acquire it shared: %s; an exclusive lease waits for all of them', v_taken)
  end;
end
$$;

create or replace function leasehold_internal.units_text(p_units integer) returns text
language sql immutable
as $$
  select case p_units when 1 then '1 unit' else p_units || ' units' end
$$;

-- Who shares a scope, and how many units they have taken; of more than 5 holders the oldest. Locks nothing.
create or replace function leasehold_internal.holders_text(p_scope leasehold.scope, p_capacity integer) returns text
language sql stable
as $$
  select case when p_capacity is null then '' else format('%s of %s taken by ', p_scope.units, leasehold_internal.units_text(p_capacity)) end
         || case p_scope.holders when 1 then 'one holder' else p_scope.holders || ' holders' end
         || case when p_capacity is not null then ': ' when p_scope.holders = 1 then ' has it shared: ' else ' share it: ' end
         || (select string_agg(coalesce(nullif(h.owner, ''), 'somebody')
                               || case when p_capacity is null and h.units = 1 then '' else format(' (%s)', leasehold_internal.units_text(h.units)) end,
                               ', ' order by h.acquired_at, h.token)
               from (select x.*
                       from leasehold.share x
                      where x.namespace = p_scope.namespace and x.key = p_scope.key and x.state = 'held'
                      order by x.acquired_at, x.token
                      limit 5) h)
         || case when p_scope.holders > 5 then format(' and %s more', p_scope.holders - 5) else '' end
$$;

-- The oldest shared holder of a scope, in the form of scope_of_share(); null where there is none. Locks nothing.
create or replace function leasehold_internal.oldest_holder(p_namespace text, p_key text) returns leasehold.scope
language sql stable
as $$
  select leasehold_internal.scope_of_share(h)
    from (select x.*
            from leasehold.share x
           where x.namespace = p_namespace and x.key = p_key and x.state = 'held'
           order by x.acquired_at, x.token
           limit 1) h
$$;

-- May the caller see the tokens of others? Whoever is logged in, or has taken another role by SET ROLE; where rules name roles, whoever may
-- read the scope. Locks nothing.
create or replace function leasehold_internal.may_read_tokens() returns boolean
language sql stable
as $$
  select pg_has_role(r.role, 'leasehold_reader', 'member') or pg_has_role(r.role, 'leasehold_admin', 'member')
         or leasehold_internal.rules_name_roles()
    from (select coalesce(nullif(current_setting('role'), 'none'), session_user::text)::name as role) r
$$;

grant execute on function leasehold.explain to leasehold_client, leasehold_reader, leasehold_admin;
