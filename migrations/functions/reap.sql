-- End what is past its expiry, in the caller's transaction: everywhere, or in the given namespaces, those that only an
-- external reaper ends too. Returns a row for each lease: outcome reaped, or failed with the error and when it is tried again.
-- After a restart or failover the first call ends nothing. Hooks run in here, each lease's in a subtransaction of its own; one that
-- runs into the caller's statement_timeout is that lease's failure, and ends the call.
-- Locks what reap_batch() does, and waits for nobody.
create or replace function leasehold.reap(
  namespaces text[] default null, include_children boolean default false, max integer default 1000)
returns table (
  namespace text, key text, token bigint, owner text, principal text, outcome text, error text, reap_failures integer,
  next_try_at timestamptz)
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_problem leasehold_internal.problem;
  v_left integer := reap.max;
  v_row record;
  v_has_more boolean;
begin
  perform leasehold_internal.check_rule_marks();
  perform set_config('leasehold.hooks', 'reap', true);
  select 'namespaces', b.bound into v_problem
    from unnest(reap.namespaces) n, leasehold_internal.namespace_problem(n) b (bound)
   where b.bound is not null
   limit 1;
  if v_problem.field is null and reap.include_children is null then
    v_problem := row('include_children', 'true or false');
  elsif v_problem.field is null and (reap.max is null or reap.max < 1) then
    v_problem := row('max', 'at least 1, is ' || coalesce(reap.max::text, 'null'));
  end if;
  {{refused.text}}

  if reap.namespaces is null then
    perform leasehold_internal.sweep_waiters(null);
  end if;
  -- psql and pg_cron: a transaction that began with this statement ends with it. (Drivers that prepare their statements look as
  -- if they went on.)
  perform leasehold_internal.keep_days(clock_timestamp(), now() = statement_timestamp());
  if exists (select from leasehold.schedule s where s.look_at <= clock_timestamp()) then
    perform leasehold_internal.make_all_ticks(clock_timestamp());
  end if;
  -- A visit may find leases that are alive and free rows, which do not count. Each moves its row on, so this comes to an
  -- end; the limit is for rows that others make due as fast.
  for v_round in 1 .. 100 loop
    v_has_more := false;
    for v_row in
      select b.* from leasehold_internal.reap_batch(null, null, reap.namespaces, reap.include_children, v_left, false) b
    loop
      if v_row.kind = 'more' then
        v_has_more := true;
      elsif v_row.kind in ('reaped', 'failed') then
        namespace := v_row.namespace;
        key := v_row.key;
        token := v_row.token;
        owner := v_row.owner;
        principal := v_row.principal;
        outcome := v_row.kind;
        error := v_row.error;
        reap_failures := v_row.reap_failures;
        next_try_at := v_row.next_try_at;
        v_left := v_left - 1;
        return next;
      end if;
    end loop;
    exit when not v_has_more or v_left < 1 or leasehold_internal.is_timed_out();
  end loop;
end
$$;
comment on function leasehold.reap is
  'End what is past its expiry: a row for each lease reaped or failed; null is all namespaces but those with reaper = external. Example:
  select * from leasehold.reap(array[''jobs''])';

grant execute on function leasehold.reap to leasehold_admin;
