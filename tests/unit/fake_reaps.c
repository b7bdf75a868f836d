/* Runs of reaps through hooks, by the rules of leasehold_internal.reap_hooked() and leasehold_internal.reap_together(). */
#include "fake_reaps.h"

#include <string.h>

#include "base/clock.h"
#include "fake_rules.h"
#include "fake_scope.h"

bool fake_is_vetoed(struct fake_world *world, const char *key, struct lh_arena *strings, const char **message)
{
    bool is_veto = fake_below(world, 100) < world->hook_reject_percent;
    const char *words = "the hook says no";
    if (world->on_hook != NULL)
        is_veto = world->on_hook(world, key, &words);
    if (is_veto)
        *message = lh_arena_strdup(strings, words);
    return is_veto;
}

/* The lease to be reaped, or NULL. */
static struct fake_scope *due(const struct fake_world *world, struct fake_scope *scope, const struct lh_reap_item *item)
{
    struct fake_scope *found = scope->is_held && scope->token == item->token ? scope : NULL;
    for (size_t i = 0; i < scope->share_count; i++)
        found = scope->shares[i].token == item->token ? &scope->shares[i] : found;
    return found != NULL && fake_is_expired(world, found) && scope->busy_until_us <= world->now_us ? found : NULL;
}

static void end_reaped(struct fake_node *node, struct fake_scope *scope, struct fake_scope *lease,
                       struct lh_reap_item *item)
{
    scope->reap_hooks++;
    fake_end(node->world, scope, lease, LH_END_EXPIRED);
    item->outcome = LH_REAP_DONE;
    item->reaped.wake = fake_wake_head(node->world, node->index, scope);
}

/* A lease that a reaper's look had named. Committed before the next begins. */
static void reap_one(struct fake_node *node, struct lh_reap_item *item, struct lh_arena *strings)
{
    struct fake_world *world = node->world;
    struct fake_scope *scope = fake_scope(world, item->ns, item->key);

    item->outcome = LH_REAP_GONE;
    item->took_us = world->reap_us > 0 ? world->reap_us : 100;
    item->reaped = (struct lh_reaped){0};
    struct fake_scope *lease = due(world, scope, item);
    if (lease == NULL)
        return;
    if (item->loss != NULL || fake_is_vetoed(world, scope->key, strings, &item->reaped.error)) {
        item->outcome = LH_REAP_FAILED;
        if (item->loss != NULL)
            item->reaped.error = lh_arena_strdup(strings, item->loss);
        item->reaped.reap_failures = ++lease->reap_failures;
        lease->claimed_until_us = world->now_us + LH_US_PER_S;
        return;
    }
    end_reaped(node, scope, lease, item);
}

static size_t group_size(const struct fake_batch *batch, size_t first)
{
    size_t n = 1;
    while (first + n < batch->n && ((struct lh_reap_item *)batch->items[first + n])->is_joined)
        n++;
    return n;
}

/* All or none of those that are due; the others are left alone. */
static void reap_together(struct fake_node *node, struct lh_reap_item **items, size_t n, struct lh_arena *strings)
{
    struct fake_world *world = node->world;
    bool is_lost = false;

    if (n > world->largest_group)
        world->largest_group = n;
    if (n > LH_REAP_TOGETHER_MAX)
        fake_fail("%zu reaps in one transaction", n);
    for (size_t i = 0; i < n; i++) {
        struct fake_scope *scope = fake_scope(world, items[i]->ns, items[i]->key);
        const char *words;
        if (strcmp(items[i]->ns, items[0]->ns) != 0 || items[i]->loss != NULL || scope->reap_failures > 0)
            fake_fail("the reap of %s/%s shares a transaction", items[i]->ns, items[i]->key);
        items[i]->took_us = world->reap_us > 0 ? world->reap_us : 100;
        items[i]->reaped = (struct lh_reaped){0};
        items[i]->outcome = LH_REAP_ALONE;
        is_lost |= fake_is_vetoed(world, scope->key, strings, &words);
    }
    world->lost_groups += is_lost;
    for (size_t i = 0; i < n && !is_lost; i++) {
        struct fake_scope *scope = fake_scope(world, items[i]->ns, items[i]->key);
        struct fake_scope *lease = due(world, scope, items[i]);
        if (lease != NULL && scope->row_count == 0)
            end_reaped(node, scope, lease, items[i]);
    }
}

void fake_execute_run(struct fake_node *node, struct fake_batch *batch)
{
    bool is_broken = false;
    for (int l = 0; l < FAKE_ALL_LANES; l++)
        is_broken |= &node->lanes[l].batch == batch && node->lanes[l].is_broken;
    size_t end = is_broken ? (size_t)fake_below(node->world, (int)batch->n) : batch->n;
    for (size_t first = 0, n; first < end; first += n) {
        n = group_size(batch, first);
        if (n == 1)
            reap_one(node, batch->items[first], &batch->strings);
        else if (first + n <= end)
            reap_together(node, (struct lh_reap_item **)batch->items + first, n, &batch->strings);
    }
}

void fake_scribble_run(struct fake_world *world, struct fake_batch *batch)
{
    size_t answered = (size_t)fake_below(world, (int)batch->n + 1);
    while (answered < batch->n && ((struct lh_reap_item *)batch->items[answered])->is_joined)
        answered--;
    for (size_t i = answered; i < batch->n; i++)
        ((struct lh_reap_item *)batch->items[i])->outcome = LH_REAP_UNANSWERED;
}
