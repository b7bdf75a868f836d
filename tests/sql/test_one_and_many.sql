-- A batch of one takes other code than a batch of several, and must leave the same rows and tell the same answer. Every operation is done
-- to two scopes that were prepared alike: alone, and as the first item of a batch of two, whose second item is a scope of its own. That is
-- acquired as shared, so that answer_shared() answers about both.
-- Compared is all that anybody could see of it: answers, rows, queue, history, events, notifications.
select no_plan();
select leasehold.reap();
select t.enroll(t.key(901)), t.enroll(t.key(902)), leasehold_internal.coordinator_register(t.key(903), 'host', 3, '0.1.0');
update leasehold.coordinator set seen_at = seen_at - interval '1 hour' where id = t.key(903);
-- All times differ by more than is tolerated: leases of an hour, seven minutes of grace, and everything is some minutes old.
select leasehold.set_policy('', grace => '7 min', max_hold => '45 min');
update leasehold.incarnation set started_at = started_at - interval '30 min';
create function pg_temp.tolerance() returns numeric language sql immutable as $$ select 20.0 $$;
create function t.hook(e leasehold.lease_event) returns void language sql as $$ select $$;
-- What is sent can only be looked at where it is not.
create table t.notified (channel text, payload text);
create function t.notify(p_channel text, p_payload text) returns void language sql as $$ insert into t.notified values (p_channel, p_payload) $$;
select replace(pg_get_functiondef(p.oid), 'pg_notify(', 't.notify(') from pg_proc p
 where p.pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) and p.prosrc like '%pg\_notify(%' \gexec

-- What states are made of. Lease key 2 is who does something in all that follows, 3 is who is next, and 901 their coordinator.
create function pg_temp.ask(p_ns text, p_lease integer, p_coordinator integer default 901, p_wait_us bigint default null) returns text language sql as $$
  select outcome from leasehold_internal.acquire_batch(t.key(p_coordinator), null, array[p_ns], array['k'], array[t.key(p_lease)], array['w' || p_lease],
                                              array['{"was": "here"}'], array[3600000007], array[true], array[p_wait_us], array[0::bigint],
                                              array['token:w' || p_lease])
$$;
create function pg_temp.share(p_ns text, p_lease integer, p_units integer default 1, p_coordinator integer default 901) returns text language sql as $$
  select outcome from leasehold_internal.acquire_batch(t.key(p_coordinator), null, array[p_ns], array['k'], array[t.key(p_lease)], array['w' || p_lease],
                                              array['{"was": "here"}'], array[3600000007], array[true], array[null::bigint], array[0::bigint],
                                              array['token:w' || p_lease], null, array[p_units])
$$;
create function pg_temp.join(p_ns text, p_lease integer) returns integer language sql as $$
  select position from leasehold.join_queue(p_ns, 'k', t.key(p_lease), '1 hour')
$$;
create function pg_temp.release(p_ns text, p_lease integer) returns text language sql as $$
  select outcome from leasehold_internal.release_batch(t.key(901), array[p_ns], array['k'], array[t.key(p_lease)], array[p_lease % 2 = 0], array['{"n": 1}'])
$$;
create function pg_temp.hold(p_ns text, variadic p_leases integer[]) returns bigint language sql as $$
  select count(pg_temp.ask(p_ns, l) || pg_temp.release(p_ns, l)) from unnest(p_leases) l
$$;
create function pg_temp.beat(p_ns text, p_lease integer) returns text language sql as $$
  select outcome from leasehold_internal.heartbeat_batch(array[p_ns], array['k'], array[t.key(p_lease)])
$$;
create function pg_temp.away(p_ns text, p_lease integer) returns text language sql as $$
  select outcome from leasehold_internal.leave_batch(t.key(901), array[p_ns], array['k'], array[t.key(p_lease)], array[true])
$$;
create function pg_temp.age(p_ns text, p_minutes integer) returns void language sql as $$
  update leasehold.share
     set acquired_at = acquired_at - p_minutes * interval '1 min', heartbeat_at = heartbeat_at - p_minutes * interval '1 min',
         deadline = deadline - p_minutes * interval '1 min', ended_at = ended_at - p_minutes * interval '1 min',
         check_at = check_at - p_minutes * interval '1 min'
   where namespace = p_ns;
  select t.age(p_ns, 'k', p_minutes * interval '1 min')
$$;
-- A minimum hold of so many minutes, as its grant writes it.
create function pg_temp.rest(p_ns text, p_minutes integer) returns void language sql as $$
  update leasehold.scope set at_least = p_minutes * interval '1 min', queued = true,
                             at_least_incarnation = (select i.id from leasehold.incarnation i)
   where namespace = p_ns
$$;
create function pg_temp.put(p_ns text, p_what text, p_table regclass default 'leasehold.scope') returns void language plpgsql as $$
begin
  execute format('update %s set %s where namespace = %L', p_table, p_what, p_ns);
end
$$;

create function pg_temp.prefer(p_ns text, p_lease integer, p_priority integer) returns void language sql as $$
  update leasehold.waiter set priority = p_priority where namespace = p_ns and lease_key = t.key(p_lease)
$$;

