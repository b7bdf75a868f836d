/*
 * What a call needs that lives for long and acts by itself: an alarm, and to know whether its peer is alive. Calls that
 * want to know share one PING of their connection. Its 8 bytes are the time when it was sent, so that no other answer
 * is taken for its own.
 *
 * An answer that came late may be old: this process stood still while it lay in the socket, or the network kept it. The
 * peer is then asked once more, and that answer counts, so that a slow network costs one round trip more and no lease.
 */
#include "rpc/call_alarm.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

bool lh_rpc_call_is_peer_lost(const struct lh_rpc_call *call)
{
    return call->connection->io.is_lost;
}

static void ask(struct server_connection *connection)
{
    connection->asked_at_us = lh_clock_us();
    nghttp2_submit_ping(connection->io.session, NGHTTP2_FLAG_NONE, (const uint8_t *)&connection->asked_at_us);
    lh_rpc_connection_touch(&connection->io);
}

void lh_rpc_call_ask_peer(struct lh_rpc_call *call)
{
    struct server_connection *connection = call->connection;

    if (call->is_over || call->state != CALL_OPEN)
        return;
    lh_list_remove(&call->in_asking);
    lh_list_append(&connection->asking, &call->in_asking);
    if (connection->asked_at_us == 0)
        ask(connection);
}

void lh_rpc_server_connection_on_pong(struct server_connection *connection, const uint8_t *bytes)
{
    bool is_late = lh_clock_us() - connection->asked_at_us > connection->server->options.late_answer_us;
    struct lh_link asking;

    if (connection->asked_at_us == 0 || memcmp(bytes, &connection->asked_at_us, sizeof(connection->asked_at_us)) != 0)
        return;
    if (is_late && !connection->has_asked_again) {
        connection->has_asked_again = true;
        ask(connection);
        return;
    }
    connection->asked_at_us = 0;
    connection->has_asked_again = false;
    lh_list_init(&asking);
    lh_list_splice(&asking, &connection->asking);
    while (!lh_list_is_empty(&asking)) {
        struct lh_rpc_call *call = LH_LIST_FIRST(struct lh_rpc_call, &asking, in_asking);
        lh_list_remove(&call->in_asking);
        if (!call->is_over && call->state == CALL_OPEN && call->method->on_peer_alive != NULL)
            call->method->on_peer_alive(call);
    }
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

void lh_rpc_call_finish_alarm(struct lh_rpc_call *call)
{
    lh_list_remove(&call->in_asking);
    if (call->alarm == NULL)
        return;
    lh_timer_finish(call->alarm);
    free(call->alarm);
    call->alarm = NULL;
}
