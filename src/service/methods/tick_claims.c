/*
 * ScheduleService: ClaimTick.
 *
 * A claim that finds no tick waits for the next one by the database's clock, and looks at least once a second: a worker
 * may have died, somebody may have resumed the schedule. Of the claims of one schedule only the first looks; when it has
 * got its tick the next one does, so a thousand workers cost the database as much as one. The wait ends without a tick
 * after `wait`, or the daemon's max_block, whichever is shorter.
 *
 * Where the caller has gone before it heard of its tick, the lease is given back, and the tick fails: it is tried again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "service/call_internal.h"
#include "service/words_internal.h"

#define LOOK_AGAIN_US LH_US_PER_S
/* A tick is due, but no more may run at the same time. */
#define LOOK_AT_DUE_US (250 * LH_US_PER_MS)

struct claim {
    struct lh_rpc_call *call; /* NULL once it has ended */
    struct lh_service *service;
    struct lh_usage *caller;
    struct lh_link link; /* in lh_service.claims, until it is answered */
    struct lh_timer timer;
    struct lh_arena memory; /* of the strings of `settings` */
    struct lh_schedule_settings settings;
    int64_t arrived_us;
    int64_t until_us;
    int64_t look_us; /* when the first of its schedule looks again */
    int64_t sent_us;
    bool is_out;  /* the store has it */
    bool is_told; /* of a tick: it is off the list, and ends with its call */
    struct lh_holder_request back;
    struct lh_holder_entry back_item;
    char next_in[24]; /* as the store said last; "": not known */
};

static void on_due(void *arg);

/* --- whose turn it is --- */

static struct claim *first_of(struct lh_service *service, const char *ns)
{
    LH_LIST_EACH(struct claim, claim, &service->claims, link)
        if (strcmp(claim->settings.change.ns, ns) == 0)
            return claim;
    return NULL;
}

static void arm(struct claim *claim)
{
    bool looks = first_of(claim->service, claim->settings.change.ns) == claim;

    if (claim->service->loop != NULL && !claim->is_out)
        lh_timer_arm_at_us(&claim->timer, looks && claim->look_us < claim->until_us ? claim->look_us : claim->until_us);
}

/* Takes it off the list: the next one looks at once, or when this one would have. */
static void leave(struct claim *claim, int64_t look_us)
{
    struct claim *next;
    bool was_first = first_of(claim->service, claim->settings.change.ns) == claim;

    lh_list_remove(&claim->link);
    if (claim->service->loop != NULL)
        lh_timer_cancel(&claim->timer);
    next = was_first ? first_of(claim->service, claim->settings.change.ns) : NULL;
    if (next != NULL) {
        next->look_us = look_us;
        arm(next);
    }
}

static void destroy(struct claim *claim)
{
    if (claim->service->loop != NULL)
        lh_timer_finish(&claim->timer);
    lh_usage_give(claim->caller, LH_USAGE_WAITERS, 1);
    lh_arena_finish(&claim->memory);
    free(claim);
}

/* --- answers --- */

/* Before the call is answered: its end does not concern the claim any more. */
static struct lh_rpc_call *detach(struct claim *claim)
{
    struct lh_rpc_call *call = claim->call;

    claim->call = NULL;
    if (call != NULL)
        lh_rpc_call_set_data(call, NULL);
    return call;
}

/* `rows` NULL: without a tick. */
static void reply(struct claim *claim, const struct lh_rows *rows)
{
    struct lh_arena *arena = &claim->service->scratch;
    Leasehold__V1__ClaimTickResponse empty = LEASEHOLD__V1__CLAIM_TICK_RESPONSE__INIT, *response = &empty;

    if (rows != NULL) {
        response = lh_row_message(&leasehold__v1__claim_tick_response__descriptor, rows, 0, arena);
        response->lease = lh_row_message(&leasehold__v1__lease__descriptor, rows, 0, arena);
        response->lease->n_labels = lh_json_to_labels(claim->settings.values[0], arena, &response->lease->labels);
    } else if (claim->next_in[0] != '\0') {
        response->next_in = lh_message_duration(strtoll(claim->next_in, NULL, 10), arena);
    }
    response->waited = lh_message_duration(claim->sent_us - claim->arrived_us, arena);
    lh_call_reply(rows != NULL ? claim->call : detach(claim), &response->base, arena);
    lh_arena_reset(arena);
}

