/* Control calls of watching: adding and removing watches, when a new watch is complete, and taking the events. */
#include <string.h>

#include "store/store_internal.h"

#define XID8 5069u /* the OID of the type; binary it is an int8 */

static enum lh_status send_watch(struct lh_store *base, const struct lh_pg_statement *statement, const char *ns,
                                 bool include_children, lh_store_cb *on_done, void *arg)
{
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, lh_control_call_done, (void (*)(void))on_done, arg);

    lh_pg_add_uuid(&store->params, &base->coordinator);
    lh_pg_add_text(&store->params, ns);
    lh_pg_add_bool(&store->params, include_children);
    return lh_control_call_send(call, statement);
}

enum lh_status lh_pg_store_watch_add(struct lh_store *base, const char *ns, bool include_children, lh_store_cb *on_done,
                                     void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "watch_add", "select leasehold_internal.watch_add($1, $2, $3)", LH_PG_UUID, LH_PG_TEXT, LH_PG_BOOL);
    return send_watch(base, &statement, ns, include_children, on_done, arg);
}

enum lh_status lh_pg_store_watch_remove(struct lh_store *base, const char *ns, bool include_children,
                                        lh_store_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "watch_remove", "select leasehold_internal.watch_remove($1, $2, $3)", LH_PG_UUID, LH_PG_TEXT, LH_PG_BOOL);
    return send_watch(base, &statement, ns, include_children, on_done, arg);
}

enum lh_status lh_pg_store_watch_clear(struct lh_store *base, lh_store_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("watch_clear", "select leasehold_internal.watch_clear($1)", LH_PG_UUID);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, lh_control_call_done, (void (*)(void))on_done, arg);

    lh_pg_add_uuid(&store->params, &base->coordinator);
    return lh_control_call_send(call, &statement);
}

static void read_barrier(struct control_call *call, enum lh_status status, const PGresult *result,
                         const struct lh_error *error)
{
    uint64_t horizon = status == LH_OK && PQntuples(result) == 1 ? (uint64_t)lh_pg_int8(result, 0, 0) : 0;
    ((lh_barrier_cb *)call->on_done)(call->arg, status, error, horizon);
}

enum lh_status lh_pg_store_watch_barrier(struct lh_store *base, lh_barrier_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("watch_barrier", "select leasehold_internal.watch_barrier($1)", LH_PG_UUID);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_barrier, (void (*)(void))on_done, arg);

    lh_pg_add_uuid(&store->params, &base->coordinator);
    return lh_control_call_send(call, &statement);
}

static void read_settled(struct control_call *call, enum lh_status status, const PGresult *result,
                         const struct lh_error *error)
{
    bool is_settled = status == LH_OK && PQntuples(result) == 1 && lh_pg_bool(result, 0, 0);
    ((lh_settled_cb *)call->on_done)(call->arg, status, error, is_settled);
}

enum lh_status lh_pg_store_watch_settled(struct lh_store *base, uint64_t horizon, lh_settled_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = {
        "watch_settled", "select leasehold_internal.watch_settled($1)", 1, {XID8}};
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_settled, (void (*)(void))on_done, arg);

    lh_pg_add_int8(&store->params, (int64_t)horizon);
    return lh_control_call_send(call, &statement);
}

/* --- events --- */

enum { TYPE, NAMESPACE, KEY, REASON, END_REASON, RESULT, ERROR, EVENT_COLUMN_COUNT };

/* False: it is the one that says that events are missing. */
static bool event_read(struct lh_lease_event *event, const PGresult *result, int row, const int *at,
                       const struct lease_columns *lease_at, struct lh_arena *arena)
{
    static const char *const types[] = {
        [LH_EVENT_ACQUIRED] = "acquired", [LH_EVENT_RELEASED] = "released",     [LH_EVENT_EXPIRED] = "expired",
        [LH_EVENT_FORCED] = "forced",     [LH_EVENT_DOWNGRADED] = "downgraded",
    };
    int type = LH_WORD_READ(result, row, at[TYPE], types);

    memset(event, 0, sizeof(*event));
    if (type < 0 || !lh_lease_read(result, row, lease_at, arena, &event->lease))
        return false;
    event->type = (enum lh_event_type)type;
    event->lease.ns = lh_text_read(result, row, at[NAMESPACE], arena);
    event->lease.key = lh_text_read(result, row, at[KEY], arena);
    event->reason = lh_text_read(result, row, at[REASON], arena);
    event->end_reason = lh_end_reason_read(result, row, at[END_REASON]);
    event->result = lh_text_read(result, row, at[RESULT], arena);
    event->error = lh_text_read(result, row, at[ERROR], arena);
    return event->lease.ns != NULL && event->lease.key != NULL;
}

static void read_events(struct control_call *call, enum lh_status status, const PGresult *result,
                        const struct lh_error *error)
{
    static const char *const names[EVENT_COLUMN_COUNT] = {"type",       "namespace", "key",  "reason",
                                                          "end_reason", "result",    "error"};
    lh_events_cb *on_done = (lh_events_cb *)call->on_done;
    struct lh_arena *arena = &call->store->arena;
    struct lh_events_answer answer = {0};
    struct lease_columns lease_at;
    struct lh_lease_event *events;
    int at[EVENT_COLUMN_COUNT];

    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL);
        return;
    }
    lh_pg_result_columns(result, names, at, EVENT_COLUMN_COUNT);
    lh_lease_columns_find(result, &lease_at);
    events = lh_arena_alloc(arena, ((size_t)PQntuples(result) + 1) * sizeof(*events));
    for (int row = 0; row < PQntuples(result); row++)
        answer.is_lagged |= !event_read(&events[answer.event_count++], result, row, at, &lease_at, arena);
    answer.events = events;
    answer.has_more = PQntuples(result) >= call->page_size;
    on_done(call->arg, LH_OK, NULL, &answer);
}

enum lh_status lh_pg_store_take_events(struct lh_store *base, int32_t max, lh_events_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("take_events", "select * from leasehold_internal.take_events($1, $2)", LH_PG_UUID, LH_PG_INT4);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_events, (void (*)(void))on_done, arg);

    call->page_size = max;
    lh_pg_add_uuid(&store->params, &base->coordinator);
    lh_pg_add_int4(&store->params, max);
    return lh_control_call_send(call, &statement);
}