-- The common ones are tried in every world.
create temp table state (name text, preparation text, common boolean, nr integer generated always as identity);
insert into state (name, preparation) values
  ('new', 'null'),
  ('free', 'pg_temp.hold($1, 1), pg_temp.age($1, 20)'),
  ('free, and something is left over',
   $$pg_temp.hold($1, 4), pg_temp.age($1, 20), pg_temp.put($1, 'heartbeats = 5, lapsed = true, reap_failures = 3, incarnation = -1, granted_by = null')$$),
  ('free, never held', $$pg_temp.hold($1, 1), pg_temp.put($1, 'token = 0, ended_keys = default, ended_outcomes = default, owner = null, last_outcome = null')$$),
  ('free, looked at never', $$pg_temp.hold($1, 1), pg_temp.age($1, 20), pg_temp.put($1, 'check_at = ''infinity''')$$),
  ('free, nine have ended', 'pg_temp.hold($1, 11, 12, 13, 14, 15, 16, 17, 18, 19), pg_temp.age($1, 20)'),
  ('free, mine has ended', 'pg_temp.hold($1, 1, 2), pg_temp.age($1, 20)'),
  ('free, mine was the ninth before', 'pg_temp.hold($1, 2, 11, 12, 13, 14, 15, 16, 17, 18), pg_temp.age($1, 20)'),
  ('free, another is next', 'pg_temp.ask($1, 1), pg_temp.ask($1, 3, 902), pg_temp.release($1, 1), pg_temp.age($1, 20)'),
  ('free, a SQL user is next', $$pg_temp.ask($1, 1), pg_temp.join($1, 3), pg_temp.release($1, 1), pg_temp.age($1, 20)$$),
  ('free, mine is next', 'pg_temp.ask($1, 1), pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.release($1, 1), pg_temp.age($1, 20)'),
  ('free, mine is next and waits for several', $$pg_temp.ask($1, 1), pg_temp.ask($1, 2), pg_temp.release($1, 1),
                                                  pg_temp.put($1, 'items = 3', 'leasehold.waiter'), pg_temp.age($1, 20)$$),
  ('another''s, mine is next and waits for several', $$pg_temp.ask($1, 1), pg_temp.ask($1, 2), pg_temp.put($1, 'items = 3', 'leasehold.waiter'), pg_temp.age($1, 20)$$),
  ('free, mine is the second', 'pg_temp.ask($1, 1), pg_temp.ask($1, 3), pg_temp.ask($1, 2), pg_temp.release($1, 1), pg_temp.age($1, 20)'),
  ('free, another is next by its priority', 'pg_temp.ask($1, 1), pg_temp.ask($1, 4), pg_temp.ask($1, 3), pg_temp.prefer($1, 3, 300), pg_temp.release($1, 1), pg_temp.age($1, 20)'),
  ('free, mine is next by its priority', 'pg_temp.ask($1, 1), pg_temp.ask($1, 3), pg_temp.ask($1, 2), pg_temp.prefer($1, 2, 300), pg_temp.release($1, 1), pg_temp.age($1, 20)'),
  ('mine, the last who waits has a priority', 'pg_temp.ask($1, 2), pg_temp.ask($1, 4, 902), pg_temp.ask($1, 3), pg_temp.prefer($1, 3, 300), pg_temp.age($1, 20)'),
  ('mine, the first who waits has a priority', 'pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.ask($1, 4, 902), pg_temp.prefer($1, 3, 300), pg_temp.age($1, 20)'),
  ('mine, the dead and those who are away have a priority', $$pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.ask($1, 4, 903), pg_temp.ask($1, 5),
     pg_temp.prefer($1, 4, 300), pg_temp.prefer($1, 5, 300), pg_temp.away($1, 5), pg_temp.age($1, 20)$$),
  ('free, only the dead wait', 'pg_temp.ask($1, 1), pg_temp.ask($1, 3, 903), pg_temp.release($1, 1), pg_temp.age($1, 20)'),
  ('free, who waits is away', 'pg_temp.ask($1, 1), pg_temp.ask($1, 3), pg_temp.away($1, 3), pg_temp.release($1, 1), pg_temp.age($1, 20)'),
  ('free, whose wait is over', $$pg_temp.ask($1, 1), pg_temp.ask($1, 3), pg_temp.release($1, 1),
                                 pg_temp.put($1, 'wait_until = enqueued_at - interval ''1 min''', 'leasehold.waiter'), pg_temp.age($1, 20)$$),
  ('free, queued for by nobody', $$pg_temp.hold($1, 1), pg_temp.put($1, 'queued = true'), pg_temp.age($1, 20)$$),
  ('free, resting', 'pg_temp.hold($1, 1), pg_temp.rest($1, 60), pg_temp.age($1, 20)'),
  ('free, rested', 'pg_temp.hold($1, 1), pg_temp.rest($1, 10), pg_temp.age($1, 20)'),
  ('free, resting, another is next', 'pg_temp.ask($1, 1), pg_temp.ask($1, 3, 902), pg_temp.rest($1, 60), pg_temp.release($1, 1), pg_temp.age($1, 20)'),
  ('free, resting, mine has ended', 'pg_temp.hold($1, 1, 2), pg_temp.rest($1, 60), pg_temp.age($1, 20)'),
  ('another''s, with a minimum hold', 'pg_temp.ask($1, 1), pg_temp.rest($1, 60), pg_temp.age($1, 20)'),
  ('another''s, expired, with a minimum hold', 'pg_temp.ask($1, 1), pg_temp.rest($1, 180), pg_temp.age($1, 120)'),
  ('mine, with a minimum hold', 'pg_temp.ask($1, 2), pg_temp.rest($1, 60), pg_temp.age($1, 20)'),
  ('mine, with a minimum hold, another waits', 'pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.rest($1, 60), pg_temp.age($1, 20)'),
  ('mine, its minimum hold is over, another waits', 'pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.rest($1, 10), pg_temp.age($1, 20)'),
  ('another''s', 'pg_temp.ask($1, 1), pg_temp.age($1, 20)'),
  ('another''s, silent', 'pg_temp.ask($1, 1), pg_temp.age($1, 50)'),
  ('another''s, for long', 'pg_temp.ask($1, 1), pg_temp.age($1, 50), pg_temp.beat($1, 1)'),
  ('another''s, in its grace', 'pg_temp.ask($1, 1), pg_temp.age($1, 63)'),
  ('another''s, expired', 'pg_temp.ask($1, 1), pg_temp.age($1, 120)'),
  ('another''s, who was told that it has expired', 'pg_temp.ask($1, 1), pg_temp.age($1, 120), pg_temp.beat($1, 1)'),
  ('another''s, expired, others wait', 'pg_temp.ask($1, 1), pg_temp.ask($1, 3), pg_temp.ask($1, 4, 902), pg_temp.age($1, 120)'),
  ('another''s, expired, mine is next', 'pg_temp.ask($1, 1), pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.age($1, 120)'),
  ('another''s, reaping it has failed', $$pg_temp.ask($1, 1), pg_temp.age($1, 120),
                                          pg_temp.put($1, 'reap_failures = 3, reap_error = ''no'', next_try_at = deadline + interval ''65 min''')$$),
  ('another''s, reaping it was given up', $$pg_temp.ask($1, 1), pg_temp.age($1, 120), pg_temp.put($1, 'reap_failures = 20')$$),
  ('another''s, of an earlier life', $$pg_temp.ask($1, 1), pg_temp.age($1, 120), pg_temp.put($1, 'incarnation = -1')$$),
  ('another''s, of an earlier life, expired', $$pg_temp.ask($1, 1), pg_temp.age($1, 20), pg_temp.put($1, 'incarnation = -1, duration = ''10 min''')$$),
  ('another''s, others wait', 'pg_temp.ask($1, 1), pg_temp.ask($1, 3), pg_temp.ask($1, 4, 902), pg_temp.ask($1, 5, 903), pg_temp.age($1, 20)'),
  ('another''s, mine waits', 'pg_temp.ask($1, 1), pg_temp.ask($1, 3), pg_temp.ask($1, 2, 901, 600000000), pg_temp.age($1, 20)'),
  ('another''s, mine waits elsewhere', 'pg_temp.ask($1, 1), pg_temp.ask($1, 2, 902), pg_temp.age($1, 20)'),
  ('another''s, mine is away', 'pg_temp.ask($1, 1), pg_temp.ask($1, 2), pg_temp.away($1, 2), pg_temp.age($1, 20)'),
  ('another''s, after mine', 'pg_temp.hold($1, 2), pg_temp.ask($1, 1), pg_temp.age($1, 20)'),
  ('mine', 'pg_temp.ask($1, 2), pg_temp.age($1, 20)'),
  ('mine, after others', 'pg_temp.hold($1, 11, 12, 13, 14, 15, 16, 17, 18), pg_temp.ask($1, 2), pg_temp.age($1, 20)'),
  ('mine, renewed', 'pg_temp.ask($1, 2), pg_temp.beat($1, 2), pg_temp.beat($1, 2), pg_temp.age($1, 20)'),
  ('mine, in its grace', 'pg_temp.ask($1, 2), pg_temp.age($1, 63)'),
  ('mine, looked at never', $$pg_temp.ask($1, 2), pg_temp.age($1, 20), pg_temp.put($1, 'check_at = ''infinity''')$$),
  ('mine, looked at soon', $$pg_temp.ask($1, 2), pg_temp.age($1, 20), pg_temp.put($1, 'check_at = acquired_at + interval ''21 min''')$$),
  ('mine, by another coordinator', 'pg_temp.ask($1, 2, 902), pg_temp.age($1, 20)'),
  ('mine, reaping it has failed', $$pg_temp.ask($1, 2), pg_temp.age($1, 20), pg_temp.put($1, 'reap_failures = 3, reap_error = ''no'', next_try_at = deadline')$$),
  ('mine, expired', 'pg_temp.hold($1, 4), pg_temp.ask($1, 2), pg_temp.age($1, 120)'),
  ('mine, told that it has expired', 'pg_temp.ask($1, 2), pg_temp.age($1, 120), pg_temp.beat($1, 2)'),
  ('mine, told that it has expired, and another waits', 'pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.age($1, 120), pg_temp.beat($1, 2)'),
  ('mine, expired, and another waits', 'pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.age($1, 120)'),
  ('mine, of an earlier life', $$pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.age($1, 120), pg_temp.put($1, 'incarnation = -1')$$),
  ('mine, of an earlier life, nobody waits', $$pg_temp.ask($1, 2), pg_temp.age($1, 120), pg_temp.put($1, 'incarnation = -1')$$),
  ('mine, told in an earlier life that it has expired', $$pg_temp.ask($1, 2), pg_temp.age($1, 120), pg_temp.beat($1, 2), pg_temp.put($1, 'incarnation = -1')$$),
  ('mine, told in an earlier life that it has expired, and another waits',
   $$pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.age($1, 120), pg_temp.beat($1, 2), pg_temp.put($1, 'incarnation = -1')$$),
  ('mine, of an earlier life, expired', $$pg_temp.ask($1, 2), pg_temp.age($1, 20), pg_temp.put($1, 'incarnation = -1, duration = ''10 min''')$$),
  ('mine, of an earlier life, expired, and another waits',
   $$pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.age($1, 20), pg_temp.put($1, 'incarnation = -1, duration = ''10 min''')$$),
  ('mine, another waits', 'pg_temp.hold($1, 6), pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.age($1, 20)'),
  ('mine, two wait', 'pg_temp.hold($1, 11, 12, 13, 14, 15, 16, 17, 18), pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.ask($1, 4), pg_temp.age($1, 20)'),
  ('mine, renewed, another waits', 'pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.beat($1, 2), pg_temp.age($1, 20)'),
  ('mine, another waits, reaping it has failed',
   $$pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.age($1, 20), pg_temp.put($1, 'reap_failures = 3, reap_error = ''no'', next_try_at = deadline, granted_by = null')$$),
  ('mine, another waits, looked at never', $$pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.age($1, 20), pg_temp.put($1, 'check_at = ''infinity''')$$),
  ('mine, another waits elsewhere', 'pg_temp.ask($1, 2), pg_temp.ask($1, 4, 902), pg_temp.ask($1, 3), pg_temp.age($1, 20)'),
  ('mine, a SQL user waits', $$pg_temp.ask($1, 2), pg_temp.join($1, 3), pg_temp.age($1, 20)$$),
  ('mine, the first of two is away', 'pg_temp.ask($1, 2), pg_temp.ask($1, 4), pg_temp.ask($1, 3), pg_temp.away($1, 4), pg_temp.age($1, 20)'),
  ('mine, which waits as well', $$pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.put($1, 'lease_key = t.key(2)', 'leasehold.waiter'), pg_temp.age($1, 20)$$),
  ('mine, only the dead wait', 'pg_temp.ask($1, 2), pg_temp.ask($1, 4, 903), pg_temp.age($1, 20)'),
  ('mine, queued for by nobody', $$pg_temp.ask($1, 2), pg_temp.put($1, 'queued = true'), pg_temp.age($1, 20)$$),
  ('mine, whose next has ended', $$pg_temp.hold($1, 3), pg_temp.ask($1, 2), pg_temp.ask($1, 4), pg_temp.put($1, 'lease_key = t.key(3)', 'leasehold.waiter'), pg_temp.age($1, 20)$$);
