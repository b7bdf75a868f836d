-- Renew a lease. Returns its new deadline, or null when it is lost.
-- Waits for whoever has the scope's row (bounded by lock_timeout), then locks it FOR NO KEY UPDATE; a stranger's lease key
-- locks nothing.
create or replace function leasehold.heartbeat(namespace text, key text, lease_key uuid) returns timestamptz
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set leasehold.hooks = 'inline'
as $$
#variable_conflict use_column
declare
  v_answer record;
begin
  perform leasehold.check_holder(heartbeat.namespace, heartbeat.key, heartbeat.lease_key);
  perform 1
     from leasehold.scope s
    where s.namespace = heartbeat.namespace and s.key = heartbeat.key and s.lease_key = heartbeat.lease_key
      for no key update;
  if not found then
    return null;
  end if;
  select b.* into v_answer
    from leasehold.heartbeat_batch(array[heartbeat.namespace], array[heartbeat.key], array[heartbeat.lease_key]) b;
  if v_answer.outcome = 'rejected' then
    raise exception 'hook_rejected: %', v_answer.message using errcode = 'LH005';
  end if;
  return v_answer.deadline;
end
$$;
comment on function leasehold.heartbeat is 'Renew a lease: its new deadline, or null when it is lost';

-- Raise LH002 for a bad scope, or no lease key. Locks nothing.
create or replace function leasehold.check_holder(p_namespace text, p_key text, p_lease_key uuid) returns void
language plpgsql
as $$
begin
  perform leasehold.check_scope(p_namespace, p_key);
  if p_lease_key is null then
    perform leasehold.refuse('lease_key', 'a UUID');
  end if;
end
$$;

revoke execute on function leasehold.heartbeat(text, text, uuid), leasehold.check_holder(text, text, uuid) from public;
grant execute on function leasehold.heartbeat(text, text, uuid) to leasehold_client, leasehold_admin;
