-- A scope as programs are told of it: its holder, of several the oldest, or how its last lease ended. Returns no row when it is unknown. Locks
-- nothing.
create or replace function leasehold_internal.get_scope(p_namespace text, p_key text)
returns table (
  is_held boolean, waiters integer, last_token bigint, last_owner text, last_principal text, last_end_reason text, last_result text,
  last_error text, last_ended_at timestamptz, {{lease.table}}, rests_in_us bigint,
  {{shape.table}}, units_free integer, holder_count integer)
language plpgsql
security definer
as $$
#variable_conflict use_column
begin
  perform leasehold_internal.refuse(leasehold_internal.scope_problem(p_namespace, p_key));
  return query
    select s.state <> 'free', coalesce(cardinality(q.tickets), 0),
           case when s.state = 'free' then nullif(s.token, 0) end,
           case when s.state = 'free' then s.owner end,
           case when s.state = 'free' then s.principal end,
           case when s.state = 'free' then case s.last_outcome when 'ok' then 'released' else s.last_outcome end end,
           case when s.state = 'free' then s.last_result::text end,
           case when s.state = 'free' then s.last_error end,
           case when s.state = 'free' then s.ended_at end,
           {{lease.columns f}}, leasehold_internal.rests_in_us(s, l, c.now),
           {{shape.columns f}}, leasehold_internal.units_free(s, r), leasehold_internal.holder_count(s)
      from (select clock_timestamp() as now) c
     cross join leasehold_internal.life(null) l
      join leasehold.scope s
        on s.namespace = p_namespace and s.key = p_key
     cross join lateral leasehold_internal.live_tickets(s.namespace, s.key, leasehold_internal.live_coordinators(c.now), c.now) q (tickets)
     cross join lateral leasehold_internal.policies_of(array[s.namespace]) r
     -- With offset 0, or each column would look for the oldest holder again.
     cross join lateral (select case s.state when 'shared' then leasehold_internal.oldest_holder(s.namespace, s.key) else s end as scope offset 0) h
      left join lateral leasehold_internal.lease_facts(h.scope, r, l, c.now) f
        on true;
end
$$;
comment on function leasehold_internal.get_scope is 'A scope as programs read it: the holder, or how the last lease ended';

grant execute on function leasehold_internal.get_scope to leasehold_coordinator, leasehold_admin;
