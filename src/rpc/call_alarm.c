/*
 * What a call needs that lives for long and acts by itself: an alarm, and to know whether its peer is still there. A
 * connection PINGs a peer that was silent for as long as the most impatient of its calls allows; one that is stopped
 * gets one PING and no more until it answers.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "rpc/server_internal.h"

int64_t lh_rpc_call_heard_us(const struct lh_rpc_call *call)
{
    return call->connection->io.received_at_us;
}

bool lh_rpc_call_is_peer_lost(const struct lh_rpc_call *call)
{
    return call->connection->io.is_lost;
}

int64_t server_connection_check_listening(struct server_connection *connection, int64_t now_us)
{
    int64_t due_us = connection->io.received_at_us + connection->listen_us;

    if (connection->listen_us == 0)
        return LH_RPC_FOREVER;
    if (due_us > now_us)
        return due_us;
    if (connection->asked_at_us <= connection->io.received_at_us) {
        connection->asked_at_us = now_us;
        nghttp2_submit_ping(connection->io.session, NGHTTP2_FLAG_NONE, NULL);
        rpc_connection_touch(&connection->io);
    }
    return now_us + connection->listen_us;
}

/* Few calls come and go whose patience is the shortest of all. */
static int64_t shortest_us(const struct server_connection *connection, int64_t enough_us)
{
    int64_t shortest_us = 0;

    LH_LIST_EACH(struct lh_rpc_call, call, &connection->calls, in_connection) {
        if (call->listen_us > 0 && (shortest_us == 0 || call->listen_us < shortest_us))
            shortest_us = call->listen_us;
        if (shortest_us == enough_us && enough_us > 0)
            return shortest_us;
    }
    return shortest_us;
}

void lh_rpc_call_listen(struct lh_rpc_call *call, int64_t silence_us)
{
    struct server_connection *connection = call->connection;
    int64_t before_us = call->listen_us;

    call->listen_us = silence_us;
    if (silence_us > 0 && (connection->listen_us == 0 || silence_us < connection->listen_us))
        connection->listen_us = silence_us;
    else if (before_us > 0 && before_us == connection->listen_us)
        connection->listen_us = shortest_us(connection, before_us);
    if (silence_us > 0 && !connection->io.is_ending)
        lh_timer_arm_no_later_us(&connection->timer, lh_clock_us() + connection->listen_us);
}

static void on_due(void *arg)
{
    struct lh_rpc_call *call = arg;
    if (!call->is_over && call->state == CALL_OPEN && call->method->on_alarm != NULL)
        call->method->on_alarm(call);
}

void lh_rpc_call_set_alarm(struct lh_rpc_call *call, int64_t at_us)
{
    if (call->is_over || call->state != CALL_OPEN)
        return;
    if (call->alarm == NULL) {
        call->alarm = lh_alloc(sizeof(*call->alarm));
        lh_timer_init(call->alarm, call->connection->server->loop, on_due, call);
    }
    lh_timer_arm_at_us(call->alarm, at_us);
}

/* The call is out of its connection's list already. */
void call_finish_alarm(struct lh_rpc_call *call)
{
    if (call->listen_us > 0)
        lh_rpc_call_listen(call, 0);
    if (call->alarm == NULL)
        return;
    lh_timer_finish(call->alarm);
    free(call->alarm);
    call->alarm = NULL;
}
