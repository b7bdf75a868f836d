/*
 * The life of a scope: created by its first item; ready while it has an item that may go and no batch in flight; asleep
 * on its timer while its waiters sleep or its items are in backoff; freed with its last item.
 */

#include <stdlib.h>
#include <string.h>

#include "base/bounds.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "lease/hooks_internal.h"

/* Scopes come and go with every heartbeat: keep some, with room for most names. */
#define SPARE_MAX 4096
#define SPARE_NAME_BYTES 64

/* The database keeps a row that nobody knows for 10 s. */
#define AHEAD_PAUSE_US (10 * LH_US_PER_S)

struct name {
    const char *ns;
    const char *key;
};

static bool is_named(const struct lh_table_entry *entry, const void *key)
{
    const struct lh_scope *scope = LH_CONTAINER(const struct lh_scope, entry, entry);
    const struct name *name = key;
    return strcmp(scope->key, name->key) == 0 && strcmp(scope->ns, name->ns) == 0;
}

static uint64_t hash_of(const char *ns, const char *key)
{
    return lh_hash(key, strlen(key), lh_hash(ns, strlen(ns), 0));
}

void lh_scopes_create(struct lh_coordinator *c)
{
    lh_table_init(&c->queue.scopes, is_named);
    lh_ready_create(c);
    lh_list_init(&c->queue.answers);
    lh_list_init(&c->queue.telling);
    lh_list_init(&c->queue.touched);
    lh_list_init(&c->queue.passing);
}

size_t lh_scopes_count(const struct lh_coordinator *c)
{
    return c->queue.scopes.count;
}

void lh_scopes_destroy(struct lh_coordinator *c)
{
    lh_passing_free_all(c);
    while (c->queue.spare_scopes != NULL) {
        struct lh_scope *scope = c->queue.spare_scopes;
        c->queue.spare_scopes = (struct lh_scope *)(void *)scope->entry.next;
        free(scope);
    }
    lh_table_finish(&c->queue.scopes);
    lh_ready_destroy(c);
}

static struct lh_scope *allocate(struct lh_coordinator *c, size_t name_bytes)
{
    struct lh_scope *scope = c->queue.spare_scopes;
    if (scope != NULL && name_bytes <= SPARE_NAME_BYTES) {
        c->queue.spare_scopes = (struct lh_scope *)(void *)scope->entry.next;
        c->queue.spare_count--;
        memset(scope, 0, sizeof(*scope));
        scope->name_capacity = SPARE_NAME_BYTES;
        return scope;
    }
    size_t capacity = name_bytes <= SPARE_NAME_BYTES ? SPARE_NAME_BYTES : name_bytes;
    scope = lh_alloc_zero(1, sizeof(*scope) + capacity);
    scope->name_capacity = (uint16_t)capacity;
    return scope;
}

static struct lh_scope *find(struct lh_coordinator *c, const char *ns, const char *key, uint64_t hash)
{
    struct name name = {ns, key};
    struct lh_table_entry *entry = lh_table_find(&c->queue.scopes, hash, &name);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_scope, entry, entry);
}

struct lh_scope *lh_scope_find(struct lh_coordinator *c, const char *ns, const char *key)
{
    return find(c, ns, key, hash_of(ns, key));
}

struct lh_scope *lh_scope_get(struct lh_coordinator *c, const char *ns, const char *key)
{
    uint64_t hash = hash_of(ns, key);
    struct lh_scope *scope = find(c, ns, key, hash);
    if (scope != NULL)
        return scope;

    size_t ns_bytes = strlen(ns) + 1;
    size_t key_bytes = strlen(key) + 1;
    scope = allocate(c, ns_bytes + key_bytes);
    memcpy(scope->name, ns, ns_bytes);
    memcpy(scope->name + ns_bytes, key, key_bytes);
    scope->ns = scope->name;
    scope->key = scope->name + ns_bytes;
    scope->timer.kind = LH_TIMER_SCOPE;
    scope->expires_us = LH_NEVER;
    scope->suspect_us = LH_NEVER;
    lh_list_init(&scope->again);
    lh_list_init(&scope->line);
    lh_list_init(&scope->queue);
    scope->back = &scope->queue;
    lh_list_init(&scope->leaves);
    lh_list_init(&scope->out);
    lh_list_init(&scope->heartbeats);
    lh_list_init(&scope->releases);
    lh_list_init(&scope->downgrades);
    scope->units_free = LH_UNITS_UNBOUNDED;
    lh_table_insert(&c->queue.scopes, &scope->entry, hash);
    return scope;
}

