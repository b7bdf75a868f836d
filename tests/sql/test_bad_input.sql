-- Every field out of its bounds is LH002 with the field in DETAIL, and nothing is written.
select no_plan();
select leasehold.reap();
select leasehold.acquire('bad', 'held', '30 s', lease_key => t.key(1));
select t.footprint() as before \gset

create temp table bad_namespace (value text, what text);
insert into bad_namespace values
  (null, 'NULL'), ('', 'the empty string'), ('.', 'a dot'), ('a.', 'a dot at the end'), ('.a', 'a dot at the start'), ('a..b', 'an empty segment'),
  (repeat('s', 64), 'a segment of 64 bytes'), (repeat('é', 32), 'a segment of 32 characters and 64 bytes'),
  (rtrim(repeat('s.', 17), '.'), '17 segments'), (rtrim(repeat(repeat('s', 51) || '.', 5), '.'), '259 bytes in all'),
  (E'a\nb', 'a newline'), (E'a\x01', 'a control character'), (E'a\x7f.b', 'DEL');
create temp table bad_key (value text, what text);
insert into bad_key values
  (null, 'NULL'), ('', 'the empty string'), (repeat('k', 1025), '1025 bytes'), (repeat('é', 513), '513 characters and 1026 bytes'),
  (E'a\tb', 'a tab'), (E'a\x1f', 'a control character'), (E'\x7f', 'DEL');
create temp table call (sql text, name text);  -- %1$L the namespace, %2$L the key
insert into call values
  ('select leasehold.acquire(%1$L, %2$L, ''30 s'')', 'acquire'),
  ('select leasehold.heartbeat(%1$L, %2$L, t.key(1))', 'heartbeat'),
  ('select leasehold.release_ok(%1$L, %2$L, t.key(1))', 'release_ok'),
  ('select leasehold.release_fail(%1$L, %2$L, t.key(1), ''no'')', 'release_fail'),
  ('select leasehold.end_reason(%1$L, %2$L, t.key(1))', 'end_reason'),
  ('select leasehold.guard(%1$L, %2$L, 1)', 'guard'),
  ('select leasehold.join_queue(%1$L, %2$L, t.key(2))', 'join_queue'),
  ('select leasehold.leave_queue(%1$L, %2$L, t.key(2))', 'leave_queue'),
  ('select leasehold.explain(%1$L, %2$L)', 'explain'),
  ('select leasehold.force_release(%1$L, %2$L, ''why'')', 'force_release');

select is(t.error_of(format(call.sql, bad.value, 'held')), 'LH002 invalid_argument namespace', format('%s: %s is no namespace', call.name, bad.what))
  from call, bad_namespace bad order by call.name, bad.what;
select is(t.error_of(format(call.sql, 'bad', bad.value)), 'LH002 invalid_argument key', format('%s: %s is no key', call.name, bad.what))
  from call, bad_key bad order by call.name, bad.what;

