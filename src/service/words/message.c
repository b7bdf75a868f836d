#include "service/words_internal.h"

#include <string.h>

#include "base/text.h"

/* Of Contention.holders: the oldest that fit into trailers beside a holder of ordinary size. */
#define HOLDERS_MAX 10
#define CONTENTION_MAX_BYTES 1536

/* A certificate may name up to 2 KiB, and all trailers together stay under 6. */
#define PRINCIPAL_IN_TRAILERS_MAX_BYTES 128

Leasehold__V1__HandOver *lh_message_hand_over(const struct lh_hand_over *asked, struct lh_arena *arena)
{
    Leasehold__V1__HandOver *message = lh_message_new(&leasehold__v1__hand_over__descriptor, arena);

    message->asked_at = lh_message_timestamp(asked->asked_at_us, arena);
    message->asked_by = (char *)(uintptr_t)asked->asked_by;
    message->principal = (char *)(uintptr_t)asked->principal;
    message->reason = (char *)(uintptr_t)asked->reason;
    message->answer_by = lh_message_timestamp(asked->answer_by_us, arena);
    message->answer_in = lh_message_duration(asked->answer_in_us, arena);
    if (asked->refusal != NULL)
        message->refusal = (char *)(uintptr_t)asked->refusal;
    return message;
}

Leasehold__V1__Lease *lh_message_lease(const struct lh_held_lease *lease, unsigned parts, struct lh_arena *arena)
{
    Leasehold__V1__Lease *message = lh_message_new(&leasehold__v1__lease__descriptor, arena);

    message->scope = lh_message_scope(lease->ns, lease->key, arena);
    if ((parts & LH_LEASE_WITH_KEY) != 0) {
        message->lease_key = lh_arena_alloc(arena, LH_UUID_TEXT_BYTES);
        lh_uuid_format(&lease->lease_key, message->lease_key);
    }
    message->token = lease->token;
    if (lease->owner != NULL)
        message->owner = (char *)lease->owner;
    if (lease->principal != NULL)
        message->principal = (char *)lease->principal;
    message->duration = lh_message_duration(lease->duration_us, arena);
    message->remaining = lh_message_duration(lease->remaining_us, arena);
    message->deadline = lh_message_timestamp(lease->deadline_us, arena);
    message->acquired_at = lh_message_timestamp(lease->acquired_at_us, arena);
    message->heartbeats = lease->heartbeats;
    message->heartbeat_at = lh_message_timestamp(lease->heartbeat_at_us, arena);
    message->mode = lease->units > 0 ? LEASEHOLD__V1__MODE__MODE_SHARED : LEASEHOLD__V1__MODE__MODE_EXCLUSIVE;
    message->units = lease->units;
    if ((parts & LH_LEASE_SHORT) == 0) {
        message->n_labels = lh_json_to_labels(lease->labels, arena, &message->labels);
        message->n_slots = (size_t)lease->slot_count;
        message->slots = (int32_t *)(uintptr_t)lease->slots;
    }
    message->liveness = (Leasehold__V1__Liveness)lease->liveness;
    message->grace = lh_message_duration(lease->grace_us, arena);
    message->deadline_is_final = lease->is_final;
    if (lease->asked != NULL)
        message->asked = lh_message_hand_over(lease->asked, arena);
    return message;
}

static Leasehold__V1__Lease *short_lease(const struct lh_held_lease *lease, struct lh_arena *arena)
{
    Leasehold__V1__Lease *message = lh_message_lease(lease, LH_LEASE_SHORT, arena);

    if (strlen(message->principal) > PRINCIPAL_IN_TRAILERS_MAX_BYTES)
        message->principal = (char *)"";
    if (message->asked != NULL) {
        message->asked->reason = lh_message_cut(message->asked->reason, arena);
        message->asked->refusal = lh_message_cut(message->asked->refusal, arena);
        if (strlen(message->asked->principal) > PRINCIPAL_IN_TRAILERS_MAX_BYTES)
            message->asked->principal = (char *)"";
    }
    return message;
}

static void add_holders(Leasehold__V1__Contention *message, const struct lh_contention *contention,
                        struct lh_arena *arena)
{
    const struct lh_held_lease *holders = contention->holders != NULL ? contention->holders : &contention->holder;
    int32_t listed = contention->holders != NULL ? contention->listed : 1;
    size_t bytes = protobuf_c_message_get_packed_size(&message->base);

    message->holders = lh_arena_alloc(arena, HOLDERS_MAX * sizeof(*message->holders));
    for (int32_t i = 0; i < listed && i < HOLDERS_MAX; i++) {
        Leasehold__V1__Lease *holder = short_lease(&holders[i], arena);
        holder->scope = NULL; /* that of the one before */
        bytes += protobuf_c_message_get_packed_size(&holder->base);
        if (bytes > CONTENTION_MAX_BYTES)
            return;
        message->holders[message->n_holders++] = holder;
    }
}

Leasehold__V1__Contention *lh_message_contention(const struct lh_contention *contention, struct lh_arena *arena)
{
    Leasehold__V1__Contention *message = lh_message_new(&leasehold__v1__contention__descriptor, arena);

    if (contention->is_holder_hidden) {
        message->holder = lh_message_new(&leasehold__v1__lease__descriptor, arena);
        message->holder->scope = lh_message_scope(contention->holder.ns, contention->holder.key, arena);
    } else if (contention->has_holder) {
        message->holder = short_lease(&contention->holder, arena);
        message->liveness = message->holder->liveness;
        add_holders(message, contention, arena);
    }
    message->holder_count = contention->holder_count;
    if (contention->units_free != LH_UNITS_UNBOUNDED) {
        message->units_free = lh_message_new(&google__protobuf__int32_value__descriptor, arena);
        message->units_free->value = contention->units_free;
    }
    message->waiters_ahead = contention->waiters_ahead;
    if (contention->rests_us > 0)
        message->rests = lh_message_duration(contention->rests_us, arena);
    return message;
}

char *lh_message_cut(const char *message, struct lh_arena *arena)
{
    if (message == NULL)
        return NULL;
    return lh_arena_format(arena, "%.*s", (int)lh_utf8_cut(message, strlen(message), LH_ITEM_MESSAGE_MAX_BYTES),
                           message);
}

size_t lh_message_pack(const ProtobufCMessage *message, struct lh_arena *arena, const void **data)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = lh_arena_alloc(arena, size + 1);

    *data = bytes;
    return protobuf_c_message_pack(message, bytes);
}