static void on_given_back(struct lh_holder_request *request)
{
    struct claim *claim = request->arg;

    if (claim->back_item.item.outcome != LH_OUTCOME_OK)
        lh_info("the tick of an ended call was not given back, its lease ends by its deadline tick=%s",
                LH_SCOPE_NAME(claim->back_item.item.ns, claim->back_item.item.key));
    destroy(claim);
}

/* It is off the list. A repeat of the claim renews the lease, which is not given back then. */
static void give_back(struct claim *claim)
{
    claim->back =
        (struct lh_holder_request){.items = &claim->back_item, .count = 1, .on_done = on_given_back, .arg = claim};
    claim->back_item.item.is_unheard = true;
    if (lh_route_release(claim->service, &claim->back) != LH_OK)
        on_given_back(&claim->back);
}

/* Keeps the names of the tick's lease, until it is known whether the caller hears of it. */
static void keep_names(struct claim *claim, const struct lh_rows *rows)
{
    struct lh_holder_item *item = &claim->back_item.item;

    item->ns = claim->settings.change.ns;
    item->key = lh_arena_strdup(&claim->memory, lh_rows_cell(rows, 0, "key"));
    lh_uuid_parse(lh_rows_cell(rows, 0, "lease_key"), &item->lease_key);
}

/* Ends the wait. */
static void give_up(struct claim *claim)
{
    reply(claim, NULL);
    leave(claim, claim->look_us);
    destroy(claim);
}

static void plan_next_look(struct claim *claim, const struct lh_rows *rows)
{
    const char *next_in = rows->row_count > 0 ? lh_rows_cell(rows, 0, "next_in") : NULL;
    int64_t in_us = LOOK_AGAIN_US;

    claim->next_in[0] = '\0';
    if (next_in != NULL) {
        snprintf(claim->next_in, sizeof(claim->next_in), "%s", next_in);
        in_us = strtoll(next_in, NULL, 10);
        in_us = in_us <= 0 ? LOOK_AT_DUE_US : in_us > LOOK_AGAIN_US ? LOOK_AGAIN_US : in_us;
    }
    claim->look_us = lh_clock_us() + in_us;
}

static void on_claimed(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct claim *claim = arg;
    const char *ns = claim->settings.change.ns;

    bool has_tick = status == LH_OK && rows->row_count > 0 && lh_rows_cell(rows, 0, "token") != NULL;

    claim->is_out = false;
    if (has_tick) {
        keep_names(claim, rows);
        leave(claim, lh_clock_us());
        if (claim->call == NULL) {
            give_back(claim);
            return;
        }
        claim->is_told = true;
        reply(claim, rows);
    } else if (claim->call == NULL || status != LH_OK) {
        lh_schedule_is_answered(detach(claim), status, error, ns, "");
        leave(claim, lh_clock_us() + (status == LH_OK ? 0 : LOOK_AGAIN_US));
        destroy(claim);
    } else {
        plan_next_look(claim, rows);
        if (claim->until_us <= lh_clock_us())
            give_up(claim);
        else
            arm(claim);
    }
}

/* --- looks --- */

/* Each look checks the right again. */
static void look(struct claim *claim)
{
    struct lh_store *store = claim->service->store;
    struct lh_requester by;
    struct lh_admin_request request = {
        .verb = LH_ADMIN_CLAIM_TICK, .by = &by, .ns = claim->settings.change.ns, .change = &claim->settings.change};
    enum lh_status status;

    struct lh_rpc_call *call = detach(claim);

    if (!lh_permit(call, LH_RIGHT_LEASE, request.ns)) {
        leave(claim, lh_clock_us());
        destroy(claim);
        return;
    }
    claim->call = call;
    lh_rpc_call_set_data(call, claim);
    by = lh_call_requester(call);
    claim->sent_us = lh_clock_us();
    status = store->ops->administer(store, &request, on_claimed, claim);
    claim->is_out = status == LH_OK;
    if (status == LH_OK)
        return;
    lh_call_fail(detach(claim), status, NULL, request.ns, NULL);
    leave(claim, lh_clock_us() + LOOK_AGAIN_US);
    destroy(claim);
}

