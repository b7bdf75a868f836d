/*
 * Control calls: one statement each on the control connection. The coordinator's own go out at once. Of those that
 * clients ask for only a few go out at a time, because a client with many lists would otherwise delay the signs of
 * life, and the daemon would count as dead. This file also has the coordinator's own calls.
 */
#include "store/store_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "pg/error.h"

#define CORE_REST_US (30 * LH_US_PER_S)

void lh_control_call_done(struct control_call *call, enum lh_status status, const PGresult *result,
                          const struct lh_error *error)
{
    if (call->on_done != NULL)
        ((lh_store_cb *)call->on_done)(call->arg, status, error);
}

struct control_call *lh_control_call_begin(struct pg_store *store,
                                           void (*read)(struct control_call *, enum lh_status, const PGresult *,
                                                        const struct lh_error *),
                                           void (*on_done)(void), void *arg)
{
    struct control_call *call = lh_alloc_zero(1, sizeof(*call));
    call->store = store;
    call->conn = store->control;
    call->read = read;
    call->on_done = on_done;
    call->arg = arg;
    lh_pg_params_reset(&store->params);
    return call;
}

static void free_call(struct control_call *call)
{
    lh_pg_params_finish(&call->params);
    free(call->ns);
    free(call->key);
    free(call);
}

static void on_answer(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error);

static enum lh_status send_call(struct control_call *call)
{
    struct pg_store *store = call->store;

    if (call->conn == NULL || (store->state != STORE_RUNNING && store->state != STORE_UNREGISTERING))
        return LH_DATABASE_UNAVAILABLE;
    return call->is_clients ? lh_pg_query_patiently(call->conn, call->statement, &call->params, on_answer, call)
                            : lh_pg_query(call->conn, call->statement, &call->params, on_answer, call);
}

/* A migration has dropped a function of before while the call ran: sends it once more, and returns true if it went. */
static bool is_sent_again(struct control_call *call, enum lh_status status, const struct lh_error *error)
{
    if (status != LH_INTERNAL || call->is_again || strcmp(error->sqlstate, "42883") != 0)
        return false;
    call->is_again = true;
    return send_call(call) == LH_OK;
}

static void on_answer(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
    struct control_call *call = arg;
    struct pg_store *store = call->store;

    if (is_sent_again(call, status, error))
        return;
    if (status == LH_INTERNAL)
        lh_err("a control call failed: %s (%s)", error->message, error->sqlstate);
    call->read(call, status, result, error);
    free_call(call);
    lh_arena_reset(&store->arena);
}

enum lh_status lh_control_call_send(struct control_call *call, const struct lh_pg_statement *statement)
{
    struct pg_store *store = call->store;
    enum lh_status status;

    call->statement = statement;
    call->params = store->params;
    store->params = (struct lh_pg_params){0};
    status = send_call(call);
    store->stats.control_refused += status == LH_OVERLOADED;
    if (status != LH_OK)
        free_call(call);
    return status;
}

void lh_pg_store_add_requester(struct lh_pg_params *params, const struct lh_requester *requester)
{
    lh_pg_add_text(params, requester == NULL ? NULL : requester->principal);
    lh_pg_add_text(params, requester == NULL ? NULL : requester->peer);
}

void lh_pg_store_add_clock(struct lh_pg_params *params, int64_t clock_us)
{
    if (clock_us == 0)
        lh_pg_add_null(params);
    else
        lh_pg_add_timestamptz(params, clock_us);
}

void lh_lane_add_clock(struct lane *lane)
{
    lh_pg_store_add_clock(&lane->params, lane->clock_us == 0 ? 0 : lane->clock_us + lh_clock_us() - lane->sent_us);
}

void lh_pg_store_note_failure(struct pg_store *store, const struct lh_error *error)
{
    if (!lh_pg_is_of_system(error->sqlstate))
        return;
    if (!store->cannot_write)
        lh_warn("the database cannot write, nothing expires until it can: %s (%s)", error->message, error->sqlstate);
    store->cannot_write = true;
}

/* The answer of leasehold_internal.core_state(): NULL, there is no leasehold_core; "", it is used; else the reason that it
   is not. */
