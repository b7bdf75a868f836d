/* What goes beside the batches in the fake database: registering, ticks, reaping, wake-ups that are passed on. */
#include "fake_rules.h"
#include "fake_scope.h"

#define REAPED_MAX 200
#define HOLDERS_MAX 10
#define UNKNOWN_US (10 * LH_US_PER_S)

static void remove_rows_of(struct fake_world *world, int index)
{
    for (int s = 0; s < FAKE_SCOPES; s++) {
        struct fake_scope *scope = &world->scopes[s];
        size_t kept = 0;
        for (size_t i = 0; i < scope->row_count; i++) {
            if (scope->rows[i].node != index)
                scope->rows[kept++] = scope->rows[i];
        }
        if (kept == scope->row_count)
            continue;
        scope->row_count = kept;
        fake_wake_head(world, -1, scope);
    }
}

/* Its waiters stay away, as the real one's do; nobody is first then but others. */
void fake_unregister(struct fake_node *node)
{
    struct fake_world *world = node->world;
    node->is_registered = false;
    for (int s = 0; s < FAKE_SCOPES; s++)
        fake_wake_head(world, node->index, &world->scopes[s]);
}

/* Nobody is woken at a coordinator that was taken for dead: this alone finds it when it lives again. */
static size_t slow_poll(struct fake_node *node, bool was_live, struct lh_wake *wakes)
{
    size_t n = 0;
    if (was_live && !node->world->slow_poll_helps)
        return 0;
    for (int s = 0; s < FAKE_SCOPES; s++) {
        struct fake_scope *scope = &node->world->scopes[s];
        const struct fake_row *head = fake_head(node->world, scope);
        if (head != NULL && head->node == node->index && fake_has_room(node->world, scope, head->units) &&
            fake_rests_in_us(node->world, scope) == 0)
            wakes[n++] = (struct lh_wake){scope->ns, scope->key, 0};
    }
    return n;
}

static void answer_tick(struct fake_node *node, const struct fake_control *control)
{
    struct fake_world *world = node->world;
    bool was_live = fake_is_live(world, node->index);
    struct lh_error refusal = {.status = LH_ACCESS_DENIED, .message = "permission denied for function"};
    struct lh_wake wakes[FAKE_SCOPES];
    struct lh_tick_answer answer = {.database_now_us = world->now_us + world->clock_offset_us, .wakes = wakes};
    if (control->kind == 0 ? world->refuses_coordinators : world->refuses_ticks) {
        control->on_done.tick(control->arg, refusal.status, &refusal, NULL);
        return;
    }
    if (control->kind == 0)
        node->is_registered = true;
    answer.is_registered = node->is_registered;
    answer.access_version = world->access_version;
    if (node->is_registered)
        node->seen_at_us = world->now_us;
    answer.wake_count = control->kind == 0 ? 0 : slow_poll(node, was_live, wakes);
    control->on_done.tick(control->arg, LH_OK, NULL, &answer);
}

static void clean_up_the_dead(struct fake_world *world)
{
    for (int i = 0; i < world->node_count; i++) {
        if (!world->nodes[i]->is_registered || fake_is_live(world, i))
            continue;
        world->nodes[i]->is_registered = false;
        world->nodes[i]->cleaned_at_us = world->now_us;
        remove_rows_of(world, i);
    }
}

/* False: it is there still, as it has not expired, or has a hook to be called. */
static bool reap(struct fake_node *node, struct fake_scope *scope, struct fake_scope *lease,
                 struct lh_reap_answer *answer, struct lh_reaped *leases, struct lh_arena *strings)
{
    struct fake_world *world = node->world;
    if (answer->lease_count == REAPED_MAX || !fake_is_expired(world, lease) ||
        (world->is_hooked && lease->claimed_until_us > world->now_us))
        return false;
    struct lh_reaped *reaped = &leases[answer->lease_count++];
    *reaped = (struct lh_reaped){0};
    fake_fill_lease(world, lease, strings, &reaped->lease);
    if (world->is_hooked) {
        reaped->is_hooked = true;
        reaped->hook_timeout_us = world->hook_timeout_us;
        reaped->reap_failures = lease->reap_failures;
        lease->claimed_until_us = world->now_us + world->hook_timeout_us + 5 * LH_US_PER_S;
        return false;
    }
    fake_end(world, scope, lease, LH_END_EXPIRED);
    reaped->wake = fake_wake_head(world, node->index, scope);
    return true;
}

