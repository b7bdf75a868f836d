/*
 * AskHandOver and RefuseHandOver. The database has the requests; the holder learns of one from the memory of the
 * coordinator that renews its lease: in heartbeat answers, and once on its Hold stream.
 */
#include <string.h>

#include "service/call_internal.h"
#include "service/words_internal.h"

static void send(struct lh_asked *asked, enum lh_admin_verb verb, const char *key, int64_t token,
                 struct lh_schedule_settings *settings, lh_rows_cb *on_done)
{
    struct lh_requester by = lh_call_requester(asked->call);
    struct lh_admin_request wanted = {.verb = verb, .by = &by, .ns = settings->change.ns, .change = &settings->change};
    struct lh_store_call *store_call = lh_store_call_create(asked->call, settings->change.ns, key);

    if (store_call != NULL)
        store_call->token = token;
    lh_store_call_administer(store_call, &wanted, on_done);
}

/* --- AskHandOver --- */

static Leasehold__V1__Lease *lease_of(const struct lh_rows *rows, size_t row, struct lh_arena *arena)
{
    Leasehold__V1__Lease *lease = lh_row_message(&leasehold__v1__lease__descriptor, rows, row, arena);
    const char *principal = lh_rows_cell(rows, row, "holder_principal");

    lease->asked = lh_row_message(&leasehold__v1__hand_over__descriptor, rows, row, arena);
    lease->principal = (char *)(uintptr_t)(principal != NULL ? principal : "");
    return lease;
}

static void on_asked(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct lh_store_call *store_call = arg;
    struct lh_arena *arena = &store_call->service->scratch;
    Leasehold__V1__AskHandOverResponse response = LEASEHOLD__V1__ASK_HAND_OVER_RESPONSE__INIT;

    if (lh_store_call_is_answered(store_call, status, error)) {
        response.holders = lh_arena_alloc(arena, (rows->row_count + 1) * sizeof(*response.holders));
        for (size_t i = 0; i < rows->row_count; i++)
            response.holders[response.n_holders++] = lease_of(rows, i, arena);
        if (response.n_holders == 0)
            lh_store_call_fail_not_held(store_call);
        else
            lh_store_call_reply(store_call, &response.base);
    }
    lh_store_call_destroy(store_call);
}

void lh_ask_hand_over_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__AskHandOverRequest *request = message;
    struct lh_schedule_settings settings = {0};
    struct lh_validator *v = &asked->v;
    const char *ns = NULL, *key = NULL;
    bool is_waiter = request->lease_key[0] != '\0';
    bool is_valid = lh_validate_scope(v, request->scope, "scope", &ns, &key);
    struct lh_uuid lease_key;

    if (is_waiter && !lh_uuid_parse(request->lease_key, &lease_key))
        is_valid = lh_violations_add(v->violations, "lease_key", "must be a UUID, or empty");
    is_valid &= lh_validate_words(v, request->reason, "reason", 0);
    is_valid &= lh_validate_text(v, LH_TEXT_OWNER, request->owner, "owner");
    if (request->token < 0)
        is_valid = lh_violations_add(v->violations, "token", "must be 0 (all holders) or a token, is %lld",
                                     (long long)request->token);
    if (!lh_asked_check(asked, is_valid) || !lh_permit(asked->call, is_waiter ? LH_RIGHT_LEASE : LH_RIGHT_ADMIN, ns))
        return;
    settings.change.ns = ns;
    lh_schedule_setting(&settings, "key", key);
    lh_schedule_setting(&settings, "reason", request->reason);
    if (is_waiter)
        lh_schedule_setting(&settings, "lease_key", lh_arena_strdup(v->arena, LH_UUID_TEXT(&lease_key)));
    if (request->owner[0] != '\0')
        lh_schedule_setting(&settings, "owner", request->owner);
    if (request->token != 0)
        lh_schedule_number(&settings, "token", request->token, v->arena);
    send(asked, LH_ADMIN_ASK_HAND_OVER, key, request->token, &settings, on_asked);
}

/* --- RefuseHandOver --- */

static void on_refused(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct lh_store_call *store_call = arg;
    struct lh_arena *arena = &store_call->service->scratch;
    Leasehold__V1__RefuseHandOverResponse response = LEASEHOLD__V1__REFUSE_HAND_OVER_RESPONSE__INIT;
    const char *outcome;

    if (lh_store_call_is_answered(store_call, status, error)) {
        outcome = rows->row_count == 0 ? "not_held" : lh_rows_cell(rows, 0, "outcome");
        if (strcmp(outcome, "refused") == 0) {
            response.asked = lh_row_message(&leasehold__v1__hand_over__descriptor, rows, 0, arena);
            lh_store_call_reply(store_call, &response.base);
        } else if (strcmp(outcome, "not_asked") == 0) {
            lh_call_fail(store_call->call, LH_NOT_ASKED, NULL, store_call->ns, store_call->key);
        } else {
            lh_store_call_fail_not_held(store_call);
        }
    }
    lh_store_call_destroy(store_call);
}

void lh_refuse_hand_over_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__RefuseHandOverRequest *request = message;
    struct lh_schedule_settings settings = {0};
    struct lh_validator *v = &asked->v;
    struct lh_uuid lease_key;
    const char *ns = NULL, *key = NULL;
    bool is_valid = lh_validate_lease_ref(v, request->lease, "lease", &ns, &key, &lease_key);

    is_valid &= lh_validate_words(v, request->reason, "reason", 1);
    if (!lh_asked_check(asked, is_valid) || !lh_permit(asked->call, LH_RIGHT_LEASE, ns))
        return;
    settings.change.ns = ns;
    lh_schedule_setting(&settings, "key", key);
    lh_schedule_setting(&settings, "lease_key", lh_arena_strdup(v->arena, LH_UUID_TEXT(&lease_key)));
    lh_schedule_setting(&settings, "reason", request->reason);
    send(asked, LH_ADMIN_REFUSE_HAND_OVER, key, 0, &settings, on_refused);
}
