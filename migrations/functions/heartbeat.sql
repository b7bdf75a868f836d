-- Renew a lease. Returns its new deadline, or null when it is lost.
-- Waits for whoever has the scope's row (bounded by lock_timeout), then locks it FOR NO KEY UPDATE; a stranger's lease key
-- locks nothing, nor does one that has ended while we waited: that lock goes with the subtransaction.
create or replace function leasehold.heartbeat(namespace text, key text, lease_key uuid) returns timestamptz
language plpgsql
security definer
{{few.settings}}
as $$
#variable_conflict use_column
declare
  v_denial text := leasehold_internal.denial('lease', heartbeat.namespace);
  v_problem leasehold_internal.problem;
  v_answer record;
begin
  perform set_config('leasehold.hooks', 'inline', true);
  v_problem := leasehold_internal.holder_problem(heartbeat.namespace, heartbeat.key, heartbeat.lease_key);
  {{checked.text}}
  begin
    perform 1
       from leasehold.scope s
      where s.namespace = heartbeat.namespace and s.key = heartbeat.key and s.lease_key = heartbeat.lease_key
        for no key update;
    if not found then
      perform 1
         from leasehold.share s
        where s.namespace = heartbeat.namespace and s.key = heartbeat.key and s.lease_key = heartbeat.lease_key and s.state <> 'ended'
          for no key update;
    end if;
    if not found then
      raise sqlstate 'LH900' using message = 'give the lock back';
    end if;
    select b.* into v_answer
      from leasehold_internal.heartbeat_batch(array[heartbeat.namespace], array[heartbeat.key], array[heartbeat.lease_key]) b;
  exception when sqlstate 'LH900' then
    return null;
  end;
  if v_answer.outcome = 'rejected' then
    raise exception 'hook_rejected: %', v_answer.message using errcode = 'LH005';
  end if;
  return v_answer.deadline;
end
$$;
comment on function leasehold.heartbeat is
  'Renew a lease: its new deadline, or null when it is lost. Example:
  select leasehold.heartbeat(''jobs'', ''nightly'', :''lease_key'')';

grant execute on function leasehold.heartbeat to leasehold_client, leasehold_admin;
