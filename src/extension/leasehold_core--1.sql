-- leasehold_core: each function does what its namesake in leasehold_internal does, with the same arguments, and its rows. It writes the common
-- cases itself and gives the others to that function. Tables and types of Leasehold are found when it is called, so that this can be created,
-- and restored from a dump, before the schema is there.

create function leasehold_core.acquire_items(
  p_coordinator uuid, p_clock timestamptz, p_namespace text[], p_key text[], p_lease_key uuid[], p_owner text[],
  p_labels text[], p_duration_us bigint[], p_queue boolean[], p_wait_us bigint[], p_ticket bigint[],
  p_principals text[], p_at_least_us bigint[], p_units integer[])
returns setof record
language c volatile
as 'MODULE_PATHNAME', 'lh_core_acquire_items';
comment on function leasehold_core.acquire_items is
  'leasehold_internal.acquire_items(), the common cases in C; its columns are those of leasehold_internal.acquired';

create function leasehold_core.heartbeat_batch(
  p_namespace text[], p_key text[], p_lease_key uuid[], p_relax boolean)
returns table (
  n integer, outcome text, remaining_us bigint, deadline timestamptz, heartbeats bigint, end_reason text, message text, token bigint,
  units integer, has_slots boolean)
language c volatile
as 'MODULE_PATHNAME', 'lh_core_heartbeat_batch';
comment on function leasehold_core.heartbeat_batch is 'leasehold_internal.heartbeat_batch(), the common cases in C';

create function leasehold_core.release_batch(
  p_coordinator uuid, p_namespace text[], p_key text[], p_lease_key uuid[], p_failed boolean[], p_value text[])
returns table (n integer, outcome text, end_reason text, message text, wake boolean)
language c volatile
as 'MODULE_PATHNAME', 'lh_core_release_batch';
comment on function leasehold_core.release_batch is 'leasehold_internal.release_batch(), the common cases in C';

create function leasehold_core.hand_over_batch(
  p_coordinator uuid, p_namespace text[], p_key text[], p_lease_key uuid[], p_failed boolean[], p_value text[],
  p_clock timestamptz, p_next_namespace text[], p_next_key text[], p_next_lease_key uuid[], p_next_owner text[],
  p_next_labels text[], p_next_duration_us bigint[], p_next_queue boolean[], p_next_wait_us bigint[], p_next_ticket bigint[],
  p_next_principals text[], p_next_at_least_us bigint[], p_next_units integer[])
returns table (
  part text, end_reason text, wake boolean,
  n integer, outcome text, ticket bigint, waiters_ahead integer, expires_in_us bigint, suspected_in_us bigint, message text,
  field text, bound text, token bigint, owner text, principal text, labels text, duration_us bigint, grace_us bigint,
  acquired_at timestamptz, deadline timestamptz, remaining_us bigint, held_us bigint, silent_us bigint, heartbeats bigint,
  heartbeat_at timestamptz, liveness text, is_manual boolean, rests_in_us bigint, mode text, units integer, slots integer[], units_free integer,
  holder_count integer)
language c volatile
as 'MODULE_PATHNAME', 'lh_core_hand_over_batch';
comment on function leasehold_core.hand_over_batch is 'leasehold_internal.hand_over_batch(), the common case in C';

create function leasehold_core.trouble() returns text
language c volatile
as 'MODULE_PATHNAME', 'lh_core_trouble';
comment on function leasehold_core.trouble is 'Why everything is left to the functions in SQL; null: it is not';

-- They write tables without a look at privileges. So they are for the roles that may do the same by the functions in SQL; those exist once
-- `leasehold migrate` has run in the cluster, or a dump of the roles was restored.
revoke execute on all functions in schema leasehold_core from public;
do $$
declare
  v_role text;
begin
  foreach v_role in array array['leasehold_owner', 'leasehold_coordinator', 'leasehold_admin'] loop
    if not exists (select from pg_catalog.pg_roles r where r.rolname = v_role) then
      raise exception 'the role % is missing', v_role using hint = 'Run `leasehold migrate` first, or create the roles.';
    end if;
    execute pg_catalog.format('grant usage on schema leasehold_core to %I', v_role);
    execute pg_catalog.format('grant execute on all functions in schema leasehold_core to %I', v_role);
  end loop;
end
$$;
