-- leasehold.acquire: who gets a lease, what it says, and what a repeat does.
select no_plan();
select leasehold.reap();

select * from leasehold.acquire('pay.invoices', 'a', '30 s', owner => 'w1', labels => '{"zone": "b"}') \gset one_
select is(:'one_namespace' || '/' || :'one_key', 'pay.invoices/a', 'the row names the scope');
select isnt(:'one_lease_key'::text, '', 'the acquirer is told its lease key');
select cmp_ok(:one_token, '>', 0::bigint, 'a lease has a token');
select is(:'one_owner'::text, 'w1', 'the owner is kept');
select is(:'one_labels'::jsonb, '{"zone": "b"}'::jsonb, 'the labels are kept');
select is(:'one_duration'::interval, '30 s'::interval, 'the duration is the one asked for');
select t.is_near(:'one_acquired_at', clock_timestamp(), 'acquired_at is now');
select is(:'one_deadline'::timestamptz - :'one_acquired_at'::timestamptz, '30 s'::interval,
          'the deadline is one duration after the grant');
select cmp_ok(:'one_remaining'::interval, '<=', '30 s'::interval, 'what remains is at most the duration');
select cmp_ok(:'one_remaining'::interval, '>', '0 s'::interval, 'and more than nothing');
select is(:'one_liveness'::text, 'alive', 'a new lease is alive');
select is((select state from leasehold.scope where namespace = 'pay.invoices' and key = 'a'), 'held', 'the scope is held');
select is((select count(*) from leasehold.scope), 1::bigint, 'one scope has one row');

-- somebody else
select is(t.rows_of($$select * from leasehold.acquire('pay.invoices', 'a', '30 s')$$), 0, 'a held scope is granted to nobody else');
select is((select token from leasehold.scope where key = 'a'), :one_token::bigint, 'a refusal leaves the token alone');
select is((select owner from leasehold.scope where key = 'a'), 'w1', 'a refusal leaves the holder alone');
select is(t.rows_of($$select * from leasehold.acquire('pay.invoices', 'b', '30 s')$$), 1, 'another key is another scope');
select is(t.rows_of($$select * from leasehold.acquire('pay', 'a', '30 s')$$), 1, 'another namespace is another scope');
select is(t.rows_of($$select * from leasehold.acquire('pay.invoices.deep', 'a', '30 s')$$), 1, 'a child namespace is another scope');

-- the holder again: a lost reply
select * from leasehold.acquire('pay.invoices', 'a', '60 s', owner => 'w1b', lease_key => :'one_lease_key', labels => '{"zone": "c"}') \gset two_
select is(:two_token::bigint, :one_token::bigint, 'a repeat by the holder keeps the token');
select is(:'two_lease_key'::text, :'one_lease_key', 'and the lease key');
select is(:'two_acquired_at'::text, :'one_acquired_at', 'and when it was acquired');
select is(:'two_duration'::interval, '60 s'::interval, 'the duration takes the new value');
select is(:'two_owner'::text, 'w1b', 'the owner takes the new value');
select is(:'two_labels'::jsonb, '{"zone": "c"}'::jsonb, 'the labels take the new value');
select t.is_near(:'two_deadline', clock_timestamp() + interval '60 s', 'the repeat renews the lease');

-- release and again
select is(leasehold.release_ok('pay.invoices', 'a', :'one_lease_key'), true, 'released');
select * from leasehold.acquire('pay.invoices', 'a', '30 s', lease_key => t.key(1)) \gset three_
select cmp_ok(:three_token::bigint, '>', :one_token::bigint, 'the next grant has a larger token');
select is(:'three_lease_key'::uuid, t.key(1), 'a lease key may be chosen');
select is((select owner from leasehold.lease where namespace = 'pay.invoices' and key = 'a'), null, 'the owner of the hold before is gone');
select is(:'three_labels'::jsonb, '{}'::jsonb, 'the labels of the hold before are gone');
select is((select count(*) from leasehold.scope where namespace = 'pay.invoices' and key = 'a'), 1::bigint,
          'a scope keeps its row from hold to hold');
