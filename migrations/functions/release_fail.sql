-- Give a lease back, as failed. Returns true, or false when this lease key did not hold it. Locks as release_ok() does.
create or replace function leasehold.release_fail(namespace text, key text, lease_key uuid, error text) returns boolean
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
  if v_problem.field is null and (error is null or octet_length(error) > 8192) then
    v_problem := row('error', 'a text of at most 8192 bytes' || coalesce(', has ' || octet_length(error), ''));
  end if;
  {{checked.text}}
  v_answer := leasehold_internal.release_one(namespace, key, lease_key, true, error);
  {{released.text}}
end
$$;
comment on function leasehold.release_fail is
  'Give a lease back as failed, with the error: true, or false when it was not held. Example:
  select leasehold.release_fail(''jobs'', ''nightly'', :''lease_key'', ''the disk is full'')';

grant execute on function leasehold.release_fail to leasehold_client, leasehold_admin;
