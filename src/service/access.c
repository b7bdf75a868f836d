/* AdminService: GrantAccess, RevokeAccess, ListAccess, CreateToken, RevokeToken, ListTokens. */
#include "lease/access_admin.h"
#include "service/call.h"
#include "service/message.h"
#include "service/page_token.h"
#include "service/rules.h"

typedef void access_reply(struct lh_store_call *store_call, const struct lh_access_admin_answer *answer);

/* NULL: the call was answered. With on_answer as the callback of the store, `reply` answers it. */
static struct lh_store_call *admit(struct lh_asked *asked, bool is_valid, access_reply *reply)
{
    struct lh_store_call *store_call = NULL;

    if (lh_asked_check(asked, is_valid) && lh_permit(asked->call, LH_RIGHT_ADMIN, ""))
        store_call = lh_store_call_create(asked->call, NULL, NULL);
    if (store_call != NULL)
        store_call->reply = reply;
    return store_call;
}

static void on_answer(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_access_admin_answer *answer)
{
    struct lh_store_call *store_call = arg;

    if (lh_store_call_is_answered(store_call, status, error))
        store_call->reply(store_call, answer);
    lh_store_call_destroy(store_call);
}

/* --- GrantAccess, RevokeAccess --- */

static void reply_granted(struct lh_store_call *store_call, const struct lh_access_admin_answer *answer)
{
    Leasehold__V1__GrantAccessResponse response = LEASEHOLD__V1__GRANT_ACCESS_RESPONSE__INIT;
    if (answer->rule_count > 0)
        response.rule = lh_rule_to_message(&answer->rules[0], &store_call->service->scratch);
    lh_store_call_reply(store_call, &response.base);
}

static void reply_revoked(struct lh_store_call *store_call, const struct lh_access_admin_answer *answer)
{
    Leasehold__V1__RevokeAccessResponse response = LEASEHOLD__V1__REVOKE_ACCESS_RESPONSE__INIT;
    if (answer->rule_count > 0)
        response.rule = lh_rule_to_message(&answer->rules[0], &store_call->service->scratch);
    lh_store_call_reply(store_call, &response.base);
}

static void change(struct lh_asked *asked, bool is_valid, const struct lh_access_change *change, access_reply *reply)
{
    struct lh_store *store = asked->service->store;
    struct lh_store_call *store_call = admit(asked, is_valid, reply);
    struct lh_requester by = lh_call_requester(asked->call);

    if (store_call != NULL)
        lh_store_call_check(store_call, store->ops->change_access(store, &by, change, on_answer, store_call));
}

void lh_grant_access_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_asked asked;
    struct lh_access_change wanted;
    Leasehold__V1__GrantAccessRequest *request =
        lh_asked_begin(&asked, call, &leasehold__v1__grant_access_request__descriptor, data, size);

    if (request != NULL)
        change(&asked, lh_rule_from_grant(&asked.v, request, &wanted), &wanted, reply_granted);
    lh_asked_end(&asked);
}

void lh_revoke_access_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_asked asked;
    struct lh_access_change wanted;
    Leasehold__V1__RevokeAccessRequest *request =
        lh_asked_begin(&asked, call, &leasehold__v1__revoke_access_request__descriptor, data, size);

    if (request != NULL)
        change(&asked, lh_rule_from_revoke(&asked.v, request, &wanted), &wanted, reply_revoked);
    lh_asked_end(&asked);
}

/* --- CreateToken, RevokeToken --- */

static void reply_created(struct lh_store_call *store_call, const struct lh_access_admin_answer *answer)
{
    struct lh_arena *arena = &store_call->service->scratch;
    const struct lh_token_facts *facts = &answer->tokens[0];
    Leasehold__V1__CreateTokenResponse response = LEASEHOLD__V1__CREATE_TOKEN_RESPONSE__INIT;

    response.token = (char *)(uintptr_t)facts->token;
    response.id = (char *)(uintptr_t)facts->id;
    if (facts->expires_at_us != INT64_MAX)
        response.expires_at = lh_message_timestamp(facts->expires_at_us, arena);
    lh_store_call_reply(store_call, &response.base);
}

void lh_create_token_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_asked asked;
    int64_t expires_us;
    Leasehold__V1__CreateTokenRequest *request =
        lh_asked_begin(&asked, call, &leasehold__v1__create_token_request__descriptor, data, size);

    if (request != NULL) {
        struct lh_store *store = asked.service->store;
        struct lh_store_call *store_call =
            admit(&asked, lh_validate_create_token(&asked.v, request, &expires_us), reply_created);
        struct lh_requester by = lh_call_requester(call);
        if (store_call != NULL)
            lh_store_call_check(store_call,
                                store->ops->create_token(store, &by, request->name, expires_us, on_answer, store_call));
    }
    lh_asked_end(&asked);
}

