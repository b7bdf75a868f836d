/*
 * Rows of spread namespaces: a few hundred bytes, read each second. A notification that got lost costs a second. The read
 * tells which rows are in force here, because a program that moves keys waits until all daemons act on them.
 */
#include "base/clock.h"
#include "base/log.h"
#include "lease/coordinator_internal.h"

#define ELSEWHERE_PAUSE_US (200 * LH_US_PER_MS)

static void on_spread_read(void *arg, enum lh_status status, const struct lh_error *error,
                           const struct lh_spread_answer *answer)
{
    struct lh_coordinator *c = arg;
    struct lh_spread_loading *loading = &c->spread_loading;
    int64_t before_us = loading->read_us;

    lh_turn_begin(c);
    loading->is_out = false;
    if (status == LH_OK) {
        loading->read_us = 0;
        for (size_t i = 0; i < answer->count; i++)
            if (answer->rows[i].changed_at_us > loading->read_us)
                loading->read_us = answer->rows[i].changed_at_us;
        loading->on_spread(loading->arg, answer);
        loading->wants_more |= loading->read_us != before_us; /* to tell it */
    } else {
        lh_debug("rows of spread namespaces were not read: %s",
                 error != NULL ? error->message : lh_status_text(status));
    }
    if (loading->wants_more && status == LH_OK)
        lh_coordinator_read_spread(c);
    lh_turn_end_event(c);
}

void lh_coordinator_read_spread(struct lh_coordinator *c)
{
    struct lh_spread_loading *loading = &c->spread_loading;

    if (loading->on_spread == NULL || c->store->ops->read_spread == NULL)
        return;
    loading->wants_more = loading->is_out;
    if (!loading->is_out)
        loading->is_out = c->store->ops->read_spread(c->store, loading->read_us, on_spread_read, c) == LH_OK;
}

void lh_spread_on_news(void *arg)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    lh_coordinator_read_spread(c);
    lh_turn_end_event(c);
}

void lh_spread_loading_on_elsewhere(struct lh_coordinator *c)
{
    struct lh_spread_loading *loading = &c->spread_loading;

    if (loading->elsewhere_us != 0 && c->now_us - loading->elsewhere_us < ELSEWHERE_PAUSE_US)
        return;
    loading->elsewhere_us = c->now_us;
    lh_coordinator_read_spread(c);
}

void lh_coordinator_on_spread(struct lh_coordinator *c, lh_spread_cb *on_spread, void *arg)
{
    c->spread_loading.on_spread = on_spread;
    c->spread_loading.arg = arg;
}
