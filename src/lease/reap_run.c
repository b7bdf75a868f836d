/*
 * A run takes as many reaps as are expected to be done within 50 ms, and the first of a namespace that is not known
 * alone; each is a transaction of its own, and the last one's commit makes all of them durable. Where the connection is
 * lost in a run, what was answered is looked at again, for it may not have been durable; the first that was not
 * answered is taken for the cause, and that is recorded as its failure, unless it turns out to be reaped after all; the
 * others are tried again.
 */
#include "lease/reap_run.h"

#include "base/clock.h"
#include "base/log.h"

#define RUN_US (50 * LH_US_PER_MS)

static const char loss_words[] = "the connection to the database was lost while its hook ran";

static void on_run_done(void *arg, enum lh_status status, const struct lh_error *error);

static void take_jobs(struct lh_lane *lane, struct lh_hook_space *space, int64_t *left_us)
{
    while (lane->n < LH_REAP_PIPELINE_MAX && !lh_list_is_empty(&space->reaps)) {
        struct lh_reap_job *job = LH_LIST_FIRST(struct lh_reap_job, &space->reaps, link);
        bool is_unknown = space->took_us == 0 || job->item.loss != NULL || space->delay_us > 0;
        int64_t expected_us = is_unknown ? RUN_US : space->took_us;
        if (lane->n > 0 && expected_us > *left_us)
            return;
        *left_us -= expected_us;
        lh_list_remove(&job->link);
        job->item.outcome = LH_REAP_UNANSWERED;
        lane->items[lane->n++] = &job->item;
    }
}

/* Its own, and of the namespaces behind it in turn while there is room. */
static void fill_run(struct lh_coordinator *c, struct lh_lane *lane, struct lh_hook_space *space)
{
    int64_t left_us = RUN_US;

    while (space != NULL) {
        struct lh_link *behind = space->reaping.next;
        size_t before = lane->n;
        take_jobs(lane, space, &left_us);
        if (lane->n == before)
            return;
        lh_list_remove(&space->reaping);
        if (!lh_list_is_empty(&space->reaps))
            lh_list_append(&c->hooks.reaping, &space->reaping);
        if (behind == &c->hooks.reaping || left_us <= 0)
            return;
        space = LH_CONTAINER(struct lh_hook_space, reaping, behind);
        if (space->retry_us > c->now_us || space->took_us == 0 || lh_hooks_is_slow(c, space))
            return;
    }
}

void lh_reaping_send(struct lh_lane *lane, struct lh_hook_space *space)
{
    struct lh_coordinator *c = lane->coordinator;

    lh_hooks_occupy(lane, space);
    lane->has_reaps = true;
    lh_lane_begin(lane, LH_KIND_COUNT);
    fill_run(c, lane, space);
    if (c->store->ops->reap_hooked(c->store, lane->index, lh_control_database_us(c),
                                   (struct lh_reap_item **)lane->items, lane->n, on_run_done, lane) == LH_OK) {
        lh_lane_set_state(lane, LH_LANE_BUSY);
        return;
    }
    lh_lane_set_state(lane, LH_LANE_DOWN);
    for (size_t i = lane->n; i-- > 0;)
        lh_reap_job_line_up(c, LH_CONTAINER(struct lh_reap_job, item, lane->items[i]), true);
    lh_hooks_leave(lane);
    lane->n = 0;
}

static void end_answered(struct lh_coordinator *c, struct lh_reap_job *job)
{
    struct lh_reap_item *item = &job->item;
    struct lh_reaped reaped = {.lease = job->lease};

    if (item->outcome == LH_REAP_GONE) {
        lh_reap_job_end(c, job, job->is_tentative ? &reaped : NULL);
        return;
    }
    if (item->outcome == LH_REAP_FAILED)
        lh_hooks_on_rejected(c, LH_KIND_COUNT, item->reaped.error);
    item->reaped.is_failure = item->outcome == LH_REAP_FAILED;
    item->reaped.lease = job->lease;
    lh_reap_job_end(c, job, &item->reaped);
}