-- Of a capacity of two.
insert into state (name, preparation) values
  ('shared by me and another, another waits', 'pg_temp.share($1, 1), pg_temp.share($1, 2), pg_temp.share($1, 3), pg_temp.age($1, 20)'),
  ('shared by me, renewed, two wait for all of it', 'pg_temp.share($1, 2, 2), pg_temp.share($1, 3, 2), pg_temp.share($1, 4, 2), pg_temp.beat($1, 2), pg_temp.age($1, 20)'),
  ('shared by me, who waits wants less', 'pg_temp.share($1, 2, 2), pg_temp.share($1, 3), pg_temp.age($1, 20)'),
  ('shared by me, a writer waits', 'pg_temp.share($1, 1), pg_temp.share($1, 2), pg_temp.ask($1, 3), pg_temp.age($1, 20)'),
  ('shared by me, another waits elsewhere', 'pg_temp.share($1, 1), pg_temp.share($1, 2), pg_temp.share($1, 4, 1, 902), pg_temp.share($1, 3), pg_temp.age($1, 20)'),
  ('shared by me, whose next has ended', $$pg_temp.share($1, 3), pg_temp.release($1, 3), pg_temp.share($1, 1), pg_temp.share($1, 2), pg_temp.share($1, 4),
                                            pg_temp.put($1, 'lease_key = t.key(3)', 'leasehold.waiter'), pg_temp.age($1, 20)$$),
  ('shared by me, another has a number above the capacity', $$pg_temp.share($1, 1), pg_temp.share($1, 2), pg_temp.share($1, 3),
                                            pg_temp.put($1, 'slots = case when lease_key = t.key(1) then ''{9}'' else slots end::integer[]', 'leasehold.share'), pg_temp.age($1, 20)$$),
  ('shared by me, without numbers', $$pg_temp.share($1, 1), pg_temp.share($1, 2), pg_temp.share($1, 3), pg_temp.put($1, 'slots = null', 'leasehold.share'), pg_temp.age($1, 20)$$),
  ('shared by me, expired, another waits', 'pg_temp.share($1, 2, 2), pg_temp.share($1, 3, 2), pg_temp.age($1, 120)'),
  ('shared by me, of an earlier life', $$pg_temp.share($1, 2, 2), pg_temp.share($1, 3, 2), pg_temp.age($1, 120), pg_temp.put($1, 'incarnation = -1', 'leasehold.share')$$),
  ('shared by me, told that it has expired', 'pg_temp.share($1, 2, 2), pg_temp.share($1, 3, 2), pg_temp.age($1, 120), pg_temp.beat($1, 2)'),
  ('shared by others', 'pg_temp.share($1, 1), pg_temp.share($1, 4), pg_temp.age($1, 20)'),
  ('shared by others, looked at never', $$pg_temp.share($1, 1), pg_temp.share($1, 4), pg_temp.put($1, 'check_at = ''infinity'''), pg_temp.age($1, 20)$$),
  ('shared by others, who is next waits', 'pg_temp.share($1, 1), pg_temp.share($1, 4), pg_temp.share($1, 3), pg_temp.share($1, 5, 2, 902), pg_temp.age($1, 20)'),
  ('shared by others, with room', 'pg_temp.share($1, 1), pg_temp.age($1, 20)'),
  ('shared by others, after me', 'pg_temp.share($1, 2), pg_temp.release($1, 2), pg_temp.share($1, 1), pg_temp.share($1, 4), pg_temp.age($1, 20)'),
  ('shared by others, one has expired', 'pg_temp.share($1, 1), pg_temp.age($1, 120), pg_temp.share($1, 4)'),
  ('another''s, after it was shared', 'pg_temp.share($1, 4), pg_temp.release($1, 4), pg_temp.ask($1, 1), pg_temp.age($1, 20)'),
  ('another''s, after I shared it', 'pg_temp.share($1, 2), pg_temp.release($1, 2), pg_temp.ask($1, 1), pg_temp.age($1, 20)'),
  ('mine, after it was shared, another waits', 'pg_temp.share($1, 4), pg_temp.release($1, 4), pg_temp.ask($1, 2), pg_temp.ask($1, 3), pg_temp.age($1, 20)'),
  ('mine, after who is next shared it', $$pg_temp.share($1, 3), pg_temp.release($1, 3), pg_temp.ask($1, 2), pg_temp.ask($1, 4),
                                         pg_temp.put($1, 'lease_key = t.key(3)', 'leasehold.waiter'), pg_temp.age($1, 20)$$);
