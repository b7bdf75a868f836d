-- What the console draws of schedules: periods of five minutes, side by side where they are alike.
select no_plan();
create temporary table base as select to_timestamp(floor(extract(epoch from clock_timestamp()) / 300) * 300) as at;
create function pg_temp.tick(p_name text, p_ago interval, p_state text, p_instants bigint default 1, p_until interval default null) returns void language sql as $$
  insert into leasehold.tick (schedule, at, due_at, claim_until, state, attempts, token, owner, started_at, next_try_at, ended_at, error, instants, until_at)
  select p_name, b.at - p_ago, b.at - p_ago, 'infinity', p_state, case when p_state in ('missed', 'skipped', 'due') then 0 else 1 end, case when p_state = 'running' then 7 end, 'w-' || p_state,
         b.at - p_ago, case when p_state in ('due', 'failed') then b.at end, case when p_state in ('done', 'dead', 'missed', 'skipped') then b.at end,
         case when p_state in ('failed', 'dead') then 'no disk' end, p_instants, b.at - p_until
    from base b
$$;
-- Entries as FIRST+LENGTH STATE*TICKS; period 300 is that of now.
create function pg_temp.drawn(p_name text, p_coming boolean default false) returns text language sql as $$
  select coalesce(string_agg(f || '+' || l || ' ' || case s when '0' then 'coming' else (array['due', 'running', 'done', 'failed', 'dead', 'missed', 'skipped'])[s::integer] end || '*' || k, ', '), 'none')
    from leasehold_internal.view_schedule_days(array[p_name], false, null, 10, null) v,
         unnest(string_to_array(v.first, ','), string_to_array(v.length, ','), string_to_array(v.states, ','), string_to_array(v.ticks, ',')) x (f, l, s, k)
   where p_coming or s <> '0'
$$;

select leasehold.set_schedule('a.rare', '0 0 29 2 *');
select is(pg_temp.drawn('a.rare', true), 'none', 'no tick');
select pg_temp.tick('a.rare', '1 hour', 'done'), pg_temp.tick('a.rare', '50 min', 'failed'), pg_temp.tick('a.rare', '40 min', 'dead'), pg_temp.tick('a.rare', '30 min', 'missed'),
       pg_temp.tick('a.rare', '20 min', 'skipped'), pg_temp.tick('a.rare', '10 min', 'running'), pg_temp.tick('a.rare', '5 min', 'due');
select is(pg_temp.drawn('a.rare', true), '288+1 done*1, 290+1 failed*1, 292+1 dead*1, 294+1 missed*1, 296+1 skipped*1, 298+1 running*1, 299+1 due*1', 'each state in its period');
select is((select v.last_state || ' ' || v.running_owner || ' ' || (v.running_at = (select at - interval '10 min' from base)) from leasehold_internal.view_schedule_days(array['a.rare'], false, null, 10, null) v),
          'skipped w-running true', 'the last that is over, and what runs');
select pg_temp.tick('a.rare', '26 hours', 'done');
select is(split_part(pg_temp.drawn('a.rare'), ',', 1), '288+1 done*1', 'what was before is left out');

select leasehold.set_schedule('a.often', '@yearly');
select count(pg_temp.tick('a.often', n * interval '1 min', 'done')) from generate_series(31, 60) n;
select pg_temp.tick('a.often', '30 min', 'missed'), pg_temp.tick('a.often', '29 min', 'done');
select is(pg_temp.drawn('a.often'), '288+6 done*5, 294+1 done*1, 294+1 missed*1', 'periods that are alike are one entry');

select leasehold.set_schedule('a.away', '@yearly');
select pg_temp.tick('a.away', '30 hours', 'missed', 1740, '61 min');
select is(pg_temp.drawn('a.away'), '0+288 missed*5', 'many instants in one row, from before the window on');

-- What is to come.
select leasehold.set_schedule('b.five', 'every 5 min', starts_at => (select at from base));
select matches(pg_temp.drawn('b.five', true), '(^|, )301\+299 coming\*1$', 'to the end of the window');
select leasehold.set_schedule('b.minute', 'every 1 min', starts_at => (select at from base));
select is((select v.listed_until between clock_timestamp() + interval '299 min' and clock_timestamp() + interval '301 min' from leasehold_internal.view_schedule_days(array['b.minute'], false, null, 10, null) v),
          true, '300 of them, and until when');
select is((select v.listed_until from leasehold_internal.view_schedule_days(array['a.rare'], false, null, 10, null) v), null, 'all of them');
select leasehold.pause_schedule('b.five');
select is(pg_temp.drawn('b.five', true) like '%coming%', false, 'none while it is paused');
-- An error keeps none of the others from being seen.
update leasehold.schedule set time_zone = 'No/Where', error = 'no such zone', paused = false where name = 'b.five';
select is((select count(*) from leasehold_internal.view_schedule_days(array['b'], true, null, 10, null)), 2::bigint, 'one that cannot make ticks is shown');

-- Names and pages.
select is((select array_agg(v.namespace) from leasehold_internal.view_schedule_days(array['a'], true, null, 10, null) v), array['a.away', 'a.often', 'a.rare'], 'all below');
select is((select array_agg(v.namespace) from leasehold_internal.view_schedule_days(array['a'], false, null, 10, null) v), null, 'it alone');
select is((select array_agg(v.after) from leasehold_internal.view_schedule_days(array[''], true, null, 2, 'a.away') v), array['a.often', 'a.rare'], 'a page goes on behind the one before');
select is((select count(*) from leasehold_internal.view_schedule_days(array[]::text[], true, null, 10, null)), 0::bigint, 'no namespace is nothing');
select * from finish();
