-- list_leases takes a search and a bound, and view_namespaces tells which counts are not whole: other arguments and columns. By name, whatever their
-- arguments were. Locks no table.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where p.pronamespace = 'leasehold_internal'::regnamespace and p.proname in ('list_leases', 'view_namespaces')
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