static void answer_reap(struct fake_node *node, const struct fake_control *control)
{
    struct fake_world *world = node->world;
    struct lh_reaped leases[REAPED_MAX];
    struct lh_wake wakes[FAKE_SCOPES];
    struct lh_reap_answer answer = {.leases = leases, .wakes = wakes};
    struct lh_arena strings = {0};

    clean_up_the_dead(world);
    for (int s = 0; s < FAKE_SCOPES; s++) {
        struct fake_scope *scope = &world->scopes[s];
        if (scope->busy_until_us > world->now_us)
            continue;
        reap(node, scope, scope, &answer, leases, &strings);
        for (size_t i = 0; i < scope->share_count;)
            i += !reap(node, scope, &scope->shares[i], &answer, leases, &strings);
    }
    answer.wake_count = slow_poll(node, true, wakes);
    control->on_done.reap(control->arg, LH_OK, NULL, &answer);
    lh_arena_finish(&strings);
}

/* It asks for its first waiter first: those of its rows before that are old belong to nobody. */
static void remove_unknown_rows(const struct fake_node *node, struct fake_scope *scope, int64_t first_ticket)
{
    size_t kept = 0;

    for (size_t i = 0; i < scope->row_count; i++) {
        const struct fake_row *row = &scope->rows[i];
        bool is_unknown = row->node == node->index && row->away_until_us == 0 &&
                          (first_ticket == 0 || row->ticket < first_ticket) &&
                          node->world->now_us - row->enqueued_at_us > UNKNOWN_US;
        if (!is_unknown)
            scope->rows[kept++] = *row;
    }
    scope->row_count = kept;
}

static void pass_on(struct fake_node *node, const struct fake_control *control)
{
    struct fake_world *world = node->world;
    struct fake_scope *scope = fake_scope(world, control->ns, control->key);
    world->passed_on++;
    if (!scope->is_held)
        remove_unknown_rows(node, scope, control->first_ticket);
    bool is_ours = fake_wake_head(world, node->index, scope);
    control->on_done.store(control->arg, LH_OK, NULL);
    if (is_ours) {
        struct lh_wake wake = {scope->ns, scope->key, 0};
        node->events->on_wake(node->events_arg, &wake);
    }
}

static void answer_holders(struct fake_node *node, const struct fake_control *control)
{
    struct fake_scope *scope = fake_scope(node->world, control->ns, control->key);
    struct lh_held_lease leases[HOLDERS_MAX];
    struct lh_list_answer answer = {.leases = leases};
    struct lh_arena strings = {0};

    if (scope->is_held)
        fake_fill_lease(node->world, scope, &strings, &leases[answer.lease_count++]);
    for (size_t i = 0; i < scope->share_count && i < HOLDERS_MAX; i++)
        fake_fill_lease(node->world, &scope->shares[i], &strings, &leases[answer.lease_count++]);
    answer.has_more = scope->share_count > HOLDERS_MAX;
    control->on_done.list(control->arg, LH_OK, NULL, &answer);
    lh_arena_finish(&strings);
}

static void answer_get(struct fake_node *node, const struct fake_control *control)
{
    struct fake_world *world = node->world;
    struct fake_scope *scope = fake_scope(world, control->ns, control->key);
    const struct fake_scope *oldest = fake_oldest(scope);
    struct lh_scope_answer answer = {.is_held = oldest != NULL,
                                     .holder_count = fake_holder_count(scope),
                                     .units_free = fake_units_free(world, scope),
                                     .waiters = (int32_t)scope->row_count,
                                     .rests_in_us = fake_rests_in_us(world, scope)};
    struct lh_arena strings = {0};

    if (oldest != NULL)
        fake_fill_lease(world, oldest, &strings, &answer.lease);
    control->on_done.get(control->arg, LH_OK, NULL, &answer);
    lh_arena_finish(&strings);
}

void fake_answer_control(struct fake_node *node, const struct fake_control *control, enum lh_status status)
{
    struct lh_error error;
    if (status == LH_OK) {
        if (control->kind <= 1)
            answer_tick(node, control);
        else if (control->kind == 2)
            pass_on(node, control);
        else if (control->kind == 3)
            answer_reap(node, control);
        else if (control->kind == 4)
            answer_holders(node, control);
        else
            answer_get(node, control);
        return;
    }
    lh_error_set(&error, status, "control is gone");
    if (control->kind <= 1)
        control->on_done.tick(control->arg, status, &error, NULL);
    else if (control->kind == 2)
        control->on_done.store(control->arg, status, &error);
    else if (control->kind == 3)
        control->on_done.reap(control->arg, status, &error, NULL);
    else if (control->kind == 4)
        control->on_done.list(control->arg, status, &error, NULL);
    else
        control->on_done.get(control->arg, status, &error, NULL);
}
