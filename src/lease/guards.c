#include "lease/guards.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#define LOOKS_IN_LIMIT 8 /* a guard is counted from the first look that saw it */
#define LOOK_MIN_US (1 * LH_US_PER_S)
#define LOOK_MAX_US (10 * LH_US_PER_S)
#define WARN_AGAIN_US (60 * LH_US_PER_S)

static void warn_of_trouble(struct lh_coordinator *c, const char *limit, const struct lh_long_guard *guard)
{
    struct lh_guards *guards = &c->guards;

    if (guards->warned_us != 0 && c->now_us - guards->warned_us < WARN_AGAIN_US)
        return;
    guards->warned_us = c->now_us;
    lh_warn("a session guards a lease for over %s (max_guard) and cannot be ended: %s: %s", limit, guard->session,
            guard->trouble);
}

static void on_looked(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_long_guard *long_guards, size_t count)
{
    struct lh_coordinator *c = arg;
    char limit[LH_DURATION_TEXT_BYTES];

    lh_turn_begin(c);
    c->guards.is_out = false;
    if (status == LH_OK) {
        c->stats.guards_overdue = 0;
        lh_duration_format(c->options.max_guard_us, limit);
        for (size_t i = 0; i < count; i++) {
            if (long_guards[i].trouble == NULL) {
                c->stats.guards_ended++;
                lh_warn("a session guarded a lease for over %s (max_guard) and was ended: %s", limit,
                        long_guards[i].session);
            } else {
                c->stats.guards_overdue++;
                warn_of_trouble(c, limit, &long_guards[i]);
            }
        }
    } else {
        lh_debug("long guards were not looked for: %s", error != NULL ? error->message : lh_status_text(status));
    }
    lh_turn_end_event(c);
}

void lh_guards_on_tick(struct lh_coordinator *c)
{
    struct lh_guards *guards = &c->guards;
    int64_t max_us = c->options.max_guard_us;
    int64_t pause_us = max_us / LOOKS_IN_LIMIT;

    if (c->store->ops->end_long_guards == NULL || max_us == 0 || guards->is_out || c->now_us < guards->next_us)
        return;
    pause_us = pause_us < LOOK_MIN_US ? LOOK_MIN_US : pause_us > LOOK_MAX_US ? LOOK_MAX_US : pause_us;
    guards->next_us = c->now_us + lh_turn_jitter(c, pause_us, 10);
    guards->is_out = c->store->ops->end_long_guards(c->store, max_us, on_looked, c) == LH_OK;
}
