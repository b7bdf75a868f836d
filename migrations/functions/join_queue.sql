-- Take a place in the queue of a scope, or keep it for another `ttl`. Returns the position (1 is next, 0 holds it already)
-- and the channel to LISTEN on; whoever is next and finds the scope free calls acquire() with the same lease key.
-- Locks the scope's row FOR NO KEY UPDATE, waiting for whoever has it; where there is none, first the scope's advisory lock.
create or replace function leasehold.join_queue(namespace text, key text, lease_key uuid, ttl interval default '10s')
returns table ("position" integer, channel text)
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_scope leasehold.scope;
  v_rules leasehold.rules;
  v_now timestamptz;
begin
  perform leasehold.check_holder(join_queue.namespace, join_queue.key, join_queue.lease_key);
  if join_queue.ttl is null or join_queue.ttl <= interval '0' or join_queue.ttl > interval '1 day' then
    perform leasehold.refuse('ttl', 'more than 0, at most 1 day');
  end if;
  v_scope := leasehold.lock_scope(join_queue.namespace, join_queue.key);
  v_now := clock_timestamp();
  select r.* into v_rules from leasehold.policies_of(array[join_queue.namespace]) r;
  "position" := 0;
  channel := leasehold.channel_of(null, join_queue.lease_key);

  if v_scope.lease_key = join_queue.lease_key and not v_scope.lapsed
     and not leasehold.is_expired(v_scope, leasehold.life(null), v_rules.expiry, v_now) then
    return next;
    return;
  elsif v_scope.lease_key = join_queue.lease_key
     or leasehold.end_reason(v_scope, join_queue.lease_key) is not null then
    perform leasehold.refuse_acquire(join_queue.namespace, join_queue.key, 'ended', null, null, null);
  elsif v_rules.frozen then
    perform leasehold.refuse_acquire(join_queue.namespace, join_queue.key, 'frozen', null, null, null);
  end if;

  update leasehold.waiter w
     set wait_until = v_now + join_queue.ttl,
         away_until = null,
         coordinator = null
   where w.namespace = join_queue.namespace and w.key = join_queue.key and w.lease_key = join_queue.lease_key;
  if not found then
    if (select count(*) from leasehold.waiter w where w.namespace = join_queue.namespace and w.key = join_queue.key)
       >= v_rules.max_waiters then
      perform leasehold.refuse_acquire(
                join_queue.namespace, join_queue.key, 'quota', null, format('max_waiters = %s', v_rules.max_waiters), null);
    end if;
    perform leasehold.ensure_epoch();
    insert into leasehold.waiter (namespace, key, ticket, lease_key, enqueued_at, wait_until, owner)
    values (join_queue.namespace, join_queue.key, nextval('leasehold.ticket'), join_queue.lease_key, v_now,
            v_now + join_queue.ttl, format('%s, pid %s', session_user, pg_backend_pid()));
  end if;
  -- Whoever acquires next looks at the queue. With a waiter the reaper looks soon at a free scope, should whoever is next stop
  -- coming. A free row is changed in any case, so that an older snapshot, which cannot see the waiter, cannot acquire it
  -- either (40001).
  update leasehold.scope s
     set queued = true,
         check_at = case when s.state = 'free' then least(s.check_at, v_now + interval '1 s') else s.check_at end
   where s.namespace = join_queue.namespace and s.key = join_queue.key and (s.state = 'free' or not s.queued);

  select leasehold.tickets_ahead(
           leasehold.live_tickets(join_queue.namespace, join_queue.key, leasehold.live_coordinators(v_now), v_now), w.ticket) + 1
    into "position"
    from leasehold.waiter w
   where w.namespace = join_queue.namespace and w.key = join_queue.key and w.lease_key = join_queue.lease_key;
  return next;
end
$$;
comment on function leasehold.join_queue is
  'Take a place in the queue, or keep it for another ttl: the position, and the channel that tells when to acquire';

-- The row of a scope, locked FOR NO KEY UPDATE; created free where there is none, under the scope's advisory lock. Waits.
create or replace function leasehold.lock_scope(p_namespace text, p_key text) returns leasehold.scope
language plpgsql
as $$
declare
  v_scope leasehold.scope;
begin
  select s.* into v_scope from leasehold.scope s where s.namespace = p_namespace and s.key = p_key for no key update;
  if not found then
    perform leasehold.check_new_scopes();
    perform pg_advisory_xact_lock(leasehold.scope_lock(p_namespace, p_key));
    -- In a statement after the lock, so that the row of whoever had it before is seen.
    insert into leasehold.scope (namespace, key, check_at)
    values (p_namespace, p_key, clock_timestamp() + interval '1 s')
        on conflict (namespace, key) do nothing;
    select s.* into v_scope from leasehold.scope s where s.namespace = p_namespace and s.key = p_key for no key update;
  end if;
  return v_scope;
end
$$;

revoke execute on function leasehold.join_queue(text, text, uuid, interval), leasehold.lock_scope(text, text) from public;
grant execute on function leasehold.join_queue(text, text, uuid, interval) to leasehold_client, leasehold_admin;
