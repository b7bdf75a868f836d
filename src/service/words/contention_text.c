#include "service/words_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"

struct sentence {
    char *text;
    size_t used;
};

static void append(struct sentence *sentence, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(struct sentence *sentence, const char *format, ...)
{
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = vsnprintf(sentence->text + sentence->used, LH_CONTENTION_TEXT_BYTES - sentence->used, format, arguments);
    va_end(arguments);
    if (size > 0)
        sentence->used += (size_t)size;
    if (sentence->used >= LH_CONTENTION_TEXT_BYTES)
        sentence->used = LH_CONTENTION_TEXT_BYTES - 1;
}

const char *lh_contention_name(const char *name, char text[LH_CONTENTION_NAME_BYTES])
{
    size_t size = strlen(name), kept = lh_utf8_cut(name, size, LH_CONTENTION_NAME_MAX_BYTES);

    snprintf(text, LH_CONTENTION_NAME_BYTES, "%.*s%s", (int)kept, name, kept < size ? "..." : "");
    return text;
}

/* Ages that change while one reads them keep a decimal: "0.8 s". */
static const char *age(int64_t age_us, char text[LH_DURATION_TEXT_BYTES])
{
    if (age_us < 0)
        age_us = 0;
    if (age_us < 10 * LH_US_PER_S)
        snprintf(text, LH_DURATION_TEXT_BYTES, "%.1f s", (double)age_us / (double)LH_US_PER_S);
    else
        return lh_duration_format(age_us, text);
    return text;
}

static void append_scope(struct sentence *sentence, const char *ns, const char *key)
{
    append(sentence, "lease %s", LH_SCOPE_NAME(ns, key));
}

static void append_heartbeats(struct sentence *sentence, const struct lh_held_lease *lease)
{
    char silent[LH_DURATION_TEXT_BYTES];

    age(lease->silent_us, silent);
    if (lease->heartbeats == 0)
        append(sentence, "no heartbeat yet");
    else if (lease->heartbeats == 1)
        append(sentence, "1 heartbeat, %s ago", silent);
    else
        append(sentence, "%lld heartbeats, the last %s ago", (long long)lease->heartbeats, silent);
}

static void append_liveness(struct sentence *sentence, const struct lh_held_lease *lease)
{
    char text[LH_DURATION_TEXT_BYTES];

    switch (lease->liveness) {
    case LH_LIVENESS_SUSPECTED_DEAD:
        append(sentence, ", suspected dead: silent for %s", age(lease->silent_us, text));
        break;
    case LH_LIVENESS_EXPIRED:
        append(sentence, ", expired: silent for %s", age(lease->silent_us, text));
        break;
    case LH_LIVENESS_OVERDUE:
        append(sentence, ", alive, but holding it unreasonably long: ");
        append_heartbeats(sentence, lease);
        break;
    case LH_LIVENESS_ALIVE:
    case LH_LIVENESS_UNSPECIFIED:
        append(sentence, ", alive: ");
        append_heartbeats(sentence, lease);
        break;
    }
    append(sentence, "; held for %s", age(lease->held_us, text));
}

/* The oldest of several is described, and there may be units left that wait for an earlier request. */
static void append_others(struct sentence *sentence, const struct lh_contention *contention)
{
    if (contention->holder.units == 0)
        return;
    if (contention->holder_count > 1)
        append(sentence, " and %d other%s", contention->holder_count - 1, contention->holder_count == 2 ? "" : "s");
    append(sentence, ", shared");
    if (contention->units_free != LH_UNITS_UNBOUNDED)
        append(sentence, ", units free: %d", contention->units_free);
    if (contention->waiters_ahead > 0)
        append(sentence, ", waiters ahead: %d", contention->waiters_ahead);
    append(sentence, "; the oldest holder");
}

static void append_held(struct sentence *sentence, const char *ns, const char *key,
                        const struct lh_contention *contention)
{
    append_scope(sentence, ns, key);
    if (contention == NULL) {
        append(sentence, " is held");
    } else if (contention->is_holder_hidden) {
        append(sentence, " is held, waiters ahead: %d", contention->waiters_ahead);
    } else if (!contention->has_holder && contention->rests_us > 0) {
        char text[LH_DURATION_TEXT_BYTES];
        append(sentence, " is not held, but rests for %s more: its minimum hold has not passed",
               age(contention->rests_us, text));
    } else if (!contention->has_holder) {
        if (contention->waiters_ahead == 1)
            append(sentence, " is free, but another waiter has the turn");
        else if (contention->waiters_ahead > 1)
            append(sentence, " is free, but %d other waiters come first", contention->waiters_ahead);
        else
            append(sentence, " is changing hands");
    } else {
        char name[LH_CONTENTION_NAME_BYTES];
        const char *owner = contention->holder.owner;
        if (owner == NULL || owner[0] == '\0')
            append(sentence, " is held by an unnamed owner");
        else
            append(sentence, " is held by %s", lh_contention_name(owner, name));
        append_others(sentence, contention);
        append_liveness(sentence, &contention->holder);
    }
}

static void append_command(struct sentence *sentence, const char *ns, const char *key)
{
    char name[LH_CONTENTION_NAME_BYTES];
    append(sentence, "leasehold force-release %s %s --reason TEXT", ns, lh_contention_name(key, name));
}

/* What somebody who has waited in vain can do. */
static void append_advice(struct sentence *sentence, const char *ns, const char *key,
                          const struct lh_held_lease *holder)
{
    int64_t expires_in_us = holder->remaining_us + holder->grace_us;
    bool is_silent = holder->liveness == LH_LIVENESS_SUSPECTED_DEAD || holder->liveness == LH_LIVENESS_EXPIRED;
    char text[LH_DURATION_TEXT_BYTES];

    if (is_silent && holder->is_manual) {
        append(sentence, "; in this namespace leases end by an administrator alone (expiry manual): ");
        append_command(sentence, ns, key);
    } else if (holder->liveness == LH_LIVENESS_SUSPECTED_DEAD) {
        append(sentence,
               "; without a heartbeat it expires in %s: wait for that, or end it: ", age(expires_in_us, text));
        append_command(sentence, ns, key);
    } else if (holder->liveness == LH_LIVENESS_EXPIRED) {
        append(sentence, "; the reaper has not ended it yet: try again, or see leasehold.reap_failure");
    } else if (holder->liveness == LH_LIVENESS_OVERDUE) {
        append(sentence, "; it goes on renewing: ask its owner, or end it: ");
        append_command(sentence, ns, key);
    } else {
        append(sentence, "; wait longer, or ask its owner");
    }
}

void lh_contention_held(const char *ns, const char *key, const struct lh_contention *contention,
                        char text[LH_CONTENTION_TEXT_BYTES])
{
    struct sentence sentence = {.text = text};

    text[0] = '\0';
    append_held(&sentence, ns, key, contention);
}

void lh_contention_wait_timeout(const char *ns, const char *key, int64_t wait_us,
                                const struct lh_contention *contention, char text[LH_CONTENTION_TEXT_BYTES])
{
    struct sentence sentence = {.text = text};

    text[0] = '\0';
    if (wait_us > 0)
        append(&sentence, "the wait of %s has passed: ", LH_DURATION_TEXT(wait_us));
    else
        append(&sentence, "the wait is over, for the holder is not known to be alive: ");
    append_held(&sentence, ns, key, contention);
    if (contention != NULL && contention->has_holder && !contention->is_holder_hidden)
        append_advice(&sentence, ns, key, &contention->holder);
}

void lh_contention_blocking_timeout(const char *ns, const char *key, int64_t max_block_us,
                                    const struct lh_contention *contention, char text[LH_CONTENTION_TEXT_BYTES])
{
    struct sentence sentence = {.text = text};

    text[0] = '\0';
    append(&sentence,
           "a call blocks for at most %s here: call again with the same lease key and what is left of the wait, the "
           "place in the queue is kept for 10 s; ",
           LH_DURATION_TEXT(max_block_us));
    append_held(&sentence, ns, key, contention);
}

void lh_contention_refused(enum lh_status status, const char *ns, const char *key, const char *bound,
                           char text[LH_CONTENTION_TEXT_BYTES])
{
    struct sentence sentence = {.text = text};

    text[0] = '\0';
    switch (status) {
    case LH_NAMESPACE_FROZEN:
        append(&sentence, "namespace %s is frozen: no new grants until its policy says otherwise", ns);
        break;
    case LH_QUOTA_EXCEEDED:
        append(&sentence, "namespace %s has used up its quota", ns);
        if (bound != NULL && bound[0] != '\0')
            append(&sentence, ": %s", bound);
        break;
    case LH_SCOPE_BUSY:
        append_scope(&sentence, ns, key);
        append(&sentence, " is busy: another transaction in the database keeps its row locked");
        break;
    case LH_LEASE_ENDED:
        append_scope(&sentence, ns, key);
        append(&sentence, " was held with this lease key, and that has ended: acquire it with a new one");
        break;
    default:
        append(&sentence, "%s", lh_status_text(status));
        break;
    }
}
