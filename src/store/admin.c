/* Control calls for people: get a scope, list leases, force a release. */
#include <string.h>

#include "store/store_internal.h"

/* --- get --- */

static void last_hold_read(struct lh_scope_answer *answer, const PGresult *result, struct lh_arena *arena)
{
    static const char *const names[] = {"last_token", "last_owner",    "last_end_reason", "last_result",
                                        "last_error", "last_ended_at", "last_principal"};
    struct lh_last_hold *last = &answer->last;
    int at[7];

    lh_pg_result_columns(result, names, at, 7);
    if (lh_pg_is_null(result, 0, at[0]))
        return;
    answer->has_last = true;
    last->token = lh_pg_int8(result, 0, at[0]);
    last->owner = lh_text_read(result, 0, at[1], arena);
    last->end_reason = lh_end_reason_read(result, 0, at[2]);
    last->result = lh_text_read(result, 0, at[3], arena);
    last->error = lh_text_read(result, 0, at[4], arena);
    last->ended_at_us = lh_pg_timestamptz(result, 0, at[5]);
    last->principal = lh_text_read(result, 0, at[6], arena);
    if (last->owner == NULL)
        last->owner = "";
    if (last->principal == NULL)
        last->principal = "";
    if (last->result == NULL)
        last->result = "";
    if (last->error == NULL)
        last->error = "";
}

static void read_get(struct control_call *call, enum lh_status status, const PGresult *result,
                     const struct lh_error *error)
{
    static const char *const names[] = {"is_held", "waiters", "rests_in_us", "holder_count", "units_free"};
    lh_scope_cb *on_done = (lh_scope_cb *)call->on_done;
    struct lh_arena *arena = &call->store->arena;
    struct lh_scope_answer answer = {0};
    struct lease_columns lease_at;
    int at[5];

    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL);
        return;
    }
    answer.units_free = LH_UNITS_UNBOUNDED;
    if (PQntuples(result) > 0) {
        lh_pg_result_columns(result, names, at, 5);
        lh_lease_columns_find(result, &lease_at);
        answer.is_held = lh_pg_bool(result, 0, at[0]);
        answer.waiters = lh_pg_int4(result, 0, at[1]);
        answer.rests_in_us = lh_pg_int8(result, 0, at[2]);
        answer.holder_count = lh_pg_int4(result, 0, at[3]);
        answer.units_free = lh_units_free_read(result, 0, at[4]);
        lh_lease_read(result, 0, &lease_at, arena, &answer.lease);
        last_hold_read(&answer, result, arena);
    }
    answer.lease.ns = call->ns;
    answer.lease.key = call->key;
    on_done(call->arg, LH_OK, NULL, &answer);
}

enum lh_status lh_pg_store_get(struct lh_store *base, const char *ns, const char *key, lh_scope_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("get_scope", "select * from leasehold_internal.get_scope($1, $2)", LH_PG_TEXT, LH_PG_TEXT);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_get, (void (*)(void))on_done, arg);

    call->ns = lh_strdup(ns);
    call->key = lh_strdup(key);
    lh_pg_add_text(&store->params, ns);
    lh_pg_add_text(&store->params, key);
    call->is_clients = true;
    return lh_control_call_send(call, &statement);
}

/* --- list: one more than the page tells whether there is another --- */

/* Rows of the table for one statement, so that none keeps back the signs of life: about 70 ms. */
#define LOOK_AT 10000

