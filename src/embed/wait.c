/*
 * A round: take or keep the place in the queue and learn the channel, LISTEN on it, try to acquire, then wait for a
 * notification. Nobody notifies when a lease expires and no daemon runs, so a round is never longer than a second. The
 * place lives for 10 s: a process that stops coming is passed over.
 */
#include "embed/embed_internal.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

#define ROUND_US LH_US_PER_S

struct place {
    const char *values[4]; /* namespace, key, lease key, units */
    bool is_shared;
    const char *numbers;
    char channel[64]; /* that `session` listens to */
    int session;      /* its process; another one listens to nothing */
};

static enum lh_status join_queue(PGconn *conn, struct place *place, struct lh_error *error)
{
    static const char format[] = "select q.channel from leasehold.join_queue(namespace => $1, key => $2,"
                                 " lease_key => $3::uuid, ttl => interval '10 s'%s%s) q";
    const char *units = place->is_shared ? ", mode => 'shared', units => $4::integer" : "";
    char *sql = lh_format(format, units, place->numbers);
    PGresult *result = lh_query(conn, sql, place->values, place->is_shared ? 4 : 3, error);
    char listen[80];
    bool is_new;

    free(sql);
    if (result == NULL)
        return error->status;
    is_new = place->session != PQbackendPID(conn);
    place->session = PQbackendPID(conn);
    snprintf(place->channel, sizeof(place->channel), "%s", PQgetvalue(result, 0, 0));
    PQclear(result);
    if (!is_new)
        return LH_OK;
    snprintf(listen, sizeof(listen), "listen \"%s\"", place->channel);
    return lh_query_run(conn, listen, error);
}

static void wait_for_notification(PGconn *conn, int64_t wait_us)
{
    int64_t until_us = lh_clock_us() + wait_us;
    PGnotify *notify = NULL;

    while (PQstatus(conn) == CONNECTION_OK && notify == NULL) {
        int64_t left_us = until_us - lh_clock_us();
        struct pollfd socket = {.fd = PQsocket(conn), .events = POLLIN};
        if (left_us <= 0)
            return;
        /* What came with the last answer is in libpq's hands already. */
        notify = PQnotifies(conn);
        if (notify == NULL && poll(&socket, 1, (int)((left_us + LH_US_PER_MS - 1) / LH_US_PER_MS)) > 0)
            PQconsumeInput(conn);
    }
    for (; notify != NULL; notify = PQnotifies(conn))
        PQfreemem(notify);
}

static void leave_queue(PGconn *conn, const struct place *place)
{
    char unlisten[80];

    if (place->channel[0] != '\0') {
        snprintf(unlisten, sizeof(unlisten), "unlisten \"%s\"", place->channel);
        lh_query_run(conn, unlisten, NULL);
    }
}

static void give_up(PGconn *conn, const struct place *place)
{
    static const char sql[] = "select leasehold.leave_queue(namespace => $1, key => $2, lease_key => $3::uuid)";
    if (lh_connection_mend(conn, NULL) == LH_OK)
        PQclear(lh_query(conn, sql, place->values, 3, NULL));
}

enum lh_status lh_wait_for_turn(struct lh_call *acquire, const struct lh_wait_scope *scope, int64_t wait_us,
                                struct lh_error *error)
{
    PGconn *conn = acquire->conn;
    char units[12];
    struct place place = {.values = {scope->ns, scope->key, scope->lease_key, units},
                          .is_shared = scope->units > 0,
                          .numbers = scope->numbers};
    int64_t now_us = lh_clock_us();
    int64_t until_us = wait_us > INT64_MAX - now_us ? INT64_MAX : now_us + wait_us;
    struct lh_error words = {0};
    enum lh_status status = LH_LEASE_HELD;
    unsigned outages = 0;

    snprintf(units, sizeof(units), "%d", (int)scope->units);
    while (status == LH_LEASE_HELD && now_us < until_us) {
        status = lh_connection_mend(conn, &words);
        if (status == LH_OK)
            status = join_queue(conn, &place, &words);
        if (status == LH_OK)
            status = lh_call_run(acquire, &words);
        now_us = lh_clock_us();
        outages = status == LH_DATABASE_UNAVAILABLE ? outages + 1 : 0;
        if (outages > 0 && now_us < until_us) {
            lh_pause(lh_backoff_of_attempt_us(outages));
            status = LH_LEASE_HELD;
        } else if (status == LH_LEASE_HELD && now_us < until_us) {
            wait_for_notification(conn, until_us - now_us < ROUND_US ? until_us - now_us : ROUND_US);
            now_us = lh_clock_us();
        }
    }
    leave_queue(conn, &place);
    if (status != LH_OK)
        give_up(conn, &place);
    if (status == LH_LEASE_HELD)
        status = lh_error_set(&words, LH_WAIT_TIMEOUT, "the wait is over, and another owner still holds the lease %s",
                              LH_SCOPE_NAME(scope->ns, scope->key));
    if (error != NULL)
        *error = words;
    return status;
}
