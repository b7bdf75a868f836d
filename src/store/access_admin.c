/* Control calls of administrators about access rules and bearer tokens. */
#include "store/access.h"
#include "store/control.h"
#include "store/control_ops.h"

static struct control_call *begin(struct pg_store *store,
                                  void (*read)(struct control_call *, enum lh_status, const PGresult *,
                                               const struct lh_error *),
                                  lh_access_admin_cb *on_done, void *arg)
{
    struct control_call *call = lh_control_call_begin(store, read, (void (*)(void))on_done, arg);
    call->is_clients = true;
    return call;
}

static void add_administrator(struct pg_store *store, const struct lh_requester *by)
{
    lh_pg_add_text(&store->params, by->principal);
    lh_pg_add_text(&store->params, by->peer);
}

/* One row more than the page tells whether there is another. */
static size_t page_of(const struct control_call *call, const PGresult *result, struct lh_access_admin_answer *answer)
{
    int count = PQntuples(result);

    answer->has_more = call->page_size > 0 && count > call->page_size;
    return (size_t)(answer->has_more ? call->page_size : count);
}

static void answer(const struct control_call *call, enum lh_status status, const struct lh_error *error,
                   const struct lh_access_admin_answer *answer)
{
    ((lh_access_admin_cb *)call->on_done)(call->arg, status, error, status == LH_OK ? answer : NULL);
}

/* --- rules --- */

static void read_rules(struct control_call *call, enum lh_status status, const PGresult *result,
                       const struct lh_error *error)
{
    static const char *const names[] = {"principal", "namespace", "rights", "created_at", "created_by"};
    struct lh_arena *arena = &call->store->arena;
    struct lh_access_admin_answer found = {0};
    struct lh_rule_facts *rules;
    int at[5];

    if (status == LH_OK) {
        lh_pg_result_columns(result, names, at, 5);
        found.rule_count = page_of(call, result, &found);
        rules = lh_arena_alloc(arena, (found.rule_count + 1) * sizeof(*rules));
        for (size_t i = 0; i < found.rule_count; i++) {
            int row = (int)i;
            rules[i] = (struct lh_rule_facts){
                .rule = {lh_text_read(result, row, at[0], arena), lh_text_read(result, row, at[1], arena),
                         lh_rights_read(result, row, at[2], arena)},
                .created_at_us = lh_pg_timestamptz(result, row, at[3]),
                .created_by = lh_text_read(result, row, at[4], arena),
            };
        }
        found.rules = rules;
    }
    answer(call, status, error, &found);
}

static void add_rights(struct lh_pg_params *params, unsigned rights)
{
    lh_pg_array_begin(params, LH_PG_TEXT);
    for (unsigned right = LH_RIGHT_READ; right <= LH_RIGHT_ADMIN; right <<= 1)
        if ((rights & right) != 0)
            lh_pg_add_text(params, lh_right_name((enum lh_right)right));
    lh_pg_array_end(params);
}

enum lh_status lh_pg_store_change_access(struct lh_store *base, const struct lh_requester *by,
                                         const struct lh_access_change *change, lh_access_admin_cb *on_done, void *arg)
{
    static const struct lh_pg_statement grant =
        LH_PG_STATEMENT("access_grant_by", "select * from leasehold_internal.access_grant_by($1, $2, $3, $4, $5)",
                        LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT_ARRAY);
    static const struct lh_pg_statement revoke =
        LH_PG_STATEMENT("access_revoke_by", "select * from leasehold_internal.access_revoke_by($1, $2, $3, $4, $5)",
                        LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT_ARRAY);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = begin(store, read_rules, on_done, arg);

    add_administrator(store, by);
    lh_pg_add_text(&store->params, change->rule.principal);
    lh_pg_add_text(&store->params, change->rule.ns);
    add_rights(&store->params, change->rule.rights);
    return lh_control_call_send(call, change->is_revoke ? &revoke : &grant);
}