select is((select heartbeats from leasehold.scope where namespace = 'pay.invoices' and key = 'a'), 0::bigint, 'heartbeats count from the grant');

-- a lease key names an acquisition within its scope alone
select is(t.rows_of($$select * from leasehold.acquire('pay.invoices', 'other', '30 s', lease_key => t.key(1))$$), 1,
          'the same lease key may be used in another scope');

-- deadline, grace, expiry
select t.age('pay.invoices', 'a', '30.5 s');
select is(t.rows_of($$select * from leasehold.acquire('pay.invoices', 'a', '30 s', lease_key => t.key(2))$$), 0,
          'after the deadline, within the grace, nobody takes the scope over');
select is(t.rows_of($$select * from leasehold.acquire('pay.invoices', 'a', '30 s', lease_key => t.key(1))$$), 1,
          'after the deadline, within the grace, the holder may renew');
select t.age('pay.invoices', 'a', '31.5 s');
select is(t.error_of($$select leasehold.acquire('pay.invoices', 'a', '30 s', lease_key => t.key(1))$$), 'LH006 lease_ended',
          'after the expiry the holder cannot come back under its lease key');
select * from leasehold.acquire('pay.invoices', 'a', '30 s', owner => 'heir', lease_key => t.key(2)) \gset four_
select is(:'four_owner'::text, 'heir', 'after the expiry an acquirer takes the scope over');
select cmp_ok(:four_token::bigint, '>', :three_token::bigint, 'with a larger token');
select is((select last_outcome from leasehold.scope where namespace = 'pay.invoices' and key = 'a'), 'expired', 'the hold before ended as expired');
select is(leasehold.heartbeat('pay.invoices', 'a', t.key(1)), null, 'whoever was taken over has lost');
select is(leasehold.release_ok('pay.invoices', 'a', t.key(1)), false, 'and has nothing to release');
select is((select lease_key from leasehold.scope where namespace = 'pay.invoices' and key = 'a'), t.key(2), 'the heir still holds it');

-- the commit of a grant is at least as safe as local
begin;
set local synchronous_commit = off;
select leasehold.heartbeat('pay.invoices', 'a', t.key(2));
select leasehold.acquire('pay.invoices', 'sync', '30 s');
select isnt(current_setting('synchronous_commit'), 'off', 'a grant raises synchronous_commit for its transaction');
commit;
begin;
set local synchronous_commit = remote_apply;
select leasehold.acquire('pay.invoices', 'sync2', '30 s');
select is(current_setting('synchronous_commit'), 'remote_apply', 'and never lowers it');
commit;

-- a rolled back grant never was
begin;
select leasehold.acquire('pay.invoices', 'undone', '30 s', lease_key => t.key(9));
rollback;
select is(t.rows_of($$select * from leasehold.acquire('pay.invoices', 'undone', '30 s', lease_key => t.key(9))$$), 1,
          'a grant that was rolled back never was, and its lease key is fresh');

-- a new name is decided in a few statements, alone and among others: without what decides about everything
\set general 'leasehold_internal.acquire_general(uuid, timestamptz, text[], text[], uuid[], text[], text[], bigint[], boolean[], bigint[], bigint[], text[], bigint[], integer[], boolean, integer[])'
alter function :general rename to acquire_general_away;
select is(t.rows_of($$select * from leasehold.acquire('new', 'one', '30 s')$$), 1, 'a new name is granted on the quick path');
create temp table answers as
  select a.* from leasehold_internal.acquire_items(
    t.key(1), null, '{new,new.below,new}', '{a,a,b}', array[t.key(11), t.key(12), t.key(13)], '{o1,o2,o3}', array['{}', '{}', '{}'],
    '{30000000,30000000,30000000}', '{f,f,f}', '{0,0,0}', '{0,0,0}') a;
select is((select array_agg(a.outcome || case when s.token = a.token and s.owner = 'o' || a.n and s.deadline = a.acquired_at + interval '30 s' then '' else '?' end
                            order by a.n)
             from answers a
             join leasehold.scope s on s.lease_key = t.key(10 + a.n)),
          '{granted,granted,granted}'::text[], 'and so are several');
alter function leasehold_internal.acquire_general_away rename to acquire_general;
select * from finish();
