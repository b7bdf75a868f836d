-- Change settings of a namespace ('' is the root) and all below it; what is not named stays as it is. Returns nothing.
-- Locks what change_policy() does.
create or replace function leasehold.set_policy(
  namespace text, min_duration interval default null, max_duration interval default null, grace interval default null,
  max_hold interval default null, dead_after interval default null, expiry text default null, reaper text default null,
  frozen boolean default null, max_leases bigint default null, max_waiters bigint default null,
  history boolean default null, max_reap_failures integer default null, hook_timeout interval default null,
  free_retention interval default null, history_retention interval default null, at_least interval default null,
  capacity integer default null, end_at_max_hold boolean default null, max_priority integer default null,
  ageing interval default null, hand_over_grace interval default null)
returns void
language plpgsql
security definer
as $$
declare
  v_problem leasehold_internal.problem;
begin
  v_problem := (
    select leasehold_internal.change_policy(
             null, null, set_policy.namespace, array_agg(c.name order by c.place), array_agg(c.value order by c.place))
      from unnest(leasehold_internal.policy_columns(),
                  array[leasehold_internal.us_text(min_duration), leasehold_internal.us_text(max_duration), leasehold_internal.us_text(grace),
                        leasehold_internal.us_text(max_hold), leasehold_internal.us_text(dead_after), expiry, reaper, frozen::text,
                        max_leases::text, max_waiters::text, history::text, max_reap_failures::text,
                        leasehold_internal.us_text(hook_timeout), leasehold_internal.us_text(free_retention),
                        leasehold_internal.us_text(history_retention), leasehold_internal.us_text(at_least), capacity::text, end_at_max_hold::text,
                        max_priority::text, leasehold_internal.us_text(ageing), leasehold_internal.us_text(hand_over_grace)])
           with ordinality as c (name, value, place)
     where c.value is not null);
  {{refused.text}}
end
$$;
comment on function leasehold.set_policy is
  'Change settings of a namespace, inherited by all below it. Example:
  select leasehold.set_policy(''jobs'', grace => ''5 s'', max_leases => 100)';

-- Microseconds of an interval as text, of any length. Locks nothing.
create or replace function leasehold_internal.us_text(p_interval interval) returns text
language sql immutable parallel safe
as $$
  select trunc(extract(epoch from p_interval)::numeric * 1000000)::text
$$;

grant execute on function leasehold.set_policy to leasehold_admin;
