-- Let a setting of a namespace, or all of them, be inherited again; at the root it takes its default. Returns nothing. Locks
-- what change_policy() does.
create or replace function leasehold.reset_policy(namespace text, column_name text default null) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_columns text[] := case when column_name is null then leasehold.policy_columns() else array[column_name] end;
begin
  perform leasehold.change_policy(namespace, v_columns, array_fill(null::text, array[cardinality(v_columns)]));
end
$$;
comment on function leasehold.reset_policy is 'Let a setting of a namespace, or all of them, be inherited again';

revoke execute on function leasehold.reset_policy(text, text) from public;
grant execute on function leasehold.reset_policy(text, text) to leasehold_admin;
