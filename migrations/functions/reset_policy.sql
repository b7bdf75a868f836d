-- Let a setting of a namespace, or all of them, be inherited again; at the root it takes its default. Returns nothing. Locks
-- what change_policy() does.
create or replace function leasehold.reset_policy(namespace text, column_name text default null) returns void
language plpgsql
security definer
as $$
declare
  v_columns text[] := case when column_name is null then leasehold_internal.policy_columns() else array[column_name] end;
  v_problem leasehold_internal.problem;
begin
  v_problem := leasehold_internal.change_policy(
    null, null, namespace, v_columns, array_fill(null::text, array[cardinality(v_columns)]));
  {{refused.text}}
end
$$;
comment on function leasehold.reset_policy is
  'Inherit a setting of a namespace, or all of them, again. Example:
  select leasehold.reset_policy(''jobs'', ''grace'')';

grant execute on function leasehold.reset_policy to leasehold_admin;
