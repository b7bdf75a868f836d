-- The schema itself: what exists under which name, and that it is documented and closed.
select no_plan();
select has_table('leasehold', name, 'table ' || name) from unnest(array['scope', 'share', 'waiter', 'coordinator', 'policy', 'incarnation', 'migration', 'watch', 'event', 'history', 'access_rule', 'access_token', 'access_state',
  'audit', 'keeping', 'schedule', 'tick', 'tick_slot', 'spread']) name;
select has_view('leasehold', name, 'view ' || name) from unnest(array['lease', 'queue', 'lease_summary', 'effective_policy', 'schedule_status', 'missed_tick', 'hand_over_request']) name;
select has_function('leasehold_internal', name, 'function ' || name)
  from unnest(array['acquire_items', 'acquire_batch', 'heartbeat_batch', 'release_batch', 'leave_batch', 'pass_on', 'coordinator_register', 'coordinator_tick',
                    'coordinator_unregister', 'acquire_all_one', 'reap_batch', 'get_scope', 'list_leases', 'get_holders', 'downgrade_one', 'force_release_one', 'policy_update', 'policy_get', 'policy_list',
                    'watch_add', 'watch_remove', 'watch_clear', 'watch_barrier', 'watch_settled', 'take_events', 'reap_hooked', 'reap_together', 'reap_failed', 'access_rules',
                    'access_tokens', 'token_used', 'audit_write', 'access_grant_by', 'access_revoke_by', 'token_create_by', 'token_revoke_by', 'access_list', 'token_list']) name;
select is((select string_agg(a.attname, ' ' order by a.attnum) from pg_attribute a where a.attrelid = 'leasehold_internal.answer'::regclass and a.attnum between 1 and 30),
  'n outcome ticket waiters_ahead expires_in_us suspected_in_us message field bound token owner principal labels duration_us grace_us acquired_at deadline '
  'remaining_us held_us silent_us heartbeats heartbeat_at liveness is_manual rests_in_us mode units slots units_free holder_count',
  'daemons read an answer by the places of its attributes: new ones come last');
select has_role(name, 'role ' || name) from unnest(array['leasehold_client', 'leasehold_reader', 'leasehold_coordinator', 'leasehold_admin']) name;
select col_is_pk('leasehold', 'scope', array['namespace', 'key'], 'a scope is namespace and key');
select has_column('leasehold', 'scope', name, 'scope.' || name)
  from unnest(array['namespace', 'key', 'state', 'lease_key', 'token', 'owner', 'principal', 'labels', 'duration', 'grace', 'acquired_at', 'heartbeats', 'heartbeat_at', 'deadline',
                    'last_outcome', 'last_result', 'last_error', 'ended_at', 'ended_keys', 'reap_failures', 'incarnation', 'check_at', 'lapsed']) name;
select has_column('leasehold', 'waiter', name, 'waiter.' || name)
  from unnest(array['namespace', 'key', 'ticket', 'lease_key', 'coordinator', 'owner', 'principal', 'duration', 'enqueued_at', 'wait_until', 'away_until']) name;
select has_column('leasehold', 'coordinator', name, 'coordinator.' || name) from unnest(array['id', 'host', 'pid', 'version', 'started_at', 'seen_at']) name;
select has_column('leasehold', 'policy', name, 'policy.' || name)
  from unnest(array['namespace', 'min_duration', 'max_duration', 'grace', 'max_hold', 'dead_after', 'expiry', 'reaper', 'frozen', 'max_leases', 'max_waiters', 'max_reap_failures',
                    'hook_timeout', 'free_retention', 'history', 'history_retention', 'at_least', 'capacity', 'end_at_max_hold', 'hand_over_grace']) name;
select has_column('leasehold', 'lease', name, 'lease.' || name)
  from unnest(array['namespace', 'key', 'lease_key', 'token', 'owner', 'principal', 'labels', 'duration', 'acquired_at', 'deadline', 'remaining', 'liveness', 'mode', 'units', 'slots']) name;
