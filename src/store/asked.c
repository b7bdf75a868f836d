/* Control calls about requests to hand a lease over. */
#include "store/store_internal.h"

enum {
    FINGERPRINT,
    NAMESPACE,
    KEY,
    TOKEN,
    LEASE_KEY,
    ASKED_AT,
    ASKED_BY,
    PRINCIPAL,
    REASON,
    ANSWER_BY,
    REFUSAL,
    COLUMNS
};

static const char *const names[COLUMNS] = {"fingerprint", "namespace", "key",    "token",     "lease_key", "asked_at",
                                           "asked_by",    "principal", "reason", "answer_by", "refusal"};

static struct lh_hand_over request_of(const PGresult *result, int row, const int at[COLUMNS], struct lh_arena *arena)
{
    return (struct lh_hand_over){
        .ns = lh_text_read(result, row, at[NAMESPACE], arena),
        .key = lh_text_read(result, row, at[KEY], arena),
        .token = lh_pg_int8(result, row, at[TOKEN]),
        .lease_key = lh_pg_uuid(result, row, at[LEASE_KEY]),
        .asked_at_us = lh_pg_timestamptz(result, row, at[ASKED_AT]),
        .asked_by = lh_text_read(result, row, at[ASKED_BY], arena),
        .principal = lh_text_read(result, row, at[PRINCIPAL], arena),
        .reason = lh_text_read(result, row, at[REASON], arena),
        .answer_by_us = lh_pg_timestamptz(result, row, at[ANSWER_BY]),
        .refusal = lh_text_read(result, row, at[REFUSAL], arena),
    };
}

static void read_asked(struct control_call *call, enum lh_status status, const PGresult *result,
                       const struct lh_error *error)
{
    lh_asked_read_cb *on_done = (lh_asked_read_cb *)call->on_done;
    struct lh_arena *arena = &call->store->arena;
    struct lh_asked_answer answer = {0};
    struct lh_hand_over *requests;
    int at[COLUMNS];

    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL);
        return;
    }
    lh_pg_result_columns(result, names, at, COLUMNS);
    answer.fingerprint = lh_pg_int8(result, 0, at[FINGERPRINT]);
    answer.has_changed = answer.fingerprint != call->fingerprint;
    answer.count = (size_t)PQntuples(result) - 1;
    requests = lh_arena_alloc(arena, (answer.count + 1) * sizeof(*requests));
    for (size_t i = 0; i < answer.count; i++)
        requests[i] = request_of(result, (int)i + 1, at, arena);
    answer.requests = requests;
    on_done(call->arg, LH_OK, NULL, &answer);
}

enum lh_status lh_pg_store_read_asked(struct lh_store *base, int64_t known, lh_asked_read_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("hand_overs", "select * from leasehold_internal.hand_overs($1)", LH_PG_INT8);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_asked, (void (*)(void))on_done, arg);

    call->fingerprint = known;
    lh_pg_add_int8(&store->params, known);
    return lh_control_call_send(call, &statement);
}

enum lh_status lh_pg_store_ask_holders(struct lh_store *base, const struct lh_acquire_item *waiters, size_t count,
                                       lh_store_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("hand_over_ask_all", "select leasehold_internal.hand_over_ask_all($1, $2, $3)",
                        LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_UUID_ARRAY);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, lh_control_call_done, (void (*)(void))on_done, arg);
    struct lh_pg_params *params = &store->params;

    LH_PG_ARRAY(params, LH_PG_TEXT, count, lh_pg_add_text(params, waiters[i].ns));
    LH_PG_ARRAY(params, LH_PG_TEXT, count, lh_pg_add_text(params, waiters[i].key));
    LH_PG_ARRAY(params, LH_PG_UUID, count, lh_pg_add_uuid(params, &waiters[i].lease_key));
    return lh_control_call_send(call, &statement);
}
