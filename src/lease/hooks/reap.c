/*
 * A run takes as many reaps as are expected to be done within 50 ms; of an unknown namespace it takes the first one,
 * alone. The last one's commit makes all of them durable. Reaps of a namespace whose hooks are quick and do not fail go
 * several to a transaction. That is a gamble to save time, and losing it counts against no lease: if one of them fails,
 * takes too long, or breaks the connection, none of them is done, and each is tried again by itself. Only that try
 * counts. After a lost gamble they go one by one; each won gamble doubles the stake, as long as it is won within 10 ms.
 *
 * If the connection is lost in a run, the answered reaps are checked again, because they may not have been durable; the
 * first unanswered one, if it was by itself, counts as the cause, and that is recorded as its failure, unless it turns
 * out to be reaped after all; the others are tried again.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "lease/hooks_internal.h"

#define RUN_US (50 * LH_US_PER_MS)
#define TOGETHER_US (20 * LH_US_PER_MS) /* what they lock stays locked about as long */

static const char loss_words[] = "the connection to the database was lost while its hook ran";

static struct lh_reap_job *job_of(const struct lh_lane *lane, size_t i)
{
    return LH_CONTAINER(struct lh_reap_job, item, lane->items[i]);
}

/* How many items from the first one on share its transaction. */
static size_t group_size(const struct lh_lane *lane, size_t first)
{
    size_t n = 1;
    while (first + n < lane->n && job_of(lane, first + n)->item.is_joined)
        n++;
    return n;
}

static void take_jobs(struct lh_lane *lane, struct lh_hook_queue *hook_queue, size_t room, int64_t *left_us)
{
    size_t group = 0; /* how many of this hook_queue share a transaction that has room */

    while (lane->n < room && !lh_list_is_empty(&hook_queue->reaps)) {
        struct lh_reap_job *job = LH_LIST_FIRST(struct lh_reap_job, &hook_queue->reaps, link);
        bool is_unknown = hook_queue->took_us == 0 || job->item.loss != NULL || hook_queue->delay_us > 0;
        bool is_alone = is_unknown || job->is_alone;
        int64_t expected_us = is_unknown ? RUN_US : hook_queue->took_us;
        if (lane->n > 0 && expected_us > *left_us)
            return;
        *left_us -= expected_us;
        lh_list_remove(&job->link);
        job->item.outcome = LH_REAP_UNANSWERED;
        job->item.is_joined = group > 0 && !is_alone && group < hook_queue->together;
        group = is_alone ? 0 : job->item.is_joined ? group + 1 : 1;
        lane->items[lane->n++] = &job->item;
    }
}

/* Its own, and of the namespaces behind it in turn while there is room. */
static void take(struct lh_lane *lane, struct lh_scope *scope, size_t room)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_hook_queue *hook_queue = lane->hook_queue;
    int64_t left_us = RUN_US;

    while (hook_queue != NULL) {
        struct lh_link *behind = hook_queue->reaping.next;
        size_t before = lane->n;
        take_jobs(lane, hook_queue, room, &left_us);
        if (lane->n == before)
            return;
        lh_list_remove(&hook_queue->reaping);
        if (!lh_list_is_empty(&hook_queue->reaps))
            lh_list_append(&c->hooks.reaping, &hook_queue->reaping);
        if (behind == &c->hooks.reaping || left_us <= 0)
            return;
        hook_queue = LH_CONTAINER(struct lh_hook_queue, reaping, behind);
        if (hook_queue->retry_us > c->now_us || hook_queue->took_us == 0 || lh_hook_queue_is_slow(c, hook_queue))
            return;
    }
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
        lh_hook_queue_on_rejected(c, LH_KIND_REAP, item->reaped.error);
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
    lh_warn("a failed reap could not be recorded scope=%s token=%lld: %s", LH_SCOPE_NAME(job->item.ns, job->item.key),
            (long long)job->item.token, words);
    lh_reap_job_end(c, job, NULL);
}