select has_column('leasehold', 'history', name, 'history.' || name)
  from unnest(array['namespace', 'key', 'token', 'owner', 'principal', 'acquired_at', 'ended_at', 'outcome', 'result', 'error', 'ended_by', 'mode', 'units', 'slots']) name;
select has_column('leasehold', 'access_rule', name, 'access_rule.' || name) from unnest(array['principal', 'namespace', 'rights', 'created_at', 'created_by']) name;
select has_column('leasehold', 'access_token', name, 'access_token.' || name)
  from unnest(array['id', 'name', 'hash', 'created_at', 'created_by', 'expires_at', 'last_used_at']) name;
select has_column('leasehold', 'audit', name, 'audit.' || name)
  from unnest(array['at', 'principal', 'peer', 'action', 'namespace', 'key', 'token', 'reason', 'outcome', 'count']) name;
select has_column('leasehold', 'lease_summary', name, 'lease_summary.' || name) from unnest(array['namespace', 'held', 'waiting', 'expired', 'failing']) name;
select has_column('leasehold', 'queue', name, 'queue.' || name) from unnest(array['namespace', 'key', 'position', 'owner', 'principal', 'waiting', 'away', 'mode', 'units']) name;
select is((select collname::text from pg_attribute a join pg_collation c on c.oid = a.attcollation where attrelid = 'leasehold.scope'::regclass and attname = name), 'C', name || ' compares by bytes')
  from unnest(array['namespace', 'key']) name;
select is((select p.proargnames[1:p.pronargs] from pg_proc p where p.oid = signature::regprocedure), names, signature || ' has its parameter names')
  from (values ('leasehold.acquire(text, text, interval, text, uuid, jsonb, text, integer, interval, integer)',
                array['namespace', 'key', 'duration', 'owner', 'lease_key', 'labels', 'mode', 'units', 'at_least', 'priority']),
               ('leasehold.acquire_all(text[], text[], interval, text, uuid, jsonb, text[], integer[])', array['namespaces', 'keys', 'duration', 'owner', 'lease_key', 'labels', 'modes', 'units']),
               ('leasehold.downgrade(text, text, uuid, integer)', array['namespace', 'key', 'lease_key', 'units']),
               ('leasehold.heartbeat(text, text, uuid)', array['namespace', 'key', 'lease_key']),
               ('leasehold.release_ok(text, text, uuid, jsonb)', array['namespace', 'key', 'lease_key', 'result']),
               ('leasehold.release_fail(text, text, uuid, text)', array['namespace', 'key', 'lease_key', 'error']),
               ('leasehold.end_reason(text, text, uuid)', array['namespace', 'key', 'lease_key']),
               ('leasehold.guard(text, text, bigint, uuid)', array['namespace', 'key', 'token', 'lease_key']),
               ('leasehold.join_queue(text, text, uuid, interval, text, integer, integer)', array['namespace', 'key', 'lease_key', 'ttl', 'mode', 'units', 'priority']),
               ('leasehold.leave_queue(text, text, uuid)', array['namespace', 'key', 'lease_key']),
               ('leasehold.explain(text, text)', array['namespace', 'key']),
               ('leasehold.contention(text[], text[], text[])', array['namespaces', 'keys', 'modes']),
               ('leasehold.heartbeat_each(text[], text[], uuid[])', array['namespaces', 'keys', 'lease_keys']),
               ('leasehold.release_each(text[], text[], uuid[], boolean[], text[], interval)', array['namespaces', 'keys', 'lease_keys', 'failed', 'words', 'patience']),
               ('leasehold.downgrade_soon(text, text, uuid, integer)', array['namespace', 'key', 'lease_key', 'units']),
               ('leasehold.granted(leasehold.lease)', array['lease']),
               ('leasehold.acquire_one(text, text, double precision, text, uuid, jsonb, double precision, text, integer, integer)',
                array['namespace', 'key', 'duration_s', 'owner', 'lease_key', 'labels', 'at_least_s', 'mode', 'quantity', 'priority']),
               ('leasehold.leave_each(text[], text[], uuid[])', array['namespaces', 'keys', 'lease_keys']),
               ('leasehold.asked_each(text[], text[], uuid[])', array['namespaces', 'keys', 'lease_keys']),
               ('leasehold.ask_each(text, text, uuid, text)', array['namespace', 'key', 'lease_key', 'words']),
               ('leasehold.reap(text[], boolean, integer)', array['namespaces', 'include_children', 'max']),
               ('leasehold.force_release(text, text, text, bigint, boolean)', array['namespace', 'key', 'reason', 'token', 'all_holders']),
               ('leasehold.access_grant(text, text, text[])', array['principal', 'namespace', 'rights']),
               ('leasehold.access_revoke(text, text, text[])', array['principal', 'namespace', 'rights']),
               ('leasehold.token_create(text, interval)', array['name', 'expires']),
               ('leasehold.token_revoke(text)', array['name_or_id']),
               ('leasehold.reset_policy(text, text)', array['namespace', 'column_name'])) as f (signature, names);

