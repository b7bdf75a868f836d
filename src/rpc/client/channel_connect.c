/*
 * An attempt to connect: addresses are tried one after the other, without blocking, each with its TLS handshake. When
 * it has failed at the last address the waiting calls are answered NOT_SENT: UNAVAILABLE, or UNAUTHENTICATED where a
 * certificate was the reason at one of them, for that will be no better in a moment.
 */
#include "rpc/client/client_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tls/context.h"

/* "HOST:PORT", "[IPv6]:PORT" */
static char *host_of(const char *target)
{
    const char *end = strrchr(target, ':');

    if (target[0] == '[')
        return lh_format("%.*s", (int)(end - target) - 2, target + 1);
    return lh_format("%.*s", (int)(end - target), target);
}

void lh_rpc_channel_set_tls(struct lh_rpc_channel *channel, const char *target)
{
    const struct lh_rpc_tls *wanted = channel->options.tls;

    channel->options.tls = NULL; /* the caller's */
    if (wanted == NULL || channel->addresses[0].storage.ss_family == AF_UNIX)
        return;
    channel->tls = lh_alloc_zero(1, sizeof(*channel->tls));
    channel->tls->ca_file = lh_strdup(wanted->ca_file);
    channel->tls->crl_file = lh_strdup(wanted->crl_file);
    channel->tls->cert_file = lh_strdup(wanted->cert_file);
    channel->tls->key_file = lh_strdup(wanted->key_file);
    channel->tls->server_name = wanted->server_name != NULL ? lh_strdup(wanted->server_name) : host_of(target);
}

void lh_rpc_channel_finish_tls(struct lh_rpc_channel *channel)
{
    struct lh_rpc_tls *tls = channel->tls;

    if (tls == NULL)
        return;
    free((char *)(uintptr_t)tls->ca_file);
    free((char *)(uintptr_t)tls->crl_file);
    free((char *)(uintptr_t)tls->cert_file);
    free((char *)(uintptr_t)tls->key_file);
    free((char *)(uintptr_t)tls->server_name);
    free(tls);
}

void lh_rpc_channel_stop_connecting(struct lh_rpc_channel *channel)
{
    lh_timer_cancel(&channel->connect_timer);
    lh_watch_finish(&channel->connect_watch);
    lh_deferred_cancel(&channel->connect_next);
    lh_tls_session_destroy(channel->connect_tls);
    channel->connect_tls = NULL;
    if (channel->connect_fd >= 0)
        close(channel->connect_fd);
    channel->connect_fd = -1;
}

static void fail_address(struct lh_rpc_channel *channel, enum lh_grpc_code code, const char *reason)
{
    char where[LH_ADDRESS_TEXT_BYTES];

    lh_address_format(&channel->addresses[channel->address_at], where);
    if (channel->connect_code != LH_GRPC_UNAUTHENTICATED)
        snprintf(channel->connect_failure, sizeof(channel->connect_failure), "cannot connect to %s: %s", where, reason);
    if (code == LH_GRPC_UNAUTHENTICATED)
        channel->connect_code = code;
    lh_rpc_channel_stop_connecting(channel);
    channel->address_at++;
    lh_defer(channel->loop, &channel->connect_next);
}

void lh_rpc_channel_on_connect_timeout(void *arg)
{
    fail_address(arg, LH_GRPC_UNAVAILABLE, "no answer in time");
}

static void use_connection(struct lh_rpc_channel *channel)
{
    struct lh_tls_session *tls = channel->connect_tls;
    int fd = channel->connect_fd;

    channel->connect_tls = NULL;
    channel->connect_fd = -1;
    lh_rpc_channel_stop_connecting(channel);
    lh_rpc_channel_use_connection(channel, fd, tls);
}

