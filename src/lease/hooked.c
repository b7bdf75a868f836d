/*
 * The story of a hooked item: it is sent with others on a common lane, and answered HOOKED. Its scope is put into its
 * namespace's line, and a hook lane takes the scope's first item of that kind, alone. Whatever else the scope has that
 * needs no hook goes on by the common lanes meanwhile, but never while the item is in flight. For a second its
 * namespace is known then, and what comes goes straight into the line; after that the next one asks again, so a hook
 * that is gone, or a limit that was changed, is noticed.
 *
 * A hook that breaks its own connection costs a hook lane that connection. The item's outcome is unknown then, and it
 * is asked for again after a pause of its namespace; at the third time in a row whoever asks is refused.
 */
#include "lease/hooked.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "lease/reaping.h"

#define LOSS_FIRST_US (100 * LH_US_PER_MS)
#define LOSS_LAST_US (10 * LH_US_PER_S)
#define REST_MAX_US (50 * LH_US_PER_MS)

/* --- what is known of namespaces --- */

static bool is_named(const struct lh_table_entry *entry, const void *key)
{
    return strcmp(LH_CONTAINER(const struct lh_hook_space, entry, entry)->ns, key) == 0;
}

void lh_hooks_create(struct lh_coordinator *c)
{
    lh_table_init(&c->hooks.spaces, is_named);
    lh_list_init(&c->hooks.used);
    lh_list_init(&c->hooks.working);
    lh_list_init(&c->hooks.reaping);
    c->hooks.timer.kind = LH_TIMER_HOOK;
}

static void forget(struct lh_coordinator *c, struct lh_hook_space *space)
{
    lh_table_remove(&c->hooks.spaces, &space->entry);
    lh_list_remove(&space->used);
    free(space);
}

void lh_hooks_destroy(struct lh_coordinator *c)
{
    LH_LIST_EACH(struct lh_hook_space, space, &c->hooks.used, used)
        forget(c, space);
    lh_table_finish(&c->hooks.spaces);
}

static struct lh_hook_space *find(const struct lh_coordinator *c, const char *ns)
{
    struct lh_table_entry *entry;

    if (c->hooks.spaces.count == 0)
        return NULL; /* where nothing is hooked, this costs nothing */
    entry = lh_table_find(&c->hooks.spaces, lh_hash(ns, strlen(ns), 0), ns);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_hook_space, entry, entry);
}

static bool is_idle(const struct lh_hook_space *space)
{
    return space->running == 0 && space->jobs == 0 && lh_list_is_empty(&space->scopes);
}

void lh_hooks_forget_some(struct lh_coordinator *c)
{
    if (c->hooks.spaces.count <= LH_HOOK_SPACES_MAX)
        return;
    LH_LIST_EACH(struct lh_hook_space, space, &c->hooks.used, used) {
        if (c->hooks.spaces.count <= LH_HOOK_SPACES_MAX)
            return;
        if (is_idle(space))
            forget(c, space);
    }
}

struct lh_hook_space *lh_hooks_space(struct lh_coordinator *c, const char *ns)
{
    struct lh_hook_space *space = find(c, ns);

    if (space == NULL) {
        size_t size = strlen(ns);
        space = lh_alloc_zero(1, sizeof(*space) + size + 1);
        memcpy(space->ns, ns, size + 1);
        lh_list_init(&space->scopes);
        lh_list_init(&space->reaps);
        lh_table_insert(&c->hooks.spaces, &space->entry, lh_hash(ns, size, 0));
    }
    lh_list_remove(&space->used);
    lh_list_append(&c->hooks.used, &space->used);
    return space;
}

/* Leaves mostly take somebody out of the queue, who has no lease to end: they ask first, always. */
static bool is_known(const struct lh_coordinator *c, const char *ns, enum lh_kind kind)
{
    const struct lh_hook_space *space = kind == LH_KIND_LEAVE ? NULL : find(c, ns);
    return space != NULL && space->known_until_us[kind] > c->now_us;
}

