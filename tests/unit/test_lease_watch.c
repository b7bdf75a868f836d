/* The watching, with a store that answers when the test says so: who is active when, and what is tried again. */
#include "lease/watch.h"

#include <stdio.h>

#include "lease_fixture.h"

/* --- the store's half: at most one call of each kind is out, and what it asked for is noted --- */

struct out {
    lh_store_cb *on_done;
    void *arg;
    int calls;
    bool is_out;
};

static struct {
    struct lh_store_ops ops;
    struct out add, remove, clear;
    lh_barrier_cb *on_barrier;
    lh_settled_cb *on_settled;
    lh_events_cb *on_events;
    void *barrier_arg, *settled_arg, *events_arg;
    int barriers, looks, takes;
    uint64_t horizon; /* last asked about */
    char added[64];
    enum lh_status refuse; /* the next call, instead of taking it */
} db;

static struct fake_node *node;

static enum lh_status take_call(struct out *out, lh_store_cb *on_done, void *arg)
{
    if (db.refuse != LH_OK)
        return db.refuse;
    ck_assert(!out->is_out);
    *out = (struct out){on_done, arg, out->calls + 1, true};
    return LH_OK;
}

static enum lh_status watch_add(struct lh_store *store, const char *ns, bool children, lh_store_cb *on_done, void *arg)
{
    snprintf(db.added, sizeof(db.added), "%s%s", ns, children ? ".*" : "");
    return take_call(&db.add, on_done, arg);
}

static enum lh_status watch_remove(struct lh_store *store, const char *ns, bool children, lh_store_cb *on_done,
                                   void *arg)
{
    return take_call(&db.remove, on_done, arg);
}

static enum lh_status watch_clear(struct lh_store *store, lh_store_cb *on_done, void *arg)
{
    return take_call(&db.clear, on_done, arg);
}

static enum lh_status watch_barrier(struct lh_store *store, lh_barrier_cb *on_done, void *arg)
{
    ck_assert(db.on_barrier == NULL);
    db.on_barrier = on_done;
    db.barrier_arg = arg;
    db.barriers++;
    return LH_OK;
}

static enum lh_status watch_settled(struct lh_store *store, uint64_t horizon, lh_settled_cb *on_done, void *arg)
{
    ck_assert(db.on_settled == NULL);
    db.on_settled = on_done;
    db.settled_arg = arg;
    db.horizon = horizon;
    db.looks++;
    return LH_OK;
}

static enum lh_status take_events(struct lh_store *store, int32_t max, lh_events_cb *on_done, void *arg)
{
    ck_assert(db.on_events == NULL); /* one at a time */
    db.on_events = on_done;
    db.events_arg = arg;
    db.takes++;
    return LH_OK;
}

static void answer(struct out *out, enum lh_status status)
{
    ck_assert(out->is_out);
    out->is_out = false;
    out->on_done(out->arg, status, NULL);
}

static void answer_barrier(enum lh_status status, uint64_t horizon)
{
    lh_barrier_cb *on_done = db.on_barrier;
    ck_assert(on_done != NULL);
    db.on_barrier = NULL;
    on_done(db.barrier_arg, status, NULL, horizon);
}

static void answer_settled(bool is_settled)
{
    lh_settled_cb *on_done = db.on_settled;
    ck_assert(on_done != NULL);
    db.on_settled = NULL;
    on_done(db.settled_arg, LH_OK, NULL, is_settled);
}

static void answer_events(enum lh_status status, const struct lh_events_answer *events)
{
    lh_events_cb *on_done = db.on_events;
    ck_assert(on_done != NULL);
    db.on_events = NULL;
    on_done(db.events_arg, status, NULL, events);
}

/* --- watchers --- */

struct seen {
    struct lh_watcher watcher;
    int active, events, caught_up, ended;
    int64_t last_token;
    enum lh_status status;
};

static void on_active(struct lh_watcher *watcher)
{
    ((struct seen *)watcher->arg)->active++;
}

