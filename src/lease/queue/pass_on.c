/*
 * Wake-ups that are for others, passed on in the database to the first waiter of the queue. A hint that is lost is made good by
 * the slow poll of whoever is first.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "lease/queue_internal.h"

#define PAUSE_US (20 * LH_US_PER_MS)

/* One that is under way. */
struct passing {
    struct lh_link link; /* in lh_queue.passing */
    struct lh_coordinator *coordinator;
    lh_passed_fn *on_passed;
    int64_t below; /* our rows with lower tickets may be removed */
    const char *key;
    char ns[];
};

static void end(struct passing *passing)
{
    lh_list_remove(&passing->link);
    free(passing);
}

void lh_passing_free_all(struct lh_coordinator *c)
{
    LH_LIST_EACH(struct passing, passing, &c->queue.passing, link)
        end(passing);
}

static void on_passed_on(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct passing *passing = arg;
    struct lh_coordinator *c = passing->coordinator;

    lh_turn_begin(c);
    passing->on_passed(c, passing->ns, passing->key, passing->below);
    end(passing);
    lh_turn_end_event(c);
}

/*
 * Not for one scope again and again: a place that nobody here knows of (of a batch that was committed after its
 * connection was given up) would be told to us each time.
 */
void lh_pass_on(struct lh_coordinator *c, const char *ns, const char *key, int64_t first_ticket,
                lh_passed_fn *on_passed)
{
    struct lh_wake wake = {ns, key, first_ticket};
    uint64_t hash = lh_hash(key, strlen(key), lh_hash(ns, strlen(ns), 0));
    struct lh_passed_on *last = &c->database.passed_on[hash % LH_PASSED_ON_MAX];
    size_t ns_bytes = strlen(ns) + 1;
    struct passing *passing;

    if (c->state == LH_CORE_CLOSING || (last->hash == hash && c->now_us - last->at_us < PAUSE_US))
        return;
    *last = (struct lh_passed_on){hash, c->now_us};
    passing = lh_alloc_zero(1, sizeof(*passing) + ns_bytes + strlen(key) + 1);
    passing->coordinator = c;
    passing->on_passed = on_passed;
    passing->below = first_ticket > 0 ? first_ticket : INT64_MAX;
    memcpy(passing->ns, ns, ns_bytes);
    passing->key = strcpy(passing->ns + ns_bytes, key);
    lh_list_append(&c->queue.passing, &passing->link);
    if (c->store->ops->pass_on(c->store, &wake, on_passed_on, passing) != LH_OK)
        end(passing);
}
