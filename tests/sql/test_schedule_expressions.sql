-- Expressions of schedules: what each field means, what is refused with which words, and what happens when clocks change. Each case names its source.
select no_plan();
select leasehold.reap();

-- The instants after a time, as local times of the zone with its offset.
create function pg_temp.next(p_expression text, p_zone text, p_after timestamptz, p_count integer) returns text language sql as $$
  select string_agg(to_char(i at time zone p_zone, 'MM-DD HH24:MI') || '+' || to_char(leasehold_internal.offset_at(i, p_zone), 'HH24:MI'), ', ' order by i)
    from leasehold.schedule_instants(p_expression, p_zone, p_after, p_count) i
$$;

create temporary table instant_case (nth serial, source text, expression text, zone text, after timestamptz, expected text);
insert into instant_case (source, expression, zone, after, expected) values
  -- https://manpages.debian.org/bookworm/cron/crontab.5.en.html
  ('crontab(5): five minutes after midnight, every day', '5 0 * * *', 'UTC', '2026-03-01Z', '03-01 00:05+00:00, 03-02 00:05+00:00'),
  ('crontab(5): at 2:15pm on the first of every month', '15 14 1 * *', 'UTC', '2026-03-01 15:00Z', '04-01 14:15+00:00, 05-01 14:15+00:00'),
  ('crontab(5): at 10 pm on weekdays', '0 22 * * 1-5', 'UTC', '2026-11-26 23:00Z', '11-27 22:00+00:00, 11-30 22:00+00:00'),
  ('crontab(5): 23 minutes after midnight, 2am, 4am', '23 0-23/2 * * *', 'UTC', '2026-03-01Z', '03-01 00:23+00:00, 03-01 02:23+00:00, 03-01 04:23+00:00'),
  ('crontab(5): at 5 after 4 every sunday', '5 4 * * sun', 'UTC', '2026-11-28Z', '11-29 04:05+00:00, 12-06 04:05+00:00'),
  ('crontab(5): 0 or 7 is Sunday', '5 4 * * 0', 'UTC', '2026-11-28Z', '11-29 04:05+00:00, 12-06 04:05+00:00'),
  ('crontab(5): 0 or 7 is Sunday', '5 4 * * 7', 'UTC', '2026-11-28Z', '11-29 04:05+00:00, 12-06 04:05+00:00'),
  ('crontab(5): a range that ends with 7', '0 0 * * 6-7', 'UTC', '2026-11-27 12:00Z', '11-28 00:00+00:00, 11-29 00:00+00:00, 12-05 00:00+00:00'),
  ('crontab(5): 30 4 1,15 * 5 runs on the 1st and 15th, plus every Friday', '30 4 1,15 * 5', 'UTC', '2026-05-01Z',
   '05-01 04:30+00:00, 05-08 04:30+00:00, 05-15 04:30+00:00, 05-22 04:30+00:00, 05-29 04:30+00:00, 06-01 04:30+00:00'),
  ('crontab(5): with a * in the day both must fit, */2 too', '0 0 */2 * mon', 'UTC', '2026-11-01Z', '11-09 00:00+00:00, 11-23 00:00+00:00, 12-07 00:00+00:00'),
  ('crontab(5): lists, ranges, steps and names', '10-20/5,50 8 * jan,MAR mon', 'UTC', '2026-01-01Z', '01-05 08:10+00:00, 01-05 08:15+00:00, 01-05 08:20+00:00, 01-05 08:50+00:00'),
  ('crontab(5): @hourly', '@hourly', 'UTC', '2026-01-01 00:30Z', '01-01 01:00+00:00'),
  ('crontab(5): @daily', '@daily', 'UTC', '2026-01-01 00:30Z', '01-02 00:00+00:00'),
  ('crontab(5): @midnight', '@midnight', 'UTC', '2026-01-01 00:30Z', '01-02 00:00+00:00'),
  ('crontab(5): @weekly is Sunday', '@weekly', 'UTC', '2026-11-28Z', '11-29 00:00+00:00'),
  ('crontab(5): @monthly', '@monthly', 'UTC', '2026-11-28Z', '12-01 00:00+00:00'),
  ('crontab(5): @yearly', '@yearly', 'UTC', '2026-11-28Z', '01-01 00:00+00:00'),
  ('crontab(5): @annually', '@annually', 'UTC', '2026-11-28Z', '01-01 00:00+00:00'),
  -- https://manpages.debian.org/bookworm/systemd/systemd.time.7.en.html, "Calendar Events", in five fields; the instants are those of systemd-analyze calendar.
  ('systemd.time(7): hourly', '0 * * * *', 'UTC', '2026-11-27 12:00Z', '11-27 13:00+00:00, 11-27 14:00+00:00'),
  ('systemd.time(7): weekly is Mon *-*-* 00:00:00', '0 0 * * mon', 'UTC', '2026-11-27 12:00Z', '11-30 00:00+00:00, 12-07 00:00+00:00'),
  ('systemd.time(7): quarterly is *-01,04,07,10-01', '0 0 1 1,4,7,10 *', 'UTC', '2026-11-27 12:00Z', '01-01 00:00+00:00, 04-01 00:00+00:00, 07-01 00:00+00:00, 10-01 00:00+00:00'),
  ('systemd.time(7): semiannually is *-01,07-01', '0 0 1 1,7 *', 'UTC', '2026-11-27 12:00Z', '01-01 00:00+00:00, 07-01 00:00+00:00'),
  ('systemd.time(7): monday *-12-* 17:00', '0 17 * 12 mon', 'UTC', '2026-11-27 12:00Z', '12-07 17:00+00:00, 12-14 17:00+00:00, 12-21 17:00+00:00, 12-28 17:00+00:00'),
  ('systemd.time(7): *:2/3', '2-59/3 * * * *', 'UTC', '2026-11-27 12:00Z', '11-27 12:02+00:00, 11-27 12:05+00:00, 11-27 12:08+00:00, 11-27 12:11+00:00'),
  ('systemd.time(7): 12,14,13,12:20,10,30', '20,10,30 12,14,13,12 * * *', 'UTC', '2026-11-27 12:00Z', '11-27 12:10+00:00, 11-27 12:20+00:00, 11-27 12:30+00:00, 11-27 13:10+00:00'),
  ('systemd.time(7): Sat,Sun 08:05', '5 8 * * sat,sun', 'UTC', '2026-11-27 12:00Z', '11-28 08:05+00:00, 11-29 08:05+00:00, 12-05 08:05+00:00'),
  ('systemd.time(7): Sat,Thu,Mon..Wed,Sat..Sun', '0 0 * * sat,thu,mon-wed,6-7', 'UTC', '2026-11-27 12:00Z',
   '11-28 00:00+00:00, 11-29 00:00+00:00, 11-30 00:00+00:00, 12-01 00:00+00:00, 12-02 00:00+00:00, 12-03 00:00+00:00, 12-05 00:00+00:00'),
  ('systemd.time(7): *-02~01, the last day of February', '0 0 L 2 *', 'UTC', '2026-11-27 12:00Z', '02-28 00:00+00:00, 02-29 00:00+00:00, 02-28 00:00+00:00'),
  -- https://www.quartz-scheduler.org/documentation/quartz-2.3.0/tutorials/crontrigger.html, without its seconds and its ?, whose Sunday is 1; lists with L are ours.
  ('Quartz: 0 0 12 * * ?', '0 12 * * *', 'UTC', '2026-11-27 12:00Z', '11-28 12:00+00:00, 11-29 12:00+00:00'),
  ('Quartz: 0 0/5 14,18 * * ?', '*/5 14,18 * * *', 'UTC', '2026-11-27 14:50Z', '11-27 14:55+00:00, 11-27 18:00+00:00, 11-27 18:05+00:00'),
  ('Quartz: 0 0-5 14 * * ?', '0-5 14 * * *', 'UTC', '2026-11-27 14:04Z', '11-27 14:05+00:00, 11-28 14:00+00:00'),
  ('Quartz: 0 10,44 14 ? 3 WED', '10,44 14 * 3 WED', 'UTC', '2026-11-27Z', '03-03 14:10+00:00, 03-03 14:44+00:00, 03-10 14:10+00:00'),
  ('Quartz: 0 15 10 ? * MON-FRI', '15 10 * * MON-FRI', 'UTC', '2026-11-27 12:00Z', '11-30 10:15+00:00, 12-01 10:15+00:00'),
  ('Quartz: 0 15 10 15 * ?', '15 10 15 * *', 'UTC', '2026-11-27Z', '12-15 10:15+00:00, 01-15 10:15+00:00'),
  ('Quartz: 0 0 12 1/5 * ?', '0 12 1-31/5 * *', 'UTC', '2026-11-27Z', '12-01 12:00+00:00, 12-06 12:00+00:00, 12-11 12:00+00:00, 12-16 12:00+00:00, 12-21 12:00+00:00, 12-26 12:00+00:00, 12-31 12:00+00:00, 01-01 12:00+00:00'),
  ('Quartz: 0 11 11 11 11 ?', '11 11 11 11 *', 'UTC', '2026-11-27Z', '11-11 11:11+00:00, 11-11 11:11+00:00'),
  ('Quartz: L is the last day of the month', '0 3 L * *', 'UTC', '2027-01-31 12:00Z', '02-28 03:00+00:00, 03-31 03:00+00:00, 04-30 03:00+00:00'),
  ('Quartz: L in a leap year', '0 3 L 2 *', 'UTC', '2028-01-01Z', '02-29 03:00+00:00, 02-28 03:00+00:00'),
  ('L in a list', '0 3 15,L * *', 'UTC', '2026-11-01Z', '11-15 03:00+00:00, 11-30 03:00+00:00, 12-15 03:00+00:00'),
  ('29 February', '0 0 29 2 *', 'UTC', '2026-01-01Z', '02-29 00:00+00:00, 02-29 00:00+00:00'),
  ('29 February, over 2100, which is no leap year', '0 0 29 2 *', 'UTC', '2096-03-01Z', '02-29 00:00+00:00'),
  -- cron(8): a time that is skipped runs after the change, one that comes twice once; wildcard times go on as clocks show them.
  ('cron(8), gap: 02:30 is not there', '30 2 * * *', 'Europe/Berlin', '2026-03-28 00:00Z', '03-28 02:30+01:00, 03-29 03:00+02:00, 03-30 02:30+02:00'),
  ('cron(8), gap: several skipped times run once', '0,15,30,45 2 * * *', 'Europe/Berlin', '2026-03-29 00:30Z', '03-29 03:00+02:00, 03-30 02:00+02:00'),
  ('cron(8), gap: a skipped time and the one after it are one', '0 2,3 * * *', 'Europe/Berlin', '2026-03-29 00:30Z', '03-29 03:00+02:00, 03-30 02:00+02:00'),
  ('cron(8), overlap: 02:30 comes twice', '30 2 * * *', 'Europe/Berlin', '2026-10-24 12:00Z', '10-25 02:30+02:00, 10-26 02:30+01:00'),
  ('cron(8), overlap: all of the hour, once', '*/30 2 * * *', 'Europe/Berlin', '2026-10-24 12:00Z', '10-25 02:00+02:00, 10-25 02:30+02:00, 10-26 02:00+01:00'),
  ('cron(8), wildcard, gap: an hour apart', '30 * * * *', 'Europe/Berlin', '2026-03-29 00:00Z', '03-29 01:30+01:00, 03-29 03:30+02:00'),
  ('cron(8), wildcard, overlap: an hour apart', '30 * * * *', 'Europe/Berlin', '2026-10-24 23:45Z', '10-25 02:30+02:00, 10-25 02:30+01:00, 10-25 03:30+01:00'),
  ('cron(8), hours by a step are fixed hours', '0 */2 * * *', 'Europe/Berlin', '2026-03-29 00:30Z', '03-29 03:00+02:00, 03-29 04:00+02:00'),
  ('gap', '30 2 * * *', 'America/New_York', '2026-03-07 12:00Z', '03-08 03:00+-04:00, 03-09 02:30+-04:00'),
  ('overlap', '30 1 * * *', 'America/New_York', '2026-10-31 12:00Z', '11-01 01:30+-04:00, 11-02 01:30+-05:00'),
  ('a gap of 30 min', '15 2 * * *', 'Australia/Lord_Howe', '2026-10-03 00:00Z', '10-04 02:30+11:00, 10-05 02:15+11:00'),
  ('an overlap of 30 min', '45 1 * * *', 'Australia/Lord_Howe', '2026-04-04 00:00Z', '04-05 01:45+11:00, 04-06 01:45+10:30'),
  ('a gap of 30 min, wildcard', '0,30 * * * *', 'Australia/Lord_Howe', '2026-10-03 15:00Z', '10-04 02:30+11:00, 10-04 03:00+11:00'),
  ('an overlap of 30 min, wildcard', '45 * * * *', 'Australia/Lord_Howe', '2026-04-04 14:30Z', '04-05 01:45+11:00, 04-05 01:45+10:30, 04-05 02:45+10:30'),
  ('a gap at midnight', '0 0 * * *', 'Asia/Beirut', '2026-03-28 12:00Z', '03-29 01:00+03:00, 03-30 00:00+03:00'),
  ('a change of the zone''s rules: Samoa had no 30 December 2011', '0 12 * * *', 'Pacific/Apia', '2011-12-29 12:00Z', '12-29 12:00+-10:00, 12-31 00:00+14:00, 12-31 12:00+14:00'),
  ('a change of the zone''s rules: Turkey stayed at +3 in 2016', '30 3 * * *', 'Europe/Istanbul', '2016-10-29 12:00Z', '10-30 03:30+03:00, 10-31 03:30+03:00'),
  -- Elapsed time, from 1970-01-01 UTC.
  ('every', 'every 10 min', 'Europe/Berlin', '2026-03-29 00:51Z', '03-29 03:00+02:00, 03-29 03:10+02:00'),
  ('every, not before but after', 'every 6 h', 'UTC', '2026-01-01 06:00Z', '01-01 12:00+00:00'),
  ('every day is 24 hours', 'every 1 d', 'Europe/Berlin', '2026-03-28 00:00Z', '03-29 01:00+01:00, 03-30 02:00+02:00');
