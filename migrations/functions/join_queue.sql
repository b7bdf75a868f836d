-- Take a place in the queue of a scope, or keep it, with its priority, for another `ttl`. Returns the position (1 is next, 0 holds it already)
-- and the channel to LISTEN on; whoever is next and finds the scope free calls acquire() with the same lease key, mode and units.
-- Locks what lock_for_queue() does: a holder renews all the same, however long the caller's transaction stays open.
create or replace function leasehold.join_queue(namespace text, key text, lease_key uuid, ttl interval default '10s', mode text default 'exclusive',
  units integer default 1, priority integer default 0)
returns table ("position" integer, channel text)
language plpgsql
security definer
{{few.settings}}
as $$
#variable_conflict use_column
declare
  v_denial text := leasehold_internal.denial('lease', join_queue.namespace);
  v_too_many text;
  v_denied text;
  v_scope leasehold.scope;
  v_holder leasehold.scope;
  v_rules leasehold.rules;
  v_now timestamptz;
  v_life leasehold.life_now;
  v_tickets bigint[];
  v_problem leasehold_internal.problem := leasehold_internal.holder_problem(
                                             join_queue.namespace, join_queue.key, join_queue.lease_key);
begin
  if v_problem.field is null
     and (join_queue.ttl is null or join_queue.ttl <= interval '0' or join_queue.ttl > interval '1 day') then
    v_problem := row('ttl', 'more than 0, at most 1 day' || leasehold_internal.is_words(join_queue.ttl));
  elsif v_problem.field is null and (join_queue.mode is null or join_queue.mode not in ('exclusive', 'shared')) then
    v_problem := row('mode', 'exclusive or shared, is ' || coalesce(left(join_queue.mode, 64), 'null'));
  elsif v_problem.field is null and join_queue.mode = 'exclusive' and join_queue.units is distinct from 1 then
    v_problem := row('units', '1 for an exclusive lease, is ' || coalesce(join_queue.units::text, 'null'));
  elsif v_problem.field is null and (join_queue.priority is null or join_queue.priority not between 0 and 1000) then
    v_problem := row('priority', '0 to 1000, is ' || coalesce(join_queue.priority::text, 'null'));
  elsif v_problem.field is null then
    select r.* into v_rules from leasehold_internal.policies_of(array[join_queue.namespace]) r;
    if join_queue.units is null or join_queue.units not between 1 and coalesce(v_rules.capacity, 1000000) then
      v_problem := row('units', format('1 to %s, is %s', coalesce(v_rules.capacity, 1000000), coalesce(join_queue.units::text, 'null')));
    end if;
  end if;
  {{checked.text}}
  v_denied := leasehold_internal.priority_denial(join_queue.namespace, join_queue.key, join_queue.lease_key, join_queue.priority);
  if v_denied is not null then
    raise exception 'access_denied: priority must be %', v_denied using errcode = 'LH007', detail = 'priority', hint = v_denied;
  end if;
  v_too_many := leasehold_internal.creation_problem(array[join_queue.namespace], array[join_queue.key], v_rules.max_waiters is not null);
  if v_too_many is not null then
    raise exception 'quota_exceeded: %', v_too_many using errcode = 'LH004';
  end if;
  v_scope := leasehold_internal.lock_for_queue(join_queue.namespace, join_queue.key);
  v_holder := leasehold_internal.holder_now(join_queue.namespace, join_queue.key, join_queue.lease_key);
  v_now := clock_timestamp();
  v_life := leasehold_internal.life(null);
  "position" := 0;
  channel := leasehold_internal.channel_of(null, join_queue.lease_key);

  if v_holder.namespace is not null and not v_holder.lapsed
     and not leasehold_internal.is_expired(v_holder, v_life, v_rules.expiry, v_now) then
    return next;
    return;
  elsif v_holder.namespace is not null
     or exists (select from leasehold.share h
                 where h.namespace = join_queue.namespace and h.key = join_queue.key and h.lease_key = join_queue.lease_key)
     or leasehold_internal.end_reason(v_scope, join_queue.lease_key) is not null then
    raise exception 'lease_ended: this lease key has held % before; a new acquisition takes a new one',
        leasehold_internal.scope_name(join_queue.namespace, join_queue.key) using errcode = 'LH006';
  elsif exists (select from leasehold.waiter w
                 where w.namespace = join_queue.namespace and w.key = join_queue.key and w.lease_key = join_queue.lease_key
                   and w.items is not null) then
    raise exception 'invalid_argument: lease_key must be another: this one waits for several scopes together'
      using errcode = 'LH002', detail = 'lease_key', hint = 'another: this one waits for several scopes together';
  elsif not leasehold_internal.has_key(v_rules.slots, join_queue.key) then
    raise exception 'invalid_argument: key: %', leasehold_internal.elsewhere_words(join_queue.namespace, join_queue.key)
      using errcode = 'LH002', detail = 'key', hint = leasehold_internal.elsewhere_words(join_queue.namespace, join_queue.key);
  elsif v_rules.frozen then
    raise exception 'namespace_frozen: % gives no new leases for now', join_queue.namespace using errcode = 'LH003';
  end if;

  update leasehold.waiter w
     set wait_until = v_now + join_queue.ttl,
         away_until = null,
         coordinator = null,
         units = case when join_queue.mode = 'shared' then join_queue.units end,
         principal = 'role:' || session_user
   where w.namespace = join_queue.namespace and w.key = join_queue.key and w.lease_key = join_queue.lease_key;
  if not found then
    if v_rules.max_waiters is not null
       and leasehold_internal.room_for_waiters(join_queue.namespace, join_queue.key, v_rules.max_waiters, 1, true) = 0 then
      raise exception 'quota_exceeded: % has reached its limit, max_waiters = %', join_queue.namespace, v_rules.max_waiters
        using errcode = 'LH004', hint = format('max_waiters = %s', v_rules.max_waiters);
    end if;
    perform leasehold_internal.ensure_epoch();
    insert into leasehold.waiter (namespace, key, ticket, lease_key, enqueued_at, wait_until, owner, principal, units, priority)
    values (join_queue.namespace, join_queue.key, nextval('leasehold.ticket'), join_queue.lease_key, v_now,
            v_now + join_queue.ttl, format('%s, pid %s', session_user, pg_backend_pid()), 'role:' || session_user,
            case when join_queue.mode = 'shared' then join_queue.units end, join_queue.priority);
  end if;
  -- Whoever acquires next looks at the queue. With a waiter the reaper looks soon at a free scope, should whoever is next stop
  -- coming. A free row is changed in any case, so that an older snapshot, which cannot see the waiter, cannot acquire it
  -- either (40001). A held row is its holder's to change; whoever ends the lease changes it too, and looks for SQL users.
  if v_scope.state <> 'held' then
    update leasehold.scope s
       set queued = true,
           check_at = least(s.check_at, v_now + interval '1 s')
     where s.namespace = join_queue.namespace and s.key = join_queue.key;
  end if;

  v_tickets := leasehold_internal.live_tickets(join_queue.namespace, join_queue.key, leasehold_internal.live_coordinators(v_now), v_now);
  select leasehold_internal.tickets_ahead(v_tickets, w.ticket) + 1
    into "position"
    from leasehold.waiter w
   where w.namespace = join_queue.namespace and w.key = join_queue.key and w.lease_key = join_queue.lease_key;
  return next;