update state set common = name in (
  'shared by me and another, another waits',
  'new', 'free', 'free, resting', 'free, rested', 'mine, with a minimum hold, another waits', 'free, and something is left over', 'free, another is next', 'free, mine is next', 'another''s', 'another''s, expired',
  'another''s, expired, others wait', 'another''s, others wait', 'mine', 'mine, in its grace', 'mine, expired', 'mine, told that it has expired', 'mine, another waits', 'mine, two wait');

-- What is asked, beside what is usual. Width 3: in every world; 2: in every state, without a policy (of a shared scope: with a capacity), but
-- shared leases of what is shared and in common states only; 1: in common states only.
create temp table operation (name text, width integer, item jsonb, nr integer generated always as identity);
insert into operation (name, width, item) values
  ('acquire', 3, '{"do": "acquire"}'),
  ('acquire, and wait', 3, '{"do": "acquire", "queue": true}'),
  ('acquire, and wait with a bound', 2, '{"do": "acquire", "queue": true, "wait": 300000000, "duration": 1200000001}'),
  ('acquire, and wait with its place', 2, '{"do": "acquire", "queue": true, "ticket": "own"}'),
  ('acquire, and wait with a place that was lost', 2, '{"do": "acquire", "queue": true, "ticket": 5}'),
  ('acquire with a minimum hold', 2, '{"do": "acquire", "queue": true, "at_least": 1800000000}'),
  ('acquire with no minimum hold', 1, '{"do": "acquire", "at_least": 0}'),
  ('acquire with too long a minimum hold', 1, '{"do": "acquire", "queue": true, "at_least": 86400000001}'),
  ('acquire with a minimum hold below zero', 1, '{"do": "acquire", "at_least": -1}'),
  ('acquire, and wait below zero', 1, '{"do": "acquire", "queue": true, "wait": -1}'),
  ('acquire with labels', 2, '{"do": "acquire", "labels": "{\"a\": \"b\"}"}'),
  ('acquire with bad labels', 1, '{"do": "acquire", "queue": true, "labels": "{\"a\": 1}"}'),
  ('acquire with no labels', 1, '{"do": "acquire", "labels": null}'),
  ('acquire with labels that are no JSON', 1, '{"do": "acquire", "labels": "{"}'),
  ('acquire without an owner', 1, '{"do": "acquire", "queue": true, "owner": null}'),
  ('acquire with a long owner', 1, jsonb_build_object('do', 'acquire', 'queue', true, 'owner', repeat('o', 256))),
  ('acquire for too short', 1, '{"do": "acquire", "queue": true, "duration": 99999}'),
  ('acquire for too long', 1, '{"do": "acquire", "queue": true, "duration": 86400000001}'),
  ('acquire for no duration', 1, '{"do": "acquire", "queue": true, "duration": null}'),
  ('acquire without a lease key', 2, '{"do": "acquire", "queue": true, "lk": null}'),
  ('acquire without saying whether to wait', 1, '{"do": "acquire", "queue": null}'),
  ('share, and wait', 3, '{"do": "acquire", "queue": true, "units": 1}'),
  ('share', 2, '{"do": "acquire", "units": 1}'),
  ('share all of it, and wait', 2, '{"do": "acquire", "queue": true, "units": 2, "wait": 300000000}'),
  ('share too much, and wait', 2, '{"do": "acquire", "queue": true, "units": 3}'),
  ('share nothing, and wait', 1, '{"do": "acquire", "queue": true, "units": 0}'),
  ('acquire while the clock seems ahead', 1, '{"do": "acquire", "queue": true, "clock": "-10 min"}'),
  ('acquire while the clock seems behind', 1, '{"do": "acquire", "queue": true, "clock": "10 min"}'),
  ('heartbeat', 3, '{"do": "heartbeat"}'),
  ('heartbeat without a lease key', 1, '{"do": "heartbeat", "lk": null}'),
  ('release', 2, '{"do": "release"}'),
  ('release with a result', 2, '{"do": "release", "value": "{\"n\": 2}"}'),
  ('release with a result that is no JSON', 1, '{"do": "release", "value": "{"}'),
  ('release, failed', 3, '{"do": "release", "failed": true, "value": "disk full"}'),
  ('release, failed without words', 1, '{"do": "release", "failed": true}'),
  ('release, unheard', 3, '{"do": "release", "failed": null}'),
  ('release without a lease key', 1, '{"do": "release", "lk": null}'),
  ('hand over', 3, '{"do": "hand over", "next": {}}'),
  ('hand over with a result, labels and a bound', 2, '{"do": "hand over", "value": "{\"n\": 2}",
     "next": {"labels": "{\"a\": \"b\"}", "wait": 300000000, "duration": 1200000001, "ticket": "own"}}'),
  ('hand over, failed', 2, '{"do": "hand over", "failed": true, "value": "disk full", "next": {"owner": null}}'),
  ('hand over to who shares', 3, '{"do": "hand over", "next": {"units": 1}}'),
  ('hand over to who shares all of it', 3, '{"do": "hand over", "failed": true, "value": "disk full", "next": {"units": 2, "labels": "{\"a\": \"b\"}", "duration": 1200000001}}'),
  ('hand over to who shares and is second', 2, '{"do": "hand over", "value": "{\"n\": 2}", "next": {"lk": 4, "units": 1}}'),
  ('hand over to who shares, unheard', 2, '{"do": "hand over", "failed": null, "next": {"units": 1}}'),
  ('hand over to who shares, to itself', 2, '{"do": "hand over", "next": {"lk": 2, "units": 1}}'),
  ('hand over, unheard', 2, '{"do": "hand over", "failed": null, "next": {}}'),
  ('hand over to who is second', 2, '{"do": "hand over", "next": {"lk": 4}}'),
  ('hand over to itself', 2, '{"do": "hand over", "next": {"lk": 2}}'),
  ('hand over without a lease key', 1, '{"do": "hand over", "next": {"lk": null}}'),
  ('hand over to who does not wait', 1, '{"do": "hand over", "next": {"lk": 7, "queue": false}}'),
  ('hand over, of another scope', 2, '{"do": "hand over", "next": {"key": "l"}}'),
  ('hand over with bad labels', 1, '{"do": "hand over", "next": {"labels": "{\"a\": 1}"}}'),
  ('hand over with a long owner', 1, jsonb_build_object('do', 'hand over', 'next', jsonb_build_object('owner', repeat('o', 256)))),
  ('hand over for too long', 1, '{"do": "hand over", "next": {"duration": 86400000001}}'),
  ('hand over with a minimum hold', 2, '{"do": "hand over", "next": {"at_least": 1800000000}}'),
  ('hand over below zero', 1, '{"do": "hand over", "next": {"wait": -1}}'),
  ('hand over while the clock seems ahead', 1, '{"do": "hand over", "next": {"clock": "-10 min"}}');