static void on_event(struct lh_watcher *watcher, const struct lh_lease_event *event)
{
    struct seen *seen = watcher->arg;
    seen->events++;
    seen->last_token = event->lease.token;
}

static void on_caught_up(struct lh_watcher *watcher)
{
    ((struct seen *)watcher->arg)->caught_up++;
}

static void on_end(struct lh_watcher *watcher, enum lh_status status)
{
    struct seen *seen = watcher->arg;
    seen->ended++;
    seen->status = status;
}

static void watch(struct seen *seen, const char *ns, bool include_children)
{
    memset(seen, 0, sizeof(*seen));
    seen->watcher = (struct lh_watcher){
        .ns = ns,
        .include_children = include_children,
        .on_active = on_active,
        .on_event = on_event,
        .on_caught_up = on_caught_up,
        .on_end = on_end,
        .arg = seen,
    };
    ck_assert_int_eq(lh_coordinator_watch(node->coordinator, &seen->watcher), LH_OK);
    ck_assert_int_eq(seen->active, 0); /* never before the call returned */
    fake_run(&world, MS(1));
}

static void use(struct fake_node *started)
{
    memset(&db, 0, sizeof(db));
    node = started;
    db.ops = *node->store.ops;
    db.ops.watch_add = watch_add;
    db.ops.watch_remove = watch_remove;
    db.ops.watch_clear = watch_clear;
    db.ops.watch_barrier = watch_barrier;
    db.ops.watch_settled = watch_settled;
    db.ops.take_events = take_events;
    node->store.ops = &db.ops;
}

static void start(void)
{
    use(start_node());
}

/* All the way, with this horizon. */
static void activate(uint64_t horizon)
{
    answer(&db.add, LH_OK);
    answer_barrier(LH_OK, horizon);
    fake_run(&world, MS(2));
    answer_settled(true);
}

static void change(const char *ns, int64_t token)
{
    struct lh_lease_event event = {.type = LH_EVENT_ACQUIRED, .lease = {.ns = ns, .key = "k", .token = token}};
    struct lh_events_answer events = {.events = &event, .event_count = 1};
    if (db.on_events == NULL) {
        node->events->on_watch(node->events_arg);
        fake_run(&world, MS(1));
    }
    answer_events(LH_OK, &events);
}

/* --- beginning --- */

START_TEST(a_watcher_is_active_when_what_was_under_way_has_settled)
{
    struct seen a;
    start();
    watch(&a, "jobs", true);
    ck_assert_str_eq(db.added, "jobs.*");
    answer(&db.add, LH_OK);
    answer_barrier(LH_OK, 70);
    fake_run(&world, MS(2));
    ck_assert_uint_eq(db.horizon, 70);
    answer_settled(false);
    fake_run(&world, MS(100));
    ck_assert_int_eq(a.active, 0);
    answer_settled(true);
    ck_assert_int_eq(a.active, 1);
    change("jobs.child", 5);
    change("jobsother", 6);
    change("other", 7);
    ck_assert_int_eq(a.events, 1);
    ck_assert_int_eq(a.last_token, 5);
}
END_TEST

START_TEST(looks_come_ever_more_slowly_and_one_at_a_time)
{
    struct seen a;
    start();
    watch(&a, "", false);
    answer(&db.add, LH_OK);
    answer_barrier(LH_OK, 70);
    int64_t until_us = world.now_us + MS(2000);
    while (world.now_us < until_us) {
        fake_run(&world, MS(1));
        if (db.on_settled != NULL)
            answer_settled(false);
    }
    ck_assert_int_ge(db.looks, 2000 / 64);
    ck_assert_int_le(db.looks, 2000 / 50 + 8); /* 1, 2, 4, 8, 16, 32, 50 or 64 ms */
}
END_TEST

