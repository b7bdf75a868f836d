#include "client/acquire_internal.h"

#include <string.h>

#include "base/bounds.h"
#include "base/clock.h"
#include "base/text.h"
#include "client/client.h"
#include "client/context.h"
#include "client/lease_internal.h"

/* --- checking and keeping --- */

enum lh_status lh_acquire_check_options(const struct lh_acquire_options *options, struct lh_uuid *lease_key,
                                        struct lh_error *error)
{
    const int32_t numbers[] = {LH_ACQUIRE_NUMBERS(LH_NUMBER_VALUE, options)};
    size_t name_size, count = 0;

    if (options->owner != NULL && lh_bounds_text("owner", LH_TEXT_OWNER, options->owner, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (lh_bounds_acquire_numbers(numbers, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (options->ask_hand_over && options->wait_us == 0 && !options->wait_while_alive)
        return lh_bounds_refuse(error, "ask_hand_over", "with a wait",
                                "ask_hand_over is for requests that wait; wait_us is 0");
    if (lh_bounds_time("wait_us", options->wait_us, error) != LH_OK ||
        lh_bounds_time("timeout_us", options->timeout_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (options->lease_key != NULL && lh_bounds_lease_key(options->lease_key, lease_key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    for (; options->labels != NULL && options->labels[count] != NULL; count++) {
        if (count == LH_LABELS_MAX)
            return lh_bounds_refuse(error, "labels", "at most 16", "labels must be at most %d, are more",
                                    LH_LABELS_MAX);
        if (lh_bounds_label(options->labels[count], &name_size, error) != LH_OK)
            return LH_INVALID_ARGUMENT;
    }
    return LH_OK;
}

enum lh_status lh_acquire_check_scope(const struct lh_acquire_scope *scope, struct lh_error *error)
{
    if (scope->declared == NULL)
        return lh_bounds_refuse(error, "declared", "not NULL", "declared is missing");
    if (lh_bounds_key(scope->key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return lh_bounds_mode(scope->mode, scope->units, scope->at_least_us, error);
}

static void keep_labels(struct acquire_op *op)
{
    const char **labels = lh_arena_alloc(&op->strings, (LH_LABELS_MAX + 1) * sizeof(*labels));
    size_t count = 0;

    for (; op->options.labels != NULL && op->options.labels[count] != NULL; count++)
        labels[count] = lh_arena_strdup(&op->strings, op->options.labels[count]);
    labels[count] = NULL;
    op->options.labels = labels;
}

struct acquire_op *lh_acquire_create(const struct lh_acquire_scope *scopes, size_t count,
                                     const struct lh_acquire_options *options, const struct lh_uuid *lease_key)
{
    struct acquire_op *op = lh_alloc_zero(1, sizeof(*op) + count * sizeof(op->items[0]));
    const char *owner = options->owner != NULL ? options->owner : scopes[0].declared->client->owner;

    for (; op->count < count; op->count++) {
        op->items[op->count].wanted = scopes[op->count];
        op->items[op->count].wanted.key = lh_arena_strdup(&op->strings, scopes[op->count].key);
    }
    op->name = lh_arena_strdup(&op->strings, LH_SCOPE_NAME(scopes[0].declared->text, scopes[0].key));
    op->is_own_key = options->lease_key != NULL;
    op->key = op->is_own_key ? *lease_key : lh_uuid_random();
    op->options = *options;
    op->options.owner = lh_arena_strdup(&op->strings, owner);
    op->options.context = options->context != NULL ? lh_context_ref(options->context) : NULL;
    keep_labels(op);
    return op;
}

/* --- messages --- */

/* Of either request: protobuf-c makes a type of its own for each, with the same members. */
static void *pack_labels(const char *const *texts, const ProtobufCMessageDescriptor *type, size_t *count,
                         struct lh_arena *arena)
{
    Leasehold__V1__AcquireRequest__LabelsEntry **labels = lh_arena_alloc(arena, LH_LABELS_MAX * sizeof(*labels));

    for (*count = 0; texts != NULL && texts[*count] != NULL; ++*count) {
        Leasehold__V1__AcquireRequest__LabelsEntry *label = lh_arena_alloc(arena, type->sizeof_message);
        protobuf_c_message_init(type, &label->base);
        label->key = lh_arena_strdup(arena, texts[*count]);
        label->value = strchr(label->key, '=');
        *label->value++ = '\0';
        labels[*count] = label;
    }
    return labels;
}

/* What is left of the wait; NULL: none, or for ever. */
static Google__Protobuf__Duration *pack_wait(int64_t wait_us, int64_t left_us, struct lh_arena *arena)
{
    if (wait_us <= 0 || wait_us == LH_FOREVER)
        return NULL;
    return lh_pack_duration(left_us > 0 ? left_us : 0, arena);
}

static Google__Protobuf__Duration *pack_at_least(int64_t at_least_us, struct lh_arena *arena)
{
    if (at_least_us == 0)
        return NULL;
    return lh_pack_duration(at_least_us == LH_NO_MINIMUM ? 0 : at_least_us, arena);
}

static int32_t units_of(int32_t units)
{
    return units > 0 ? units : 1;
}

Leasehold__V1__AcquireRequest *lh_acquire_message(Leasehold__V1__Scope *scope, char *lease_key, int64_t duration_us,
                                                  const struct lh_acquire_options *options, int64_t left_us,
                                                  struct lh_arena *arena)
{
    Leasehold__V1__AcquireRequest *message = lh_arena_alloc(arena, sizeof(*message));

    leasehold__v1__acquire_request__init(message);
    message->scope = scope;
    message->duration = lh_pack_duration(duration_us, arena);
    message->lease_key = lease_key;
    message->owner = (char *)(uintptr_t)options->owner;
    message->at_least = pack_at_least(options->at_least_us, arena);
    if (options->mode == LH_SHARED) { /* else unspecified, which is exclusive */
        message->mode = LEASEHOLD__V1__MODE__MODE_SHARED;
        message->units = units_of(options->units);
    }
    LH_ACQUIRE_NUMBERS(LH_NUMBER_COPY, message, options)
    message->wait_while_alive = options->wait_while_alive;
    message->wait_forever = options->wait_us == LH_FOREVER && !options->wait_while_alive;
    message->wait = pack_wait(options->wait_us, left_us, arena);
    /* The last attempt has no time left to wait. */
    message->ask_hand_over =
        options->ask_hand_over && (message->wait_forever || message->wait_while_alive || left_us > 0);
    message->labels = pack_labels(options->labels, &leasehold__v1__acquire_request__labels_entry__descriptor,
                                  &message->n_labels, arena);
    return message;
}

#define FIRST_US LH_US_PER_S

/* What is left of the wait, which the request is told too. A first try that begins soon has all of it: an error shall
 * name what was asked, also where the machine is busy. */
static int64_t left_us(struct acquire_op *op)
{
    const struct lh_acquire_options *options = &op->options;
    int64_t left_us = options->wait_us;

    if (!options->wait_while_alive && options->wait_us > 0 && options->wait_us != LH_FOREVER) {
        left_us = op->wait_until_us - lh_clock_us();
        if (op->request.retry.attempts == 0 && options->wait_us - left_us < FIRST_US)
            left_us = options->wait_us;
        left_us = left_us > 0 ? left_us : 0;
    }
    op->request.wait_us = options->wait_while_alive ? LH_FOREVER : left_us;
    return left_us;
}

void lh_acquire_pack(struct lh_request *request, struct lh_buffer *buffer)
{
    struct acquire_op *op = LH_CONTAINER(struct acquire_op, request, request);
    const struct lh_acquire_scope *wanted = &op->items[0].wanted;
    struct lh_arena arena = {0};

    lh_pack_message(&lh_acquire_message(lh_pack_scope(wanted->declared, wanted->key, &arena), LH_UUID_TEXT(&op->key),
                                        wanted->declared->options.duration_us, &op->options, left_us(op), &arena)
                         ->base,
                    buffer);
    lh_arena_finish(&arena);
}

static Leasehold__V1__AcquireItem *pack_item(const struct lh_acquire_scope *wanted, struct lh_arena *arena)
{
    Leasehold__V1__AcquireItem *message = lh_arena_alloc(arena, sizeof(*message));

    leasehold__v1__acquire_item__init(message);
    message->scope = lh_pack_scope(wanted->declared, wanted->key, arena);
    message->at_least = pack_at_least(wanted->at_least_us, arena);
    if (wanted->mode == LH_SHARED) {
        message->mode = LEASEHOLD__V1__MODE__MODE_SHARED;
        message->units = units_of(wanted->units);
    }
    return message;
}

void lh_acquire_all_pack(struct lh_request *request, struct lh_buffer *buffer)
{
    struct acquire_op *op = LH_CONTAINER(struct acquire_op, request, request);
    Leasehold__V1__AcquireAllRequest message = LEASEHOLD__V1__ACQUIRE_ALL_REQUEST__INIT;
    struct lh_arena arena = {0};

    message.items = lh_arena_alloc(&arena, op->count * sizeof(message.items[0]));
    for (; message.n_items < op->count; message.n_items++)
        message.items[message.n_items] = pack_item(&op->items[message.n_items].wanted, &arena);
    message.duration = lh_pack_duration(op->items[0].wanted.declared->options.duration_us, &arena);
    message.lease_key = LH_UUID_TEXT(&op->key);
    message.owner = (char *)(uintptr_t)op->options.owner;
    message.wait_forever = op->options.wait_us == LH_FOREVER;
    message.wait = pack_wait(op->options.wait_us, left_us(op), &arena);
    message.labels = pack_labels(op->options.labels, &leasehold__v1__acquire_all_request__labels_entry__descriptor,
                                 &message.n_labels, &arena);
    lh_pack_message(&message.base, buffer);
    lh_arena_finish(&arena);
}
