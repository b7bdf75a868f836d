-- The ended lease keys of a scope with one more: the newest comes first, under a subscript that is one below the lowest, and the others keep theirs, so
-- that an update's WAL record need not repeat them. At the 17th the last 7 are kept, from subscript 1 again. Rows of before have up to 8 from subscript
-- 1, newest last, and go on as they are. Locks nothing.
create or replace function leasehold_internal.remember(p_keys uuid[], p_key uuid) returns uuid[]
language sql immutable
as $$
  select case cardinality(p_keys)
           when 16 then array_fill(p_key, '{1}', '{0}') || p_keys[array_lower(p_keys, 1):array_lower(p_keys, 1) + 6]
           else array_fill(p_key, '{1}', array[coalesce(array_lower(p_keys, 1), 1) - 1]) || p_keys
         end
$$;
drop function if exists leasehold_internal.remember(anyarray, anyelement);

-- How they ended, by the subscripts of `p_keys`, the lease keys without this one; for what is missing or null it is ok. Locks nothing.
create or replace function leasehold_internal.remember_outcome(p_keys uuid[], p_outcomes text[], p_outcome text) returns text[]
language plpgsql immutable
as $$
declare
  v_first integer := coalesce(array_lower(p_keys, 1), 1);
  v_outcomes text[] := p_outcomes;
begin
  if cardinality(p_keys) = 16 then
    select case when bool_or(p_outcomes[i] <> 'ok') then array_agg(p_outcomes[i] order by i) else '{}' end
      into v_outcomes
      from generate_series(v_first, v_first + 6) i;
    v_first := 1;
  end if;
  if p_outcome <> 'ok' then
    v_outcomes[v_first - 1] := p_outcome;
  end if;
  return v_outcomes;
end
$$;

-- Promise 7: a lease key names one acquisition.
-- How the lease of this lease key ended in this scope, as an end reason; null when the scope does not remember it. Locks
-- nothing.
create or replace function leasehold_internal.end_reason(p_scope leasehold.scope, p_lease_key uuid) returns text
language plpgsql immutable
as $$
declare
  v_place constant integer := array_position(p_scope.ended_keys, p_lease_key);
  v_outcome constant text := coalesce(p_scope.ended_outcomes[v_place], 'ok');
begin
  return case when v_place is null then null when v_outcome = 'ok' then 'released' else v_outcome end;
end
$$;

-- Promise 4: four things end a lease.
-- End leases: the one place where release, reap, takeover, force-release and a leaving waiter do it; those of shared holders by end_shares().
-- For speed the common cases of release_batch(), hand_over_batch() and reap_hooked() have statements of their own. The caller has locked every row
-- FOR UPDATE in an earlier statement (a guard's FOR KEY SHARE keeps that off), has read the queue since, and wakes the heads.
create or replace function leasehold_internal.end_leases(p_ends leasehold.lease_end[], p_now timestamptz) returns void
language plpgsql
{{lookups.settings}}
as $$
declare
  v_count integer;
begin
  perform leasehold_internal.be_durable();
  update leasehold.scope s
     set {{free.set}},
         {{ended.set e}},
         -- The scope rests for what is left of it; a force-release ends that too.
         at_least = case when e.outcome <> 'forced' then s.at_least end,
         -- A SQL user may have joined without saying so here.
         queued = s.queued or e.has_waiters,
         -- With waiters, be they live or only slow, the reaper looks soon, should the wake-up get lost. Without, the row goes
         -- after its retention; it is left where it is when that is soon enough, for moving it costs an index entry.
         check_at = case
           when (e.has_waiters or s.queued) and e.check_at is null then least(s.check_at, p_now + interval '1 s')
           when e.has_waiters or s.queued then p_now + interval '1 s'
           when e.check_at is not null then e.check_at
           when s.check_at > p_now + interval '2 min' then p_now + interval '1 min'
           else s.check_at
         end
    from (select e.*, p_now as now, x.row_id
            from unnest(p_ends) e
           cross join lateral (select x.ctid as row_id from leasehold.scope x where x.namespace = e.namespace and x.key = e.key offset 0) x
           where e.lease_key is null
          offset 0) e
   where s.ctid = e.row_id;
  get diagnostics v_count = row_count;
  -- The others are of shared holders.
  if v_count < cardinality(p_ends) then
    perform leasehold_internal.end_shares(p_ends, p_now);
  end if;
  if exists (select from leasehold.policy p where p.history) then
    perform leasehold_internal.record_holds(null, p_now, array_agg(e.namespace), array_agg(e.key), array_agg(e.lease_key)) from unnest(p_ends) e having count(*) > 0;
  end if;
  if exists (select from leasehold.policy p where p.max_leases is not null) then
    perform leasehold_internal.note_leases(array_agg(e.namespace), -1) from unnest(p_ends) e having count(*) > 0;
  end if;
  if exists (select from leasehold.watch) or leasehold_internal.is_blind() then
    perform leasehold_internal.tell_watchers(array_agg(e.namespace), array_agg(e.key), array_agg(e.lease_key)) from unnest(p_ends) e having count(*) > 0;
  end if;
end
$$;
