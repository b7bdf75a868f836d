#include "client/lease_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bounds.h"
#include "base/text.h"
#include "client/client.h"
#include "client/context.h"

int64_t lh_plus_us(int64_t at_us, int64_t more_us)
{
    int64_t sum_us;
    if (__builtin_add_overflow(at_us, more_us, &sum_us))
        return more_us < 0 ? INT64_MIN : LH_FOREVER;
    return sum_us;
}

struct lh_lease *lh_lease_create(struct lh_declared *declared, const char *scope_key, const struct lh_uuid *key)
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
    lh_client_ref(lease->client);
    return lease;
}

void lh_lease_ref(struct lh_lease *lease)
{
    atomic_fetch_add_explicit(&lease->refs, 1, memory_order_relaxed);
}

void lh_lease_unref(struct lh_lease *lease)
{
    struct lh_client *client = lease->client;
    struct lease_grant *before;

    if (atomic_fetch_sub_explicit(&lease->refs, 1, memory_order_acq_rel) != 1)
        return;
    lh_context_destroy(atomic_load(&lease->context));
    for (struct lease_grant *grant = atomic_load(&lease->grant); grant != NULL; grant = before) {
        before = grant->before;
        free(grant);
    }
    free(lease->result);
    free(lease);
    lh_client_unref(client);
}

/* --- held --- */

/* Leases that were acquired together have one lease key. */
struct lease_name {
    const char *ns, *scope_key;
    const struct lh_uuid *key;
};

static uint64_t hash_of(const char *scope_key, const struct lh_uuid *key)
{
    return lh_hash(scope_key, strlen(scope_key), lh_hash(key->bytes, sizeof(key->bytes), 0));
}

static bool is_named(const struct lh_table_entry *entry, const void *key)
{
    const struct lh_lease *lease = LH_CONTAINER(struct lh_lease, entry, entry);
    const struct lease_name *name = key;
    return lh_uuid_equal(&lease->key, name->key) && strcmp(lease->scope_key, name->scope_key) == 0 &&
           strcmp(lease->declared->text, name->ns) == 0;
}

struct lh_lease *lh_leases_find(const struct lh_declared *declared, const char *scope_key, const struct lh_uuid *key)
{
    const struct lease_name name = {declared->text, scope_key, key};
    struct lh_table_entry *entry = lh_table_find(&declared->client->leases.by_key, hash_of(scope_key, key), &name);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_lease, entry, entry);
}

/* When on_lost is due, by what is known now. */
static int64_t due_us(const struct lh_lease *lease)
{
    int64_t at_us =
        atomic_load_explicit(&lease->deadline_us, memory_order_relaxed) - lease->declared->options.margin_us;
    return lease->longest_us < at_us ? lease->longest_us : at_us;
}

static void arm(struct leases *leases)
{
    if (leases->deadlines.count == 0)
        lh_timer_cancel(&leases->timer);
    else
        lh_timer_arm_no_later_us(&leases->timer, lh_heap_next_us(&leases->deadlines));
}

