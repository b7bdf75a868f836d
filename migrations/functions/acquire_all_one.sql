-- Several scopes at once, under one lease key: all are granted in one transaction, or none. acquire_general() decides about each item as
-- about any other; all_or_none() makes one answer of that. While the request waits it holds nothing, and has a place in the queue of each scope:
-- all with one ticket, which is drawn while it has every scope's row locked. So queues have the same order everywhere, the
-- oldest request waits for holders only, and nobody waits in a circle, whatever order callers name their scopes in.

-- Acquire these scopes together, by a coordinator. `p_ticket` is 0 for the first time, and the ticket that it has when it asks again. One
-- item is an ordinary acquire. Returns what acquire_batch() does: where all are granted, or were before (renewed), a row for each item; else
-- exactly one row, for the item that is the reason. Of several that are in the way, which is `queued` or `held`, it is the first;
-- expires_in_us and suspected_in_us are the soonest of any. `field` is then that item's, or of the whole request, `hooked` has the limits of all items
-- with hooks together.
-- Where it stands in its queues and something keeps it waiting, it locks nothing (keep_waiting).
-- Else it locks the scopes' rows FOR NO KEY UPDATE SKIP LOCKED in byte order, and stops at the first that another session has (busy): of several
-- that want each other's scopes, one gets them. Then what acquire_batch() does.
create or replace function leasehold_internal.acquire_all_one(
  p_coordinator uuid, p_clock timestamptz, p_namespace text[], p_key text[], p_lease_key uuid, p_owner text, p_labels text,
  p_duration_us bigint, p_queue boolean, p_wait_us bigint, p_ticket bigint, p_principal text default null, p_at_least_us bigint[] default null,
  p_units integer[] default null)
returns setof leasehold_internal.answer
language plpgsql
security definer
{{joins.settings}}
set jit = off
as $$
declare
  v_count constant integer := cardinality(p_namespace);
  v_item integer;
  v_answer leasehold_internal.answer;
  v_problem leasehold_internal.problem := leasehold_internal.items_problem(p_namespace, p_key, p_lease_key, p_queue);
begin
  v_answer.n := 1;
  v_answer.waiters_ahead := 0;
  if v_problem.field is not null then
    v_answer.outcome := 'invalid';
    v_answer.field := v_problem.field;
    v_answer.bound := v_problem.bound;
    return next v_answer;
    return;
  elsif v_count = 1 then
    return query
      select * from leasehold_internal.acquire_batch(
        p_coordinator, p_clock, p_namespace, p_key, array[p_lease_key], array[p_owner], array[p_labels], array[p_duration_us], array[p_queue],
        array[p_wait_us], array[p_ticket], array[p_principal], p_at_least_us, p_units);
    return;
  end if;

  if p_queue and p_ticket > 0 then
    return query
      select *
        from leasehold_internal.keep_waiting(p_coordinator, p_clock, p_namespace, p_key, p_lease_key, p_owner, p_duration_us, p_wait_us, p_ticket,
                                             p_principal, p_units);
    if found then
      return;
    end if;
  end if;

  for v_item in select i.n from unnest(p_namespace, p_key) with ordinality i (namespace, key, n) order by i.namespace collate "C", i.key collate "C" loop
    perform 1 from leasehold.scope s where s.namespace = p_namespace[v_item] and s.key = p_key[v_item] for no key update skip locked;
    if not found and exists (select from leasehold.scope s where s.namespace = p_namespace[v_item] and s.key = p_key[v_item]) then
      v_answer.n := v_item;
      v_answer.outcome := 'busy';
      return next v_answer;
      return;
    end if;
  end loop;

  if not (exists (select from leasehold.registered_hook) and leasehold_internal.runs_hooks(p_coordinator is null)) then
    {{all_together.text}}
  end if;
  -- As acquire_hooked(): where a hook vetoes, nothing was done but that the places in the queues go.
  begin
    {{all_together.text}}
  exception when sqlstate 'LH905' then
    get stacked diagnostics v_answer.message = message_text, v_answer.n = pg_exception_detail;
  end;
  v_answer.outcome := 'rejected';
  delete from leasehold.waiter w
   using unnest(p_namespace, p_key) i (namespace, key)
   where w.lease_key = p_lease_key and (w.namespace, w.key) is not distinct from (i.namespace, i.key);
  if found then
    perform leasehold_internal.wake_head(null, s.namespace, s.key)
       from unnest(p_namespace, p_key) i (namespace, key)
       join leasehold.scope s
         on s.namespace = i.namespace and s.key = i.key
      where s.state <> 'held' or s.lapsed or s.deadline + s.grace <= clock_timestamp();
  end if;
  return next v_answer;
end
$$;
comment on function leasehold_internal.acquire_all_one is 'Acquire several scopes at once, or none, by a coordinator';