-- Under which policy, and beside what else. A world begins when its scopes have been prepared.
create temp table world (slug text, name text, begins text, ends text, nr integer generated always as identity);
insert into world (slug, name, begins, ends) values
  ('plain', 'no policy', 'select 1', 'select 1'),
  ('own', 'a policy of its own', $$select leasehold.set_policy('own', grace => '20 min', dead_after => '5 min', max_hold => '15 min')$$, 'select 1'),
  ('two', 'a capacity', $$select leasehold.set_policy('two', capacity => 2)$$, 'select 1'),
  ('narrow', 'short leases only', $$select leasehold.set_policy('narrow', max_duration => '30 min')$$, 'select 1'),
  ('long', 'long leases only', $$select leasehold.set_policy('long', min_duration => '2 hours')$$, 'select 1'),
  ('frozen', 'frozen', $$select leasehold.set_policy('frozen', frozen => true)$$, 'select 1'),
  ('none', 'no lease allowed', $$select leasehold.set_policy('none', max_leases => 0)$$, 'select 1'),
  ('many', 'leases counted', $$select leasehold.set_policy('many', max_leases => 1000000)$$, 'select 1'),
  ('rest', 'a minimum hold', $$select leasehold.set_policy('rest', at_least => '40 min')$$, 'select 1'),
  ('line', 'one waiter allowed', $$select leasehold.set_policy('line', max_waiters => 1)$$, 'select 1'),
  ('hand', 'expiry by hand', $$select leasehold.set_policy('hand', expiry => 'manual')$$, 'select 1'),
  ('reap', 'expiry by the reaper', $$select leasehold.set_policy('reap', expiry => 'reap', reaper => 'external')$$, 'select 1'),
  ('hooked', 'with hooks',
   $$select leasehold.add_hook('hooked', e, 't.hook(leasehold.lease_event)') from unnest(array['acquire', 'heartbeat', 'release_ok', 'release_fail', 'reap']) e$$,
   $$select leasehold.remove_hook('hooked', e, 't.hook(leasehold.lease_event)') from unnest(array['acquire', 'heartbeat', 'release_ok', 'release_fail', 'reap']) e$$),
  ('aside', 'with hooks elsewhere', $$select leasehold.add_hook('x', 'reap', 't.hook(leasehold.lease_event)')$$,
   $$select leasehold.remove_hook('x', 'reap', 't.hook(leasehold.lease_event)')$$),
  ('kept', 'with a history', $$select leasehold.set_policy('kept', history => true)$$, $$select leasehold.reset_policy('kept')$$),
  ('seen', 'somebody watches', $$select leasehold_internal.watch_add(t.key(902), 'seen', true)$$, 'select leasehold_internal.watch_clear(t.key(902))'),
  ('dead', 'no coordinator is live', $$update leasehold.coordinator set seen_at = seen_at - interval '2 hours'$$,
   $$update leasehold.coordinator set seen_at = seen_at + interval '2 hours'$$),
  ('hush', 'none has been for a minute', $$update leasehold.coordinator set seen_at = seen_at - interval '61 min'$$,
   $$update leasehold.coordinator set seen_at = seen_at + interval '61 min'$$),
  ('anew', 'after a restart', $$update leasehold.incarnation set postmaster_start = postmaster_start - interval '1 day'$$,
   $$update leasehold.incarnation set postmaster_start = postmaster_start + interval '1 day'$$),
  ('blind', 'in REPEATABLE READ', $$set default_transaction_isolation = 'repeatable read'$$, 'reset default_transaction_isolation');

