#include "lease/progress.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "lease/waiter.h"

#define SWEEP_PAUSE_US (1 * LH_US_PER_S)      /* between sweeps of a scope, and between two words to one teller */
#define SILENCE_US (3500 * LH_US_PER_MS)      /* then a teller is due; told by the sweep after that, within 5 s */
#define FRESH_US (1 * LH_US_PER_S)            /* so old may be what is told */
#define LOOK_PATIENCE_US (500 * LH_US_PER_MS) /* then it is told without */
#define SWEEP_TURN_MAX 256                    /* tellers in a loop turn */

/* --- when to sweep --- */

static void sweep_by(struct lh_coordinator *c, struct lh_progress *progress, int64_t at_us)
{
    int64_t earliest_us = progress->swept_us + SWEEP_PAUSE_US;

    if (at_us < earliest_us && progress->swept_us > 0)
        at_us = earliest_us;
    if (progress->next == NULL && (progress->timer.slot == 0 || at_us < progress->timer.at_us))
        lh_heap_set(&c->timers, &progress->timer, at_us);
}

static void note_change(struct lh_coordinator *c, struct lh_progress *progress)
{
    progress->has_changed = true;
    sweep_by(c, progress, c->now_us);
}

/* --- who is told --- */

static struct lh_progress *create(struct lh_scope *scope)
{
    struct lh_progress *progress = lh_alloc_zero(1, sizeof(*progress));
    progress->scope = scope;
    progress->timer.kind = LH_TIMER_PROGRESS;
    lh_list_init(&progress->tellers);
    scope->progress = progress;
    return progress;
}

static void destroy(struct lh_coordinator *c, struct lh_progress *progress)
{
    lh_heap_remove(&c->timers, &progress->timer);
    if (progress->look != NULL)
        progress->look->progress = NULL;
    progress->scope->progress = NULL;
    free(progress->owner);
    free(progress);
}

void lh_progress_attach(struct lh_coordinator *c, struct lh_acquire *request)
{
    struct lh_scope *scope = request->own.waiter->scope;
    struct lh_progress *progress = scope->progress != NULL ? scope->progress : create(scope);
    struct lh_teller *teller = lh_alloc_zero(1, sizeof(*teller));

    teller->request = request;
    lh_list_append(&progress->tellers, &teller->link);
    progress->count++;
    request->own.teller = teller;
}

void lh_progress_detach(struct lh_coordinator *c, struct lh_acquire *request)
{
    struct lh_progress *progress = request->own.waiter->scope->progress;
    struct lh_teller *teller = request->own.teller;

    if (teller == NULL)
        return;
    if (progress->next == teller)
        progress->next =
            teller->link.next == &progress->tellers ? NULL : LH_CONTAINER(struct lh_teller, link, teller->link.next);
    request->own.teller = NULL;
    lh_list_remove(&teller->link);
    lh_list_remove(&teller->telling);
    free(teller);
    if (--progress->count == 0)
        destroy(c, progress);
    else if (progress->next == NULL && progress->timer.slot == 0)
        sweep_by(c, progress, c->now_us); /* it was the last of a sweep */
}

void lh_progress_destroy(struct lh_coordinator *c, struct lh_scope *scope)
{
    struct lh_progress *progress = scope->progress;

    if (progress == NULL)
        return;
    while (!lh_list_is_empty(&progress->tellers)) {
        struct lh_teller *teller = LH_LIST_FIRST(struct lh_teller, &progress->tellers, link);
        lh_list_remove(&teller->link);
        lh_list_remove(&teller->telling);
        free(teller);
    }
    destroy(c, progress);
}

/* --- what is known --- */

