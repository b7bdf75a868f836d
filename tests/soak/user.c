/*
 * A SQL user's round: acquire; refused, join the queue, listen, ask again when told; granted, work a little
 * (heartbeats, a guard, a downgrade), release. Several scopes at once are held one after the other. Any step may be in a transaction that stays open for a moment, in any isolation
 * level, and may be rolled back.
 */
#include "soak.h"

#include <stdio.h>
#include <string.h>

#define PLACE_S 1 /* how long a place in the queue lasts, in a rough run */
#define ALL_TRIES 30
#define TRIES_A_WAKE 10 /* a wake-up finds the row busy at times: asked again after 1 ms, doubling to 50 ms */

struct round {
    struct actor *actor;
    const char *scope;
    char lease[UUID_SIZE];
    int units;     /* of a shared lease; 0: exclusive */
    char more[24]; /* the same and its priority, as the last arguments of a call */
};

/* Maybe open a transaction around the next call. */
static enum outcome maybe_begin(struct actor *actor)
{
    static const char *const levels[] = {"read committed", "repeatable read", "serializable"};
    if (dice(actor, 3) != 0)
        return DONE;
    return run(actor, "begin isolation level %s; select 1", levels[actor->soak->has_coordinators ? dice(actor, 3) : 0]);
}

/* End what maybe_begin opened, after a moment; AGAIN when it was rolled back. */
static enum outcome maybe_commit(struct actor *actor)
{
    if (PQtransactionStatus(actor->conn) == PQTRANS_IDLE)
        return DONE;
    if (dice(actor, 2) == 0)
        sleep_ms((int64_t)dice(actor, 15));
    if (dice(actor, 6) != 0)
        return run(actor, "commit");
    enum outcome outcome = run(actor, "rollback");
    return outcome == DONE ? AGAIN : outcome;
}

/* One call of soak.sql, repeated until it is done; *is_true: what it answered. */
static enum outcome call(struct round *round, const char *function, const char *more, bool *is_true)
{
    struct actor *actor = round->actor;
    for (;;) {
        enum outcome outcome = maybe_begin(actor);
        if (outcome == DONE)
            outcome = run(actor, "select soak.%s('%s', '%s', 'user %d'%s)", function, round->scope, round->lease,
                          actor->number, more);
        if (outcome == DONE) {
            *is_true = answer_is(actor, "t");
            outcome = maybe_commit(actor);
        }
        if (outcome != AGAIN)
            return outcome;
    }
}

static enum outcome join_queue(struct round *round)
{
    struct actor *actor = round->actor;
    char place[64] = ", '1 hour'", channel[64];
    if (!actor->soak->is_calm)
        snprintf(place, sizeof place, ", '%d s'", PLACE_S);
    enum outcome outcome;
    do { /* not in an open transaction: the channel has to be read */
        outcome = run(actor, "select soak.join_queue('%s', '%s', 'user %d'%s%s)", round->scope, round->lease,
                      actor->number, place, round->more);
    } while (outcome == AGAIN);
    if (outcome != DONE)
        return outcome;
    snprintf(channel, sizeof channel, "%s", PQntuples(actor->result) == 1 ? PQgetvalue(actor->result, 0, 0) : "");
    do {
        outcome = run(actor, "listen \"%s\"", channel);
    } while (outcome == AGAIN);
    while (outcome == DONE && dice(actor, 3) == 0) {
        outcome =
            run(actor, "select soak.ask_hand_over('%s', '%s', 'user %d')", round->scope, round->lease, actor->number);
        if (outcome == AGAIN)
            outcome = DONE;
    }
    return outcome;
}

/* Was it asked to hand its lease over? Then it refuses at times; *is_to_release: it does not. */
static enum outcome hear(struct round *round, bool *is_to_release)
{
    struct actor *actor = round->actor;
    enum outcome outcome =
        run(actor, "select soak.hear('%s', '%s', 'user %d')", round->scope, round->lease, actor->number);
    *is_to_release = outcome == DONE && answer_is(actor, "t");
    if (*is_to_release && dice(actor, 3) == 0) {
        *is_to_release = false;
        outcome = run(actor, "select soak.refuse('%s', '%s', 'user %d')", round->scope, round->lease, actor->number);
    }
    return outcome == AGAIN ? DONE : outcome;
}

static enum outcome leave_queue(struct round *round)
{
    bool unused;
    round->actor->gave_up++;
    return call(round, "leave_queue", "", &unused);
}

/* Ask again until granted. In a calm run only a notification makes it ask. */
static enum outcome wait_for_grant(struct round *round, bool *is_granted)
{
    struct actor *actor = round->actor;
    int64_t until_ms = actor->soak->is_calm ? INT64_MAX : now_ms() + PLACE_S * 900;
    bool may_cancel = dice(actor, 4) == 0;
    int tries = TRIES_A_WAKE;
    int64_t pause_ms = 1;

    while (now_ms() < until_ms) {
        enum outcome outcome = call(round, "acquire", round->more, is_granted);
        if (outcome != DONE || *is_granted)
            return outcome;
        if (actor->soak->has_failed || (may_cancel && dice(actor, 4) == 0))
            return leave_queue(round);
        if (wait_for_notify(actor, tries > 0 ? pause_ms : 200, NULL, 0)) {
            tries = TRIES_A_WAKE;
            pause_ms = 1;
        } else if (tries > 0) {
            tries--;
            pause_ms = pause_ms < 50 ? pause_ms * 2 : 50;
        }
        while (actor->soak->is_calm && tries == 0 && !actor->soak->has_failed) {
            if (wait_for_notify(actor, 200, NULL, 0)) {
                tries = TRIES_A_WAKE;
                pause_ms = 1;
            }
            if (PQstatus(actor->conn) != CONNECTION_OK)
                return BROKEN;
        }
    }
    return leave_queue(round);
}

