-- A spread namespace: this database grants keys of its own slots alone, by whatever way they are asked for.
select no_plan();
select t.enroll(t.key(901)), t.enroll(t.key(902));
insert into leasehold.policy (namespace, min_duration) values ('s', '100 ms');

-- The formulas are those of src/service/places/spread.c: tests/unit/test_service_spread.c has the same values.
create function pg_temp.owner(p_sections text[], p_key text) returns text language sql as $$
  select string_agg(s, ' ') from unnest(p_sections) s where get_bit(leasehold_internal.section_slots(s, p_sections), leasehold_internal.slot_of(p_key)) = 1
$$;
select is(array[pg_temp.owner('{a}', key), pg_temp.owner('{a,b}', key), pg_temp.owner('{c,b,a}', key), pg_temp.owner('{eu,us-1,asia_2,home}', key)],
          array['a', of_two, of_three, of_four], format('the place of %L', key))
  from (values ('', 'b', 'b', 'us-1'), ('k', 'b', 'b', 'asia_2'), ('invoice-42', 'a', 'a', 'us-1'), (U&'Z\00fcrich', 'a', 'c', 'us-1'), ('k1', 'b', 'b', 'home'),
               ('k2', 'b', 'b', 'eu'), ('k3', 'b', 'b', 'eu'), ('db/7', 'b', 'b', 'home'), ('a b', 'a', 'a', 'us-1')) v (key, of_two, of_three, of_four);
select is(leasehold_internal.slot_of(key), slot, format('the slot of %L', key)) from (values ('invoice-42', 963), ('', 3643), (U&'\00fc', 1543)) v (key, slot);
select is((select array_agg(n order by n) from generate_series(0, 30) n where get_bit(leasehold_internal.section_slots('a', '{a,b,c}'), n) = 1),
          array[0, 2, 8, 12, 13, 14, 19, 23, 28, 29, 30], 'the first slots of a section');

create function pg_temp.claim(p_namespace text, p_section text, p_sections text[], p_settle boolean default true) returns text language sql as $$
  select format('%s of %s: %s', c.section, array_to_string(c.sections, ' '), md5(c.slots)) from leasehold_internal.spread_claim(p_namespace, p_section, p_sections, p_settle) c
$$;
select is(t.message_of(format('select leasehold_internal.spread_claim(%s)', arguments)), 'invalid_argument: ' || message, 'refused: ' || arguments)
  from (values ($$'', 'a', '{a}'$$, 'namespace must be 1 to 16 segments of 1 to 63 bytes, has 0'),
               ($$'s', 'a', '{}'$$, 'sections must be 1 to 255 names, has 0'),
               ($$'s', 'a', null$$, 'sections must be 1 to 255 names, has 0'),
               ($$'s', 'a', '{a,null}'$$, 'sections must be 1 to 255 names, has 2'),
               ($$'s', 'a', array(select n::text from generate_series(1, 256) n)$$, 'sections must be 1 to 255 names, has 256'),
               ($$'s', 'c', '{b,a}'$$, 'section must be one of a, b, is c'),
               ($$'s', null, '{b,a}'$$, 'section must be one of a, b, is null')) v (arguments, message);
select is((select count(*) from leasehold.spread), 0::bigint, 'nothing was written');

-- Before the claim every key is this database's: these are held by then, and waited for.
create function pg_temp.batch(p_keys text[], p_leases integer[], p_queue boolean default true, p_units integer default null, p_namespace text default 's',
                              p_priority integer default null, p_hooks text default 'on')