void lh_progress_learn(struct lh_coordinator *c, struct lh_scope *scope, const struct lh_lease *holder)
{
    struct lh_progress *progress = scope->progress;
    int64_t before = 0, now = 0;

    if (progress == NULL)
        return;
    if (progress->has_holder)
        before = progress->holder.token;
    if (holder != NULL) {
        const char *owner = holder->owner != NULL ? holder->owner : "";
        if (progress->owner == NULL || strcmp(progress->owner, owner) != 0) {
            free(progress->owner);
            progress->owner = lh_strdup(owner);
        }
        progress->holder = *holder;
        progress->holder.ns = scope->ns;
        progress->holder.key = scope->key;
        progress->holder.owner = progress->owner;
        progress->holder.labels = "{}";
        memset(&progress->holder.lease_key, 0, sizeof(progress->holder.lease_key));
        if (progress->holder.liveness == LH_LIVENESS_UNSPECIFIED)
            progress->holder.liveness = LH_LIVENESS_ALIVE;
        now = holder->token;
    }
    progress->has_holder = holder != NULL;
    progress->known_us = c->now_us;
    if (before != now)
        note_change(c, progress);
}

void lh_progress_renewed(struct lh_coordinator *c, struct lh_scope *scope, int64_t remaining_us)
{
    struct lh_progress *progress = scope->progress;

    if (progress == NULL || !progress->has_holder)
        return;
    struct lh_lease *holder = &progress->holder;
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

void lh_progress_queued(struct lh_coordinator *c, struct lh_acquire *request, int32_t ahead)
{
    struct lh_teller *teller = request->own.teller;

    if (teller == NULL || request->own.verdict != LH_OK)
        return;
    struct lh_progress *progress = request->own.waiter->scope->progress;
    teller->is_queued = true;
    teller->ahead = ahead;
    teller->heads_then = progress->heads_gone;
    if (teller->told_us == 0 && !lh_link_is_linked(&teller->telling))
        lh_list_append(&c->telling, &teller->telling);
    else if (teller->told_us != 0 && ahead != teller->told_place)
        note_change(c, progress);
}

/* Mostly it was the first of all: that is counted, and nobody is visited for it. */
void lh_progress_departed(struct lh_coordinator *c, struct lh_scope *scope, int64_t ticket)
{
    struct lh_progress *progress = scope->progress;

    if (progress == NULL || ticket == 0)
        return;
    struct lh_waiter *first = LH_LIST_FIRST(struct lh_waiter, &scope->queue, link);
    if (first == NULL || first->ticket > ticket) {
        progress->heads_gone++;
    } else {
        for (struct lh_link *link = progress->tellers.prev; link != &progress->tellers; link = link->prev) {
            struct lh_teller *teller = LH_CONTAINER(struct lh_teller, link, link);
            int64_t own_ticket = teller->request->own.waiter->ticket;
            if (own_ticket != 0 && own_ticket < ticket)
                break;
            teller->ahead--;
        }
    }
    note_change(c, progress);
}

/* --- looking the holder up, once for all --- */

static void on_looked(void *arg, enum lh_status status, const struct lh_error *error,
                      const struct lh_scope_answer *answer)
{
    struct lh_look *look = arg;
    struct lh_coordinator *c = look->coordinator;
    struct lh_progress *progress = look->progress;

    lh_turn_begin(c);
    look->is_out = false;
    if (progress != NULL) {
        progress->look = NULL;
        if (status == LH_OK) {
            size_t tellers = progress->count < progress->looked_with ? progress->count : progress->looked_with;
            lh_progress_learn(c, progress->scope, answer->is_held ? &answer->lease : NULL);
            progress->others = answer->waiters > (int32_t)tellers ? answer->waiters - (int32_t)tellers : 0;
            progress->knows_others = true;
        }
        if (progress->has_looked && progress->next == NULL)
            lh_heap_set(&c->timers, &progress->timer, c->now_us);
    }
    lh_turn_end_event(c);
}

/* Without a free look, or a database, what is known has to do. */
static bool look(struct lh_coordinator *c, struct lh_progress *progress)
{
    struct lh_look *free_look = NULL;

    if (progress->has_looked || progress->look != NULL || !c->control.is_up || c->state != LH_CORE_RUNNING ||
        (progress->known_us > 0 && c->now_us - progress->known_us < FRESH_US))
        return false;
    for (int i = 0; i < LH_LOOKS_MAX && free_look == NULL; i++)
        free_look = c->looks[i].is_out ? NULL : &c->looks[i];
    if (free_look == NULL)
        return false;
    free_look->coordinator = c;
    if (c->store->ops->get(c->store, progress->scope->ns, progress->scope->key, on_looked, free_look) != LH_OK)
        return false;
    free_look->is_out = true;
    free_look->progress = progress;
    progress->look = free_look;
    progress->looked_with = progress->count;
    return true;
}

/* --- the sweep --- */

static int32_t place_of(const struct lh_progress *progress, const struct lh_teller *teller, int32_t rank)
{
    int64_t place = (int64_t)teller->ahead - (int32_t)(progress->heads_gone - teller->heads_then);

    if (rank >= 0 && progress->knows_others && place > (int64_t)rank + progress->others)
        place = (int64_t)rank + progress->others;
    return place < 0 ? 0 : (int32_t)place;
}

/* Tell it, or note when it is to be told. */
static void visit(struct lh_coordinator *c, struct lh_progress *progress, struct lh_teller *teller)
{
    int64_t token = progress->has_holder ? progress->holder.token : 0;
    int32_t place = place_of(progress, teller, progress->rank++);
    int64_t due_us;

    if (!teller->is_queued || teller->told_us == 0 || teller->request->own.verdict != LH_OK)
        return;
    due_us = teller->told_us + SILENCE_US;
    if (place != teller->told_place || token != teller->told_token)
        due_us = teller->told_us + SWEEP_PAUSE_US;
    if (due_us <= c->now_us) {
        teller->ahead = place;
        teller->heads_then = progress->heads_gone;
        if (!lh_link_is_linked(&teller->telling))
            lh_list_append(&c->telling, &teller->telling);
        due_us = c->now_us + SILENCE_US;
    }
    if (due_us < progress->due_us)
        progress->due_us = due_us;
}

void lh_progress_on_timer(struct lh_coordinator *c, struct lh_progress *progress)
{
    if (progress->next == NULL) {
        if (look(c, progress)) {
            progress->has_looked = true;
            lh_heap_set(&c->timers, &progress->timer, c->now_us + LOOK_PATIENCE_US);
            return;
        }
        progress->has_looked = false;
        progress->has_changed = false;
        progress->swept_us = c->now_us;
        progress->due_us = c->now_us + SILENCE_US;
        progress->rank = 0;
        progress->next = LH_LIST_FIRST(struct lh_teller, &progress->tellers, link);
    }
    for (int i = 0; i < SWEEP_TURN_MAX && progress->next != NULL; i++) {
        struct lh_link *next = progress->next->link.next;
        visit(c, progress, progress->next);
        progress->next = next == &progress->tellers ? NULL : LH_CONTAINER(struct lh_teller, link, next);
    }
    if (progress->next != NULL)
        lh_heap_set(&c->timers, &progress->timer, c->now_us + 1); /* the next loop turn */
    else
        sweep_by(c, progress, progress->has_changed ? c->now_us : progress->due_us);
}

/* --- telling, at the end of a turn --- */

static void tell(struct lh_coordinator *c, struct lh_progress *progress, struct lh_teller *teller)
{
    struct lh_contention contention = {.has_holder = progress->has_holder,
                                       .waiters_ahead = place_of(progress, teller, -1)};
    int64_t passed_us = c->now_us - progress->known_us;

    if (progress->has_holder) {
        contention.holder = progress->holder;
        contention.holder.remaining_us -= passed_us;
        contention.holder.held_us += passed_us;
        contention.holder.silent_us += passed_us;
    }
    teller->told_us = c->now_us;
    teller->told_place = contention.waiters_ahead;
    teller->told_token = progress->has_holder ? progress->holder.token : 0;
    sweep_by(c, progress, c->now_us + SILENCE_US);
    teller->request->on_progress(teller->request, &contention);
}

void lh_progress_deliver(struct lh_coordinator *c)
{
    while (!lh_list_is_empty(&c->telling)) {
        struct lh_teller *teller = LH_LIST_FIRST(struct lh_teller, &c->telling, telling);
        lh_list_remove(&teller->telling);
        if (teller->request->own.verdict == LH_OK)
            tell(c, teller->request->own.waiter->scope->progress, teller);
    }
}