/* A transaction that relies on the lease. */
static enum outcome guard(struct round *round)
{
    struct actor *actor = round->actor;
    enum outcome outcome =
        run(actor, "begin; select soak.guard('%s', '%s', 'user %d')", round->scope, round->lease, actor->number);
    if (outcome != DONE)
        return outcome;
    sleep_ms((int64_t)dice(actor, 10));
    return run(actor, "select soak.unguard('%s', '%s', 'user %d'); commit", round->scope, round->lease, actor->number);
}

static enum outcome hold(struct round *round)
{
    struct actor *actor = round->actor;
    bool is_true = true;
    actor->grants++;
    __atomic_add_fetch(&actor->soak->progress, 1, __ATOMIC_SEQ_CST);
    for (uint64_t i = dice(actor, 3); i > 0; i--) {
        bool is_to_release = false;
        enum outcome outcome = dice(actor, 2) == 0 ? guard(round) : call(round, "heartbeat", "", &is_true);
        if (outcome == DONE && is_true)
            outcome = hear(round, &is_to_release);
        if (is_to_release)
            break;
        if (outcome == LOST || (outcome == DONE && !is_true))
            return DONE;
        if (outcome == BROKEN || outcome == SOAK_BUG)
            return outcome;
        sleep_ms((int64_t)dice(actor, 4));
    }
    if (round->units != 1 && dice(actor, 4) == 0) { /* others come in meanwhile */
        enum outcome outcome = call(round, "downgrade", ", 1", &is_true);
        if (outcome == LOST || (outcome == DONE && !is_true))
            return DONE;
        if (outcome == BROKEN || outcome == SOAK_BUG)
            return outcome;
        sleep_ms((int64_t)dice(actor, 10));
    }
    if (!actor->soak->is_calm && dice(actor, 12) == 0)
        return DONE; /* forgets to release: the lease expires */
    return call(round, "release", "", &is_true);
}

/* Nobody waits for several in SQL: it asks a few times. */
static enum outcome all_at_once(struct round *round, const struct item *items, int count)
{
    struct actor *actor = round->actor;
    char scopes[128] = "{", units[64] = ", '{";
    bool is_granted = false;
    for (int i = 0; i < count; i++) {
        const char *end = i + 1 < count ? "," : "}";
        snprintf(scopes + strlen(scopes), sizeof scopes - strlen(scopes), "%s%s", scope_names[items[i].scope], end);
        snprintf(units + strlen(units), sizeof units - strlen(units), "%s%s", units_text(items[i].units), end);
    }
    snprintf(units + strlen(units), sizeof units - strlen(units), "'");
    round->scope = scopes;
    enum outcome outcome = DONE;
    for (int tries = ALL_TRIES; tries > 0 && outcome == DONE && !is_granted; tries--) {
        outcome = call(round, "acquire_all", units, &is_granted);
        sleep_ms(is_granted ? 0 : (int64_t)dice(actor, 5));
    }
    for (int i = 0; outcome == DONE && is_granted && i < count; i++) {
        round->scope = scope_names[items[i].scope];
        round->units = items[i].units;
        outcome = hold(round);
    }
    round->scope = scope_names[items[0].scope];
    return outcome;
}

static enum outcome one_round(struct round *round)
{
    struct actor *actor = round->actor;
    bool is_granted = false;
    enum outcome outcome = call(round, "acquire", round->more, &is_granted);
    if (outcome == DONE && !is_granted && dice(actor, 5) != 0) {
        outcome = join_queue(round);
        if (outcome == DONE)
            outcome = wait_for_grant(round, &is_granted);
        actor->waits += is_granted;
    }
    if (outcome == DONE && is_granted)
        outcome = hold(round);
    if (outcome == DONE)
        outcome = run(actor, "unlisten *");
    return outcome;
}

/* The session was killed: what it held or waited for is left behind. */
static bool come_back(struct round *round)
{
    enum outcome outcome;
    do {
        if (!actor_connect(round->actor))
            return false;
        outcome = run(round->actor, "select soak.is_gone('%s', '%s', 'user %d')", round->scope, round->lease,
                      round->actor->number);
    } while (outcome == BROKEN || outcome == AGAIN);
    return outcome == DONE;
}

void *user_main(void *argument)
{
    struct actor *actor = argument;
    bool is_up = actor_connect(actor);
    while (is_up && !actor->soak->is_stopping && !actor->soak->has_failed) {
        struct item items[ITEMS_MAX];
        int count = pick_items(actor, items);
        struct round round = {.actor = actor, .scope = scope_names[items[0].scope], .units = items[0].units};
        snprintf(round.more, sizeof round.more, ", %s, %d", units_text(round.units), pick_priority(actor));
        make_uuid(actor, round.lease);
        if ((count > 1 ? all_at_once(&round, items, count) : one_round(&round)) == BROKEN)
            is_up = come_back(&round);
        sleep_ms((int64_t)dice(actor, 5));
    }
    actor->backend_pid = 0;
    __atomic_sub_fetch(&actor->soak->running, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&actor->soak->progress, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
