-- Give a lease back, as done. Returns true, or false when this lease key did not hold it.
-- Waits for whoever has the scope's row or guards it (bounded by lock_timeout), then locks it FOR UPDATE; a stranger's lease
-- key locks nothing.
create or replace function leasehold.release_ok(namespace text, key text, lease_key uuid, result jsonb default null)
returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set leasehold.hooks = 'inline'
as $$
begin
  perform leasehold.check_holder(namespace, key, lease_key);
  if octet_length(result::text) > 8192 then
    perform leasehold.refuse('result', 'at most 8192 bytes as text');
  end if;
  return leasehold.release_one(namespace, key, lease_key, false, result::text);
end
$$;
comment on function leasehold.release_ok is 'Give a lease back as done, with a result: true, or false when it was not held';

-- Release one lease. Returns and locks as release_ok() does.
create or replace function leasehold.release_one(p_namespace text, p_key text, p_lease_key uuid, p_failed boolean, p_value text)
returns boolean
language plpgsql
as $$
declare
  v_answer record;
begin
  perform 1
     from leasehold.scope s
    where s.namespace = p_namespace and s.key = p_key and s.lease_key = p_lease_key
      for update;
  if not found then
    return false;
  end if;
  select b.* into v_answer
    from leasehold.release_batch(null, array[p_namespace], array[p_key], array[p_lease_key], array[p_failed], array[p_value]) b;
  if v_answer.outcome = 'rejected' then
    raise exception 'hook_rejected: %', v_answer.message using errcode = 'LH005';
  end if;
  return v_answer.outcome = 'ok';
end
$$;

revoke execute on function leasehold.release_ok(text, text, uuid, jsonb),
  leasehold.release_one(text, text, uuid, boolean, text) from public;
grant execute on function leasehold.release_ok(text, text, uuid, jsonb) to leasehold_client, leasehold_admin;
