/*
 * The story of a hooked lease that has expired: the look for expired leases (reap_batch) names it and claims it for the
 * time that its hook may take. It waits in its namespace's line until a hook lane has a turn for it (reap.c). The
 * database records a failure, and this file logs it, once.
 *
 * A backlog is drained look after look, and the next look comes when the lines are short again.
 */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "lease/hooks_internal.h"

#define LOOK_MAX 1000
#define LOOK_AGAIN_BELOW 500               /* in line */
#define LOOK_PAUSE_US (50 * LH_US_PER_MS)  /* after some found no place in the line */
#define SOON_PAUSE_US (100 * LH_US_PER_MS) /* between looks that were asked for */

struct job_name {
    const char *ns;
    const char *key;
    int64_t token; /* of a shared scope each holder has its own */
};

static bool is_named(const struct lh_table_entry *entry, const void *key)
{
    const struct lh_reap_job *job = LH_CONTAINER(const struct lh_reap_job, entry, entry);
    const struct job_name *name = key;
    return job->item.token == name->token && strcmp(job->item.key, name->key) == 0 &&
           strcmp(job->item.ns, name->ns) == 0;
}

static uint64_t hash_of(const struct job_name *name)
{
    return lh_hash(name->key, strlen(name->key),
                   lh_hash(name->ns, strlen(name->ns), lh_hash(&name->token, sizeof(name->token), 0)));
}

void lh_reaping_create(struct lh_coordinator *c)
{
    lh_table_init(&c->reaping.jobs, is_named);
    lh_list_init(&c->reaping.done);
    c->reaping.timer.kind = LH_TIMER_REAP;
}

/* --- requests --- */

static struct lh_held_lease copy_lease(const struct lh_held_lease *lease, struct lh_arena *arena)
{
    struct lh_held_lease copy = *lease;
    copy.ns = lh_arena_strdup(arena, lease->ns);
    copy.key = lh_arena_strdup(arena, lease->key);
    copy.owner = lh_arena_strdup(arena, lease->owner);
    copy.principal = lh_arena_strdup(arena, lease->principal);
    copy.labels = lh_arena_strdup(arena, lease->labels);
    return copy;
}

static void note_for(struct lh_reap_request *request, const struct lh_reaped *reaped)
{
    if (request->own.lease_count == request->own.lease_capacity) {
        request->own.lease_capacity = request->own.lease_capacity == 0 ? 64 : request->own.lease_capacity * 2;
        request->own.leases =
            lh_realloc(request->own.leases, request->own.lease_capacity, sizeof(request->own.leases[0]));
    }
    struct lh_reaped *copy = &request->own.leases[request->own.lease_count++];
    *copy = *reaped;
    copy->lease = copy_lease(&reaped->lease, &request->own.arena);
    copy->error = reaped->error == NULL ? NULL : lh_arena_strdup(&request->own.arena, reaped->error);
}

static void finish_request(struct lh_reap_request *request, enum lh_status status, const struct lh_error *error)
{
    request->own.status = status;
    if (error != NULL)
        request->own.error = *error;
    else
        lh_error_set(&request->own.error, status, "%s", lh_status_text(status));
    lh_list_append(&request->own.coordinator->reaping.done, &request->own.link);
}

static void on_job_over(struct lh_reap_request *request)
{
    if (request != NULL && --request->own.open == 0)
        finish_request(request, LH_OK, NULL);
}

void lh_reaping_deliver(struct lh_coordinator *c)
{
    while (!lh_list_is_empty(&c->reaping.done)) {
        struct lh_reap_request *request = LH_LIST_FIRST(struct lh_reap_request, &c->reaping.done, own.link);
        struct lh_arena arena = request->own.arena;
        struct lh_reaped *leases = request->own.leases;
        enum lh_status status = request->own.status;
        struct lh_error error = request->own.error;
        struct lh_reap_answer answer = {
            .leases = leases, .lease_count = request->own.lease_count, .has_more = request->own.has_more};

        lh_list_remove(&request->own.link);
        request->on_done(request, status, status == LH_OK ? NULL : &error, status == LH_OK ? &answer : NULL);
        free(leases);
        lh_arena_finish(&arena);
    }
}

/* --- what was reaped --- */

