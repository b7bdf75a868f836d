-- What an acquire answers, as types: a grant is a short row, which leaves out what its caller has said itself, and everything else is one column.
-- Locks nothing.
create type leasehold_internal.answer as (
  n integer, outcome text, ticket bigint, waiters_ahead integer, expires_in_us bigint, suspected_in_us bigint, message text,
  field text, bound text, token bigint, owner text, principal text, labels text, duration_us bigint, grace_us bigint,
  acquired_at timestamptz, deadline timestamptz, remaining_us bigint, held_us bigint, silent_us bigint, heartbeats bigint,
  heartbeat_at timestamptz, liveness text, is_manual boolean, rests_in_us bigint, mode text, units integer, slots integer[], units_free integer,
  holder_count integer);
comment on type leasehold_internal.answer is
  'What an item of an acquire met, and the lease: its own, or the holder''s. Daemons read the attributes by their place: new ones come last';

create type leasehold_internal.acquired as (
  n integer, outcome text, token bigint, acquired_at timestamptz, grace_us bigint, expires_in_us bigint, suspected_in_us bigint,
  units_free integer, more leasehold_internal.answer);
comment on type leasehold_internal.acquired is
  'What an item of an acquire met. Where `more` is null it is an exclusive lease, granted just now; else all but n and outcome is in `more`';

-- They return these types now. By name, whatever their arguments were.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid::regprocedure
      from pg_catalog.pg_proc p
     where p.pronamespace = 'leasehold_internal'::regnamespace
           and p.proname = any (array[
             'acquire_batch', 'acquire_general', 'acquire_hooked', 'acquire_all_one', 'acquire_together', 'answer_shared', 'queue_shared'])
  loop
    execute format('drop function %s', v_function);
  end loop;
end
$$;