bool lh_hooks_wants(const struct lh_coordinator *c, const struct lh_scope *scope, enum lh_kind kind)
{
    bool is_in_line = scope->space != NULL && scope->hook_kind == kind; /* it stays there, whatever is believed now */
    return is_in_line || (scope->hooked & (1u << kind)) != 0 || is_known(c, scope->ns, kind);
}

static bool is_full(const struct lh_coordinator *c)
{
    return c->hooks.waiting >= c->options.max_hooked;
}

bool lh_hooks_refuse(struct lh_coordinator *c, const char *ns, enum lh_kind kind)
{
    if (!is_full(c) || !is_known(c, ns, kind))
        return false;
    c->stats.refused_hooked++;
    return true;
}

bool lh_hooks_learn(struct lh_lane *lane, struct lh_scope *scope, enum lh_kind kind, int64_t timeout_us)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_hook_space *space;

    if (lane->space != NULL) {
        lh_err("an item was not done on a hook lane scope=%s/%s", scope->ns, scope->key);
        return false;
    }
    space = lh_hooks_space(c, scope->ns);
    space->known_until_us[kind] = c->now_us + LH_HOOK_BELIEF_US;
    space->timeout_us = timeout_us;
    scope->hooked |= (uint8_t)(1u << kind);
    lh_hooks_forget_some(c);
    return true;
}

/* --- the line --- */

void lh_hooks_part(struct lh_coordinator *c, struct lh_scope *scope)
{
    struct lh_hook_space *space = scope->space;

    if (space == NULL)
        return;
    lh_list_remove(&scope->hook_ready);
    scope->space = NULL;
    c->hooks.waiting--;
    if (lh_list_is_empty(&space->scopes))
        lh_list_remove(&space->working);
}

void lh_hooks_join(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind)
{
    struct lh_hook_space *space;

    if (scope->space != NULL && scope->hook_kind == kind)
        return;
    lh_hooks_part(c, scope);
    space = lh_hooks_space(c, scope->ns);
    scope->space = space;
    scope->hook_kind = (uint8_t)kind;
    lh_list_append(&space->scopes, &scope->hook_ready);
    c->hooks.waiting++;
    if (!lh_link_is_linked(&space->working))
        lh_list_append(&c->hooks.working, &space->working);
    lh_hooks_forget_some(c);
}

/* --- whose turn it is --- */

static const struct lh_lane *hook_lanes(const struct lh_coordinator *c)
{
    return c->lanes + c->lane_count;
}

/* Known to be slow when it was sent, or found out since. */
static bool is_slow_lane(const struct lh_coordinator *c, const struct lh_lane *lane)
{
    return lane->space != NULL && (lane->is_slow || c->now_us - lane->sent_us > LH_HOOK_SLOW_US);
}

bool lh_hooks_is_slow(const struct lh_coordinator *c, const struct lh_hook_space *space)
{
    if (space->took_us > LH_HOOK_SLOW_US)
        return true;
    for (unsigned i = 0; space->running > 0 && i < c->hook_lane_count; i++) {
        const struct lh_lane *lane = &hook_lanes(c)[i];
        if (lane->space == space && is_slow_lane(c, lane))
            return true;
    }
    return false;
}

static bool is_last_lane_for_slow(const struct lh_coordinator *c)
{
    unsigned slow = 0;
    for (unsigned i = 0; i < c->hook_lane_count; i++)
        slow += is_slow_lane(c, &hook_lanes(c)[i]);
    return c->hook_lane_count > 1 && slow + 1 >= c->hook_lane_count;
}

static bool may_go(const struct lh_coordinator *c, const struct lh_hook_space *space)
{
    return space->retry_us <= c->now_us && !(lh_hooks_is_slow(c, space) && is_last_lane_for_slow(c));
}

static struct lh_hook_space *next_working(const struct lh_coordinator *c)
{
    LH_LIST_EACH(struct lh_hook_space, space, &c->hooks.working, working) {
        if (may_go(c, space))
            return space;
    }
    return NULL;
}

