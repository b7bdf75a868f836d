-- Promise 7.
-- A lease key names one acquisition: the scope remembers its last eight at least, and how they ended.
select no_plan();
select leasehold.reap();

create function pg_temp.hold(p_number integer) returns boolean language sql as $$
  select leasehold.release_ok('e', 'a', (leasehold.acquire('e', 'a', '30 s', lease_key => t.key(p_number))).lease_key)
$$;
create function pg_temp.again(p_number integer) returns text language sql as
  $$ select t.error_of(format('select leasehold.acquire(%L, %L, %L, lease_key => %L)', 'e', 'a', '30 s', t.key(p_number))) $$;

select is(pg_temp.hold(1), true, 'held and released');
select is(pg_temp.again(1), 'LH006 lease_ended', 'a released lease key is refused');
select is((select state from leasehold.scope where key = 'a'), 'free', 'and leaves nobody holding');
select is(bool_and(pg_temp.hold(n)), true, 'eight more') from generate_series(2, 9) n;
select is(array_agg(pg_temp.again(n)), array_fill('LH006 lease_ended'::text, array[8]), 'the last eight are refused')
  from generate_series(2, 9) n;
select is(bool_and(pg_temp.hold(n)), true, 'eight more again') from generate_series(10, 17) n;
select is(pg_temp.again(1), '', 'one of long ago is forgotten');
select is(leasehold.release_ok('e', 'a', t.key(1)), true, 'and so was granted again');

-- After each of many ends: which of the last eight are not told as they ended? Each third has failed.
create function pg_temp.reason(p_number integer) returns text language sql as $$ select case when p_number % 3 = 0 then 'failed' else 'released' end $$;
create function pg_temp.end_one(p_key text, p_number integer) returns text language plpgsql as $$
begin
  perform leasehold.acquire('e', p_key, '30 s', lease_key => t.key(p_number));
  if pg_temp.reason(p_number) = 'failed' then
    perform leasehold.release_fail('e', p_key, t.key(p_number), 'no');
  else
    perform leasehold.release_ok('e', p_key, t.key(p_number));
  end if;
  return (select string_agg(format('%s after %s: %s', n, p_number, coalesce(leasehold.end_reason('e', p_key, t.key(n)), 'unknown')), ', ')
            from generate_series(greatest(1, p_number - 7), p_number) n
           where leasehold.end_reason('e', p_key, t.key(n)) is distinct from pg_temp.reason(n));
end $$;
select is(string_agg(pg_temp.end_one('many', n), ', '), null, 'the last eight are remembered after each of 60 ends') from generate_series(1, 60) n;
select is(bool_or(cardinality(ended_keys) > 16 or cardinality(ended_outcomes) > 16), false, 'and no more than 16') from leasehold.scope where key = 'many';
select pg_temp.end_one('before', 1);
-- as it was written before: newest last, with each outcome
update leasehold.scope
   set ended_keys = array(select t.key(n) from generate_series(1, 8) n),
       ended_outcomes = array(select case pg_temp.reason(n) when 'failed' then 'failed' else 'ok' end from generate_series(1, 8) n)
 where key = 'before';
select is(array(select leasehold.end_reason('e', 'before', t.key(n)) from generate_series(1, 8) n), array(select pg_temp.reason(n) from generate_series(1, 8) n),
          'a row of before is read as it was written');
select is(string_agg(pg_temp.end_one('before', n), ', '), null, 'and goes on, without one of its own forgotten') from generate_series(9, 40) n;

-- however it ended, and also while somebody else holds the scope
select leasehold.acquire('e', 'ways', '30 s', lease_key => t.key(11));
select leasehold.release_ok('e', 'ways', t.key(11));
select leasehold.acquire('e', 'ways', '30 s', lease_key => t.key(12));
select leasehold.release_fail('e', 'ways', t.key(12), 'no');
select leasehold.acquire('e', 'ways', '30 s', lease_key => t.key(13));
select t.age('e', 'ways', '1 hour');
select count(*) from leasehold.reap();
select leasehold.acquire('e', 'ways', '30 s', lease_key => t.key(14));
select count(*) from leasehold.force_release('e', 'ways', 'maintenance');
select leasehold.acquire('e', 'ways', '30 s', lease_key => t.key(15));
select t.age('e', 'ways', '1 hour');
select leasehold.acquire('e', 'ways', '30 s', lease_key => t.key(16));
select is(t.error_of(format('select leasehold.acquire(%L, %L, %L, lease_key => %L)', 'e', 'ways', '30 s', t.key(n))),
          'LH006 lease_ended', how || ' lease key is refused')
  from (values (11, 'a released'), (12, 'a failed'), (13, 'a reaped'), (14, 'a forced'), (15, 'a taken over')) as way (n, how);
select is((select array_agg(end_reason order by n) from leasehold_internal.heartbeat_batch(array_fill('e'::text, array[6]), array_fill('ways'::text, array[6]),
             array[t.key(11), t.key(12), t.key(13), t.key(14), t.key(15), t.key(99)])),
          array['released', 'failed', 'expired', 'forced', 'expired', 'unknown'], 'each is told how it ended');
select is((select array_agg(outcome order by n) from leasehold_internal.release_batch(null, array_fill('e'::text, array[5]), array_fill('ways'::text, array[5]),
             array[t.key(11), t.key(12), t.key(13), t.key(14), t.key(15)], array_fill(false, array[5]), array_fill(null::text, array[5]))),
          array_fill('lost'::text, array[5]), 'a repeated release is lost');
select is((select array_agg(end_reason order by n) from leasehold_internal.release_batch(null, array_fill('e'::text, array[2]), array_fill('ways'::text, array[2]),
             array[t.key(11), t.key(14)], array_fill(false, array[2]), array_fill(null::text, array[2]))),
          array['released', 'forced'], 'with how it ended');
select is((select lease_key from leasehold.scope where key = 'ways'), t.key(16), 'nobody disturbed the holder');
select is(t.message_of(format('select leasehold.acquire(%L, %L, %L, lease_key => %L)', 'e', 'ways', '30 s', t.key(11))) like 'lease\_ended%', true,
          'the message begins with the condition');

select is(array(select leasehold.end_reason('e', 'ways', t.key(n)) from unnest(array[11, 12, 13, 14, 15, 16, 99]) n),
          array['released', 'failed', 'expired', 'forced', 'expired', null, null], 'end_reason tells it of one; of the holder, and of a stranger, nothing');
select from leasehold.acquire('e', 'shared', '30 s', lease_key => t.key(21), mode => 'shared');
select from leasehold.acquire('e', 'shared', '30 s', lease_key => t.key(22), mode => 'shared');
select leasehold.release_ok('e', 'shared', t.key(21));
select is(leasehold.end_reason('e', 'shared', t.key(21)), 'released', 'also of a shared lease, while others hold the scope');
select is(leasehold.end_reason('e', 'shared', t.key(22)), null, 'whose own has not ended');

-- a queued acquire with an ended lease key is refused too
select is((select outcome from leasehold_internal.acquire_batch(null, null, array['e'], array['ways'], array[t.key(12)], array['o'], array['{}'],
             array[30000000::bigint], array[true], array[null::bigint], array[0::bigint])), 'ended', 'in a batch it is the outcome ended');
select is((select count(*) from leasehold.waiter), 0::bigint, 'and nobody is queued under it');
select * from finish();
