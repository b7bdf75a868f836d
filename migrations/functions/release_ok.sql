-- Give a lease back, as done. Returns true, or false when this lease key did not hold it.
-- Waits for whoever has the scope's row or guards it (bounded by lock_timeout), then locks it FOR UPDATE; a stranger's lease
-- key locks nothing, nor does one that has ended while we waited: that lock goes with the subtransaction.
create or replace function leasehold.release_ok(namespace text, key text, lease_key uuid, result jsonb default null)
returns boolean
language plpgsql
security definer
as $$
declare
  v_denial text := leasehold_internal.denial('lease', namespace);
  v_problem leasehold_internal.problem;
  v_answer record;
begin
  perform set_config('leasehold.hooks', 'inline', true);
  v_problem := leasehold_internal.holder_problem(namespace, key, lease_key);
  if v_problem.field is null and (octet_length(result::text) > 8192) then
    v_problem := row('result', 'at most 8192 bytes as text, has ' || octet_length(result::text));
  end if;
  {{checked.text}}
  v_answer := leasehold_internal.release_one(namespace, key, lease_key, false, result::text);
  {{released.text}}
end
$$;
comment on function leasehold.release_ok is
  'Give a lease back as done, with a result: true, or false when it was not held. Example:
  select leasehold.release_ok(''jobs'', ''nightly'', :''lease_key'', ''{"rows": 3}'')';

-- Release one lease. Returns release_batch()'s outcome and message; locks as release_ok() does.
create or replace function leasehold_internal.release_one(
  p_namespace text, p_key text, p_lease_key uuid, p_failed boolean, p_value text, out outcome text, out message text)
language plpgsql
{{few.settings}}
as $$
begin
  begin
    perform 1
       from leasehold.scope s
      where s.namespace = p_namespace and s.key = p_key and s.lease_key = p_lease_key
        for update;
    if not found and not leasehold_internal.lock_share(p_namespace, p_key, p_lease_key) then
      raise sqlstate 'LH900' using message = 'give the lock back';
    end if;
    select b.outcome, b.message into outcome, message
      from leasehold_internal.release_batch(null, array[p_namespace], array[p_key], array[p_lease_key], array[p_failed], array[p_value]) b;
  exception when sqlstate 'LH900' then
    outcome := 'lost';
  end;
end
$$;

-- Lock the row of a shared holder FOR UPDATE, and the scope's before it; waits for whoever has them. While it waits for a holder's row,
-- which somebody may guard for long, it has none locked, so that the other holders come and go. Returns whether it holds the scope.
create or replace function leasehold_internal.lock_share(p_namespace text, p_key text, p_lease_key uuid) returns boolean
language plpgsql
{{few.settings}}
as $$
begin
  if not exists (select from leasehold.share h
                  where h.namespace = p_namespace and h.key = p_key and h.lease_key = p_lease_key and h.state <> 'ended') then
    return false;
  end if;
  loop
    begin
      perform 1 from leasehold.scope s where s.namespace = p_namespace and s.key = p_key for update;
      perform 1
         from leasehold.share h
        where h.namespace = p_namespace and h.key = p_key and h.lease_key = p_lease_key and h.state <> 'ended'
          for update skip locked;
      if found then
        return true;
      end if;
      raise sqlstate 'LH901' using message = 'give the scope back';
    exception when sqlstate 'LH901' then
    end;
    begin
      perform 1
         from leasehold.share h
        where h.namespace = p_namespace and h.key = p_key and h.lease_key = p_lease_key and h.state <> 'ended'
          for update;
      if not found then
        return false;
      end if;
      raise sqlstate 'LH901' using message = 'give it back, and take the scope first';
    exception when sqlstate 'LH901' then
    end;
  end loop;
end
$$;

grant execute on function leasehold.release_ok to leasehold_client, leasehold_admin;
