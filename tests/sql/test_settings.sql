-- What a database or a role sets for its sessions does not change what the functions do.
select no_plan();
select leasehold.reap();
set standard_conforming_strings = off;
set escape_string_warning = off;
set default_transaction_isolation = serializable;
set default_transaction_deferrable = on;
select is((select owner from leasehold.acquire('s.t', 'k', '30 s', owner => 'w', lease_key => t.key(1))), 'w', 'a lease is granted');
select is(t.error_of($$select leasehold.acquire('s..t', 'k', '30 s')$$), 'LH002 invalid_argument namespace', 'an empty segment is refused as ever');
select is(t.error_of($$select leasehold.acquire('s.t', chr(7), '30 s')$$), 'LH002 invalid_argument key', 'and a control character');
select isnt(leasehold.heartbeat('s.t', 'k', t.key(1)), null, 'renewed');
select is(leasehold.release_ok('s.t', 'k', t.key(1)), true, 'given back');
select lives_ok($$select leasehold.set_policy('s', grace => '2 s', max_leases => 5)$$, 'a policy is set');
select is((select grace from leasehold.effective_policy where namespace = 's'), '2 s'::interval, 'and read');
select lives_ok($$select leasehold.reap()$$, 'reaped');
select * from finish();