/* Its statement failed as a whole: that is recorded at its next turn. Where even that failed, its claim passes. */
static void on_job_error(struct lh_coordinator *c, struct lh_reap_job *job)
{
    const char *words = job->item.reaped.error != NULL ? job->item.reaped.error : "";

    if (job->item.loss == NULL) {
        job->item.loss = lh_arena_strdup(&job->arena, words);
        lh_reap_job_line_up(c, job, true);
        return;
    }
    lh_warn("a failed reap could not be recorded scope=%s/%s token=%lld: %s", job->item.ns, job->item.key,
            (long long)job->item.token, words);
    lh_reap_job_end(c, job, NULL);
}

/* The run came to its end, and everything that was answered is durable. What was not sent is tried again. */
static void end_run(struct lh_lane *lane)
{
    struct lh_coordinator *c = lane->coordinator;

    for (size_t i = lane->n; i-- > 0;) {
        struct lh_reap_job *job = LH_CONTAINER(struct lh_reap_job, item, lane->items[i]);
        if (job->item.outcome == LH_REAP_UNANSWERED)
            lh_reap_job_line_up(c, job, true);
        else if (job->item.outcome == LH_REAP_ERROR)
            on_job_error(c, job);
        else
            continue;
        lane->items[i] = NULL;
    }
    for (size_t i = 0; i < lane->n; i++) {
        if (lane->items[i] == NULL)
            continue;
        struct lh_reap_job *job = LH_CONTAINER(struct lh_reap_job, item, lane->items[i]);
        if (job->item.loss == NULL)
            lh_hooks_on_call(c, job->space, LH_KIND_COUNT, job->item.took_us);
        end_answered(c, job);
    }
}

static void lose_run(struct lh_lane *lane)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_reap_job *suspect = NULL;

    for (size_t i = lane->n; i-- > 0;) {
        struct lh_reap_job *job = LH_CONTAINER(struct lh_reap_job, item, lane->items[i]);
        if (job->item.outcome == LH_REAP_FAILED || job->item.outcome == LH_REAP_GONE) {
            end_answered(c, job);
            continue;
        }
        if (job->item.outcome == LH_REAP_ERROR) {
            on_job_error(c, job);
            continue;
        }
        if (job->item.outcome == LH_REAP_UNANSWERED)
            suspect = job;
        else
            job->is_tentative = true;
        lh_reap_job_line_up(c, job, true);
    }
    if (suspect != NULL) {
        suspect->item.loss = loss_words;
        suspect->is_tentative = true; /* if it is gone by then, its hook has done its work */
        lh_hooks_back_off(c, suspect->space);
    }
}

/* The database refused the run as a whole, and not because of a hook: their claims pass, then they come back. */
static void fail_run(struct lh_lane *lane, const struct lh_error *error)
{
    struct lh_coordinator *c = lane->coordinator;

    lh_warn("a run of %zu reaps failed: %s", lane->n, error != NULL ? error->message : "");
    for (size_t i = 0; i < lane->n; i++) {
        struct lh_reap_job *job = LH_CONTAINER(struct lh_reap_job, item, lane->items[i]);
        bool is_answered = job->item.outcome != LH_REAP_UNANSWERED && job->item.outcome != LH_REAP_ERROR;
        if (is_answered)
            end_answered(c, job);
        else
            lh_reap_job_end(c, job, NULL);
    }
}

static void on_run_done(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct lh_lane *lane = arg;
    struct lh_coordinator *c = lane->coordinator;

    lh_turn_begin(c);
    if (status == LH_OK)
        end_run(lane);
    else if (status == LH_DATABASE_UNAVAILABLE || status == LH_CANCELED)
        lose_run(lane);
    else
        fail_run(lane, error);
    lane->n = 0;
    c->answered_lane = lane;
    if (c->state != LH_CORE_RUNNING)
        lh_reaping_drop(c);
    lh_reaping_look_again(c);
    lh_turn_end_event(c);
}