-- the same with the largest that are allowed
select is(t.error_of(format('select leasehold.acquire(%L, %L, %L)', good.namespace, good.key, '30 s')), '', good.what || ' is allowed')
  from (values (repeat('s', 63), 'k', 'a segment of 63 bytes'), (repeat('é', 31), 'k', 'a segment of 31 characters and 62 bytes'),
               (rtrim(repeat('s.', 16), '.'), 'k', '16 segments'), (rtrim(repeat(repeat('s', 50) || '.', 5), '.'), 'k', '254 bytes in all'),
               ('a b/c:%"''\', 'k', 'punctuation'), ('bad', repeat('k', 1024), 'a key of 1024 bytes'), ('bad', 'x.y/z \ ''"', 'a key with punctuation'),
               ('bad', '漢字', 'a key in any script')) as good (namespace, key, what);
delete from leasehold.scope where (namespace, key) <> ('bad', 'held');

-- the other fields
create temp table field_case (field text, sql text, what text);
insert into field_case values
  ('duration', 'select leasehold.acquire(''bad'', ''new'', null)', 'NULL'),
  ('duration', 'select leasehold.acquire(''bad'', ''new'', ''0 s'')', 'zero'),
  ('duration', 'select leasehold.acquire(''bad'', ''new'', ''-30 s'')', 'a negative one'),
  ('duration', 'select leasehold.acquire(''bad'', ''new'', ''999 ms'')', 'less than min_duration'),
  ('duration', 'select leasehold.acquire(''bad'', ''new'', ''1 day 1 us'')', 'more than max_duration'),
  ('duration', 'select leasehold.acquire(''bad'', ''new'', ''1000 years'')', 'a thousand years'),
  ('duration', 'select leasehold.acquire(''bad'', ''held'', ''0 s'', lease_key => t.key(1))', 'zero, by the holder'),
  ('duration', 'select leasehold.acquire(''bad'', ''held'', ''0 s'')', 'zero, for a held scope'),
  ('owner', 'select leasehold.acquire(''bad'', ''new'', ''30 s'', owner => repeat(''o'', 256))', '256 bytes'),
  ('owner', 'select leasehold.acquire(''bad'', ''new'', ''30 s'', owner => repeat(''é'', 128))', '128 characters and 256 bytes'),
  ('lease_key', 'select leasehold.acquire(''bad'', ''new'', ''30 s'', lease_key => null)', 'NULL'),
  ('labels', 'select leasehold.acquire(''bad'', ''new'', ''30 s'', labels => ''[]'')', 'an array'),
  ('labels', 'select leasehold.acquire(''bad'', ''new'', ''30 s'', labels => ''"a"'')', 'a string'),
  ('labels', 'select leasehold.acquire(''bad'', ''new'', ''30 s'', labels => ''{"a": 1}'')', 'a number as value'),
  ('labels', 'select leasehold.acquire(''bad'', ''new'', ''30 s'', labels => ''{"a": null}'')', 'null as value'),
  ('labels', 'select leasehold.acquire(''bad'', ''new'', ''30 s'', labels => (select jsonb_object_agg(n, ''v'') from generate_series(1, 17) n))', 'seventeen'),
  ('labels', 'select leasehold.acquire(''bad'', ''new'', ''30 s'', labels => jsonb_build_object(repeat(''n'', 64), ''v''))', 'a name of 64 bytes'),
  ('labels', 'select leasehold.acquire(''bad'', ''new'', ''30 s'', labels => jsonb_build_object(''n'', repeat(''v'', 256)))', 'a value of 256 bytes'),
  ('lease_key', 'select leasehold.heartbeat(''bad'', ''held'', null)', 'NULL for heartbeat'),
  ('lease_key', 'select leasehold.release_ok(''bad'', ''held'', null)', 'NULL for release_ok'),
  ('lease_key', 'select leasehold.end_reason(''bad'', ''held'', null)', 'NULL for end_reason'),
  ('lease_key', 'select leasehold.release_fail(''bad'', ''held'', null, ''no'')', 'NULL for release_fail'),
  ('result', 'select leasehold.release_ok(''bad'', ''held'', t.key(1), to_jsonb(repeat(''x'', 8193)))', 'more than 8 KiB'),
  ('error', 'select leasehold.release_fail(''bad'', ''held'', t.key(1), null)', 'NULL'),
  ('error', 'select leasehold.release_fail(''bad'', ''held'', t.key(1), repeat(''x'', 8193))', 'more than 8 KiB'),
  ('token', 'select leasehold.guard(''bad'', ''held'', null)', 'NULL'),
  ('lease_key', 'select leasehold.join_queue(''bad'', ''held'', null)', 'NULL for join_queue'),
  ('ttl', 'select leasehold.join_queue(''bad'', ''held'', t.key(2), ''0 s'')', 'zero'),
  ('ttl', 'select leasehold.join_queue(''bad'', ''held'', t.key(2), ''-1 s'')', 'a negative one'),
  ('ttl', 'select leasehold.join_queue(''bad'', ''held'', t.key(2), null)', 'NULL'),
  ('lease_key', 'select leasehold.leave_queue(''bad'', ''held'', null)', 'NULL for leave_queue'),
  ('reason', 'select leasehold.force_release(''bad'', ''held'', null)', 'NULL'),
  ('reason', 'select leasehold.force_release(''bad'', ''held'', '''')', 'the empty string'),
  ('max', 'select leasehold.reap(max => 0)', 'zero'),
  ('max', 'select leasehold.reap(max => -1)', 'a negative one'),
  ('namespaces', 'select leasehold.reap(array[''a..b''])', 'a bad namespace in it'),
  ('namespaces', 'select leasehold.reap(array[null::text])', 'NULL in it');
select is(t.error_of(sql), 'LH002 invalid_argument ' || field, format('%s: %s is refused', field, what)) from field_case;
select is(t.error_of(sql), '', what || ' is allowed')
  from (values ('select leasehold.acquire(''ok'', ''owner'', ''30 s'', owner => repeat(''o'', 255))', 'an owner of 255 bytes'),
               ('select leasehold.acquire(''ok'', ''labels'', ''30 s'', labels => (select jsonb_object_agg(n, ''v'') from generate_series(1, 16) n))', 'sixteen labels'),
               ('select leasehold.acquire(''ok'', ''long'', ''30 s'', labels => jsonb_build_object(repeat(''n'', 63), repeat(''v'', 255)))', 'the longest label'),
               ('select leasehold.acquire(''ok'', ''day'', ''1 day'')', 'one day'), ('select leasehold.acquire(''ok'', ''second'', ''1 s'')', 'one second')) as good (sql, what);
delete from leasehold.scope where namespace = 'ok';
select is(t.footprint(), :'before', 'nothing of all that was written');

-- NULL in batches: the item is invalid and no other
select is((select array_agg(outcome || coalesce(' ' || field, '') order by n) from leasehold_internal.acquire_batch(null, null,
             array['n', null, 'n', 'n', 'n', 'n'], array['1', '2', null, '4', '5', '6'], array[t.key(1), t.key(2), t.key(3), null, t.key(5), t.key(6)],
             array[null, 'o', 'o', 'o', 'o', 'o'], array['{}', '{}', '{}', '{}', '{}', '{}'], array[30000000, 30000000, 30000000, 30000000, null, 30000000],
             array[false, false, false, false, false, false], array_fill(null::bigint, array[6]), array_fill(null::bigint, array[6]))),
          array['granted', 'invalid namespace', 'invalid key', 'invalid lease_key', 'invalid duration', 'granted'], 'NULL in an item makes that item invalid');
select is((select count(*) from leasehold.scope where namespace = 'n'), 2::bigint, 'and only the good ones are written');
select ok(t.message_of($$select leasehold.acquire('', 'k', '30 s')$$) like 'invalid\_argument: %', 'the message begins with the condition');
select * from finish();
