/* Whether this daemon can do its work, and if not, why: a judgement on a few facts, apart from HTTP. */
#ifndef LH_ADMIN_READY_H
#define LH_ADMIN_READY_H

#include <stdbool.h>
#include <stdint.h>

#define LH_READY_WITHIN_US INT64_C(5000000)
#define LH_READY_WORDS_BYTES 128

struct lh_ready_facts {
    const char *phase; /* a reason besides the database, or NULL */
    bool has_coordinator;
    bool is_connected;
    int64_t last_tick_us; /* 0: none yet */
    int64_t now_us;
};

bool lh_ready_judge(const struct lh_ready_facts *facts, char words[LH_READY_WORDS_BYTES]);

#endif
