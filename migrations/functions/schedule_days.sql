-- What the console draws of schedules: for each the ticks of 25 hours before now and 25 after, so that today is in it in every time zone, and how it stands.

-- A page of schedules in the order of their names. `first`, `length`, `states` and `ticks` are lists of numbers with commas between: from period `first` on
-- each of `length` periods of 5 min has `ticks` ticks of that state, 0: to come, else the number of its TickState. The first period begins at `begins_at`.
-- Instants to come are the next 300; where there may be more, `listed_until` is the last of them. Reads ticks by the primary key. Locks nothing.
create or replace function leasehold_internal.view_schedule_days(
  p_namespaces text[], p_include_children boolean, p_key text, p_limit integer, p_after text)
returns table (
  namespace text, last_at timestamptz, last_state text, last_ended_at timestamptz, last_owner text, last_error text, running_at timestamptz,
  running_since timestamptz, running_owner text, begins_at timestamptz, period bigint, first text, length text, states text, ticks text,
  listed_until timestamptz, after text)
language sql stable
security definer
set jit = off
as $$
  select s.name, l.at, l.state, l.ended_at, l.owner, l.error, r.at, r.started_at, r.owner, w.begins, 300000000, d.first, d.length, d.states, d.ticks,
         case when c.last_nth = 300 then c.last_at end, s.name
    from leasehold.schedule s
   cross join lateral (
         select to_timestamp(floor(extract(epoch from statement_timestamp()) / 300) * 300) - interval '25 hours' as begins) w
    left join lateral (
         select t.at, t.state, t.ended_at, t.owner, t.error
           from leasehold.tick t
          where t.schedule = s.name and t.state not in ('due', 'running')
          order by t.at desc
          limit 1) l on true
    left join lateral (
         select t.at, t.started_at, t.owner
           from leasehold.tick t
          where t.schedule = s.name and t.state = 'running'
          order by t.at
          limit 1) r on true
   cross join lateral (
         select array_agg(i order by i) as instants, max(i) as last_at, count(*) as last_nth
           from leasehold_internal.instants(
                  leasehold_internal.read_expression(s.expression), case when s.error is null then s.time_zone else 'UTC' end, coalesce(s.starts_at, '1970-01-01Z'),
                  greatest(s.made_until, statement_timestamp()), least(s.ends_at, w.begins + interval '50 hours' - interval '1 s'),
                  case when s.paused or s.error is not null then 0 else 300 end) i) c
   cross join lateral (
         select string_agg(x.first::text, ',' order by x.first, x.state) as first, string_agg(x.length::text, ',' order by x.first, x.state) as length,
                string_agg(x.state::text, ',' order by x.first, x.state) as states, string_agg(x.ticks::text, ',' order by x.first, x.state) as ticks
           from (-- Periods side by side with as many ticks of the same state are one entry.
                 select min(g.nth) as first, count(*) as length, g.state, g.ticks
                   from (select p.*, p.nth - row_number() over (partition by p.state, p.ticks order by p.nth) as island
                           from (select floor(extract(epoch from m.at - w.begins) / 300)::integer as nth, m.state, count(*) as ticks
                                   from (select t.at, array_position(array['due', 'running', 'done', 'failed', 'dead', 'missed', 'skipped'], t.state) as state
                                           from leasehold.tick t
                                          where t.schedule = s.name and t.at >= w.begins and t.instants = 1
                                          union all
                                         select u.at, 0 from unnest(c.instants) u (at)) m
                                  group by 1, 2) p) g
                  group by g.island, g.state, g.ticks
                  union all
                 -- A row for many instants, also one that began before.
                 select f.first, f.length, array_position(array['due', 'running', 'done', 'failed', 'dead', 'missed', 'skipped'], f.state),
                        greatest(1, round(f.instants * 300 / greatest(300, extract(epoch from f.until_at - f.at))))::bigint
                   from (select k.*, greatest(0, floor(extract(epoch from k.at - w.begins) / 300)::integer) as first,
                                1 + floor(extract(epoch from k.until_at - greatest(k.at, w.begins)) / 300)::bigint as length
                           from (select t.at, t.until_at, t.instants, t.state
                                   from leasehold.tick t
                                  where t.schedule = s.name and t.at >= w.begins and t.instants > 1
                                  union all
                                 (select t.at, t.until_at, t.instants, t.state
                                    from leasehold.tick t
                                   where t.schedule = s.name and t.at < w.begins
                                   order by t.at desc
                                   limit 1)) k
                          where k.until_at >= w.begins) f) x) d
   where s.name in (
         select o.name
           from leasehold.schedule o
          where leasehold_internal.is_within(o.name, p_namespaces, p_include_children) and o.name > coalesce(p_after, '')
          order by o.name
          limit p_limit)
   order by s.name
$$;
comment on function leasehold_internal.view_schedule_days is 'Schedules and their ticks about now, for people';

grant execute on function leasehold_internal.view_schedule_days to leasehold_coordinator;