returns text language sql as $$
  select set_config('leasehold.hooks', p_hooks, true);
  select string_agg(a.outcome || coalesce(' ' || a.field, ''), ', ' order by a.n)
    from leasehold_internal.acquire_batch(
           t.key(901), null, array_fill(p_namespace, array[cardinality(p_keys)]), p_keys, array(select t.key(l) from unnest(p_leases) with ordinality u (l, n) order by n),
           array(select 'w' || l from unnest(p_leases) with ordinality u (l, n) order by n), array_fill('{}'::text, array[cardinality(p_keys)]),
           array_fill(30000000::bigint, array[cardinality(p_keys)]), array_fill(p_queue, array[cardinality(p_keys)]),
           array_fill(null::bigint, array[cardinality(p_keys)]),
           array(select coalesce((select w.ticket from leasehold.waiter w where w.lease_key = t.key(u.l) and w.namespace = p_namespace and w.key = u.k), 0)
                   from unnest(p_keys, p_leases) with ordinality u (k, l, n) order by n),
           null, null, array_fill(p_units, array[cardinality(p_keys)]), array_fill(p_priority, array[cardinality(p_keys)])) a
$$;
create function pg_temp.pass(p_key text, p_lease integer, p_next integer, p_units integer default null, p_hooks text default 'on') returns text language sql as $$
  select set_config('leasehold.hooks', p_hooks, true);
  select string_agg(h.part || ' ' || h.outcome, ', ' order by h.part desc)
    from leasehold_internal.hand_over_batch(
           t.key(901), array['s'], array[p_key], array[t.key(p_lease)], array[false], array[null::text], null, array['s'], array[p_key], array[t.key(p_next)],
           array['w' || p_next], array['{}'], array[30000000::bigint], array[true], array[null::bigint],
           array[(select w.ticket from leasehold.waiter w where w.lease_key = t.key(p_next) and w.key = p_key)], null, null, array[p_units]) h
$$;
create function pg_temp.all(p_keys text[], p_lease integer, p_queue boolean default true, p_ticket bigint default 0) returns text language sql as $$
  select string_agg(coalesce(a.field || ' ', '') || a.outcome || ' ' || p_keys[a.n], ', ' order by a.n)
    from leasehold_internal.acquire_all_one(t.key(901), null, array_fill('s'::text, array[cardinality(p_keys)]), p_keys, t.key(p_lease), 'w' || p_lease, '{}',
                                            30000000, p_queue, null, p_ticket) a
$$;
create function pg_temp.stands(p_key text, p_namespace text default 's') returns text language sql as $$
  select concat_ws(' ', (select s.state || coalesce(' ' || ltrim(right(s.lease_key::text, 3), '0'), '') from leasehold.scope s where s.namespace = p_namespace and s.key = p_key),
                   (select 'waits ' || string_agg(ltrim(right(w.lease_key::text, 3), '0'), ' ' order by w.ticket)
                      from leasehold.waiter w where w.namespace = p_namespace and w.key = p_key))
$$;
select is(pg_temp.batch(array['k1'], array[1]), 'granted', 'without a row all keys are here');
select is(pg_temp.batch(array['k1'], array[2]), 'queued', '');

-- The claim.
select alike(pg_temp.claim('s', 'a', array['b', 'a', 'b']), 'a of a b: %', 'a claim makes the row, with the names in order');
select changed_at from leasehold.spread \gset
select alike(pg_temp.claim('s', 'a', array['c', 'a', 'b']), 'a of a b: %', 'another one changes nothing');
select is((select changed_at from leasehold.spread), :'changed_at', 'and tells nobody');

-- A claim without slots, which gets them when all databases have one.
select is(pg_temp.claim('two.steps', 'a', array['b', 'a'], false), 'a of a b: ' || md5(decode(repeat('00', 512), 'hex')), 'a claim that is not settled has no slots');
select is(pg_temp.claim('two.steps', 'a', array['a', 'c']), pg_temp.claim('two.steps', 'a', array['a', 'b'], false), 'one of other sections does not settle it');
select is((select settled from leasehold.spread where namespace = 'two.steps'), false, '');
select is(pg_temp.batch(array['invoice-42'], array[3], p_namespace => 'two.steps'), 'elsewhere key', 'it has no key yet');
select is(pg_temp.claim('two.steps', 'a', array['a', 'b']), pg_temp.claim('s', 'a', array['a', 'b']), 'one of the same sections does');
update leasehold.spread set slots = decode(repeat('00', 512), 'hex') where namespace = 'two.steps';
select is(pg_temp.claim('two.steps', 'a', array['a', 'b'], settle), 'a of a b: ' || md5(decode(repeat('00', 512), 'hex')), 'what it gave away does not come back')
  from (values (true), (false)) v (settle);
