-- Of batches of one, which is what an idle coordinator sends: plans of one row start in a fraction of the time that the batch's own
-- plan takes. In few statements and few expressions, for plpgsql prepares each of them again in every transaction, and that is most
-- of what such a batch costs.

-- Is there nothing about this acquire that the rules, or its own values, are against? To be used in a query, where it becomes a
-- part of it. Locks nothing.
create or replace function leasehold.is_plain(
  p_rules leasehold.rules, p_owner text, p_labels text, p_duration_us bigint, p_wait_us bigint)
returns boolean
language sql stable
as $$
  select not (p_rules).frozen and (p_rules).max_leases is null and p_duration_us >= 100000
         and leasehold.from_us(p_duration_us) between (p_rules).min_duration and (p_rules).max_duration
         and coalesce(p_wait_us, 0) >= 0 and coalesce(octet_length(p_owner), 0) <= 255
         and (p_labels = '{}' or leasehold.labels_problem(p_labels::jsonb) is null)
$$;

-- Acquire a held scope that the caller has no place for yet: wait. Returns a ticket of null where anything is unusual, having changed
-- nothing, and the batch decides. Locks the scope's row as the batch would.
create or replace function leasehold.queue_one(
  p_coordinator uuid, p_clock timestamptz, p_namespace text, p_key text, p_lease_key uuid, p_owner text, p_labels text,
  p_duration_us bigint, p_wait_us bigint,
  out ticket bigint, out waiters_ahead integer, out facts leasehold.lease_facts)
language plpgsql
as $$
#variable_conflict use_column
declare
  v_scope leasehold.scope;
  v_rules leasehold.rules;
  v_life leasehold.life_now := leasehold.life(p_clock);
  v_now timestamptz;
  v_ticket bigint;
begin
  select r.* into v_rules from leasehold.rules_of(p_namespace) r;
  if v_rules.max_waiters is not null
     or leasehold.is_plain(v_rules, p_owner, p_labels, p_duration_us, p_wait_us) is not true
  then
    return;
  end if;
  perform leasehold.ensure_epoch();
  select x.*
    into v_scope
    from leasehold.scope x
   where x.namespace = p_namespace and x.key = p_key
     and x.state = 'held' and not x.lapsed and x.lease_key <> p_lease_key and p_lease_key <> all (x.ended_keys)
     for no key update skip locked;
  if not found then
    return;
  end if;
  v_now := clock_timestamp();
  if leasehold.is_expired(v_scope, v_life, v_rules.expiry, v_now) then
    return;
  end if;
  insert into leasehold.waiter (namespace, key, ticket, lease_key, coordinator, enqueued_at, wait_until, duration, owner)
  values (p_namespace, p_key, nextval('leasehold.ticket'), p_lease_key, p_coordinator, v_now,
          v_now + leasehold.from_us(p_wait_us), leasehold.from_us(p_duration_us), p_owner)
      on conflict do nothing
  returning ticket into v_ticket;
  if v_ticket is null then
    return;
  end if;
  if not v_scope.queued then
    update leasehold.scope s set queued = true where s.namespace = p_namespace and s.key = p_key;
  end if;
  ticket := v_ticket;
  waiters_ahead := leasehold.tickets_ahead(
    leasehold.live_tickets(p_namespace, p_key, leasehold.live_coordinators(v_now), v_now), v_ticket);
  select f.* into facts from leasehold.lease_facts(v_scope, v_rules, v_life, v_now) f;
end
$$;

revoke execute on function
  leasehold.is_plain(leasehold.rules, text, text, bigint, bigint),
  leasehold.queue_one(uuid, timestamptz, text, text, uuid, text, text, bigint, bigint) from public;
