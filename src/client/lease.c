#include "client/lease.h"

#include <stdlib.h>
#include <string.h>

#include "client/context.h"

static void add_us(int64_t *total, int64_t more)
{
    if (__builtin_add_overflow(*total, more, total))
        *total = more < 0 ? INT64_MIN : INT64_MAX;
}

struct lh_lease *lease_create(struct lh_declared *declared, const char *scope_key, const struct lh_uuid *key)
{
    size_t size = strlen(scope_key) + 1;
    struct lh_lease *lease = lh_alloc_zero(1, sizeof(*lease) + size);

    lease->declared = declared;
    lease->client = declared->client;
    lease->key = *key;
    memcpy(lease->scope_key, scope_key, size);
    lh_list_init(&lease->followers);
    atomic_init(&lease->refs, 1);
    atomic_init(&lease->state, LEASE_HELD);
    client_ref(lease->client);
    return lease;
}

void lease_ref(struct lh_lease *lease)
{
    atomic_fetch_add_explicit(&lease->refs, 1, memory_order_relaxed);
}

void lease_unref(struct lh_lease *lease)
{
    struct lh_client *client = lease->client;

    if (atomic_fetch_sub_explicit(&lease->refs, 1, memory_order_acq_rel) != 1)
        return;
    lh_context_destroy(atomic_load(&lease->context));
    free(lease->result);
    free(lease);
    client_unref(client);
}

/* --- held --- */

static bool key_is_equal(const struct lh_table_entry *entry, const void *key)
{
    return lh_uuid_equal(&LH_CONTAINER(struct lh_lease, entry, entry)->key, key);
}

void leases_init(struct lh_client *client)
{
    lh_table_init(&client->leases, key_is_equal);
}

struct lh_lease *leases_find(struct lh_client *client, const struct lh_uuid *key)
{
    uint64_t hash = lh_hash(key->bytes, sizeof(key->bytes), 0);
    struct lh_table_entry *entry = lh_table_find(&client->leases, hash, key);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_lease, entry, entry);
}

/* When on_lost is due, by what is known now. */
static int64_t due_us(const struct lh_lease *lease)
{
    int64_t at_us =
        atomic_load_explicit(&lease->deadline_us, memory_order_relaxed) - lease->declared->options.margin_us;
    return lease->longest_us < at_us ? lease->longest_us : at_us;
}

void leases_arm(struct lh_client *client)
{
    int64_t next_us = deadlines_next_us(&client->deadlines);

    if (next_us == INT64_MAX)
        lh_timer_cancel(&client->deadline_timer);
    else if (!lh_timer_is_armed(&client->deadline_timer) || client->deadline_timer.at_us > next_us)
        lh_timer_arm_at_us(&client->deadline_timer, next_us);
}

/* The heap keeps the earliest time it was told: a later one is found when that comes. */
static void watch(struct lh_lease *lease)
{
    int64_t at_us = due_us(lease);

    if (!lease->is_counted)
        return;
    if (lease->due.place == 0 || at_us < lease->due.at_us) {
        deadlines_set(&lease->client->deadlines, &lease->due, at_us);
        leases_arm(lease->client);
    }
}

/*
 * Whoever was told by the context that its time has passed must not hear otherwise from the lease. (A context that was
 * cancelled, by hand or with a parent, takes no lease away.)
 */
static void move_context(struct lh_lease *lease, int64_t old_us, int64_t deadline_us)
{
    struct lh_context *context = atomic_load(&lease->context);
    int64_t margin_us = lease->declared->options.margin_us;

    if (context != NULL && !context_move(context, deadline_us - margin_us) && lh_clock_us() >= old_us - margin_us)
        lease_lose(lease, LH_LOST_UNREACHABLE, "no renewal got through in time");
}

void lease_begin(struct lh_lease *lease, int64_t token, int64_t sent_us, int64_t waited_us, int64_t remaining_us)
{
    struct lh_client *client = lease->client;
    int64_t deadline_us;

    add_us(&sent_us, waited_us);
    deadline_us = sent_us;
    add_us(&deadline_us, remaining_us);
    lease->token = token;
    lease->sent_us = lease->tried_us = sent_us;
    lease->granted_us = lh_clock_us();
    lease->longest_us = LH_FOREVER;
    if (lease->declared->options.longest_hold_us > 0) {
        lease->longest_us = lease->granted_us;
        add_us(&lease->longest_us, lease->declared->options.longest_hold_us);
    }
    atomic_store(&lease->deadline_us, deadline_us);
    lease_ref(lease);
    lease->is_counted = true;
    lh_table_insert(&client->leases, &lease->entry, lh_hash(lease->key.bytes, sizeof(lease->key.bytes), 0));
    atomic_fetch_add(&client->counts.leases, 1);
    renewals_add(&client->renewals, lease);
    move_context(lease, LH_FOREVER, deadline_us);
    watch(lease);
}

