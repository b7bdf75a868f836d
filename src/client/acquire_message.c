/* An acquire's request, and what comes back while it waits. */
#include <string.h>

#include "client/acquire_message.h"
#include "client/client.h"
#include "client/lease_message.h"

/* Of either request: protobuf-c makes a type of its own for each, with the same members. */
static void *labels_of(const struct acquire_op *op, const ProtobufCMessageDescriptor *type, struct lh_arena *arena)
{
    Leasehold__V1__AcquireRequest__LabelsEntry **labels =
        lh_arena_alloc(arena, (op->label_count + 1) * sizeof(*labels));

    for (size_t i = 0; i < op->label_count; i++) {
        labels[i] = lh_arena_alloc(arena, type->sizeof_message);
        protobuf_c_message_init(type, labels[i]);
        labels[i]->key = op->labels[i];
        labels[i]->value = op->labels[i] + strlen(op->labels[i]) + 1;
    }
    return labels;
}

#define FIRST_US (10 * LH_US_PER_MS)

/* What is left of the wait; NULL: none, or for ever. */
static Google__Protobuf__Duration *wait_of(struct acquire_op *op, struct lh_arena *arena)
{
    int64_t left_us = op->wait_us;

    op->request.wait_us = op->waits_while_alive ? LH_FOREVER : op->wait_us;
    if (op->wait_us <= 0 || op->wait_us == LH_FOREVER)
        return NULL;
    if (!op->waits_while_alive) {
        left_us = op->wait_until_us - lh_clock_us();
        if (op->wait_us - left_us < FIRST_US) /* the first try: what was asked is what an error shall name */
            left_us = op->wait_us;
        op->request.wait_us = left_us = left_us > 0 ? left_us : 0;
    }
    return lh_pack_duration(left_us, arena);
}

static char *owner_of(const struct acquire_op *op)
{
    return op->owner != NULL ? op->owner : op->request.client->owner;
}

static Google__Protobuf__Duration *at_least_of(const struct acquire_item *item, struct lh_arena *arena)
{
    if (item->at_least_us == 0)
        return NULL;
    return lh_pack_duration(item->at_least_us == LH_NO_MINIMUM ? 0 : item->at_least_us, arena);
}

static int32_t units_of(const struct acquire_item *item)
{
    return item->units > 0 ? item->units : 1;
}

void lh_acquire_pack(struct lh_request *request, struct lh_buffer *buffer)
{
    struct acquire_op *op = LH_CONTAINER(struct acquire_op, request, request);
    const struct acquire_item *item = &op->items[0];
    Leasehold__V1__AcquireRequest message = LEASEHOLD__V1__ACQUIRE_REQUEST__INIT;
    struct lh_arena arena = {0};
    char key[LH_UUID_TEXT_BYTES];

    lh_uuid_format(&op->key, key);
    message.scope = lh_pack_scope(item->declared, item->scope_key, &arena);
    message.duration = lh_pack_duration(item->declared->options.duration_us, &arena);
    message.lease_key = key;
    message.owner = owner_of(op);
    message.at_least = at_least_of(item, &arena);
    if (item->mode == LH_SHARED) { /* else unspecified, which is exclusive */
        message.mode = LEASEHOLD__V1__MODE__MODE_SHARED;
        message.units = units_of(item);
    }
    message.wait_while_alive = op->waits_while_alive;
    message.wait_forever = op->wait_us == LH_FOREVER && !op->waits_while_alive;
    message.wait = wait_of(op, &arena);
    message.n_labels = op->label_count;
    message.labels = labels_of(op, &leasehold__v1__acquire_request__labels_entry__descriptor, &arena);
    lh_pack_message(&message.base, buffer);
    lh_arena_finish(&arena);
}

static Leasehold__V1__AcquireItem *item_of(const struct acquire_item *item, struct lh_arena *arena)
{
    Leasehold__V1__AcquireItem *message = lh_arena_alloc(arena, sizeof(*message));

    leasehold__v1__acquire_item__init(message);
    message->scope = lh_pack_scope(item->declared, item->scope_key, arena);
    message->at_least = at_least_of(item, arena);
    if (item->mode == LH_SHARED) {
        message->mode = LEASEHOLD__V1__MODE__MODE_SHARED;
        message->units = units_of(item);
    }
    return message;
}

void lh_acquire_all_pack(struct lh_request *request, struct lh_buffer *buffer)
{
    struct acquire_op *op = LH_CONTAINER(struct acquire_op, request, request);
    Leasehold__V1__AcquireAllRequest message = LEASEHOLD__V1__ACQUIRE_ALL_REQUEST__INIT;
    struct lh_arena arena = {0};
    char key[LH_UUID_TEXT_BYTES];

    lh_uuid_format(&op->key, key);
    message.items = lh_arena_alloc(&arena, op->count * sizeof(message.items[0]));
    for (; message.n_items < op->count; message.n_items++)
        message.items[message.n_items] = item_of(&op->items[message.n_items], &arena);
    message.duration = lh_pack_duration(op->items[0].declared->options.duration_us, &arena);
    message.lease_key = key;
    message.owner = owner_of(op);
    message.wait_forever = op->wait_us == LH_FOREVER;
    message.wait = wait_of(op, &arena);
    message.n_labels = op->label_count;
    message.labels = labels_of(op, &leasehold__v1__acquire_all_request__labels_entry__descriptor, &arena);
    lh_pack_message(&message.base, buffer);
    lh_arena_finish(&arena);
}

/* A time that no database has is passed over. */
static int64_t timestamp_us(const Google__Protobuf__Timestamp *timestamp)
{
    Google__Protobuf__Duration since_1970 = GOOGLE__PROTOBUF__DURATION__INIT;

    if (timestamp == NULL)
        return 0;
    since_1970.seconds = timestamp->seconds;
    since_1970.nanos = timestamp->nanos;
    return lh_unpack_duration_us(&since_1970);
}

static int64_t minus_us(int64_t at_us, int64_t less_us)
{
    int64_t difference_us;
    return __builtin_sub_overflow(at_us, less_us, &difference_us) ? 0 : difference_us;
}

void lh_acquire_tell(struct acquire_op *op, const Leasehold__V1__Contention *contention)
{
    const Leasehold__V1__Lease *holder = contention->holder;
    struct lh_obstacle obstacle = {
        .owner = "",
        .principal = "",
        .liveness = (enum lh_holder_liveness)contention->liveness,
        .waiters_ahead = (uint32_t)contention->waiters_ahead,
        .rests_us = contention->rests == NULL ? 0 : lh_unpack_duration_us(contention->rests),
        .holder_count = (uint32_t)contention->holder_count,
        .units_free = contention->units_free == NULL ? -1 : contention->units_free->value,
    };

    if (holder != NULL) {
        /* The database's clock when it answered. */
        int64_t now_us = minus_us(timestamp_us(holder->deadline), lh_unpack_duration_us(holder->remaining));
        obstacle.owner = holder->owner;
        obstacle.principal = holder->principal;
        obstacle.token = holder->token;
        obstacle.mode = holder->mode == LEASEHOLD__V1__MODE__MODE_SHARED ? LH_SHARED : LH_EXCLUSIVE;
        obstacle.units = holder->units;
        obstacle.held_us = minus_us(now_us, timestamp_us(holder->acquired_at));
        obstacle.silent_us = minus_us(now_us, timestamp_us(holder->heartbeat_at));
    }
    op->on_waiting(op->on_waiting_arg, &obstacle);
}
