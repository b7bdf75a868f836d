/* Control calls about access: rules and tokens, which tokens were used, and the audit. */
#include <string.h>

#include "store/store_internal.h"

#define RIGHTS_MAX 8

static unsigned rights_read(const PGresult *result, int row, int column, struct lh_arena *arena)
{
    const char *names[RIGHTS_MAX];
    size_t count = lh_pg_text_array(result, row, column, arena, names, RIGHTS_MAX);
    unsigned rights = 0;

    for (size_t i = 0; i < count && i < RIGHTS_MAX; i++)
        rights |= names[i] == NULL ? 0 : lh_right_parse(names[i]);
    return rights;
}

/* False: it is no SHA-256. */
static bool token_read(const PGresult *result, int row, const int at[6], struct lh_arena *arena,
                       struct lh_access_token *token)
{
    if (PQgetlength(result, row, at[4]) != LH_ACCESS_HASH_BYTES)
        return false;
    token->name = lh_text_read(result, row, at[0], arena);
    token->id = lh_text_read(result, row, at[3], arena);
    memcpy(token->hash, PQgetvalue(result, row, at[4]), LH_ACCESS_HASH_BYTES);
    token->expires_at_us = lh_pg_is_null(result, row, at[5]) ? INT64_MAX : lh_pg_timestamptz(result, row, at[5]);
    return true;
}

static void read_access(struct control_call *call, enum lh_status status, const PGresult *result,
                        const struct lh_error *error)
{
    static const char *const names[] = {"principal", "namespace", "rights", "id", "hash", "expires_at"};
    lh_access_cb *on_done = (lh_access_cb *)call->on_done;
    struct lh_arena *arena = &call->store->arena;
    struct lh_access_answer answer = {0};
    struct lh_access_rule *rules;
    struct lh_access_token *tokens;
    size_t count;
    int at[6];

    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL);
        return;
    }
    lh_pg_result_columns(result, names, at, 6);
    count = (size_t)PQntuples(result);
    rules = lh_arena_alloc(arena, (count + 1) * sizeof(*rules));
    tokens = lh_arena_alloc(arena, (count + 1) * sizeof(*tokens));
    for (int row = 0; row < (int)count; row++) {
        if (lh_pg_is_null(result, row, at[3]))
            rules[answer.rule_count++] = (struct lh_access_rule){lh_text_read(result, row, at[0], arena),
                                                                 lh_text_read(result, row, at[1], arena),
                                                                 rights_read(result, row, at[2], arena)};
        else
            answer.token_count += token_read(result, row, at, arena, &tokens[answer.token_count]);
    }
    answer.rules = rules;
    answer.tokens = tokens;
    on_done(call->arg, LH_OK, NULL, &answer);
}

enum lh_status lh_pg_store_read_access(struct lh_store *base, lh_access_cb *on_done, void *arg)
{
    /* In one statement, and so of one moment. */
    static const struct lh_pg_statement statement = {
        "read_access",
        "select r.principal, r.namespace, r.rights, null::text as id, null::bytea as hash, null::timestamptz as "
        "expires_at"
        "  from leasehold_internal.access_rules() r"
        " union all "
        "select t.name, null, null, t.id, t.hash, t.expires_at from leasehold_internal.access_tokens() t",
        0,
        {0},
    };

    return lh_control_call_send(lh_control_call_begin(pg_store_of(base), read_access, (void (*)(void))on_done, arg),
                                &statement);
}

enum lh_status lh_pg_store_audit(struct lh_store *base, const struct lh_audit *row, lh_store_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "audit_write", "select leasehold_internal.audit_write($1, $2, $3, $4, $5, $6, $7, $8, $9)", LH_PG_TEXT,
        LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, lh_control_call_done, (void (*)(void))on_done, arg);
    struct lh_pg_params *params = &store->params;

    lh_pg_add_text(params, row->principal);
    lh_pg_add_text(params, row->peer);
    lh_pg_add_text(params, row->action);
    lh_pg_add_text(params, row->ns);
    lh_pg_add_text(params, row->key);
    lh_pg_add_int8_unless(params, row->token, 0);
    lh_pg_add_text(params, row->reason);
    lh_pg_add_text(params, row->outcome);
    lh_pg_add_int8(params, row->count);
    call->is_clients = true;
    return lh_control_call_send(call, &statement);
}

enum lh_status lh_pg_store_token_used(struct lh_store *base, const char *const *ids, size_t count)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("token_used", "select leasehold_internal.token_used($1)", LH_PG_TEXT_ARRAY);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, lh_control_call_done, NULL, NULL);

    LH_PG_ARRAY(&store->params, LH_PG_TEXT, count, lh_pg_add_text(&store->params, ids[i]));
    return lh_control_call_send(call, &statement);
}
