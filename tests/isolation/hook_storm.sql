-- A storm around the deadline: holders that renew and release too late as often as not, two daemons and cron that reap through
-- hooks, and acquirers that take over. Every event's hook notes it, in its transaction and under the row's lock, so that the
-- numbers of a key's events are the order of what happened.
create schema app;
grant usage on schema app to leasehold_owner;
alter default privileges in schema app grant all on tables to leasehold_owner;
alter default privileges in schema app grant all on sequences to leasehold_owner;
create sequence app.number cache 1;
create table app.happened (number bigint not null, event text, key text, token bigint);

create function app.note(e leasehold.lease_event) returns void language plpgsql as $$
begin
  insert into app.happened values (nextval('app.number'), e.event, e.key, e.token);
  if random() < 0.1 then
    raise exception 'now and then';
  elsif random() < 0.05 then
    perform pg_sleep(random() * 0.05);
  end if;
end $$;
select leasehold.add_hook('h', e, 'app.note(leasehold.lease_event)') from unnest(array['acquire', 'heartbeat', 'release_ok', 'release_fail', 'reap']) e;
select leasehold.set_policy('h', min_duration => '100 ms', grace => '20 ms', free_retention => '300 ms', max_reap_failures => 1000);
select leasehold_internal.coordinator_register(('00000000-0000-4000-8000-00000000000' || n)::uuid, 'host', n, '0.1.0') from generate_series(1, 2) n;
update leasehold.coordinator set seen_at = clock_timestamp() + interval '1 day';
select leasehold.reap();

-- Until so much has happened, or a minute has passed.
create function app.goes_on(p_events bigint, p_since timestamptz) returns boolean language sql volatile as $$
  select (select last_value from app.number) < p_events and clock_timestamp() < p_since + interval '1 min'
$$;

create procedure app.hold(p_events bigint) language plpgsql as $$
declare
  v_since timestamptz := clock_timestamp();
  v_key text;
  v_lease_key uuid;
  v_has boolean;
begin
  while app.goes_on(p_events, v_since) loop
    v_key := 'k' || trunc(random() * 12);
    v_lease_key := gen_random_uuid();
    begin
      v_has := exists (select from leasehold.acquire('h', v_key, '100 ms', lease_key => v_lease_key));
    exception when sqlstate 'LH005' then
      v_has := false;
    end;
    commit;
    while v_has loop
      -- Early, or within a few ms of the expiry.
      perform pg_sleep(case when random() < 0.5 then random() * 0.03 else 0.11 + random() * 0.02 end);
      begin
        case trunc(random() * 10)
          when 0 then
            perform leasehold.release_ok('h', v_key, v_lease_key);
            v_has := false;
          when 1 then
            perform leasehold.release_fail('h', v_key, v_lease_key, 'so');
            v_has := false;
          else v_has := leasehold.heartbeat('h', v_key, v_lease_key) is not null;
        end case;
      exception when sqlstate 'LH005' then
        null;
      end;
      commit;
    end loop;
  end loop;
end $$;

create procedure app.run_daemon(p_coordinator uuid, p_events bigint) language plpgsql as $$
declare
  v_since timestamptz := clock_timestamp();
  v_row record;
begin
  while app.goes_on(p_events, v_since) loop
    for v_row in
      select b.* from leasehold_internal.reap_batch(p_coordinator, null, null, true, 3, true) b where b.kind = 'hooked'
    loop
      commit;
      perform leasehold_internal.reap_hooked(p_coordinator, null, v_row.namespace, v_row.key, v_row.token);
      commit;
    end loop;
    commit;
    perform pg_sleep(0.005);
    commit;
  end loop;
end $$;

create procedure app.run_cron(p_events bigint) language plpgsql as $$
declare
  v_since timestamptz := clock_timestamp();
begin
  while app.goes_on(p_events, v_since) loop
    perform leasehold.reap(case when random() < 0.5 then array['h'] end, max => 2);
    commit;
    perform pg_sleep(0.01);
    commit;
  end loop;
end $$;

-- What must not be: a row for each.
create view app.broken as
  select 'ended twice' as what, token from app.happened where event in ('release_ok', 'release_fail', 'reap') group by token having count(*) > 1
  union all
  select 'granted twice', token from app.happened where event = 'acquire' group by token having count(*) > 1
  union all
  select 'renewed or ended without a grant', h.token from app.happened h
   where not exists (select from app.happened a where a.event = 'acquire' and a.token = h.token)
  union all
  select 'something after its end', token
    from (select token, lag(event) over (partition by token order by number) as previous from app.happened) e
   where previous in ('release_ok', 'release_fail', 'reap')
  union all
  select 'granted before the one before had ended, or with a smaller token', token
    from (select token, event, lag(event) over o as previous, lag(token) over o as previous_token
            from app.happened window o as (partition by key order by number)) e
   where token <> previous_token
     and (event <> 'acquire' or previous not in ('release_ok', 'release_fail', 'reap') or token < previous_token)
  union all
  select 'ended without its hook', s.token from leasehold.scope s
   where s.state = 'free' and s.last_outcome is not null
     and not exists (select from app.happened h where h.token = s.token and h.event in ('release_ok', 'release_fail', 'reap'))
  union all
  select 'hook without its end', s.token from leasehold.scope s
   where s.state = 'held' and exists (select from app.happened h where h.token = s.token and h.event in ('release_ok', 'release_fail', 'reap'));
