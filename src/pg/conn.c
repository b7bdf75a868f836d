/*
 * The life of a connection. Start: where the primary was last, or at the next host (pg/servers.h); its name is looked
 * up, then libpq shakes hands while the loop watches the socket that libpq uses at the moment, under one timer. Then
 * the session is set and asks which server it is on (session.c); the answer makes it up. Any failure (refused, timed
 * out, closed by the server, no answer in time, a fatal error) leads to one place, lose: queries in flight are
 * answered, on_down is called if on_up was, and it starts again: after 50 ms, and when each host has failed after a
 * pause that doubles from that to 2 s. Close may come at any time, from inside of any callback: the state changes at
 * once, and the memory is freed at the end of the turn.
 */
#include "pg/conn.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "pg/conn_internal.h"
#include "pg/error.h"

#define FIRST_PAUSE_US (50 * LH_US_PER_MS)
#define LONGEST_PAUSE_US (2 * LH_US_PER_S)
#define STEADY_US (5 * LH_US_PER_S) /* up for that long: the next pause is the first one again */

static const char *const state_names[] = {"new", "connecting", "setting", "up", "pausing", "closing"};

#define TO(state) (1u << LH_PG_##state)

/* As enum lh_pg_state tells them. */
static const unsigned legal_moves[] = {
    [LH_PG_NEW] = TO(CONNECTING) | TO(CLOSING),           [LH_PG_CONNECTING] = TO(SETTING) | TO(PAUSING) | TO(CLOSING),
    [LH_PG_SETTING] = TO(UP) | TO(PAUSING) | TO(CLOSING), [LH_PG_UP] = TO(PAUSING) | TO(CLOSING),
    [LH_PG_PAUSING] = TO(CONNECTING) | TO(CLOSING),       [LH_PG_CLOSING] = 0,
};

static void set_state(struct lh_pg_conn *conn, enum lh_pg_state state)
{
    assert(legal_moves[conn->state] & (1u << state));
    lh_debug("database connection %s goes from %s to %s", conn->name, state_names[conn->state], state_names[state]);
    conn->state = state;
}

void lh_pg_conn_options_init(struct lh_pg_conn_options *options)
{
    *options = (struct lh_pg_conn_options){
        .statement_timeout_us = 30 * LH_US_PER_S,
        .lock_timeout_us = 5 * LH_US_PER_S,
        .answer_slack_us = 5 * LH_US_PER_S,
        .connect_timeout_us = 3 * LH_US_PER_S,
        .max_in_flight = 1024,
    };
}

static void start_connecting(struct lh_pg_conn *conn);

static int64_t pause_us(struct lh_pg_conn *conn)
{
    unsigned hosts = (unsigned)lh_pg_hosts_count(lh_pg_servers_hosts(conn->servers));
    unsigned rounds = conn->failures / hosts < 6 ? conn->failures / hosts : 6;
    int64_t longest_us = conn->failures % hosts == 0 ? FIRST_PAUSE_US << rounds : FIRST_PAUSE_US;
    uint32_t jitter = 0;

    if (longest_us > LONGEST_PAUSE_US)
        longest_us = LONGEST_PAUSE_US;
    if (getrandom(&jitter, sizeof(jitter), GRND_NONBLOCK) < 0)
        jitter = 0;
    /* Between a half and the whole: several daemons that lost one server do not come back in step. */
    return longest_us / 2 + (int64_t)(jitter % (uint32_t)(longest_us / 2 + 1));
}

static void lose(struct lh_pg_conn *conn)
{
    struct lh_error error = conn->error;
    bool was_up = conn->state == LH_PG_UP;
    int64_t now_us = lh_clock_us();

    error.status = LH_DATABASE_UNAVAILABLE;
    lh_pg_servers_on_failed(conn->servers, conn, conn->is_permanent || lh_pg_is_permanent(error.sqlstate));
    if (was_up) {
        lh_warn("database connection %s was lost: %s", conn->name, conn->error.message);
        conn->down_since_us = now_us;
        if (now_us - conn->up_since_us > STEADY_US)
            conn->failures = 0;
    }
    set_state(conn, LH_PG_PAUSING);
    lh_deferred_cancel(&conn->broken);
    lh_watch_finish(&conn->watch);
    PQfinish(conn->pg);
    conn->pg = NULL;
    conn->prepared_count = 0;
    conn->is_permanent = false;
    conn->last_words.status = LH_OK;
    lh_timer_arm_at_us(&conn->timer, now_us + pause_us(conn));
    conn->failures++;
    lh_pg_pipeline_answer_all(conn, &error);
    if (was_up && conn->state == LH_PG_PAUSING && conn->events.on_down != NULL)
        conn->events.on_down(conn->arg, &error);
}

