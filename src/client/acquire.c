/* lh_acquire and lh_acquire_all: what the caller asks for, checked, becomes an acquire_op. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bounds.h"
#include "base/text.h"
#include "client/acquire_op.h"
#include "client/blocking.h"
#include "client/client.h"
#include "client/context.h"

static enum lh_status check_options(const struct lh_acquire_options *options, struct lh_uuid *lease_key,
                                    struct lh_error *error)
{
    size_t name_size, count = 0;

    if (options->owner != NULL && lh_bounds_text("owner", LH_TEXT_OWNER, options->owner, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (options->wait_us < 0)
        return lh_bounds_refuse(error, "wait_us", "not negative", "wait_us must be 0 or more, not %" PRId64,
                                options->wait_us);
    if (options->timeout_us < 0)
        return lh_bounds_refuse(error, "timeout_us", "not negative", "timeout_us must be 0 or more, not %" PRId64,
                                options->timeout_us);
    if (options->lease_key != NULL && lh_bounds_lease_key(options->lease_key, lease_key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    for (; options->labels != NULL && options->labels[count] != NULL; count++) {
        if (count == LH_LABELS_MAX)
            return lh_bounds_refuse(error, "labels", "at most 16", "there are more than 16 labels");
        if (lh_bounds_label(options->labels[count], &name_size, error) != LH_OK)
            return LH_INVALID_ARGUMENT;
    }
    return LH_OK;
}

static enum lh_status check_scope(const struct lh_acquire_scope *scope, struct lh_error *error)
{
    if (scope->declared == NULL)
        return lh_bounds_refuse(error, "declared", "not NULL", "declared is missing");
    if (lh_bounds_key(scope->key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return lh_bounds_mode(scope->mode, scope->units, scope->at_least_us, error);
}

static struct acquire_item item_of(const struct lh_acquire_scope *scope)
{
    return (struct acquire_item){
        .declared = scope->declared,
        .scope_key = lh_strdup(scope->key),
        .at_least_us = scope->at_least_us,
        .mode = scope->mode,
        .units = scope->units,
        .user = scope->user,
    };
}

static void take_options(struct acquire_op *op, const struct lh_acquire_options *options)
{
    size_t name_size;

    op->on_waiting = options->on_waiting;
    op->on_waiting_arg = options->on_waiting_arg;
    op->wait_us = options->wait_us;
    op->waits_while_alive = options->wait_while_alive;
    op->owner = options->owner != NULL ? lh_strdup(options->owner) : NULL;
    op->parent = options->context != NULL ? lh_context_ref(options->context) : NULL;
    for (; options->labels != NULL && options->labels[op->label_count] != NULL; op->label_count++) {
        op->labels[op->label_count] = lh_strdup(options->labels[op->label_count]);
        lh_bounds_label(options->labels[op->label_count], &name_size, NULL);
        op->labels[op->label_count][name_size] = '\0';
    }
}

/* All of it is checked. */
static struct acquire_op *create(const struct lh_acquire_scope *scopes, size_t count,
                                 const struct lh_acquire_options *options, const struct lh_uuid *lease_key)
{
    struct acquire_op *op = lh_alloc_zero(1, sizeof(*op) + count * sizeof(op->items[0]));
    char name[LH_SCOPE_NAME_BYTES];

    for (; op->count < count; op->count++)
        op->items[op->count] = item_of(&scopes[op->count]);
    op->name = lh_strdup(lh_scope_name(scopes[0].declared->text, scopes[0].key, name));
    op->is_own_key = options->lease_key != NULL;
    op->key = op->is_own_key ? *lease_key : lh_uuid_random();
    take_options(op, options);
    return op;
}

static enum lh_status submit(struct acquire_op *op, const struct request_verb *verb,
                             const struct lh_acquire_options *options, struct lh_request **request,
                             struct lh_error *error)
{
    struct lh_declared *declared = op->items[0].declared;
    const struct lh_call_options call = {.timeout_us = options->timeout_us,
                                         .context = options->context,
                                         .strategy = options->strategy,
                                         .strategy_arg = options->strategy_arg};
    int64_t deadline_us;
    enum lh_status status;

    op->wait_until_us = lh_plus_us(lh_clock_us(), op->wait_us);
    deadline_us = op->waits_while_alive ? LH_FOREVER : op->wait_until_us;
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
    if (check_scope(&scope, error) != LH_OK || check_options(options, &lease_key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    op = create(&scope, 1, options, &lease_key);
    op->on_done = on_done;
    op->arg = arg;
    return submit(op, op->on_waiting != NULL ? &lh_acquire_stream_verb : &lh_acquire_verb, options, request, error);
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
        if (check_scope(&scopes[i], &words) == LH_OK &&
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

static enum lh_status refuse_options_of_one(const struct lh_acquire_options *options, struct lh_error *error)
{
    const struct {
        const char *field;
        bool is_set;
    } of_one[] = {
        {"mode", options->mode != LH_EXCLUSIVE},         {"units", options->units != 0},
        {"at_least_us", options->at_least_us != 0},      {"user", options->user != NULL},
        {"wait_while_alive", options->wait_while_alive}, {"on_waiting", options->on_waiting != NULL},
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
        check_options(options, &lease_key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    op = create(scopes, count, options, &lease_key);
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
