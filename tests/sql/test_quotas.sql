-- max_leases: counted once, and then by what changes, exactly, however leases are granted and end. max_waiters where it is far away: counted once, and
-- bounded by what has been drawn since; exact near the limit, however waiters go.
select no_plan();
select leasehold.reap();
select leasehold_internal.coordinator_register(t.key(900), 'host', 1, '0.1.0');
update leasehold.coordinator set seen_at = seen_at + interval '1 day';

-- A batch of so many exclusive leases, shared ones or waiters: how many got which outcome.
create function pg_temp.ask(p_namespace text, p_keys text[], p_queue boolean default false, p_units integer default null, p_ticket bigint default 0)
returns text language sql as $$
  select string_agg(o.outcome || ' ' || o.count, ', ' order by o.outcome)
    from (select b.outcome, count(*)
            from (select cardinality(p_keys) as n) c
           cross join lateral leasehold_internal.acquire_batch(
                   t.key(900), null, array_fill(p_namespace, array[c.n]), p_keys, array(select gen_random_uuid() from generate_series(1, c.n)),
                   array_fill('w'::text, array[c.n]), array_fill('{}'::text, array[c.n]), array_fill(60000000::bigint, array[c.n]),
                   array_fill(p_queue, array[c.n]), array_fill(null::bigint, array[c.n]), array_fill(p_ticket, array[c.n]), null, null,
                   array_fill(p_units, array[c.n])) b
           group by b.outcome) o
$$;
create function pg_temp.keys(p_tag text, p_count integer) returns text[] language sql as $$
  select array(select p_tag || i from generate_series(1, p_count) i)
$$;
-- Counts of leases that are not what is held, and bounds of waiters that are lower than what is there.
create function pg_temp.wrong_counts() returns bigint language sql as $$
  select (select count(*)
            from leasehold.policy p
           cross join lateral leasehold_internal.leases_counted(p.namespace) c
           where p.max_leases is not null and c.held <> leasehold_internal.leases_below(p.namespace))
         + (select count(*)
              from leasehold.quota_count c
             where c.amount - c.number + (select last_value from leasehold.ticket)
                   < (select count(*) from leasehold.waiter w where w.namespace = c.prefix and w.key = c.key))
$$;
create function pg_temp.counted_at(p_prefix text) returns timestamptz language sql as $$
  select c.counted_at from leasehold_internal.leases_counted(p_prefix) c
$$;

-- leases
select leasehold.set_policy('q', max_leases => 5000);
select leasehold.set_policy('q.low', max_leases => 2500);
select is(pg_temp.ask('q.high', pg_temp.keys('a', 1000)), 'granted 1000', 'far from the limit leases are granted');
select pg_temp.counted_at('q') as counted_at \gset
select isnt(:'counted_at'::text, null, 'and were counted');
select is(pg_temp.ask('q', pg_temp.keys('b', 500)), 'granted 500', 'more are granted');
select is(pg_temp.ask('other', pg_temp.keys('c', 2000)), 'granted 2000', 'others draw tokens');
select is(pg_temp.ask('q', pg_temp.keys('d', 1)), 'granted 1', 'and one more is granted');
select is(pg_temp.counted_at('q'), :'counted_at'::timestamptz, 'without being counted again');
select cmp_ok((select changes from leasehold_internal.leases_counted('q')), '>', 0::bigint, 'but by what changed');
select is(pg_temp.ask('q.low', pg_temp.keys('e', 2600)), 'granted 2500, quota 100', 'a prefix below has its own limit');
select is(pg_temp.ask('q.high', pg_temp.keys('f', 2000)), 'granted 999, quota 1001', 'whose leases count above it too');
select is(leasehold_internal.leases_below('q'), 5000::numeric::bigint, 'the limit is reached exactly');
select leasehold.release_ok('q', s.key, s.lease_key) from leasehold.scope s where s.namespace = 'q' and s.key in ('b1', 'b2');
select is(pg_temp.ask('q', pg_temp.keys('g', 5), p_units => 1), 'granted 2, quota 3', 'what was released is granted again, to shared leases too');
select is(pg_temp.wrong_counts(), 0::bigint, 'the counts are what is held');