static void free_scope(struct lh_coordinator *c, struct lh_scope *scope)
{
    lh_heap_remove(&c->timers, &scope->timer);
    lh_ready_part(c, scope);
    lh_hook_queue_part(c, scope);
    lh_list_remove(&scope->touched);
    lh_table_remove(&c->queue.scopes, &scope->entry);
    if (scope->name_capacity != SPARE_NAME_BYTES || c->queue.spare_count >= SPARE_MAX) {
        free(scope);
        return;
    }
    scope->entry.next = (struct lh_table_entry *)(void *)c->queue.spare_scopes;
    c->queue.spare_scopes = scope;
    c->queue.spare_count++;
}

static int64_t wake_us(const struct lh_scope *scope)
{
    if (lh_list_is_empty(&scope->queue) || scope->in_flight > 0)
        return LH_NEVER;
    if (scope->alive_requests > 0 && scope->suspect_us < scope->expires_us)
        return scope->suspect_us;
    return scope->expires_us;
}

bool lh_scope_can_send(const struct lh_coordinator *c, enum lh_kind kind)
{
    return !lh_kind_asks(kind) || lh_database_is_registered(c);
}

/* Does this kind of it not go on for now, so that its items are to be answered RETRY after their time? */
static bool is_stuck(const struct lh_coordinator *c, const struct lh_scope *scope, enum lh_kind kind)
{
    if (c->operations[kind]->retry_until == NULL)
        return false;
    return scope->delay_us[kind] > 0 || !lh_lanes_are_up(c) || (scope->in_flight > 0 && scope->is_on_hook_lane) ||
           lh_hook_queue_wants(c, scope, kind);
}

/* The one for a hook lane beside the one for the others: whoever comes first takes the scope. */
static void join_hooks(struct lh_coordinator *c, struct lh_scope *scope, int kind)
{
    if (kind < 0)
        lh_hook_queue_part(c, scope);
    else
        lh_hook_queue_join(c, scope, (enum lh_kind)kind);
}

/* May it stay where it is ready, though another kind has an older item by now? */
static bool keeps_its_place(const struct lh_coordinator *c, const struct lh_scope *scope)
{
    enum lh_kind kind = (enum lh_kind)scope->ready_kind;
    return lh_link_is_linked(&scope->ready) && c->operations[kind]->oldest_us(scope, kind) != LH_NEVER &&
           scope->delay_us[kind] == 0 && lh_scope_can_send(c, kind);
}

static bool is_held_back(const struct lh_coordinator *c, const struct lh_scope *scope)
{
    for (int i = 0; i < LH_SCOPE_KINDS; i++) {
        if (c->operations[i]->holds_back != NULL && c->operations[i]->holds_back(scope) &&
            lh_scope_can_send(c, (enum lh_kind)i))
            return true;
    }
    return false;
}

/* Which kind may go now, the oldest first, and when to look again. */
static void schedule(struct lh_coordinator *c, struct lh_scope *scope)
{
    int best = -1;
    int best_hooked = -1;
    int64_t best_us = LH_NEVER;
    int64_t best_hooked_us = LH_NEVER;
    int64_t at_us = wake_us(scope), look_us = lh_looking_us(c, scope);
    int64_t rides_in_us;

    at_us = look_us < at_us ? look_us : at_us;
    for (int i = 0; i < LH_SCOPE_KINDS; i++) {
        enum lh_kind kind = (enum lh_kind)i;
        int64_t since_us = c->operations[kind]->oldest_us(scope, kind);
        if (since_us == LH_NEVER) {
            scope->delay_us[kind] = 0;
            continue;
        }
        if (is_stuck(c, scope, kind)) {
            int64_t limit_us = lh_time_add(since_us, c->options.busy_limit_us);
            at_us = limit_us < at_us ? limit_us : at_us;
        }
        if (scope->delay_us[kind] > 0 && scope->retry_us[kind] > c->now_us) {
            at_us = scope->retry_us[kind] < at_us ? scope->retry_us[kind] : at_us;
        } else if (!lh_scope_can_send(c, kind)) {
            continue;
        } else if (lh_hook_queue_wants(c, scope, kind)) {
            best_hooked = since_us < best_hooked_us ? i : best_hooked;
            best_hooked_us = since_us < best_hooked_us ? since_us : best_hooked_us;
        } else if (kind == LH_KIND_ACQUIRE && (rides_in_us = lh_ready_rides_in_us(c, scope)) > 0) {
            at_us = c->now_us + rides_in_us < at_us ? c->now_us + rides_in_us : at_us;
        } else if (since_us < best_us) {
            best = i;
            best_us = since_us;
        }
    }
    if (scope->in_flight > 0 || is_held_back(c, scope))
        best = best_hooked = -1;
    else if (best >= 0 && keeps_its_place(c, scope))
        best = scope->ready_kind;
    if (best < 0)
        lh_ready_part(c, scope);
    else
        lh_ready_join(c, scope, (enum lh_kind)best, best_us);
    join_hooks(c, scope, best_hooked);
    lh_heap_set(&c->timers, &scope->timer, at_us);
}

