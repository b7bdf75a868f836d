-- The last 8 ended lease keys of a scope, with one more. Locks nothing.
create or replace function leasehold.remember(p_keys leasehold.ended_key[], p_lease_key uuid, p_outcome text)
returns leasehold.ended_key[]
language sql immutable
as $$
  select (p_keys || row(p_lease_key, p_outcome)::leasehold.ended_key)[greatest(1, cardinality(p_keys) - 6):]
$$;

-- How the lease of this lease key ended in this scope, as an end reason; null when the scope does not remember it. Locks
-- nothing.
create or replace function leasehold.end_reason(p_keys leasehold.ended_key[], p_lease_key uuid) returns text
language sql immutable
as $$
  select case k.outcome when 'ok' then 'released' else k.outcome end
    from unnest(p_keys) k
   where k.lease_key = p_lease_key
   limit 1
$$;

-- End leases: the one place where release, reap, force-release and a leaving waiter do it. The caller has locked every row
-- FOR UPDATE in an earlier statement (a guard's FOR KEY SHARE keeps that off), has read the queue since, and wakes the heads.
create or replace function leasehold.end_leases(p_ends leasehold.lease_end[], p_now timestamptz) returns void
language plpgsql
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  perform leasehold.be_durable();
  update leasehold.scope s
     set state = 'free',
         lease_key = null,
         lapsed = false,
         reap_failures = 0,
         ended_at = p_now,
         last_outcome = e.outcome,
         last_result = e.result,
         last_error = e.error,
         ended_keys = leasehold.remember(s.ended_keys, s.lease_key, e.outcome),
         -- With waiters the reaper looks soon, should the wake-up get lost. Without, the row goes after its retention; it
         -- is left where it is when that is soon enough, for moving it costs an index entry.
         check_at = case
           when e.check_at is not null then e.check_at
           when e.has_waiters then least(s.check_at, p_now + interval '1 s')
           when s.check_at > p_now + interval '2 min' then p_now + interval '1 min'
           else s.check_at
         end
    from unnest(p_ends) e
   where s.namespace = e.namespace and s.key = e.key;
end
$$;

revoke execute on function leasehold.remember(leasehold.ended_key[], uuid, text),
  leasehold.end_reason(leasehold.ended_key[], uuid), leasehold.end_leases(leasehold.lease_end[], timestamptz) from public;