static void reply_token_revoked(struct lh_store_call *store_call, const struct lh_access_admin_answer *answer)
{
    Leasehold__V1__RevokeTokenResponse response = LEASEHOLD__V1__REVOKE_TOKEN_RESPONSE__INIT;
    response.revoked = answer->revoked;
    lh_store_call_reply(store_call, &response.base);
}

void lh_revoke_token_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_asked asked;
    Leasehold__V1__RevokeTokenRequest *request =
        lh_asked_begin(&asked, call, &leasehold__v1__revoke_token_request__descriptor, data, size);

    if (request != NULL) {
        struct lh_store *store = asked.service->store;
        struct lh_store_call *store_call =
            admit(&asked, lh_validate_revoke_token(&asked.v, request), reply_token_revoked);
        struct lh_requester by = lh_call_requester(call);
        if (store_call != NULL)
            lh_store_call_check(store_call,
                                store->ops->revoke_token(store, &by, request->name_or_id, on_answer, store_call));
    }
    lh_asked_end(&asked);
}

/* --- ListAccess, ListTokens --- */

static bool validate_page(struct lh_validator *v, int32_t page_size, const char *page_token, enum lh_page_kind kind,
                          int32_t *rows, const char **first, const char **second)
{
    bool is_valid = lh_validate_page_size(v, page_size, "page_size", rows);

    *first = *second = NULL;
    if (page_token[0] == '\0' || lh_page_token_parse(page_token, kind, 0, v->arena, first, second))
        return is_valid;
    return lh_violations_add(v->violations, "page_token", "must be the next_page_token of the page before");
}

static void reply_access_listed(struct lh_store_call *store_call, const struct lh_access_admin_answer *answer)
{
    struct lh_arena *arena = &store_call->service->scratch;
    Leasehold__V1__ListAccessResponse response = LEASEHOLD__V1__LIST_ACCESS_RESPONSE__INIT;

    response.rules = lh_arena_alloc(arena, (answer->rule_count + 1) * sizeof(*response.rules));
    for (size_t i = 0; i < answer->rule_count; i++)
        response.rules[response.n_rules++] = lh_rule_to_message(&answer->rules[i], arena);
    if (answer->has_more) {
        const struct lh_access_rule *last =
            answer->stop != NULL ? answer->stop : &answer->rules[answer->rule_count - 1].rule;
        response.next_page_token = lh_page_token_make(LH_PAGE_RULES, 0, last->ns, last->principal, arena);
    }
    lh_store_call_reply(store_call, &response.base);
}

void lh_list_access_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_asked asked;
    const char *ns, *principal;
    int32_t rows;
    Leasehold__V1__ListAccessRequest *request =
        lh_asked_begin(&asked, call, &leasehold__v1__list_access_request__descriptor, data, size);

    if (request != NULL) {
        struct lh_store *store = asked.service->store;
        struct lh_store_call *store_call = admit(
            &asked,
            validate_page(&asked.v, request->page_size, request->page_token, LH_PAGE_RULES, &rows, &ns, &principal),
            reply_access_listed);
        if (store_call != NULL)
            lh_store_call_check(store_call, store->ops->list_access(store, rows, principal, ns, on_answer, store_call));
    }
    lh_asked_end(&asked);
}

static void reply_tokens_listed(struct lh_store_call *store_call, const struct lh_access_admin_answer *answer)
{
    struct lh_arena *arena = &store_call->service->scratch;
    Leasehold__V1__ListTokensResponse response = LEASEHOLD__V1__LIST_TOKENS_RESPONSE__INIT;

    response.tokens = lh_arena_alloc(arena, (answer->token_count + 1) * sizeof(*response.tokens));
    for (size_t i = 0; i < answer->token_count; i++)
        response.tokens[response.n_tokens++] = lh_token_to_message(&answer->tokens[i], arena);
    if (answer->has_more) {
        const struct lh_token_facts *last = &answer->tokens[answer->token_count - 1];
        response.next_page_token = lh_page_token_make(LH_PAGE_TOKENS, 0, last->name, last->id, arena);
    }
    lh_store_call_reply(store_call, &response.base);
}

void lh_list_tokens_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_asked asked;
    const char *name, *id;
    int32_t rows;
    Leasehold__V1__ListTokensRequest *request =
        lh_asked_begin(&asked, call, &leasehold__v1__list_tokens_request__descriptor, data, size);

    if (request != NULL) {
        struct lh_store *store = asked.service->store;
        struct lh_store_call *store_call = admit(
            &asked, validate_page(&asked.v, request->page_size, request->page_token, LH_PAGE_TOKENS, &rows, &name, &id),
            reply_tokens_listed);
        if (store_call != NULL)
            lh_store_call_check(store_call, store->ops->list_tokens(store, rows, name, id, on_answer, store_call));
    }
    lh_asked_end(&asked);
}
