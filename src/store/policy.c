/* Policies. A field's name is the column's in leasehold.policy; in an answer durations are called <name>_us. */
#include <stdio.h>
#include <string.h>

#include "store/control.h"
#include "store/control_ops.h"

enum value_kind { DURATION, TEXT, BOOLEAN, INTEGER, BIGINT };

static const struct {
    const char *column;
    enum value_kind kind;
} fields[LH_POLICY_FIELD_COUNT] = {
    [LH_POLICY_MIN_DURATION] = {"min_duration_us", DURATION},
    [LH_POLICY_MAX_DURATION] = {"max_duration_us", DURATION},
    [LH_POLICY_GRACE] = {"grace_us", DURATION},
    [LH_POLICY_MAX_HOLD] = {"max_hold_us", DURATION},
    [LH_POLICY_DEAD_AFTER] = {"dead_after_us", DURATION},
    [LH_POLICY_EXPIRY] = {"expiry", TEXT},
    [LH_POLICY_REAPER] = {"reaper", TEXT},
    [LH_POLICY_FROZEN] = {"frozen", BOOLEAN},
    [LH_POLICY_MAX_LEASES] = {"max_leases", BIGINT},
    [LH_POLICY_MAX_WAITERS] = {"max_waiters", BIGINT},
    [LH_POLICY_HISTORY] = {"history", BOOLEAN},
    [LH_POLICY_MAX_REAP_FAILURES] = {"max_reap_failures", INTEGER},
    [LH_POLICY_HOOK_TIMEOUT] = {"hook_timeout_us", DURATION},
    [LH_POLICY_FREE_RETENTION] = {"free_retention_us", DURATION},
    [LH_POLICY_HISTORY_RETENTION] = {"history_retention_us", DURATION},
    [LH_POLICY_AT_LEAST] = {"at_least_us", DURATION},
    [LH_POLICY_CAPACITY] = {"capacity", INTEGER},
    [LH_POLICY_END_AT_MAX_HOLD] = {"end_at_max_hold", BOOLEAN},
};

static void value_read(struct lh_policy_value *value, enum value_kind kind, const PGresult *result, int row, int at,
                       struct lh_arena *arena)
{
    switch (kind) {
    case DURATION:
    case BIGINT:
        value->number = lh_pg_int8(result, row, at);
        break;
    case INTEGER:
        value->number = lh_pg_int4(result, row, at);
        break;
    case BOOLEAN:
        value->number = lh_pg_bool(result, row, at);
        break;
    case TEXT:
        value->text = lh_text_read(result, row, at, arena);
        break;
    }
}

static void policy_read(struct lh_policy *policy, const PGresult *result, int row, struct lh_arena *arena)
{
    memset(policy, 0, sizeof(*policy));
    policy->ns = lh_text_read(result, row, PQfnumber(result, "namespace"), arena);
    for (size_t i = 0; i < LH_POLICY_FIELD_COUNT; i++) {
        int at = PQfnumber(result, fields[i].column);
        if (lh_pg_is_null(result, row, at))
            continue;
        policy->set |= UINT32_C(1) << i;
        value_read(&policy->values[i], fields[i].kind, result, row, at, arena);
    }
    lh_pg_text_array(result, row, PQfnumber(result, "sources"), arena, policy->sources, LH_POLICY_FIELD_COUNT);
}

/* Rows from `first` on, at most page_size of them when that is set. */
static void answer_policies(struct control_call *call, const PGresult *result, int first)
{
    lh_policy_cb *on_done = (lh_policy_cb *)call->on_done;
    int count = PQntuples(result) - first;
    struct lh_policy_answer answer = {.has_more = call->page_size > 0 && count > call->page_size};
    struct lh_policy *policies;

    if (answer.has_more)
        count = call->page_size;
    policies = lh_arena_alloc(&call->store->arena, (size_t)count * sizeof(*policies));
    for (int i = 0; i < count; i++)
        policy_read(&policies[i], result, first + i, &call->store->arena);
    answer.policies = policies;
    answer.policy_count = (size_t)count;
    on_done(call->arg, LH_OK, NULL, &answer);
}

