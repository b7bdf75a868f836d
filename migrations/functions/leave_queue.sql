-- Give up a place in the queue. Returns whether there was one.
-- Locks the scope's row FOR NO KEY UPDATE, waiting for whoever has it, and wakes the next where the scope is not held;
-- without a place it locks nothing.
create or replace function leasehold.leave_queue(namespace text, key text, lease_key uuid) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_state text;
  v_was_there boolean;
begin
  perform leasehold.check_holder(leave_queue.namespace, leave_queue.key, leave_queue.lease_key);
  perform 1
     from leasehold.waiter w
    where w.namespace = leave_queue.namespace and w.key = leave_queue.key and w.lease_key = leave_queue.lease_key;
  if not found then
    return false;
  end if;
  select s.state into v_state
    from leasehold.scope s
   where s.namespace = leave_queue.namespace and s.key = leave_queue.key
     for no key update;
  delete from leasehold.waiter w
   where w.namespace = leave_queue.namespace and w.key = leave_queue.key and w.lease_key = leave_queue.lease_key;
  v_was_there := found;
  if v_state = 'free' then
    perform leasehold.wake_next(leave_queue.namespace, leave_queue.key);
  end if;
  return v_was_there;
end
$$;
comment on function leasehold.leave_queue is 'Give up a place in the queue: whether there was one';

-- Tell whoever is next of a scope that is not held; every live coordinator too where the queue cannot be seen. The caller
-- has the scope's row locked, by an earlier statement.
create or replace function leasehold.wake_next(p_namespace text, p_key text) returns void
language plpgsql
as $$
begin
  perform leasehold.wake_head(null, p_namespace, p_key);
  if leasehold.is_blind() then
    perform leasehold.wake_everybody(p_namespace, p_key, leasehold.live_coordinators(clock_timestamp()));
  end if;
end
$$;

revoke execute on function leasehold.leave_queue(text, text, uuid), leasehold.wake_next(text, text) from public;
grant execute on function leasehold.leave_queue(text, text, uuid) to leasehold_client, leasehold_admin;
