-- Lists for people have more columns, and filters. Dropped by name, whatever the arguments were. Locks nothing.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where p.pronamespace = 'leasehold_internal'::regnamespace
           and p.proname = any (array['list_leases', 'view_explain', 'view_queue', 'view_daemons'])
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
