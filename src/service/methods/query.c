/* GetLease and ListLeases: reads of the store that touch no lease. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "service/call_internal.h"
#include "service/edge_internal.h"
#include "service/words_internal.h"

/* --- GetLease --- */

#define HOLDERS_MAX 100

static Leasehold__V1__LastHold *new_last_hold(const struct lh_last_hold *last, struct lh_arena *arena)
{
    Leasehold__V1__LastHold *message = lh_message_new(&leasehold__v1__last_hold__descriptor, arena);

    message->token = last->token;
    if (last->owner != NULL)
        message->owner = (char *)last->owner;
    if (last->principal != NULL)
        message->principal = (char *)last->principal;
    message->end_reason = (Leasehold__V1__EndReason)last->end_reason;
    if (last->result != NULL)
        message->result = (char *)last->result;
    if (last->error != NULL)
        message->error = (char *)last->error;
    message->ended_at = lh_message_timestamp(last->ended_at_us, arena);
    return message;
}

/* `holders`: of a scope that several hold; else NULL. */
static void reply_scope(struct lh_store_call *store_call, const struct lh_scope_answer *answer,
                        const struct lh_list_answer *holders)
{
    struct lh_arena *arena = &store_call->service->scratch;
    Leasehold__V1__GetLeaseResponse response = LEASEHOLD__V1__GET_LEASE_RESPONSE__INIT;
    struct lh_contention contention = {.has_holder = answer->is_held,
                                       .holder_count = answer->holder_count,
                                       .units_free = answer->units_free,
                                       .waiters_ahead = answer->waiters,
                                       .rests_us = answer->rests_in_us};

    if (answer->is_held) {
        contention.holder = answer->lease;
        contention.holder.ns = store_call->ns;
        contention.holder.key = store_call->key;
        contention.holder.asked =
            lh_places_asked(store_call->service->places, store_call->ns, store_call->key, contention.holder.token);
        contention.holders = holders == NULL ? &contention.holder : holders->leases;
        contention.listed = holders == NULL ? 1 : (int32_t)holders->lease_count;
        response.lease = lh_message_lease(&contention.holder, LH_LEASE_PUBLIC, arena);
        response.holder_count = contention.holder_count;
        response.holders = lh_arena_alloc(arena, (size_t)contention.listed * sizeof(*response.holders));
        for (int32_t i = 0; i < contention.listed; i++) {
            struct lh_held_lease holder = contention.holders[i];
            holder.asked = lh_places_asked(store_call->service->places, store_call->ns, store_call->key, holder.token);
            response.holders[response.n_holders++] = lh_message_lease(&holder, LH_LEASE_PUBLIC, arena);
        }
    }
    if (answer->is_held || answer->waiters > 0 || answer->rests_in_us > 0)
        response.contention = lh_message_contention(&contention, arena);
    if (answer->has_last)
        response.last = new_last_hold(&answer->last, arena);
    lh_store_call_reply(store_call, &response.base);
}

/* A scope that several hold, while its holders are looked up. */
struct several {
    struct lh_store_call *store_call;
    struct lh_scope_answer scope;
};

/* What was asked for first is not there any more by then: the oldest holder is the first of them. */
static void on_holders(void *arg, enum lh_status status, const struct lh_error *error,
                       const struct lh_list_answer *holders)
{
    struct several *several = arg;
    struct lh_store_call *store_call = several->store_call;
    struct lh_scope_answer *scope = &several->scope;

    if (lh_store_call_is_answered(store_call, status, error)) {
        scope->is_held = holders->lease_count > 0;
        if (scope->is_held)
            scope->lease = holders->leases[0];
        if (!holders->has_more)
            scope->holder_count = (int32_t)holders->lease_count;
        if (scope->is_held || scope->waiters > 0)
            reply_scope(store_call, scope, holders);
        else
            lh_store_call_fail_not_held(store_call);
    }
    lh_store_call_destroy(store_call);
    free(several);
}

static void ask_for_holders(struct lh_store_call *store_call, const struct lh_scope_answer *answer)
{
    struct lh_store *store = store_call->service->store;
    struct several *several = lh_alloc_zero(1, sizeof(*several));
    enum lh_status status;

    several->store_call = store_call;
    several->scope = *answer;
    status = store->ops->holders(store, store_call->ns, store_call->key, HOLDERS_MAX, on_holders, several);
    if (status != LH_OK)
        free(several);
    lh_store_call_check(store_call, status);
}

static void on_scope(void *arg, enum lh_status status, const struct lh_error *error,
                     const struct lh_scope_answer *answer)
{
    struct lh_store_call *store_call = arg;

    if (store_call->call != NULL && status == LH_NOT_HELD)
        lh_store_call_fail_not_held(store_call);
    else if (lh_store_call_is_answered(store_call, status, error)) {
        if (answer->is_held && answer->lease.units > 0) {
            ask_for_holders(store_call, answer);
            return;
        }
        if (answer->is_held || answer->has_last || answer->waiters > 0 || answer->rests_in_us > 0)
            reply_scope(store_call, answer, NULL);
        else
            lh_store_call_fail_not_held(store_call);
    }
    lh_store_call_destroy(store_call);
}

