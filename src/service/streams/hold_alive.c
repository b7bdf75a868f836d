#include "service/streams_internal.h"

#include "base/clock.h"

#define SILENT_US (45 * LH_US_PER_S) /* three times what the client's `alive` may take */

/* --- the client --- */

void lh_hold_note_alive(struct hold *hold, int64_t sequence)
{
    bool is_first = hold->alive_us == 0;

    if (is_first || sequence > hold->alive_sequence)
        hold->alive_sequence = sequence;
    hold->alive_us = lh_clock_us();
    hold->has_proof = true;
    if (is_first)
        lh_hold_look_at(hold, hold->look_us);
}

bool lh_hold_has_proof(const struct hold *hold)
{
    return (hold->has_proof || hold->by_ping) && !lh_rpc_call_is_over_mark(hold->call);
}

bool lh_hold_is_silent(const struct hold *hold)
{
    return hold->state == HOLD_WAITING && hold->alive_us != 0 && lh_clock_us() - hold->alive_us >= SILENT_US;
}

/* Those that say so add the header Forwarded of RFC 7239, the older X-Forwarded-For, or Via. */
bool lh_hold_has_proxy(const struct hold *hold)
{
    return lh_rpc_call_metadata(hold->call, "x-forwarded-for") != NULL ||
           lh_rpc_call_metadata(hold->call, "forwarded") != NULL || lh_rpc_call_metadata(hold->call, "via") != NULL;
}

/* --- the alarm --- */

static int64_t earlier(int64_t one_us, int64_t other_us)
{
    return one_us < other_us ? one_us : other_us;
}

void lh_hold_look_at(struct hold *hold, int64_t at_us)
{
    hold->look_us = at_us;
    if (hold->alive_us != 0) {
        at_us = earlier(at_us, hold->told_us + LH_QUIET_US);
        if (hold->state == HOLD_WAITING)
            at_us = earlier(at_us, hold->alive_us + SILENT_US);
    }
    if (hold->call != NULL && at_us != INT64_MAX)
        lh_rpc_call_set_alarm(hold->call, at_us);
}

void lh_hold_ring(struct hold *hold)
{
    if (hold->alive_us != 0 && lh_clock_us() - hold->told_us >= LH_QUIET_US)
        lh_hold_tell_alive(hold);
    lh_hold_look_at(hold, hold->look_us);
}
