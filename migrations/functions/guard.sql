-- Until the end of the caller's transaction nobody else can get this scope. Returns nothing; raises LH001 unless the scope
-- is held with this token and not expired.
-- Locks the scope's row FOR KEY SHARE, which whoever ends or grants a lease waits for or skips, and heartbeats do not; then
-- validates in a statement of its own, which sees what was committed before the lock.
create or replace function leasehold.guard(namespace text, key text, token bigint) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_scope leasehold.scope;
  v_expiry text;
begin
  perform leasehold.check_scope(guard.namespace, guard.key);
  if guard.token is null then
    perform leasehold.refuse('token', 'the token of the lease');
  end if;
  perform 1 from leasehold.scope s where s.namespace = guard.namespace and s.key = guard.key for key share;
  select s.* into v_scope from leasehold.scope s where s.namespace = guard.namespace and s.key = guard.key;
  if found and v_scope.state = 'held' and v_scope.token = guard.token and not v_scope.lapsed then
    select r.expiry into v_expiry from leasehold.policies_of(array[guard.namespace]) r;
    if not leasehold.is_expired(v_scope, leasehold.life_of_holders(), v_expiry, clock_timestamp()) then
      return;
    end if;
  end if;
  raise exception 'lease_lost: %/% is not held with token %', guard.namespace, left(guard.key, 128), guard.token
    using errcode = 'LH001';
end
$$;
comment on function leasehold.guard is
  'Raise lease_lost unless the scope is held with this token; if it passes, nobody else gets the scope before the transaction ends';

revoke execute on function leasehold.guard(text, text, bigint) from public;
grant execute on function leasehold.guard(text, text, bigint) to leasehold_client, leasehold_admin;
