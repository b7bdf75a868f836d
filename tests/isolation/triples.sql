-- Clients that lock random triples of 50 names, some a single name, and some give up; each is a coordinator by itself and asks again until
-- it is granted. What happens is numbered while the rows are locked, so that the numbers of a key are the order of what happened.
create schema app;
create sequence app.number cache 1;
create table app.happened (number bigint not null, what text, key text, request uuid, token bigint, ticket bigint, units integer);
create index on app.happened (request);
select leasehold.set_policy('t', capacity => 2, max_leases => null);
create function app.coordinator(p_client integer) returns uuid language sql immutable as $$
  select ('00000000-0000-4000-8000-' || lpad(p_client::text, 12, '0'))::uuid
$$;
select leasehold_internal.coordinator_register(app.coordinator(n), 'host', n, '0.1.0') from generate_series(1, 50) n;
update leasehold.coordinator set seen_at = clock_timestamp() + interval '1 day';
select leasehold.reap();

create function app.note(p_what text, p_keys text[], p_request uuid, p_tokens bigint[], p_ticket bigint, p_units integer[]) returns void language sql as $$
  insert into app.happened
  select nextval('app.number'), p_what, p_keys[i], p_request, p_tokens[i], p_ticket, p_units[i] from generate_subscripts(p_keys, 1) i
$$;

create procedure app.client(p_client integer, p_requests integer) language plpgsql as $$
declare
  v_id uuid := app.coordinator(p_client);
  v_since timestamptz;
  v_request uuid;
  v_keys text[];
  v_units integer[];
  v_namespaces text[];
  v_outcome text;
  v_tokens bigint[];
  v_ticket bigint;
  v_asked integer;
  v_patience integer;
begin
  for v_nth in 1 .. p_requests loop
    v_since := clock_timestamp();
    v_request := gen_random_uuid();
    v_keys := array(select 'k' || n from generate_series(1, 50) n order by random() limit case when random() < 0.15 then 1 else 3 end);
    v_units := array(select case when random() < 0.2 then 1 end from unnest(v_keys));
    v_namespaces := array_fill('t'::text, array[cardinality(v_keys)]);
    v_ticket := null;
    v_asked := 0;
    v_patience := case when random() < 0.1 then 3 end;
    loop
      if clock_timestamp() > v_since + interval '10 min' then
        raise exception 'client % waits for % since ever', p_client, v_keys;
      end if;
      select min(b.outcome), array_agg(b.token order by b.n), coalesce(min(b.ticket), v_ticket)
        into v_outcome, v_tokens, v_ticket
        from leasehold_internal.acquire_all_one(v_id, null, v_namespaces, v_keys, v_request, 'c' || p_client, '{}', 3600000000, true, null,
                                                coalesce(v_ticket, 0), null, null, v_units) b;
      v_asked := v_asked + 1;
      if v_outcome = 'granted' then
        perform app.note('granted', v_keys, v_request, v_tokens, v_ticket, v_units);
      elsif v_outcome = 'queued' and not exists (select from app.happened h where h.request = v_request) then
        perform app.note('queued', v_keys, v_request, null, v_ticket, v_units);
      elsif v_outcome not in ('queued', 'busy') then
        raise exception 'client % is told % of %', p_client, v_outcome, v_keys;
      end if;
      commit;
      exit when v_outcome = 'granted' or (v_outcome = 'queued' and v_asked > v_patience);
      -- As it would be woken: where it is the first in every queue, and none of the keys is held. Now and then without.
      loop
        perform pg_sleep(random() * case when v_outcome = 'busy' then 0.01 else 0.05 end);
        commit;
        exit when v_outcome = 'busy' or random() < 0.02
               or not exists (select from leasehold.scope s
                               where s.namespace = 't' and s.key = any (v_keys)
                                 and (s.state = 'held' or exists (select from leasehold.waiter w
                                                                   where w.namespace = 't' and w.key = s.key and w.ticket < v_ticket)));
      end loop;
    end loop;
    -- It gives back what it has, or its places, one after the other: a key may be busy.
    if v_outcome = 'granted' then
      perform pg_sleep(random() * 0.005);
      commit;
    end if;
    for v_i in 1 .. cardinality(v_keys) loop
      loop
        if v_outcome = 'granted' then
          perform 1 from leasehold_internal.release_batch(v_id, array['t'], v_keys[v_i:v_i], array[v_request], array[false], array[null::text]) r where r.outcome = 'ok';
        else
          perform 1 from leasehold_internal.leave_batch(v_id, array['t'], v_keys[v_i:v_i], array[v_request], array[false]) r where r.outcome = 'ok';
        end if;
        if found then
          perform app.note(case v_outcome when 'granted' then 'released' else 'left' end, v_keys[v_i:v_i], v_request, v_tokens[v_i:v_i], v_ticket, v_units[v_i:v_i]);
          commit;
          exit;
        end if;
        commit;
        perform pg_sleep(random() * 0.003);
        commit;
      end loop;
    end loop;
  end loop;
end $$;

-- What must not be: a row for each.
create view app.broken as
  select 'a grant beside a holder that excludes it' as what, g.key, g.request
    from app.happened g
    join app.happened o
      on o.key = g.key and o.what = 'granted' and o.number < g.number and (o.units is null or g.units is null)
   where g.what = 'granted'
     and not exists (select from app.happened r where r.what = 'released' and r.key = o.key and r.request = o.request and r.number < g.number)
  union all
  select 'more shared leases than the capacity', g.key, g.request
    from app.happened g
   where g.what = 'granted' and g.units > 0
     and (select sum(case o.what when 'granted' then o.units else -o.units end) from app.happened o
           where o.key = g.key and o.number <= g.number and o.what in ('granted', 'released')) > 2
  union all
  select 'granted before one that waits since longer', g.key, g.request
    from app.happened g
    join app.happened q
      on q.key = g.key and q.what = 'queued' and q.number < g.number and q.request <> g.request and (g.ticket is null or q.ticket < g.ticket)
   where g.what = 'granted'
     and not exists (select from app.happened e where e.what in ('granted', 'left') and e.key = q.key and e.request = q.request and e.number < g.number)
  union all
  select 'a smaller token', key, request
    from (select h.*, lag(h.token) over (partition by h.key order by h.number) as previous from app.happened h where h.what = 'granted') t
   where token <= previous
  union all
  select 'granted in part', min(key), request
    from app.happened where what in ('granted', 'queued') group by request having count(distinct key) not in (1, 3)
  union all
  select 'different tickets', min(key), request from app.happened group by request having count(distinct ticket) > 1
  union all
  select 'never ended', min(key), request from app.happened group by request, key having bool_and(what in ('granted', 'queued'))
  union all
  select 'somebody waits still', w.key, w.lease_key from leasehold.waiter w
  union all
  select 'held still', s.key, s.lease_key from leasehold.scope s where s.state <> 'free';
