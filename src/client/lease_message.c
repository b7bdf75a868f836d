#include "client/lease_internal.h"

#include <string.h>

#include "base/clock.h"

#define NANOS_PER_S 1000000000

enum lh_lost_reason lh_lost_reason_of(Leasehold__V1__EndReason reason)
{
    switch (reason) {
    case LEASEHOLD__V1__END_REASON__END_REASON_RELEASED:
    case LEASEHOLD__V1__END_REASON__END_REASON_FAILED:
        return LH_LOST_RELEASED;
    case LEASEHOLD__V1__END_REASON__END_REASON_EXPIRED:
        return LH_LOST_EXPIRED;
    case LEASEHOLD__V1__END_REASON__END_REASON_FORCED:
        return LH_LOST_FORCED;
    case LEASEHOLD__V1__END_REASON__END_REASON_MAX_HOLD:
        return LH_LOST_MAX_HOLD;
    default:
        return LH_LOST_UNKNOWN;
    }
}

enum lh_status lh_status_of_outcome(Leasehold__V1__Outcome outcome)
{
    switch (outcome) {
    case LEASEHOLD__V1__OUTCOME__OUTCOME_OK:
        return LH_OK;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_LOST:
        return LH_LOST;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_REJECTED:
        return LH_HOOK_REJECTED;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_INVALID:
        return LH_INVALID_ARGUMENT;
    case LEASEHOLD__V1__OUTCOME__OUTCOME_DENIED:
        return LH_ACCESS_DENIED;
    default:
        return LH_UNAVAILABLE;
    }
}

enum lh_status lh_status_of_release(const Leasehold__V1__ReleaseResult *result, bool may_be_done, bool is_failure)
{
    enum lh_status status = lh_status_of_outcome(result->outcome);
    Leasehold__V1__EndReason own =
        is_failure ? LEASEHOLD__V1__END_REASON__END_REASON_FAILED : LEASEHOLD__V1__END_REASON__END_REASON_RELEASED;

    return status == LH_LOST && may_be_done && result->end_reason == own ? LH_OK : status;
}

const char *lh_lost_reason_name(enum lh_lost_reason reason)
{
    static const char *const names[] = {"none",        "released",     "expired", "forced",
                                        "unreachable", "longest hold", "unknown", "max_hold"};
    return (size_t)reason < sizeof(names) / sizeof(names[0]) ? names[reason] : "unknown";
}

const char *lh_lost_words(enum lh_lost_reason reason, const char *words)
{
    if (words[0] != '\0')
        return words;
    switch (reason) {
    case LH_LOST_RELEASED:
        return "it was released under its lease key by another call";
    case LH_LOST_EXPIRED:
        return "it expired: the server got no renewal in time";
    case LH_LOST_FORCED:
        return "an administrator ended it";
    case LH_LOST_MAX_HOLD:
        return "the policy of its namespace ends a lease after max_hold";
    default:
        return "the server does not know this lease any more, nor how it ended";
    }
}

/* --- answers --- */

/* A server that knows no modes grants exclusively, and says nothing of it. */
struct lease_grant *lh_unpack_grant(const Leasehold__V1__Lease *lease)
{
    struct lease_grant *grant = lh_alloc_zero(1, sizeof(*grant) + lease->n_slots * sizeof(grant->slots[0]));

    grant->token = lease->token;
    grant->mode = lease->mode == LEASEHOLD__V1__MODE__MODE_SHARED ? LH_SHARED : LH_EXCLUSIVE;
    grant->units = lease->units;
    grant->slot_count = lease->n_slots;
    if (lease->n_slots > 0)
        memcpy(grant->slots, lease->slots, lease->n_slots * sizeof(grant->slots[0]));
    return grant;
}

/* --- requests --- */

Leasehold__V1__Scope *lh_pack_scope(const struct lh_declared *declared, const char *key, struct lh_arena *arena)
{
    Leasehold__V1__Scope *scope = lh_arena_alloc(arena, sizeof(*scope));

    leasehold__v1__scope__init(scope);
    scope->n_namespace_ = declared->segment_count;
    scope->namespace_ = (char **)(void *)declared->segments;
    scope->key = (char *)(void *)key;
    return scope;
}

