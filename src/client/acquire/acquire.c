/* lh_acquire and lh_acquire_all: what the caller asks for, checked, becomes an acquire_op. */
#include <stdio.h>
#include <string.h>

#include "base/bounds.h"
#include "client/acquire_internal.h"
#include "client/client.h"
#include "client/request_internal.h"

static enum lh_status submit(struct acquire_op *op, const struct request_verb *verb,
                             const struct lh_acquire_options *options, struct lh_request **request,
                             struct lh_error *error)
{
    struct lh_declared *declared = op->items[0].wanted.declared;
    const struct lh_call_options call = {.timeout_us = options->timeout_us,
                                         .context = options->context,
                                         .strategy = options->strategy,
                                         .strategy_arg = options->strategy_arg};
    int64_t deadline_us;
    enum lh_status status;

    op->wait_until_us = lh_plus_us(lh_clock_us(), op->options.wait_us);
    deadline_us = op->options.wait_while_alive ? LH_FOREVER : op->wait_until_us;
    deadline_us = lh_plus_us(deadline_us, call.timeout_us > 0 ? call.timeout_us : declared->client->timeout_us);
    lh_request_init(&op->request, declared->client, verb, deadline_us, &call,
                    declared->has_strategy ? &declared->strategy : NULL);
    op->request.name = op->name;
    if (request != NULL)
        *request = &op->request;
    status = lh_request_submit(&op->request, lh_acquire_start, error);
    if (status != LH_OK) {
        lh_request_drop(&op->request);
        lh_acquire_destroy(op);
    }
    return status;
}

static const struct lh_acquire_options no_options;

