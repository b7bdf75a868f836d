-- Give up a place in the queue. Returns whether there was one. A place of a request for several scopes is not given up alone: it would wait
-- for the others, and nobody would wake it for this one.
-- Locks what lock_for_queue() does, and wakes the next where the scope is not held; without a place it locks nothing.
create or replace function leasehold.leave_queue(namespace text, key text, lease_key uuid) returns boolean
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_denial text := leasehold_internal.denial('lease', leave_queue.namespace);
  v_scope leasehold.scope;
  v_items smallint;
  v_was_there boolean;
  v_problem leasehold_internal.problem := leasehold_internal.holder_problem(
                                             leave_queue.namespace, leave_queue.key, leave_queue.lease_key);
begin
  {{checked.text}}
  select w.items into v_items
    from leasehold.waiter w
   where w.namespace = leave_queue.namespace and w.key = leave_queue.key and w.lease_key = leave_queue.lease_key;
  if not found then
    return false;
  elsif v_items is not null then
    raise exception 'invalid_argument: lease_key must be another: this one waits for several scopes together'
      using errcode = 'LH002', detail = 'lease_key', hint = 'another: this one waits for several scopes together';
  end if;
  v_scope := leasehold_internal.lock_for_queue(leave_queue.namespace, leave_queue.key);
  delete from leasehold.waiter w
   where w.namespace = leave_queue.namespace and w.key = leave_queue.key and w.lease_key = leave_queue.lease_key;
  v_was_there := found;
  if v_scope.state <> 'held' then
    perform leasehold_internal.wake_next(leave_queue.namespace, leave_queue.key);
  end if;
  return v_was_there;
end
$$;
comment on function leasehold.leave_queue is
  'Give up a place in the queue: whether there was one. Example:
  select leasehold.leave_queue(''jobs'', ''nightly'', :''lease_key'')';

-- Tell whoever is next of a scope that is not held; every live coordinator too where the queue cannot be seen. The caller
-- has the scope's row locked, by an earlier statement.
create or replace function leasehold_internal.wake_next(p_namespace text, p_key text) returns void
language plpgsql
as $$
begin
  perform leasehold_internal.wake_head(null, p_namespace, p_key);
  if leasehold_internal.is_blind() then
    perform leasehold_internal.wake_everybody(p_namespace, p_key, leasehold_internal.live_coordinators(clock_timestamp()));
  end if;
end
$$;

grant execute on function leasehold.leave_queue to leasehold_client, leasehold_admin;