/* The heap keeps the earliest time it was told: a later one is found when that comes. */
static void watch(struct lh_lease *lease)
{
    struct leases *leases = &lease->client->leases;
    int64_t at_us = due_us(lease);

    if (!lease->is_counted)
        return;
    if (lease->due.slot == 0 || at_us < lease->due.at_us) {
        lh_heap_set(&leases->deadlines, &lease->due, at_us);
        arm(leases);
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

    if (context != NULL && !lh_context_move(context, deadline_us - margin_us) && lh_clock_us() >= old_us - margin_us)
        lh_lease_lose(lease, LH_LOST_UNREACHABLE, "no renewal got through in time");
}

static void enter(struct lh_lease *lease)
{
    struct leases *leases = &lease->client->leases;
    struct lh_declared *declared = lease->declared;
    struct lh_link *place = &declared->held; /* by the last try, the longest ago first */

    lh_lease_ref(lease);
    lease->is_counted = true;
    lh_table_insert(&leases->by_key, &lease->entry, hash_of(lease->scope_key, &lease->key));
    if (lh_list_is_empty(&declared->held))
        lh_list_append(&leases->declarations, &declared->in_leases);
    while (place->prev != &declared->held &&
           LH_CONTAINER(struct lh_lease, held, place->prev)->tried_us > lease->tried_us)
        place = place->prev;
    lh_list_insert_before(place, &lease->held);
    atomic_fetch_add(&lease->client->counts.leases, 1);
}

/* Promise 3: the deadline counts from when the request was sent. */
void lh_lease_begin(struct lh_lease *lease, struct lease_grant *grant, int64_t sent_us, int64_t waited_us,
                    int64_t remaining_us, bool is_final)
{
    int64_t deadline_us;

    sent_us = lh_plus_us(sent_us, waited_us);
    deadline_us = lh_plus_us(sent_us, remaining_us);
    atomic_store(&lease->grant, grant);
    lease->sent_us = lease->tried_us = sent_us;
    /* A grant that was told late is renewed at a third of the duration all the same. */
    if (!is_final && remaining_us < lease->declared->options.duration_us)
        lease->tried_us -= lease->declared->options.duration_us - remaining_us;
    lease->granted_us = lh_clock_us();
    lease->longest_us = LH_FOREVER;
    if (lease->declared->options.longest_hold_us > 0)
        lease->longest_us = lh_plus_us(lease->granted_us, lease->declared->options.longest_hold_us);
    lease->is_final = is_final;
    atomic_store(&lease->deadline_us, deadline_us);
    enter(lease);
    move_context(lease, LH_FOREVER, deadline_us);
    watch(lease);
}

void lh_lease_renewed(struct lh_lease *lease, int64_t sent_us, int64_t remaining_us, bool is_final)
{
    int64_t old_us = atomic_load(&lease->deadline_us);
    int64_t deadline_us = lh_plus_us(sent_us, remaining_us);

    if (!lh_lease_is_kept(lease) || sent_us <= lease->sent_us)
        return;
    lease->sent_us = sent_us;
    lease->is_final = is_final;
    atomic_store(&lease->deadline_us, deadline_us);
    atomic_fetch_add_explicit(&lease->client->counts.renewals, 1, memory_order_relaxed);
    move_context(lease, old_us, deadline_us);
    watch(lease);
}

/* The answer of a repeat, or one that comes behind that of a later call, says nothing new. */
static bool is_new(const struct lease_grant *before, int64_t token, int32_t units)
{
    return token > before->token || (token == before->token && (before->mode != LH_SHARED || units < before->units));
}

void lh_lease_downgraded(struct lh_lease *lease, struct lease_grant *grant)
{
    struct lease_grant *before = atomic_load(&lease->grant);

    if (!is_new(before, grant->token, grant->units)) {
        free(grant);
        return;
    }
    grant->before = before;
    atomic_store(&lease->grant, grant);
}

/* A downgrade keeps the lowest of its slots; an exclusive lease, which had none, gets the first numbers. */
void lh_lease_heard(struct lh_lease *lease, int64_t token, int32_t units, bool has_slots)
{
    const struct lease_grant *before = atomic_load(&lease->grant);
    struct lease_grant *grant;

    if (units <= 0 || !lh_lease_is_kept(lease) || !is_new(before, token, units))
        return;
    grant = lh_alloc_zero(1, sizeof(*grant) + (size_t)units * sizeof(grant->slots[0]));
    grant->token = token;
    grant->mode = LH_SHARED;
    grant->units = units;
    for (int32_t i = 0; i < units && has_slots && (before->mode != LH_SHARED || (size_t)i < before->slot_count); i++)
        grant->slots[grant->slot_count++] = before->mode == LH_SHARED ? before->slots[i] : i + 1;
    lh_lease_downgraded(lease, grant);
}

void lh_lease_leave(struct lh_lease *lease)
{
    struct leases *leases = &lease->client->leases;
    struct lh_declared *declared = lease->declared;

    if (!lease->is_counted)
        return;
    lease->is_counted = false;
    lh_table_remove(&leases->by_key, &lease->entry);
    lh_heap_remove(&leases->deadlines, &lease->due);
    lh_list_remove(&lease->held);
    if (lh_list_is_empty(&declared->held))
        lh_list_remove(&declared->in_leases);
    atomic_fetch_sub(&lease->client->counts.leases, 1);
    lh_lease_unref(lease);
}

void lh_leases_abandon(struct lh_client *client)
{
    struct leases *leases = &client->leases;
    struct lh_table_entry *entry, *next = NULL;
    size_t slot = 0;

    while ((entry = lh_table_walk(&leases->by_key, &slot, &next)) != NULL) {
        struct lh_lease *lease = LH_CONTAINER(struct lh_lease, entry, entry);
        unsigned char held = LEASE_HELD;
        atomic_compare_exchange_strong(&lease->state, &held, LEASE_GONE);
        lh_lease_leave(lease);
    }
    lh_table_finish(&leases->by_key);
    lh_heap_finish(&leases->deadlines);
}

/* --- lost --- */

void lh_lease_lose(struct lh_lease *lease, enum lh_lost_reason reason, const char *words)
{
    unsigned char held = LEASE_HELD;
    struct lh_context *context;

    if (!atomic_compare_exchange_strong(&lease->state, &held, (unsigned char)(LEASE_LOST | reason)))
        return;
    words = lh_lost_words(reason, words);
    lh_lease_ref(lease);
    lh_lease_leave(lease);
    atomic_fetch_add(&lease->client->counts.lost, 1);
    lh_warn("lease lost scope=%s token=%lld reason=%s: %s", LH_SCOPE_NAME(lease->declared->text, lease->scope_key),
            (long long)lh_lease_token(lease), lh_lost_reason_name(reason), words);
    context = atomic_load(&lease->context);
    if (context != NULL)
        lh_context_cancel(context, words);
    if (lease->declared->options.on_lost != NULL)
        lease->declared->options.on_lost(lease->declared->options.arg, lease, reason, words);
    lh_lease_unref(lease);
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
    lease->longest_us = lh_plus_us(now_us, more_us);
    return true;
}

static void lose_at_max_hold(struct lh_lease *lease)
{
    char words[LH_NAMESPACE_MAX_BYTES + 64];

    snprintf(words, sizeof(words), "the policy of %s ends a lease after max_hold", lease->declared->text);
    lh_lease_lose(lease, LH_LOST_MAX_HOLD, words);
}

static void on_due(struct lh_lease *lease, int64_t now_us)
{
    int64_t deadline_us = atomic_load(&lease->deadline_us);

    if (!lh_lease_is_kept(lease)) /* released, and not on its way yet */
        return;
    if (lease->is_final && now_us >= deadline_us - lease->declared->options.margin_us)
        lose_at_max_hold(lease);
    else if (now_us >= deadline_us)
        lh_lease_lose(lease, LH_LOST_EXPIRED, "its deadline passed before it could be renewed");
    else if (now_us >= deadline_us - lease->declared->options.margin_us)
        lh_lease_lose(lease, LH_LOST_UNREACHABLE, "no renewal got through in time");
    else if (now_us >= lease->longest_us && !is_extended(lease, now_us))
        lh_lease_lose(lease, LH_LOST_LONGEST_HOLD, "it has been held for its longest hold");
    else
        watch(lease);
}

void lh_leases_expire(struct lh_client *client, int64_t now_us)
{
    struct leases *leases = &client->leases;
    struct lh_heap_timer *due;

    while ((due = lh_heap_due(&leases->deadlines, now_us)) != NULL) {
        struct lh_lease *lease = LH_CONTAINER(struct lh_lease, due, due);
        lh_lease_ref(lease);
        on_due(lease, now_us);
        lh_lease_unref(lease);
    }
    arm(leases);
}

void lh_leases_look_at_clock(struct lh_client *client)
{
    int64_t now_us = lh_clock_us();

    if (lh_heap_next_us(&client->leases.deadlines) <= now_us)
        lh_leases_expire(client, now_us);
}

static void on_deadline(void *arg)
{
    lh_leases_expire(arg, lh_clock_us());
}

void lh_leases_init(struct lh_client *client)
{
    struct leases *leases = &client->leases;

    lh_table_init(&leases->by_key, is_named);
    lh_list_init(&leases->declarations);
    lh_timer_init(&leases->timer, client->loop, on_deadline, client);
}

enum lh_status lh_lease_take_for_release(struct lh_lease *lease, struct lh_error *error)
{
    unsigned char state = LEASE_HELD;
    unsigned reason;

    if (!atomic_compare_exchange_strong(&lease->state, &state, LEASE_RELEASING)) {
        const char *name = LH_SCOPE_NAME(lease->declared->text, lease->scope_key);
        reason = LEASE_REASON(state);
        if (LEASE_STATE(state) != LEASE_LOST)
            return lh_error_set(error, LH_LOST, "lease %s was released before", name);
        if ((reason != LH_LOST_UNREACHABLE && reason != LH_LOST_LONGEST_HOLD) ||
            !atomic_compare_exchange_strong(&lease->state, &state, (unsigned char)(LEASE_RELEASING | reason)))
            return lh_error_set(error, LH_LOST, "lease %s was lost before: %s", name, lh_lost_reason_name(reason));
    }
    if (atomic_load(&lease->context) != NULL)
        lh_context_free_of_time(atomic_load(&lease->context));
    return LH_OK;
}

bool lh_lease_is_kept(const struct lh_lease *lease)
{
    return atomic_load(&lease->state) == LEASE_HELD;
}

/* --- what a program may ask of a lease --- */

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
    return lease != NULL && lh_lease_is_kept(lease) && lh_lease_remaining_us(lease) > 0 &&
           !lh_client_is_forked(lease->client);
}