select is(pg_temp.next(expression, zone, after, array_length(string_to_array(expected, ', '), 1)), expected, expression || ', ' || zone || ': ' || source)
  from instant_case order by nth;
select is((select count(*) from leasehold.schedule_instants('* * * * *', 'Europe/Berlin', '2026-03-28 23:00Z', 1000) i where i <= '2026-03-29 22:00Z'), 1000::bigint, 'as many as are asked for');
select is(array(select i from leasehold.schedule_instants('* * * * *', 'Europe/Berlin', '2026-03-29 00:30Z', 120) i),
          array(select g from generate_series(timestamptz '2026-03-29 00:31Z', '2026-03-29 02:30Z', '1 min') g), 'each minute of a gap''s day once, a minute apart');
select is(array(select i from leasehold.schedule_instants('* * * * *', 'America/New_York', '2026-11-01 04:30Z', 240) i),
          array(select g from generate_series(timestamptz '2026-11-01 04:31Z', '2026-11-01 08:30Z', '1 min') g), 'and of an overlap''s');
select is((select count(*) from leasehold.schedule_instants('0 0 29 2 *', 'UTC', '2026-01-01Z', 20)), 20::bigint, 'eight years without one are no end');

-- words
create temporary table refused (nth serial, expression text, bound text);
insert into refused (expression, bound) values
  ('60 * * * *', 'a cron expression whose minute is 0 to 59, has 60'),
  ('* 24 * * *', 'a cron expression whose hour is 0 to 23, has 24'),
  ('* * 0 * *', 'a cron expression whose day is 1 to 31 or L, has 0'),
  ('* * 32 * *', 'a cron expression whose day is 1 to 31 or L, has 32'),
  ('* * * 13 *', 'a cron expression whose month is 1 to 12 or jan to dec, has 13'),
  ('* * * * 8', 'a cron expression whose weekday is 0 to 7 or sun to sat, has 8'),
  ('* * * * fre', 'a cron expression whose weekday is 0 to 7 or sun to sat, has fre'),
  ('* * * feb-jan *', 'a cron expression whose month is 1 to 12 or jan to dec, has feb-jan'),
  ('5/10 * * * *', 'a cron expression whose minute is 0 to 59, has 5/10'),
  ('*/0 * * * *', 'a cron expression whose minute is 0 to 59, has */0'),
  ('*-5 * * * *', 'a cron expression whose minute is 0 to 59, has *-5'),
  ('1,,2 * * * *', 'a cron expression whose minute is 0 to 59, has 1,,2'),
  ('-1 * * * *', 'a cron expression whose minute is 0 to 59, has -1'),
  ('0 L * * *', 'a cron expression whose hour is 0 to 23, has l'),
  ('0 0 30 2 *', 'a cron expression whose day is one that a month of it has, has day 30 of month 2'),
  ('0 0 31 4,6,sep,11 *', 'a cron expression whose day is one that a month of it has, has day 31 of month 4,6,sep,11'),
  -- What Quartz and systemd have besides is not taken for something else.
  ('0 12 ? * mon', 'a cron expression whose day is 1 to 31 or L, has ?'),
  ('0 12 L-3 * *', 'a cron expression whose day is 1 to 31 or L, has l-3'),
  ('0 12 15W * *', 'a cron expression whose day is 1 to 31 or L, has 15w'),
  ('0 12 LW * *', 'a cron expression whose day is 1 to 31 or L, has lw'),
  ('0 12 * * 6L', 'a cron expression whose weekday is 0 to 7 or sun to sat, has 6l'),
  ('0 12 * * fri#3', 'a cron expression whose weekday is 0 to 7 or sun to sat, has fri#3'),
  ('0 0 * * mon..fri', 'a cron expression whose weekday is 0 to 7 or sun to sat, has mon..fri'),
  ('0 15 10 ? * 2026', 'five fields (minute hour day month weekday), has 6: 0 15 10 ? * 2026'),
  ('Mon *-*-* 00:00:00', 'five fields (minute hour day month weekday), has 3: Mon *-*-* 00:00:00'),
  ('@quarterly', 'five fields, @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or every N s, min, h or d, is @quarterly'),
  ('* * * *', 'five fields (minute hour day month weekday), has 4: * * * *'),
  ('0 0 * * * *', 'five fields (minute hour day month weekday), has 6: 0 0 * * * *'),
  ('', 'five fields (minute hour day month weekday), has 0: '),
  ('@reboot', 'five fields, @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or every N s, min, h or d, is @reboot'),
  ('every 10 weeks', 'five fields, @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or every N s, min, h or d, is every 10 weeks'),
  ('every 0 s', 'every 1 s to 366 d, is every 0 s'),
  ('every 367 d', 'every 1 s to 366 d, is every 367 d'),
  (repeat('*', 257), 'at most 256 bytes, has 257'),
  (null, 'five fields (minute hour day month weekday), has 0: null');
select is(t.message_of(format('select leasehold.schedule_instants(%L)', expression)), 'invalid_argument: expression must be ' || bound, 'refused: ' || coalesce(left(expression, 30), 'null'))
  from refused order by nth;
select is(t.message_of($$select leasehold.schedule_instants('@daily', 'CEST')$$), 'invalid_argument: time_zone must be a name of pg_timezone_names, as Europe/Berlin, is CEST', 'a zone has a name');
select is(t.message_of($$select leasehold.schedule_instants('@daily', after => 'infinity')$$), 'invalid_argument: after must be 1900 to 9000, is infinity', 'after is a time');
select is(t.message_of($$select leasehold.schedule_instants('@daily', up_to => 1001)$$), 'invalid_argument: up_to must be 1 to 1000, is 1001', 'up_to has a bound');
select is((select count(*) from leasehold.schedule_instants('0 0 30 2 mon')), 10::bigint, 'of a day and a weekday either will do, so that day may be impossible');
select is((select count(*) from leasehold.schedule_instants('  0   0 1	* *  ')), 10::bigint, 'blanks and tabs separate fields');
select * from finish();
