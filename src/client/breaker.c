#include "client/breaker.h"

#include <string.h>

#include "base/log.h"

static void set_state(struct breaker *breaker, enum breaker_state state, const char *why)
{
    static const char *const names[] = {"closed", "open", "half open"};

    if (breaker->state == state)
        return;
    lh_info("circuit %s endpoint=%s failures=%u: %s", names[state], breaker->name, breaker->failures, why);
    breaker->state = state;
}

void lh_breaker_init(struct breaker *breaker, const char *name, uint32_t failures, int64_t open_us)
{
    memset(breaker, 0, sizeof(*breaker));
    breaker->name = name;
    breaker->limit = failures > 0 ? failures : BREAKER_FAILURES_DEFAULT;
    breaker->open_us = open_us > 0 ? open_us : BREAKER_OPEN_US_DEFAULT;
    breaker->ticket = BREAKER_OPEN + 1;
}

bool lh_breaker_is_open(const struct breaker *breaker, int64_t now_us)
{
    return breaker->state != BREAKER_CLOSED && now_us < breaker->probe_at_us;
}

uint64_t lh_breaker_admit(struct breaker *breaker, int64_t now_us)
{
    if (lh_breaker_is_open(breaker, now_us))
        return BREAKER_OPEN;
    if (breaker->state == BREAKER_IS_OPEN) {
        breaker->probe = breaker->ticket;
        set_state(breaker, BREAKER_HALF_OPEN, "one call goes out to try it");
    }
    breaker->probe_at_us = now_us + breaker->open_us;
    return breaker->ticket++;
}

static void open_it(struct breaker *breaker, int64_t now_us, const char *why)
{
    breaker->probe_at_us = now_us + breaker->open_us;
    breaker->opened++;
    set_state(breaker, BREAKER_IS_OPEN, why);
}

static void settle_probe(struct breaker *breaker, enum breaker_result result, int64_t now_us)
{
    switch (result) {
    case BREAKER_SUCCEEDED:
        breaker->failures = 0;
        set_state(breaker, BREAKER_CLOSED, "it answers again");
        break;
    case BREAKER_FAILED:
        breaker->failures++;
        open_it(breaker, now_us, "it still fails");
        break;
    case BREAKER_SAID_NOTHING:
        breaker->probe_at_us = now_us; /* the next call is the next probe */
        set_state(breaker, BREAKER_IS_OPEN, "the try ended without an answer");
        break;
    }
}

void lh_breaker_settle(struct breaker *breaker, uint64_t ticket, enum breaker_result result, int64_t now_us)
{
    if (breaker->state == BREAKER_HALF_OPEN && ticket >= breaker->probe) {
        if (result == BREAKER_FAILED)
            breaker->failed_at = breaker->ticket;
        settle_probe(breaker, result, now_us);
        return;
    }
    if (breaker->state != BREAKER_CLOSED || ticket == BREAKER_OPEN)
        return; /* from before it opened: old news */
    if (result == BREAKER_SUCCEEDED && ticket >= breaker->failed_at)
        breaker->failures = 0;
    if (result != BREAKER_FAILED || ticket < breaker->failed_at)
        return;
    breaker->failed_at = breaker->ticket;
    if (++breaker->failures >= breaker->limit)
        open_it(breaker, now_us, "it failed too often");
}

enum breaker_result lh_breaker_result_of(enum lh_rpc_delivery stage, enum lh_grpc_code code)
{
    if (stage == LH_RPC_ANSWERED)
        return BREAKER_SUCCEEDED;
    switch (code) {
    case LH_GRPC_CANCELLED:
    case LH_GRPC_DEADLINE_EXCEEDED:
    case LH_GRPC_RESOURCE_EXHAUSTED:
    case LH_GRPC_UNAUTHENTICATED: /* each call says which certificate is wrong */
        return BREAKER_SAID_NOTHING;
    default:
        return BREAKER_FAILED;
    }
}
