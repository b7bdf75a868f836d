-- Release many leases at once. Each item gets one row: ok, lost with how it ended, busy, rejected with a hook's words; or, where
-- this call runs no hooks, hooked with their time limit. `p_value` is the result as JSON
-- (what PostgreSQL refuses is an error of class 22 for the whole batch), or the error's text where `p_failed`. `p_failed` null: a
-- success, given back for a holder who never heard of it; lost where it was renewed, for then somebody has.
-- Locks each scope's row FOR UPDATE, skipping what another session has or guards; then wakes the first live waiter of each: `wake`
-- is true where that is `p_coordinator`'s own.
-- The common case in one statement: held under this lease key, its expiry not passed, and nobody waits. What is left over is told apart by
-- release_carefully, and so is everything where the queue cannot be seen. That statement does, for speed, what end_leases() does
-- where nobody waits; both write the columns of columns.txt.
create or replace function leasehold_internal.release_batch(
  p_coordinator uuid, p_namespace text[], p_key text[], p_lease_key uuid[], p_failed boolean[], p_value text[])
returns table (n integer, outcome text, end_reason text, message text, wake boolean)
language plpgsql
security definer
{{batch.settings}}
as $$
#variable_conflict use_column
declare
  v_life_id bigint;
  v_started_at timestamptz;
  v_has_hooks boolean;
  v_done integer[] := '{}';
  v_left integer[];
  v_hooked_ok text[] := '{}';
  v_hooked_fail text[] := '{}';
begin
  if current_setting('synchronous_commit') = 'off' then
    perform leasehold_internal.be_durable();
  end if;
  select i.id, i.started_at, exists (select from leasehold.registered_hook)
    into v_life_id, v_started_at, v_has_hooks
    from leasehold_internal.this_life() i;
  if v_has_hooks is distinct from false then
    v_hooked_ok := leasehold_internal.hooked(p_namespace, 'release_ok');
    v_hooked_fail := leasehold_internal.hooked(p_namespace, 'release_fail');
  end if;
  if not leasehold_internal.is_blind() then
    with ended as (
      update leasehold.scope s
         set {{free.set}},
             {{ended.set w}},
             check_at = case when s.check_at > w.now + interval '2 min' then w.now + interval '1 min' else s.check_at end
        from (select i.n, case when i.failed then 'failed' else 'ok' end as outcome, case when not coalesce(i.failed, false) then i.value::jsonb end as result,
                     case when i.failed then i.value end as error, x.row_id, clock_timestamp() as now
                from unnest(p_namespace, p_key, p_lease_key, p_failed, p_value)
                     with ordinality as i (namespace, key, lease_key, failed, value, n)
               cross join lateral (
                 select x.ctid as row_id
                   from leasehold.scope x
                  where x.namespace = i.namespace and x.key = i.key and x.lease_key = i.lease_key
                    and not x.lapsed and not x.queued
                    and (i.failed is not null or x.heartbeats = 0)
                    for update skip locked) x
               where i.namespace <> all (case when i.failed then v_hooked_fail when i.failed is null then v_hooked_ok || v_hooked_fail else v_hooked_ok end)
              offset 0) w
       {{unexpired.text}}
      returning w.n::integer as n)
    select coalesce(array_agg(e.n), '{}') into v_done from ended e;
    if exists (select from leasehold.policy p where p.history) or exists (select from leasehold.watch)
       or exists (select from leasehold.policy p where p.max_leases is not null)
       or exists (select from leasehold.waiter q where q.coordinator is null) then
      perform leasehold_internal.core_released(array_agg(p_namespace[d]), array_agg(p_key[d]))
         from unnest(v_done) d
       having count(*) > 0;
    end if;
    return query select d, 'ok', null::text, null::text, false from unnest(v_done) d;
  end if;

  if cardinality(p_namespace) = 1 and v_done = '{}' then
    return query select * from leasehold_internal.release_carefully(p_coordinator, p_namespace, p_key, p_lease_key, p_failed, p_value);
  elsif cardinality(v_done) < cardinality(p_namespace) then
    v_left := array(select i::integer from generate_subscripts(p_namespace, 1) i except select unnest(v_done) order by 1);
    return query
      select v_left[c.n], c.outcome, c.end_reason, c.message, c.wake
        from (select array_agg(p_namespace[i] order by i) as namespaces, array_agg(p_key[i] order by i) as keys,
                     array_agg(p_lease_key[i] order by i) as lease_keys, array_agg(p_failed[i] order by i) as failed,
                     array_agg(p_value[i] order by i) as texts
                from unnest(v_left) i) a,
             leasehold_internal.release_carefully(p_coordinator, a.namespaces, a.keys, a.lease_keys, a.failed, a.texts) c;
  end if;
