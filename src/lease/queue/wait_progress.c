#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "lease/queue/wait_progress.h"
#include "lease/queue_internal.h"

#define SWEEP_PAUSE_US (1 * LH_US_PER_S)       /* between sweeps of a scope, and between two words to one subscriber */
#define SILENCE_US (3500 * LH_US_PER_MS)       /* then a subscriber is due; told by the sweep after that, within 5 s */
#define FRESH_US (1 * LH_US_PER_S)             /* so old may be what is told */
#define PROBE_PATIENCE_US (500 * LH_US_PER_MS) /* then it is told without */
#define SWEEP_TURN_MAX 256                     /* subscribers in a loop turn */

/* --- when to sweep --- */

static void sweep_by(struct lh_coordinator *c, struct lh_wait_progress *progress, int64_t at_us)
{
    int64_t earliest_us = progress->swept_us + SWEEP_PAUSE_US;

    if (at_us < earliest_us && progress->swept_us > 0)
        at_us = earliest_us;
    if (progress->next == NULL && (progress->timer.slot == 0 || at_us < progress->timer.at_us))
        lh_heap_set(&c->timers, &progress->timer, at_us);
}

static void note_change(struct lh_coordinator *c, struct lh_wait_progress *progress)
{
    progress->has_changed = true;
    sweep_by(c, progress, c->now_us);
}

/* --- who is told --- */

static struct lh_wait_progress *create(struct lh_scope *scope)
{
    struct lh_wait_progress *progress = lh_alloc_zero(1, sizeof(*progress));
    progress->scope = scope;
    progress->timer.kind = LH_TIMER_PROGRESS;
    lh_list_init(&progress->subscribers);
    scope->progress = progress;
    return progress;
}

static void destroy(struct lh_wait_progress *progress)
{
    if (progress->probe != NULL)
        progress->probe->progress = NULL;
    progress->scope->progress = NULL;
    free(progress->owner);
    free(progress->principal);
    free(progress);
}

void lh_wait_progress_attach(struct lh_acquire *request)
{
    struct lh_scope *scope = request->own.waiter->scope;
    struct lh_wait_progress *progress = scope->progress != NULL ? scope->progress : create(scope);
    struct lh_subscriber *subscriber = lh_alloc_zero(1, sizeof(*subscriber));

    subscriber->request = request;
    lh_list_append(&progress->subscribers, &subscriber->link);
    progress->count++;
    request->own.subscriber = subscriber;
}

void lh_wait_progress_detach(struct lh_coordinator *c, struct lh_acquire *request)
{
    struct lh_wait_progress *progress = request->own.waiter->scope->progress;
    struct lh_subscriber *subscriber = request->own.subscriber;

    if (subscriber == NULL)
        return;
    if (progress->next == subscriber)
        progress->next = subscriber->link.next == &progress->subscribers
                             ? NULL
                             : LH_CONTAINER(struct lh_subscriber, link, subscriber->link.next);
    request->own.subscriber = NULL;
    lh_list_remove(&subscriber->link);
    lh_list_remove(&subscriber->telling);
    free(subscriber);
    if (--progress->count == 0) {
        lh_heap_remove(&c->timers, &progress->timer);
        destroy(progress);
    } else if (progress->next == NULL && progress->timer.slot == 0)
        sweep_by(c, progress, c->now_us); /* it was the last of a sweep */
}

void lh_wait_progress_destroy(struct lh_scope *scope)
{
    struct lh_wait_progress *progress = scope->progress;

    if (progress == NULL)
        return;
    while (!lh_list_is_empty(&progress->subscribers)) {
        struct lh_subscriber *subscriber = LH_LIST_FIRST(struct lh_subscriber, &progress->subscribers, link);
        lh_list_remove(&subscriber->link);
        lh_list_remove(&subscriber->telling);
        free(subscriber);
    }
    destroy(progress);
}

/* --- what is known --- */

static void keep_text(char **kept, const char *text)
{
    if (text == NULL)
        text = "";
    if (*kept != NULL && strcmp(*kept, text) == 0)
        return;
    free(*kept);
    *kept = lh_strdup(text);
}