void lh_pg_conn_drop(struct lh_pg_conn *conn, const char *reason)
{
    lh_pg_conn_break(conn, reason);
}

void lh_pg_conn_look_elsewhere(struct lh_pg_conn *conn, const char *reason)
{
    struct lh_pg_hosts *hosts = lh_pg_servers_hosts(conn->servers);

    if (conn->state != LH_PG_UP || lh_pg_hosts_count(hosts) < 2)
        return;
    lh_pg_hosts_leave(hosts, &conn->place);
    lh_pg_conn_drop(conn, reason);
}

static void on_broken(void *arg)
{
    struct lh_pg_conn *conn = arg;
    if (conn->pg != NULL && conn->state != LH_PG_CLOSING)
        lose(conn);
}

static void on_settled(struct lh_pg_conn *conn)
{
    conn->up_since_us = lh_clock_us();
    if (conn->down_since_us != 0)
        lh_info("database connection %s is back after %lld ms", conn->name,
                (long long)((conn->up_since_us - conn->down_since_us) / LH_US_PER_MS));
    else if (conn->failures > 0)
        lh_info("database connection %s is made", conn->name);
    conn->down_since_us = 0;
    lh_timer_cancel(&conn->timer);
    conn->connects++;
    set_state(conn, LH_PG_UP);
    if (conn->events.on_up != NULL)
        conn->events.on_up(conn->arg);
}

static void on_ready(void *arg, unsigned ready);

/* libpq may close its socket and open another at any step: the watch never outlives one. */
static void continue_connecting(struct lh_pg_conn *conn)
{
    PostgresPollingStatusType poll;

    lh_watch_finish(&conn->watch);
    poll = PQconnectPoll(conn->pg);
    if (poll == PGRES_POLLING_FAILED) {
        lh_pg_error_of_conn(conn->pg, &conn->error);
        lose(conn);
        return;
    }
    lh_watch_init(&conn->watch, conn->loop, PQsocket(conn->pg), on_ready, conn);
    if (poll == PGRES_POLLING_OK) {
        set_state(conn, LH_PG_SETTING);
        PQsetErrorVerbosity(conn->pg, PQERRORS_DEFAULT);
        lh_pg_session_begin(conn);
    } else {
        lh_watch_want(&conn->watch, poll == PGRES_POLLING_READING ? LH_WATCH_READ : LH_WATCH_WRITE);
    }
}

static void on_ready(void *arg, unsigned ready)
{
    struct lh_pg_conn *conn = arg;
    if (conn->state == LH_PG_CONNECTING)
        continue_connecting(conn);
    else
        lh_pg_pipeline_on_ready(conn, ready);
}

static void on_no_answer(struct lh_pg_conn *conn, int64_t limit_us)
{
    char host[LH_PG_HOST_TEXT_BYTES];

    lh_pg_hosts_name(lh_pg_servers_hosts(conn->servers), conn->place.host, host);
    lh_error_set(&conn->error, LH_DATABASE_UNAVAILABLE, "%s: no answer within %lld ms", host,
                 (long long)(limit_us / LH_US_PER_MS));
    if (conn->options.is_pulse)
        lh_pg_servers_on_silent(conn->servers, conn);
    lose(conn);
}

static void on_due(void *arg)
{
    struct lh_pg_conn *conn = arg;

    switch (conn->state) {
    case LH_PG_PAUSING:
        start_connecting(conn);
        break;
    case LH_PG_CONNECTING:
    case LH_PG_SETTING:
        on_no_answer(conn, conn->options.connect_timeout_us);
        break;
    case LH_PG_UP:
        on_no_answer(conn, conn->answer_limit_us + conn->options.answer_slack_us);
        break;
    case LH_PG_NEW:
    case LH_PG_CLOSING:
        break;
    }
}

/* In verbose errors libpq tells the server's SQLSTATE. */
static void on_found(struct lh_pg_conn *conn)
{
    if (!lh_pg_hosts_find(lh_pg_servers_hosts(conn->servers), &conn->place))
        return; /* another connection has moved on to a host that is looked up now */
    conn->pg = lh_pg_hosts_open(lh_pg_servers_hosts(conn->servers), &conn->error, &conn->is_permanent);
    if (conn->pg == NULL || PQstatus(conn->pg) == CONNECTION_BAD) {
        if (conn->pg != NULL)
            lh_pg_error_of_conn(conn->pg, &conn->error);
        lose(conn);
        return;
    }
    PQsetErrorVerbosity(conn->pg, PQERRORS_VERBOSE);
    /* As the manual says: act as if PQconnectPoll had returned PGRES_POLLING_WRITING. */
    lh_watch_init(&conn->watch, conn->loop, PQsocket(conn->pg), on_ready, conn);
    lh_watch_want(&conn->watch, LH_WATCH_WRITE);
}