end
$$;
comment on function leasehold.join_queue is
  'Take a place in the queue, or keep it for another ttl: the position, and the channel that tells when to acquire. Example:
  select position, channel from leasehold.join_queue(''jobs'', ''nightly'', :''lease_key'')';

-- The row of a scope, locked so that nobody ends a lease of it, or grants one: FOR KEY SHARE where it is held, which a heartbeat does
-- not wait for, FOR NO KEY UPDATE where it is free or shared, for shared holders renew without it; created free where there is none, under the lock of its slot. Waits for whoever ends or grants one. A lock that
-- was taken too late, for meanwhile somebody holds the scope, goes with its subtransaction.
create or replace function leasehold_internal.lock_for_queue(p_namespace text, p_key text) returns leasehold.scope
language plpgsql
as $$
declare
  v_scope leasehold.scope;
begin
  loop
    perform 1 from leasehold.scope s where s.namespace = p_namespace and s.key = p_key and s.state = 'held' for key share;
    if found then
      select s.* into v_scope from leasehold.scope s where s.namespace = p_namespace and s.key = p_key;
      return v_scope;
    end if;
    begin
      select s.* into v_scope
        from leasehold.scope s
       where s.namespace = p_namespace and s.key = p_key and s.state <> 'held'
         for no key update;
      if found then
        return v_scope;
      end if;
      raise sqlstate 'LH900' using message = 'give the lock back';
    exception when sqlstate 'LH900' then
      null;
    end;
    if not exists (select from leasehold.scope s where s.namespace = p_namespace and s.key = p_key) then
      perform 1
         from leasehold.creation c, leasehold.turn t
        where t.name = 'creation' and c.slot = leasehold_internal.creation_slot(p_namespace, p_key, t.seed)
          for update of c;
      insert into leasehold.scope (namespace, key, check_at)
      values (p_namespace, p_key, clock_timestamp() + interval '1 s')
          on conflict (namespace, key) do nothing;
    end if;
  end loop;
end
$$;

grant execute on function leasehold.join_queue to leasehold_client, leasehold_admin;
