-- Acquire leases of several scopes at once, or none, in the caller's transaction; never waits. Returns the leases, with their lease key, in the
-- given order when all were granted or renewed, and no row when one of the scopes is held, busy, queued for, or rests. All have one lease key, and each
-- a token of its own. `modes` and `units` have an element for each scope; null is exclusive, and 1 unit.
-- Locks what acquire_all_one() does, and gives that back where nothing was granted, as acquire() does.
create or replace function leasehold.acquire_all(
  namespaces text[], keys text[], duration interval, owner text default null, lease_key uuid default gen_random_uuid(),
  labels jsonb default '{}', modes text[] default null, units integer[] default null)
returns setof leasehold.lease
language plpgsql
security definer
as $$
#variable_conflict use_column
declare
  v_count constant integer := cardinality(acquire_all.namespaces);
  v_denial text;
  v_problem leasehold_internal.problem;
  v_item integer;
  v_early text;
  v_outcome text;
  v_answer record;
  v_units integer[];
  v_tokens bigint[];
  v_too_many text;
  v_lease leasehold.lease;
begin
  perform set_config('leasehold.hooks', 'inline', true);
  for v_nth in 1 .. coalesce(v_count, 0) loop
    v_denial := leasehold_internal.denial('lease', acquire_all.namespaces[v_nth]);
    {{denied.text}}
  end loop;
  v_problem := leasehold_internal.acquire_all_problem(
                 acquire_all.namespaces, acquire_all.keys, acquire_all.duration, acquire_all.owner, acquire_all.lease_key, acquire_all.labels,
                 acquire_all.modes, acquire_all.units);
  if v_problem.field is not null then
    v_outcome := 'invalid';
  else
    v_units := array(select case when acquire_all.modes[i] = 'shared' then coalesce(acquire_all.units[i], 1) end
                       from generate_series(1, v_count) i order by i);
    for v_nth in 1 .. v_count loop
      v_item := v_nth;
      v_early := leasehold_internal.early_outcome(
                   acquire_all.namespaces[v_item], acquire_all.keys[v_item], acquire_all.lease_key, v_units[v_item]);
      v_outcome := case when v_early = 'ended' then v_early else coalesce(v_outcome, v_early) end;
      exit when v_early = 'ended';
    end loop;
  end if;

  if v_outcome is null then
    v_too_many := leasehold_internal.creation_problem(acquire_all.namespaces, acquire_all.keys);
    if v_too_many is not null then
      raise exception 'quota_exceeded: %', v_too_many using errcode = 'LH004';
    end if;
    begin
      for v_answer in
        select b.*
          from leasehold_internal.acquire_all_one(
                 null, null, acquire_all.namespaces, acquire_all.keys, acquire_all.lease_key, acquire_all.owner, acquire_all.labels::text,
                 leasehold_internal.to_us(acquire_all.duration), false, null, null, 'role:' || session_user, null, v_units) b
      loop
        v_item := v_answer.n;
        v_tokens[v_item] := v_answer.token;
      end loop;
      v_outcome := v_answer.outcome;
      v_problem := row(case when v_answer.field in ('mode', 'units', 'namespace', 'key')
                            then format('%s[%s]', rtrim(v_answer.field, 's') || 's', v_item)
                            else v_answer.field end, v_answer.bound);
      -- Refused because an expired lease could not be reaped: that is written down, and stays.
      if v_outcome not in ('granted', 'renewed') and (v_outcome = 'rejected' or v_answer.message is null) then
        raise sqlstate 'LH900' using message = 'give the locks back';
      end if;
    exception when sqlstate 'LH900' then
      null;
    end;
  end if;

  case v_outcome
    when 'granted', 'renewed' then
      for v_nth in 1 .. v_count loop
        select l.* into v_lease from leasehold_internal.leases_of(acquire_all.namespaces[v_nth], acquire_all.keys[v_nth], v_tokens[v_nth]) l;
        v_lease.lease_key := acquire_all.lease_key;
        return next v_lease;
      end loop;
    when 'held', 'busy' then
      null;
    {{acquire_invalid.text}}
    when 'frozen' then
      raise exception 'namespace_frozen: % gives no new leases for now', acquire_all.namespaces[v_item] using errcode = 'LH003';
    when 'quota' then
      raise exception 'quota_exceeded: % has reached its limit, %', acquire_all.namespaces[v_item], v_problem.bound
        using errcode = 'LH004', hint = v_problem.bound;
    when 'rejected' then
      raise exception 'hook_rejected: %', v_answer.message using errcode = 'LH005';
    when 'ended' then
      raise exception 'lease_ended: this lease key has held % before; a new acquisition takes a new one',
        leasehold_internal.scope_name(acquire_all.namespaces[v_item], acquire_all.keys[v_item]) using errcode = 'LH006';
  end case;
end
$$;
comment on function leasehold.acquire_all is
  'Acquire leases of several scopes at once, or renew them under the same lease key: a row for each, in the given order, or none when one of them is
  held by another or waited for. Never waits. Example:
  select key, token, deadline from leasehold.acquire_all(array[''accounts'', ''accounts''], array[''alice'', ''bob''], ''30 s'')';

-- What is wrong with the arguments of acquire_all(); the field is the name of an argument, with the number of the element. Locks nothing.
create or replace function leasehold_internal.acquire_all_problem(
  p_namespaces text[], p_keys text[], p_duration interval, p_owner text, p_lease_key uuid, p_labels jsonb, p_modes text[], p_units integer[])
returns leasehold_internal.problem
language plpgsql
as $$
declare
  v_problem leasehold_internal.problem;
  v_count constant integer := cardinality(p_namespaces);
begin
  if coalesce(v_count, 0) not between 1 and 100 or array_ndims(p_namespaces) <> 1 or array_lower(p_namespaces, 1) <> 1 then
    return row('namespaces', 'an array of 1 to 100 elements')::leasehold_internal.problem;
  end if;
  v_problem.bound := format('an array of %s elements, as namespaces is', v_count);
  if p_keys is null or array_ndims(p_keys) <> 1 or array_lower(p_keys, 1) <> 1 or cardinality(p_keys) <> v_count then
    v_problem.field := 'keys';
  elsif array_ndims(p_modes) <> 1 or array_lower(p_modes, 1) <> 1 or cardinality(p_modes) <> v_count then
    v_problem.field := 'modes';
  elsif array_ndims(p_units) <> 1 or array_lower(p_units, 1) <> 1 or cardinality(p_units) <> v_count then
    v_problem.field := 'units';
  end if;
  {{problem.text}}
  for v_item in 1 .. v_count loop
    v_problem := leasehold_internal.acquire_problem(
                   p_namespaces[v_item], p_keys[v_item], p_duration, p_owner, p_lease_key, p_labels, coalesce(p_modes[v_item], 'exclusive'),
                   coalesce(p_units[v_item], 1), null);
    if v_problem.field in ('namespace', 'key', 'mode', 'units') then
      v_problem.field := format('%s[%s]', rtrim(v_problem.field, 's') || 's', v_item);
    end if;
    if v_problem.field is null
       and exists (select from generate_series(1, v_item - 1) i where p_namespaces[i] = p_namespaces[v_item] and p_keys[i] = p_keys[v_item]) then
      v_problem := row(format('keys[%s]', v_item), 'of a scope that comes once');
    end if;
    {{problem.text}}
  end loop;
  return null;
end
$$;

grant execute on function leasehold.acquire_all to leasehold_client, leasehold_admin;