-- A function that runs with its owner's rights pins its search_path, pg_temp last. Each other one is called by those alone, and finds their
-- path, or runs with its caller's own rights: those that views and programs call are named here. C finds nothing by a path (leasehold_core).
select is((select array_agg(p.oid::regprocedure::text) from pg_proc p where p.pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) and p.prosecdef
              and ('search_path=pg_catalog, pg_temp' = any (p.proconfig)) is not true), null, 'security definer functions pin their search_path');
select is((select array_agg(p.proname::text order by p.proname::text collate "C") from pg_proc p
            where p.pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) and not p.prosecdef
              and not exists (select from pg_proc c where c.proname = p.proname and c.prolang = (select l.oid from pg_language l where l.lanname = 'c'))
              and ('search_path=pg_catalog, pg_temp' = any (p.proconfig)) is not true
              and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee <> p.proowner)),
          array['expires_at', 'from_us', 'granted', 'hand_over_grace_of', 'history_policy_of', 'hook_function', 'hook_name', 'is_expired', 'lease_columns', 'lease_facts', 'lease_states', 'oldest_transaction', 'policy_columns',
                'policy_of', 'policy_sources', 'prefixes', 'relax_commit', 'renewed_for', 'rest_ends_at', 'rests_until', 'rules_at',
                'rules_by_range', 'rules_over', 'runs_hooks', 'scope_of_share', 'to_us'],
          'a function without a search_path of its own is callable by its owner alone, but for these');
select is((select array_agg(c.relname::text) from pg_class c where c.relnamespace = 'leasehold'::regnamespace and c.relkind in ('r', 'v', 'p', 'S') and obj_description(c.oid, 'pg_class') is null
              and not exists (select from pg_depend d where d.objid = c.oid and d.deptype in ('i', 'a') and c.relkind = 'S')), null,
          'every table, view and sequence of its own is commented');
select is((select array_agg(a.attrelid::regclass || '.' || a.attname) from pg_attribute a join pg_class c on c.oid = a.attrelid
            where c.relnamespace = 'leasehold'::regnamespace and c.relname in ('scope', 'share', 'waiter', 'coordinator', 'policy', 'lease', 'queue', 'watch', 'event', 'registered_hook', 'hook', 'reap_failure', 'lease_event', 'history', 'lease_summary', 'access_rule', 'access_token', 'audit', 'keeping', 'schedule', 'tick', 'tick_slot',
              'schedule_status', 'missed_tick', 'hand_over', 'hand_over_request', 'life_source', 'spread') and c.relkind in ('r', 'v', 'p')
              and a.attnum > 0 and not a.attisdropped and col_description(c.oid, a.attnum) is null), null, 'every column that people read is commented');
select is((select array_agg(c.oid::regclass::text) from pg_class c where c.relnamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) and c.relkind in ('r', 'p') and c.relpersistence = 'p'
              and c.relreplident not in ('f', 'i') and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)), null,
          'each table has a replica identity, or a publication of all tables would keep its rows from being deleted');