Leasehold__V1__LeaseRef *lh_pack_lease_ref(const struct lh_lease *lease, struct lh_arena *arena)
{
    Leasehold__V1__LeaseRef *ref = lh_arena_alloc(arena, sizeof(*ref));

    leasehold__v1__lease_ref__init(ref);
    ref->scope = lh_pack_scope(lease->declared, lease->scope_key, arena);
    ref->lease_key = lh_arena_alloc(arena, LH_UUID_TEXT_BYTES);
    lh_uuid_format(&lease->key, ref->lease_key);
    return ref;
}

Google__Protobuf__Duration *lh_pack_duration(int64_t duration_us, struct lh_arena *arena)
{
    Google__Protobuf__Duration *duration = lh_arena_alloc(arena, sizeof(*duration));

    google__protobuf__duration__init(duration);
    duration->seconds = duration_us / LH_US_PER_S;
    duration->nanos = (int32_t)(duration_us % LH_US_PER_S * 1000);
    return duration;
}

int64_t lh_unpack_duration_us(const Google__Protobuf__Duration *duration)
{
    if (duration == NULL)
        return 0;
    if (duration->seconds > INT64_MAX / LH_US_PER_S - 1 || duration->seconds < -(INT64_MAX / LH_US_PER_S - 1))
        return 0;
    if (duration->nanos <= -NANOS_PER_S || duration->nanos >= NANOS_PER_S)
        return 0;
    return duration->seconds * LH_US_PER_S + duration->nanos / 1000;
}

static int64_t clamp_us(int64_t time_us, int64_t most_us)
{
    if (time_us < 0)
        return 0;
    return time_us < most_us ? time_us : most_us;
}

int64_t lh_unpack_waited_us(const Google__Protobuf__Duration *waited, int64_t sent_us)
{
    return clamp_us(lh_unpack_duration_us(waited), lh_clock_us() - sent_us);
}

int64_t lh_unpack_remaining_us(const Google__Protobuf__Duration *remaining, const struct lh_declared *declared)
{
    return clamp_us(lh_unpack_duration_us(remaining), declared->options.duration_us);
}

bool lh_is_answer_about(const char *lease_key, const struct lh_uuid *key)
{
    struct lh_uuid answered;

    return lease_key[0] == '\0' || (lh_uuid_parse(lease_key, &answered) && lh_uuid_equal(&answered, key));
}

void lh_pack_message(const ProtobufCMessage *message, struct lh_buffer *buffer)
{
    size_t size = protobuf_c_message_get_packed_size(message);

    protobuf_c_message_pack(message, lh_buffer_reserve(buffer, size + 1));
    buffer->size += size;
}

void lh_heartbeat_pack(struct lh_lease *const *leases, size_t count, struct lh_buffer *buffer)
{
    Leasehold__V1__HeartbeatRequest heartbeat = LEASEHOLD__V1__HEARTBEAT_REQUEST__INIT;
    struct lh_arena arena = {0};

    heartbeat.n_leases = count;
    heartbeat.leases = lh_arena_alloc(&arena, (count + 1) * sizeof(heartbeat.leases[0]));
    for (size_t i = 0; i < count; i++)
        heartbeat.leases[i] = lh_pack_lease_ref(leases[i], &arena);
    lh_pack_message(&heartbeat.base, buffer);
    lh_arena_finish(&arena);
}

static void put_item(Leasehold__V1__ReleaseItem *item, const struct lh_lease *lease, struct lh_arena *arena)
{
    leasehold__v1__release_item__init(item);
    item->lease = lh_pack_lease_ref(lease, arena);
    if (lease->result == NULL)
        return;
    if (lease->is_failure) {
        item->result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_FAILURE;
        item->failure = lease->result;
    } else {
        item->result_case = LEASEHOLD__V1__RELEASE_ITEM__RESULT_SUCCESS;
        item->success = lease->result;
    }
}

void lh_release_pack(struct lh_lease *const *leases, size_t count, struct lh_buffer *buffer)
{
    Leasehold__V1__ReleaseRequest release = LEASEHOLD__V1__RELEASE_REQUEST__INIT;
    struct lh_arena arena = {0};

    release.n_items = count;
    release.items = lh_arena_alloc(&arena, (count + 1) * sizeof(release.items[0]));
    for (size_t i = 0; i < count; i++) {
        release.items[i] = lh_arena_alloc(&arena, sizeof(*release.items[i]));
        put_item(release.items[i], leases[i], &arena);
    }
    lh_pack_message(&release.base, buffer);
    lh_arena_finish(&arena);
}
