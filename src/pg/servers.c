#include "pg/servers.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "pg/conn_internal.h"
#include "pg/error.h"

#define SAY_AGAIN_US (60 * LH_US_PER_S) /* why there is no session, while that does not change */

/* What was last logged of a host. */
struct report {
    char message[sizeof(((struct lh_error *)0)->message)];
    int64_t at_us;
    bool is_permanent;
};

struct lh_pg_servers {
    struct lh_pg_hosts *hosts;
    struct lh_link sessions; /* struct lh_pg_conn */
    struct report *reports;  /* for each host */
    struct lh_pg_server_facts facts;
};

#define SESSION_EACH(conn) LH_LIST_EACH(struct lh_pg_conn, conn, &servers->sessions, session)

static void on_found(void *arg)
{
    struct lh_pg_servers *servers = arg;
    SESSION_EACH(conn)
    {
        if (conn->state == LH_PG_CONNECTING && conn->pg == NULL)
            conn->steps->on_found(conn);
    }
}

struct lh_pg_servers *lh_pg_servers_create(struct lh_loop *loop, const char *conninfo)
{
    struct lh_pg_servers *servers = lh_alloc_zero(1, sizeof(*servers));

    servers->hosts = lh_pg_hosts_create(loop, conninfo, on_found, servers);
    servers->reports = lh_alloc_zero(lh_pg_hosts_count(servers->hosts), sizeof(servers->reports[0]));
    lh_list_init(&servers->sessions);
    return servers;
}

void lh_pg_servers_destroy(struct lh_pg_servers *servers)
{
    if (servers == NULL)
        return;
    lh_pg_hosts_destroy(servers->hosts);
    free(servers->reports);
    free(servers);
}

void lh_pg_servers_join(struct lh_pg_servers *servers, struct lh_pg_conn *conn)
{
    lh_list_append(&servers->sessions, &conn->session);
}

void lh_pg_servers_part(struct lh_pg_conn *conn)
{
    lh_list_remove(&conn->session);
}

struct lh_pg_hosts *lh_pg_servers_hosts(struct lh_pg_servers *servers)
{
    return servers->hosts;
}

static bool is_up(const struct lh_pg_servers *servers)
{
    SESSION_EACH(conn)
    {
        if (conn->state == LH_PG_UP)
            return true;
    }
    return false;
}

void lh_pg_servers_facts(const struct lh_pg_servers *servers, struct lh_pg_server_facts *facts)
{
    *facts = servers->facts;
    facts->is_up = is_up(servers);
    if (facts->is_up && !facts->is_permanent)
        facts->trouble.status = LH_OK;
}

void lh_pg_servers_on_answer(struct lh_pg_servers *servers)
{
    servers->facts.answered_us = lh_clock_us();
}

/* --- failures --- */

/* Of a message without PostgreSQL's DETAIL, which comes and goes: "It seems to have just been dropped or renamed." */
static size_t words_size(const char *message)
{
    const char *detail = strstr(message, " DETAIL: ");

    return detail != NULL ? (size_t)(detail - message) : strlen(message);
}

/* Once for all connections; each host has its own words, which come in turn. */
static void report(struct lh_pg_servers *servers, const struct lh_pg_conn *conn, bool is_permanent)
{
    struct report *last = &servers->reports[conn->place.host];
    int64_t now_us = lh_clock_us();
    char host[LH_PG_HOST_TEXT_BYTES];
    size_t size = words_size(conn->error.message);

    last->is_permanent = is_permanent;
    if (size == words_size(last->message) && memcmp(last->message, conn->error.message, size) == 0 &&
        now_us - last->at_us < SAY_AGAIN_US)
        return;
    memcpy(last->message, conn->error.message, sizeof(last->message));
    last->at_us = now_us;
    lh_pg_hosts_name(servers->hosts, conn->place.host, host);
    lh_log(is_permanent ? LH_LOG_ERROR : LH_LOG_WARN, "database server=%s cannot be used%s: %s", host,
           is_permanent ? " until an administrator changes something" : "", conn->error.message);
}

