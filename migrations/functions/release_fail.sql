-- Give a lease back, as failed. Returns true, or false when this lease key did not hold it. Locks as release_ok() does.
create or replace function leasehold.release_fail(namespace text, key text, lease_key uuid, error text) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set leasehold.hooks = 'inline'
as $$
begin
  perform leasehold.check_holder(namespace, key, lease_key);
  if error is null or octet_length(error) > 8192 then
    perform leasehold.refuse('error', 'a text of at most 8192 bytes');
  end if;
  return leasehold.release_one(namespace, key, lease_key, true, error);
end
$$;
comment on function leasehold.release_fail is
  'Give a lease back as failed, with the error: true, or false when it was not held';

revoke execute on function leasehold.release_fail(text, text, uuid, text) from public;
grant execute on function leasehold.release_fail(text, text, uuid, text) to leasehold_client, leasehold_admin;
