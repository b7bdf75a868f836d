#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "fake_rules.h"
#include "fake_scope.h"
#include "fuzz.h"

#define LEASES_LISTED 3

static struct lh_store_ops ops;

_Noreturn void fake_fail(const char *format, ...)
{
    fuzz_fail(format, "the fake store", 0);
}

/* Instead of failing for a name that is none of the fake's. */
struct fake_scope *__wrap_fake_scope(struct fake_world *world, const char *ns, const char *key);
struct fake_scope *__wrap_fake_scope(struct fake_world *world, const char *ns, const char *key)
{
    unsigned hash = 0;

    for (int i = 0; i < FAKE_SCOPES; i++)
        if (strcmp(world->scopes[i].key, key) == 0 && strcmp(world->scopes[i].ns, ns) == 0)
            return &world->scopes[i];
    for (; *ns != '\0'; ns++)
        hash = hash * 31 + (uint8_t)*ns;
    for (; *key != '\0'; key++)
        hash = hash * 31 + (uint8_t)*key;
    return &world->scopes[hash % FAKE_SCOPES];
}

/* Several names that the fake takes for one scope are no request of its. */
void __wrap_fake_acquire_all(struct fake_node *node, struct fake_batch *batch);
void __real_fake_acquire_all(struct fake_node *node, struct fake_batch *batch);
void __wrap_fake_acquire_all(struct fake_node *node, struct fake_batch *batch)
{
    struct lh_acquire_item **items = (struct lh_acquire_item **)batch->items;

    for (size_t i = 0; i < batch->n; i++) {
        for (size_t j = 0; j < i; j++) {
            if (__wrap_fake_scope(node->world, items[i]->ns, items[i]->key) ==
                __wrap_fake_scope(node->world, items[j]->ns, items[j]->key)) {
                for (size_t k = 0; k < batch->n; k++)
                    items[k]->outcome = LH_ACQUIRE_BUSY;
                items[i]->outcome = LH_ACQUIRE_INVALID;
                items[i]->field = "items";
                return;
            }
        }
    }
    __real_fake_acquire_all(node, batch);
}

typedef void any_cb(void);

/* One answer, later. */
struct later {
    struct lh_link link;
    struct fake_node *node;
    enum { ASKED_PLAIN, ASKED_SCOPE, ASKED_LIST, ASKED_ROWS, ASKED_BARRIER, ASKED_SETTLED, ASKED_EVENTS } kind;
    any_cb *on_done; /* of that kind */
    void *arg;
    char ns[300];
    char key[1100];
};

static struct lh_link open; /* all of them */
static const struct lh_store_ops *fake_ops;

static void answer_scope(struct fake_world *world, const struct later *later)
{
    struct fake_scope *scope = __wrap_fake_scope(world, later->ns, later->key);
    struct lh_arena strings = {0};
    struct lh_scope_answer answer = {.is_held = scope->is_held, .waiters = (int32_t)scope->row_count};

    if (scope->is_held)
        fake_fill_lease(world, scope, &strings, &answer.lease);
    ((lh_scope_cb *)later->on_done)(later->arg, LH_OK, NULL, &answer);
    lh_arena_finish(&strings);
}

static void answer_list(struct fake_world *world, const struct later *later)
{
    struct lh_arena strings = {0};
    struct lh_held_lease leases[LEASES_LISTED];
    struct lh_list_answer answer = {.leases = leases};

    for (int s = 0; s < FAKE_SCOPES && answer.lease_count < LEASES_LISTED; s++)
        if (world->scopes[s].is_held)
            fake_fill_lease(world, &world->scopes[s], &strings, &leases[answer.lease_count++]);
    answer.has_more = answer.lease_count == LEASES_LISTED && later->key[0] == '\0';
    ((lh_list_cb *)later->on_done)(later->arg, LH_OK, NULL, &answer);
    lh_arena_finish(&strings);
}

static void answer_events(struct fake_world *world, const struct later *later)
{
    struct lh_arena strings = {0};
    struct lh_lease_event event = {.type = LH_EVENT_ACQUIRED};
    struct lh_events_answer answer = {.events = &event, .event_count = 1};

    fake_fill_lease(world, &world->scopes[fake_below(world, FAKE_SCOPES)], &strings, &event.lease);
    ((lh_events_cb *)later->on_done)(later->arg, LH_OK, NULL, &answer);
    lh_arena_finish(&strings);
}