-- \df+ leasehold.* is the API, and nothing else; each function has a comment with an example that runs
create temporary table api (nth serial, name text);
insert into api (name)
select unnest(array['set_policy', 'reset_policy', 'add_hook', 'remove_hook', 'remove_hook_named', 'bump_epoch', 'set_life_source', 'acquire', 'heartbeat', 'guard', 'downgrade',
                    'explain', 'release_ok', 'release_fail', 'end_reason', 'join_queue', 'leave_queue', 'reap', 'force_release', 'access_grant', 'access_revoke',
                    'token_create', 'token_revoke', 'set_audit_retention', 'acquire_all',
                    'schedule_instants', 'tick_channel', 'set_schedule', 'run_schedule_now', 'claim_tick', 'until_tick', 'pause_schedule', 'remove_schedule', 'ask_hand_over', 'refuse_hand_over', 'asked',
                    'contention', 'heartbeat_each', 'release_each', 'downgrade_soon', 'granted', 'acquire_one', 'leave_each', 'asked_each', 'ask_each']);
select is((select array_agg(p.proname::text order by p.proname) from pg_proc p where p.pronamespace = 'leasehold'::regnamespace),
          (select array_agg(name::text order by name) from api), 'the schema leasehold has the functions of the API alone');
create schema app;
grant usage on schema app to leasehold_owner;
create function app.clean_up(p_event leasehold.lease_event) returns void language sql as '';
create function pg_temp.example(p_name text) returns text language sql as $$
  select replace(replace(substring(obj_description(p.oid, 'pg_proc') from E'\\. Example:\\n  (.*)$'),
                         ':''lease_key''', quote_literal(coalesce((select s.lease_key from leasehold.scope s where s.namespace = 'jobs' and s.key = 'nightly'),
                                                                 '4f0c1a52-5b0e-4c6e-9e43-5f3c8a0d7b11'))),
                 ':token', (select coalesce(max(s.token), 0)::text from leasehold.scope s))
    from pg_proc p where p.pronamespace = 'leasehold'::regnamespace and p.proname = p_name
$$;
create function pg_temp.run(p_name text) returns boolean language plpgsql as $$
begin
  execute pg_temp.example(p_name);
  return true;
end $$;
select ok(pg_temp.run(name), 'the example of ' || name || ' runs') from (select name from api order by nth) a;
drop schema app cascade;

-- tokens
select is((select count(*) from pg_sequence s join pg_class c on c.oid = s.seqrelid where c.relnamespace = 'leasehold'::regnamespace and s.seqcache <> 1), 0::bigint, 'no sequence hands out numbers in advance');
select is((select count(*) from pg_attrdef d where d.adrelid = 'leasehold.scope'::regclass and pg_get_expr(d.adbin, d.adrelid) like '%nextval%'), 0::bigint, 'no token is a default of an INSERT');
select is((select array_agg(relname::text order by relname::text collate "C") from pg_class where relnamespace = 'leasehold'::regnamespace and relpersistence = 'u' and relkind = 'r'),
          array['event', 'incarnation_marker', 'quota_base', 'quota_change', 'watch'], 'a crash empties what is watched, the marker that tells of it, and what was counted');
select is((select array_agg(relname::text) from pg_class where relnamespace = 'leasehold'::regnamespace and relpersistence = 'u' and relkind = 'S'), null,
          'every sequence is logged: an unlogged one may be broken on a promoted standby');
select is((select relpersistence::text from pg_class where oid = 'leasehold.waiter'::regclass), 'p', 'the queue survives a crash');
select ok((select reloptions::text like '%vacuum_truncate=%' from pg_class where oid = 'leasehold.scope'::regclass), 'the hot table is never truncated by vacuum');
select ok((select reloptions::text like '%fillfactor=%' from pg_class where oid = 'leasehold.scope'::regclass), 'and leaves room for HOT updates');
select ok((select 'autovacuum_analyze_scale_factor=5' = any (reloptions) from pg_class where oid = 'leasehold.scope'::regclass), 'and is not analyzed for every few renewals');
select * from finish();
