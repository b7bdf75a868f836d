/* AdminService: GrantAccess, RevokeAccess, ListAccess, CreateToken, RevokeToken, ListTokens. */
#include <string.h>

#include "base/text.h"
#include "service/call_internal.h"
#include "service/words_internal.h"

#define TOKEN_NAME_MAX_BYTES 63

/* --- requests --- */

static bool check_principal(struct lh_validator *v, const char *principal)
{
    const char *wildcard = strchr(principal, '*');

    if (!lh_validate_text(v, LH_TEXT_PRINCIPAL, principal, "principal"))
        return false;
    if (wildcard == NULL || wildcard[1] == '\0')
        return true;
    return lh_violations_add(v->violations, "principal", "must have * at its end only, is \"%.*s\"",
                             (int)lh_utf8_cut(principal, strlen(principal), 63), principal);
}

static bool read_rights(struct lh_validator *v, const Leasehold__V1__Right *rights, size_t count, unsigned *result)
{
    char path[LH_VIOLATION_FIELD_BYTES];
    bool is_valid = true;

    *result = 0;
    for (size_t i = 0; i < count; i++) {
        if (rights[i] >= LEASEHOLD__V1__RIGHT__RIGHT_READ && rights[i] <= LEASEHOLD__V1__RIGHT__RIGHT_ADMIN) {
            *result |= 1u << ((unsigned)rights[i] - 1);
        } else {
            is_valid =
                lh_violations_add(v->violations, lh_field_nth(path, "rights", i),
                                  "must be RIGHT_READ, RIGHT_LEASE, RIGHT_GUARD or RIGHT_ADMIN, is %d", (int)rights[i]);
        }
    }
    return is_valid;
}

static bool read_rule(struct lh_validator *v, const char *principal, const Leasehold__V1__Namespace *ns,
                      const Leasehold__V1__Right *rights, size_t count, struct lh_admin_request *change)
{
    bool is_valid = check_principal(v, principal);

    change->name = principal;
    is_valid &= lh_validate_namespace(v, ns != NULL ? ns->segments : NULL, ns != NULL ? ns->n_segments : 0, true,
                                      "namespace.segments", &change->ns) &&
                lh_validate_place(v, change->ns, false, "namespace.segments");
    is_valid &= read_rights(v, rights, count, &change->rights);
    return is_valid;
}

static bool rule_from_grant(struct lh_validator *v, const Leasehold__V1__GrantAccessRequest *request,
                            struct lh_admin_request *change)
{
    bool is_valid = read_rule(v, request->principal, request->namespace_, request->rights, request->n_rights, change);

    change->verb = LH_ADMIN_GRANT;
    if (request->n_rights == 0)
        is_valid = lh_violations_add(v->violations, "rights", "must have at least one right");
    return is_valid;
}

static bool rule_from_revoke(struct lh_validator *v, const Leasehold__V1__RevokeAccessRequest *request,
                             struct lh_admin_request *change)
{
    change->verb = LH_ADMIN_REVOKE;
    return read_rule(v, request->principal, request->namespace_, request->rights, request->n_rights, change);
}

static bool check_token_name(struct lh_validator *v, const char *name, const char *field)
{
    size_t size = strlen(name);

    if (size >= 1 && size <= TOKEN_NAME_MAX_BYTES && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == size)
        return true;
    return lh_violations_add(v->violations, field, "must be 1 to %d of a-z, 0-9, '.', '_' and '-', is \"%.*s\"",
                             TOKEN_NAME_MAX_BYTES, (int)lh_utf8_cut(name, size, TOKEN_NAME_MAX_BYTES), name);
}

/* As make_token() in SQL makes IDs: to revoke one must not revoke tokens of that name too. */
static bool is_like_id(const char *name)
{
    return strlen(name) == 8 && strspn(name, "0123456789abcdef") == 8;
}

static bool validate_create_token(struct lh_validator *v, const Leasehold__V1__CreateTokenRequest *request,
                                  int64_t *expires_us)
{
    bool is_valid = check_token_name(v, request->name, "name");

    if (is_like_id(request->name))
        is_valid = lh_violations_add(v->violations, "name",
                                     "must be other than 8 of 0-9 and a-f, which is what IDs of tokens are, is \"%s\"",
                                     request->name);
    *expires_us = 0;
    if (request->expires != NULL)
        is_valid &= lh_validate_duration(v, request->expires, 1, LH_DURATION_MAX_US, "expires", expires_us);
    return is_valid;
}

/* NULL: the call was answered. */
static struct lh_store_call *admit(struct lh_asked *asked, bool is_valid)
{
    if (lh_asked_check(asked, is_valid) && lh_permit(asked->call, LH_RIGHT_ADMIN, ""))
        return lh_store_call_create(asked->call, NULL, NULL);
    return NULL;
}

