#include "fake_all.h"

#include "fake_reaps.h"
#include "fake_scope.h"

struct together {
    struct fake_node *node;
    struct fake_batch *batch;
    struct lh_acquire_item **items;
    struct fake_scope *scopes[FAKE_SCOPES];
    size_t n;
    uint64_t mask;
};

static void about(const struct together *all, size_t i, enum lh_acquire_outcome outcome, const char *field)
{
    all->items[i]->outcome = outcome;
    all->items[i]->field = field;
}

/* Its places go, and the next ones are told. */
static void remove_all(const struct together *all)
{
    for (size_t i = 0; i < all->n; i++) {
        fake_remove_row(all->scopes[i], &all->items[i]->lease_key);
        if (fake_wake_head(all->node->world, all->node->index, all->scopes[i]))
            fake_notify(all->node->world, all->node->index, all->scopes[i]);
    }
}

/* True: there is an answer already. */
static bool refuse_all(const struct together *all)
{
    struct fake_world *world = all->node->world;

    for (size_t i = 0; i < all->n; i++) {
        struct fake_scope *scope = all->scopes[i];
        struct fake_scope *own = fake_lease(scope, &all->items[i]->lease_key);
        if (scope->is_frozen) {
            about(all, i, LH_ACQUIRE_FROZEN, NULL);
            return true;
        }
        if (own != NULL && fake_is_expired(world, own))
            fake_end(world, scope, own, LH_END_EXPIRED);
        if (fake_end_reason(scope, &all->items[i]->lease_key) != LH_END_UNSPECIFIED) {
            about(all, i, LH_ACQUIRE_ENDED, NULL);
            return true;
        }
    }
    for (size_t i = 0; i < all->n; i++) {
        const struct fake_scope *own = fake_lease(all->scopes[i], &all->items[i]->lease_key);
        const struct fake_row *row = fake_row(all->scopes[i], &all->items[i]->lease_key);
        bool has_first = fake_lease(all->scopes[0], &all->items[0]->lease_key) != NULL;
        bool is_other = (own != NULL) != has_first || (own != NULL && own->units != all->items[i]->units) ||
                        (row != NULL && (row->together != all->mask || row->units != all->items[i]->units));
        if (is_other) {
            about(all, i, LH_ACQUIRE_INVALID, "items");
            return true;
        }
        if (own == NULL && all->scopes[i]->capacity > 0 && all->items[i]->units > all->scopes[i]->capacity) {
            remove_all(all);
            about(all, i, LH_ACQUIRE_INVALID, "units");
            return true;
        }
    }
    return false;
}

static bool is_in_the_way(const struct together *all, size_t i)
{
    struct fake_world *world = all->node->world;
    const struct fake_scope *scope = all->scopes[i];
    const struct fake_row *own_row = fake_row(scope, &all->items[i]->lease_key);
    const struct fake_row *head = fake_head(world, scope);
    bool is_first = head == NULL || (own_row != NULL && own_row->ticket <= head->ticket);

    return !is_first || !fake_has_room(world, scope, all->items[i]->units) || fake_rests_in_us(world, scope) > 0;
}

static void tell(const struct together *all, size_t i)
{
    struct fake_scope *scope = all->scopes[i];
    struct lh_acquire_item *item = all->items[i];
    const struct fake_row *row = fake_row(scope, &item->lease_key);

    item->new_ticket = row == NULL ? 0 : row->ticket;
    item->waiters_ahead = row == NULL ? (int32_t)scope->row_count : (int32_t)(row - scope->rows);
    item->rests_in_us = fake_rests_in_us(all->node->world, scope);
    fake_tell_holders(all->node->world, scope, item, &all->batch->strings);
}