void lh_wait_progress_learn(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_held_lease *holder,
                            int32_t holder_count, int32_t units_free, int64_t rests_in_us)
{
    struct lh_wait_progress *progress = scope->progress;
    int64_t before = 0, now = 0;

    if (progress == NULL)
        return;
    if (progress->has_holder)
        before = progress->holder.token;
    if (holder != NULL) {
        keep_text(&progress->owner, holder->owner);
        keep_text(&progress->principal, holder->principal);
        progress->holder = *holder;
        progress->holder.ns = scope->ns;
        progress->holder.key = scope->key;
        progress->holder.owner = progress->owner;
        progress->holder.principal = progress->principal;
        progress->holder.labels = "{}";
        progress->holder.slots = NULL;
        progress->holder.slot_count = 0;
        memset(&progress->holder.lease_key, 0, sizeof(progress->holder.lease_key));
        if (progress->holder.liveness == LH_LIVENESS_UNSPECIFIED)
            progress->holder.liveness = LH_LIVENESS_ALIVE;
        now = holder->token;
    }
    progress->has_holder = holder != NULL;
    progress->known_us = c->now_us;
    progress->holder_count = holder_count;
    progress->units_free = units_free;
    progress->rests_until_us = lh_time_add(c->now_us, rests_in_us);
    if (before != now)
        note_change(c, progress);
}

void lh_wait_progress_renewed(struct lh_coordinator *c, struct lh_scope *scope, int64_t remaining_us)
{
    struct lh_wait_progress *progress = scope->progress;

    if (progress == NULL || !progress->has_holder)
        return;
    struct lh_held_lease *holder = &progress->holder;
    int64_t passed_us = c->now_us - progress->known_us;
    holder->held_us += passed_us;
    holder->deadline_us += remaining_us - (holder->remaining_us - passed_us);
    holder->heartbeat_at_us = holder->deadline_us - holder->duration_us;
    holder->remaining_us = remaining_us;
    holder->silent_us = 0;
    holder->heartbeats++;
    if (holder->liveness != LH_LIVENESS_OVERDUE)
        holder->liveness = LH_LIVENESS_ALIVE;
    progress->known_us = c->now_us;
}

void lh_wait_progress_queued(struct lh_coordinator *c, struct lh_acquire *request, int32_t ahead)
{
    struct lh_subscriber *subscriber = request->own.subscriber;

    if (subscriber == NULL || request->own.verdict != LH_OK)
        return;
    struct lh_wait_progress *progress = request->own.waiter->scope->progress;
    subscriber->is_queued = true;
    subscriber->ahead = ahead;
    subscriber->heads_then = progress->heads_gone;
    if (subscriber->told_us == 0 && !lh_link_is_linked(&subscriber->telling))
        lh_list_append(&c->queue.telling, &subscriber->telling);
    else if (subscriber->told_us != 0 && ahead != subscriber->told_place)
        note_change(c, progress);
}

/* Mostly it was the first of all: that is counted, and nobody is visited for it. */
void lh_wait_progress_departed(struct lh_coordinator *c, struct lh_scope *scope, int64_t ticket)
{
    struct lh_wait_progress *progress = scope->progress;

    if (progress == NULL || ticket == 0)
        return;
    struct lh_waiter *first = LH_LIST_FIRST(struct lh_waiter, &scope->queue, link);
    if (first == NULL || first->ticket > ticket) {
        progress->heads_gone++;
    } else {
        for (struct lh_link *link = progress->subscribers.prev; link != &progress->subscribers; link = link->prev) {
            struct lh_subscriber *subscriber = LH_CONTAINER(struct lh_subscriber, link, link);
            int64_t own_ticket = subscriber->request->own.waiter->ticket;
            if (own_ticket != 0 && own_ticket < ticket)
                break;
            subscriber->ahead--;
        }
    }
    note_change(c, progress);
}

/* --- looking the holder up, once for all --- */

static void on_probed(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_scope_answer *answer)
{
    struct lh_probe *probe = arg;
    struct lh_coordinator *c = probe->coordinator;
    struct lh_wait_progress *progress = probe->progress;

    lh_turn_begin(c);
    probe->is_out = false;
    if (progress != NULL) {
        progress->probe = NULL;
        if (status == LH_OK) {
            size_t subscribers = progress->count < progress->probed_with ? progress->count : progress->probed_with;
            lh_wait_progress_learn(c, progress->scope, answer->is_held ? &answer->lease : NULL, answer->holder_count,
                                   answer->units_free, answer->rests_in_us);
            progress->others = answer->waiters > (int32_t)subscribers ? answer->waiters - (int32_t)subscribers : 0;
            progress->knows_others = true;
        }
        if (progress->has_probed && progress->next == NULL)
            lh_heap_set(&c->timers, &progress->timer, c->now_us);
    }
    lh_turn_end_event(c);
}

/* Without a free probe, or a database, what is known has to do. */
static bool probe(struct lh_coordinator *c, struct lh_wait_progress *progress)
{
    struct lh_probe *free_probe = NULL;

    if (progress->has_probed || progress->probe != NULL || !lh_database_is_up(c) || c->state != LH_CORE_RUNNING ||
        (progress->known_us > 0 && c->now_us - progress->known_us < FRESH_US))
        return false;
    for (int i = 0; i < LH_PROBES_MAX && free_probe == NULL; i++)
        free_probe = c->queue.probes[i].is_out ? NULL : &c->queue.probes[i];
    if (free_probe == NULL)
        return false;
    free_probe->coordinator = c;
    if (c->store->ops->get(c->store, progress->scope->ns, progress->scope->key, on_probed, free_probe) != LH_OK)
        return false;
    free_probe->is_out = true;
    free_probe->progress = progress;
    progress->probe = free_probe;
    progress->probed_with = progress->count;
    return true;
}

