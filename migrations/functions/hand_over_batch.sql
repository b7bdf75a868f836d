-- Release many leases, and in the same transaction acquire for who waits for some of them: one commit for a hand-over, not two.
-- Returns the rows of release_batch (`part` is release), then those of acquire_batch (`part` is acquire), which sees what was
-- released and decides as ever: who was not first stays queued. Locks what they lock: the second only rows of the first.
-- The common case, one lease that passes from its holder to its first waiter, is one update: the twin of end_leases() and of the grant in
-- acquire_general(); for a shared lease it is hand_over_share(). tests/sql/test_one_and_many.sql compares them.
create or replace function leasehold_internal.hand_over_batch(
  p_coordinator uuid, p_namespace text[], p_key text[], p_lease_key uuid[], p_failed boolean[], p_value text[],
  p_clock timestamptz, p_next_namespace text[], p_next_key text[], p_next_lease_key uuid[], p_next_owner text[],
  p_next_labels text[], p_next_duration_us bigint[], p_next_queue boolean[], p_next_wait_us bigint[], p_next_ticket bigint[],
  p_next_principals text[] default null, p_next_at_least_us bigint[] default null, p_next_units integer[] default null,
  p_next_priority integer[] default null)
returns table (
  part text, end_reason text, wake boolean,
  {{answer.table}})
language plpgsql
security definer
{{lookups.settings}}
as $$
#variable_conflict use_column
declare
  v_found record;
begin
  if cardinality(p_namespace) = 1 and cardinality(p_next_namespace) = 1
     and p_namespace[1] = p_next_namespace[1] and p_key[1] = p_next_key[1] and p_failed[1] is not null
     and p_next_at_least_us[1] is null and not leasehold_internal.is_blind()
  then
    if current_setting('synchronous_commit') = 'off' then
      perform leasehold_internal.be_durable();
    end if;
    if p_next_units[1] is not null then
      return query
        select *
          from leasehold_internal.hand_over_share(
                 p_coordinator, p_namespace[1], p_key[1], p_lease_key[1], p_failed[1], p_value[1], p_next_lease_key[1], p_next_owner[1],
                 p_next_labels[1], p_next_duration_us[1], p_next_wait_us[1], p_next_principals[1], p_next_units[1],
                 coalesce(abs(p_next_priority[1]), 0));
    else
      -- One update, from one holder to the other, whose expiry has not passed. The queue is read after the row's lock.
      select i.*, p_next_lease_key[1] as lease_key, p_next_owner[1] as owner, p_next_principals[1] as principal,
             p_next_labels[1]::jsonb as labels, d.duration, d.duration as lasts, case when p_failed[1] then 'failed' else 'ok' end as outcome,
             case when not p_failed[1] then p_value[1]::jsonb end as result, case when p_failed[1] then p_value[1] end as error,
             x.holders, x.check_at, clock_timestamp() as now
        into v_found
        from leasehold_internal.plain_hand_over(p_namespace[1], p_key[1], p_next_owner[1], p_next_labels[1], p_next_duration_us[1],
                                                 p_next_wait_us[1]) i
       cross join (select leasehold_internal.from_us(p_next_duration_us[1]) as duration) d
       cross join lateral (
         select x.holders, x.check_at
           from leasehold.scope x
          where x.namespace = p_namespace[1] and x.key = p_key[1] and x.lease_key = p_lease_key[1] and not x.lapsed
            and p_next_lease_key[1] <> p_lease_key[1] and x.at_least is null
            and p_next_lease_key[1] <> all (x.ended_keys) and i.life_id is not null
            and (x.holders is null or not leasehold_internal.has_shared(x.namespace, x.key, p_next_lease_key[1]))
            for update skip locked) x;
      if found then
        return query
          with passed as (
            update leasehold.scope s
               set {{grant.set v_found}},
                   {{ended.set v_found}},
                   queued = v_found.holders is not null
                            or exists (select 1
                                         from leasehold.waiter q
                                        where q.namespace = s.namespace and q.key = s.key and q.lease_key <> p_next_lease_key[1])
             where s.namespace = p_namespace[1] and s.key = p_key[1]
               and v_found.now < case when s.incarnation = v_found.life_id then s.deadline + s.grace
                                else v_found.started_at + s.duration + s.grace end
               -- Whose caller has gone on to another coordinator, that one is told.
               and p_next_lease_key[1] = (select h.lease_key
                                            from leasehold_internal.live_head(p_namespace[1], p_key[1], leasehold_internal.live_coordinators(v_found.now),
                                                                     v_found.now) h
                                           where h.coordinator = p_coordinator and h.items is null
                                              and h.priority = coalesce(abs(p_next_priority[1]), 0))
            returning s.token, s.duration, s.deadline),
          gone as (
            delete from leasehold.waiter q
             where q.lease_key = p_next_lease_key[1] and (q.namespace, q.key) is not distinct from (p_namespace[1], p_key[1])
               and exists (select from passed))
          select 'release', null::text, true, 1, 'ok', null::bigint, null::integer, null::bigint, null::bigint, null::text,
                 null::text, null::text, {{lease.nulls}}, null::bigint, null::text, null::integer, null::integer[], null::integer, null::integer
            from passed
          union all
          select 'acquire', null, null, 1, 'granted', null, 0,
                 case when v_found.expiry <> 'manual' then p_next_duration_us[1] + leasehold_internal.to_us(v_found.grace) end,
                 leasehold_internal.to_us(least(coalesce(v_found.dead_after, p.duration * 2 / 3), v_found.max_hold)),
                 null, null, null, p.token, p_next_owner[1], p_next_principals[1], p_next_labels[1], p_next_duration_us[1], leasehold_internal.to_us(v_found.grace),
                 v_found.now, p.deadline, p_next_duration_us[1], 0, 0, 0, v_found.now, 'alive', v_found.expiry = 'manual', null, 'exclusive', 0, null::integer[], case when v_found.capacity is not null then 0 end, 1
            from passed p;
      end if;
    end if;
    if found then
      -- Asked again after the change, for a watch that begins waits for who has changed something, and not for who is about to.
      -- Its two events cannot be told from one row: the releases are repeated by themselves.
      if exists (select from leasehold.watch) then
        raise serialization_failure using message = 'somebody began to watch in the same instant';
      end if;
      return;
    end if;
  end if;
  return query
    select 'release', r.end_reason, r.wake, r.n, r.outcome, null::bigint, null::integer, null::bigint, null::bigint, r.message,
           null::text, null::text, {{lease.nulls}}, null::bigint, null::text, null::integer, null::integer[], null::integer, null::integer
      from leasehold_internal.release_batch(p_coordinator, p_namespace, p_key, p_lease_key, p_failed, p_value) r;
  return query
    select 'acquire', null::text, null::boolean, a.*
      from leasehold_internal.acquire_batch(
             p_coordinator, p_clock, p_next_namespace, p_next_key, p_next_lease_key, p_next_owner, p_next_labels,
             p_next_duration_us, p_next_queue, p_next_wait_us, p_next_ticket, p_next_principals, p_next_at_least_us, p_next_units,
             p_next_priority) a;
end
$$;
comment on function leasehold_internal.hand_over_batch is 'Release many leases and acquire for who is next, by a coordinator';

grant execute on function leasehold_internal.hand_over_batch to leasehold_coordinator, leasehold_admin;
