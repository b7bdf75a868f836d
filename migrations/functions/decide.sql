-- The decision of an acquire: what each item of a batch gets, and why. Every other function that grants is a quick twin of it for common cases;
-- acquire_batch() names them.
-- Promise 1: under its row's lock a scope is granted exclusively when it is free, or its lease has expired; shared when it is free or shared and
-- the units fit; and either when its minimum hold is over.
-- Promise 6: of those who ask for one scope, in the order of their places, the longest prefix is granted that fits. It ends before the first
-- live waiter that is not among them. Where anybody has a priority, is_preceded() says who is before whom.
-- Returns the items with outcome, own_ticket, head_ticket (the first live waiter of a scope that is open, but for the item's own lease key), field
-- and bound. The caller has the rows locked, by earlier statements. Locks nothing.
create or replace function leasehold_internal.decide(
  p_work leasehold.acquire_work[], p_life leasehold.life_now, p_live uuid[], p_now timestamptz)
returns leasehold.acquire_work[]
language plpgsql
as $$
declare
  v_found record;
  v_item leasehold.acquire_work;
  v_lease leasehold.scope;
  v_is_live boolean;
  v_is_ended boolean;
  v_late_field text;
  v_is_open boolean;
  v_fits boolean;
  v_would_take integer;
  -- About the scope of the item, so far: who has asked for it while it was open, who is granted it, whether one has asked for all of it, and
  -- the units that are taken, those included that were asked for and did not fit.
  v_namespace text;
  v_key text;
  v_asking uuid[];
  v_granted uuid[];
  v_is_wanted_whole boolean;
  v_taken integer;
begin
  if exists (select from unnest(p_work) w
              where w.priority <> 0
                 or exists (select from leasehold.waiter q where q.namespace = w.namespace and q.key = w.key and q.priority > 0)) then
    p_work := leasehold_internal.with_priorities(p_work, p_now);
  end if;
  for v_found in
    select w as item, q.ticket as own_ticket, h.ticket as head_ticket,
           -- Whose wait is over has lost its place.
           coalesce(case when q.is_in_time then q.ticket end, w.ticket, 9223372036854775807) as place
      from unnest(p_work) w
      left join lateral (
        select o.ticket, o.wait_until is null or o.wait_until > p_now as is_in_time
          from leasehold.waiter o
         where o.lease_key = w.lease_key and (o.namespace, o.key) is not distinct from (w.namespace, w.key)
        offset 0) q on true
      left join lateral (
        select f.ticket
          from leasehold_internal.live_head(w.namespace, w.key, p_live, p_now, array[w.lease_key]) f
         where w.hold in ('new', 'expired') or (w.scope).state <> 'held' and w.hold not in ('resting', 'busy', 'hooked')) h on true
     order by w.namespace, w.key, w.at, case when w.at is not null then -w.priority end, place, w.n
  loop
    v_item := v_found.item;
    v_item.own_ticket := v_found.own_ticket;
    v_item.head_ticket := v_found.head_ticket;
    if v_item.namespace is distinct from v_namespace or v_item.key is distinct from v_key then
      v_namespace := v_item.namespace;
      v_key := v_item.key;
      v_asking := '{}';
      v_granted := '{}';
      v_is_wanted_whole := false;
      v_taken := null;
    end if;

    -- What its lease key has to do with the scope: does it hold it (is_live), or has it ended here; or which field can never be granted:
    -- another mode or other units than it holds, more units than the capacity.
    v_is_live := false;
    v_is_ended := false;
    v_late_field := null;
    if v_item.hold in ('locked', 'expired', 'resting') then
      v_lease := case when (v_item.holder).state = 'held' then v_item.holder else v_item.scope end;
      v_is_live := v_item.hold = 'locked' and v_lease.state = 'held' and v_lease.lease_key = v_item.lease_key and not v_lease.lapsed
                   and not leasehold_internal.is_expired(v_lease, p_life, (v_item.rules).expiry, p_now);
      v_is_ended := not v_is_live
                    and (v_item.holder is distinct from null or coalesce(v_lease.lease_key = v_item.lease_key, false)
                         or v_item.lease_key = any (v_lease.ended_keys));
    end if;
    if v_is_live and (v_item.units is null) <> (v_lease.units is null) then
      v_late_field := 'mode';
    elsif v_item.units <> v_lease.units and v_is_live or v_item.units > (v_item.rules).capacity and not v_is_live then
      v_late_field := 'units';
    end if;
    v_is_open := v_item.field is null and not v_is_live and not v_is_ended and v_late_field is null and not (v_item.rules).frozen
                 and (v_item.hold in ('new', 'expired') or v_item.hold = 'locked' and (v_item.scope).state <> 'held')
                 and v_item.lease_key <> all (v_asking);
    v_fits := false;
    if v_is_open then
      v_taken := coalesce(v_taken, (v_item.scope).units, 0);
      v_would_take := v_taken + v_item.units;
      v_fits := case when v_item.units is null then v_asking = '{}' and coalesce((v_item.scope).holders, 0) = 0
                     else not v_is_wanted_whole and v_would_take <= coalesce((v_item.rules).capacity, v_would_take) end;
      v_asking := v_asking || v_item.lease_key;
      v_is_wanted_whole := v_is_wanted_whole or v_item.units is null;
      -- One that fits the capacity (null: none is set) and would make it more than a million is refused, and takes none.
      if v_item.units is not null and (v_would_take <= 1000000 or v_would_take > (v_item.rules).capacity) then
        v_taken := least(v_would_take, 2000000);
      end if;
      -- A waiter before it may be one of those who ask, who came before it here too.
      if v_item.at is not null then
        v_fits := v_fits and not leasehold_internal.is_preceded(v_namespace, v_key, p_live, p_now, v_asking, v_found.place, v_item.priority, v_item.at);
      elsif v_fits and v_found.head_ticket < v_found.place and cardinality(v_asking) > 1 then
        v_fits := not exists (select from leasehold_internal.live_head(v_namespace, v_key, p_live, p_now, v_asking) h
                               where h.ticket < v_found.place);
      else
        v_fits := v_fits and v_found.place <= coalesce(v_found.head_ticket, v_found.place);
      end if;
    end if;

    if v_late_field is not null and v_item.field is null then
      v_item.bound := case
        when v_late_field = 'mode' and v_item.units is null then 'shared, as this lease key holds it: release it before you acquire it exclusively'
        when v_late_field = 'mode' then 'exclusive, as this lease key holds it: downgrade it to share it'
        when v_is_live then format('%s, as this lease key holds it', v_lease.units)
        else format('1 to %s, the capacity, is %s', (v_item.rules).capacity, v_item.units) end;
    elsif v_fits and v_would_take > 1000000 then
      v_item.bound := 'units = 1000000 in one scope';
    end if;
    v_item.outcome := case
      when v_item.field = 'priority' and v_item.priority between 1 and 1000 then 'denied'
      when v_item.field is not null then 'invalid'
      when v_item.hold in ('busy', 'hooked') then v_item.hold
      when v_is_ended then 'ended'
      when v_late_field is not null then 'invalid'
      when v_is_live then 'renewed'
      when not leasehold_internal.has_key((v_item.rules).slots, v_item.key) then 'elsewhere'
      when (v_item.rules).frozen then 'frozen'
      when v_fits and v_would_take > 1000000 then 'quota'
      when v_fits then 'granted'
      -- The same lease key twice in a batch is one acquisition.
      when v_item.lease_key = any (v_granted) then 'renewed'
      when v_item.queue then 'queued'
      else 'held' end;
    v_item.field := coalesce(v_item.field, v_late_field);
    if v_item.outcome = 'elsewhere' then
      v_item.field := 'key';
      v_item.bound := leasehold_internal.elsewhere_words(v_namespace, v_key);
    end if;
    if v_fits then
      v_granted := v_granted || v_item.lease_key;
    end if;
    p_work[v_item.n] := v_item;
  end loop;
  return p_work;
end
$$;
