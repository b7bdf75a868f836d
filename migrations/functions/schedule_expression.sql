-- The expressions of schedules. Three kinds:
--
--   five fields of cron       minute hour day month weekday: `*`, numbers, names, ranges a-b, lists a,b, steps */n and a-b/n, L as the last day of the
--                             month, Sunday as 0 and 7. Where day and weekday are both restricted (neither contains *), either will do: crontab(5).
--   @hourly and the like      the five fields that they stand for.
--   every N s, min, h, d      elapsed time, from starts_at or from 1970-01-01 UTC.
--
-- When clocks change, a local time of a fixed hour that does not exist runs once, at the first instant after the gap; one that comes twice runs at the
-- first. With every hour (`*`) each minute that a clock shows counts: so hourly work is neither doubled nor missed. That is what Debian's cron(8) does
-- with jobs of fixed and of wildcard times.

-- What an expression says, or its problem in words. Locks nothing.
create or replace function leasehold_internal.read_expression(p_expression text) returns leasehold_internal.timetable
language plpgsql immutable
as $$
declare
  v_expression constant text := lower(btrim(regexp_replace(coalesce(p_expression, ''), '[ \t]+', ' ', 'g')));
  v_every constant text[] := regexp_match(v_expression, '^every ([0-9]{1,9}) ?(s|min|h|d)$');
  v_fields text[];
  v_table leasehold_internal.timetable;
begin
  if octet_length(p_expression) > 256 then
    v_table.problem := 'at most 256 bytes, has ' || octet_length(p_expression);
    return v_table;
  elsif v_every is not null then
    v_table.step := v_every[1]::integer * case v_every[2] when 's' then interval '1 s' when 'min' then interval '1 min' when 'h' then interval '1 hour'
                                                          else interval '24 hours' end;
    if v_table.step not between interval '1 s' and interval '366 days' then
      v_table.problem := format('every 1 s to 366 d, is %s', v_expression);
    end if;
    return v_table;
  end if;
  v_fields := string_to_array(case v_expression
    when '@hourly' then '0 * * * *'
    when '@daily' then '0 0 * * *'
    when '@midnight' then '0 0 * * *'
    when '@weekly' then '0 0 * * 0'
    when '@monthly' then '0 0 1 * *'
    when '@yearly' then '0 0 1 1 *'
    when '@annually' then '0 0 1 1 *'
    else v_expression end, ' ');
  if v_expression ~ '^(@|every)' and cardinality(v_fields) <> 5 then
    v_table.problem := 'five fields, @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or every N s, min, h or d, is ' || left(p_expression, 64);
    return v_table;
  elsif cardinality(v_fields) is distinct from 5 then
    v_table.problem := format('five fields (minute hour day month weekday), has %s: %s', coalesce(cardinality(v_fields), 0), left(coalesce(p_expression, 'null'), 64));
    return v_table;
  end if;

  v_table.last_day := 'l' = any (string_to_array(v_fields[3], ','));
  v_table.minutes := leasehold_internal.cron_numbers(v_fields[1], 0, 59, '{}');
  v_table.hours := leasehold_internal.cron_numbers(v_fields[2], 0, 23, '{}');
  v_table.days := leasehold_internal.cron_numbers(array_to_string(array_remove(string_to_array(v_fields[3], ','), 'l'), ','), 1, 31, '{}');
  v_table.months := leasehold_internal.cron_numbers(v_fields[4], 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}');
  v_table.weekdays := leasehold_internal.cron_numbers(v_fields[5], 0, 7, '{sun,mon,tue,wed,thu,fri,sat}');
  v_table.is_either := position('*' in v_fields[3]) = 0 and position('*' in v_fields[5]) = 0;
  v_table.problem := (
    select format('a cron expression whose %s is %s, has %s', f.name, f.words, left(v_fields[f.n], 64))
      from (values (1, 'minute', '0 to 59', v_table.minutes), (2, 'hour', '0 to 23', v_table.hours), (3, 'day', '1 to 31 or L', v_table.days),
                   (4, 'month', '1 to 12 or jan to dec', v_table.months), (5, 'weekday', '0 to 7 or sun to sat', v_table.weekdays)) as f (n, name, words, numbers)
     where f.numbers is null or f.numbers = '{}' and not (f.n = 3 and v_table.last_day)
     order by f.n
     limit 1);
  if v_table.problem is null and not v_table.is_either and not v_table.last_day
     and not exists (select from unnest(v_table.months) m, unnest(v_table.days) d where d <= leasehold_internal.longest_month(m)) then
    v_table.problem := format('a cron expression whose day is one that a month of it has, has day %s of month %s', left(v_fields[3], 64), left(v_fields[4], 64));
  end if;
  return v_table;
end
$$;

