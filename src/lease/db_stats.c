#include "lease/db_stats.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

#define SURVEY_US (15 * LH_US_PER_S)
#define OLD_US (60 * LH_US_PER_S)
#define WARN_AGAIN_US (60 * LH_US_PER_S)

static void warn_of_old(struct lh_coordinator *c, const struct lh_survey_answer *answer)
{
    char age[LH_DURATION_TEXT_BYTES];

    if (answer->oldest_us < OLD_US || (c->db_stats.warned_us != 0 && c->now_us - c->db_stats.warned_us < WARN_AGAIN_US))
        return;
    c->db_stats.warned_us = c->now_us;
    lh_duration_format(answer->oldest_us, age);
    lh_warn("a transaction open for %s keeps dead rows from being removed: %s", age, answer->oldest);
}

static void on_surveyed(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_survey_answer *answer)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    c->db_stats.is_out = false;
    if (status == LH_OK) {
        c->stats.survey_us = c->now_us;
        c->stats.held = answer->held;
        c->stats.oldest_us = answer->oldest_us;
        warn_of_old(c, answer);
    } else {
        lh_debug("survey failed: %s", error != NULL ? error->message : lh_status_text(status));
    }
    lh_turn_end_event(c);
}

void lh_db_stats_on_tick(struct lh_coordinator *c)
{
    struct lh_db_stats *stats = &c->db_stats;

    if (c->store->ops->survey == NULL || stats->is_out || c->now_us < stats->next_us)
        return;
    stats->next_us = c->now_us + lh_turn_jitter(c, SURVEY_US, 10);
    stats->is_out = c->store->ops->survey(c->store, on_surveyed, c) == LH_OK;
}
