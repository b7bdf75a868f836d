#include "lease/rule_loading.h"

#include "base/clock.h"
#include "base/log.h"

#define WARN_AGAIN_US (60 * LH_US_PER_S)

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