-- The numbers that a field of cron stands for, sorted; null where it cannot be read, or names one out of its bounds. 7 is Sunday, as 0. Locks nothing.
create or replace function leasehold_internal.cron_numbers(p_field text, p_low integer, p_high integer, p_names text[]) returns integer[]
language plpgsql immutable
as $$
declare
  v_item text;
  v_parts text[];
  v_first integer;
  v_last integer;
  v_numbers integer[] := '{}';
begin
  foreach v_item in array string_to_array(p_field, ',') loop
    -- A step stands behind a range alone: what 5/10 means differs from one cron to another.
    v_parts := regexp_match(v_item, '^(\*|[0-9]{1,4}|[a-z]{3})(?:-([0-9]{1,4}|[a-z]{3}))?(?:/([0-9]{1,4}))?$');
    if v_parts is null or v_parts[1] = '*' and v_parts[2] is not null
       or v_parts[1] <> '*' and v_parts[2] is null and v_parts[3] is not null then
      return null;
    end if;
    v_first := case when v_parts[1] = '*' then p_low else leasehold_internal.cron_number(v_parts[1], p_low, p_names) end;
    v_last := case when v_parts[1] = '*' then case when p_high = 7 then 6 else p_high end
                   else leasehold_internal.cron_number(coalesce(v_parts[2], v_parts[1]), p_low, p_names) end;
    if v_first is null or v_last is null or v_first < p_low or v_last > p_high or v_first > v_last or v_parts[3]::integer < 1 then
      return null;
    end if;
    v_numbers := v_numbers || array(select g from generate_series(v_first, v_last, coalesce(v_parts[3]::integer, 1)) g);
  end loop;
  return array(select distinct case when p_high = 7 then n % 7 else n end from unnest(v_numbers) n order by 1);
end
$$;

-- One number, or one name; null: it is none of them. Locks nothing.
create or replace function leasehold_internal.cron_number(p_word text, p_low integer, p_names text[]) returns integer
language sql immutable
as $$
  select case when p_word ~ '^[0-9]+$' then p_word::integer else array_position(p_names, p_word) - 1 + p_low end
$$;

-- Locks nothing.
create or replace function leasehold_internal.longest_month(p_month integer) returns integer
language sql immutable
as $$
  select case when p_month = 2 then 29 when p_month in (4, 6, 9, 11) then 30 else 31 end
$$;

-- Does a day fit? Locks nothing.
create or replace function leasehold_internal.fits_day(p_table leasehold_internal.timetable, p_day date) returns boolean
language plpgsql immutable
as $$
declare
  v_fits_day boolean;
begin
  if extract(month from p_day)::integer <> all (p_table.months) then
    return false;
  end if;
  v_fits_day := extract(day from p_day)::integer = any (p_table.days) or p_table.last_day and extract(day from p_day + 1) = 1;
  if p_table.is_either then
    return v_fits_day or extract(dow from p_day)::integer = any (p_table.weekdays);
  end if;
  return v_fits_day and extract(dow from p_day)::integer = any (p_table.weekdays);
end
$$;

-- How far a zone's clocks are before UTC. Locks nothing.
create or replace function leasehold_internal.offset_at(p_at timestamptz, p_zone text) returns interval
language sql stable
as $$
  select (p_at at time zone p_zone) - (p_at at time zone 'UTC')
$$;

-- The first instant at which clocks show a local time; the first after the gap where they never do. PostgreSQL takes the second of two, and of a
-- time in a gap what it were without the change. Locks nothing.
create or replace function leasehold_internal.first_instant(p_local timestamp, p_zone text) returns timestamptz
language plpgsql stable
as $$
declare
  v_at timestamptz := p_local at time zone p_zone;
  v_low timestamptz := v_at - interval '25 hours';
  v_middle timestamptz;
  v_offset interval;
begin
  if v_at at time zone p_zone = p_local then
    v_middle := (p_local - leasehold_internal.offset_at(v_low, p_zone)) at time zone 'UTC';
    return case when v_middle < v_at and v_middle at time zone p_zone = p_local then v_middle else v_at end;
  end if;
  v_offset := leasehold_internal.offset_at(v_at, p_zone);
  while v_at - v_low > interval '1 s' loop
    v_middle := date_trunc('second', v_low + (v_at - v_low) / 2);
    if leasehold_internal.offset_at(v_middle, p_zone) = v_offset then
      v_at := v_middle;
    else
      v_low := v_middle;
    end if;
  end loop;
  return v_at;
end
$$;

-- The instants of a timetable after `p_after` up to `p_until`, `p_max` of them at most. Looks at 3,000 days without any: from one 29 February
-- to the next there may be eight years. Locks nothing.
create or replace function leasehold_internal.instants(
  p_table leasehold_internal.timetable, p_zone text, p_base timestamptz, p_after timestamptz, p_until timestamptz, p_max integer)
