/* An acquire's request, and what comes back while it waits. */
#include <string.h>

#include "client/acquire_message.h"
#include "client/client.h"
#include "client/lease_message.h"

static void put_labels(Leasehold__V1__AcquireRequest *message, const struct acquire_op *op, struct lh_arena *arena)
{
    message->n_labels = op->label_count;
    message->labels = lh_arena_alloc(arena, (op->label_count + 1) * sizeof(message->labels[0]));
    for (size_t i = 0; i < op->label_count; i++) {
        message->labels[i] = lh_arena_alloc(arena, sizeof(*message->labels[i]));
        leasehold__v1__acquire_request__labels_entry__init(message->labels[i]);
        message->labels[i]->key = op->labels[i];
        message->labels[i]->value = op->labels[i] + strlen(op->labels[i]) + 1;
    }
}

static void put_wait(Leasehold__V1__AcquireRequest *message, struct acquire_op *op, struct lh_arena *arena)
{
    int64_t left_us = op->wait_us;

    message->wait_while_alive = op->waits_while_alive;
    message->wait_forever = op->wait_us == LH_FOREVER && !op->waits_while_alive;
    op->request.wait_us = op->waits_while_alive ? LH_FOREVER : op->wait_us;
    if (op->wait_us <= 0 || op->wait_us == LH_FOREVER)
        return;
    if (!op->waits_while_alive) {
        left_us = op->wait_until_us - lh_clock_us();
        op->request.wait_us = left_us = left_us > 0 ? left_us : 0;
    }
    message->wait = lh_pack_duration(left_us, arena);
}

void lh_acquire_pack(struct lh_request *request, struct lh_buffer *buffer)
{
    struct acquire_op *op = LH_CONTAINER(struct acquire_op, request, request);
    Leasehold__V1__AcquireRequest message = LEASEHOLD__V1__ACQUIRE_REQUEST__INIT;
    struct lh_arena arena = {0};
    char key[LH_UUID_TEXT_BYTES];

    lh_uuid_format(&op->key, key);
    message.scope = lh_pack_scope(op->declared, op->scope_key, &arena);
    message.duration = lh_pack_duration(op->declared->options.duration_us, &arena);
    message.lease_key = key;
    message.owner = op->owner != NULL ? op->owner : request->client->owner;
    if (op->at_least_us != 0)
        message.at_least = lh_pack_duration(op->at_least_us == LH_NO_MINIMUM ? 0 : op->at_least_us, &arena);
    if (op->mode == LH_SHARED) { /* else unspecified, which is exclusive */
        message.mode = LEASEHOLD__V1__MODE__MODE_SHARED;
        message.units = op->units > 0 ? op->units : 1;
    }
    put_wait(&message, op, &arena);
    put_labels(&message, op, &arena);
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