/* Of all hosts: one that is away for a while may come back. */
static bool is_permanent_everywhere(const struct lh_pg_servers *servers)
{
    for (size_t i = 0; i < lh_pg_hosts_count(servers->hosts); i++)
        if (!servers->reports[i].is_permanent)
            return false;
    return true;
}

void lh_pg_servers_on_failed(struct lh_pg_servers *servers, struct lh_pg_conn *conn, bool is_permanent)
{
    servers->facts.trouble = conn->error;
    servers->facts.trouble.status = LH_DATABASE_UNAVAILABLE;
    if (conn->state == LH_PG_UP)
        return;
    report(servers, conn, is_permanent);
    servers->facts.is_permanent = is_permanent_everywhere(servers);
    lh_pg_hosts_leave(servers->hosts, &conn->place);
}

static void end_others(struct lh_pg_servers *servers, const struct lh_pg_conn *conn, const char *reason)
{
    SESSION_EACH(other)
    {
        if (other != conn)
            lh_pg_conn_break(other, reason);
    }
}

/* Sessions with another server stay: `conn` may have been trying the old primary while they found the new one. */
void lh_pg_servers_on_silent(struct lh_pg_servers *servers, const struct lh_pg_conn *conn)
{
    bool has_session = conn->state == LH_PG_UP;
    char host[LH_PG_HOST_TEXT_BYTES];
    char *reason;

    lh_pg_hosts_name(servers->hosts, conn->place.host, host);
    reason = lh_format("%s does not answer", host);
    SESSION_EACH(other)
    {
        if (other == conn || other->place.host != conn->place.host)
            continue;
        has_session |= other->state == LH_PG_UP;
        lh_pg_conn_break(other, reason);
    }
    if (has_session)
        lh_warn("database server=%s does not answer; all connections to it end", host);
    lh_pg_hosts_leave(servers->hosts, &conn->place);
    free(reason);
}

/* --- who is the primary --- */

/* Two sessions of ours in one backend, or one in two: they do not keep it between transactions. What was seen; NULL: nothing. */
static char *sign_of_sharing(const struct lh_pg_servers *servers, const struct lh_pg_conn *conn,
                             const struct lh_pg_identity *identity)
{
    if (identity->backend_pid == identity->announced_pid)
        return NULL;
    if (identity->backend_pid != identity->settings_pid)
        return lh_format("two transactions of one connection ran in two sessions of PostgreSQL, %d and %d",
                         identity->settings_pid, identity->backend_pid);
    SESSION_EACH(other)
    {
        if (other != conn && other->state == LH_PG_UP && other->identity.backend_pid == identity->backend_pid)
            return lh_format("two connections are in one session of PostgreSQL, %d", identity->backend_pid);
    }
    return NULL;
}

static bool has_other_session(const struct lh_pg_servers *servers, const struct lh_pg_conn *conn)
{
    SESSION_EACH(other)
    {
        if (other != conn && other->state == LH_PG_UP && !lh_pg_conn_is_broken(other))
            return true;
    }
    return false;
}

/* Whether a primary has told which life of the database it is: a source has a timeline, a system, or both. */
static bool was_told(const struct lh_pg_server_facts *facts)
{
    return facts->timeline != 0 || facts->system_identifier != 0;
}

/* A session with the primary in use: when it tells another life than before, its source was changed, or its database restored. */
static bool is_with_primary(const struct lh_pg_servers *servers, const struct lh_pg_conn *conn)
{
    return conn->state == LH_PG_UP && conn->identity.system_identifier == servers->facts.system_identifier &&
           conn->identity.timeline == servers->facts.timeline;
}