static void on_due(void *arg)
{
    struct claim *claim = arg;

    if (claim->until_us <= lh_clock_us())
        give_up(claim);
    else
        look(claim);
}

void lh_claims_drain(struct lh_service *service)
{
    struct lh_link *next;

    for (struct lh_link *link = service->claims.next; link != &service->claims; link = next) {
        struct claim *claim = LH_CONTAINER(struct claim, link, link);
        next = link->next;
        claim->until_us = 0;
        if (claim->is_out)
            continue;
        lh_call_fail(detach(claim), LH_SHUTTING_DOWN, NULL, claim->settings.change.ns, NULL);
        lh_list_remove(&claim->link);
        destroy(claim);
    }
}

/* --- the call --- */

static struct claim *keep(struct lh_asked *asked, const struct lh_acquire *acquire, struct lh_usage *caller)
{
    struct claim *claim = lh_alloc_zero(1, sizeof(*claim));
    struct lh_arena *memory = &claim->memory;
    struct lh_schedule_settings *settings = &claim->settings;
    int64_t most_us = asked->service->max_block_us; /* 0: no limit */
    int64_t wait_us = most_us > 0 && most_us < acquire->wait_us ? most_us : acquire->wait_us;

    claim->call = asked->call;
    claim->service = asked->service;
    claim->caller = caller;
    claim->arrived_us = lh_rpc_call_arrived_us(asked->call);
    claim->until_us = claim->arrived_us + wait_us;
    settings->change.ns = lh_arena_strdup(memory, acquire->ns);
    lh_schedule_setting(settings, "labels",
                        lh_arena_strdup(memory, acquire->terms.labels)); /* the first, see reply() */
    lh_schedule_setting(settings, "owner", lh_arena_strdup(memory, acquire->terms.owner));
    lh_schedule_setting(settings, "lease_key", lh_arena_strdup(memory, LH_UUID_TEXT(&acquire->lease_key)));
    if (acquire->terms.duration_us > 0)
        lh_schedule_number(settings, "duration", acquire->terms.duration_us, memory);
    if (claim->service->loop != NULL)
        lh_timer_init(&claim->timer, claim->service->loop, on_due, claim);
    lh_rpc_call_set_data(claim->call, claim);
    lh_list_append(&claim->service->claims, &claim->link);
    return claim;
}

static void begin(struct lh_asked *asked, const struct lh_acquire *acquire)
{
    struct lh_usage *caller;
    struct claim *claim, *first;

    if (asked->service->is_draining) {
        lh_call_fail(asked->call, LH_SHUTTING_DOWN, NULL, acquire->ns, NULL);
        return;
    }
    if (!lh_usage_take(asked->call, LH_USAGE_WAITERS, 1, &caller))
        return;
    first = first_of(asked->service, acquire->ns);
    claim = keep(asked, acquire, caller);
    claim->sent_us = lh_clock_us();
    if (first != NULL && claim->service->loop != NULL && acquire->wait_us > 0) {
        memcpy(claim->next_in, first->next_in, sizeof(claim->next_in));
        arm(claim);
    } else {
        look(claim);
    }
}

void lh_claim_tick_on_request(struct lh_asked *asked, const void *request)
{
    struct lh_acquire acquire = {0};

    if (lh_asked_check(asked, lh_validate_claim(&asked->v, request, &acquire)) &&
        lh_permit(asked->call, LH_RIGHT_LEASE, acquire.ns))
        begin(asked, &acquire);
}

void lh_claim_tick_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct claim *claim = lh_rpc_call_data(call);

    if (claim == NULL)
        return;
    claim->call = NULL;
    if (claim->is_out)
        return;
    if (claim->is_told && reason != LH_RPC_END_FINISHED) {
        give_back(claim);
        return;
    }
    if (!claim->is_told)
        leave(claim, claim->look_us);
    destroy(claim);
}