update leasehold.spread set changed_at = changed_at + interval '1 d' where namespace = 'two.steps';
update leasehold.spread set changed_at = '2020-01-01' where namespace = 'two.steps';
select is((select changed_at > :'changed_at' from leasehold.spread where namespace = 'two.steps'), true, 'the times of changes grow, whatever is written');
delete from leasehold.spread where namespace = 'two.steps';

-- What a daemon acts on.
select is((select array_agg(c.spread_read_at) from leasehold.coordinator c where c.id in (t.key(901), t.key(902))), array[null, null]::timestamptz[], 'none of them has read it');
select is((select count(*) from leasehold_internal.spread_get(t.key(901), :'changed_at')), 1::bigint, '');
select is((select array_agg(c.spread_read_at order by c.id) from leasehold.coordinator c where c.id in (t.key(901), t.key(902))), array[:'changed_at', null]::timestamptz[],
          'one of them acts on it');
select is((select array_agg(format('%s %s %s', g.namespace, g.section, g.slots = leasehold_internal.section_slots('a', '{a,b}'))) from leasehold_internal.spread_get() g),
          array['s a t'], 'daemons get it so');
select throws_ok($$update leasehold.spread set slots = ''$$, '23514', null, 'fewer slots are none');

-- What is held goes on: renewal, an acquire repeated with its own key, a guard, the wait of others ends.
select is(pg_temp.batch(array['k1'], array[1]), 'renewed', 'a repeated acquire of a live lease');
select is((select count(*) from leasehold.heartbeat('s', 'k1', t.key(1))), 1::bigint, 'a renewal');
select lives_ok(format('select leasehold.guard(''s'', ''k1'', %s)', token), 'a guard') from leasehold.scope where namespace = 's' and key = 'k1';
select is((select position from leasehold.join_queue('s', 'k1', t.key(1))), 0, 'its holder is told by join_queue() that it has it');
select is(pg_temp.batch(array['k1'], array[2]), 'elsewhere key', 'a waiter that asks again loses its place');
select is(pg_temp.stands('k1'), 'held 1', '');
select is(pg_temp.batch(array['k1'], array[3]), 'elsewhere key', 'nobody queues for it, where it is held');
select is(pg_temp.batch(array['k1'], array[3], false), 'elsewhere key', '');
select lives_ok($$select leasehold.release_ok('s', 'k1', t.key(1))$$, 'a release');
select is(pg_temp.stands('k1'), 'free', '');

-- Every way to acquire.
select is(pg_temp.batch(array['k1'], array[4], q), 'elsewhere key', format('a free scope, %s', q)) from unnest(array[true, false]) q;
select is(pg_temp.batch(array['k2'], array[4]), 'elsewhere key', 'a scope without a row');
select is(pg_temp.batch(array['k1'], array[4], p_priority => 5), 'denied priority', 'what is wrong by itself is said first');
select is(pg_temp.batch(array['invoice-42', 'k2', 'a b', 'k1'], array[5, 5, 5, 5]), 'granted, elsewhere key, granted, elsewhere key', 'several in a batch');
select is(pg_temp.batch(array['invoice-42', 'k2', U&'Z\00fcrich'], array[6, 6, 6]), 'queued, elsewhere key, granted', '');
select is(pg_temp.batch(array['k2'], array[7], p_units => 1), 'elsewhere key', 'shared');
select is(pg_temp.batch(array['k2', 'invoice-42'], array[7, 7], p_units => 1), 'elsewhere key, queued', '');
select is(pg_temp.batch(array['k2'], array[7], p_namespace => 's.below.it'), 'elsewhere key', 'a namespace below');
select is(pg_temp.batch(array['k2'], array[7], p_namespace => 'sx'), 'granted', 'and another that only begins alike');
select is((select count(*) from leasehold.scope where key = 'k2' and namespace <> 'sx'), 0::bigint, 'no row was made');
select is(t.message_of($$select leasehold.acquire('s', 'k2', '30 s')$$), 'invalid_argument: key: k2 of s is in another database; this one has the keys of section a', 'acquire()');
select is(t.error_of($$select leasehold.acquire('s', 'k2', '30 s', mode => 'shared')$$), 'LH002 invalid_argument key', '');
select is(t.message_of($$select leasehold.join_queue('s', 'k2', t.key(8))$$), 'invalid_argument: key: k2 of s is in another database; this one has the keys of section a', 'join_queue()');
select is(t.error_of($$select leasehold.acquire_all(array['sx', 's'], array['x', 'k2'], '30 s')$$), 'LH002 invalid_argument keys[2]', 'acquire_all()');
select is(pg_temp.stands('x', 'sx'), '', 'grants nothing then');
select is(pg_temp.all(array['k', 'k2'], 9), 'key elsewhere k', 'a request for several');
select is(pg_temp.all(array['invoice-42', 'k2'], 9), 'key elsewhere k2', 'that would wait');
select is((select count(*) from leasehold.waiter where lease_key = t.key(9)), 0::bigint, 'has no place');

