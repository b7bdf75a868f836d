#include "lease/rule_loading.h"

#include "base/clock.h"
#include "base/log.h"

#define WARN_AGAIN_US (60 * LH_US_PER_S)

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
    lh_turn_end_event(c);
}

void lh_rule_loading_on_tick(struct lh_coordinator *c, int64_t version)
{
    struct lh_rule_loading *loading = &c->rule_loading;

    if (loading->on_rules == NULL || c->store->ops->read_access == NULL || loading->is_out ||
        (loading->has_loaded && version == loading->version))
        return;
    loading->asked = version;
    loading->is_out = c->store->ops->read_access(c->store, on_read, c) == LH_OK;
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