START_TEST(watchers_of_one_namespace_share_a_watch)
{
    struct seen a, b, c;
    start();
    watch(&a, "jobs", false);
    watch(&b, "jobs", false);
    activate(70);
    ck_assert_int_eq(db.add.calls, 1);
    ck_assert_int_eq(a.active + b.active, 2);
    watch(&c, "jobs", false); /* active already */
    ck_assert_int_eq(c.active, 1);
    ck_assert_int_eq(db.add.calls, 1);
    change("jobs", 1);
    ck_assert_int_eq(a.events + b.events + c.events, 3);
}
END_TEST

/* --- doubt --- */

START_TEST(after_five_seconds_it_begins_in_doubt_and_lags_when_that_has_ended)
{
    struct seen a, later;
    start();
    watch(&a, "jobs", false);
    answer(&db.add, LH_OK);
    answer_barrier(LH_OK, 70);
    int64_t until_us = world.now_us + MS(5200);
    while (a.active == 0 && world.now_us < until_us) {
        fake_run(&world, MS(1));
        if (db.on_settled != NULL)
            answer_settled(false);
        if (db.on_events != NULL)
            answer_events(LH_OK, &(struct lh_events_answer){0});
    }
    ck_assert_int_eq(a.active, 1);
    change("jobs", 1);
    ck_assert_int_eq(a.events, 1); /* it is told what is known */
    /* Who comes now is told to begin again as well: the transaction is open still. */
    watch(&later, "jobs", false);
    ck_assert_int_eq(later.active, 1);
    int looks = db.looks;
    for (int i = 0; i < 3000; i++) {
        fake_run(&world, MS(1));
        if (db.on_settled != NULL)
            answer_settled(false);
        if (db.on_events != NULL)
            answer_events(LH_OK, &(struct lh_events_answer){0});
    }
    ck_assert_int_ge(db.looks - looks, 2);
    ck_assert_int_le(db.looks - looks, 4); /* once a second */
    ck_assert_int_eq(a.ended, 0);
    while (db.on_settled == NULL)
        fake_run(&world, MS(10));
    ck_assert_uint_eq(db.horizon, 70);
    answer_settled(true);
    ck_assert_int_eq(a.ended, 1);
    ck_assert_int_eq(a.status, LH_WATCH_LAGGED);
    ck_assert_int_eq(later.status, LH_WATCH_LAGGED);
    ck_assert_uint_eq(stats_of(node).watch_lags, 2);
    /* Who comes now is in no doubt. */
    watch(&a, "jobs", false);
    ck_assert_int_eq(a.active, 1);
    fake_run(&world, MS(3000));
    ck_assert(db.on_settled == NULL);
}
END_TEST

/* --- what is tried again --- */

START_TEST(a_watch_that_was_busy_is_added_again)
{
    struct seen a;
    start();
    watch(&a, "jobs", false);
    answer(&db.add, LH_SCOPE_BUSY);
    fake_run(&world, MS(40));
    ck_assert_int_eq(db.add.calls, 1); /* not at once */
    fake_run(&world, MS(20));
    ck_assert_int_eq(db.add.calls, 2);
    activate(70);
    ck_assert_int_eq(a.active, 1);
}
END_TEST

START_TEST(a_watch_that_the_store_does_not_take_is_tried_again)
{
    struct seen a;
    start();
    db.refuse = LH_OVERLOADED;
    watch(&a, "jobs", false);
    fake_run(&world, MS(200));
    ck_assert_int_eq(db.add.calls, 0);
    db.refuse = LH_OK;
    fake_run(&world, MS(60));
    activate(70);
    ck_assert_int_eq(a.active, 1);
}
END_TEST

START_TEST(a_watch_that_cannot_be_ends_its_watchers)
{
    struct seen a;
    start();
    watch(&a, "jobs", false);
    answer(&db.add, LH_INTERNAL);
    ck_assert_int_eq(a.ended, 1);
    ck_assert_int_eq(a.status, LH_INTERNAL);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(db.add.calls, 1);
}
END_TEST