-- A claim of a namespace below counts there.
select alike(pg_temp.claim('s.below', 'b', array['b', 'a']), 'b of a b: %', 'a namespace below has a row of its own');
select is(pg_temp.batch(array['k2', 'invoice-42'], array[10, 10], p_namespace => 's.below.it'), 'granted, elsewhere key', 'which counts for it');
select is(t.message_of($$select leasehold.acquire('s.below.it', 'a b', '30 s')$$),
          'invalid_argument: key: a b of s.below.it is in another database; this one has the keys of section b', '');

-- Without a policy of its own.
select is(pg_temp.batch(array['k2'], array[24], p_namespace => 'bare'), 'granted', '');
select is(pg_temp.batch(array['k2'], array[25], p_namespace => 'bare'), 'queued', '');
select alike(pg_temp.claim('bare', 'a', array['b', 'a']), 'a of a b: %', 'a namespace that has no policy');
select is(pg_temp.batch(array['k1'], array[24], p_namespace => 'bare'), 'elsewhere key', 'has no more keys than others');
select is(pg_temp.batch(array['k2'], array[26], p_namespace => 'bare'), 'elsewhere key', '');
select is(pg_temp.batch(array['invoice-42'], array[24], p_namespace => 'bare'), 'granted', 'and no fewer');
select is(pg_temp.batch(array['k1', 'a b'], array[24, 24], p_namespace => 'bare'), 'elsewhere key, granted', '');
create table t.notified (payload text);
create function t.notify(p_channel text, p_payload text) returns void language sql as $$ insert into t.notified values (p_payload) $$;
select replace(pg_get_functiondef('leasehold_internal.let_ask_again'::regproc), 'pg_notify(', 't.notify(') \gexec
update leasehold.spread set slots = slots where namespace = 'bare';
select is((select array_agg(payload) from t.notified), array[E'bare\nk2'], 'who waits there asks again when slots are changed');
delete from leasehold.spread where namespace = 'bare';

-- A slot that is taken away while others wait.
create function pg_temp.take(p_key text, p_bit integer default 0) returns void language sql as $$
  update leasehold.spread set slots = set_bit(slots, leasehold_internal.slot_of(p_key), p_bit) where namespace = 's'
