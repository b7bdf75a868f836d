/* Control calls of people: views, lists and changes of policies, access rules, bearer tokens and schedules. Their answers are
   rows. */
#include "store/store_internal.h"

static void read_rows(struct control_call *call, enum lh_status status, const PGresult *result,
                      const struct lh_error *error)
{
    lh_rows_cb *on_done = (lh_rows_cb *)call->on_done;
    struct lh_rows rows;

    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL);
        return;
    }
    rows = lh_pg_rows(result, call->page_size, &call->store->arena);
    on_done(call->arg, LH_OK, NULL, &rows);
}

/* One row more than the page tells whether there is another. */
static struct control_call *begin(struct pg_store *store, int32_t page_size, lh_rows_cb *on_done, void *arg)
{
    struct control_call *call = lh_control_call_begin(store, read_rows, (void (*)(void))on_done, arg);

    call->page_size = page_size;
    call->is_clients = true;
    return call;
}

enum lh_status lh_pg_store_view(struct lh_store *base, const struct lh_view_request *request, lh_rows_cb *on_done,
                                void *arg)
{
#define VIEW(name)                                                                                                     \
    {                                                                                                                  \
        "view_" name, "select * from leasehold_internal.view_" name "($1, $2, $3, $4, $5)", 5,                         \
        {                                                                                                              \
            LH_PG_TEXT_ARRAY, LH_PG_BOOL, LH_PG_TEXT, LH_PG_INT4, LH_PG_TEXT                                           \
        }                                                                                                              \
    }
    static const struct lh_pg_statement statements[LH_VIEW_COUNT] = {
        [LH_VIEW_NAMESPACES] = VIEW("namespaces"),
        [LH_VIEW_EXPLAIN] = VIEW("explain"),
        [LH_VIEW_QUEUE] = VIEW("queue"),
        [LH_VIEW_WAITS] = VIEW("waits"),
        [LH_VIEW_HISTORY] = VIEW("history"),
        [LH_VIEW_FAILURES] = VIEW("failures"),
        [LH_VIEW_AUDIT] = VIEW("audit"),
        [LH_VIEW_DAEMONS] = VIEW("daemons"),
        [LH_VIEW_DATABASE] = VIEW("database"),
        [LH_VIEW_SCHEDULES] = VIEW("schedules"),
        [LH_VIEW_SCHEDULE_DAYS] = VIEW("schedule_days"),
        [LH_VIEW_TICKS] = LH_PG_STATEMENT(
            "view_ticks", "select * from leasehold_internal.view_ticks($1, $2, $3, $4, $5, $6, $7)", LH_PG_TEXT_ARRAY,
            LH_PG_BOOL, LH_PG_TEXT, LH_PG_INT4, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TIMESTAMPTZ),
    };
#undef VIEW
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = begin(store, request->page_size, on_done, arg);
    struct lh_pg_params *params = &store->params;

    LH_PG_ARRAY(params, LH_PG_TEXT, request->namespace_count, lh_pg_add_text(params, request->namespaces[i]));
    lh_pg_add_bool(params, request->include_children);
    lh_pg_add_text(params, request->key[0] == '\0' ? NULL : request->key);
    lh_pg_add_int4(params, request->page_size + 1);
    lh_pg_add_text(params, request->after[0] == '\0' ? NULL : request->after);
    if (request->view == LH_VIEW_TICKS) {
        lh_pg_add_text(params, request->state);
        if (request->since_us == INT64_MIN)
            lh_pg_add_null(params);
        else
            lh_pg_add_timestamptz(params, request->since_us);
    }
    return lh_control_call_send(call, &statements[request->view]);
}

#define POLICY_COLUMNS "select p.*, array_to_string(p.sources, e'\\n') as source_lines from leasehold_internal."
#define RULE_COLUMNS                                                                                                   \
    "select r.principal, r.namespace, array_to_string(r.rights, ',') as rights, r.created_at, r.created_by"            \
    "  from leasehold_internal."

enum lh_status lh_pg_store_list_rows(struct lh_store *base, const struct lh_list_page *page, lh_rows_cb *on_done,
                                     void *arg)
{
    static const struct lh_pg_statement statements[LH_LIST_COUNT] = {
        [LH_LIST_POLICIES] =
            LH_PG_STATEMENT("policy_list", POLICY_COLUMNS "policy_list($1, $2) p", LH_PG_INT4, LH_PG_TEXT),
        [LH_LIST_RULES] = LH_PG_STATEMENT("access_list", RULE_COLUMNS "access_list($1, $2, $3) r", LH_PG_INT4,
                                          LH_PG_TEXT, LH_PG_TEXT),
        [LH_LIST_TOKENS] = LH_PG_STATEMENT("token_list", "select * from leasehold_internal.token_list($1, $2, $3)",
                                           LH_PG_INT4, LH_PG_TEXT, LH_PG_TEXT),
    };
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = begin(store, page->page_size, on_done, arg);

    lh_pg_add_int4(&store->params, page->page_size + 1);
    lh_pg_add_text(&store->params, page->after[0]);
    if (page->list != LH_LIST_POLICIES)
        lh_pg_add_text(&store->params, page->after[1]);
    return lh_control_call_send(call, &statements[page->list]);
}