START_TEST(a_barrier_that_failed_is_asked_for_again)
{
    struct seen a;
    start();
    watch(&a, "jobs", false);
    answer(&db.add, LH_OK);
    answer_barrier(LH_INTERNAL, 0);
    fake_run(&world, MS(60));
    ck_assert_int_eq(db.barriers, 2);
    answer_barrier(LH_OK, 80);
    fake_run(&world, MS(2));
    answer_settled(true);
    ck_assert_int_eq(a.active, 1);
    ck_assert_int_eq(db.add.calls, 1);
}
END_TEST

START_TEST(a_take_that_failed_for_itself_is_repeated)
{
    struct seen a;
    start();
    watch(&a, "jobs", false);
    activate(70);
    fake_run(&world, MS(1100));
    answer_events(LH_INTERNAL, NULL);
    int takes = db.takes;
    fake_run(&world, MS(1100));
    ck_assert_int_eq(db.takes, takes + 1);
    ck_assert_int_eq(a.ended, 0);
    change("jobs", 3);
    ck_assert_int_eq(a.last_token, 3);
}
END_TEST

/* --- beginning anew --- */

START_TEST(events_that_are_missing_end_who_is_active_and_add_who_is_not)
{
    struct seen active, waiting;
    start();
    watch(&active, "jobs", false);
    activate(70);
    watch(&waiting, "other", false);
    answer(&db.add, LH_OK);
    answer_barrier(LH_OK, 90);
    fake_run(&world, MS(1100));
    answer_events(LH_OK, &(struct lh_events_answer){.is_lagged = true});
    ck_assert_int_eq(active.status, LH_WATCH_LAGGED);
    ck_assert_int_eq(waiting.ended, 0);
    ck_assert_int_eq(db.clear.calls, 1); /* before anything else is asked */
    answer(&db.clear, LH_OK);
    /* An answer of the time before says nothing any more. */
    answer_settled(true);
    ck_assert_int_eq(waiting.active, 0);
    fake_run(&world, MS(100));
    ck_assert_str_eq(db.added, "other");
    activate(100);
    ck_assert_int_eq(waiting.active, 1);
}
END_TEST

START_TEST(a_database_that_has_forgotten_the_watches_gets_them_again)
{
    struct seen a;
    start();
    watch(&a, "jobs", false);
    answer(&db.add, LH_OK);
    answer_barrier(LH_OK, 0);
    ck_assert_int_eq(a.ended, 0);
    answer(&db.clear, LH_OK);
    fake_run(&world, MS(100));
    ck_assert_int_eq(db.add.calls, 2);
    activate(70);
    ck_assert_int_eq(a.active, 1);
}
END_TEST

START_TEST(a_reconnection_ends_the_active_ones_after_it)
{
    struct seen active, waiting;
    start();
    watch(&active, "jobs", false);
    activate(70);
    watch(&waiting, "other", false);
    fake_control_drop(node);
    ck_assert_int_eq(waiting.status, LH_DATABASE_UNAVAILABLE);
    ck_assert_int_eq(active.ended, 0); /* to begin again now would be in vain */
    fake_control_raise(node);
    fake_run(&world, MS(50));
    ck_assert_int_eq(active.status, LH_WATCH_LAGGED);
    ck_assert_int_eq(db.clear.calls, 1);
}
END_TEST

START_TEST(no_watcher_waits_for_a_database_that_never_came)
{
    struct seen a;

    world.min_delay_us = world.max_delay_us = MS(60000); /* until it connects */
    use(fake_node_start(&world, &options));
    watch(&a, "jobs", false);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(a.ended, 0);
    fake_run(&world, MS(3000));
    ck_assert_int_eq(a.ended, 1);
    ck_assert_int_eq(a.status, LH_DATABASE_UNAVAILABLE);
}
END_TEST

START_TEST(no_watcher_waits_for_a_database_that_refuses_this_coordinator)
{
    struct seen a;

    world.refuses_coordinators = true;
    use(fake_node_start(&world, &options));
    watch(&a, "jobs", false);
    fake_run(&world, MS(100));
    ck_assert_int_eq(a.status, LH_DATABASE_UNAVAILABLE);
}
END_TEST