static void set_core(struct pg_store *store, const char *state)
{
    char before[sizeof(store->common_path)];

    if (state != NULL && *state == '\0' && lh_clock_us() < store->core_rests_until_us)
        return;
    store->core_rests_until_us = 0;
    memcpy(before, store->common_path, sizeof(before));
    store->has_core = state != NULL && *state == '\0';
    if (store->has_core)
        snprintf(store->common_path, sizeof(before), "leasehold_core");
    else if (state == NULL)
        snprintf(store->common_path, sizeof(before), "SQL functions");
    else
        snprintf(store->common_path, sizeof(before), "SQL functions, not leasehold_core: %s", state);
    if (strcmp(before, store->common_path) != 0)
        lh_info("common path: %s", store->common_path);
}

/* The control connection's session may have loaded a module that is gone for sessions since: without a rest each tick would
 * send a batch there. */
void lh_pg_store_lose_core(struct pg_store *store, const char *reason)
{
    set_core(store, reason);
    store->core_rests_until_us = lh_clock_us() + CORE_REST_US;
}

/* --- enroll and tick --- */

static void read_enroll(struct control_call *call, enum lh_status status, const PGresult *result,
                        const struct lh_error *error)
{
    static const char *const names[] = {"database_now", "timeline", "schema_version", "core"};
    lh_tick_cb *on_done = (lh_tick_cb *)call->on_done;
    struct lh_tick_answer answer = {.is_registered = true};
    int at[4];

    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL);
        return;
    }
    lh_pg_result_columns(result, names, at, 4);
    answer.database_now_us = lh_pg_timestamptz(result, 0, at[0]);
    call->store->timeline = lh_pg_int8(result, 0, at[1]);
    call->store->schema_version = lh_pg_int4(result, 0, at[2]);
    set_core(call->store, lh_pg_text(result, 0, at[3]));
    on_done(call->arg, LH_OK, NULL, &answer);
}

enum lh_status lh_pg_store_enroll(struct lh_store *base, lh_tick_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("coordinator_register",
                        "select r.*, leasehold_internal.core_state() as core"
                        " from leasehold_internal.coordinator_register($1, $2, $3, $4) r",
                        LH_PG_UUID, LH_PG_TEXT, LH_PG_INT4, LH_PG_TEXT);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_enroll, (void (*)(void))on_done, arg);

    lh_pg_add_uuid(&store->params, &base->coordinator);
    lh_pg_add_text(&store->params, store->host);
    lh_pg_add_int4(&store->params, (int32_t)getpid());
    lh_pg_add_text(&store->params, store->version);
    return lh_control_call_send(call, &statement);
}

static struct lh_wake wake_read(const PGresult *result, int row, int ns_at, int key_at, struct lh_arena *arena)
{
    return (struct lh_wake){lh_text_read(result, row, ns_at, arena), lh_text_read(result, row, key_at, arena), 0};
}

static void read_tick(struct control_call *call, enum lh_status status, const PGresult *result,
                      const struct lh_error *error)
{
    static const char *const names[] = {"database_now", "is_registered", "namespace", "key", "access_version", "core"};
    lh_tick_cb *on_done = (lh_tick_cb *)call->on_done;
    struct lh_arena *arena = &call->store->arena;
    struct lh_tick_answer answer = {0};
    struct lh_wake *wakes;
    int at[6];

    if (status != LH_OK) {
        call->store->cannot_write = call->store->cannot_write || call->told_cannot_write;
        on_done(call->arg, status, error, NULL);
        return;
    }
    lh_pg_result_columns(result, names, at, 6);
    wakes = lh_arena_alloc(arena, (size_t)PQntuples(result) * sizeof(*wakes));
    for (int row = 0; row < PQntuples(result); row++) {
        if (lh_pg_is_null(result, row, at[2])) {
            answer.database_now_us = lh_pg_timestamptz(result, row, at[0]);
            answer.is_registered = lh_pg_bool(result, row, at[1]);
            answer.access_version = lh_pg_int8(result, row, at[4]);
            set_core(call->store, lh_pg_text(result, row, at[5]));
        } else {
            wakes[answer.wake_count++] = wake_read(result, row, at[2], at[3], arena);
        }
    }
    answer.wakes = wakes;
    on_done(call->arg, LH_OK, NULL, &answer);
}