end
$$;
comment on function leasehold_internal.release_batch is 'Release many leases at once, by a coordinator';

-- What is left over: somebody waits, lost, busy, hooked, and the same lease twice in a batch.
create or replace function leasehold_internal.release_carefully(
  p_coordinator uuid, p_namespace text[], p_key text[], p_lease_key uuid[], p_failed boolean[], p_value text[])
returns table (n integer, outcome text, end_reason text, message text, wake boolean)
language plpgsql
{{batch.settings}}
as $$
#variable_conflict use_column
declare
  v_work leasehold.item_work[];
  v_life leasehold.life_now;
  v_live uuid[];
  v_now timestamptz;
  v_hooked text[] := '{}';
begin
  if array_position(p_failed, null) is not null and exists (select from leasehold.registered_hook) then
    v_hooked := leasehold_internal.hooked(p_namespace, 'release_ok') || leasehold_internal.hooked(p_namespace, 'release_fail');
  end if;
  v_work := array(
    select row(w.n, w.namespace, w.key, w.lease_key, null, w.is_failure, w.result, w.error, s.scope,
               case when s.scope is null then 'missing' else 'locked' end, null, null, null, null, null)::leasehold.item_work
      -- Nothing was done under a lease that nobody heard of: hooks are told that it failed, as by hook_leaving().
      from (select u.n::integer as n, u.namespace, u.key, u.lease_key, f.is_failure,
                   case when not f.is_failure then u.value::jsonb end as result,
                   case when u.failed then u.value when f.is_failure then leasehold_internal.unheard_words() end as error
              from unnest(p_namespace, p_key, p_lease_key, p_failed, p_value)
                   with ordinality as u (namespace, key, lease_key, failed, value, n)
             cross join lateral (select coalesce(u.failed, u.namespace = any (v_hooked)) as is_failure) f
             order by u.namespace, u.key, u.n) w
      left join lateral (
        select x as scope
          from leasehold.scope x
         where x.namespace = w.namespace and x.key = w.key
           for update skip locked) s on true);
  if exists (select 1 from unnest(v_work) w where w.hold = 'missing' or (w.scope).lease_key is distinct from w.lease_key) then
    v_work := leasehold_internal.take_holders(leasehold_internal.mark_busy(v_work), true);
  end if;
  {{lost_marked.text}}
  -- The queue is read here, after the locks.
  v_live := leasehold_internal.live_coordinators(v_now);
  -- The same lease twice in a batch is released once.
  v_work := array(
    select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, w.is_failure, w.result, w.error, w.scope, w.hold,
               case when w.outcome = 'ok' and (w.nth > 1 or p_failed[w.n] is null
                           and ((w.scope).heartbeats > 0 or (w.scope).heartbeat_at > (w.scope).acquired_at)) then 'lost'
                    else w.outcome end,
               case when w.outcome = 'ok' and w.nth > 1
                    then case when w.first_is_failure then 'failed' else 'released' end
                    else w.end_reason end,
               h.coordinator, h.lease_key, null)::leasehold.item_work
      from (select u.*,
                   row_number() over (partition by u.namespace, u.key, u.lease_key, u.outcome order by u.n) as nth,
                   first_value(u.is_failure) over (partition by u.namespace, u.key, u.lease_key, u.outcome order by u.n)
                     as first_is_failure
              from unnest(v_work) u) w
      left join lateral leasehold_internal.live_head(w.namespace, w.key, v_live, v_now) h
        on w.outcome = 'ok' and (w.scope).units is null
     order by w.n);
  if exists (select from leasehold.registered_hook) then
    v_work := leasehold_internal.hook_items(v_work, null, leasehold_internal.runs_hooks(p_coordinator is null), v_now);
  end if;

  perform leasehold_internal.end_leases(array(
      select row(w.namespace, w.key, case when w.is_failure then 'failed' else 'ok' end, w.result, w.error,
                 w.head_lease_key is not null or leasehold_internal.is_blind(), null,
                 case when (w.scope).units > 0 then w.lease_key end)::leasehold.lease_end
        from unnest(v_work) w
       where w.outcome = 'ok'), v_now);
  v_work := leasehold_internal.tell_heads(p_coordinator, v_work, v_now);

  return query
    select w.n, w.outcome, w.end_reason, case when w.outcome in ('hooked', 'rejected') then w.error end,
           coalesce(w.outcome = 'ok' and w.head_coordinator = p_coordinator, false)
      from unnest(v_work) w
     order by w.n;
