#include "client/endpoints.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

#define DEFAULT_ENDPOINT "127.0.0.1:7420"
#define CONNECT_TIMEOUT_US (2 * LH_US_PER_S)

/* A server that stands still is found out after twice that, where a call waits for its answer. */
#define KEEPALIVE_US (5 * LH_US_PER_S)

static enum lh_status add(struct endpoints *endpoints, struct lh_loop *loop, char *target,
                          const struct lh_client_options *options, struct lh_error *error)
{
    struct lh_rpc_channel_options channel_options;
    struct endpoint *endpoint;
    struct lh_rpc_channel *channel;

    if (endpoints->count == LH_ENDPOINTS_MAX)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "endpoints: there are more than %d", LH_ENDPOINTS_MAX);
    lh_rpc_channel_options_init(&channel_options);
    channel_options.connect_timeout_us =
        options->connect_timeout_us > 0 ? options->connect_timeout_us : CONNECT_TIMEOUT_US;
    channel_options.keepalive_us = KEEPALIVE_US;
    channel = lh_rpc_channel_create(loop, target, &channel_options, error);
    if (channel == NULL)
        return LH_INVALID_ARGUMENT;
    endpoint = &endpoints->items[endpoints->count++];
    endpoint->target = lh_strdup(target);
    endpoint->channel = channel;
    breaker_init(&endpoint->breaker, endpoint->target, options->breaker_failures, options->breaker_open_us);
    return LH_OK;
}

enum lh_status endpoints_init(struct endpoints *endpoints, struct lh_loop *loop,
                              const struct lh_client_options *options, struct lh_error *error)
{
    const char *text = options->endpoints != NULL ? options->endpoints : getenv("LEASEHOLD_SERVER");
    enum lh_status status = LH_OK;
    char *copy, *rest, *target;

    *endpoints = (struct endpoints){0};
    rest = copy = lh_strdup(text != NULL ? text : DEFAULT_ENDPOINT);
    while (status == LH_OK && (target = strsep(&rest, ",")) != NULL) {
        target += strspn(target, " ");
        target[strcspn(target, " ")] = '\0';
        status = add(endpoints, loop, target, options, error);
    }
    free(copy);
    if (status != LH_OK)
        endpoints_finish(endpoints);
    return status;
}

void endpoints_finish(struct endpoints *endpoints)
{
    for (size_t i = 0; i < endpoints->count; i++) {
        lh_rpc_channel_destroy(endpoints->items[i].channel);
        free(endpoints->items[i].target);
    }
    endpoints->count = 0;
}

struct endpoint *endpoints_admit(struct endpoints *endpoints, size_t wanted, int64_t now_us, uint64_t *ticket)
{
    for (size_t i = 0; i < endpoints->count; i++) {
        struct endpoint *endpoint = &endpoints->items[(wanted + i) % endpoints->count];
        *ticket = breaker_admit(&endpoint->breaker, now_us);
        if (*ticket != BREAKER_OPEN)
            return endpoint;
    }
    return NULL;
}

void endpoints_leave(struct endpoints *endpoints, const struct endpoint *endpoint)
{
    size_t index = endpoints_index(endpoints, endpoint);
    if (endpoints->current == index)
        endpoints->current = (index + 1) % endpoints->count;
}

size_t endpoints_index(const struct endpoints *endpoints, const struct endpoint *endpoint)
{
    return (size_t)(endpoint - endpoints->items);
}