/* Two rows with a column of each kind that a list or a change has. */
static void answer_rows(const struct later *later)
{
    static const char *const columns[] = {"namespace", "principal", "rights",   "id",          "name",
                                          "token",     "revoked",   "grace_us", "source_lines"};
    const char *cells[] = {later->ns, later->key, "read", "0", later->key, "lht_", "1", "5", NULL,
                           later->ns, later->key, "read", "0", later->key, "lht_", "1", "5", "\n"};
    struct lh_rows rows = {
        .columns = columns, .column_count = 9, .cells = cells, .row_count = 2, .has_more = later->key[0] == '\0'};

    ((lh_rows_cb *)later->on_done)(later->arg, LH_OK, NULL, &rows);
}

static void fail(const struct later *later, enum lh_status status)
{
    struct lh_error error;

    lh_error_set(&error, status, "the database is gone");
    switch (later->kind) {
    case ASKED_PLAIN:
        ((lh_store_cb *)later->on_done)(later->arg, status, &error);
        break;
    case ASKED_BARRIER:
        ((lh_barrier_cb *)later->on_done)(later->arg, status, &error, 0);
        break;
    case ASKED_SETTLED:
        ((lh_settled_cb *)later->on_done)(later->arg, status, &error, false);
        break;
    case ASKED_SCOPE:
        ((lh_scope_cb *)later->on_done)(later->arg, status, &error, NULL);
        break;
    case ASKED_LIST:
        ((lh_list_cb *)later->on_done)(later->arg, status, &error, NULL);
        break;
    case ASKED_ROWS:
        ((lh_rows_cb *)later->on_done)(later->arg, status, &error, NULL);
        break;
    case ASKED_EVENTS:
        ((lh_events_cb *)later->on_done)(later->arg, status, &error, NULL);
        break;
    }
}

static void answer(struct fake_world *world, const struct later *later)
{
    switch (later->kind) {
    case ASKED_PLAIN:
        ((lh_store_cb *)later->on_done)(later->arg, LH_OK, NULL);
        break;
    case ASKED_BARRIER:
        ((lh_barrier_cb *)later->on_done)(later->arg, LH_OK, NULL, 1);
        break;
    case ASKED_SETTLED:
        ((lh_settled_cb *)later->on_done)(later->arg, LH_OK, NULL, true);
        break;
    case ASKED_SCOPE:
        answer_scope(world, later);
        break;
    case ASKED_LIST:
        answer_list(world, later);
        break;
    case ASKED_ROWS:
        answer_rows(later);
        break;
    case ASKED_EVENTS:
        answer_events(world, later);
        break;
    }
}

static void end(struct later *later)
{
    lh_list_remove(&later->link);
    if (later->node->is_stopping)
        fail(later, LH_CANCELED);
    else if (!later->node->control_is_up)
        fail(later, LH_DATABASE_UNAVAILABLE);
    else
        answer(later->node->world, later);
    free(later);
}

/* The oldest of them: they are answered in their order. */
static void on_time(struct fake_world *world, void *arg, uint64_t n)
{
    if (!lh_list_is_empty(&open))
        end(LH_LIST_FIRST(struct later, &open, link));
}

static enum lh_status answer_later(struct lh_store *store, struct later asked)
{
    struct fake_node *node = (struct fake_node *)store;
    struct later *later;

    if (!node->control_is_up || node->is_stopping)
        return LH_DATABASE_UNAVAILABLE;
    later = lh_alloc(sizeof(*later));
    *later = asked;
    later->node = node;
    lh_list_append(&open, &later->link);
    fake_at(node->world, node->world->now_us + fake_delay_us(node->world), on_time, NULL, 0);
    return LH_OK;
}

struct stop {
    lh_store_cb *on_done;
    void *arg;
};

static void stop_now(struct fake_world *world, void *arg, uint64_t n)
{
    struct fake_node *node = world->nodes[n];
    struct stop *stop = arg;

    fake_ops->stop(&node->store, stop->on_done, stop->arg);
    while (!lh_list_is_empty(&open))
        end(LH_LIST_FIRST(struct later, &open, link));
    free(stop);
}

static void stop(struct lh_store *store, lh_store_cb *on_done, void *arg)
{
    struct fake_node *node = (struct fake_node *)store;
    struct stop *later = lh_alloc(sizeof(*later));

    *later = (struct stop){on_done, arg};
    fake_at(node->world, node->world->now_us, stop_now, later, (uint64_t)node->index);
}