enum lh_status lh_pg_store_tick(struct lh_store *base, int64_t clock_us, lh_tick_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("coordinator_tick",
                        "select t.*, case when t.namespace is null then leasehold_internal.core_state() end as core"
                        " from leasehold_internal.coordinator_tick($1, $2, $3) t",
                        LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_BOOL);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_tick, (void (*)(void))on_done, arg);
    enum lh_status status;

    lh_pg_add_uuid(&store->params, &base->coordinator);
    lh_pg_store_add_clock(&store->params, clock_us);
    lh_pg_add_bool(&store->params, store->cannot_write);
    call->told_cannot_write = store->cannot_write;
    status = lh_control_call_send(call, &statement);
    if (status == LH_OK)
        store->cannot_write = false;
    return status;
}

void lh_pg_store_look_elsewhere(struct lh_store *base)
{
    struct pg_store *store = pg_store_of(base);
    if (store->control != NULL)
        lh_pg_conn_look_elsewhere(store->control,
                                  "nothing was committed for 10 s; another server may be the primary now");
}

/* --- long guards --- */

static void read_long_guards(struct control_call *call, enum lh_status status, const PGresult *result,
                             const struct lh_error *error)
{
    static const char *const names[] = {"session", "trouble"};
    lh_guards_cb *on_done = (lh_guards_cb *)call->on_done;
    struct lh_arena *arena = &call->store->arena;
    struct lh_long_guard *guards;
    size_t count;
    int at[2];

    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL, 0);
        return;
    }
    lh_pg_result_columns(result, names, at, 2);
    count = (size_t)PQntuples(result);
    guards = lh_arena_alloc(arena, count * sizeof(*guards));
    for (size_t i = 0; i < count; i++)
        guards[i] = (struct lh_long_guard){lh_text_read(result, (int)i, at[0], arena),
                                           lh_text_read(result, (int)i, at[1], arena)};
    on_done(call->arg, LH_OK, NULL, guards, count);
}

enum lh_status lh_pg_store_end_long_guards(struct lh_store *base, int64_t max_us, lh_guards_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "end_long_guards", "select * from leasehold_internal.end_long_guards($1 * interval '1 us')", LH_PG_INT8);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_long_guards, (void (*)(void))on_done, arg);

    lh_pg_add_int8(&store->params, max_us);
    return lh_control_call_send(call, &statement);
}

/* --- pass_on and unregister --- */

/* True: the first live waiter is our own after all, so it is as if it had been told to us. */
static void read_pass_on(struct control_call *call, enum lh_status status, const PGresult *result,
                         const struct lh_error *error)
{
    bool is_ours = status == LH_OK && PQntuples(result) == 1 && lh_pg_bool(result, 0, 0);
    struct lh_wake wake = {call->ns, call->key, 0};

    lh_control_call_done(call, status, result, error);
    if (is_ours && call->store->state == STORE_RUNNING)
        call->store->events->on_wake(call->store->arg, &wake);
}

enum lh_status lh_pg_store_pass_on(struct lh_store *base, const struct lh_wake *wake, lh_store_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "pass_on", "select leasehold_internal.pass_on($1, $2, $3, $4)", LH_PG_UUID, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_pass_on, (void (*)(void))on_done, arg);

    call->ns = lh_strdup(wake->ns);
    call->key = lh_strdup(wake->key);
    lh_pg_add_uuid(&store->params, &base->coordinator);
    lh_pg_add_text(&store->params, wake->ns);
    lh_pg_add_text(&store->params, wake->key);
    lh_pg_add_int8_unless(&store->params, wake->first_ticket, 0);
    return lh_control_call_send(call, &statement);
}

enum lh_status lh_pg_store_unregister(struct pg_store *store, lh_store_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("coordinator_unregister", "select leasehold_internal.coordinator_unregister($1)", LH_PG_UUID);
    struct control_call *call = lh_control_call_begin(store, lh_control_call_done, (void (*)(void))on_done, arg);

    lh_pg_add_uuid(&store->params, &store->base.coordinator);
    return lh_control_call_send(call, &statement);
}

