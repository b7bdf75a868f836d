#include "service/edge_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "service/call_internal.h"

#define WAITING_MAX 1000
#define READ_PAUSE_US (250 * LH_US_PER_MS)
#define WAIT_US (2 * LH_US_PER_S)      /* a read that takes longer is not waited for */
#define CHECKS_TOKENS "/leasehold.v1." /* health and reflection are open to all */

struct waiting {
    struct lh_link link;
    struct lh_rpc_call *call;
    int64_t since_us;
};

static void go_on(struct lh_service *service, struct waiting *waiting)
{
    struct lh_rpc_call *call = waiting->call;

    lh_list_remove(&waiting->link);
    free(waiting);
    service->unknown_tokens.count--;
    lh_rpc_call_set_data(call, NULL);
    lh_rpc_call_start(call);
}

static void go_on_all(struct lh_service *service, struct lh_link *list, int64_t since_us)
{
    struct waiting *waiting;

    while ((waiting = LH_LIST_FIRST(struct waiting, list, link)) != NULL && waiting->since_us <= since_us)
        go_on(service, waiting);
}

static void look(struct lh_service *service);

static void on_read(void *arg)
{
    struct lh_service *service = arg;

    service->unknown_tokens.is_out = false;
    go_on_all(service, &service->unknown_tokens.asked, INT64_MAX);
    look(service);
}

static void read_tokens(struct lh_service *service, int64_t now_us)
{
    struct lh_unknown_tokens *tokens = &service->unknown_tokens;
    struct lh_coordinator *coordinator = service->places->home->coordinator;

    while (!lh_list_is_empty(&tokens->waiting)) {
        struct waiting *waiting = LH_LIST_FIRST(struct waiting, &tokens->waiting, link);
        lh_list_remove(&waiting->link);
        lh_list_append(&tokens->asked, &waiting->link);
    }
    tokens->sent_us = now_us;
    tokens->is_out = lh_coordinator_reload_rules(coordinator, on_read, service) == LH_OK;
    if (!tokens->is_out)
        go_on_all(service, &tokens->asked, INT64_MAX);
}

/* Sends the next read, or sets the timer for it and for the end of the longest wait. */
static void look(struct lh_service *service)
{
    struct lh_unknown_tokens *tokens = &service->unknown_tokens;
    int64_t now_us = lh_clock_us();
    const struct waiting *oldest;

    go_on_all(service, &tokens->asked, now_us - WAIT_US);
    go_on_all(service, &tokens->waiting, now_us - WAIT_US);
    if (!tokens->is_out && !lh_list_is_empty(&tokens->waiting) && now_us - tokens->sent_us >= READ_PAUSE_US)
        read_tokens(service, now_us);
    if (!tokens->is_out && !lh_list_is_empty(&tokens->waiting))
        lh_timer_arm_at_us(&tokens->timer, tokens->sent_us + READ_PAUSE_US);
    else if ((oldest = LH_LIST_FIRST(struct waiting, &tokens->asked, link)) != NULL)
        lh_timer_arm_at_us(&tokens->timer, oldest->since_us + WAIT_US);
    else
        lh_timer_cancel(&tokens->timer);
}

static void on_timer(void *arg)
{
    look(arg);
}

bool lh_service_on_enter(struct lh_rpc_call *call)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_unknown_tokens *tokens = &service->unknown_tokens;
    struct waiting *waiting;

    if (service->loop == NULL || tokens->count >= WAITING_MAX ||
        strncmp(lh_rpc_call_method(call)->path, CHECKS_TOKENS, strlen(CHECKS_TOKENS)) != 0 ||
        !lh_permit_has_unknown_token(call))
        return true;
    waiting = lh_alloc_zero(1, sizeof(*waiting));
    waiting->call = call;
    waiting->since_us = lh_clock_us();
    lh_list_append(&tokens->waiting, &waiting->link);
    tokens->count++;
    lh_rpc_call_set_data(call, waiting);
    lh_timer_arm_no_later_us(&tokens->timer, waiting->since_us); /* not from inside of this */
    return false;
}

void lh_service_on_left(struct lh_rpc_call *call)
{
    struct lh_service *service = lh_call_service(call);
    struct waiting *waiting = lh_rpc_call_data(call);

    lh_list_remove(&waiting->link);
    free(waiting);
    service->unknown_tokens.count--;
    lh_rpc_call_set_data(call, NULL);
}

void lh_unknown_tokens_start(struct lh_service *service, struct lh_loop *loop)
{
    struct lh_unknown_tokens *tokens = &service->unknown_tokens;

    lh_list_init(&tokens->asked);
    lh_list_init(&tokens->waiting);
    tokens->sent_us = lh_clock_us() - READ_PAUSE_US;
    if (loop != NULL)
        lh_timer_init(&tokens->timer, loop, on_timer, service);
}

void lh_unknown_tokens_finish(struct lh_service *service)
{
    if (service->loop != NULL)
        lh_timer_finish(&service->unknown_tokens.timer);
}