static void read_list(struct control_call *call, enum lh_status status, const PGresult *result,
                      const struct lh_error *error)
{
    static const char *const names[] = {"namespace", "key"};
    lh_list_cb *on_done = (lh_list_cb *)call->on_done;
    struct lh_arena *arena = &call->store->arena;
    struct lh_list_answer answer = {0};
    struct lease_columns lease_at;
    struct lh_held_lease *leases;
    int at[2], row_count;

    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL);
        return;
    }
    lh_pg_result_columns(result, names, at, 2);
    lh_lease_columns_find(result, &lease_at);
    row_count = PQntuples(result);
    if (row_count > 0 && lh_pg_is_null(result, row_count - 1, lease_at.at[0])) {
        row_count--;
        answer.has_more = true;
        answer.stop_ns = lh_text_read(result, row_count, at[0], arena);
        answer.stop_key = lh_text_read(result, row_count, at[1], arena);
    } else if (row_count > call->page_size) {
        row_count = call->page_size;
        answer.has_more = true;
    }
    answer.lease_count = (size_t)row_count;
    leases = lh_arena_alloc(arena, (answer.lease_count + 1) * sizeof(*leases));
    for (size_t i = 0; i < answer.lease_count; i++) {
        lh_lease_read(result, (int)i, &lease_at, arena, &leases[i]);
        leases[i].ns = lh_text_read(result, (int)i, at[0], arena);
        leases[i].key = lh_text_read(result, (int)i, at[1], arena);
    }
    answer.leases = leases;
    on_done(call->arg, LH_OK, NULL, &answer);
}

enum lh_status lh_pg_store_list(struct lh_store *base, const struct lh_list_request *request, lh_list_cb *on_done,
                                void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "list_leases", "select * from leasehold_internal.list_leases($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        LH_PG_TEXT, LH_PG_BOOL, LH_PG_INT4, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT4, LH_PG_INT8,
        LH_PG_TEXT, LH_PG_INT8);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_list, (void (*)(void))on_done, arg);
    bool is_any_owner = request->owner == NULL || *request->owner == '\0';

    call->page_size = request->page_size;
    lh_pg_add_text(&store->params, request->ns == NULL ? "" : request->ns);
    lh_pg_add_bool(&store->params, request->include_children);
    lh_pg_add_int4(&store->params, request->page_size + 1);
    lh_pg_add_text(&store->params, request->after_ns);
    lh_pg_add_text(&store->params, request->after_key);
    lh_pg_add_text(&store->params, is_any_owner ? NULL : request->owner);
    lh_pg_add_text(&store->params, request->search);
    lh_pg_add_int4(&store->params, LOOK_AT);
    lh_pg_add_int8_unless(&store->params, request->after_token, 0);
    lh_pg_add_text(&store->params, request->state);
    lh_pg_add_int8_unless(&store->params, request->longer_than_us, 0);
    call->is_clients = true;
    return lh_control_call_send(call, &statement);
}

/* --- the holders of a scope --- */

enum lh_status lh_pg_store_holders(struct lh_store *base, const char *ns, const char *key, int32_t max,
                                   lh_list_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "get_holders", "select * from leasehold_internal.get_holders($1, $2, $3)", LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT4);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_list, (void (*)(void))on_done, arg);

    call->page_size = max;
    lh_pg_add_text(&store->params, ns);
    lh_pg_add_text(&store->params, key);
    lh_pg_add_int4(&store->params, max + 1);
    call->is_clients = true;
    return lh_control_call_send(call, &statement);
}

/* --- force_release --- */

/* Of several holders there is a row for each; of one that a hook or a guard kept, too. */
static void read_ended(struct control_call *call, const PGresult *result, int outcome_at,
                       struct lh_scope_answer *answer)
{
    struct lh_arena *arena = &call->store->arena;
    struct lh_held_lease *leases = lh_arena_alloc(arena, (size_t)PQntuples(result) * sizeof(*leases));
    struct lease_columns lease_at;
    int key_at = PQfnumber(result, "lease_key");

    lh_lease_columns_find(result, &lease_at);
    for (int row = 0; row < PQntuples(result); row++) {
        const char *outcome = lh_pg_text(result, row, outcome_at);
        struct lh_held_lease *lease = &leases[answer->listed];
        if (outcome == NULL || strcmp(outcome, "ended") != 0 || !lh_lease_read(result, row, &lease_at, arena, lease))
            continue;
        lease->ns = call->ns;
        lease->key = call->key;
        lease->lease_key = lh_pg_uuid(result, row, key_at);
        answer->listed++;
    }
    answer->holders = leases;
    answer->is_held = answer->listed > 0;
    if (answer->is_held)
        answer->lease = leases[0];
}