static bool is_empty(const struct lh_scope *scope)
{
    return scope->in_flight == 0 && lh_list_is_empty(&scope->again) && lh_list_is_empty(&scope->line) &&
           lh_list_is_empty(&scope->queue) && lh_list_is_empty(&scope->leaves) && lh_list_is_empty(&scope->out) &&
           lh_list_is_empty(&scope->heartbeats) && lh_list_is_empty(&scope->releases) &&
           lh_list_is_empty(&scope->downgrades);
}

/* One that lets others pass may stand behind them in the database, where its lease key came back by another coordinator. */
static struct lh_waiter *first_lined(const struct lh_scope *scope)
{
    LH_LIST_EACH(struct lh_waiter, waiter, &scope->again, link) {
        if (!lh_waiter_lets_pass(waiter))
            return waiter;
    }
    return NULL;
}

/* Whatever changes in its other scopes, it cannot go before that one is out of its way; and that is reported too. */
static bool waits_for_another(const struct lh_waiter *waiter)
{
    return waiter->together != NULL && waiter->together->waits_for != NULL &&
           waiter->together->waits_for != waiter->scope;
}

/* From the last to the first, so that each goes to the front. */
static void ask_below(struct lh_coordinator *c, struct lh_scope *scope)
{
    const struct lh_waiter *first = LH_LIST_FIRST(struct lh_waiter, &scope->queue, link);
    struct lh_link *link = scope->queue.prev, *before;

    for (; first != NULL && first->ticket < scope->asks_below && link != &scope->queue; link = before) {
        struct lh_waiter *waiter = LH_CONTAINER(struct lh_waiter, link, link);
        before = link->prev;
        if (waiter->ticket < scope->asks_below)
            lh_waiter_set_state(c, waiter, LH_WAITER_LINED, "has it its row?");
    }
    scope->asks_below = 0;
}

/* Nobody here had a lower ticket when it was sent. One that came back to its row meanwhile may have lost it. */
static void on_passed(struct lh_coordinator *c, const char *ns, const char *key, int64_t below)
{
    struct lh_scope *scope = lh_scope_find(c, ns, key);

    if (scope == NULL)
        return;
    scope->asks_below = below > scope->asks_below ? below : scope->asks_below;
    lh_scope_schedule_or_free(c, scope);
}

/*
 * The scope may be free, and none of ours is next. Ahead is somebody else's waiter, or a row of ours that nobody here
 * knows, from a batch that was committed after its connection had been given up. Whoever passes wake-ups on in the
 * database sorts that out, with the ticket of the first that is known here: so not while one may be on its way out of the
 * queue, or have a ticket that was not heard of. Where that first one cannot be asked for now, it may well be the one that
 * is next, for long.
 */
static void pass_on(struct lh_coordinator *c, struct lh_scope *scope)
{
    const struct lh_waiter *first = LH_LIST_FIRST(struct lh_waiter, &scope->queue, link);
    const struct lh_waiter *again = LH_LIST_FIRST(struct lh_waiter, &scope->again, link);
    const struct lh_waiter *newcomer = LH_LIST_FIRST(struct lh_waiter, &scope->line, link);
    bool is_asked = first != NULL && !waits_for_another(first) && (again == NULL || first->ticket < again->ticket);

    if (first == NULL || (again != NULL && again->ticket < first->ticket))
        first = again;
    if (first == NULL || !lh_list_is_empty(&scope->leaves) ||
        (newcomer != NULL && lh_waiter_may_be_in_database(newcomer)))
        return;
    if (scope->prioritized > 0 && (again != NULL || !is_asked))
        return; /* one of ours with a later ticket may be next */
    if (!is_asked && c->now_us < scope->ahead_us)
        return;
    scope->ahead_us = c->now_us + AHEAD_PAUSE_US;
    lh_pass_on(c, scope->ns, scope->key, first->ticket, on_passed);
}