void lease_renewed(struct lh_lease *lease, int64_t sent_us, int64_t remaining_us)
{
    int64_t old_us = atomic_load(&lease->deadline_us);
    int64_t deadline_us = sent_us;

    if (!lease_is_held(lease) || sent_us <= lease->sent_us)
        return;
    add_us(&deadline_us, remaining_us);
    lease->sent_us = sent_us;
    atomic_store(&lease->deadline_us, deadline_us);
    atomic_fetch_add_explicit(&lease->client->counts.renewals, 1, memory_order_relaxed);
    move_context(lease, old_us, deadline_us);
    watch(lease);
}

void lease_leave(struct lh_lease *lease)
{
    struct lh_client *client = lease->client;

    if (!lease->is_counted)
        return;
    lease->is_counted = false;
    lh_table_remove(&client->leases, &lease->entry);
    deadlines_remove(&client->deadlines, &lease->due);
    renewals_remove(&client->renewals, lease);
    atomic_fetch_sub(&client->counts.leases, 1);
    lease_unref(lease);
}

void leases_abandon(struct lh_client *client)
{
    struct lh_table_entry *entry, *next = NULL;
    size_t slot = 0;

    while ((entry = lh_table_walk(&client->leases, &slot, &next)) != NULL) {
        struct lh_lease *lease = LH_CONTAINER(struct lh_lease, entry, entry);
        unsigned char held = LEASE_HELD;
        atomic_compare_exchange_strong(&lease->state, &held, LEASE_GONE);
        lease_leave(lease);
    }
    lh_table_finish(&client->leases);
}

/* --- lost --- */

enum lh_lost_reason lost_reason_of(Leasehold__V1__EndReason reason)
{
    switch (reason) {
    case LEASEHOLD__V1__END_REASON__END_REASON_RELEASED:
    case LEASEHOLD__V1__END_REASON__END_REASON_FAILED:
        return LH_LOST_RELEASED;
    case LEASEHOLD__V1__END_REASON__END_REASON_EXPIRED:
        return LH_LOST_EXPIRED;
    case LEASEHOLD__V1__END_REASON__END_REASON_FORCED:
        return LH_LOST_FORCED;
    default:
        return LH_LOST_UNKNOWN;
    }
}

enum lh_status status_of_outcome(Leasehold__V1__Outcome outcome)
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
    default:
        return LH_UNAVAILABLE;
    }
}

const char *lh_lost_reason_name(enum lh_lost_reason reason)
{
    static const char *const names[] = {"none",        "released",     "expired", "forced",
                                        "unreachable", "longest hold", "unknown"};
    return (size_t)reason < sizeof(names) / sizeof(names[0]) ? names[reason] : "unknown";
}

void lease_lose(struct lh_lease *lease, enum lh_lost_reason reason, const char *words)
{
    unsigned char held = LEASE_HELD;
    struct lh_context *context;

    if (!atomic_compare_exchange_strong(&lease->state, &held, (unsigned char)(LEASE_LOST | reason)))
        return;
    lease_ref(lease);
    lease_leave(lease);
    atomic_fetch_add(&lease->client->counts.lost, 1);
    lh_warn("lease lost scope=%s/%s token=%lld reason=%s: %s", lease->declared->text, lease->scope_key,
            (long long)lease->token, lh_lost_reason_name(reason), words);
    context = atomic_load(&lease->context);
    if (context != NULL)
        lh_context_cancel(context, words);
    if (lease->declared->options.on_lost != NULL)
        lease->declared->options.on_lost(lease->declared->options.arg, lease, reason, words);
    lease_unref(lease);
}

/* More time for a lease that has been held for its longest hold? */
static bool is_extended(struct lh_lease *lease, int64_t now_us)
{
    const struct lh_declare_options *options = &lease->declared->options;
    int64_t more_us = 0;

    if (options->on_longest_hold != NULL) {
        lease->longest_us = LH_FOREVER;
        more_us = options->on_longest_hold(options->arg, lease);
    }
    if (more_us <= 0)
        return false;
    lease->longest_us = now_us;
    add_us(&lease->longest_us, more_us);
    return true;
}

