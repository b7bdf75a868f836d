-- They return the principal too, or know whether a caller named what it reaps. Their callers wait for a moment.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where (p.pronamespace = 'leasehold'::regnamespace and p.proname in ('explain', 'reap'))
        or (p.pronamespace = 'leasehold_internal'::regnamespace and p.proname in ('reap_batch', 'take_expired'))
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