-- What is wrong with the items of a request, whatever their scopes are like; null when nothing is. `p_queue`: it would wait. Locks nothing.
create or replace function leasehold_internal.items_problem(p_namespace text[], p_key text[], p_lease_key uuid, p_queue boolean)
returns leasehold_internal.problem
language plpgsql
set enable_seqscan = off
as $$
begin
  return case
    when coalesce(cardinality(p_namespace), 0) not between 1 and 100 or cardinality(p_key) <> cardinality(p_namespace)
      then row('items', '1 to 100')::leasehold_internal.problem
    when exists (select from unnest(p_namespace, p_key) i (namespace, key) group by i.namespace, i.key having count(*) > 1)
      then row('items', 'different scopes')::leasehold_internal.problem
    when exists (select
                   from leasehold.waiter w
                  where w.lease_key = p_lease_key and w.items is not null
                    and (w.items <> cardinality(p_namespace)
                         or not exists (select from unnest(p_namespace, p_key) i (namespace, key)
                                         where i.namespace = w.namespace and i.key = w.key)))
      then row('items', 'those that this lease key waits for')::leasehold_internal.problem
    when p_queue and cardinality(p_namespace) > 1
         and exists (select
                       from unnest(p_namespace, p_key) i (namespace, key)
                       join leasehold.waiter w
                         on w.lease_key = p_lease_key and (w.namespace, w.key) is not distinct from (i.namespace, i.key)
                      where w.items is null)
      then row('lease_key', 'one that does not wait for one of the items alone')::leasehold_internal.problem
  end;
end
$$;

-- What is said about the items of a request, as one answer: see acquire_all_one(). Locks nothing.
create or replace function leasehold_internal.one_answer(p_answers leasehold_internal.answer[]) returns setof leasehold_internal.answer
language plpgsql immutable
as $$
begin
  return query
    select r.n, r.outcome, r.ticket, r.waiters_ahead, case when r.is_granted then r.expires_in_us else r.expires_first_us end,
           case when r.is_granted then r.suspected_in_us else r.suspected_first_us end,
           case when r.outcome <> 'hooked' then r.message when r.has_limit then r.limits_us::text else '0' end, r.field,
           nullif(r.bound, 'together'), {{lease.columns r}}, r.rests_in_us, {{shape.columns r}}, r.units_free,
           r.holder_count
      from (select g.*, bool_and(g.outcome in ('granted', 'renewed')) over () as is_granted,
                   min(g.expires_in_us) filter (where g.is_in_the_way) over () as expires_first_us,
                   min(g.suspected_in_us) filter (where g.is_in_the_way) over () as suspected_first_us,
                   sum(case when g.outcome = 'hooked' then g.message::bigint end) over () as limits_us,
                   bool_and(g.message <> '0') filter (where g.outcome = 'hooked') over () as has_limit,
                   row_number() over (order by array_position(array['invalid', 'ended', 'frozen', 'elsewhere', 'quota', 'busy', 'hooked'], g.outcome),
                                               g.is_in_the_way desc, g.n) as nth
              from (select c.*, c.outcome in ('queued', 'held') and c.bound is null as is_in_the_way from unnest(p_answers) c) g) r
     where r.is_granted or r.nth = 1
     order by r.n;
end
$$;

-- What acquire_general() says about the items, as one answer.
create or replace function leasehold_internal.acquire_together(
  p_coordinator uuid, p_clock timestamptz, p_namespace text[], p_key text[], p_lease_key uuid, p_owner text, p_labels text,
  p_duration_us bigint, p_queue boolean, p_wait_us bigint, p_ticket bigint, p_principal text, p_at_least_us bigint[], p_units integer[])
returns setof leasehold_internal.answer
language plpgsql volatile
as $$
begin
  return query
    select r.*
      from leasehold_internal.one_answer(array(
             select c
               from leasehold_internal.acquire_general(
                      p_coordinator, p_clock, p_namespace, p_key, array_fill(p_lease_key, array[cardinality(p_key)]),
                      array_fill(p_owner, array[cardinality(p_key)]), array_fill(p_labels, array[cardinality(p_key)]),
                      array_fill(p_duration_us, array[cardinality(p_key)]), array_fill(p_queue, array[cardinality(p_key)]),
                      array_fill(p_wait_us, array[cardinality(p_key)]), array_fill(p_ticket, array[cardinality(p_key)]),
                      array_fill(p_principal, array[cardinality(p_key)]), p_at_least_us, p_units, true) c)) r;
end
$$;