static struct later about(int kind, any_cb *on_done, void *arg, const char *ns, const char *key)
{
    struct later later = {.kind = kind, .on_done = on_done, .arg = arg};

    snprintf(later.ns, sizeof(later.ns), "%s", ns == NULL ? "" : ns);
    snprintf(later.key, sizeof(later.key), "%s", key == NULL ? "" : key);
    return later;
}

static enum lh_status get(struct lh_store *store, const char *ns, const char *key, lh_scope_cb *on_done, void *arg)
{
    return answer_later(store, about(ASKED_SCOPE, (any_cb *)on_done, arg, ns, key));
}

static enum lh_status list(struct lh_store *store, const struct lh_list_request *request, lh_list_cb *on_done,
                           void *arg)
{
    return answer_later(store, about(ASKED_LIST, (any_cb *)on_done, arg, request->ns, request->after_key));
}

static enum lh_status holders(struct lh_store *store, const char *ns, const char *key, int32_t max, lh_list_cb *on_done,
                              void *arg)
{
    return answer_later(store, about(ASKED_LIST, (any_cb *)on_done, arg, ns, key));
}

static enum lh_status force_release(struct lh_store *store, const char *ns, const char *key, const char *reason,
                                    int64_t token, bool all, const struct lh_requester *requester, lh_scope_cb *on_done,
                                    void *arg)
{
    struct fake_node *node = (struct fake_node *)store;
    struct fake_scope *scope = __wrap_fake_scope(node->world, ns, key);

    if (node->control_is_up && scope->is_held)
        fake_end_lease(node->world, scope, LH_END_FORCED);
    return answer_later(store, about(ASKED_SCOPE, (any_cb *)on_done, arg, ns, key));
}

static enum lh_status administer(struct lh_store *store, const struct lh_admin_request *request, lh_rows_cb *on_done,
                                 void *arg)
{
    return answer_later(store, about(ASKED_ROWS, (any_cb *)on_done, arg, request->ns, request->name));
}

static enum lh_status list_rows(struct lh_store *store, const struct lh_list_page *page, lh_rows_cb *on_done, void *arg)
{
    return answer_later(store, about(ASKED_ROWS, (any_cb *)on_done, arg, page->after[1], page->after[0]));
}

static enum lh_status watch_add(struct lh_store *store, const char *ns, bool include_children, lh_store_cb *on_done,
                                void *arg)
{
    return answer_later(store, about(ASKED_PLAIN, (any_cb *)on_done, arg, ns, NULL));
}

static enum lh_status watch_clear(struct lh_store *store, lh_store_cb *on_done, void *arg)
{
    return answer_later(store, about(ASKED_PLAIN, (any_cb *)on_done, arg, NULL, NULL));
}

static enum lh_status watch_barrier(struct lh_store *store, lh_barrier_cb *on_done, void *arg)
{
    return answer_later(store, about(ASKED_BARRIER, (any_cb *)on_done, arg, NULL, NULL));
}

static enum lh_status watch_settled(struct lh_store *store, uint64_t horizon, lh_settled_cb *on_done, void *arg)
{
    return answer_later(store, about(ASKED_SETTLED, (any_cb *)on_done, arg, NULL, NULL));
}

static enum lh_status take_events(struct lh_store *store, int32_t max, lh_events_cb *on_done, void *arg)
{
    return answer_later(store, about(ASKED_EVENTS, (any_cb *)on_done, arg, NULL, NULL));
}

static int64_t timeline(struct lh_store *store)
{
    return 1;
}

static int32_t schema_version(struct lh_store *store)
{
    return 1;
}

static bool is_connected(struct lh_store *store)
{
    return ((struct fake_node *)store)->control_is_up;
}

void fuzz_store_complete(struct fake_node *node)
{
    lh_list_init(&open);
    fake_ops = node->store.ops;
    ops = *fake_ops;
    ops.stop = stop;
    ops.get = get;
    ops.list = list;
    ops.holders = holders;
    ops.force_release = force_release;
    ops.administer = administer;
    ops.list_rows = list_rows;
    ops.watch_add = watch_add;
    ops.watch_remove = watch_add;
    ops.watch_clear = watch_clear;
    ops.watch_barrier = watch_barrier;
    ops.watch_settled = watch_settled;
    ops.take_events = take_events;
    ops.timeline = timeline;
    ops.schema_version = schema_version;
    ops.is_connected = is_connected;
    node->store.ops = &ops;
}
