-- Let a setting of a namespace, or all of them, be inherited again; at the root it takes its default. Returns nothing. Locks
-- what change_policy() does.
create or replace function leasehold.reset_policy(namespace text, column_name text default null) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_columns text[] := case when column_name is null then leasehold_internal.policy_columns() else array[column_name] end;
  v_problem leasehold_internal.problem;
begin
  v_problem := leasehold_internal.change_policy(
    null, null, namespace, v_columns, array_fill(null::text, array[cardinality(v_columns)]));
  if v_problem.field is not null then
    raise exception 'invalid_argument: % must be %', v_problem.field, v_problem.bound
      using errcode = 'LH002', detail = v_problem.field, hint = v_problem.bound;
  end if;
end
$$;
comment on function leasehold.reset_policy is
  'Inherit a setting of a namespace, or all of them, again. Example:
  select leasehold.reset_policy(''jobs'', ''grace'')';

revoke execute on function leasehold.reset_policy(text, text) from public;
grant execute on function leasehold.reset_policy(text, text) to leasehold_admin;
