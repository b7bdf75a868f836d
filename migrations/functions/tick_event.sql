-- What the leases of a schedule's namespace tell its ticks: set_schedule() registers this hook there. So a tick is claimed and ended in the transaction
-- of its lease, whoever acquires it and by whichever way: claim_tick(), acquire(), or a daemon.

-- Raises where the tick may not be claimed. What happens below the namespace is no tick's. The caller has the scope's row locked. Locks the tick's
-- row, and a slot, skipping what others take.
create or replace function leasehold_internal.tick_event(p_event leasehold.lease_event) returns void
language plpgsql
as $$
declare
  v_schedule leasehold.schedule;
  v_at timestamptz;
begin
  select s.* into v_schedule from leasehold.schedule s where s.name = p_event.namespace;
  if not found then
    return;
  elsif p_event.key !~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$' then
    -- A lease that was there before the schedule ends as any other.
    if p_event.event = 'acquire' then
      raise exception '% is a schedule: a key there is the instant of a tick, as 2026-11-28T03:00:00Z', p_event.namespace;
    end if;
    return;
  end if;
  v_at := p_event.key::timestamptz;
  case p_event.event
    when 'acquire' then
      perform leasehold_internal.begin_tick(v_schedule, v_at, p_event);
    when 'release_ok' then
      perform leasehold_internal.end_tick(p_event.namespace, v_at, p_event.token, true, p_event.result, null);
    when 'release_fail' then
      perform leasehold_internal.end_tick(p_event.namespace, v_at, p_event.token, false, null, p_event.error);
    else
      perform leasehold_internal.end_tick(p_event.namespace, v_at, p_event.token, false, null,
                                          coalesce(p_event.error, 'its worker did not renew the lease in time'));
  end case;
end
$$;

-- A tick begins to run. Raises where it may not.
create or replace function leasehold_internal.begin_tick(p_schedule leasehold.schedule, p_at timestamptz, p_event leasehold.lease_event) returns void
language plpgsql
as $$
declare
  v_tick leasehold.tick;
  v_now timestamptz;
  v_trouble text;
begin
  select t.* into v_tick from leasehold.tick t where t.schedule = p_schedule.name and t.at = p_at for update;
  v_now := clock_timestamp();
  -- The same hook may be registered above, for a schedule there.
  if v_tick.state = 'running' and v_tick.token = p_event.token then
    return;
  end if;
  v_trouble := case
    when v_tick.state is null then 'there is no such tick'
    when v_tick.state not in ('due', 'failed') then 'it is ' || v_tick.state
    when v_tick.next_try_at > v_now then 'it may not be claimed before ' || leasehold_internal.tick_key(v_tick.next_try_at)
    when v_tick.state = 'due' and v_tick.claim_until <= v_now then 'it was to be claimed before ' || leasehold_internal.tick_key(v_tick.claim_until)
    when p_schedule.paused and not v_tick.by_hand then 'the schedule is paused' end;
  if v_trouble is null then
    update leasehold.tick_slot s
       set at = p_at
      from (select f.slot
              from leasehold.tick_slot f
             where f.schedule = p_schedule.name and f.at is null and f.slot <= p_schedule.overlap
             order by f.slot
             limit 1
               for update skip locked) f
     where s.schedule = p_schedule.name and s.slot = f.slot;
    if not found then
      v_trouble := format('%s of its ticks may run at once (overlap), and so many do', p_schedule.overlap);
    end if;
  end if;
  if v_trouble is not null then
    raise exception 'the tick %/% cannot be claimed: %', p_schedule.name, leasehold_internal.tick_key(p_at), v_trouble;
  end if;
  update leasehold.tick t
     set state = 'running',
         attempts = t.attempts + 1,
         token = p_event.token,
         owner = p_event.owner,
         lease_key = p_event.lease_key,
         next_try_at = null,
         started_at = p_event.acquired_at,
         error = null
   where t.schedule = p_schedule.name and t.at = p_at;
end
$$;

-- A tick's lease has ended: it is done, waits for its next attempt, or is dead. Nothing happens where another claim has it now. Locks the tick's row and
-- its slot.
create or replace function leasehold_internal.end_tick(
  p_name text, p_at timestamptz, p_token bigint, p_is_done boolean, p_result jsonb, p_error text)
returns void
language plpgsql
as $$
declare
  v_now constant timestamptz := clock_timestamp();
begin
  update leasehold.tick t
     set state = n.state,
         next_try_at = case when n.state = 'failed' then v_now + least(s.backoff * 2 ^ least(t.attempts - 1, 20), interval '1 day') end,
         ended_at = case when n.state <> 'failed' then v_now end,
         result = p_result,
         error = p_error
    from leasehold.schedule s
   cross join lateral (
     select case when p_is_done then 'done' when x.attempts < s.attempts then 'failed' else 'dead' end as state
       from leasehold.tick x
      where x.schedule = p_name and x.at = p_at) n
   where s.name = p_name and t.schedule = p_name and t.at = p_at and t.state = 'running' and t.token = p_token;
  if found then
    update leasehold.tick_slot f set at = null where f.schedule = p_name and f.at = p_at;
    perform leasehold_internal.tell_workers(p_name);
  end if;
end
$$;