/* --- the sweep --- */

static int32_t place_of(const struct lh_wait_progress *progress, const struct lh_subscriber *subscriber, int32_t rank)
{
    int64_t place = (int64_t)subscriber->ahead - (int32_t)(progress->heads_gone - subscriber->heads_then);

    if (rank >= 0 && progress->knows_others && place > (int64_t)rank + progress->others)
        place = (int64_t)rank + progress->others;
    return place < 0 ? 0 : (int32_t)place;
}

/* Tell it, or note when it is to be told. */
static void visit(struct lh_coordinator *c, struct lh_wait_progress *progress, struct lh_subscriber *subscriber)
{
    int64_t token = progress->has_holder ? progress->holder.token : 0;
    int32_t place = place_of(progress, subscriber, progress->rank++);
    int64_t due_us;

    if (!subscriber->is_queued || subscriber->told_us == 0 || subscriber->request->own.verdict != LH_OK)
        return;
    due_us = subscriber->told_us + SILENCE_US;
    if (place != subscriber->told_place || token != subscriber->told_token)
        due_us = subscriber->told_us + SWEEP_PAUSE_US;
    if (due_us <= c->now_us) {
        subscriber->ahead = place;
        subscriber->heads_then = progress->heads_gone;
        if (!lh_link_is_linked(&subscriber->telling))
            lh_list_append(&c->queue.telling, &subscriber->telling);
        due_us = c->now_us + SILENCE_US;
    }
    if (due_us < progress->due_us)
        progress->due_us = due_us;
}

void lh_wait_progress_on_timer(struct lh_coordinator *c, struct lh_wait_progress *progress)
{
    if (progress->next == NULL) {
        if (probe(c, progress)) {
            progress->has_probed = true;
            lh_heap_set(&c->timers, &progress->timer, c->now_us + PROBE_PATIENCE_US);
            return;
        }
        progress->has_probed = false;
        progress->has_changed = false;
        progress->swept_us = c->now_us;
        progress->due_us = c->now_us + SILENCE_US;
        progress->rank = 0;
        progress->next = LH_LIST_FIRST(struct lh_subscriber, &progress->subscribers, link);
    }
    for (int i = 0; i < SWEEP_TURN_MAX && progress->next != NULL; i++) {
        struct lh_link *next = progress->next->link.next;
        visit(c, progress, progress->next);
        progress->next = next == &progress->subscribers ? NULL : LH_CONTAINER(struct lh_subscriber, link, next);
    }
    if (progress->next != NULL)
        lh_heap_set(&c->timers, &progress->timer, c->now_us + 1); /* the next loop turn */
    else
        sweep_by(c, progress, progress->has_changed ? c->now_us : progress->due_us);
}

/* --- telling, at the end of a turn --- */

static void tell(struct lh_coordinator *c, struct lh_wait_progress *progress, struct lh_subscriber *subscriber)
{
    struct lh_contention contention = {.has_holder = progress->has_holder,
                                       .holder_count = progress->holder_count,
                                       .units_free = progress->units_free,
                                       .waiters_ahead = place_of(progress, subscriber, -1)};
    int64_t passed_us = c->now_us - progress->known_us;

    if (progress->rests_until_us > c->now_us)
        contention.rests_us = progress->rests_until_us - c->now_us;
    if (progress->has_holder) {
        contention.holder = progress->holder;
        contention.holder.remaining_us -= passed_us;
        contention.holder.held_us += passed_us;
        contention.holder.silent_us += passed_us;
    }
    subscriber->told_us = c->now_us;
    subscriber->told_place = contention.waiters_ahead;
    subscriber->told_token = progress->has_holder ? progress->holder.token : 0;
    sweep_by(c, progress, c->now_us + SILENCE_US);
    subscriber->request->on_progress(subscriber->request, &contention);
}

void lh_wait_progress_deliver(struct lh_coordinator *c)
{
    while (!lh_list_is_empty(&c->queue.telling)) {
        struct lh_subscriber *subscriber = LH_LIST_FIRST(struct lh_subscriber, &c->queue.telling, telling);
        lh_list_remove(&subscriber->telling);
        if (subscriber->request->own.verdict == LH_OK)
            tell(c, subscriber->request->own.waiter->scope->progress, subscriber);
    }
}