-- waiters
select leasehold.set_policy('w', max_waiters => 2000);
select pg_temp.ask('w', '{k}');
select is(pg_temp.ask('w', array_fill('k'::text, array[600]), true), 'queued 600', 'far from the limit they wait');
select is(pg_temp.ask('w', array_fill('k'::text, array[10]), true), 'queued 10', 'and are counted');
select is((select amount from leasehold.quota_count where prefix = 'w' and key = 'k'), 600::bigint, 'which is written down');
select number as counted_at from leasehold.quota_count where prefix = 'w' \gset
select is(pg_temp.ask('w', array_fill('k'::text, array[10]), true), 'queued 10', 'more wait');
select is((select array_agg(number) from leasehold.quota_count where prefix = 'w'), array[:counted_at]::bigint[], 'without being counted again');
select is(pg_temp.ask('w', '{k}', true, p_ticket => 1), 'queued 1', 'one who has a ticket of before has that');
select is(pg_temp.wrong_counts(), 0::bigint, 'and is counted in');
select is(pg_temp.ask('w', array_fill('k'::text, array[1500]), true), 'queued 1379, quota 121', 'the limit is exact');
select throws_like($$select leasehold.join_queue('w', 'k', gen_random_uuid())$$, '%max_waiters = 2000%', 'for SQL users too');
delete from leasehold.waiter where namespace = 'w' and ticket in (select ticket from leasehold.waiter where namespace = 'w' limit 2);
select is(pg_temp.ask('w', array_fill('k'::text, array[1]), true), 'queued 1', 'who has gone makes room');
select lives_ok($$select leasehold.join_queue('w', 'k', gen_random_uuid())$$, 'for a SQL user too');
select is(pg_temp.ask('w', array_fill('k'::text, array[1]), true), 'quota 1', 'and then there is none');

-- a long queue that is full is counted now and then, and never holds more than the limit
select leasehold.set_policy('long', max_waiters => 10400);
select pg_temp.ask('long', '{k}');
select pg_temp.ask('long', array_fill('k'::text, array[1]), true);
create temp table first_waiter as select w.* from leasehold.waiter w where w.namespace = 'long';
do $$
declare
  v_waiter leasehold.waiter;
begin
  select w.* into v_waiter from first_waiter w;
  for v_nth in 1 .. 10299 loop
    v_waiter.ticket := nextval('leasehold.ticket');
    v_waiter.lease_key := gen_random_uuid();
    insert into leasehold.waiter values (v_waiter.*);
  end loop;
end $$;
create function pg_temp.waiters_read_by(p_count integer, out answer text, out read bigint) language plpgsql as $$
begin
  read := (select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where schemaname = 'leasehold' and relname = 'waiter');
  answer := pg_temp.ask('long', array_fill('k'::text, array[p_count]), true);
  read := (select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where schemaname = 'leasehold' and relname = 'waiter') - read;
end
$$;
create function pg_temp.counted(p_ago interval) returns void language sql as $$
  -- As if far more had waited, and had come: what can wait is the same, and such a count is believed for longer than this test takes.
  update leasehold.quota_count c
     set counted_at = clock_timestamp() - p_ago, amount = c.amount + 1000000000, number = c.number + 1000000000
   where c.prefix = 'long' and c.counted_at is not null
$$;
begin;
select is(pg_temp.ask('long', array_fill('k'::text, array[60]), true), 'queued 60', 'near the limit they wait');
select is((select amount from leasehold.quota_count where prefix = 'long' and counted_at is not null), 10300::bigint, 'and were counted under the turn');
select pg_temp.counted('0 s');
select is(pg_temp.ask('long', array_fill('k'::text, array[60]), true), 'queued 40, quota 20', 'the limit is exact, without another count');
select is((select amount from leasehold.quota_count where prefix = 'long' and counted_at is not null), 1000010300::bigint, 'which would be written down');
select pg_temp.counted('1 day');
select is(pg_temp.ask('long', array_fill('k'::text, array[1]), true), 'quota 1', 'a count of before is made again');
select pg_temp.counted('0 s');
select answer, read from pg_temp.waiters_read_by(100) \gset refused_
select is(:'refused_answer'::text, 'quota 100', 'what is full is full');
select cmp_ok(:refused_read::bigint, '<', 5000::bigint, 'without counting');
delete from leasehold.waiter w where w.namespace = 'long' and w.ticket in (select x.ticket from leasehold.waiter x where x.namespace = 'long' order by x.ticket desc limit 5);
select pg_temp.counted('1 day');
select is(pg_temp.ask('long', array_fill('k'::text, array[10]), true), 'queued 5, quota 5', 'who has gone makes room, once it is counted');
select is((select count(*) from leasehold.waiter w where w.namespace = 'long'), 10400::bigint, 'and no more than that');
delete from leasehold.waiter w where w.namespace = 'long' and w.ticket in (select x.ticket from leasehold.waiter x where x.namespace = 'long' order by x.ticket desc limit 2);
select pg_temp.counted('1 day');
select is(pg_temp.ask('long', '{k}', true), 'queued 1', 'one of two that have gone');
select pg_temp.counted('0 s');
select is(pg_temp.ask('long', '{k}', true, p_ticket => 1), 'queued 1', 'another comes back with a ticket of before');
select pg_temp.counted('0 s');
select is(pg_temp.ask('long', '{k}', true, p_ticket => 2), 'quota 1', 'and is counted in');
commit;