-- What each item of a request gets, once it is decided what it would get alone. All are granted or renewed, or
-- one or more are refused (invalid, ended, frozen, elsewhere, quota: then all lose their places, `left`; busy, hooked: nothing happens), or
-- one or more wait, and the others with them: `bound` is 'together' in these. Twice the same as once. Locks nothing.
create or replace function leasehold_internal.all_or_none(p_work leasehold.acquire_work[]) returns leasehold.acquire_work[]
language plpgsql stable
as $$
begin
  return (select array_agg(
                   row(w.n, w.namespace, w.key, w.lease_key, w.owner, w.labels, w.duration, w.queue, w.wait, w.ticket,
                       coalesce(p.field, w.field),
                       case when p.field = 'lease_key' then 'one that holds all items, or none of them'
                            when p.field = 'items' then 'those that were acquired with this lease key'
                            when o.outcome <> w.outcome then 'together'
                            else w.bound end,
                       w.rules, w.scope, case when w.hold = 'invalid' then 'locked' else w.hold end, w.own_ticket,
                       -- Whoever comes after it is told where it loses its place.
                       case when not (o.outcome <> w.outcome or w.is_left) then w.head_ticket
                            when w.is_left and (w.scope).state <> 'held' then w.own_ticket end,
                       o.outcome, w.units, w.holder, w.priority, w.at)::leasehold.acquire_work
                   order by w.n)
            from (select u.*,
                         bool_or(u.outcome not in ('granted', 'renewed', 'queued', 'held', 'left')) over () as is_refused,
                         bool_or(u.outcome in ('invalid', 'ended', 'frozen', 'elsewhere', 'quota')) over () as is_left,
                         bool_or(u.outcome in ('queued', 'held')) over () as has_to_wait,
                         count(*) filter (where u.outcome = 'renewed') over () as renewed,
                         count(*) over () as count,
                         case when (h.holder).together[1] = (h.holder).token then (h.holder).together[2] end as acquired
                    from unnest(p_work) u
                   cross join lateral (select case when (u.holder).state = 'held' then u.holder else u.scope end as holder) h) w
           cross join lateral (
             select case when w.is_refused or w.renewed = 0 then null
                         when w.renewed < w.count then case when w.outcome <> 'renewed' then 'lease_key' end
                         when w.acquired is distinct from w.count then 'items' end) p (field)
           cross join lateral (
             select case when p.field is not null then 'invalid'
                         when w.outcome not in ('granted', 'renewed', 'queued', 'held') then w.outcome
                         when w.is_left or not w.is_refused and w.renewed between 1 and w.count - 1 then 'left'
                         when w.is_refused then 'held'
                         when w.outcome = 'granted' and w.has_to_wait then case when w.queue then 'queued' else 'held' end
                         else w.outcome end) o (outcome));
end
$$;

-- Whoever waits for several scopes has one ticket: that which it has, or brings along, or the next. Where another has that number in one of
-- the queues, or its wait was over, all its places are new. The caller has the rows locked.
create or replace function leasehold_internal.with_one_ticket(p_work leasehold.acquire_work[]) returns leasehold.acquire_work[]
language plpgsql
set enable_seqscan = off
as $$
declare
  v_item leasehold.acquire_work;
  v_ticket bigint;
  v_is_new boolean;
begin
  if not exists (select from unnest(p_work) w where w.outcome = 'queued') then
    return p_work;
  end if;
  select coalesce(max(w.own_ticket), max(w.ticket)) into v_ticket from unnest(p_work) w;
  v_is_new := v_ticket is null
              or exists (select
                           from unnest(p_work) w
                           left join leasehold.waiter q
                             on q.namespace = w.namespace and q.key = w.key and q.ticket = v_ticket
                          where q.lease_key <> w.lease_key or q.wait_until <= clock_timestamp() or w.own_ticket <> v_ticket);
  if v_is_new then
    v_ticket := nextval('leasehold.ticket');
    delete from leasehold.waiter q
     using unnest(p_work) w
     where w.own_ticket is not null and q.lease_key = w.lease_key and (q.namespace, q.key) is not distinct from (w.namespace, w.key);
  end if;
  foreach v_item in array p_work loop
    v_item.ticket := v_ticket;
    v_item.own_ticket := case when not v_is_new then v_item.own_ticket end;
    p_work[v_item.n] := v_item;
  end loop;
  return p_work;
end
$$;

-- Leases that were granted together know how many they are, so that a repeat must name them all. The caller has the rows locked.
create or replace function leasehold_internal.mark_together(p_work leasehold.acquire_work[]) returns void
language plpgsql
{{joins.settings}}
as $$
begin
  if not exists (select from unnest(p_work) w where w.outcome = 'granted') then
    return;
  end if;
  update leasehold.scope s
     set together = array[s.token, cardinality(p_work)]
    from unnest(p_work) w
   where w.units is null and s.namespace = w.namespace and s.key = w.key;
  update leasehold.share h
     set items = cardinality(p_work)
    from unnest(p_work) w
   where w.units is not null and h.namespace = w.namespace and h.key = w.key and h.lease_key = w.lease_key;
end
$$;

-- Items whose lease key waits for their scope and others together are not for this scope alone: invalid. Locks nothing.
create or replace function leasehold_internal.refuse_parts(p_work leasehold.acquire_work[]) returns leasehold.acquire_work[]
language plpgsql
set enable_seqscan = off
as $$
declare
  v_item leasehold.acquire_work;
  v_found record;
begin
  for v_found in
    select w as item, q.items
      from unnest(p_work) w
      join leasehold.waiter q
        on q.lease_key = w.lease_key and q.namespace = w.namespace and q.key = w.key and q.items is not null
  loop
    v_item := v_found.item;
    v_item.field := 'lease_key';
    v_item.bound := format('another: this one waits for %s scopes together', v_found.items);
    v_item.hold := 'invalid';
    p_work[v_item.n] := v_item;
  end loop;
  return p_work;
end
$$;

grant execute on function leasehold_internal.acquire_all_one to leasehold_coordinator, leasehold_admin;