-- Each state is made once, and copied for each trial.
select leasehold.set_policy('state', capacity => 2);
create function pg_temp.make(p_ns text, p_preparation text) returns void language plpgsql as $$
begin
  execute 'select ' || p_preparation using p_ns;
end
$$;
select pg_temp.make('state.' || nr, preparation) from state order by nr;
create temp view trial as
  select w, s, o, w.nr as world_nr, s.nr as state_nr, format('%s.%s.%s.', w.slug, s.nr, o.nr) as ns
    from world w, state s, operation o
   cross join lateral (select s.name like 'shared%' as is_shared, case when s.name like 'shared%' then 'two' else 'plain' end as slug offset 0) home
   where o.width >= case when w.slug <> home.slug then 3 when s.common then 1 else 2 end
     and (w.slug = home.slug or s.common)
     and case when home.is_shared then o.width = 3 or o.name ~ 'share|hand over|lease key'
              else o.name !~ 'share' or s.common and w.slug = home.slug end;
create function pg_temp.copies(p_world integer, out original text, out copy text) returns setof record language sql as $$
  select 'state.' || t.state_nr, t.ns || c from trial t, generate_series(1, 2) c where t.world_nr = p_world
   union all
  -- The other scope is free for an acquire; for the rest it is held, and another waits.
  select 'state.' || s.nr, 'beside.' || t.ns || 2
    from trial t join state s on s.name = case (t.o).item->>'do' when 'acquire' then 'free' else 'mine, another waits' end
   where t.world_nr = p_world