void lh_get_lease_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__GetLeaseRequest *request = message;
    const char *ns, *key;

    if (lh_asked_check(asked, lh_validate_scope(&asked->v, request->scope, "scope", &ns, &key)) &&
        lh_permit(asked->call, LH_RIGHT_READ, ns)) {
        struct lh_store *store = asked->service->store;
        struct lh_store_call *store_call = lh_store_call_create(asked->call, ns, key);
        if (store_call != NULL)
            lh_store_call_check(store_call,
                                store->ops->get(store, store_call->ns, store_call->key, on_scope, store_call));
    }
}

/* --- ListLeases --- */

/* Of leases among which are some that the caller may not read. */
#define LOOKED_AT_ONCE 1000
/* Pages of the store for one page that is searched for: 100,000 rows of the table. */
#define SEARCH_PAGES 10

#define PLACE_BYTES 24

/* A page that is being put together: its leases are packed as they come. */
struct list {
    struct lh_store_call *store_call;
    struct lh_access_caller who;
    struct visible_walk walk;
    struct lh_list_request sieve; /* owner, search, state and longer_than_us; its strings are the page's own */
    int32_t left;                 /* of the page */
    int32_t searched;             /* pages of the store */
    struct lh_buffer packed;
    char last_ns[LH_NAMESPACE_MAX_BYTES + 1];      /* the last that was told: a page token names no other */
    char last_key[LH_KEY_MAX_BYTES + PLACE_BYTES]; /* and of a shared lease its token, see put_place */
};

/* A key has no control characters. */
#define PLACE_MARK "\n"

/* Within a scope that several hold a page goes on behind a token. */
static void put_place(char last_key[LH_KEY_MAX_BYTES + PLACE_BYTES], const char *key, int64_t token)
{
    if (token == 0)
        snprintf(last_key, LH_KEY_MAX_BYTES + PLACE_BYTES, "%s", key);
    else
        snprintf(last_key, LH_KEY_MAX_BYTES + PLACE_BYTES, "%s%s%lld", key, PLACE_MARK, (long long)token);
}

static bool take_place(struct lh_validator *v, struct lh_list_request *list)
{
    size_t size = strcspn(list->after_key, PLACE_MARK);
    char *key;

    if (size > LH_KEY_MAX_BYTES)
        return lh_violations_add(v->violations, "page_token", "names a key of %zu bytes; a key has at most %d", size,
                                 LH_KEY_MAX_BYTES);
    if (list->after_key[size] == '\0')
        return true;
    key = lh_arena_strdup(v->arena, list->after_key);
    key[size] = '\0';
    list->after_token = strtoll(key + size + 1, NULL, 10);
    list->after_key = key;
    return true;
}

static void free_list(struct list *list)
{
    lh_access_leave(&list->who);
    lh_buffer_finish(&list->packed);
    free((char *)(uintptr_t)list->sieve.owner);
    free((char *)(uintptr_t)list->sieve.search);
    free(list);
}

/* `last_ns` and `last_key`: where the next page begins; NULL: there is none. */
static void finish(struct list *list, const char *last_ns, const char *last_key, bool is_partial)
{
    struct lh_store_call *store_call = list->store_call;
    Leasehold__V1__ListLeasesResponse response = LEASEHOLD__V1__LIST_LEASES_RESPONSE__INIT;

    response.partial = is_partial;
    if (last_ns != NULL)
        response.next_page_token =
            lh_page_token_make(LH_PAGE_LEASES, store_call->filter, last_ns, last_key, &store_call->service->scratch);
    lh_store_call_append(list->store_call, &list->packed, &response.base);
    lh_rpc_call_reply(store_call->call, list->packed.data, list->packed.size);
    lh_store_call_destroy(store_call);
    free_list(list);
}

/* Takes what the caller may read and the page has room for. Returns how many it is done with. */
static size_t take(struct list *list, const struct lh_list_answer *answer)
{
    struct lh_arena *arena = &list->store_call->service->scratch;
    Leasehold__V1__ListLeasesResponse response = LEASEHOLD__V1__LIST_LEASES_RESPONSE__INIT;
    size_t bytes = list->packed.size, i;
    struct lh_held_lease shown;

    response.leases = lh_arena_alloc(arena, (answer->lease_count + 1) * sizeof(*response.leases));
    for (i = 0; i < answer->lease_count; i++) {
        const struct lh_held_lease *lease = &answer->leases[i];
        if (!lh_visible_may_show(&list->who, lease))
            continue;
        if (list->left == 0 || bytes >= LH_REPLY_MAX_BYTES)
            break;
        shown = *lease;
        shown.asked = lh_places_asked(list->store_call->service->places, lease->ns, lease->key, lease->token);
        response.leases[response.n_leases] = lh_message_lease(&shown, LH_LEASE_PUBLIC, arena);
        bytes += protobuf_c_message_get_packed_size(&response.leases[response.n_leases++]->base);
        list->left--;
        snprintf(list->last_ns, sizeof(list->last_ns), "%s", lease->ns);
        put_place(list->last_key, lease->key, lh_visible_place(lease));
    }
    lh_store_call_append(list->store_call, &list->packed, &response.base);
    return i;
}