$$;
select pg_temp.take('k1', 1), pg_temp.take('k2', 1), pg_temp.take('k3', 1), pg_temp.take('db/7', 1);
select is(pg_temp.batch(array['k1', 'k2', 'k3', 'db/7'], array[11, 11, 11, 11]), 'granted, granted, granted, granted', 'slots that it got');
select is(pg_temp.batch(array['k1', 'k2', 'k3', 'db/7'], array[12, 12, 12, 12]), 'queued, queued, queued, queued', '');
select is(pg_temp.batch(array['k1'], array[13]), 'queued', '');
select pg_temp.take('k1'), pg_temp.take('k2'), pg_temp.take('k3');
select is(pg_temp.pass('k1', 11, 12), 'release ok, acquire elsewhere', 'a hand-over to a waiter');
select is(pg_temp.stands('k1'), 'free waits 13', 'grants nothing, and its place is gone');
select is(pg_temp.batch(array['k1'], array[13]), 'elsewhere key', 'as is that of the next, who was told');
select is((select r.outcome from leasehold_internal.release_batch(t.key(901), array['s'], array['k2'], array[t.key(11)], array[false], array[null::text]) r), 'ok', 'a release, and the waiter asks');
select is(pg_temp.batch(array['k2'], array[12]), 'elsewhere key', '');
select is(pg_temp.stands('k2'), 'free', '');
select t.age('s', 'k3', '1 hour');
select is(pg_temp.batch(array['k3'], array[12]), 'elsewhere key', 'an expired lease is not taken over');
select is(pg_temp.stands('k3'), 'held 11', '');
select is(pg_temp.pass('db/7', 11, 12), 'release ok, acquire granted', 'a slot that is still here is handed over');

-- Daemons that have not read yet that a key went away: its leases live on in its new database, so nobody here says that they are lost.
create function pg_temp.beat(p_namespaces text[], p_keys text[], p_leases integer[]) returns text language sql as $$
  select string_agg(b.outcome || coalesce(' ' || b.end_reason, ''), ', ' order by b.n)
    from leasehold_internal.heartbeat_batch(p_namespaces, p_keys, array(select t.key(l) from unnest(p_leases) with ordinality u (l, n) order by n)) b
$$;
create function pg_temp.end(p_namespaces text[], p_keys text[], p_leases integer[]) returns text language sql as $$
  select string_agg(b.outcome || coalesce(' ' || b.end_reason, ''), ', ' order by b.n)
    from leasehold_internal.release_batch(
           t.key(901), p_namespaces, p_keys, array(select t.key(l) from unnest(p_leases) with ordinality u (l, n) order by n),
           array_fill(false, array[cardinality(p_keys)]), array_fill(null::text, array[cardinality(p_keys)])) b
$$;
select is(pg_temp.beat(array[ns], array[key], array[lease]), outcome, format('a renewal of %s of %s by %s', key, ns, lease))
  from (values ('s', 'k1', 98, 'busy'), ('s', 'k', 98, 'busy'), ('s.x', 'k1', 98, 'busy'), ('s', 'k1', 11, 'lost released'), ('sx', 'k-none', 98, 'lost unknown'),
               ('s', 'db/7', 98, 'lost unknown'), ('s', 'db/7', 11, 'lost released'), ('s', 'db/7', 12, 'ok')) v (ns, key, lease, outcome);
select is(pg_temp.beat('{s,s,sx,s,s}', '{k1,db/7,k-none,k1,db/7}', '{98,12,98,11,98}'), 'busy, ok, lost unknown, lost released, lost unknown', 'and several');
select is(pg_temp.end('{s,sx,s,s}', '{k1,k-none,k1,db/7}', '{98,98,11,98}'), 'busy, lost unknown, lost released, lost unknown', 'releases');
select is((select d.outcome from leasehold_internal.downgrade_one(t.key(901), null, 's', 'k1', t.key(98), 1) d), 'busy', 'a downgrade');

-- Requests for several scopes that wait.
select pg_temp.take('k1', 1), pg_temp.take('k2', 1);
select is(pg_temp.batch(array['k1'], array[14]), 'granted', '');
select is(pg_temp.all(array['k1', 'k2'], 15), 'queued k1', '');
select ticket from leasehold.waiter where lease_key = t.key(15) and key = 'k1' \gset
select is(pg_temp.all(array['k1', 'k2'], 15, true, :ticket), 'queued k1', 'it goes on waiting');
select pg_temp.take('k2');
select is(pg_temp.all(array['k1', 'k2'], 15, true, :ticket), 'key elsewhere k2', 'until a slot of it is gone, although another keeps it waiting');
select is((select count(*) from leasehold.waiter where lease_key = t.key(15)), 0::bigint, '');
select pg_temp.take('k1');
select matches((select advice from leasehold.explain('s', 'k1')), 'section a; here wait: w14 is alive', 'explain() of a held one');
select leasehold.release_ok('s', 'k1', t.key(14));

