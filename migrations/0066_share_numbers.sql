-- SHARE lock on leasehold.share while it is read once.
-- The holders with numbers above a capacity, or without any, are few and asked for at each hand-over: sorted by the highest number.
create index share_numbers on leasehold.share (namespace, key, (coalesce(slots[cardinality(slots)], 2147483647))) where state = 'held';

-- It has other arguments now. By name, whatever they were.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure from pg_catalog.pg_proc p where p.pronamespace = 'leasehold_internal'::regnamespace and p.proname = 'queue_one'
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
