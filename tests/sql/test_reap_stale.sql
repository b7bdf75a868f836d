-- leasehold_internal.reap_stale_list and reap_stale_tidy: what a reaper with callbacks of its own looks at, and keeps in order.
select no_plan();
select is(t.rows_of('select * from leasehold_internal.reap_stale_list(null, false, 100, null, null, null, null)'), 0, 'nothing in an empty database');

create function t.stale(p_namespaces text[], p_children boolean default false, p_max integer default 100, p_until bigint default null,
                        p_at bigint default null, p_namespace text default null, p_key text default null)
returns text
language sql as $$
  select string_agg(l.namespace || '/' || l.key || case when l.is_put_off then '!' else '' end, ' ' order by l.namespace, l.key)
    from leasehold_internal.reap_stale_list(p_namespaces, p_children, p_max, p_until, p_at, p_namespace, p_key) l
   where l.is_stale
$$;

select leasehold.acquire(n, 'dead', '30 s', lease_key => t.key(1)) from unnest(array['r', 'r.child', 'rr', 'ext', 'man']) n;
select leasehold.acquire('r', 'alive', '30 s', lease_key => t.key(2));
select leasehold.acquire('r', 'failed', '30 s', lease_key => t.key(3));
select leasehold.set_policy('ext', reaper => 'external');
select leasehold.set_policy('man', expiry => 'manual');
select t.age(s.namespace, s.key, '1 hour') from leasehold.scope s where s.key <> 'alive';
update leasehold.scope
   set reap_failures = 1, reap_failed_at = clock_timestamp(), next_try_at = clock_timestamp() + interval '5 min'
 where key = 'failed';

select is(t.stale(null), 'r/dead r.child/dead rr/dead', 'all: what is expired, but external and manual ones, and what waits for its next try');
select is(t.stale(array['r']), 'r/dead r/failed!', 'by name: that too, and it is told');
select is(t.stale(array['r'], p_until => leasehold_internal.us_at(clock_timestamp() - interval '1 min')), 'r/dead', 'but not what has failed since the sweep began');
select is(t.stale(array['r', 'r.child', 'none'], true), 'r/dead r/failed! r.child/dead', 'children and overlaps once; rr is no child of r');
select is(t.stale(array['ext']), 'ext/dead', 'an external namespace that is named');
select is(t.stale(array['man']), null, 'a manual one never');
select is(t.stale(array['r'], p_namespace => 'r', p_key => 'dead'), 'r/failed!', 'by name: after the last one seen');
select is(t.stale(array['r'], p_max => 1), 'r/dead', 'at most as many as asked for');
update leasehold.scope set reap_failures = 20, next_try_at = null where key = 'failed';
select is(t.stale(array['r']), 'r/dead r/failed!', 'by name: also what is given up');
update leasehold.scope set reap_failures = 1, next_try_at = clock_timestamp() - interval '1 s' where key = 'failed';
select is(t.stale(array['r']), 'r/dead r/failed', 'due again');

-- A sweep by time comes to all of them once, page by page.
create function t.sweep(p_page integer) returns text
language plpgsql as $$
declare
  v_row record;
  v_until bigint;
  v_at bigint;
  v_namespace text;
  v_key text;
  v_rows integer;
  v_seen text[] := '{}';
begin
  loop
    v_rows := 0;
    for v_row in select * from leasehold_internal.reap_stale_list(null, false, p_page, v_until, v_at, v_namespace, v_key) loop
      v_rows := v_rows + 1;
      v_until := v_row.until_us;
      v_at := v_row.check_at_us;
      v_namespace := v_row.namespace;
      v_key := v_row.key;
      if v_row.is_stale then
        v_seen := v_seen || (v_row.namespace || '/' || v_row.key);
      end if;
    end loop;
    exit when v_rows < p_page;
  end loop;
  return array_to_string(array(select s from unnest(v_seen) s order by s), ' ');
end
$$;
update leasehold.scope set check_at = '2026-01-01 00:00:00.123456+00' where check_at < clock_timestamp();
select is(t.sweep(n), 'r.child/dead r/dead r/failed rr/dead', format('pages of %s', n)) from generate_series(1, 4) n;
set timezone = 'Asia/Kathmandu';
set datestyle = 'German';
select is(t.sweep(2), 'r.child/dead r/dead r/failed rr/dead', 'whatever the time zone and the date style');
reset timezone;
reset datestyle;

-- A new life of the database: nothing is listed, and it is written down.
delete from leasehold.incarnation_marker;
select is(t.stale(null), null, 'nothing is stale in a new life');
select is(t.rows_of('select * from leasehold.incarnation_marker'), 1, 'which is written down');
update leasehold.incarnation set started_at = started_at - interval '2 hours';
update leasehold.scope set incarnation = (select id from leasehold.incarnation);

-- Tidying ends nothing that is held, and leaves what is to be reaped where it is.
select leasehold.acquire('f', 'old', '30 s', lease_key => t.key(10)), leasehold.release_ok('f', 'old', t.key(10));
select leasehold.acquire('f', 'new', '30 s', lease_key => t.key(11)), leasehold.release_ok('f', 'new', t.key(11));
select leasehold.acquire('f', 'queued', '30 s', lease_key => t.key(12));
select leasehold.join_queue('f', 'queued', t.key(13), '1 hour');
select leasehold.release_ok('f', 'queued', t.key(12));
select t.age('f', 'old', '1 hour');
update leasehold.scope set check_at = clock_timestamp() - interval '1 s';
select leasehold_internal.reap_stale_tidy(1000);
select is((select string_agg(namespace || '/' || key, ' ' order by namespace, key) from leasehold.scope where check_at <= clock_timestamp()),
          'r/dead r/failed r.child/dead rr/dead', 'what is to be reaped stays due');
select is((select count(*) from leasehold.scope where state = 'held'), 7::bigint, 'nothing that is held was ended');
select is((select string_agg(key, ' ' order by key) from leasehold.scope where namespace = 'f'), 'new queued', 'a free row goes after its retention');
select is((select string_agg(namespace, ' ' order by namespace) from leasehold.scope where check_at = 'infinity'), 'ext man',
          'external and manual ones are not looked at again');
select t.is_near((select check_at from leasehold.scope where key = 'alive'), (select deadline + grace from leasehold.scope where key = 'alive'),
                 'what is alive is looked at when it expires', '1 s');
select t.is_near((select check_at from leasehold.scope where key = 'queued'), clock_timestamp() + interval '1 s',
                 'a free scope that somebody waits for is looked at soon', '5 s');
select * from finish();
