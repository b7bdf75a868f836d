#include "cli/database.h"

#include <stddef.h>

/* Whether the life of the database can be told: by the schema, and where there is none by what it would read. */
const struct lh_database_check lh_database_life = {
    "life",
    "select case when i.source = 'wal' or pg_is_in_recovery() then 'ok' else 'note' end as level,"
    " 'source ' || i.source || ': ' || i.words as found,"
    " case i.source when 'epoch' then 'select leasehold.bump_epoch() after a failover, so that daemons refuse the old "
    "primary'"
    " else 'its answer must change with each failover and restore' end as advice"
    "  from leasehold_internal.server_identity() i",
    "without it a failover can give one scope two holders: docs/run/managed.md has the sources"};
const struct lh_database_check lh_database_life_bare = {
    "life",
    "select 'ok' as level, 'timeline ' || case when pg_is_in_recovery() then 'of a standby, not asked'"
    " else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint::text end"
    " || ', running since ' || date_trunc('second', pg_postmaster_start_time()) as found, '' as advice"
    "  from pg_control_system()",
    "grant execute on pg_control_system(), pg_current_wal_lsn(), pg_walfile_name() and pg_postmaster_start_time(), or"
    " once the schema is installed choose another source: leasehold.set_life_source()"};

const struct lh_database_check lh_database_checks[] = {
    /* What a daemon, a client in SQL and the schema stand on; a fault here is a fault of a promise. */
    {"version",
     "select case when current_setting('server_version_num')::integer < 130000 then 'failed' else 'ok' end as level,"
     " 'PostgreSQL ' || current_setting('server_version') as found,"
     " 'Leasehold needs PostgreSQL 13 or later' as advice",
     NULL},
    {"encoding",
     "select case when pg_encoding_to_char(d.encoding) = 'UTF8' then 'ok' else 'failed' end as level,"
     " 'the database is encoded in ' || pg_encoding_to_char(d.encoding) as found,"
     " 'names are UTF-8: create the database with encoding ''UTF8''' as advice"
     "  from pg_database d where d.datname = current_database()",
     NULL},
    {"primary",
     "select case when pg_is_in_recovery() then 'failed' else 'ok' end as level,"
     " case when pg_is_in_recovery() then 'this server is a standby' else 'this server takes writes' end as found,"
     " 'name the primary, or all servers with target_session_attrs=read-write' as advice",
     NULL},
    {"writable",
     "select 'failed' as level, 'default_transaction_read_only is on for this role here' as found,"
     " 'alter role or database ... reset default_transaction_read_only' as advice"
     " where current_setting('default_transaction_read_only')::boolean and not pg_is_in_recovery()",
     NULL},
    {"crash safety",
     "select case when s.name = 'fsync' then 'failed' else 'warning' end as level, s.name || ' is off' as found,"
     " 'a crash of the machine may lose or break what was committed: switch it on' as advice"
     "  from (values ('fsync'), ('full_page_writes')) s (name) where not current_setting(s.name)::boolean",
     NULL},
    /* Rights and what was installed. */
    {"role",
     "select case when r.is_missing then 'warning' when r.serves then 'ok' when r.uses then 'note' else 'failed' end "
     "as level,"
     " 'role ' || current_user || case when r.is_missing then ' finds no role leasehold_coordinator'"
     " when r.serves then ' may serve as a daemon' when r.uses then ' may use leases in SQL, and not serve as a daemon'"
     " else ' is neither a member of leasehold_coordinator nor of leasehold_client' end as found,"
     " case when r.is_missing then 'leasehold migrate makes the roles and the schema'"
     " else format('grant leasehold_coordinator to %I is for a daemon, leasehold_client for clients in SQL', "
     "current_user)"
     " end as advice"
     "  from (select to_regrole('leasehold_coordinator') is null as is_missing,"
     "  coalesce(pg_has_role(to_regrole('leasehold_coordinator')::oid, 'usage'), false) as serves,"
     "  coalesce(pg_has_role(to_regrole('leasehold_client')::oid, 'usage'), false) as uses) r",
     NULL},
    {"installer",
     "select 'note' as level, 'role ' || current_user || ' may not install the schema: it lacks ' ||"
     " concat_ws(' and ', case when not r.creates then 'create on this database' end,"
     "                    case when not r.makes then 'createrole' end) as found,"
     " 'run leasehold migrate as a role that has them, once' as advice"
     "  from (select has_database_privilege(current_database(), 'create') as creates,"
     "               (select a.rolcreaterole or a.rolsuper from pg_roles a where a.rolname = current_user) as makes) r"
     " where to_regnamespace('leasehold') is null and not (r.creates and r.makes)",
     NULL},
    {"extension",
     "select 'note' as level, case when e.installed_version is not null then 'leasehold_core '"
     " || e.installed_version || ' is installed' else 'leasehold_core is available and not installed' end as found,"
     " case when e.installed_version is null then 'create extension leasehold_core makes leases faster'"
     " when e.installed_version <> e.default_version then 'alter extension leasehold_core update, to '"
     " || e.default_version else '' end as advice"
     "  from pg_available_extensions e where e.name = 'leasehold_core'",
     NULL},
    {"event triggers",
     "select 'warning' as level, format('event trigger %I (%s) runs %s', t.evtname, t.evtevent, t.evtfoid::regproc) as "
     "found,"
     " case t.evtevent when 'login' then 'it runs for each connection of a daemon: it must not fail or wait'"
     " else 'it runs while leasehold migrate does: it must not refuse or wait' end as advice"
     "  from pg_event_trigger t where t.evtenabled <> 'D'",
     NULL},
    {"subscription",
     "select 'failed' as level, count(*) || ' tables of the schema leasehold are filled by a subscription' as found,"
     " 'leases must be decided where they are written: use the publisher, or leave the schema out' as advice"
     "  from pg_subscription_rel r join pg_class c on c.oid = r.srrelid"
     " where c.relnamespace = to_regnamespace('leasehold') having count(*) > 0",
     NULL},
    {"publication",
     "select 'warning' as level, format('publication %I is for all tables', p.pubname) || coalesce("
     " ', and these have no replica identity, so that updates and deletes fail: ' || t.names, '') as found,"
     " case when t.names is null then 'it sends each change of each lease to its subscribers'"
     " else 'alter table ... replica identity full' end as advice"
     "  from pg_publication p cross join (select string_agg(c.oid::regclass::text, ', ' order by c.relname) as names"
     "    from pg_class c where c.relnamespace = to_regnamespace('leasehold') and c.relkind = 'r'"
     "     and c.relpersistence = 'p' and (c.relreplident = 'n' or (c.relreplident = 'd' and not exists"
     "         (select from pg_index i where i.indrelid = c.oid and i.indisprimary)))) t"
     " where p.puballtables",
     NULL},
    /* What a failover would lose. */
    {"standbys",
     "select case when s.count > 0 and n.names = '' then 'warning' else 'note' end as level,"
     " case when s.count = 0 then 'no standby is connected'"
     " else s.count || ' standbys are connected, synchronous_standby_names is '"
     " || coalesce(nullif(n.names, ''), 'empty') end as found,"
     " case when s.count > 0 and n.names = '' then 'a failover to them can lose the newest leases: set it, or"
     " fence by token' else '' end as advice"
     "  from (select count(*) from pg_stat_replication r where r.application_name <> 'pg_basebackup') s,"
     "       (select current_setting('synchronous_standby_names') as names) n where not pg_is_in_recovery()",
     NULL},
    {"commits",
     "select 'warning' as level, 'synchronous_commit is ' || c.value as found,"
     " case when c.value = 'off' then 'grants and releases are written with local all the same; renewals are not'"
     " else 'commits do not wait for the synchronous standbys: a failover can lose the newest leases' end as advice"
     "  from (select current_setting('synchronous_commit') as value) c"
     " where c.value = 'off' or (c.value = 'local' and current_setting('synchronous_standby_names') <> '')",
     NULL},
    /* Through json: 12 has no wal_status. */
    {"slots",
     "select 'warning' as level, format('replication slot %I %s%s', s.slot_name,"
     " case when s.active then 'is far behind, its WAL is ' || w.status else 'is not in use' end,"
     " case when not s.active and (s.catalog_xmin is not null or s.xmin is not null) then ' and keeps dead rows'"
     " else '' end) as found,"
     " case when w.status = 'lost' then 'its reader must start anew: drop it'"
     " when s.active then 'it keeps WAL until its reader has caught up: look at the reader'"
     " else 'it keeps WAL until the disk is full: start its reader, or drop it' end as advice"
     "  from pg_replication_slots s cross join lateral (select to_jsonb(s) ->> 'wal_status' as status) w"
     " where not s.active or w.status in ('extended', 'unreserved', 'lost')"
     " union all "
     "select 'note', 'max_slot_wal_keep_size is -1: a slot may keep WAL until the disk is full',"
     " 'set it to what the disk can spare'"
     " where current_setting('max_slot_wal_keep_size', true) = '-1' and exists (select from pg_replication_slots)",
     NULL},
    {"disk",
     "select 'note' as level, 'the database takes ' || pg_size_pretty(pg_database_size(current_database())) as found,"
     " 'SQL cannot tell how much of the disk is free: watch it on the server, a full disk stops all leases' as advice"
     " union all "
     "select 'warning', 'WAL is not archived since ' || date_trunc('second', a.last_failed_time),"
     " 'it stays until the disk is full: see to archive_command'"
     "  from pg_stat_archiver a where current_setting('archive_mode') <> 'off'"
     "   and a.last_failed_time > coalesce(a.last_archived_time, '-infinity')",
     NULL},
    {"wal",
     "select case when w.size > 2 * m.size + k.size then 'warning' else 'ok' end as level,"
     " format('pg_wal takes %s, max_wal_size is %s', pg_size_pretty(w.size), pg_size_pretty(m.size)) as found,"
     " 'a slot, a standby or an archive_command that fails keeps it: see slots and disk' as advice"
     "  from (select sum(l.size) as size from pg_ls_waldir() l) w,"
     "       (select pg_size_bytes(current_setting('max_wal_size'))::numeric as size) m,"
     "       (select pg_size_bytes(coalesce(current_setting('wal_keep_size', true), '0'))::numeric as size) k",
     NULL},
    /* What cuts sessions, what keeps rows, what runs out. */
    {"connections",
     "select case when l.free < 3 then 'failed' when l.free < 10 then 'warning' else 'ok' end as level,"
     " l.free || ' connections are free for this role' as found,"
     " 'a daemon takes 3 to 5 for each database: raise max_connections, or the limit of the role or database' as advice"
     "  from (select least(current_setting('max_connections')::integer"
     "           - current_setting('superuser_reserved_connections')::integer - count(*),"
     "         min(case when r.rolconnlimit < 0 or r.rolsuper then 2147483647 else r.rolconnlimit end)"
     "           - count(*) filter (where a.usename = current_user),"
     "         min(case when d.datconnlimit < 0 or r.rolsuper then 2147483647 else d.datconnlimit end)"
     "           - count(*) filter (where a.datname = current_database())) as free"
     "    from pg_stat_activity a, pg_roles r, pg_database d"
     "   where a.datid is not null and r.rolname = current_user and d.datname = current_database()) l",
     NULL},
    /* Daemons set all five for themselves. */
    {"time-outs",
     "select 'warning' as level, s.name || ' is ' || t.reset_val || ' ms' as found, s.advice"
     "  from (values"
     " ('idle_session_timeout', 9223372036854775807,"
     "  'it cuts clients in SQL that wait; daemons switch it off for themselves'),"
     " ('idle_in_transaction_session_timeout', 5000,"
     "  'below 5 s it cuts clients in SQL that work in a transaction, as guards do: give them more'),"
     " ('lock_timeout', 1000,"
     "  'below 1 s it ends acquires and releases in SQL that wait for the row of a scope: give clients more'),"
     " ('statement_timeout', 5000, 'below 5 s it ends reaping and large batches of clients in SQL: give them more'),"
     " ('transaction_timeout', 5000, 'below 5 s it ends guards and reaping of clients in SQL: give them more')"
     " ) s (name, enough, advice)"
     "  join pg_settings t on t.name = s.name"
     " where case when t.name = s.name then t.reset_val::bigint end > 0"
     "   and case when t.name = s.name then t.reset_val::bigint end < s.enough",
     NULL},
    {"open transactions",
     "select 'note' as level, 'idle_in_transaction_session_timeout is not set' as found,"
     " 'a client that stops within a transaction keeps its scope until it ends: set it for roles that use leases' as "
     "advice"
     "  from pg_settings t where t.name = 'idle_in_transaction_session_timeout' and t.reset_val = '0'"
     " union all "
     "select 'warning', format('a transaction of %s has been open for %s (pid %s)', a.usename,"
     " date_trunc('second', clock_timestamp() - a.xact_start), a.pid),"
     " 'dead rows of renewals stay for as long: end it, or find out what it does'"
     "  from pg_stat_activity a where a.xact_start < clock_timestamp() - interval '5 min'"
     "   and a.backend_type = 'client backend'",
     NULL},
    {"prepared transactions",
     "select 'warning' as level, format('prepared transaction %L of %s has been open for %s', x.gid, x.owner,"
     " date_trunc('second', clock_timestamp() - x.prepared)) as found,"
     " 'it keeps its locks also through a restart: commit prepared or rollback prepared' as advice"
     "  from pg_prepared_xacts x where x.database = current_database()"
     "   and x.prepared < clock_timestamp() - interval '1 min'",
     NULL},
    {"vacuum",
     "select 'warning' as level, s.name || ' is off' as found, 'renewals leave dead rows, which nobody removes: switch "
     "it on' as advice"
     "  from (values ('autovacuum'), ('track_counts')) s (name) where not current_setting(s.name)::boolean"
     " union all "
     "select case when age(d.datfrozenxid) > 1800000000 then 'failed' else 'warning' end,"
     " 'the oldest row is ' || age(d.datfrozenxid) || ' transactions old',"
     " 'the server stops taking writes at 2 billion: vacuum, and end what holds it back'"
     "  from pg_database d where d.datname = current_database() and age(d.datfrozenxid) > 1000000000",
     NULL},
    {0},
};