static struct lh_hook_space *next_reaping(const struct lh_coordinator *c)
{
    if (c->state != LH_CORE_RUNNING)
        return NULL;
    LH_LIST_EACH(struct lh_hook_space, space, &c->hooks.reaping, reaping) {
        if (may_go(c, space))
            return space;
    }
    return NULL;
}

static bool is_resting(const struct lh_lane *lane)
{
    return lane->rest_us > lane->coordinator->now_us;
}

/* Rather one that may reap. */
static struct lh_lane *idle_lane(const struct lh_coordinator *c)
{
    struct lh_lane *best = NULL;

    for (unsigned i = 0; i < c->hook_lane_count; i++) {
        struct lh_lane *lane = &c->lanes[c->lane_count + i];
        bool is_idle = lane->state == LH_LANE_IDLE && lane->space == NULL;
        if (is_idle && (best == NULL || (is_resting(best) && !is_resting(lane))))
            best = lane;
    }
    return best;
}

bool lh_hooks_could_dispatch(const struct lh_coordinator *c)
{
    bool has_work = !lh_list_is_empty(&c->hooks.working) || !lh_list_is_empty(&c->hooks.reaping);
    const struct lh_lane *lane = has_work && c->state != LH_CORE_CLOSING ? idle_lane(c) : NULL;
    return lane != NULL && (next_working(c) != NULL || (!is_resting(lane) && next_reaping(c) != NULL));
}

void lh_hooks_occupy(struct lh_lane *lane, struct lh_hook_space *space)
{
    lane->is_slow = lh_hooks_is_slow(lane->coordinator, space);
    lane->space = space;
    space->running++;
}

void lh_hooks_leave(struct lh_lane *lane)
{
    lane->space->running--;
    lane->space = NULL;
}

static void set_timeout(struct lh_lane *lane, int64_t timeout_us)
{
    void *item = lane->items[0];
    switch (lane->kind) {
    case LH_KIND_ACQUIRE:
        ((struct lh_acquire_item *)item)->hook_timeout_us = timeout_us;
        break;
    case LH_KIND_HEARTBEAT:
        ((struct lh_heartbeat_item *)item)->hook_timeout_us = timeout_us;
        break;
    case LH_KIND_RELEASE:
        ((struct lh_release_item *)item)->hook_timeout_us = timeout_us;
        break;
    default:
        ((struct lh_leave_item *)item)->hook_timeout_us = timeout_us;
        break;
    }
}

/* One item of the scope that has waited longest in this namespace; the namespace's next turn is after all others. */
static void send_item(struct lh_coordinator *c, struct lh_lane *lane, struct lh_hook_space *space)
{
    struct lh_scope *scope = LH_LIST_FIRST(struct lh_scope, &space->scopes, hook_ready);
    enum lh_kind kind = (enum lh_kind)scope->hook_kind;

    lh_list_remove(&space->working);
    lh_list_append(&c->hooks.working, &space->working);
    lh_hooks_occupy(lane, space);
    lane->has_reaps = false;
    lh_lane_begin(lane, kind);
    scope->hooked &= (uint8_t) ~(1u << kind);
    scope->is_on_hook_lane = true;
    lh_lane_take(lane, scope, 1);
    lh_scope_settle(c, scope); /* what else it has waits no longer than for a busy row */
    set_timeout(lane, space->timeout_us);
    lh_lane_send(lane);
}

void lh_hooks_dispatch(struct lh_coordinator *c)
{
    bool has_work = !lh_list_is_empty(&c->hooks.working) || !lh_list_is_empty(&c->hooks.reaping);
    bool is_behind = has_work && c->port.is_behind != NULL && c->port.is_behind(c->port.arg);
    struct lh_lane *lane;

    while (has_work && c->state != LH_CORE_CLOSING && (lane = idle_lane(c)) != NULL) {
        struct lh_hook_space *item_space = is_behind ? NULL : next_working(c);
        struct lh_hook_space *reap_space = is_resting(lane) ? NULL : next_reaping(c);

        /* By turns: neither waits for all of the other. */
        if (item_space != NULL && (reap_space == NULL || lane->has_reaps))
            send_item(c, lane, item_space);
        else if (reap_space != NULL)
            lh_reaping_send(lane, reap_space);
        else
            return;
    }
}

