#include "client/lease_internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/bounds.h"
#include "client/client.h"

#define DURATION_DEFAULT_US (30 * LH_US_PER_S)
#define DURATION_MAX_US (365 * 86400 * LH_US_PER_S)
#define MARGIN_PART 10

static enum lh_status take_times(struct lh_declare_options *options, struct lh_error *error)
{
    if (options->duration_us == 0)
        options->duration_us = DURATION_DEFAULT_US;
    if (lh_bounds_duration("duration_us", options->duration_us, LH_DURATION_MIN_US, DURATION_MAX_US, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (options->margin_us == 0)
        options->margin_us = options->duration_us / MARGIN_PART;
    if (lh_bounds_time("margin_us", options->margin_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (options->margin_us >= options->duration_us)
        return lh_bounds_refuse(error, "margin_us", "below duration_us",
                                "margin_us must be below duration_us, which is %" PRId64 ", is %" PRId64,
                                options->duration_us, options->margin_us);
    return lh_bounds_time("longest_hold_us", options->longest_hold_us, error);
}

static void destroy(struct lh_declared *declared)
{
    free(declared->text);
    free(declared->memory);
    free(declared);
}

struct lh_declared *lh_declare(struct lh_client *client, const char *namespace_text,
                               const struct lh_declare_options *options, struct lh_error *error)
{
    struct lh_declared *declared;

    if (client == NULL || namespace_text == NULL) {
        lh_bounds_refuse(error, client == NULL ? "client" : "namespace", "not NULL", "an argument is missing");
        return NULL;
    }
    declared = lh_alloc_zero(1, sizeof(*declared));
    declared->client = client;
    if (options != NULL)
        declared->options = *options;
    declared->has_strategy = declared->options.strategy != NULL;
    if (declared->has_strategy)
        declared->strategy = *declared->options.strategy;
    declared->text =
        client->prefix[0] != '\0' ? lh_format("%s.%s", client->prefix, namespace_text) : lh_strdup(namespace_text);
    declared->memory = lh_strdup(declared->text);
    lh_list_init(&declared->held);
    if (take_times(&declared->options, error) != LH_OK ||
        lh_bounds_namespace(declared->memory, declared->segments, &declared->segment_count, error) != LH_OK) {
        destroy(declared);
        return NULL;
    }
    if (!lh_client_is_forked(client)) {
        pthread_mutex_lock(&client->mutex);
        if (client->state == CLIENT_OPEN)
            lh_list_append(&client->declarations, &declared->link);
        pthread_mutex_unlock(&client->mutex);
    }
    if (!lh_link_is_linked(&declared->link)) {
        lh_error_set(error, LH_CLOSED, "%s", lh_client_closed_words(client));
        destroy(declared);
        return NULL;
    }
    return declared;
}

void lh_declarations_destroy(struct lh_client *client)
{
    while (!lh_list_is_empty(&client->declarations)) {
        struct lh_declared *declared = LH_LIST_FIRST(struct lh_declared, &client->declarations, link);
        lh_list_remove(&declared->link);
        destroy(declared);
    }
}

/* --- forks --- */

/* Counts forks, and tells the clients that a child inherited from those that it made. */
static atomic_uint forks; /* of this process and its ancestors, since the first client */

static void on_fork_in_child(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, on_fork_in_child);
}

unsigned lh_client_count_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    return atomic_load(&forks);
}

bool lh_client_is_forked(const struct lh_client *client)
{
    return client->forks != atomic_load(&forks);
}

const char *lh_client_closed_words(const struct lh_client *client)
{
    return lh_client_is_forked(client) ? "the client was made before a fork: make a new one in the child"
                                       : "the client was closed";
}
