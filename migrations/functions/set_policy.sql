-- Change settings of a namespace ('' is the root) and all below it; what is not named stays as it is. Returns nothing.
-- Locks what change_policy() does.
create or replace function leasehold.set_policy(
  namespace text, min_duration interval default null, max_duration interval default null, grace interval default null,
  max_hold interval default null, dead_after interval default null, expiry text default null, reaper text default null,
  frozen boolean default null, max_leases bigint default null, max_waiters bigint default null,
  history boolean default null, max_reap_failures integer default null, hook_timeout interval default null,
  free_retention interval default null, history_retention interval default null)
returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  perform leasehold.change_policy(
            set_policy.namespace, array_agg(c.name order by c.place), array_agg(c.value order by c.place))
     from unnest(leasehold.policy_columns(),
                 array[leasehold.us_text(min_duration), leasehold.us_text(max_duration), leasehold.us_text(grace),
                       leasehold.us_text(max_hold), leasehold.us_text(dead_after), expiry, reaper, frozen::text,
                       max_leases::text, max_waiters::text, history::text, max_reap_failures::text,
                       leasehold.us_text(hook_timeout), leasehold.us_text(free_retention),
                       leasehold.us_text(history_retention)])
          with ordinality as c (name, value, place)
    where c.value is not null;
end
$$;
comment on function leasehold.set_policy is
  'Change settings of a namespace, inherited by all below it: select leasehold.set_policy(''payments'', grace => ''5 s'')';

-- Microseconds of an interval as text, of any length. Locks nothing.
create or replace function leasehold.us_text(p_interval interval) returns text
language sql immutable parallel safe
as $$
  select trunc(extract(epoch from p_interval)::numeric * 1000000)::text
$$;

revoke execute on function leasehold.us_text(interval),
  leasehold.set_policy(text, interval, interval, interval, interval, interval, text, text, boolean, bigint, bigint, boolean,
                       integer, interval, interval, interval) from public;
grant execute on function
  leasehold.set_policy(text, interval, interval, interval, interval, interval, text, text, boolean, bigint, bigint, boolean,
                       integer, interval, interval, interval) to leasehold_admin;
