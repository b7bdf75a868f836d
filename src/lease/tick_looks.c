/* Looks at the database behind a tick, on the control lane, one of each kind at a time: the survey, long guards, access
   rules. */
#include "base/log.h"
#include "base/text.h"
#include "lease/coordinator_internal.h"

#define WARN_AGAIN_US (60 * LH_US_PER_S)

/*
 * --- the survey: measurements of the database for metrics and log ---
 *
 * An open transaction keeps dead rows from being removed, and each heartbeat makes one, so the log names the session of
 * the oldest.
 */

#define SURVEY_US (15 * LH_US_PER_S)
#define OLD_US (60 * LH_US_PER_S)

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

/*
 * Open guards: a transaction that guards a lease keeps the lease from ending, so a session that guards for longer than
 * max_guard is ended. 
 */
#define LOOKS_IN_LIMIT 8 /* a guard is counted from the first look that saw it */
#define LOOK_MIN_US (1 * LH_US_PER_S)
#define LOOK_MAX_US (10 * LH_US_PER_S)

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

/*
 * Access rules: read from the database when a tick reports another version than the one read last, one read at a time,
 * and handed to on_rules. While the database is away the last rules stay in force.
 */
static void read_rules(struct lh_coordinator *c);

static void end_reload(struct lh_rule_loading *loading)
{
    void (*on_reloaded)(void *arg) = loading->on_reloaded;

    loading->on_reloaded = NULL;
    loading->is_reload = false;
    on_reloaded(loading->reload_arg);
}

static void on_read(void *arg, enum lh_status status, const struct lh_error *error,
                    const struct lh_access_answer *answer)
{
    struct lh_coordinator *c = arg;
    struct lh_rule_loading *loading = &c->rule_loading;

    lh_turn_begin(c);
    loading->is_out = false;
    if (status == LH_OK) {
        loading->version = loading->asked;
        loading->has_loaded = true;
        loading->on_rules(loading->arg, answer);
    } else if (status != LH_CANCELED && status != LH_DATABASE_UNAVAILABLE &&
               (loading->warned_us == 0 || c->now_us - loading->warned_us >= WARN_AGAIN_US)) {
        loading->warned_us = c->now_us;
        lh_warn("the access rules cannot be read, %s: %s",
                loading->has_loaded ? "the last ones stay in force" : "there are none yet",
                error != NULL ? error->message : lh_status_text(status));
    }
    if (loading->is_reload)
        end_reload(loading);
    else if (loading->on_reloaded != NULL)
        read_rules(c); /* once more: that one may be older than the reload */
    lh_turn_end_event(c);
}

/* With a reload that waits, it is the one for that. */
static void read_rules(struct lh_coordinator *c)
{
    struct lh_rule_loading *loading = &c->rule_loading;

    loading->is_out = c->store->ops->read_access(c->store, on_read, c) == LH_OK;
    loading->is_reload = loading->is_out && loading->on_reloaded != NULL;
    if (!loading->is_out && loading->on_reloaded != NULL)
        end_reload(loading);
}

enum lh_status lh_coordinator_reload_rules(struct lh_coordinator *c, void (*on_done)(void *arg), void *arg)
{
    struct lh_rule_loading *loading = &c->rule_loading;

    if (loading->on_rules == NULL || c->store->ops->read_access == NULL || !loading->has_loaded ||
        c->state != LH_CORE_RUNNING)
        return LH_DATABASE_UNAVAILABLE;
    if (!loading->is_out) {
        loading->asked = loading->version; /* it may be of a later version: then the next tick reads once more */
        loading->is_out = loading->is_reload = c->store->ops->read_access(c->store, on_read, c) == LH_OK;
        if (!loading->is_out)
            return LH_DATABASE_UNAVAILABLE;
    }
    loading->on_reloaded = on_done;
    loading->reload_arg = arg;
    return LH_OK;
}

void lh_rule_loading_on_tick(struct lh_coordinator *c, int64_t version)
{
    struct lh_rule_loading *loading = &c->rule_loading;

    if (loading->on_rules == NULL || c->store->ops->read_access == NULL || loading->is_out ||
        (loading->has_loaded && version == loading->version))
        return;
    loading->asked = version;
    read_rules(c);
}

void lh_coordinator_on_rules(struct lh_coordinator *c, lh_rules_cb *on_rules, void *arg)
{
    c->rule_loading.on_rules = on_rules;
    c->rule_loading.arg = arg;
}

void lh_coordinator_need_rules(struct lh_coordinator *c, bool needs_rules)
{
    c->rule_loading.is_needed = needs_rules;
}
