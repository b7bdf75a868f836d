#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "lease/batch_internal.h"
#include "lease/readiness.h"

/* Ticks in a row without an answer, or without a lane; counted, for this process may have stood still meanwhile. */
#define MISSED_MAX 4

/* --- the judgement --- */

static void say(struct lh_readiness *readiness, const char *what, const char *why)
{
    bool has_why = why != NULL && why[0] != '\0';
    snprintf(readiness->words, sizeof(readiness->words), "%s%s%s", what, has_why ? ": " : "", has_why ? why : "");
}

static void say_silence(const struct lh_ready_facts *facts, const char *why, struct lh_readiness *readiness)
{
    char silent[LH_DURATION_TEXT_BYTES], what[160];

    lh_duration_format(facts->now_us - facts->last_tick_us, silent);
    snprintf(what, sizeof(what), "the database %s, and has not answered for %s",
             facts->is_connected ? "is connected" : "is unavailable", silent);
    say(readiness, what, why);
}

static void warn(const struct lh_server_facts *server, struct lh_readiness *readiness)
{
    const char *const findings[] = {server->keeping, server->privileges};

    for (size_t i = 0; i < sizeof(findings) / sizeof(findings[0]); i++) {
        size_t used = strlen(readiness->warning);
        if (findings[i] != NULL)
            snprintf(readiness->warning + used, sizeof(readiness->warning) - used, "%s%s", used > 0 ? "; " : "",
                     findings[i]);
    }
}

void lh_ready_judge(const struct lh_ready_facts *facts, struct lh_readiness *readiness)
{
    const struct lh_server_facts *server = &facts->server;
    const char *why = facts->refusal != NULL ? facts->refusal : server->trouble;
    const char *cause = facts->refusal != NULL ? facts->refusal : server->cause;

    *readiness = (struct lh_readiness){0};
    warn(server, readiness);
    if (facts->phase != NULL) {
        say(readiness, facts->phase, why);
    } else if (facts->refusal != NULL && !facts->is_registered) {
        say(readiness, "the database refuses this daemon", why);
    } else if (!facts->is_connected && server->is_permanent) {
        say(readiness, "the database cannot be used until an administrator changes something", why);
    } else if (facts->last_tick_us == 0) {
        say(readiness, facts->is_connected ? "not registered in the database yet" : "the database is unavailable", why);
    } else if (facts->now_us - facts->last_tick_us > LH_READY_WITHIN_US) {
        say_silence(facts, why, readiness);
    } else if (facts->lacks_lanes) {
        say(readiness, "the database is unavailable, no connection for leases could be made", why);
    } else if (facts->lacks != NULL) {
        cause = facts->lacks;
        say(readiness, cause, NULL);
    } else {
        readiness->is_ready = true;
        if (server->server == NULL || server->server[0] == '\0')
            return;
        snprintf(readiness->words, sizeof(readiness->words), "server=%s role=primary timeline=%lld", server->server,
                 (long long)server->timeline);
        return;
    }
    snprintf(readiness->cause, sizeof(readiness->cause), "%s", cause != NULL ? cause : "");
}

/* --- of a coordinator --- */

static bool are_lanes_lost(const struct lh_coordinator *c)
{
    return c->registration.without_lane > MISSED_MAX;
}

/* A short gap is no outage. But who comes back from one serves when there is a lane, and not before. */
static bool lacks_lanes(const struct lh_coordinator *c)
{
    return are_lanes_lost(c) || (!lh_lanes_are_up(c) && !c->registration.has_seen_lane);
}

static const char *lacks(const struct lh_coordinator *c)
{
    if (c->rule_loading.is_needed && !c->rule_loading.has_loaded)
        return "the access rules are not loaded yet";
    return c->starting.lack;
}

void lh_coordinator_readiness(const struct lh_coordinator *c, struct lh_readiness *readiness)
{
    const struct lh_starting *starting = &c->starting;
    const struct lh_registration *registration = &c->registration;
    struct lh_ready_facts facts = {
        .refusal = registration->refusal.status != LH_OK ? registration->refusal.message : NULL,
        .is_registered = lh_database_is_registered(c),
        .is_connected = c->store->ops->is_connected(c->store),
        .lacks_lanes = lacks_lanes(c),
        .lacks = lacks(c),
        .last_tick_us = c->stats.last_tick_us,
        .now_us = c->port.now_us(c->port.arg),
    };

    c->store->ops->server(c->store, &facts.server);
    if (c->state == LH_CORE_CREATED) {
        facts.phase = starting->phase != NULL ? starting->phase : "starting";
        facts.server.trouble = starting->trouble;
        facts.server.cause = starting->cause;
    }
    lh_ready_judge(&facts, readiness);
}

void lh_coordinator_set_phase(struct lh_coordinator *c, const char *phase, const char *trouble, const char *cause)
{
    c->starting.phase = phase;
    snprintf(c->starting.trouble, sizeof(c->starting.trouble), "%s", trouble != NULL ? trouble : "");
    snprintf(c->starting.cause, sizeof(c->starting.cause), "%s", cause != NULL ? cause : "");
}

void lh_coordinator_set_lack(struct lh_coordinator *c, const char *lack)
{
    c->starting.lack = lack;
}

enum lh_status lh_readiness_of_life(const struct lh_coordinator *c)
{
    if (c->state == LH_CORE_CREATED)
        return LH_DATABASE_UNAVAILABLE;
    return c->state == LH_CORE_RUNNING ? LH_OK : LH_SHUTTING_DOWN;
}

bool lh_readiness_is_given_up(const struct lh_coordinator *c)
{
    struct lh_server_facts server = {0};

    if (c->registration.unheard > MISSED_MAX || are_lanes_lost(c))
        return true;
    if (c->registration.refusal.status != LH_OK && !lh_database_is_registered(c))
        return true;
    if (!lh_lanes_are_up(c))
        c->store->ops->server(c->store, &server);
    return server.is_permanent;
}