static void ask(struct list *list, const struct lh_list_request *request);

/* May the store look at many rows that are not wanted? */
static bool is_search(const struct lh_list_request *sieve)
{
    return *sieve->search != '\0' || sieve->state != NULL || sieve->longer_than_us > 0;
}

static void on_list(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_list_answer *answer)
{
    struct list *list = arg;
    struct lh_list_request request = list->sieve;
    size_t done;

    if (!lh_store_call_is_answered(list->store_call, status, error)) {
        lh_store_call_destroy(list->store_call);
        free_list(list);
        return;
    }
    done = take(list, answer);
    lh_visible_advance(&list->walk, answer, done);
    if (done < answer->lease_count ||
        (list->left == 0 && answer->has_more && lh_visible_is_whole(&list->walk, &list->who)))
        finish(list, list->last_ns, list->last_key, false);
    else if (!lh_visible_ask(&list->walk, &list->who, &request))
        finish(list, NULL, NULL, false);
    else if (is_search(&list->sieve) && ++list->searched == SEARCH_PAGES) {
        put_place(list->last_key, request.after_key, request.after_token);
        finish(list, request.after_ns, list->last_key, true);
    } else
        ask(list, &request);
}

static bool read_list(struct lh_validator *v, const Leasehold__V1__ListLeasesRequest *request,
                      struct lh_list_request *list, uint64_t *filter)
{
    char longer_than[24];

    if (!lh_validate_list(v, request, list))
        return false;
    *filter = lh_page_filter(lh_page_filter(0, list->ns), list->owner);
    *filter = lh_page_filter(*filter, list->include_children ? "children" : "");
    *filter = lh_page_filter(*filter, list->search);
    if (list->state != NULL || list->longer_than_us > 0) { /* not else: daemons of before know such tokens too */
        snprintf(longer_than, sizeof(longer_than), "%lld", (long long)list->longer_than_us);
        *filter = lh_page_filter(lh_page_filter(*filter, list->state != NULL ? list->state : ""), longer_than);
    }
    if (request->page_token[0] == '\0')
        return true;
    if (lh_page_token_parse(request->page_token, LH_PAGE_LEASES, *filter, v->arena, &list->after_ns, &list->after_key))
        return take_place(v, list);
    return lh_violations_add(v->violations, "page_token",
                             "must be the next_page_token of a page that was asked with the same filters");
}

static void ask(struct list *list, const struct lh_list_request *of_walk)
{
    struct lh_store_call *store_call = list->store_call;
    struct lh_store *store = store_call->service->store;
    struct lh_list_request request = *of_walk;
    enum lh_status status;

    request.page_size = lh_visible_is_whole(&list->walk, &list->who) && list->left > 0 ? list->left : LOOKED_AT_ONCE;
    status = store->ops->list(store, &request, on_list, list);
    if (status != LH_OK)
        free_list(list);
    lh_store_call_check(store_call, status);
}

static void begin_list(struct lh_rpc_call *call, struct lh_access_caller *who, const struct lh_list_request *request,
                       uint64_t filter)
{
    bool include_children = request->include_children || *request->ns == '\0';
    struct lh_list_request first;
    struct lh_store_call *store_call;
    struct list *list;

    if (!lh_permit_any(call, who, LH_RIGHT_READ, request->ns, include_children))
        return;
    store_call = lh_store_call_create(call, request->ns, NULL);
    if (store_call == NULL)
        return;
    store_call->filter = filter;
    list = lh_alloc_zero(1, sizeof(*list));
    list->store_call = store_call;
    list->who = lh_access_copy(who);
    list->sieve = (struct lh_list_request){.owner = lh_strdup(request->owner),
                                           .search = lh_strdup(request->search),
                                           .state = request->state,
                                           .longer_than_us = request->longer_than_us};
    first = list->sieve;
    list->left = request->page_size;
    lh_visible_begin(&list->walk, request->ns, include_children, request->after_ns, request->after_key,
                     request->after_token);
    if (lh_visible_ask(&list->walk, &list->who, &first))
        ask(list, &first);
    else
        finish(list, NULL, NULL, false);
}

void lh_list_leases_on_request(struct lh_asked *asked, const void *request)
{
    struct lh_list_request list = {0};
    struct lh_access_caller who;
    uint64_t filter;

    if (lh_asked_check(asked, read_list(&asked->v, request, &list, &filter)) && lh_permit_enter(asked->call, &who)) {
        begin_list(asked->call, &who, &list, filter);
        lh_access_leave(&who);
    }
}