static void start_connecting(struct lh_pg_conn *conn)
{
    set_state(conn, LH_PG_CONNECTING);
    lh_timer_arm_at_us(&conn->timer, lh_clock_us() + conn->options.connect_timeout_us);
    on_found(conn);
}

static const struct lh_pg_conn_steps steps = {.on_found = on_found, .on_settled = on_settled};

static void on_close(void *arg)
{
    struct lh_pg_conn *conn = arg;
    struct lh_error error;

    lh_error_set(&error, LH_CANCELED, "the connection was closed");
    lh_watch_finish(&conn->watch);
    PQfinish(conn->pg);
    conn->pg = NULL;
    lh_pg_pipeline_answer_all(conn, &error);
    lh_timer_finish(&conn->timer);
    lh_pg_servers_part(conn);
    if (conn->on_closed != NULL)
        conn->on_closed(conn->on_closed_arg);
    lh_pg_servers_destroy(conn->own_servers);
    free(conn->name);
    free(conn);
}

struct lh_pg_conn *lh_pg_conn_create(struct lh_loop *loop, const struct lh_pg_conn_options *options,
                                     const struct lh_pg_conn_events *events, void *arg)
{
    struct lh_pg_conn *conn = lh_alloc_zero(1, sizeof(*conn));
    int64_t timeout_us;

    conn->loop = loop;
    conn->steps = &steps;
    conn->options = *options;
    conn->name = lh_strdup(options->name == NULL ? "" : options->name);
    conn->options.name = conn->name;
    conn->options.conninfo = NULL;
    if (options->servers == NULL)
        conn->own_servers = lh_pg_servers_create(loop, options->conninfo);
    conn->servers = options->servers != NULL ? options->servers : conn->own_servers;
    timeout_us = lh_pg_hosts_connect_timeout_us(lh_pg_servers_hosts(conn->servers));
    if (timeout_us > 0)
        conn->options.connect_timeout_us = timeout_us;
    if (timeout_us > 0 && options->is_pulse)
        conn->options.statement_timeout_us = timeout_us;
    conn->answer_limit_us = conn->options.statement_timeout_us;
    lh_pg_servers_join(conn->servers, conn);
    conn->events = *events;
    conn->arg = arg;
    lh_list_init(&conn->queries);
    lh_list_init(&conn->waiting);
    lh_timer_init(&conn->timer, loop, on_due, conn);
    lh_deferred_init(&conn->broken, on_broken, conn);
    lh_deferred_init(&conn->closed, on_close, conn);
    return conn;
}

void lh_pg_conn_start(struct lh_pg_conn *conn)
{
    if (conn->state == LH_PG_NEW)
        start_connecting(conn);
}

void lh_pg_conn_close(struct lh_pg_conn *conn, void (*on_closed)(void *arg), void *arg)
{
    if (conn->state == LH_PG_CLOSING)
        return;
    set_state(conn, LH_PG_CLOSING);
    conn->on_closed = on_closed;
    conn->on_closed_arg = arg;
    lh_timer_cancel(&conn->timer);
    lh_watch_finish(&conn->watch);
    lh_deferred_cancel(&conn->broken);
    lh_defer(conn->loop, &conn->closed);
}

void lh_pg_conn_set_answer_limit(struct lh_pg_conn *conn, int64_t limit_us)
{
    conn->answer_limit_us = limit_us;
    if (conn->state == LH_PG_UP && conn->in_flight > 0)
        lh_pg_pipeline_arm(conn);
}

bool lh_pg_conn_is_up(const struct lh_pg_conn *conn)
{
    return conn->state == LH_PG_UP;
}

size_t lh_pg_conn_in_flight(const struct lh_pg_conn *conn)
{
    return conn->in_flight + conn->waiting_count;
}

uint64_t lh_pg_conn_connects(const struct lh_pg_conn *conn)
{
    return conn->connects;
}

int lh_pg_conn_backend_pid(const struct lh_pg_conn *conn)
{
    return conn->state == LH_PG_UP ? PQbackendPID(conn->pg) : 0;
}