static void wait_for(const struct together *all, size_t reason)
{
    struct fake_world *world = all->node->world;
    struct lh_acquire_item *told = all->items[reason];
    int64_t ticket = told->ticket;
    int64_t expires_in_us = LH_NEVER;

    for (size_t i = 0; i < all->n; i++) {
        const struct fake_row *row = fake_row(all->scopes[i], &told->lease_key);
        ticket = row != NULL ? row->ticket : ticket;
    }
    if (ticket == 0)
        ticket = ++world->next_ticket;
    for (size_t i = 0; i < all->n; i++) {
        struct lh_acquire_item item = *all->items[i];
        item.ticket = ticket;
        if (item.queue)
            fake_enqueue(all->node, all->scopes[i], &item, all->mask);
        if (is_in_the_way(all, i)) {
            fake_tell_holders(world, all->scopes[i], &item, &all->batch->strings);
            expires_in_us = item.expires_in_us < expires_in_us ? item.expires_in_us : expires_in_us;
        }
    }
    told->outcome = told->queue ? LH_ACQUIRE_QUEUED : LH_ACQUIRE_HELD;
    tell(all, reason);
    told->expires_in_us = expires_in_us;
}

static bool is_vetoed(const struct together *all)
{
    struct fake_world *world = all->node->world;

    for (size_t i = 0; i < all->n && world->is_hooked; i++) {
        if (!all->batch->is_on_hook_lane) {
            about(all, i, LH_ACQUIRE_HOOKED, NULL);
            all->items[i]->hook_timeout_us = world->hook_timeout_us;
            return true;
        }
        if (fake_is_vetoed(world, all->scopes[i]->key, &all->batch->strings, &all->items[i]->message)) {
            about(all, i, LH_ACQUIRE_REJECTED, NULL);
            if (fake_lease(all->scopes[i], &all->items[i]->lease_key) == NULL)
                remove_all(all);
            return true;
        }
    }
    return false;
}

static void grant_all(const struct together *all)
{
    struct fake_world *world = all->node->world;

    for (size_t i = 0; i < all->n; i++) {
        struct lh_acquire_item *item = all->items[i];
        struct fake_scope *own = fake_lease(all->scopes[i], &item->lease_key);
        item->outcome = own == NULL ? LH_ACQUIRE_GRANTED : LH_ACQUIRE_RENEWED;
        if (own == NULL) {
            fake_grant(all->node, all->scopes[i], item);
            fake_wake_head(world, all->node->index, all->scopes[i]);
        } else {
            own->heartbeat_at_us = world->now_us;
            own->heartbeats++;
            own->duration_us = item->terms.duration_us;
            own->has_moved |= own->granted_by != all->node->index;
            own->granted_by = all->node->index;
        }
        tell(all, i);
    }
}

void fake_acquire_all(struct fake_node *node, struct fake_batch *batch)
{
    struct fake_world *world = node->world;
    struct together all = {
        .node = node, .batch = batch, .items = (struct lh_acquire_item **)batch->items, .n = batch->n};
    bool is_busy = false;
    bool is_held;

    for (size_t i = 0; i < all.n; i++) {
        struct lh_acquire_item *item = all.items[i];
        all.scopes[i] = fake_scope(world, item->ns, item->key);
        all.mask |= UINT64_C(1) << (all.scopes[i] - world->scopes);
        all.scopes[i]->acquires++;
        all.scopes[i]->tried++;
        is_busy |= all.scopes[i]->busy_until_us > world->now_us;
        item->outcome = LH_ACQUIRE_BUSY;
        item->has_lease = false;
        item->holder_count = 0;
        item->units_free = LH_UNITS_UNBOUNDED;
        item->message = item->field = item->bound = NULL;
    }
    if (is_busy || refuse_all(&all))
        return;
    is_held = fake_lease(all.scopes[0], &all.items[0]->lease_key) != NULL;
    for (size_t i = 0; i < all.n && !is_held; i++) {
        if (is_in_the_way(&all, i)) {
            wait_for(&all, i);
            return;
        }
    }
    if (!is_vetoed(&all))
        grant_all(&all);
}
