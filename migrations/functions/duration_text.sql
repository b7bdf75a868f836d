-- 0.8 s, 25 s, 3 min 20 s, 4 h 10 min, 2 d 3 h: for people, whatever the session's IntervalStyle. Locks nothing.
create or replace function leasehold_internal.duration_text(p_interval interval) returns text
language sql immutable parallel safe
as $$
  select case
    when s.s < 10 then trunc(s.s, 1) || ' s'
    when s.s < 120 then trunc(s.s) || ' s'
    when s.s < 7200 then trunc(s.s / 60) || ' min ' || trunc(s.s) % 60 || ' s'
    when s.s < 172800 then trunc(s.s / 3600) || ' h ' || trunc(s.s / 60) % 60 || ' min'
    else trunc(s.s / 86400) || ' d ' || trunc(s.s / 3600) % 24 || ' h'
  end
    from (select greatest(extract(epoch from p_interval)::numeric, 0) as s) s
$$;