end
$$;

-- NOTIFY the heads of the scopes whose leases were ended (outcome ok), where they are not `p_coordinator`'s own. One
-- notification for each scope, to the one coordinator concerned; to all of them where the queue cannot be seen. Where a shared lease was
-- ended, the head is looked for here, for it may still not fit. Returns the items, with `p_coordinator` as head_coordinator where such a
-- head is its own.
create or replace function leasehold_internal.tell_heads(p_coordinator uuid, p_work leasehold.item_work[], p_now timestamptz)
returns leasehold.item_work[]
language plpgsql
as $$
declare
  v_work leasehold.item_work[] := p_work;
  v_is_shared boolean;
  v_told bigint;
  v_namespaces text[];
  v_keys text[];
begin
  select bool_or((w.scope).units > 0),
         count(case when w.head_lease_key is not null
                         -- Neither a SQL user who waits nor one who ends a lease has a coordinator; that does not make them the same.
                         and (w.head_coordinator is null or w.head_coordinator is distinct from p_coordinator)
                    then pg_notify(leasehold_internal.channel_of(w.head_coordinator, w.head_lease_key), w.namespace || chr(10) || w.key)::text end)
    into v_is_shared, v_told
    from unnest(p_work) w
   where w.outcome = 'ok';
  if v_is_shared then
    select array_agg(d.namespace), array_agg(d.key)
      into v_namespaces, v_keys
      from (select distinct w.namespace, w.key from unnest(p_work) w where w.outcome = 'ok' and (w.scope).units > 0) d
     where leasehold_internal.wake_head(p_coordinator, d.namespace, d.key);
    v_work := array(
      select row(w.n, w.namespace, w.key, w.lease_key, w.is_away, w.is_failure, w.result, w.error, w.scope, w.hold, w.outcome,
                 w.end_reason, case when o.is_own then p_coordinator else w.head_coordinator end, w.head_lease_key,
                 w.waiters_ahead)::leasehold.item_work
        from unnest(p_work) w
        left join lateral (
          select true as is_own from unnest(v_namespaces, v_keys) k (namespace, key) where k.namespace = w.namespace and k.key = w.key) o on true);
  end if;
  if leasehold_internal.is_blind() then
    perform leasehold_internal.wake_everybody(w.namespace, w.key, leasehold_internal.live_coordinators(p_now))
       from unnest(p_work) w
      where w.outcome = 'ok';
  end if;
  return v_work;
end
$$;

grant execute on function leasehold_internal.release_batch to leasehold_coordinator, leasehold_admin;