static void shake_hands(struct lh_rpc_channel *channel)
{
    const struct lh_tls_session *tls = channel->connect_tls;

    switch (lh_tls_session_handshake(channel->connect_tls)) {
    case LH_TLS_DONE:
        use_connection(channel);
        break;
    case LH_TLS_WANTS_READ:
        lh_watch_want(&channel->connect_watch, LH_WATCH_READ);
        break;
    case LH_TLS_WANTS_WRITE:
        lh_watch_want(&channel->connect_watch, LH_WATCH_WRITE);
        break;
    case LH_TLS_FAILED:
        fail_address(channel,
                     lh_tls_session_fault(tls) == LH_TLS_FAULT_CERTIFICATE ? LH_GRPC_UNAUTHENTICATED
                                                                           : LH_GRPC_UNAVAILABLE,
                     lh_tls_session_failure(tls));
        break;
    }
}

static void begin_tls(struct lh_rpc_channel *channel)
{
    const struct lh_tls_client_options options = {
        .ca_file = channel->tls->ca_file,
        .crl_file = channel->tls->crl_file,
        .cert_file = channel->tls->cert_file,
        .key_file = channel->tls->key_file,
        .protocol = "h2",
    };
    struct lh_error error = {0};
    struct lh_tls_context *context = lh_tls_client_context_create(&options, &error);

    if (context == NULL) {
        fail_address(channel, LH_GRPC_UNAUTHENTICATED, error.message);
        return;
    }
    channel->connect_tls = lh_tls_session_create(context, channel->connect_fd, channel->tls->server_name);
    lh_tls_context_release(context);
    shake_hands(channel);
}

static void on_connect_ready(void *arg, unsigned ready)
{
    struct lh_rpc_channel *channel = arg;
    int failure = 0;
    socklen_t size = sizeof(failure);

    if (channel->connect_tls != NULL) {
        shake_hands(channel);
        return;
    }
    if (getsockopt(channel->connect_fd, SOL_SOCKET, SO_ERROR, &failure, &size) != 0)
        failure = errno;
    if (failure != 0)
        fail_address(channel, LH_GRPC_UNAVAILABLE, strerror(failure));
    else if (channel->tls != NULL)
        begin_tls(channel);
    else
        use_connection(channel);
}

/* A token that cannot be had will be no better at another address. */
static bool has_token(struct lh_rpc_channel *channel)
{
    struct lh_error error;

    if (channel->bearer.file == NULL || lh_rpc_bearer_read(&channel->bearer, &error))
        return true;
    channel->connect_code = LH_GRPC_UNAUTHENTICATED;
    snprintf(channel->connect_failure, sizeof(channel->connect_failure), "%s", error.message);
    return false;
}

static void fail_attempt(struct lh_rpc_channel *channel)
{
    /* The calls first: one that is made by the state's callback belongs to the next attempt. */
    lh_rpc_client_calls_lose(&channel->waiting, channel->connect_code, channel->connect_failure);
    lh_rpc_channel_set_state(channel, LH_RPC_CHANNEL_IDLE, channel->connect_failure);
}

void lh_rpc_channel_connect_next(void *arg)
{
    struct lh_rpc_channel *channel = arg;
    const struct lh_address *address = &channel->addresses[channel->address_at];

    if (channel->address_at == channel->address_count || (channel->address_at == 0 && !has_token(channel))) {
        fail_attempt(channel);
        return;
    }
    channel->connect_fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (channel->connect_fd < 0 ||
        (connect(channel->connect_fd, (const struct sockaddr *)(const void *)&address->storage, address->size) != 0 &&
         errno != EINPROGRESS)) {
        fail_address(channel, LH_GRPC_UNAVAILABLE, strerror(errno));
        return;
    }
    lh_watch_init(&channel->connect_watch, channel->loop, channel->connect_fd, on_connect_ready, channel);
    lh_watch_want(&channel->connect_watch, LH_WATCH_WRITE);
    lh_timer_arm_at_us(&channel->connect_timer, lh_clock_us() + channel->options.connect_timeout_us);
}