/*
 * What is in flight may have looked before this happened: then again, after it. Those of the line may leave before they
 * are asked for: then it is for whoever waits elsewhere. So it is after a leave, which tells the next one itself; before it,
 * a wake-up that is passed on would remove the row that is to be kept.
 */
static void wake(struct lh_coordinator *c, struct lh_scope *scope)
{
    bool has_others =
        !lh_list_is_empty(&scope->again) || !lh_list_is_empty(&scope->line) || !lh_list_is_empty(&scope->leaves);

    if (scope->in_flight > 0 || (has_others && lh_list_is_empty(&scope->queue)))
        scope->wake_when_answered = true;
    else if (!lh_list_is_empty(&scope->queue))
        lh_scope_ask_first(c, scope, 0);
    else
        lh_pass_on(c, scope->ns, scope->key, 0, on_passed);
}

/* Behind a shared lease that was granted, our next waiter may fit beside it. */
static void fill_room(struct lh_coordinator *c, struct lh_scope *scope)
{
    const struct lh_waiter *first = LH_LIST_FIRST(struct lh_waiter, &scope->queue, link);

    scope->has_room = false;
    if (first != NULL && (scope->prioritized > 0 || (first->units > 0 && first->units <= scope->units_free)))
        lh_scope_ask_first(c, scope, 0);
}

void lh_scope_schedule_or_free(struct lh_coordinator *c, struct lh_scope *scope)
{
    if (scope->in_flight == 0 && scope->asks_below > 0)
        ask_below(c, scope);
    if (scope->in_flight == 0 && scope->looks_ahead) {
        scope->looks_ahead = false;
        pass_on(c, scope);
    }
    if (scope->in_flight == 0 && scope->ask_all_when_answered) {
        scope->ask_all_when_answered = false;
        lh_scope_ask_all(c, scope);
    }
    if (scope->in_flight == 0 && scope->wake_when_answered) {
        scope->wake_when_answered = false;
        wake(c, scope);
    }
    if (scope->in_flight == 0 && scope->has_room)
        fill_room(c, scope);
    if (is_empty(scope))
        free_scope(c, scope);
    else
        schedule(c, scope);
}

void lh_scopes_schedule_touched(struct lh_coordinator *c)
{
    while (!lh_list_is_empty(&c->queue.touched)) {
        struct lh_scope *scope = LH_LIST_FIRST(struct lh_scope, &c->queue.touched, touched);
        lh_list_remove(&scope->touched);
        lh_scope_schedule_or_free(c, scope);
    }
}

void lh_scope_send_begins(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind)
{
    lh_ready_part(c, scope);
    lh_hook_queue_part(c, scope);
    lh_heap_set(&c->timers, &scope->timer, LH_NEVER);
    scope->flight_kind = (uint8_t)kind;
    if (lh_kind_asks(kind))
        scope->wake_when_answered = false; /* who asks now sees what happened before */
}

static void back_off(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind)
{
    bool is_busy = scope->trouble == LH_SCOPE_BUSY;
    int64_t first_us = is_busy ? LH_BUSY_FIRST_US : LH_FAIL_FIRST_US;
    int64_t last_us = is_busy ? LH_BUSY_LAST_US : scope->trouble == LH_OVERLOADED ? LH_FULL_LAST_US : LH_FAIL_LAST_US;

    scope->delay_us[kind] = lh_time_double(scope->delay_us[kind], first_us, last_us);
    scope->retry_us[kind] = c->now_us + lh_turn_jitter(c, scope->delay_us[kind], 20);
}

/* Ten errors in a row are no bad minute any more: whoever waits here is told. */
static void give_up(struct lh_coordinator *c, struct lh_scope *scope)
{
    scope->fails = 0;
    lh_warn("acquires fail repeatedly scope=%s", LH_SCOPE_NAME(scope->ns, scope->key));
    struct lh_link *lists[] = {&scope->again, &scope->line};
    for (int i = 0; i < 2; i++) {
        LH_LIST_EACH(struct lh_waiter, waiter, lists[i], link) {
            if (waiter->together != NULL)
                continue; /* its failures are counted by itself */
            lh_request_answer_all(c, waiter, LH_INTERNAL, "the database refuses this request repeatedly");
            lh_waiter_review(c, waiter);
        }
    }
}

