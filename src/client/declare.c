/* Declarations, and what may be asked of a lease. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/check.h"
#include "client/context.h"
#include "client/lease.h"

#define DURATION_DEFAULT_US (30 * LH_US_PER_S)
#define DURATION_MIN_US (100 * LH_US_PER_MS)
#define DURATION_MAX_US (365 * 86400 * LH_US_PER_S)
#define MARGIN_PART 10

static enum lh_status take_times(struct lh_declare_options *options, struct lh_error *error)
{
    if (options->duration_us == 0)
        options->duration_us = DURATION_DEFAULT_US;
    if (options->duration_us < DURATION_MIN_US || options->duration_us > DURATION_MAX_US)
        return check_refuse(error, "duration_us", "100 ms to 365 d", "duration_us is out of bounds: 100 ms to 365 d");
    if (options->margin_us == 0)
        options->margin_us = options->duration_us / MARGIN_PART;
    if (options->margin_us < 0 || options->margin_us >= options->duration_us)
        return check_refuse(error, "margin_us", "below duration_us", "margin_us must be below duration_us");
    if (options->longest_hold_us < 0)
        return check_refuse(error, "longest_hold_us", "not negative", "longest_hold_us is negative");
    return LH_OK;
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
        check_refuse(error, client == NULL ? "client" : "namespace", "not NULL", "an argument is missing");
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
        check_namespace(declared->memory, declared->segments, &declared->segment_count, error) != LH_OK) {
        destroy(declared);
        return NULL;
    }
    pthread_mutex_lock(&client->mutex);
    if (client->state == CLIENT_OPEN)
        lh_list_append(&client->declarations, &declared->link);
    pthread_mutex_unlock(&client->mutex);
    if (!lh_link_is_linked(&declared->link)) {
        lh_error_set(error, LH_CLOSED, "the client was closed");
        destroy(declared);
        return NULL;
    }
    return declared;
}

void declarations_destroy(struct lh_client *client)
{
    while (!lh_list_is_empty(&client->declarations)) {
        struct lh_declared *declared = LH_LIST_FIRST(struct lh_declared, &client->declarations, link);
        lh_list_remove(&declared->link);
        destroy(declared);
    }
}

/* --- leases --- */

int64_t lh_lease_deadline_us(const struct lh_lease *lease)
{
    return lease == NULL ? 0 : atomic_load(&lease->deadline_us);
}

int64_t lh_lease_remaining_us(const struct lh_lease *lease)
{
    return lease == NULL ? 0 : atomic_load(&lease->deadline_us) - lh_clock_us();
}

bool lh_lease_is_held(const struct lh_lease *lease)
{
    return lease != NULL && lease_is_held(lease) && lh_lease_remaining_us(lease) > 0;
}

int64_t lh_lease_token(const struct lh_lease *lease)
{
    return lease == NULL ? 0 : lease->token;
}

const char *lh_lease_namespace(const struct lh_lease *lease)
{
    return lease == NULL ? "" : lease->declared->text;
}

const char *lh_lease_scope_key(const struct lh_lease *lease)
{
    return lease == NULL ? "" : lease->scope_key;
}

void lh_lease_key(const struct lh_lease *lease, char text[37])
{
    static const struct lh_uuid none;
    lh_uuid_format(lease == NULL ? &none : &lease->key, text);
}

void *lh_lease_user(const struct lh_lease *lease)
{
    return lease == NULL ? NULL : lease->user;
}

enum lh_lost_reason lh_lease_lost_reason(const struct lh_lease *lease)
{
    return (enum lh_lost_reason)(lease == NULL ? 0 : LEASE_REASON(atomic_load(&lease->state)));
}

/* Made when first asked for. What happened to the lease meanwhile is caught up with. */
struct lh_context *lh_lease_context(struct lh_lease *lease)
{
    struct lh_context *context, *made;
    unsigned char state;

    if (lease == NULL)
        return NULL;
    context = atomic_load(&lease->context);
    if (context != NULL)
        return context;
    made = context_create_for_lease(NULL, atomic_load(&lease->deadline_us) - lease->declared->options.margin_us);
    if (!atomic_compare_exchange_strong(&lease->context, &context, made)) {
        lh_context_destroy(made);
        return context;
    }
    state = atomic_load(&lease->state);
    if (LEASE_REASON(state) != 0)
        lh_context_cancel(made, lh_lost_reason_name((enum lh_lost_reason)LEASE_REASON(state)));
    else if (LEASE_STATE(state) != LEASE_HELD)
        context_free_of_time(made);
    else
        context_move(made, atomic_load(&lease->deadline_us) - lease->declared->options.margin_us);
    return made;
}