/* What has become of this gamble, or of a single one that might have been one, says how many go together next. */
static void learn(const struct lh_lane *lane, size_t first, size_t n)
{
    struct lh_hook_queue *hook_queue = job_of(lane, first)->hook_queue;
    int64_t took_us = job_of(lane, first)->item.took_us * (int64_t)n;
    bool is_won = true;

    if (job_of(lane, first)->is_alone || job_of(lane, first)->item.outcome == LH_REAP_UNANSWERED)
        return;
    for (size_t i = first; i < first + n; i++)
        is_won &= job_of(lane, i)->item.outcome == LH_REAP_DONE || job_of(lane, i)->item.outcome == LH_REAP_GONE;
    if (!is_won)
        hook_queue->together = 1;
    else if (took_us > TOGETHER_US)
        hook_queue->together = n > 1 ? (unsigned)n / 2 : 1;
    else if (took_us <= TOGETHER_US / 2 && n >= hook_queue->together)
        hook_queue->together = n * 2 < LH_REAP_TOGETHER_MAX ? (unsigned)n * 2 : LH_REAP_TOGETHER_MAX;
}

/* The run came to its end, and everything that was answered is durable. What was not sent is tried again. */
static void end_run(struct lh_lane *lane)
{
    struct lh_coordinator *c = lane->coordinator;

    for (size_t first = 0, n; first < lane->n; first += n)
        learn(lane, first, n = group_size(lane, first));
    for (size_t i = lane->n; i-- > 0;) {
        struct lh_reap_job *job = job_of(lane, i);
        job->is_alone |= job->item.outcome == LH_REAP_ALONE;
        if (job->item.outcome == LH_REAP_UNANSWERED || job->item.outcome == LH_REAP_ALONE)
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
        struct lh_reap_job *job = job_of(lane, i);
        if (job->item.loss == NULL)
            lh_hook_queue_on_call(c, job->hook_queue, LH_KIND_REAP, job->item.took_us);
        end_answered(c, job);
    }
}

static void lose_run(struct lh_lane *lane)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_reap_job *suspect = NULL;
    bool is_by_itself = true;

    /* Those that were in one transaction with the cause cannot be told from it. */
    for (size_t first = 0, n; first < lane->n && suspect == NULL; first += n) {
        n = group_size(lane, first);
        if (job_of(lane, first)->item.outcome != LH_REAP_UNANSWERED)
            continue;
        suspect = job_of(lane, first);
        is_by_itself = n == 1;
        for (size_t i = first; i < first + n; i++) {
            job_of(lane, i)->is_alone = true;
            job_of(lane, i)->is_tentative = true; /* if it is gone by then, its hook has done its work */
        }
    }
    for (size_t i = lane->n; i-- > 0;) {
        struct lh_reap_job *job = job_of(lane, i);
        job->is_alone |= job->item.outcome == LH_REAP_ALONE;
        if (job->item.outcome == LH_REAP_FAILED || job->item.outcome == LH_REAP_GONE) {
            end_answered(c, job);
            continue;
        }
        if (job->item.outcome == LH_REAP_ERROR) {
            on_job_error(c, job);
            continue;
        }
        if (job->item.outcome == LH_REAP_DONE)
            job->is_tentative = true;
        lh_reap_job_line_up(c, job, true);
    }
    if (suspect == NULL)
        return;
    suspect->hook_queue->together = 1;
    lh_hook_queue_back_off(c, suspect->hook_queue);
    if (is_by_itself)
        suspect->item.loss = loss_words;
}

/* The database refused the run as a whole, and not because of a hook: their claims pass, then they come back. */
static void fail_run(struct lh_lane *lane, const struct lh_error *error)
{
    struct lh_coordinator *c = lane->coordinator;

    lh_warn("a run of %zu reaps failed: %s", lane->n, error != NULL ? error->message : "");
    for (size_t i = 0; i < lane->n; i++) {
        struct lh_reap_job *job = job_of(lane, i);
        enum lh_reap_end outcome = job->item.outcome;
        bool is_answered = outcome == LH_REAP_DONE || outcome == LH_REAP_FAILED || outcome == LH_REAP_GONE;
        if (is_answered)
            end_answered(c, job);
        else
            lh_reap_job_end(c, job, NULL);
    }
}

static void on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = lane->coordinator;

    if (!lane->is_sent) {
        for (size_t i = lane->n; i-- > 0;)
            lh_reap_job_line_up(c, job_of(lane, i), true);
        return;
    }
    if (status == LH_OK)
        end_run(lane);
    else if (status == LH_DATABASE_UNAVAILABLE || status == LH_CANCELED)
        lose_run(lane);
    else
        fail_run(lane, error);
    if (c->state != LH_CORE_RUNNING)
        lh_reaping_drop(c);
    lh_reaping_look_again(c);
}

const struct lh_operation lh_reap_operation = {
    .name = "reap",
    .take = take,
    .on_done = on_done,
};