-- a history at random: whatever ends a lease, there are never more than the limit, and no count is wrong
select leasehold.set_policy('r', max_leases => 2040, capacity => 3, free_retention => '0 s', grace => '0 s', min_duration => '100 ms');
select pg_temp.ask('r.many', pg_temp.keys('x', 30));
do $$
declare
  v_key text;
  v_lease record;
  v_held bigint;
begin
  for v_step in 1 .. 400 loop
    v_key := 'k' || (random() * 12)::integer;
    case (random() * 8)::integer
      when 0, 1 then perform pg_temp.ask('r.few', array[v_key, v_key || 'x']);
      when 2 then perform pg_temp.ask('r.few', array[v_key, v_key, v_key], p_units => 1);
      when 3 then
        select s.* into v_lease from leasehold.scope s where s.namespace = 'r.few' and s.state = 'held' order by random() limit 1;
        perform leasehold.release_ok('r.few', v_lease.key, v_lease.lease_key) where v_lease.key is not null;
      when 4 then
        select s.* into v_lease from leasehold.scope s where s.namespace = 'r.few' and s.state <> 'free' order by random() limit 1;
        perform leasehold.force_release('r.few', v_lease.key, 'test', all_holders => true) where v_lease.key is not null;
      when 5 then perform t.age('r.few', v_key, '1 hour');
      when 6 then perform leasehold.reap();
      when 7 then
        select s.* into v_lease from leasehold.scope s where s.namespace = 'r.few' and s.state = 'held' and s.deadline > clock_timestamp() order by random() limit 1;
        perform leasehold.downgrade('r.few', v_lease.key, v_lease.lease_key) where v_lease.key is not null;
      else
        begin
          perform pg_temp.ask('r.few', array[v_key, v_key || 'y']);
          raise exception 'undo';
        exception when raise_exception then
          null;
        end;
    end case;
    v_held := leasehold_internal.leases_below('r');
    if pg_temp.wrong_counts() > 0 or v_held > 2040 then
      raise exception 'step %: % held, % wrong counts', v_step, v_held, pg_temp.wrong_counts();
    end if;
  end loop;
end $$;
select cmp_ok((select count(*) from leasehold.scope where namespace = 'r.few'), '>', 0::bigint, 'the history had leases');
select leasehold.set_policy('r', max_leases => leasehold_internal.leases_below('r') + 3);
select is(pg_temp.ask('r.new', pg_temp.keys('n', 5)), 'granted 3, quota 2', 'a limit that is set later counts who holds already');

-- many changes are added up, by one transaction too, and go; so do those of a cluster that was dumped
select leasehold.set_policy('m', max_leases => 100000);
select pg_temp.ask('m', pg_temp.keys('a', 2));
select pg_temp.counted_at('m') as counted_at \gset
do $$
begin
  for v_step in 1 .. 1100 loop
    perform pg_temp.ask('m', array['k' || v_step % 10]);
    perform leasehold.release_ok('m', s.key, s.lease_key) from leasehold.scope s where s.namespace = 'm' and s.key = 'k' || v_step % 10;
    if (select changes from leasehold_internal.leases_counted('m')) > 110 then
      raise exception 'step %: % changes', v_step, (select changes from leasehold_internal.leases_counted('m'));
    end if;
  end loop;
end $$;
select is(pg_temp.wrong_counts(), 0::bigint, 'changes that were added up are counted once');
select is(pg_temp.counted_at('m'), :'counted_at'::timestamptz, 'and the leases are not counted for it');
select cmp_ok((select count(*) from leasehold.quota_change where prefix = 'm'), '<', 120::bigint, 'what is counted in goes');
insert into leasehold.quota_change values ('m', '9223372036854775800', 1, 7);
update leasehold.quota_base set counted_at = counted_at - interval '1 h' where prefix = 'm';
select is(pg_temp.ask('m', '{z}'), 'granted 1', 'now and then they are counted anew');
select isnt(pg_temp.counted_at('m'), :'counted_at'::timestamptz - interval '1 h', 'which is written down');
select is(pg_temp.wrong_counts(), 0::bigint, 'and heals what was wrong');

-- a crash empties the counts
truncate leasehold.quota_base, leasehold.quota_change;
select is(pg_temp.ask('q', pg_temp.keys('h', 2)), 'quota 2', 'what is held is counted anew after a crash');
select is(pg_temp.wrong_counts(), 0::bigint, 'as it is');
select * from finish();