$$;
create function pg_temp.prepare(p_world integer) returns void language sql as $$
  insert into leasehold.scope
    select (jsonb_populate_record(s, jsonb_build_object('namespace', c.copy))).*
      from pg_temp.copies(p_world) c join leasehold.scope s on s.namespace = c.original;
  insert into leasehold.waiter
    select (jsonb_populate_record(w, jsonb_build_object('namespace', c.copy))).*
      from pg_temp.copies(p_world) c join leasehold.waiter w on w.namespace = c.original;
  insert into leasehold.share
    select (jsonb_populate_record(h, jsonb_build_object('namespace', c.copy))).*
      from pg_temp.copies(p_world) c join leasehold.share h on h.namespace = c.original;
$$;

-- The arguments of an acquire, of each item. Its place is its own where it says so.
create function pg_temp.asked(
  p_namespaces text[], p_items jsonb[], out lease_keys uuid[], out owners text[], out labels text[], out durations bigint[], out queues boolean[],
  out waits bigint[], out tickets bigint[], out clock timestamptz, out principals text[],
  out at_least bigint[])
language sql as $$
  select array_agg(t.key((i->>'lk')::integer) order by n), array_agg(i->>'owner' order by n), array_agg(i->>'labels' order by n),
         array_agg((i->>'duration')::bigint order by n), array_agg((i->>'queue')::boolean order by n), array_agg((i->>'wait')::bigint order by n),
         array_agg(case i->>'ticket' when 'own' then coalesce((select w.ticket from leasehold.waiter w where w.namespace = ns and w.lease_key = t.key((i->>'lk')::integer)), 0)
                                     else (i->>'ticket')::bigint end order by n),
         min(clock_timestamp() + (i->>'clock')::interval), array_agg('token:' || (i->>'owner') order by n),
         array_agg((i->>'at_least')::bigint order by n)
    from unnest(p_namespaces, p_items) with ordinality as u (ns, i, n)
$$;
-- Do it to one scope, or with another beside it: what the first item was answered, by its part.
create function pg_temp.answers(p_item jsonb, p_namespace text, p_count integer) returns jsonb language plpgsql as $$
declare
  v_ns text[] := (array[p_namespace, 'beside.' || p_namespace])[1:p_count];
  v_keys text[] := (array['k', 'k'])[1:p_count];
  v_next_keys text[] := (array[coalesce(p_item->'next'->>'key', 'k'), 'k'])[1:p_count];
  v_usual constant jsonb := '{"lk": 2, "failed": false, "owner": "me", "labels": "{}", "duration": 7200000003, "queue": false, "ticket": 0}';
  v_next constant jsonb := v_usual || '{"lk": 3, "owner": "next", "queue": true}';
  i jsonb[] := (array[v_usual || p_item, v_usual])[1:p_count];
  a record := pg_temp.asked(v_ns, i);
  b record := pg_temp.asked(v_ns, (array[v_next || coalesce(p_item->'next', '{}'), v_next])[1:p_count]);
  v_failed boolean[] := array(select (x->>'failed')::boolean from unnest(i) x);
  v_values text[] := array(select x->>'value' from unnest(i) x);
  v_units constant integer[] := (array[(coalesce(p_item->'next', p_item)->>'units')::integer, 1])[1:p_count];
  v_answers jsonb;
begin
  begin
    case p_item->>'do'
      when 'acquire' then
        v_answers := (select jsonb_agg(to_jsonb(r) || '{"part": "acquired"}') from leasehold_internal.acquire_batch(
                        t.key(901), a.clock, v_ns, v_keys, a.lease_keys, a.owners, a.labels, a.durations, a.queues, a.waits, a.tickets,
                        a.principals, a.at_least, v_units) r);
      when 'heartbeat' then
        v_answers := (select jsonb_agg(to_jsonb(r) || '{"part": "renewed"}') from leasehold_internal.heartbeat_batch(v_ns, v_keys, a.lease_keys) r);
      when 'release' then
        v_answers := (select jsonb_agg(to_jsonb(r) || '{"part": "released"}') from leasehold_internal.release_batch(
                        t.key(901), v_ns, v_keys, a.lease_keys, v_failed, v_values) r);
      else
        v_answers := (select jsonb_agg(to_jsonb(r)) from leasehold_internal.hand_over_batch(
                        t.key(901), v_ns, v_keys, a.lease_keys, v_failed, v_values, b.clock, v_ns, v_next_keys, b.lease_keys, b.owners, b.labels, b.durations,
                        b.queues, b.waits, b.tickets, b.principals, b.at_least, v_units) r);
    end case;
  exception when others then
    v_answers := jsonb_build_array(jsonb_build_object('n', 1, 'part', 'raised', 'outcome', sqlstate));
  end;
  -- What became of the other counts only where it is unexpected, and so does an answer too many.
  return (select jsonb_object_agg(case when r->'n' = '1' then r->>'part' else 'beside' end || case when nth > 1 then ' again' else '' end, r)
            from (select r, row_number() over (partition by r->'n', r->'part') as nth from jsonb_array_elements(v_answers) r) x
           where r->'n' = '1' or nth > 1 or r->>'outcome' not in ('granted', 'ok'));
end
$$;

-- Everything about the scopes of a namespace, as name: [value, seconds]. Times are told from p_at; tokens and places by what they were
-- before. p_is_same: what is handed over is acquired in the same scope.
create function pg_temp.seen(p_ns text, p_answers jsonb, p_is_same boolean, p_at timestamptz, p_old_token bigint, p_last_token bigint, p_last_ticket bigint)
returns jsonb language plpgsql as $$
declare
  v_tokens bigint[] := array(select s.token from leasehold.scope s where s.namespace = p_ns and s.token > p_last_token);
  v_tickets bigint[] := array(select w.ticket from leasehold.waiter w where w.namespace = p_ns order by w.ticket);
  v_is_handed boolean := coalesce(p_answers->'acquire'->>'outcome' = 'granted', false) and p_is_same;