/* Words why the server is not the one to use, or NULL. */
static char *objection(const struct lh_pg_servers *servers, const struct lh_pg_conn *conn,
                       const struct lh_pg_identity *identity)
{
    const struct lh_pg_server_facts *facts = &servers->facts;
    bool is_same_system = identity->system_identifier == facts->system_identifier;

    if (identity->is_standby)
        return lh_format("it is a standby; a daemon works with the primary only");
    if (identity->is_read_only)
        return lh_format("it takes no writes: default_transaction_read_only is on");
    if (is_with_primary(servers, conn))
        return NULL;
    if (is_same_system && identity->timeline < facts->timeline)
        return lh_format(
            "it is an old primary: on timeline %lld, after timeline %lld was seen; if it is the right one, "
            "restart the daemon",
            (long long)identity->timeline, (long long)facts->timeline);
    if (was_told(facts) && !is_same_system && has_other_session(servers, conn))
        return lh_format("it belongs to another database system (%llu) than the one in use (%llu)",
                         (unsigned long long)identity->system_identifier, (unsigned long long)facts->system_identifier);
    return NULL;
}

/* A session that is about to come up on this server stays: to end it would send the next attempt to another server. */
static void end_sessions_elsewhere(struct lh_pg_servers *servers, const struct lh_pg_conn *conn, const char *reason)
{
    SESSION_EACH(other)
    {
        if (other != conn && (other->state == LH_PG_UP || other->place.host != conn->place.host))
            lh_pg_conn_break(other, reason);
    }
}

static void adopt(struct lh_pg_servers *servers, struct lh_pg_conn *conn, const struct lh_pg_identity *identity)
{
    struct lh_pg_server_facts *facts = &servers->facts;
    bool is_first = !was_told(facts);
    bool is_same = identity->system_identifier == facts->system_identifier && identity->timeline == facts->timeline;
    char host[LH_PG_HOST_TEXT_BYTES];
    char *reason;

    lh_pg_hosts_name(servers->hosts, conn->place.host, host);
    if (is_same && strcmp(host, facts->server) == 0)
        return;
    if (is_first) {
        lh_info("database primary server=%s timeline=%lld system=%llu", host, (long long)identity->timeline,
                (unsigned long long)identity->system_identifier);
    } else {
        facts->failovers++;
        lh_warn("database primary changed from=%s to=%s timeline=%lld before=%lld system=%llu", facts->server, host,
                (long long)identity->timeline, (long long)facts->timeline,
                (unsigned long long)identity->system_identifier);
        reason = lh_format("%s is the primary now, on timeline %lld", host, (long long)identity->timeline);
        end_sessions_elsewhere(servers, conn, reason);
        free(reason);
    }
    memcpy(facts->server, host, sizeof(host));
    facts->system_identifier = identity->system_identifier;
    facts->timeline = identity->timeline;
}

void lh_pg_servers_on_shared(struct lh_pg_servers *servers, const struct lh_pg_conn *conn, const char *sign,
                             struct lh_error *error)
{
    lh_error_set(error, LH_DATABASE_UNAVAILABLE,
                 "%s: what is in between gives connections no session of their own, as a pooler in transaction mode "
                 "does; let the daemon connect to PostgreSQL itself, or set pool_mode = session for it",
                 sign);
    memcpy(error->sqlstate, LH_PG_POOLED, sizeof(error->sqlstate));
    end_others(servers, conn, error->message);
}

bool lh_pg_servers_admit(struct lh_pg_servers *servers, struct lh_pg_conn *conn, const struct lh_pg_identity *identity,
                         struct lh_error *error, bool *is_permanent)
{
    char *words;

    words = sign_of_sharing(servers, conn, identity);
    *is_permanent = words != NULL;
    if (*is_permanent) {
        lh_pg_servers_on_shared(servers, conn, words, error);
        free(words);
        return false;
    }
    words = objection(servers, conn, identity);
    if (words != NULL) {
        lh_error_set(error, LH_DATABASE_UNAVAILABLE, "%s", words);
        if (identity->is_standby || identity->is_read_only)
            memcpy(error->sqlstate, LH_PG_READ_ONLY, sizeof(error->sqlstate));
        free(words);
        return false;
    }
    adopt(servers, conn, identity);
    conn->identity = *identity;
    if (conn->state == LH_PG_UP)
        return true;
    servers->facts.is_permanent = false;
    for (size_t i = 0; i < lh_pg_hosts_count(servers->hosts); i++)
        servers->reports[i] = (struct report){0};
    lh_pg_hosts_settle(servers->hosts, &conn->place);
    return true;
}