static void read_force_release(struct control_call *call, enum lh_status status, const PGresult *result,
                               const struct lh_error *error)
{
    static const char *const names[] = {"outcome", "message"};
    lh_scope_cb *on_done = (lh_scope_cb *)call->on_done;
    struct lh_scope_answer answer = {0};
    struct lh_error refusal;
    const char *outcome, *message;
    int at[2];

    if (status != LH_OK && strcmp(error->sqlstate, "57014") == 0) {
        lh_error_set(&refusal, LH_HOOK_REJECTED, "%s", LH_HOOK_TIMEOUT_WORDS);
        on_done(call->arg, LH_HOOK_REJECTED, &refusal, NULL);
        return;
    }
    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL);
        return;
    }
    lh_pg_result_columns(result, names, at, 2);
    outcome = PQntuples(result) == 0 ? "not_held" : lh_pg_text(result, 0, at[0]);
    message = PQntuples(result) == 0 ? NULL : lh_pg_text(result, 0, at[1]);
    /* Of several holders a hook may have kept some: what was ended is told. */
    for (int row = 1; row < PQntuples(result); row++)
        if (lh_pg_text(result, row, at[0]) != NULL && strcmp(lh_pg_text(result, row, at[0]), "ended") == 0)
            outcome = "ended";
    if (outcome != NULL && strcmp(outcome, "ended") == 0) {
        read_ended(call, result, at[0], &answer);
        on_done(call->arg, LH_OK, NULL, &answer);
        return;
    }
    status = LH_NOT_HELD;
    if (outcome != NULL && strcmp(outcome, "invalid") == 0)
        status = LH_INVALID_ARGUMENT;
    else if (outcome != NULL && strcmp(outcome, "busy") == 0)
        status = LH_SCOPE_BUSY;
    else if (outcome != NULL && strcmp(outcome, "rejected") == 0)
        status = LH_HOOK_REJECTED;
    lh_error_set(&refusal, status, "%s", message != NULL ? message : lh_status_text(status));
    on_done(call->arg, status, &refusal, NULL);
}

static void on_limit_set(void *arg, enum lh_status status, const PGresult *result, const struct lh_error *error)
{
}

enum lh_status lh_pg_store_force_release(struct lh_store *base, const char *ns, const char *key, const char *reason,
                                         int64_t token, bool all, const struct lh_requester *requester,
                                         lh_scope_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("force_release_one",
                        "select * from leasehold_internal.force_release_one($1, $2, $3, $4, p_by => $5, p_peer => $6,"
                        " p_all => $7)",
                        LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8, LH_PG_TEXT, LH_PG_TEXT, LH_PG_BOOL);
    /* The effective policy is the second row. */
    static const struct lh_pg_statement limit =
        LH_PG_STATEMENT("hook_lane_limit",
                        "select pg_catalog.set_config('statement_timeout', ("
                        "         select pg_catalog.ceil(p.hook_timeout_us / 1000.0)::bigint::text"
                        "           from leasehold_internal.policy_get($1) p offset 1 limit 1), false),"
                        "       pg_catalog.set_config('leasehold.hooks', 'on', false)",
                        LH_PG_TEXT);
    struct pg_store *store = pg_store_of(base);
    struct lane *lane = lh_hook_lane_any(store);
    struct control_call *call = lh_control_call_begin(store, read_force_release, (void (*)(void))on_done, arg);

    /* Not on the control lane: a hook that takes its time would hold up the signs of life. */
    if (store->options.hook_lanes > 0)
        call->conn = lane == NULL ? NULL : lane->conn;
    if (lane != NULL) {
        lh_pg_conn_set_answer_limit(lane->conn, 0); /* the caller sets its own */
        lh_pg_conn_reset_session(lane->conn, store->options.statement_timeout_us);
        lh_pg_add_text(&store->params, ns);
        lh_pg_query(lane->conn, &limit, &store->params, on_limit_set, NULL);
        lh_pg_params_reset(&store->params);
    }
    call->ns = lh_strdup(ns);
    call->key = lh_strdup(key);
    lh_pg_add_text(&store->params, ns);
    lh_pg_add_text(&store->params, key);
    lh_pg_add_text(&store->params, reason);
    lh_pg_add_int8(&store->params, token);
    lh_pg_store_add_requester(&store->params, requester);
    lh_pg_add_bool(&store->params, all);
    return lh_control_call_send(call, &statement);
}