static void tell(struct lh_coordinator *c, const struct lh_reaped *reaped)
{
    if (reaped->is_failure) {
        c->stats.reap_failures++;
        lh_warn("reap failed scope=%s token=%lld owner=%s principal=%s failures=%d: %s",
                LH_SCOPE_NAME(reaped->lease.ns, reaped->lease.key), (long long)reaped->lease.token, reaped->lease.owner,
                reaped->lease.principal, (int)reaped->reap_failures, reaped->error != NULL ? reaped->error : "");
    } else {
        c->stats.reaped++;
        lh_info("lease expired scope=%s token=%lld owner=%s principal=%s",
                LH_SCOPE_NAME(reaped->lease.ns, reaped->lease.key), (long long)reaped->lease.token, reaped->lease.owner,
                reaped->lease.principal);
    }
    if (reaped->wake)
        lh_scope_wake_named(c, reaped->lease.ns, reaped->lease.key);
}

/* --- the line --- */

static void free_job(struct lh_coordinator *c, struct lh_reap_job *job)
{
    lh_table_remove(&c->reaping.jobs, &job->entry);
    lh_list_remove(&job->link);
    job->hook_queue->jobs--;
    lh_arena_finish(&job->arena);
    free(job);
}

void lh_reap_job_line_up(struct lh_coordinator *c, struct lh_reap_job *job, bool is_first)
{
    struct lh_hook_queue *hook_queue = job->hook_queue;

    if (is_first)
        lh_list_prepend(&hook_queue->reaps, &job->link);
    else
        lh_list_append(&hook_queue->reaps, &job->link);
    if (!lh_link_is_linked(&hook_queue->reaping))
        lh_list_append(&c->hooks.reaping, &hook_queue->reaping);
}

/* False: there is no place for it now. */
static bool add_job(struct lh_coordinator *c, const struct lh_reaped *reaped, struct lh_reap_request *request)
{
    struct job_name name = {reaped->lease.ns, reaped->lease.key, reaped->lease.token};
    uint64_t hash = hash_of(&name);
    struct lh_table_entry *entry = lh_table_find(&c->reaping.jobs, hash, &name);
    struct lh_reap_job *job;

    if (entry != NULL) { /* its claim has passed before its turn came */
        job = LH_CONTAINER(struct lh_reap_job, entry, entry);
        if (request != NULL && job->request == NULL) {
            job->request = request;
            request->own.open++;
        }
        return true;
    }
    if (request == NULL && c->reaping.jobs.count >= LH_REAPS_MAX) {
        c->stats.refused_reaps++;
        return false;
    }
    job = lh_alloc_zero(1, sizeof(*job));
    job->lease = copy_lease(&reaped->lease, &job->arena);
    job->item = (struct lh_reap_item){.ns = job->lease.ns,
                                      .key = job->lease.key,
                                      .token = job->lease.token,
                                      .hook_timeout_us = reaped->hook_timeout_us};
    job->hook_queue = lh_hook_queue_get(c, job->lease.ns);
    job->hook_queue->timeout_us = reaped->hook_timeout_us;
    job->hook_queue->jobs++;
    job->is_alone = reaped->reap_failures > 0;
    job->request = request;
    if (request != NULL)
        request->own.open++;
    lh_table_insert(&c->reaping.jobs, &job->entry, hash);
    lh_reap_job_line_up(c, job, false);
    lh_hook_queues_forget_some(c);
    return true;
}

/* --- looking for what is due --- */

/* How many of them found no place. */
static size_t take_answer(struct lh_coordinator *c, const struct lh_reap_answer *answer,
                          struct lh_reap_request *request)
{
    size_t refused = 0;

    for (size_t i = 0; i < answer->lease_count; i++) {
        const struct lh_reaped *reaped = &answer->leases[i];
        if (reaped->is_hooked) {
            refused += !add_job(c, reaped, request);
            continue;
        }
        tell(c, reaped);
        if (request != NULL)
            note_for(request, reaped);
    }
    for (size_t i = 0; i < answer->wake_count; i++)
        lh_scope_wake_named(c, answer->wakes[i].ns, answer->wakes[i].key);
    return refused;
}

void lh_reaping_look_again(struct lh_coordinator *c)
{
    if (c->reaping.has_more && !c->reaping.is_looking && c->reaping.jobs.count < LOOK_AGAIN_BELOW) {
        c->reaping.has_more = false;
        lh_heap_set(&c->timers, &c->reaping.timer, c->now_us);
    }
}

static void on_looked(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_reap_answer *answer)
{
    struct lh_coordinator *c = arg;

    lh_turn_begin(c);
    c->reaping.is_looking = false;
    if (status != LH_OK) {
        lh_debug("reaper tick failed: %s", error != NULL ? error->message : lh_status_text(status));
    } else if (take_answer(c, answer, NULL) > 0) {
        if (answer->has_more && c->state == LH_CORE_RUNNING)
            lh_heap_set(&c->timers, &c->reaping.timer, c->now_us + LOOK_PAUSE_US);
    } else if (c->state == LH_CORE_RUNNING) {
        c->reaping.has_more = answer->has_more;
        lh_reaping_look_again(c);
    }
    lh_turn_end_event(c);
}