-- Shared leases.
select leasehold.set_policy('s', capacity => 2);
select pg_temp.take('share', 1);
select is(pg_temp.batch(array['share'], array[16], p_units => 2), 'granted', '');
select is(pg_temp.batch(array['share'], array[17], p_units => 2), 'queued', '');
select is(pg_temp.batch(array['share'], array[18], p_units => 1), 'queued', '');
select pg_temp.take('share');
select is(pg_temp.pass('share', 16, 17, 2), 'release ok, acquire elsewhere', 'a shared lease is not handed over');
select is(pg_temp.batch(array['share'], array[18], p_units => 1), 'elsewhere key', '');
select is(pg_temp.batch(array['share'], array[19], p_units => 1), 'elsewhere key', '');
select is(pg_temp.stands('share'), 'free', '');

-- Hooks.
create table t.hooked (event text, key text);
create function t.note_hooked(e leasehold.lease_event) returns void language sql set search_path = pg_catalog as $$ insert into t.hooked values (e.event, e.key) $$;
select leasehold.add_hook('s', 'acquire', 't.note_hooked(leasehold.lease_event)');
select is(pg_temp.batch(array['k1'], array[20], p_hooks => h), 'elsewhere key', format('with a hook, where the call runs hooks %L', h)) from unnest(array['on', '']) h;
select is(pg_temp.batch(array['k1', 'k2'], array[20, 20], p_hooks => h), 'elsewhere key, elsewhere key', '') from unnest(array['on', '']) h;
select is(t.error_of($$select leasehold.acquire('s', 'k2', '30 s')$$), 'LH002 invalid_argument key', '');
select pg_temp.take('k1', 1);
select is(pg_temp.batch(array['k1'], array[21]), 'granted', '');
select is(pg_temp.batch(array['k1'], array[22]), 'queued', '');
select pg_temp.take('k1');
delete from t.hooked;
select is(pg_temp.pass('k1', 21, 22), 'release ok, acquire elsewhere', 'nor is a lease with a hook handed over');
select is((select count(*) from t.hooked), 0::bigint, 'no hook ran');
select is(pg_temp.stands('k1'), 'free', '');
select leasehold.remove_hook('s', 'acquire', 't.note_hooked(leasehold.lease_event)');

-- People see it.
select matches((select advice from leasehold.explain('s', 'k1')), '^acquire it there: k1 of s is in another database; this one has the keys of section a$', 'explain() of a free scope');
select matches((select advice from leasehold.explain('s', 'k3')), '^acquire it there: k3 of s is in another database; this one has the keys of section a; here it has expired$', 'and of one that has expired');
select doesnt_match((select advice from leasehold.explain('s', 'invoice-42')), 'another database', 'and of one that is here');
select is((select policy ? 'slots' from leasehold.explain('s', 'k1')), false, 'slots are no setting');
select leasehold.reset_policy('s');
select is(pg_temp.batch(array['k1'], array[23]), 'elsewhere key', 'a policy that is reset does not bring keys');
delete from leasehold.policy where namespace = 's';
select is(pg_temp.batch(array['k1'], array[23]), 'elsewhere key', 'nor one that is deleted');
select is(t.message_of(format('select leasehold.set_schedule(%L, ''* * * * *'')', name)),
          format('invalid_argument: name must be in one database, as a schedule and its ticks are: %s is spread', name), 'a schedule at or below it: ' || name)
  from (values ('s'), ('s.nightly')) v (name);
select is((leasehold.set_schedule('sx', '* * * * *')).name, 'sx', 'and one beside it');
select is((select count(*) from leasehold.spread where changed_at > now() - interval '1 hour'), 2::bigint, 'when it was claimed');
delete from leasehold.spread;
select is(pg_temp.batch(array['k1'], array[23]), 'granted', 'without its row all keys are here again');
select * from finish();