static void read_policies(struct control_call *call, enum lh_status status, const PGresult *result,
                          const struct lh_error *error)
{
    if (status == LH_OK)
        answer_policies(call, result, 0);
    else
        ((lh_policy_cb *)call->on_done)(call->arg, status, error, NULL);
}

/* The effective policy alone, which is the last row. */
static void read_effective_policy(struct control_call *call, enum lh_status status, const PGresult *result,
                                  const struct lh_error *error)
{
    if (status == LH_OK)
        answer_policies(call, result, PQntuples(result) > 1 ? PQntuples(result) - 1 : 0);
    else
        ((lh_policy_cb *)call->on_done)(call->arg, status, error, NULL);
}

/* As text, for policy_update casts it to the column's type and knows what is wrong with it. */
static void add_value(struct lh_pg_params *params, enum value_kind kind, const struct lh_policy_value *value)
{
    char text[48];

    switch (kind) {
    case BOOLEAN:
        lh_pg_add_text(params, value->number != 0 ? "true" : "false");
        break;
    case DURATION: /* microseconds */
    case INTEGER:
    case BIGINT:
        snprintf(text, sizeof(text), "%lld", (long long)value->number);
        lh_pg_add_text(params, text);
        break;
    case TEXT:
        lh_pg_add_text(params, value->text);
        break;
    }
}

enum lh_status lh_pg_store_set_policy(struct lh_store *base, const struct lh_policy *policy, uint32_t mask,
                                      const struct lh_requester *requester, lh_policy_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "policy_update", "select * from leasehold_internal.policy_update($1, $2, $3, p_by => $4, p_peer => $5)",
        LH_PG_TEXT, LH_PG_TEXT_ARRAY, LH_PG_TEXT_ARRAY, LH_PG_TEXT, LH_PG_TEXT);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_effective_policy, (void (*)(void))on_done, arg);
    struct lh_pg_params *params = &store->params;

    lh_pg_add_text(params, policy->ns);
    lh_pg_array_begin(params, LH_PG_TEXT);
    for (size_t i = 0; i < LH_POLICY_FIELD_COUNT; i++)
        if ((mask & UINT32_C(1) << i) != 0)
            lh_pg_add_text(params, lh_policy_field_name((enum lh_policy_field)i));
    lh_pg_array_end(params);
    lh_pg_array_begin(params, LH_PG_TEXT);
    for (size_t i = 0; i < LH_POLICY_FIELD_COUNT; i++) {
        if ((mask & UINT32_C(1) << i) == 0)
            continue;
        if ((policy->set & UINT32_C(1) << i) != 0)
            add_value(params, fields[i].kind, &policy->values[i]);
        else
            lh_pg_add_null(params);
    }
    lh_pg_array_end(params);
    lh_pg_store_add_requester(params, requester);
    call->is_clients = true;
    return lh_control_call_send(call, &statement);
}

enum lh_status lh_pg_store_get_policy(struct lh_store *base, const char *ns, lh_policy_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("policy_get", "select * from leasehold_internal.policy_get($1)", LH_PG_TEXT);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_policies, (void (*)(void))on_done, arg);

    lh_pg_add_text(&store->params, ns);
    call->is_clients = true;
    return lh_control_call_send(call, &statement);
}

enum lh_status lh_pg_store_list_policies(struct lh_store *base, int32_t page_size, const char *after_ns,
                                         lh_policy_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("policy_list", "select * from leasehold_internal.policy_list($1, $2)", LH_PG_INT4, LH_PG_TEXT);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_policies, (void (*)(void))on_done, arg);

    call->page_size = page_size;
    lh_pg_add_int4(&store->params, page_size + 1);
    lh_pg_add_text(&store->params, after_ns);
    call->is_clients = true;
    return lh_control_call_send(call, &statement);
}