static void on_due(struct lh_lease *lease, int64_t now_us)
{
    int64_t deadline_us = atomic_load(&lease->deadline_us);

    if (!lease_is_held(lease)) /* released, and not on its way yet */
        return;
    if (now_us >= deadline_us)
        lease_lose(lease, LH_LOST_EXPIRED, "its deadline passed before it could be renewed");
    else if (now_us >= deadline_us - lease->declared->options.margin_us)
        lease_lose(lease, LH_LOST_UNREACHABLE, "no renewal got through in time");
    else if (now_us >= lease->longest_us && !is_extended(lease, now_us))
        lease_lose(lease, LH_LOST_LONGEST_HOLD, "it has been held for its longest hold");
    else
        watch(lease);
}

void leases_expire(struct lh_client *client, int64_t now_us)
{
    struct deadline *due;

    while ((due = deadlines_due(&client->deadlines, now_us)) != NULL) {
        struct lh_lease *lease = LH_CONTAINER(struct lh_lease, due, due);
        lease_ref(lease);
        on_due(lease, now_us);
        lease_unref(lease);
    }
    leases_arm(client);
}

enum lh_status lease_take_for_release(struct lh_lease *lease, struct lh_error *error)
{
    unsigned char state = LEASE_HELD;
    unsigned reason;

    if (!atomic_compare_exchange_strong(&lease->state, &state, LEASE_RELEASING)) {
        reason = LEASE_REASON(state);
        if (LEASE_STATE(state) != LEASE_LOST)
            return lh_error_set(error, LH_LOST, "lease %s/%s was released before", lease->declared->text,
                                lease->scope_key);
        if ((reason != LH_LOST_UNREACHABLE && reason != LH_LOST_LONGEST_HOLD) ||
            !atomic_compare_exchange_strong(&lease->state, &state, (unsigned char)(LEASE_RELEASING | reason)))
            return lh_error_set(error, LH_LOST, "lease %s/%s was lost before: %s", lease->declared->text,
                                lease->scope_key, lh_lost_reason_name(reason));
    }
    if (atomic_load(&lease->context) != NULL)
        context_free_of_time(atomic_load(&lease->context));
    return LH_OK;
}

bool lease_is_held(const struct lh_lease *lease)
{
    return atomic_load(&lease->state) == LEASE_HELD;
}

/* --- messages --- */

Leasehold__V1__Scope *scope_message(const struct lh_declared *declared, const char *key, struct lh_arena *arena)
{
    Leasehold__V1__Scope *scope = lh_arena_alloc(arena, sizeof(*scope));

    leasehold__v1__scope__init(scope);
    scope->n_namespace_ = declared->segment_count;
    scope->namespace_ = (char **)(void *)declared->segments;
    scope->key = (char *)(void *)key;
    return scope;
}

Leasehold__V1__LeaseRef *lease_ref_message(const struct lh_lease *lease, struct lh_arena *arena)
{
    Leasehold__V1__LeaseRef *ref = lh_arena_alloc(arena, sizeof(*ref));

    leasehold__v1__lease_ref__init(ref);
    ref->scope = scope_message(lease->declared, lease->scope_key, arena);
    ref->lease_key = lh_arena_alloc(arena, LH_UUID_TEXT_BYTES);
    lh_uuid_format(&lease->key, ref->lease_key);
    return ref;
}

Google__Protobuf__Duration *duration_message(int64_t duration_us, struct lh_arena *arena)
{
    Google__Protobuf__Duration *duration = lh_arena_alloc(arena, sizeof(*duration));

    google__protobuf__duration__init(duration);
    duration->seconds = duration_us / LH_US_PER_S;
    duration->nanos = (int32_t)(duration_us % LH_US_PER_S * 1000);
    return duration;
}

int64_t duration_from_message(const Google__Protobuf__Duration *duration)
{
    if (duration == NULL)
        return 0;
    if (duration->seconds > INT64_MAX / LH_US_PER_S - 1 || duration->seconds < -(INT64_MAX / LH_US_PER_S - 1))
        return 0;
    return duration->seconds * LH_US_PER_S + duration->nanos / 1000;
}