static const struct lease_grant *grant_of(const struct lh_lease *lease)
{
    static const struct lease_grant none;
    const struct lease_grant *grant = lease == NULL ? NULL : atomic_load(&lease->grant);
    return grant == NULL ? &none : grant;
}

int64_t lh_lease_token(const struct lh_lease *lease)
{
    return grant_of(lease)->token;
}

enum lh_mode lh_lease_mode(const struct lh_lease *lease)
{
    return grant_of(lease)->mode;
}

int32_t lh_lease_units(const struct lh_lease *lease)
{
    return grant_of(lease)->units;
}

const int32_t *lh_lease_slots(const struct lh_lease *lease, size_t *count)
{
    const struct lease_grant *grant = grant_of(lease);

    *count = grant->slot_count;
    return grant->slots;
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
    made = lh_context_create_for_lease(NULL, atomic_load(&lease->deadline_us) - lease->declared->options.margin_us);
    if (!atomic_compare_exchange_strong(&lease->context, &context, made)) {
        lh_context_destroy(made);
        return context;
    }
    state = atomic_load(&lease->state);
    if (LEASE_REASON(state) != 0)
        lh_context_cancel(made, lh_lost_reason_name((enum lh_lost_reason)LEASE_REASON(state)));
    else if (LEASE_STATE(state) != LEASE_HELD)
        lh_context_free_of_time(made);
    else
        lh_context_move(made, atomic_load(&lease->deadline_us) - lease->declared->options.margin_us);
    return made;
}