enum lh_status lh_acquire_async(struct lh_declared *declared, const char *key, const struct lh_acquire_options *options,
                                lh_acquired_cb *on_done, void *arg, struct lh_request **request, struct lh_error *error)
{
    struct lh_uuid lease_key = {{0}};
    struct lh_acquire_scope scope;
    struct acquire_op *op;

    if (options == NULL)
        options = &no_options;
    if (on_done == NULL)
        return lh_bounds_refuse(error, "on_done", "not NULL", "on_done is missing");
    scope = (struct lh_acquire_scope){.declared = declared,
                                      .key = key,
                                      .mode = options->mode,
                                      .units = options->units,
                                      .at_least_us = options->at_least_us,
                                      .user = options->user};
    if (lh_acquire_check_scope(&scope, error) != LH_OK || lh_acquire_check_options(options, &lease_key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    op = lh_acquire_create(&scope, 1, options, &lease_key);
    op->on_done = on_done;
    op->arg = arg;
    return submit(op, op->options.on_waiting != NULL ? &lh_acquire_stream_verb : &lh_acquire_verb, options, request,
                  error);
}

/* What is wrong with one of them has its place in the list in its name. */
static enum lh_status check_scopes(const struct lh_acquire_scope *scopes, size_t count, struct lh_error *error)
{
    struct lh_error words;

    if (scopes == NULL || count == 0 || count > LH_ACQUIRE_ALL_MAX)
        return lh_bounds_refuse(error, "scopes", "1 to 100", "there are %zu scopes; there must be 1 to %d", count,
                                LH_ACQUIRE_ALL_MAX);
    for (size_t i = 0; i < count; i++) {
        words = (struct lh_error){0};
        if (lh_acquire_check_scope(&scopes[i], &words) == LH_OK &&
            (scopes[i].declared->client != scopes[0].declared->client ||
             scopes[i].declared->options.duration_us != scopes[0].declared->options.duration_us))
            lh_bounds_refuse(&words, "declared", "of one client, with one duration",
                             "its declaration has another client or another duration than the first");
        if (words.status == LH_OK)
            continue;
        if (error != NULL) {
            *error = words;
            snprintf(error->field, sizeof(error->field), "scopes[%zu].%.40s", i, words.field);
            snprintf(error->message, sizeof(error->message), "scopes[%zu]: %.480s", i, words.message);
        }
        return LH_INVALID_ARGUMENT;
    }
    return LH_OK;
}

#define NUMBER_IS_SET(name, option, most, options) {#name, (options)->name != 0},

static enum lh_status refuse_options_of_one(const struct lh_acquire_options *options, struct lh_error *error)
{
    const struct {
        const char *field;
        bool is_set;
    } of_one[] = {
        {"mode", options->mode != LH_EXCLUSIVE},
        {"units", options->units != 0},
        {"at_least_us", options->at_least_us != 0},
        {"user", options->user != NULL},
        LH_ACQUIRE_NUMBERS(NUMBER_IS_SET, options){"wait_while_alive", options->wait_while_alive},
        {"on_waiting", options->on_waiting != NULL},
        {"ask_hand_over", options->ask_hand_over},
    };

    for (size_t i = 0; i < sizeof(of_one) / sizeof(of_one[0]); i++)
        if (of_one[i].is_set)
            return lh_bounds_refuse(error, of_one[i].field, "not set",
                                    "%s is for the acquire of one scope; here it must not be set%s", of_one[i].field,
                                    i < 4 ? ", each scope has its own" : "");
    return LH_OK;
}

enum lh_status lh_acquire_all_async(const struct lh_acquire_scope *scopes, size_t count,
                                    const struct lh_acquire_options *options, lh_acquired_all_cb *on_done, void *arg,
                                    struct lh_request **request, struct lh_error *error)
{
    struct lh_uuid lease_key = {{0}};
    struct acquire_op *op;

    if (options == NULL)
        options = &no_options;
    if (on_done == NULL)
        return lh_bounds_refuse(error, "on_done", "not NULL", "on_done is missing");
    if (check_scopes(scopes, count, error) != LH_OK || refuse_options_of_one(options, error) != LH_OK ||
        lh_acquire_check_options(options, &lease_key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    op = lh_acquire_create(scopes, count, options, &lease_key);
    op->on_all_done = on_done;
    op->arg = arg;
    return submit(op, &lh_acquire_all_verb, options, request, error);
}

static void on_blocking_done(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    struct blocked *blocked = arg;

    blocked->lease = lease;
    lh_blocked_wake(blocked, status, error);
}

enum lh_status lh_acquire(struct lh_declared *declared, const char *key, const struct lh_acquire_options *options,
                          struct lh_lease **lease, struct lh_error *error)
{
    struct blocked blocked;
    enum lh_status status;

    if (lease == NULL || declared == NULL)
        return lh_bounds_refuse(error, lease == NULL ? "lease" : "declared", "not NULL", "an argument is missing");
    *lease = NULL;
    status = lh_blocked_begin(&blocked, declared->client, error);
    if (status == LH_OK)
        status = lh_acquire_async(declared, key, options, on_blocking_done, &blocked, NULL, error);
    status = lh_blocked_wait(&blocked, status);
    *lease = blocked.lease;
    return status;
}

struct blocked_all {
    struct blocked blocked;
    struct lh_lease **leases;
    size_t count;
};

static void on_blocking_all_done(void *arg, enum lh_status status, struct lh_lease *const *leases,
                                 const struct lh_error *error)
{
    struct blocked_all *all = arg;

    if (status == LH_OK)
        memcpy(all->leases, leases, all->count * sizeof(*leases));
    lh_blocked_wake(&all->blocked, status, error);
}

enum lh_status lh_acquire_all(const struct lh_acquire_scope *scopes, size_t count,
                              const struct lh_acquire_options *options, struct lh_lease **leases,
                              struct lh_error *error)
{
    struct blocked_all all = {.leases = leases, .count = count};
    enum lh_status status;

    if (leases == NULL)
        return lh_bounds_refuse(error, "leases", "not NULL", "leases is missing");
    if (check_scopes(scopes, count, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    memset(leases, 0, count * sizeof(*leases));
    status = lh_blocked_begin(&all.blocked, scopes[0].declared->client, error);
    if (status == LH_OK)
        status = lh_acquire_all_async(scopes, count, options, on_blocking_all_done, &all, NULL, error);
    return lh_blocked_wait(&all.blocked, status);
}
