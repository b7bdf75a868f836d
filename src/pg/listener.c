#include "pg/listener.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "loop/loop.h"
#include "pg/conn.h"
#include "pg/values.h"

struct lh_pg_listener {
    struct lh_loop *loop;
    struct lh_pg_conn *conn;
    struct lh_pg_listener_events events;
    void *arg;
    char *channel;
    char *listen_sql;
    struct lh_pg_statement listen;
    struct lh_timer check;
    int64_t check_interval_us;
    bool is_up;
    struct lh_pg_listener_stats stats;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static const struct lh_pg_statement check_statement =
    LH_PG_STATEMENT("lh_listener_check",
                    "select exists (select from pg_catalog.pg_listening_channels() as c where c = $1)", LH_PG_TEXT);

void lh_pg_listener_options_init(struct lh_pg_listener_options *options)
{
    *options = (struct lh_pg_listener_options){
        .name = "listener", .check_interval_us = 500 * LH_US_PER_MS, .answer_timeout_us = 3 * LH_US_PER_S};
}

/* A quoted identifier. */
static char *listen_sql(const char *channel)
{
    struct lh_buffer sql = {0};
    lh_buffer_append(&sql, "listen \"", 8);
    for (; *channel != '\0'; channel++)
        lh_buffer_append(&sql, *channel == '"' ? "\"\"" : channel, *channel == '"' ? 2 : 1);
    lh_buffer_append(&sql, "\"", 2);
    return (char *)sql.data;
}

static void arm_check(struct lh_pg_listener *listener)
{
    lh_timer_arm_at_us(&listener->check, lh_clock_us() + listener->check_interval_us);
}

static void on_listening(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct lh_pg_listener *listener = arg;

    if (status == LH_OK) {
        listener->is_up = true;
        arm_check(listener);
        if (listener->events.on_up != NULL)
            listener->events.on_up(listener->arg);
    } else if (status != LH_DATABASE_UNAVAILABLE && status != LH_CANCELED) {
        lh_pg_conn_drop(listener->conn, error->message);
    }
}

static void on_conn_up(void *arg)
{
    struct lh_pg_listener *listener = arg;
    lh_pg_query(listener->conn, &listener->listen, NULL, on_listening, listener);
}

static void on_conn_down(void *arg, const struct lh_error *error)
{
    struct lh_pg_listener *listener = arg;
    bool was_up = listener->is_up;

    listener->is_up = false;
    lh_timer_cancel(&listener->check);
    if (was_up && listener->events.on_down != NULL)
        listener->events.on_down(listener->arg, error);
}

static void on_conn_notify(void *arg, const char *channel, const char *payload)
{
    struct lh_pg_listener *listener = arg;
    if (strcmp(channel, listener->channel) != 0)
        return;
    listener->stats.notifications++;
    if (listener->events.on_notify != NULL)
        listener->events.on_notify(listener->arg, payload);
}

static void on_checked(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct lh_pg_listener *listener = arg;

    bool is_listening = status == LH_OK && PQntuples(result) == 1 && lh_pg_bool(result, 0, 0);

    if (status == LH_CANCELED)
        return;
    listener->stats.checks_failed += !is_listening;
    if (status == LH_DATABASE_UNAVAILABLE)
        return;
    if (!is_listening)
        lh_pg_conn_drop(listener->conn, status == LH_OK ? "the session does not listen any more" : error->message);
    else
        arm_check(listener);
}

static void on_check_due(void *arg)
{
    struct lh_pg_listener *listener = arg;
    struct lh_pg_params params = {0};

    lh_pg_add_text(&params, listener->channel);
    /* Refused: the connection is on its way down, and its return arms the check again. */
    if (lh_pg_conn_check_server(listener->conn) == LH_OK &&
        lh_pg_query(listener->conn, &check_statement, &params, on_checked, listener) == LH_OK)
        listener->stats.checks++;
    lh_pg_params_finish(&params);
}

struct lh_pg_listener *lh_pg_listener_create(struct lh_loop *loop, const struct lh_pg_listener_options *options,
                                             const struct lh_pg_listener_events *events, void *arg)
{
    static const struct lh_pg_conn_events conn_events = {on_conn_up, on_conn_down, on_conn_notify};
    struct lh_pg_listener *listener = lh_alloc_zero(1, sizeof(*listener));
    struct lh_pg_conn_options conn_options;

    listener->loop = loop;
    listener->events = *events;
    listener->arg = arg;
    listener->check_interval_us = options->check_interval_us;
    listener->channel = lh_strdup(options->channel);
    listener->listen_sql = listen_sql(options->channel);
    listener->listen = (struct lh_pg_statement){.name = "lh_listen", .sql = listener->listen_sql};
    lh_timer_init(&listener->check, loop, on_check_due, listener);
    lh_pg_conn_options_init(&conn_options);
    conn_options.servers = options->servers;
    conn_options.conninfo = options->conninfo;
    conn_options.is_pulse = true;
    conn_options.name = options->name;
    conn_options.statement_timeout_us = options->answer_timeout_us;
    conn_options.answer_slack_us = 0;
    listener->conn = lh_pg_conn_create(loop, &conn_options, &conn_events, listener);
    return listener;
}

void lh_pg_listener_start(struct lh_pg_listener *listener)
{
    lh_pg_conn_start(listener->conn);
}

static void on_conn_closed(void *arg)
{
    struct lh_pg_listener *listener = arg;

    if (listener->on_closed != NULL)
        listener->on_closed(listener->on_closed_arg);
    free(listener->channel);
    free(listener->listen_sql);
    free(listener);
}

void lh_pg_listener_close(struct lh_pg_listener *listener, void (*on_closed)(void *arg), void *arg)
{
    listener->on_closed = on_closed;
    listener->on_closed_arg = arg;
    listener->is_up = false;
    lh_timer_finish(&listener->check);
    lh_pg_conn_close(listener->conn, on_conn_closed, listener);
}

void lh_pg_listener_stats(const struct lh_pg_listener *listener, struct lh_pg_listener_stats *stats)
{
    *stats = listener->stats;
    stats->connects = lh_pg_conn_connects(listener->conn);
}

bool lh_pg_listener_is_up(const struct lh_pg_listener *listener)
{
    return listener->is_up;
}