/* --- reap --- */

static void read_reap(struct control_call *call, enum lh_status status, const PGresult *result,
                      const struct lh_error *error)
{
    lh_reap_pass_cb *on_done = (lh_reap_pass_cb *)call->on_done;
    struct lh_arena *arena = &call->store->arena;
    struct lh_reap_answer answer = {0};
    struct reap_columns columns;
    struct lh_reaped *leases;
    struct lh_wake *wakes;

    if (status != LH_OK) {
        lh_pg_store_note_failure(call->store, error);
        on_done(call->arg, status, error, NULL);
        return;
    }
    lh_reap_columns_find(result, &columns);
    leases = lh_arena_alloc(arena, (size_t)PQntuples(result) * sizeof(*leases));
    wakes = lh_arena_alloc(arena, (size_t)PQntuples(result) * sizeof(*wakes));
    for (int row = 0; row < PQntuples(result); row++) {
        const char *kind = lh_reap_row_kind(result, row, &columns);
        struct lh_reaped reaped;
        if (kind == NULL)
            continue;
        if (strcmp(kind, "more") == 0) {
            answer.has_more = true;
            continue;
        }
        lh_reap_row_read(&reaped, result, row, &columns, arena);
        if (strcmp(kind, "wake") == 0)
            wakes[answer.wake_count++] = (struct lh_wake){reaped.lease.ns, reaped.lease.key, 0};
        else
            leases[answer.lease_count++] = reaped;
    }
    answer.leases = leases;
    answer.wakes = wakes;
    on_done(call->arg, LH_OK, NULL, &answer);
}

enum lh_status lh_pg_store_reap(struct lh_store *base, int64_t clock_us, const char *const *namespaces,
                                size_t namespace_count, bool include_children, const char *key, int32_t max,
                                enum lh_reap_kind kind, const struct lh_requester *requester, lh_reap_pass_cb *on_done,
                                void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("reap_batch",
                        "select * from leasehold_internal.reap_batch($1, $2, $3, $4, $5, $6, p_by => $7, p_peer => $8,"
                        " p_by_name => $9, p_key => $10)",
                        LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_TEXT_ARRAY, LH_PG_BOOL, LH_PG_INT4, LH_PG_BOOL, LH_PG_TEXT,
                        LH_PG_TEXT, LH_PG_BOOL, LH_PG_TEXT);
    /* The reaper's own ticks tell the log and the metrics, and may bring a thousand rows each. */
    static const struct lh_pg_statement narrow =
        LH_PG_STATEMENT("reap_batch_narrow",
                        "select kind, namespace, key, error, reap_failures, wake, token, owner, principal"
                        "  from leasehold_internal.reap_batch($1, $2, $3, $4, $5, $6)",
                        LH_PG_UUID, LH_PG_TIMESTAMPTZ, LH_PG_TEXT_ARRAY, LH_PG_BOOL, LH_PG_INT4, LH_PG_BOOL);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_reap, (void (*)(void))on_done, arg);
    struct lh_pg_params *params = &store->params;

    lh_pg_add_uuid(params, &base->coordinator);
    lh_pg_store_add_clock(params, clock_us);
    if (namespace_count == 0) {
        lh_pg_add_null(params);
    } else {
        LH_PG_ARRAY(params, LH_PG_TEXT, namespace_count, lh_pg_add_text(params, namespaces[i]));
    }
    lh_pg_add_bool(params, include_children);
    lh_pg_add_int4(params, max);
    lh_pg_add_bool(params, kind == LH_REAP_BY_ITSELF);
    if (kind == LH_REAP_BY_ITSELF)
        return lh_control_call_send(call, &narrow);
    lh_pg_store_add_requester(params, requester);
    lh_pg_add_bool(params, kind == LH_REAP_BY_NAME);
    lh_pg_add_text(params, key);
    call->is_clients = true;
    return lh_control_call_send(call, &statement);
}