begin
  return (
    with thing (name, facts) as (
      select 'answer ' || a.key,
             -- How many are before who was granted, and whether to wake who was, is told by nobody and asked by nobody.
             a.value - array(select 'waiters_ahead' where a.value->>'outcome' = 'granted') - array(select 'wake' where v_is_handed)
        from jsonb_each(p_answers) a
       union all
      -- The short way leaves check_at, which is indexed, where it is; the long one lowers it with the release. Both are in time.
      select 'scope ' || s.key, to_jsonb(s) || case when v_is_handed then jsonb_build_object('check_at', s.check_at <= s.deadline + s.grace) else '{}' end
        from leasehold.scope s where s.namespace = p_ns
       union all
      select 'waiter ' || right(w.lease_key::text, 3), to_jsonb(w) from leasehold.waiter w where w.namespace = p_ns
       union all
      select 'share ' || right(h.lease_key::text, 3), to_jsonb(h) from leasehold.share h where h.namespace = p_ns
       union all
      select 'history ' || row_number() over (order by h.token), to_jsonb(h) from leasehold.history h where h.namespace = p_ns
       union all
      select 'event ' || row_number() over (order by e.number), to_jsonb(e) - 'number' from leasehold.event e where e.namespace = p_ns
       union all
      select distinct 'notified ' || m.channel, '{"once": true}'::jsonb from t.notified m where m.payload = p_ns || chr(10) || 'k' and not v_is_handed
    )
    select jsonb_object_agg(t.name || '.' || f.key, case
             when f.value = 'null' or f.value = '"infinity"' then jsonb_build_array(f.value, null)
             when f.key = 'token' then jsonb_build_array(case when f.value::bigint = p_old_token then 'the old one'
                                                                when f.value::bigint = any (v_tokens) then 'a new one' else f.value::text end)
             when f.key = 'ticket' then jsonb_build_array(format('the %s. place%s', array_position(v_tickets, f.value::bigint),
                                                                 case when f.value::bigint > p_last_ticket then ', a new one' else '' end))
             when f.value::text ~ '^"\d{4}-\d\d-\d\dT' then jsonb_build_array('a time', extract(epoch from (f.value #>> '{}')::timestamptz - p_at))
             when f.key in ('remaining_us', 'held_us', 'silent_us', 'expires_in_us', 'suspected_in_us', 'rests_in_us')
               then jsonb_build_array('a time', f.value::bigint / 1000000.0)
             else jsonb_build_array(f.value) end)
      from thing t, jsonb_each(t.facts) f
     where f.key <> 'namespace');
end
$$;

-- What is not the same, in words; null: nothing.
create temp table met (item text, outcome text);
create function pg_temp.difference(p_trial trial) returns text language plpgsql as $$
declare
  v_namespace text;
  v_answers jsonb;
  v_at timestamptz;
  v_old_token bigint;
  v_last_token bigint;
  v_last_ticket bigint;
  v_seen jsonb[];
begin
  for v_count in 1 .. 2 loop
    v_namespace := p_trial.ns || v_count;
    v_old_token := coalesce((select s.token from leasehold.scope s where s.namespace = v_namespace), 0);
    v_last_token := (select last_value from leasehold.token);
    v_last_ticket := (select last_value from leasehold.ticket);
    delete from t.notified;
    v_at := clock_timestamp();
    v_answers := pg_temp.answers((p_trial.o).item, v_namespace, v_count);
    v_seen[v_count] := pg_temp.seen(v_namespace, v_answers, (p_trial.o).item->'next'->>'key' is null, v_at, v_old_token, v_last_token, v_last_ticket);
  end loop;
  insert into met select (p_trial.o).item->>'do', a.value->>'outcome' from jsonb_each(v_answers) a;
  return (select string_agg(format('%s: %s alone, %s with another', key, a.value, b.value), E'\n' order by key)
            from jsonb_each(v_seen[1]) a full join jsonb_each(v_seen[2]) b using (key)
           where a.value->0 is distinct from b.value->0
              or abs((a.value->>1)::numeric - (b.value->>1)::numeric) > pg_temp.tolerance());
end
$$;
create function pg_temp.differences(p_world integer, p_state integer) returns text language sql as $$
  select string_agg((t.o).name || E'\n' || d, E'\n' order by t.ns)
    from (select * from trial where (world_nr, state_nr) = (p_world, p_state) order by ns) t, pg_temp.difference(t) d
   where d is not null
$$;

select x.statement
  from world w,
       lateral (select 1, 0, format('select pg_temp.prepare(%s)', w.nr)
                union all select 2, 0, w.begins
                union all select 3, t.state_nr, format('select is(pg_temp.differences(%s, %s), null, %L)', w.nr, t.state_nr, w.name || ': ' || t.name)
                            from (select distinct state_nr, (s).name from trial where world_nr = w.nr) t
                union all select 4, 0, w.ends) as x (step, state_nr, statement)
 order by w.nr, x.step, x.state_nr
\gexec

-- All that may be met was met, or the same twice would say little.
select is((select array_agg(distinct outcome order by outcome) from met where item = 'acquire'),
          array['22P02', 'ended', 'frozen', 'granted', 'held', 'hooked', 'invalid', 'queued', 'quota', 'renewed'], 'acquires of every outcome');
select is((select array_agg(distinct outcome order by outcome) from met where item = 'heartbeat'), array['hooked', 'lost', 'ok'], 'heartbeats');
select is((select array_agg(distinct outcome order by outcome) from met where item = 'release'), array['22P02', 'hooked', 'lost', 'ok'], 'releases');
select is((select array_agg(distinct outcome order by outcome) from met where item = 'hand over'),
          array['ended', 'frozen', 'granted', 'held', 'hooked', 'invalid', 'lost', 'ok', 'queued', 'quota', 'renewed'], 'hand-overs');

select * from finish();