START_TEST(whoever_catches_up_is_told_at_the_end_of_a_run_that_began_later)
{
    struct seen a;
    struct lh_lease_event event = {.type = LH_EVENT_RELEASED, .lease = {.ns = "jobs", .key = "k", .token = 1}};
    struct lh_events_answer more = {.events = &event, .event_count = 1, .has_more = true};
    start();
    watch(&a, "jobs", false);
    activate(70);
    fake_run(&world, MS(1100)); /* a take is out, that may have looked before */
    lh_coordinator_catch_up(node->coordinator, &a.watcher);
    fake_run(&world, MS(1));
    answer_events(LH_OK, &(struct lh_events_answer){0});
    ck_assert_int_eq(a.caught_up, 0);
    fake_run(&world, MS(1));
    answer_events(LH_OK, &more);
    ck_assert_int_eq(a.caught_up, 0);
    fake_run(&world, MS(1));
    answer_events(LH_OK, &(struct lh_events_answer){0});
    ck_assert_int_eq(a.caught_up, 1);
    ck_assert_int_eq(a.events, 1);
}
END_TEST

START_TEST(a_watch_that_nobody_uses_is_removed_after_a_second)
{
    struct seen a, b;
    start();
    watch(&a, "jobs", false);
    activate(70);
    watch(&b, "other", false);
    activate(80);
    lh_coordinator_unwatch(node->coordinator, &a.watcher);
    for (int i = 0; i < 25; i++) {
        fake_run(&world, MS(100));
        if (db.on_events != NULL)
            answer_events(LH_OK, &(struct lh_events_answer){0});
        if (i == 5)
            ck_assert_int_eq(db.remove.calls, 0);
    }
    ck_assert_int_eq(db.remove.calls, 1);
    answer(&db.remove, LH_OK);
    /* The last one takes the events along that nobody will ask for. */
    lh_coordinator_unwatch(node->coordinator, &b.watcher);
    for (int i = 0; i < 25; i++) {
        fake_run(&world, MS(100));
        if (db.on_events != NULL)
            answer_events(LH_OK, &(struct lh_events_answer){0});
    }
    ck_assert_int_eq(db.clear.calls, 1);
    int takes = db.takes;
    fake_run(&world, MS(5000));
    ck_assert_int_eq(db.takes, takes);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, a_watcher_is_active_when_what_was_under_way_has_settled);
    tcase_add_test(tcase, looks_come_ever_more_slowly_and_one_at_a_time);
    tcase_add_test(tcase, watchers_of_one_namespace_share_a_watch);
    tcase_add_test(tcase, after_five_seconds_it_begins_in_doubt_and_lags_when_that_has_ended);
    tcase_add_test(tcase, a_watch_that_was_busy_is_added_again);
    tcase_add_test(tcase, a_watch_that_the_store_does_not_take_is_tried_again);
    tcase_add_test(tcase, a_watch_that_cannot_be_ends_its_watchers);
    tcase_add_test(tcase, a_barrier_that_failed_is_asked_for_again);
    tcase_add_test(tcase, a_take_that_failed_for_itself_is_repeated);
    tcase_add_test(tcase, events_that_are_missing_end_who_is_active_and_add_who_is_not);
    tcase_add_test(tcase, a_database_that_has_forgotten_the_watches_gets_them_again);
    tcase_add_test(tcase, a_reconnection_ends_the_active_ones_after_it);
    tcase_add_test(tcase, no_watcher_waits_for_a_database_that_never_came);
    tcase_add_test(tcase, no_watcher_waits_for_a_database_that_refuses_this_coordinator);
    tcase_add_test(tcase, whoever_catches_up_is_told_at_the_end_of_a_run_that_began_later);
    tcase_add_test(tcase, a_watch_that_nobody_uses_is_removed_after_a_second);
}

int main(void)
{
    return run_suite("lease, watching", add);
}
