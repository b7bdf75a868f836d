/*
 * A channel; channel_connect.c makes its connections. Calls that are made meanwhile wait and then go out together.
 */
#include "rpc/client/client_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

void lh_rpc_channel_options_init(struct lh_rpc_channel_options *options)
{
    *options = (struct lh_rpc_channel_options){
        .max_message_bytes = 16 * 1024 * 1024,
        .max_calls = 65536,
        .connect_timeout_us = 5 * LH_US_PER_S,
        .keepalive_us = 20 * LH_US_PER_S,
        .max_header_bytes = 64 * 1024,
        .user_agent = "leasehold/" LH_VERSION,
    };
}

enum lh_rpc_channel_state lh_rpc_channel_state(const struct lh_rpc_channel *channel)
{
    return channel->state;
}

static void deliver_answers(void *arg)
{
    struct lh_rpc_channel *channel = arg;
    while (!lh_list_is_empty(&channel->answered))
        lh_rpc_client_call_deliver(LH_LIST_FIRST(struct lh_rpc_client_call, &channel->answered, link));
}

/* Whoever reads the wire could use the token. */
static bool may_send_token(const struct lh_rpc_channel *channel, const char *target, struct lh_error *error)
{
    for (size_t i = 0; i < channel->address_count; i++)
        if (channel->bearer.file != NULL && channel->tls == NULL && !lh_address_is_local(&channel->addresses[i])) {
            lh_error_set(error, LH_INVALID_ARGUMENT,
                         "%s: without TLS a token is sent to loopback addresses and unix sockets only; use TLS, or no "
                         "token file",
                         target);
            if (error != NULL)
                snprintf(error->field, sizeof(error->field), "token_file");
            return false;
        }
    return true;
}

static void finish_identity(struct lh_rpc_channel *channel)
{
    lh_rpc_channel_finish_tls(channel);
    lh_rpc_bearer_finish(&channel->bearer);
}

static void start_channel(struct lh_rpc_channel *channel, struct lh_loop *loop)
{
    channel->loop = loop;
    channel->connect_fd = -1;
    channel->user_agent = lh_strdup(channel->options.user_agent);
    channel->callbacks = lh_rpc_client_callbacks_create();
    if (channel->callbacks == NULL || nghttp2_option_new(&channel->session_options) != 0) {
        lh_err("out of memory for HTTP/2; stopping");
        abort();
    }
    nghttp2_option_set_no_closed_streams(channel->session_options, 1);
    nghttp2_option_set_max_outbound_ack(channel->session_options, RPC_ANSWERS_MAX);
    lh_rpc_pool_init(&channel->pool);
    lh_rpc_recycle_init(&channel->recycle);
    lh_list_init(&channel->connections);
    lh_list_init(&channel->waiting);
    lh_list_init(&channel->answered);
    lh_timer_init(&channel->connect_timer, loop, lh_rpc_channel_on_connect_timeout, channel);
    lh_deferred_init(&channel->connect_next, lh_rpc_channel_connect_next, channel);
    lh_deferred_init(&channel->answer, deliver_answers, channel);
}

struct lh_rpc_channel *lh_rpc_channel_create_on(struct lh_loop *loop, int fd)
{
    struct lh_rpc_channel *channel = lh_alloc_zero(1, sizeof(*channel));

    lh_rpc_channel_options_init(&channel->options);
    channel->authority = lh_strdup("localhost");
    snprintf(channel->connect_failure, sizeof(channel->connect_failure), "the connection has ended");
    start_channel(channel, loop);
    lh_rpc_channel_use_connection(channel, fd, NULL);
    return channel;
}

struct lh_rpc_channel *lh_rpc_channel_create(struct lh_loop *loop, const char *target,
                                             const struct lh_rpc_channel_options *options, struct lh_error *error)
{
    struct lh_rpc_channel *channel = lh_alloc_zero(1, sizeof(*channel));

    channel->address_count = lh_address_resolve(target, channel->addresses, ADDRESSES_MAX, error);
    if (channel->address_count == 0) {
        free(channel);
        return NULL;
    }
    if (options != NULL)
        channel->options = *options;
    else
        lh_rpc_channel_options_init(&channel->options);
    lh_rpc_channel_set_tls(channel, target);
    channel->bearer.file = lh_strdup(channel->options.token_file);
    channel->options.token_file = NULL; /* the caller's */
    if (!may_send_token(channel, target, error)) {
        finish_identity(channel);
        free(channel);
        return NULL;
    }
    channel->authority = lh_strdup(channel->addresses[0].storage.ss_family == AF_UNIX ? "localhost" : target);
    start_channel(channel, loop);
    return channel;
}

void lh_rpc_channel_destroy(struct lh_rpc_channel *channel)
{
    if (channel == NULL)
        return;
    channel->options.on_state = NULL;
    channel->is_closing = true;
    lh_rpc_channel_stop_connecting(channel);
    snprintf(channel->connect_failure, sizeof(channel->connect_failure), "the channel was closed");
    lh_rpc_client_calls_lose(&channel->waiting, LH_GRPC_CANCELLED, channel->connect_failure);
    LH_LIST_EACH(struct client_connection, connection, &channel->connections, in_channel) {
        lh_rpc_client_calls_lose(&connection->calls, LH_GRPC_CANCELLED, channel->connect_failure);
        lh_rpc_client_connection_on_closed(connection, channel->connect_failure);
    }
    deliver_answers(channel);
    lh_deferred_cancel(&channel->answer);
    lh_timer_finish(&channel->connect_timer);
    nghttp2_session_callbacks_del(channel->callbacks);
    nghttp2_option_del(channel->session_options);
    lh_rpc_pool_finish(&channel->pool);
    lh_rpc_recycle_finish(&channel->recycle);
    free(channel->user_agent);
    free(channel->authority);
    finish_identity(channel);
    free(channel);
}