void lh_reaping_on_timer(struct lh_coordinator *c)
{
    lh_heap_set(&c->timers, &c->reaping.timer, c->now_us + lh_turn_jitter(c, c->options.reap_interval_us, 20));
    if (!lh_database_is_registered(c) || c->reaping.is_looking)
        return;
    c->reaping.looked_us = c->now_us;
    c->reaping.is_looking = c->store->ops->reap(c->store, lh_database_us(c), NULL, 0, false, NULL, LOOK_MAX,
                                                LH_REAP_BY_ITSELF, NULL, on_looked, c) == LH_OK;
}

void lh_reaping_soon(struct lh_coordinator *c)
{
    int64_t at_us = c->reaping.looked_us + SOON_PAUSE_US;

    if (c->reaping.timer.slot != 0 && c->reaping.timer.at_us > at_us)
        lh_heap_set(&c->timers, &c->reaping.timer, at_us > c->now_us ? at_us : c->now_us);
}

void lh_reaping_start(struct lh_coordinator *c)
{
    if (c->options.reap_interval_us > 0)
        lh_heap_set(&c->timers, &c->reaping.timer, c->now_us + lh_turn_jitter(c, c->options.reap_interval_us, 20));
}

static void on_asked(void *arg, enum lh_status status, const struct lh_error *error,
                     const struct lh_reap_answer *answer)
{
    struct lh_reap_request *request = arg;
    struct lh_coordinator *c = request->own.coordinator;

    lh_turn_begin(c);
    request->own.open = 1; /* this look itself */
    if (status != LH_OK) {
        finish_request(request, status, error);
    } else if (c->state != LH_CORE_RUNNING) {
        finish_request(request, LH_SHUTTING_DOWN, NULL);
    } else {
        take_answer(c, answer, request);
        request->own.has_more = answer->has_more;
        on_job_over(request);
    }
    lh_turn_end_event(c);
}

enum lh_status lh_coordinator_reap(struct lh_coordinator *c, struct lh_reap_request *request)
{
    enum lh_status status;

    if (lh_readiness_of_life(c) != LH_OK)
        return lh_readiness_of_life(c);
    if (c->reaping.jobs.count >= LH_REAPS_MAX) {
        c->stats.refused_reaps++;
        return LH_OVERLOADED;
    }
    lh_turn_begin(c);
    memset(&request->own, 0, sizeof(request->own));
    request->own.coordinator = c;
    status = c->store->ops->reap(c->store, lh_database_us(c), request->namespaces, request->namespace_count,
                                 request->include_children, request->key, request->max, request->kind,
                                 &request->requester, on_asked, request);
    lh_turn_end_call(c);
    return status;
}

/* --- the end --- */

void lh_reap_job_end(struct lh_coordinator *c, struct lh_reap_job *job, const struct lh_reaped *reaped)
{
    if (reaped != NULL) {
        tell(c, reaped);
        if (job->request != NULL)
            note_for(job->request, reaped);
    }
    on_job_over(job->request);
    free_job(c, job);
}

/* Their claims pass, and another daemon takes them. */
void lh_reaping_drop(struct lh_coordinator *c)
{
    lh_heap_remove(&c->timers, &c->reaping.timer);
    while (!lh_list_is_empty(&c->hooks.reaping)) {
        struct lh_hook_queue *hook_queue = LH_LIST_FIRST(struct lh_hook_queue, &c->hooks.reaping, reaping);
        while (!lh_list_is_empty(&hook_queue->reaps)) {
            struct lh_reap_job *job = LH_LIST_FIRST(struct lh_reap_job, &hook_queue->reaps, link);
            if (job->request != NULL)
                job->request->own.has_more = true;
            lh_reap_job_end(c, job, NULL);
        }
        lh_list_remove(&hook_queue->reaping);
    }
}

void lh_reaping_destroy(struct lh_coordinator *c)
{
    size_t slot = 0;
    struct lh_table_entry *next = NULL;
    struct lh_table_entry *entry;

    while ((entry = lh_table_walk(&c->reaping.jobs, &slot, &next)) != NULL)
        free_job(c, LH_CONTAINER(struct lh_reap_job, entry, entry));
    lh_table_finish(&c->reaping.jobs);
}
