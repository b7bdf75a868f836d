-- Acquire a lease, in the caller's transaction; never waits. Returns the lease, with its lease key, when it was granted or
-- renewed, and no row when the scope is held, busy or queued for.
-- Locks what acquire_batch() does for one item, and gives that back where nothing was granted: the look before it locks
-- nothing, and what the batch took goes with its subtransaction.
create or replace function leasehold.acquire(
  namespace text, key text, duration interval, owner text default null, lease_key uuid default gen_random_uuid(),
  labels jsonb default '{}')
returns setof leasehold.lease
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set leasehold.hooks = 'inline'
as $$
#variable_conflict use_column
declare
  v_answer record;
  v_lease leasehold.lease;
begin
  perform leasehold.check_acquire(
            acquire.namespace, acquire.key, acquire.duration, acquire.owner, acquire.lease_key, acquire.labels);
  if leasehold.is_hopeless(acquire.namespace, acquire.key, acquire.lease_key) then
    return;
  end if;

  begin
    select b.* into v_answer
      from leasehold.acquire_batch(
             null, null, array[acquire.namespace], array[acquire.key], array[acquire.lease_key], array[acquire.owner],
             array[acquire.labels::text], array[leasehold.to_us(acquire.duration)], array[false], array[null::bigint],
             array[null::bigint]) b;
    -- Refused because the expired lease could not be reaped: that is written down, and stays.
    if v_answer.outcome not in ('granted', 'renewed') and (v_answer.outcome = 'rejected' or v_answer.message is null) then
      raise sqlstate 'LH900' using message = 'give the locks back';
    end if;
  exception when sqlstate 'LH900' then
    null;
  end;

  case v_answer.outcome
    when 'granted', 'renewed' then
      select l.* into v_lease from leasehold.lease l where l.namespace = acquire.namespace and l.key = acquire.key;
      v_lease.lease_key := acquire.lease_key;
      return next v_lease;
    when 'held', 'busy' then
      null;
    else
      perform leasehold.refuse_acquire(
                acquire.namespace, acquire.key, v_answer.outcome, v_answer.field, v_answer.bound, v_answer.message);
  end case;
end
$$;
comment on function leasehold.acquire is
  'Acquire a lease, or renew it under the same lease key: one row, or none when it is held, busy or queued for. Never waits';

-- Raise LH002 for a bad argument of acquire(): before it is known whether the scope is held. Locks nothing.
create or replace function leasehold.check_acquire(
  p_namespace text, p_key text, p_duration interval, p_owner text, p_lease_key uuid, p_labels jsonb)
returns void
language plpgsql
as $$
declare
  v_rules leasehold.rules;
begin
  perform leasehold.check_scope(p_namespace, p_key);
  select r.* into v_rules from leasehold.policies_of(array[p_namespace]) r;
  if p_duration is null or p_duration < greatest(v_rules.min_duration, interval '100 ms')
     or p_duration > v_rules.max_duration then
    perform leasehold.refuse('duration', leasehold.duration_bound(v_rules.min_duration, v_rules.max_duration));
  elsif octet_length(p_owner) > 255 then
    perform leasehold.refuse('owner', 'at most 255 bytes');
  elsif p_lease_key is null then
    perform leasehold.refuse('lease_key', 'a UUID');
  elsif leasehold.labels_problem(p_labels) is not null then
    perform leasehold.refuse('labels', leasehold.labels_problem(p_labels));
  end if;
end
$$;

-- Is it clear without a lock that this lease key is not granted now: held by another and not to be taken over, or queued for
-- by another? Raises LH006 when the lease key has ended here, LH004 when the transaction may create no more scopes. Locks
-- nothing.
create or replace function leasehold.is_hopeless(p_namespace text, p_key text, p_lease_key uuid) returns boolean
language plpgsql
as $$
declare
  v_scope leasehold.scope;
  v_rules leasehold.rules;
  v_now timestamptz;
begin
  select s.* into v_scope from leasehold.scope s where s.namespace = p_namespace and s.key = p_key;
  if not found then
    perform leasehold.check_new_scopes();
    return false;
  elsif v_scope.lease_key = p_lease_key then
    return false;
  elsif leasehold.end_reason(v_scope, p_lease_key) is not null then
    perform leasehold.refuse_acquire(p_namespace, p_key, 'ended', null, null, null);
  end if;
  v_now := clock_timestamp();
  if v_scope.state = 'held' then
    select r.* into v_rules from leasehold.policies_of(array[p_namespace]) r;
    if v_rules.expiry <> 'takeover' or not leasehold.is_expired(v_scope, leasehold.life(null), v_rules.expiry, v_now)
       or leasehold.is_put_off(v_scope, v_rules.max_reap_failures, v_now) then
      return true;
    end if;
    -- An old snapshot cannot see who has queued since. A place that it does see is in order: those before it are older.
    if leasehold.is_blind()
       and not exists (select 1 from leasehold.waiter w
                        where w.namespace = p_namespace and w.key = p_key and w.lease_key = p_lease_key) then
      return true;
    end if;
  end if;
  return exists (select 1
                   from leasehold.live_head(p_namespace, p_key, leasehold.live_coordinators(v_now), v_now) h
                  where h.lease_key <> p_lease_key);
end
$$;

-- Raise LH004 where this transaction holds the locks of 1,000 new scopes: the server's lock table is finite. Locks nothing.
create or replace function leasehold.check_new_scopes() returns void
language plpgsql
as $$
begin
  if (select count(*) from pg_locks l where l.pid = pg_backend_pid() and l.locktype = 'advisory' and l.granted) >= 1000 then
    raise exception 'quota_exceeded: a transaction may create at most 1000 new scopes; commit, then go on'
      using errcode = 'LH004', hint = 'at most 1000 new scopes in a transaction';
  end if;
end
$$;

-- Raise what an outcome of acquire_batch() means to a caller in SQL. Locks nothing.
create or replace function leasehold.refuse_acquire(
  p_namespace text, p_key text, p_outcome text, p_field text, p_bound text, p_message text)
returns void
language plpgsql
as $$
begin
  case p_outcome
    when 'frozen' then
      raise exception 'namespace_frozen: % gives no new leases for now', p_namespace using errcode = 'LH003';
    when 'quota' then
      raise exception 'quota_exceeded: % has reached its limit, %', p_namespace, coalesce(p_bound, p_message)
        using errcode = 'LH004', hint = p_bound;
    when 'rejected' then
      raise exception 'hook_rejected: %', p_message using errcode = 'LH005';
    when 'ended' then
      raise exception 'lease_ended: this lease key has held %/% before; a new acquisition takes a new one', p_namespace,
        left(p_key, 128) using errcode = 'LH006';
    when 'invalid' then
      perform leasehold.refuse(p_field, p_bound);
  end case;
end
$$;

revoke execute on function leasehold.acquire(text, text, interval, text, uuid, jsonb),
  leasehold.check_acquire(text, text, interval, text, uuid, jsonb), leasehold.is_hopeless(text, text, uuid),
  leasehold.check_new_scopes(), leasehold.refuse_acquire(text, text, text, text, text, text) from public;
grant execute on function leasehold.acquire(text, text, interval, text, uuid, jsonb) to leasehold_client, leasehold_admin;
