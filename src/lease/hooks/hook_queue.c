#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "lease/hooks_internal.h"

#define LOSS_FIRST_US (100 * LH_US_PER_MS)
#define LOSS_LAST_US (10 * LH_US_PER_S)

static bool is_named(const struct lh_table_entry *entry, const void *key)
{
    return strcmp(LH_CONTAINER(const struct lh_hook_queue, entry, entry)->ns, key) == 0;
}

void lh_hook_queues_create(struct lh_coordinator *c)
{
    lh_table_init(&c->hooks.queues, is_named);
    lh_list_init(&c->hooks.used);
    lh_list_init(&c->hooks.working);
    lh_list_init(&c->hooks.reaping);
    c->hooks.timer.kind = LH_TIMER_HOOK;
}

static void forget(struct lh_coordinator *c, struct lh_hook_queue *hook_queue)
{
    lh_table_remove(&c->hooks.queues, &hook_queue->entry);
    lh_list_remove(&hook_queue->used);
    free(hook_queue);
}

void lh_hook_queues_destroy(struct lh_coordinator *c)
{
    LH_LIST_EACH(struct lh_hook_queue, hook_queue, &c->hooks.used, used)
        forget(c, hook_queue);
    lh_table_finish(&c->hooks.queues);
}

static struct lh_hook_queue *find(const struct lh_coordinator *c, const char *ns)
{
    struct lh_table_entry *entry;

    if (c->hooks.queues.count == 0)
        return NULL; /* where nothing is hooked, this costs nothing */
    entry = lh_table_find(&c->hooks.queues, lh_hash(ns, strlen(ns), 0), ns);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_hook_queue, entry, entry);
}

static bool is_idle(const struct lh_hook_queue *hook_queue)
{
    return hook_queue->running == 0 && hook_queue->jobs == 0 && lh_list_is_empty(&hook_queue->scopes);
}

void lh_hook_queues_forget_some(struct lh_coordinator *c)
{
    if (c->hooks.queues.count <= LH_HOOK_QUEUES_MAX)
        return;
    LH_LIST_EACH(struct lh_hook_queue, hook_queue, &c->hooks.used, used) {
        if (c->hooks.queues.count <= LH_HOOK_QUEUES_MAX)
            return;
        if (is_idle(hook_queue))
            forget(c, hook_queue);
    }
}

struct lh_hook_queue *lh_hook_queue_get(struct lh_coordinator *c, const char *ns)
{
    struct lh_hook_queue *hook_queue = find(c, ns);

    if (hook_queue == NULL) {
        size_t size = strlen(ns);
        hook_queue = lh_alloc_zero(1, sizeof(*hook_queue) + size + 1);
        memcpy(hook_queue->ns, ns, size + 1);
        lh_list_init(&hook_queue->scopes);
        lh_list_init(&hook_queue->reaps);
        lh_table_insert(&c->hooks.queues, &hook_queue->entry, lh_hash(ns, size, 0));
    }
    lh_list_remove(&hook_queue->used);
    lh_list_append(&c->hooks.used, &hook_queue->used);
    return hook_queue;
}

/* Leaves mostly take somebody out of the queue, who has no lease to end: they ask first, always. */
static bool is_known(const struct lh_coordinator *c, const char *ns, enum lh_kind kind)
{
    const struct lh_hook_queue *hook_queue = kind == LH_KIND_LEAVE ? NULL : find(c, ns);
    return hook_queue != NULL && hook_queue->known_until_us[kind] > c->now_us;
}

bool lh_hook_queue_wants(const struct lh_coordinator *c, const struct lh_scope *scope, enum lh_kind kind)
{
    bool is_in_line =
        scope->hook_queue != NULL && scope->hook_kind == kind; /* it stays there, whatever is believed now */
    return is_in_line || (scope->hooked & (1u << kind)) != 0 || is_known(c, scope->ns, kind);
}

static bool is_full(const struct lh_coordinator *c)
{
    return c->hooks.waiting >= c->options.max_hooked;
}

bool lh_hook_queue_refuse(struct lh_coordinator *c, const char *ns, enum lh_kind kind)
{
    if (!is_full(c) || !is_known(c, ns, kind))
        return false;
    c->stats.refused_hooked++;
    return true;
}

bool lh_hook_queue_learn(struct lh_lane *lane, struct lh_scope *scope, enum lh_kind kind, int64_t timeout_us)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_hook_queue *hook_queue;

    if (lane->hook_queue != NULL) {
        lh_err("an item was not done on a hook lane scope=%s", LH_SCOPE_NAME(scope->ns, scope->key));
        return false;
    }
    hook_queue = lh_hook_queue_get(c, scope->ns);
    hook_queue->known_until_us[kind] = c->now_us + LH_HOOK_BELIEF_US;
    hook_queue->timeout_us = timeout_us;
    scope->hooked |= (uint8_t)(1u << kind);
    lh_hook_queues_forget_some(c);
    return true;
}