/* --- what came of it --- */

void lh_hooks_on_timer(struct lh_coordinator *c)
{
    struct lh_link *lists[] = {&c->hooks.working, &c->hooks.reaping};
    int64_t next_us = LH_NEVER;

    LH_LIST_EACH(struct lh_hook_space, space, lists[0], working)
        next_us = space->retry_us > c->now_us && space->retry_us < next_us ? space->retry_us : next_us;
    LH_LIST_EACH(struct lh_hook_space, space, lists[1], reaping)
        next_us = space->retry_us > c->now_us && space->retry_us < next_us ? space->retry_us : next_us;
    for (unsigned i = 0; i < c->hook_lane_count; i++) {
        int64_t rest_us = hook_lanes(c)[i].rest_us;
        next_us = rest_us > c->now_us && rest_us < next_us ? rest_us : next_us;
    }
    lh_heap_set(&c->timers, &c->hooks.timer, next_us);
}

static bool have_others_work(const struct lh_coordinator *c)
{
    for (unsigned i = 0; i < c->lane_count; i++) {
        if (c->lanes[i].state == LH_LANE_BUSY)
            return true;
    }
    return false;
}

static void wake_at(struct lh_coordinator *c, int64_t at_us)
{
    if (c->hooks.timer.slot == 0 || c->hooks.timer.at_us > at_us)
        lh_heap_set(&c->timers, &c->hooks.timer, at_us);
}

/* A backlog of the dead must not starve the living: while they work, so long as the run took. */
void lh_hooks_rest(struct lh_lane *lane)
{
    struct lh_coordinator *c = lane->coordinator;
    int64_t took_us = c->now_us - lane->sent_us;

    if (took_us <= 0 || !have_others_work(c))
        return;
    lane->rest_us = c->now_us + (took_us < REST_MAX_US ? took_us : REST_MAX_US);
    wake_at(c, lane->rest_us);
}

void lh_hooks_back_off(struct lh_coordinator *c, struct lh_hook_space *space)
{
    space->delay_us = space->delay_us == 0 ? LOSS_FIRST_US : space->delay_us * 2;
    if (space->delay_us > LOSS_LAST_US)
        space->delay_us = LOSS_LAST_US;
    space->retry_us = c->now_us + lh_core_jitter(c, space->delay_us, 20);
    c->stats.hook_losses++;
    wake_at(c, space->retry_us);
}

void lh_hooks_on_call(struct lh_coordinator *c, struct lh_hook_space *space, unsigned event, int64_t took_us)
{
    space->delay_us = 0;
    space->took_us = space->took_us == 0 ? took_us : (space->took_us * 3 + took_us) / 4;
    if (space->took_us <= 0)
        space->took_us = 1;
    c->stats.hook_calls[event]++;
    lh_histogram_add(&c->stats.hook_us[event], &lh_latency_bounds, took_us);
}

void lh_hooks_on_done(struct lh_lane *lane, enum lh_status status)
{
    struct lh_coordinator *c = lane->coordinator;

    if (!lane->is_sent)
        ; /* the lane was down before it knew */
    else if (status == LH_DATABASE_UNAVAILABLE)
        lh_hooks_back_off(c, lane->space);
    else if (status != LH_CANCELED)
        lh_hooks_on_call(c, lane->space, lane->kind, c->now_us - lane->sent_us);
}

void lh_hooks_on_rejected(struct lh_coordinator *c, enum lh_kind kind, const char *message)
{
    c->stats.hook_rejections[kind]++;
    if (message != NULL && strncmp(message, LH_HOOK_TIMEOUT_WORDS, strlen(LH_HOOK_TIMEOUT_WORDS)) == 0)
        c->stats.hook_timeouts[kind]++;
}
