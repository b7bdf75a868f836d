-- What leasehold.scope forbids, whoever writes it: CHECK and NOT NULL, state by state.
select no_plan();
select leasehold.reap();
select leasehold.acquire('checks', 'held', '30 s', lease_key => t.key(1));
select leasehold.acquire('checks', 'shared', '30 s', lease_key => t.key(2), mode => 'shared');
select leasehold.acquire('checks', 'free', '30 s', lease_key => t.key(3));
select leasehold.release_ok('checks', 'free', t.key(3));
insert into leasehold.scope (namespace, key, check_at) values ('checks', 'never', 'infinity');

-- Each is refused, and only for what is wrong with it: without that it is taken.
create temp table forbidden (key text, change text, code text, allowed text, what text);
insert into forbidden values
  ('held', 'state = ''holding''', '23514', 'state = ''held''', 'a state of another name'),
  ('free', 'state = ''''', '23514', 'state = ''free''', 'a state without a name'),
  ('free', 'state = null', '23502', 'state = ''free''', 'no state'),
  ('held', 'lease_key = null', '23514', 'lease_key = lease_key', 'a holder without its lease key'),
  ('held', 'token = 0', '23514', 'token = 1', 'a holder without a token'),
  ('held', 'token = -1', '23514', 'token = 2', 'a holder with a negative token'),
  ('held', 'token = null', '23502', 'token = 3', 'a token that is null'),
  ('held', 'acquired_at = null', '23502', 'acquired_at = now()', 'a holder since never'),
  ('held', 'heartbeat_at = null', '23502', 'heartbeat_at = now()', 'a holder that never renewed'),
  ('held', 'deadline = null', '23502', 'deadline = now()', 'a holder without a deadline'),
  ('held', 'duration = null', '23502', 'duration = ''1 s''', 'a holder without a duration'),
  ('held', 'grace = null', '23502', 'grace = ''0''', 'a holder without a grace'),
  ('held', 'state = ''free''', '23514', 'state = ''free'', lease_key = null', 'a free scope that keeps its lease key'),
  ('never', 'state = ''held''', '23514', 'state = ''held'', lease_key = t.key(4), token = 9', 'a holder of nothing'),
  ('free', 'state = ''held'', lease_key = t.key(5), token = 0', '23514', 'state = ''held'', lease_key = t.key(5), token = 5', 'a held scope that was never granted'),
  ('free', 'lease_key = t.key(3)', '23514', 'lease_key = null', 'a lease key that outlives its lease'),
  ('free', 'lease_key = t.key(3), token = 0', '23514', 'lease_key = null, token = 0', 'and one without a token'),
  ('shared', 'lease_key = t.key(2)', '23514', 'lease_key = null', 'a shared scope with a lease key of its own'),
  ('shared', 'state = ''held''', '23514', 'state = ''free''', 'a shared scope that is held by a key that it has not'),
  ('free', 'last_outcome = ''done''', '23514', 'last_outcome = ''failed''', 'an outcome of another name');
select throws_ok(format('update leasehold.scope set %s where namespace = %L and key = %L', f.change, 'checks', f.key), f.code, null, f.what)
  from forbidden f;

create function pg_temp.is_allowed(p_change text, p_key text) returns boolean language plpgsql as $$
declare
  v_count integer;
begin
  begin
    execute format('update leasehold.scope set %s where namespace = %L and key = %L', p_change, 'checks', p_key);
    get diagnostics v_count = row_count;
    raise exception 'take it back' using errcode = 'LH999';
  exception when sqlstate 'LH999' then
    return v_count = 1;
  end;
end $$;
select ok(pg_temp.is_allowed(f.allowed, f.key), f.what || ': without it the row is taken') from forbidden f;
select throws_ok($$insert into leasehold.scope (namespace, key, check_at, state) values ('checks', 'new', now(), 'held')$$, '23514', null,
                 'nor can a row begin as held by nobody');
select is((select count(*) from leasehold.scope s where s.namespace = 'checks'), 4::bigint, 'and nothing has changed');
select * from finish();