void lh_scope_item_done(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind)
{
    if (--scope->in_flight > 0)
        return;
    scope->is_on_hook_lane = false;
    if (scope->trouble != LH_OK)
        back_off(c, scope, kind);
    else
        scope->delay_us[kind] = 0;
    if (kind == LH_KIND_ACQUIRE) {
        scope->is_full = scope->trouble == LH_OVERLOADED;
        scope->fails = scope->trouble == LH_INTERNAL ? scope->fails + 1 : 0;
        if (scope->fails >= LH_FAILS_MAX)
            give_up(c, scope);
    }
    scope->trouble = LH_OK;
    lh_scope_schedule_or_free(c, scope);
}

/* Once for each priority, by ticket; one that waits for another scope goes by what is in its way there. */
static void ask_first_of_each(struct lh_coordinator *c, struct lh_scope *scope)
{
    bool is_seen[LH_PRIORITY_MAX + 1] = {false};
    size_t left = c->options.batch_max;

    LH_LIST_EACH(struct lh_waiter, waiter, &scope->queue, link) {
        if (left == 0)
            return;
        if (is_seen[waiter->priority])
            continue;
        is_seen[waiter->priority] = true;
        if (waits_for_another(waiter))
            continue;
        lh_waiter_set_state(c, waiter, LH_WAITER_LINED, "its turn may have come");
        left--;
    }
}

/*
 * Not those behind one that does not fit: they are not granted before it. One that waits for another scope is passed over:
 * it may have no place left in the database, and is not in the way of those behind it.
 */
void lh_scope_ask_first(struct lh_coordinator *c, struct lh_scope *scope, int64_t freed)
{
    struct lh_waiter *lined = first_lined(scope);
    int64_t room = freed + scope->units_free;
    size_t left = c->options.batch_max;

    if (scope->prioritized > 0) {
        ask_first_of_each(c, scope);
        return;
    }
    LH_LIST_EACH(struct lh_waiter, waiter, &scope->queue, link) {
        bool is_first = left == c->options.batch_max;
        if (waits_for_another(waiter))
            continue;
        if (is_first ? lined != NULL && lined->ticket < waiter->ticket : waiter->units == 0 || waiter->units > room)
            return;
        room -= waiter->units;
        bool is_shared = waiter->units > 0 && waiter->together == NULL;
        lh_waiter_set_state(c, waiter, LH_WAITER_LINED, "its turn may have come");
        if (!is_shared || --left == 0)
            return;
    }
}

/* From the last to the first, so that each goes to the front. */
void lh_scope_ask_all(struct lh_coordinator *c, struct lh_scope *scope)
{
    if (scope->in_flight > 0)
        scope->ask_all_when_answered = true;
    while (!lh_list_is_empty(&scope->queue))
        lh_waiter_set_state(c, LH_CONTAINER(struct lh_waiter, link, scope->queue.prev), LH_WAITER_LINED,
                            "the coordinator has registered again");
}

void lh_scope_wake(struct lh_coordinator *c, struct lh_scope *scope)
{
    c->stats.wakes++;
    wake(c, scope);
}

void lh_scope_wake_named(struct lh_coordinator *c, const char *ns, const char *key)
{
    struct lh_scope *scope = lh_scope_find(c, ns, key);
    if (scope == NULL) {
        c->stats.wakes++;
        lh_pass_on(c, ns, key, 0, on_passed);
        return;
    }
    lh_scope_wake(c, scope);
    if (scope->in_flight == 0 && lh_list_is_empty(&scope->again) && !lh_list_is_empty(&scope->queue))
        pass_on(c, scope); /* all of ours wait for another scope */
    lh_scope_schedule_or_free(c, scope);
}

void lh_scope_on_timer(struct lh_coordinator *c, struct lh_scope *scope)
{
    if (wake_us(scope) <= c->now_us) {
        scope->expires_us = LH_NEVER;
        scope->suspect_us = LH_NEVER;
        lh_scope_ask_first(c, scope, 0);
    }
    lh_looking_on_timer(c, scope);
    for (int i = 0; i < LH_SCOPE_KINDS; i++) {
        enum lh_kind kind = (enum lh_kind)i;
        if (is_stuck(c, scope, kind))
            c->operations[kind]->retry_until(c, scope, kind, c->now_us - c->options.busy_limit_us);
    }
    lh_scope_schedule_or_free(c, scope);
}