enum lh_status lh_pg_store_list_access(struct lh_store *base, int32_t page_size, const char *after_principal,
                                       const char *after_ns, lh_access_admin_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "access_list", "select * from leasehold_internal.access_list($1, $2, $3)", LH_PG_INT4, LH_PG_TEXT, LH_PG_TEXT);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = begin(store, read_rules, on_done, arg);

    call->page_size = page_size;
    lh_pg_add_int4(&store->params, page_size + 1);
    lh_pg_add_text(&store->params, after_principal);
    lh_pg_add_text(&store->params, after_ns);
    return lh_control_call_send(call, &statement);
}

/* --- tokens --- */

static int64_t time_read(const PGresult *result, int row, int column, int64_t otherwise)
{
    return column < 0 || lh_pg_is_null(result, row, column) ? otherwise : lh_pg_timestamptz(result, row, column);
}

/* Those columns that the statement has. */
static void read_tokens(struct control_call *call, enum lh_status status, const PGresult *result,
                        const struct lh_error *error)
{
    static const char *const names[] = {"id",         "name",       "token",       "created_at",
                                        "created_by", "expires_at", "last_used_at"};
    struct lh_arena *arena = &call->store->arena;
    struct lh_access_admin_answer found = {0};
    struct lh_token_facts *tokens;
    int at[7];

    if (status == LH_OK) {
        lh_pg_result_columns(result, names, at, 7);
        found.token_count = page_of(call, result, &found);
        tokens = lh_arena_alloc(arena, (found.token_count + 1) * sizeof(*tokens));
        for (size_t i = 0; i < found.token_count; i++) {
            int row = (int)i;
            tokens[i] = (struct lh_token_facts){
                .id = lh_text_read(result, row, at[0], arena),
                .name = lh_text_read(result, row, at[1], arena),
                .token = at[2] < 0 ? NULL : lh_text_read(result, row, at[2], arena),
                .created_at_us = lh_pg_timestamptz(result, row, at[3]),
                .created_by = at[4] < 0 ? NULL : lh_text_read(result, row, at[4], arena),
                .expires_at_us = time_read(result, row, at[5], INT64_MAX),
                .last_used_at_us = time_read(result, row, at[6], INT64_MIN),
            };
        }
        found.tokens = tokens;
    }
    answer(call, status, error, &found);
}

enum lh_status lh_pg_store_create_token(struct lh_store *base, const struct lh_requester *by, const char *name,
                                        int64_t expires_us, lh_access_admin_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "token_create_by", "select * from leasehold_internal.token_create_by($1, $2, $3, $4 * interval '1 us')",
        LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = begin(store, read_tokens, on_done, arg);

    add_administrator(store, by);
    lh_pg_add_text(&store->params, name);
    if (expires_us > 0)
        lh_pg_add_int8(&store->params, expires_us);
    else
        lh_pg_add_null(&store->params);
    return lh_control_call_send(call, &statement);
}

static void read_revoked(struct control_call *call, enum lh_status status, const PGresult *result,
                         const struct lh_error *error)
{
    struct lh_access_admin_answer found = {.revoked = status == LH_OK ? lh_pg_int8(result, 0, 0) : 0};
    answer(call, status, error, &found);
}

enum lh_status lh_pg_store_revoke_token(struct lh_store *base, const struct lh_requester *by, const char *name_or_id,
                                        lh_access_admin_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "token_revoke_by", "select leasehold_internal.token_revoke_by($1, $2, $3)", LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = begin(store, read_revoked, on_done, arg);

    add_administrator(store, by);
    lh_pg_add_text(&store->params, name_or_id);
    return lh_control_call_send(call, &statement);
}

enum lh_status lh_pg_store_list_tokens(struct lh_store *base, int32_t page_size, const char *after_name,
                                       const char *after_id, lh_access_admin_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "token_list", "select * from leasehold_internal.token_list($1, $2, $3)", LH_PG_INT4, LH_PG_TEXT, LH_PG_TEXT);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = begin(store, read_tokens, on_done, arg);

    call->page_size = page_size;
    lh_pg_add_int4(&store->params, page_size + 1);
    lh_pg_add_text(&store->params, after_name);
    lh_pg_add_text(&store->params, after_id);
    return lh_control_call_send(call, &statement);
}
