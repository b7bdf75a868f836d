-- What nobody outside calls goes to a schema of its own: \df+ leasehold.* shows the API alone. The runner has made the schema
-- (runner/roles.sql). Functions keep their identity, so the triggers, views and checks that use them keep them.
grant usage on schema leasehold_internal to leasehold_client, leasehold_reader, leasehold_coordinator, leasehold_admin;
comment on schema leasehold_internal is 'What Leasehold''s own functions and its daemon call; it may change with any version';

do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where p.pronamespace = 'leasehold'::regnamespace
       and p.proname <> all (array[
         'acquire', 'heartbeat', 'release_ok', 'release_fail', 'guard', 'join_queue', 'leave_queue', 'explain',
         'reap', 'force_release', 'set_policy', 'reset_policy', 'add_hook', 'remove_hook', 'remove_hook_named', 'bump_epoch'])
  loop
    execute format('alter function %s set schema leasehold_internal', v_function);
  end loop;
end
$$;