returns setof timestamptz
language plpgsql stable
rows 100
as $$
declare
  v_minutes constant integer[] := array(select h * 60 + m from unnest(p_table.hours) h, unnest(p_table.minutes) m order by 1);
  v_has_every_hour constant boolean := cardinality(p_table.hours) = 24;
  v_first bigint;
  v_count integer := 0;
  v_empty integer := 0;
  v_last timestamptz := p_after;
  v_day date;
  v_begins timestamptz;
  v_ends timestamptz;
  v_at timestamptz;
  v_found timestamptz[];
begin
  if p_table.step is not null then
    v_first := leasehold_internal.steps_until(p_table.step, p_base, p_after);
    return query
      select p_base + (v_first + n) * p_table.step
        from generate_series(0, p_max - 1) n
       where p_base + (v_first + n) * p_table.step <= p_until;
    return;
  end if;
  v_day := (p_after at time zone p_zone)::date;
  while v_empty < 3000 loop
    if not leasehold_internal.fits_day(p_table, v_day) then
      v_empty := v_empty + 1;
    else
      v_empty := 0;
      v_begins := leasehold_internal.first_instant(v_day, p_zone);
      exit when v_begins > p_until;
      v_ends := leasehold_internal.first_instant(v_day + 1, p_zone);
      v_found := case
        when v_ends - v_begins = interval '24 hours' then array(select v_begins + m * interval '1 min' from unnest(v_minutes) m)
        when v_has_every_hour then array(
          select g
            from generate_series(v_begins, v_ends - interval '1 min', interval '1 min') g
           where extract(minute from g at time zone p_zone)::integer = any (p_table.minutes))
        else array(select distinct leasehold_internal.first_instant(v_day + m * interval '1 min', p_zone) from unnest(v_minutes) m order by 1) end;
      foreach v_at in array v_found loop
        if v_at > v_last then
          if v_at > p_until or v_count = p_max then
            return;
          end if;
          v_last := v_at;
          v_count := v_count + 1;
          return next v_at;
        end if;
      end loop;
      exit when v_count = p_max;
    end if;
    v_day := v_day + 1;
  end loop;
end
$$;

-- How many instants of `every N` there are up to a time. Locks nothing.
create or replace function leasehold_internal.steps_until(p_step interval, p_base timestamptz, p_time timestamptz) returns bigint
language sql immutable
as $$
  select greatest(floor(extract(epoch from p_time - p_base)::numeric / extract(epoch from p_step)::numeric)::bigint + 1, 0)
$$;

-- The next instants of an expression after a time: what a schedule would do. Returns them in order. Locks nothing.
create or replace function leasehold.schedule_instants(
  expression text, time_zone text default 'UTC', after timestamptz default clock_timestamp(), up_to integer default 10)
returns setof timestamptz
language plpgsql stable
security definer
as $$
#variable_conflict use_column
declare
  v_table leasehold_internal.timetable := leasehold_internal.read_expression(schedule_instants.expression);
  v_problem leasehold_internal.problem;
begin
  v_problem := case
    when v_table.problem is not null then row('expression', v_table.problem)::leasehold_internal.problem
    when leasehold_internal.zone_problem(schedule_instants.time_zone) is not null
      then row('time_zone', leasehold_internal.zone_problem(schedule_instants.time_zone))::leasehold_internal.problem
    when after is null or not isfinite(after) or after not between '1900-01-01Z' and '9000-01-01Z'
      then row('after', '1900 to 9000' || coalesce(', is ' || after, ''))::leasehold_internal.problem
    when up_to is null or up_to not between 1 and 1000 then row('up_to', '1 to 1000, is ' || coalesce(up_to::text, 'null'))::leasehold_internal.problem
  end;
  {{refused.text}}
  return query
    select i from leasehold_internal.instants(v_table, schedule_instants.time_zone, '1970-01-01Z', after, '9999-01-01Z', up_to) i;
end
$$;
comment on function leasehold.schedule_instants is
  'The next instants of an expression after a time, which a schedule would run at. Example:
  select at from leasehold.schedule_instants(''0 3 * * mon-fri'', ''Europe/Berlin'', now(), 5) at';

-- What is wrong with the name of a time zone. Abbreviations and POSIX rules have no changes of the clock that anybody wants. Locks nothing.
create or replace function leasehold_internal.zone_problem(p_zone text) returns text
language sql stable
as $$
  select case when p_zone = 'UTC' then null
              when not exists (select from pg_catalog.pg_timezone_names z where z.name = p_zone)
              then 'a name of pg_timezone_names, as Europe/Berlin, is ' || coalesce(left(p_zone, 64), 'null') end
$$;

grant execute on function leasehold.schedule_instants to leasehold_client, leasehold_reader, leasehold_coordinator, leasehold_admin;
