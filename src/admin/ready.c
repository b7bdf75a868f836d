#include "admin/ready.h"

#include <stddef.h>
#include <stdio.h>

#include "base/text.h"

bool lh_ready_judge(const struct lh_ready_facts *facts, char words[LH_READY_WORDS_BYTES])
{
    int64_t silent_us = facts->now_us - facts->last_tick_us;
    char silent[LH_DURATION_TEXT_BYTES];

    if (facts->phase != NULL || !facts->has_coordinator) {
        snprintf(words, LH_READY_WORDS_BYTES, "not ready: %s", facts->phase != NULL ? facts->phase : "starting");
        return false;
    }
    if (facts->last_tick_us == 0) {
        snprintf(words, LH_READY_WORDS_BYTES, "not ready: %s",
                 facts->is_connected ? "not registered in the database yet" : "the database is unavailable");
        return false;
    }
    if (silent_us > LH_READY_WITHIN_US) {
        lh_duration_format(silent_us, silent);
        snprintf(words, LH_READY_WORDS_BYTES, "not ready: the database %s, and has not answered for %s",
                 facts->is_connected ? "is connected" : "is unavailable", silent);
        return false;
    }
    snprintf(words, LH_READY_WORDS_BYTES, "ready");
    return true;
}