const char *lh_hook_queue_trouble(const struct lh_coordinator *c, const struct lh_scope *scope, enum lh_kind kind)
{
    const struct lh_hook_queue *hook_queue = find(c, scope->ns);

    if (hook_queue != NULL && hook_queue->delay_us > 0)
        return "the connection to the database was lost while a hook of the namespace ran";
    if (scope->hook_queue != NULL && scope->hook_kind == kind)
        return "the hooks of the namespace are slow: its turn did not come in time";
    return NULL;
}

/* --- the line --- */

void lh_hook_queue_part(struct lh_coordinator *c, struct lh_scope *scope)
{
    struct lh_hook_queue *hook_queue = scope->hook_queue;

    if (hook_queue == NULL)
        return;
    lh_list_remove(&scope->hook_ready);
    scope->hook_queue = NULL;
    c->hooks.waiting--;
    if (lh_list_is_empty(&hook_queue->scopes))
        lh_list_remove(&hook_queue->working);
}

void lh_hook_queue_join(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind)
{
    struct lh_hook_queue *hook_queue;

    if (scope->hook_queue != NULL && scope->hook_kind == kind)
        return;
    lh_hook_queue_part(c, scope);
    hook_queue = lh_hook_queue_get(c, scope->ns);
    scope->hook_queue = hook_queue;
    scope->hook_kind = (uint8_t)kind;
    lh_list_append(&hook_queue->scopes, &scope->hook_ready);
    c->hooks.waiting++;
    if (!lh_link_is_linked(&hook_queue->working))
        lh_list_append(&c->hooks.working, &hook_queue->working);
    lh_hook_queues_forget_some(c);
}

/* --- what its calls cost --- */

/* Known to be slow when it was sent, or found out since. */
bool lh_hook_queue_is_slow_lane(const struct lh_coordinator *c, const struct lh_lane *lane)
{
    return lane->hook_queue != NULL && (lane->is_slow || c->now_us - lane->sent_us > LH_HOOK_SLOW_US);
}

bool lh_hook_queue_is_slow(const struct lh_coordinator *c, const struct lh_hook_queue *hook_queue)
{
    if (hook_queue->took_us > LH_HOOK_SLOW_US)
        return true;
    for (unsigned i = 0; hook_queue->running > 0 && i < c->lanes.hook_count; i++) {
        const struct lh_lane *lane = &c->lanes.all[c->lanes.count + i];
        if (lane->hook_queue == hook_queue && lh_hook_queue_is_slow_lane(c, lane))
            return true;
    }
    return false;
}

void lh_hook_queue_occupy(struct lh_lane *lane, struct lh_hook_queue *hook_queue)
{
    lane->is_slow = lh_hook_queue_is_slow(lane->coordinator, hook_queue);
    lane->hook_timeout_us = hook_queue->timeout_us;
    lane->hook_queue = hook_queue;
    hook_queue->running++;
}

void lh_hook_queue_leave(struct lh_lane *lane)
{
    if (lane->hook_queue == NULL)
        return;
    lane->hook_queue->running--;
    lane->hook_queue = NULL;
}

void lh_hook_queues_wake_at(struct lh_coordinator *c, int64_t at_us)
{
    if (c->hooks.timer.slot == 0 || c->hooks.timer.at_us > at_us)
        lh_heap_set(&c->timers, &c->hooks.timer, at_us);
}

void lh_hook_queue_back_off(struct lh_coordinator *c, struct lh_hook_queue *hook_queue)
{
    hook_queue->delay_us = hook_queue->delay_us == 0 ? LOSS_FIRST_US : hook_queue->delay_us * 2;
    if (hook_queue->delay_us > LOSS_LAST_US)
        hook_queue->delay_us = LOSS_LAST_US;
    hook_queue->retry_us = c->now_us + lh_turn_jitter(c, hook_queue->delay_us, 20);
    c->stats.hook_losses++;
    lh_hook_queues_wake_at(c, hook_queue->retry_us);
}

void lh_hook_queue_on_call(struct lh_coordinator *c, struct lh_hook_queue *hook_queue, enum lh_kind kind,
                           int64_t took_us)
{
    hook_queue->delay_us = 0;
    hook_queue->took_us = hook_queue->took_us == 0 ? took_us : (hook_queue->took_us * 3 + took_us) / 4;
    if (hook_queue->took_us <= 0)
        hook_queue->took_us = 1;
    c->stats.hook_calls[kind]++;
    lh_histogram_add(&c->stats.hook_us[kind], &lh_latency_bounds, took_us);
}

void lh_hook_queue_on_rejected(struct lh_coordinator *c, enum lh_kind kind, const char *message)
{
    c->stats.hook_rejections[kind]++;
    if (message != NULL && strncmp(message, LH_HOOK_TIMEOUT_WORDS, strlen(LH_HOOK_TIMEOUT_WORDS)) == 0)
        c->stats.hook_timeouts[kind]++;
}