/* --- policies, rules, tokens and schedules --- */

/* Of a schedule, and of requests to hand over: settings by name. */
#define SCHEDULE(name)                                                                                                 \
    LH_PG_STATEMENT(name, "select * from leasehold_internal." name "($1, $2, $3, $4, $5)", LH_PG_TEXT, LH_PG_TEXT,     \
                    LH_PG_TEXT, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY)

static const struct lh_pg_statement admin_statements[LH_ADMIN_COUNT] = {
    [LH_ADMIN_SET_POLICY] =
        LH_PG_STATEMENT("policy_update",
                        "select * from leasehold_internal.policy_update(p_by => $1, p_peer => $2, p_namespace => $3,"
                        " p_columns => $4, p_values => $5)",
                        LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY),
    [LH_ADMIN_GET_POLICY] = LH_PG_STATEMENT("policy_get", POLICY_COLUMNS "policy_get($1) p", LH_PG_TEXT),
    [LH_ADMIN_GRANT] = LH_PG_STATEMENT("access_grant_by", RULE_COLUMNS "access_grant_by($1, $2, $3, $4, $5) r",
                                       LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT_ARRAY),
    [LH_ADMIN_REVOKE] = LH_PG_STATEMENT("access_revoke_by", RULE_COLUMNS "access_revoke_by($1, $2, $3, $4, $5) r",
                                        LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT_ARRAY),
    [LH_ADMIN_CREATE_TOKEN] = LH_PG_STATEMENT(
        "token_create_by", "select * from leasehold_internal.token_create_by($1, $2, $3, $4 * interval '1 us')",
        LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT, LH_PG_INT8),
    [LH_ADMIN_REVOKE_TOKEN] =
        LH_PG_STATEMENT("token_revoke_by", "select leasehold_internal.token_revoke_by($1, $2, $3) as revoked",
                        LH_PG_TEXT, LH_PG_TEXT, LH_PG_TEXT),
    [LH_ADMIN_SET_SCHEDULE] = SCHEDULE("schedule_set_by"),
    [LH_ADMIN_GET_SCHEDULE] = SCHEDULE("schedule_get_by"),
    [LH_ADMIN_PAUSE_SCHEDULE] = SCHEDULE("schedule_pause_by"),
    [LH_ADMIN_REMOVE_SCHEDULE] = SCHEDULE("schedule_remove_by"),
    [LH_ADMIN_RUN_SCHEDULE_NOW] = SCHEDULE("schedule_run_now_by"),
    [LH_ADMIN_CLAIM_TICK] = SCHEDULE("tick_claim_by"),
    [LH_ADMIN_ASK_HAND_OVER] = SCHEDULE("hand_over_ask_by"),
    [LH_ADMIN_REFUSE_HAND_OVER] = SCHEDULE("hand_over_refuse_by"),
};

static void add_rights(struct lh_pg_params *params, unsigned rights)
{
    lh_pg_array_begin(params, LH_PG_TEXT);
    for (unsigned right = LH_RIGHT_READ; right <= LH_RIGHT_ADMIN; right <<= 1)
        if ((rights & right) != 0)
            lh_pg_add_text(params, lh_right_name((enum lh_right)right));
    lh_pg_array_end(params);
}

enum lh_status lh_pg_store_administer(struct lh_store *base, const struct lh_admin_request *request,
                                      lh_rows_cb *on_done, void *arg)
{
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = begin(store, 0, on_done, arg);
    struct lh_pg_params *params = &store->params;

    if (request->verb != LH_ADMIN_GET_POLICY)
        lh_pg_store_add_requester(params, request->by);
    if (request->name != NULL)
        lh_pg_add_text(params, request->name);
    if (request->ns != NULL)
        lh_pg_add_text(params, request->ns);
    if (request->change != NULL) {
        LH_PG_ARRAY(params, LH_PG_TEXT, request->change->count, lh_pg_add_text(params, request->change->names[i]));
        LH_PG_ARRAY(params, LH_PG_TEXT, request->change->count, lh_pg_add_text(params, request->change->values[i]));
    } else if (request->verb == LH_ADMIN_GRANT || request->verb == LH_ADMIN_REVOKE) {
        add_rights(params, request->rights);
    } else if (request->verb == LH_ADMIN_CREATE_TOKEN) {
        lh_pg_add_int8_unless(params, request->expires_us, 0);
    }
    return lh_control_call_send(call, &admin_statements[request->verb]);
}