/* The answer is the rows, in the message that the table of methods names. */
static void on_rows(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct lh_store_call *store_call = arg;

    if (lh_store_call_is_answered(store_call, status, error))
        lh_store_call_reply(
            store_call, lh_rows_message(lh_method_of(store_call->call)->response, rows, &store_call->service->scratch));
    lh_store_call_destroy(store_call);
}

/* --- GrantAccess, RevokeAccess, CreateToken, RevokeToken --- */

static void change(struct lh_asked *asked, bool is_valid, struct lh_admin_request *change)
{
    struct lh_store_call *store_call = admit(asked, is_valid); /* from then on the call has its token's principal */
    struct lh_requester by = lh_call_requester(asked->call);

    change->by = &by;
    lh_store_call_administer(store_call, change, on_rows);
}

void lh_grant_access_on_request(struct lh_asked *asked, const void *request)
{
    struct lh_admin_request wanted = {0};

    change(asked, rule_from_grant(&asked->v, request, &wanted), &wanted);
}

void lh_revoke_access_on_request(struct lh_asked *asked, const void *request)
{
    struct lh_admin_request wanted = {0};

    change(asked, rule_from_revoke(&asked->v, request, &wanted), &wanted);
}

void lh_create_token_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__CreateTokenRequest *request = message;
    struct lh_admin_request wanted = {.verb = LH_ADMIN_CREATE_TOKEN, .name = request->name};

    change(asked, validate_create_token(&asked->v, request, &wanted.expires_us), &wanted);
}

void lh_revoke_token_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__RevokeTokenRequest *request = message;
    struct lh_admin_request wanted = {.verb = LH_ADMIN_REVOKE_TOKEN, .name = request->name_or_id};

    change(asked, check_token_name(&asked->v, request->name_or_id, "name_or_id"), &wanted);
}

/* --- ListAccess, ListTokens --- */

/* The columns behind which the next page begins. */
static const struct {
    enum lh_page_kind kind;
    const char *columns[2];
} pages[LH_LIST_COUNT] = {
    [LH_LIST_RULES] = {LH_PAGE_RULES, {"principal", "namespace"}},
    [LH_LIST_TOKENS] = {LH_PAGE_TOKENS, {"id", "name"}},
};

/* Their requests have types of their own, which are the same. */
_Static_assert(sizeof(Leasehold__V1__ListAccessRequest) == sizeof(Leasehold__V1__ListTokensRequest), "requests");

static void on_list(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct lh_store_call *store_call = arg;

    if (lh_store_call_is_answered(store_call, status, error)) {
        struct lh_arena *arena = &store_call->service->scratch;
        ProtobufCMessage *response = lh_rows_message(lh_method_of(store_call->call)->response, rows, arena);
        if (rows->has_more) {
            const char *const *columns = pages[store_call->list].columns;
            bool is_told = rows->stop[0] != NULL;
            size_t last = rows->row_count - 1;
            *(char **)lh_message_field(response, "next_page_token") = lh_page_token_make(
                pages[store_call->list].kind, 0, is_told ? rows->stop[1] : lh_rows_cell(rows, last, columns[1]),
                is_told ? rows->stop[0] : lh_rows_cell(rows, last, columns[0]), arena);
        }
        lh_store_call_reply(store_call, response);
    }
    lh_store_call_destroy(store_call);
}

static void list(struct lh_asked *asked, const Leasehold__V1__ListAccessRequest *request, enum lh_list list)
{
    struct lh_list_page page = {.list = list};
    struct lh_store *store = asked->service->store;
    bool is_valid = lh_validate_page_size(&asked->v, request->page_size, "page_size", &page.page_size);
    struct lh_store_call *store_call;

    if (request->page_token[0] != '\0' &&
        !lh_page_token_parse(request->page_token, pages[list].kind, 0, asked->v.arena, &page.after[1], &page.after[0]))
        is_valid =
            lh_violations_add(&asked->violations, "page_token", "must be the next_page_token of the page before");
    if (list == LH_LIST_TOKENS) { /* by name, then ID */
        const char *id = page.after[0];
        page.after[0] = page.after[1];
        page.after[1] = id;
    }
    store_call = admit(asked, is_valid);
    if (store_call != NULL) {
        store_call->list = list;
        lh_store_call_check(store_call, store->ops->list_rows(store, &page, on_list, store_call));
    }
}

void lh_list_access_on_request(struct lh_asked *asked, const void *request)
{
    list(asked, request, LH_LIST_RULES);
}

void lh_list_tokens_on_request(struct lh_asked *asked, const void *request)
{
    list(asked, request, LH_LIST_TOKENS);
}
