/*
 * Heartbeats and releases: no queue, no waiting. Each item waits in its scope for a lane, is retried while the row is
 * busy or the database away, for busy_limit at most, and is RETRY after that. A release whose reply was lost is sent
 * again; that it was released already is then its own doing. The items are the callers', and so is the memory.
 */
#include <stdlib.h>

#include "base/log.h"
#include "lease/hooked.h"
#include "lease/lane.h"

#define HEARTBEAT_OF(l) LH_CONTAINER(struct lh_heartbeat, own.link, l)
#define RELEASE_OF(l) LH_CONTAINER(struct lh_release, own.link, l)

int64_t lh_direct_oldest_us(const struct lh_link *list, enum lh_kind kind)
{
    if (lh_list_is_empty(list))
        return LH_NEVER;
    return kind == LH_KIND_HEARTBEAT ? HEARTBEAT_OF(list->next)->own.arrived_us
                                     : RELEASE_OF(list->next)->own.arrived_us;
}

static const char full_words[] = "too many leases wait for their hooks";

/* The store's words live until its callback returns; the request may be answered later. */
static const char *keep(const char *message)
{
    return message == NULL ? NULL : lh_strdup(message);
}

static void finish_heartbeat(struct lh_coordinator *c, struct lh_heartbeat *heartbeat, const char *message)
{
    struct lh_heartbeat_request *request = heartbeat->own.request;
    heartbeat->item.message = keep(message);
    c->pending--;
    if (--request->open == 0)
        lh_list_append(&c->heartbeats_done, &request->link);
}

static void finish_release(struct lh_coordinator *c, struct lh_release *release, const char *message)
{
    struct lh_release_request *request = release->own.request;
    release->item.message = keep(message);
    c->pending--;
    if (--request->open == 0)
        lh_list_append(&c->releases_done, &request->link);
}

static void retry_heartbeat(struct lh_coordinator *c, struct lh_heartbeat *heartbeat, const char *message)
{
    lh_list_remove(&heartbeat->own.link);
    heartbeat->item.outcome = LH_OUTCOME_RETRY;
    heartbeat->item.end_reason = LH_END_UNSPECIFIED;
    finish_heartbeat(c, heartbeat, message);
}

static void retry_release(struct lh_coordinator *c, struct lh_release *release, const char *message)
{
    lh_list_remove(&release->own.link);
    release->item.outcome = LH_OUTCOME_RETRY;
    release->item.end_reason = LH_END_UNSPECIFIED;
    finish_release(c, release, message);
}

static enum lh_status admit(struct lh_coordinator *c, size_t count)
{
    if (c->state != LH_CORE_RUNNING)
        return LH_SHUTTING_DOWN;
    /* An empty coordinator takes even a request that is larger than the bound: it could never be sent else. */
    if (c->pending > 0 && c->pending + count > c->options.max_pending) {
        c->stats.refused++;
        return LH_OVERLOADED;
    }
    return LH_OK;
}

enum lh_status lh_coordinator_heartbeat(struct lh_coordinator *c, struct lh_heartbeat_request *request)
{
    enum lh_status status = admit(c, request->count);
    if (status != LH_OK)
        return status;

    lh_turn_begin(c);
    request->open = 1; /* until all of them have their places */
    request->link = (struct lh_link){0};
    for (size_t i = 0; i < request->count; i++) {
        struct lh_heartbeat *heartbeat = &request->items[i];
        if (heartbeat->skip)
            continue;
        request->open++;
        c->pending++;
        struct lh_scope *scope = lh_scope_get(c, heartbeat->item.ns, heartbeat->item.key);
        heartbeat->own = (struct lh_op_own){.scope = scope, .request = request, .arrived_us = c->now_us};
        if (lh_hooks_refuse(c, scope->ns, LH_KIND_HEARTBEAT))
            retry_heartbeat(c, heartbeat, full_words);
        else
            lh_list_append(&scope->heartbeats, &heartbeat->own.link);
        lh_scope_settle(c, scope);
    }
    if (--request->open == 0)
        lh_list_append(&c->heartbeats_done, &request->link);
    lh_turn_end_call(c);
    return LH_OK;
}

enum lh_status lh_coordinator_release(struct lh_coordinator *c, struct lh_release_request *request)
{
    enum lh_status status = admit(c, request->count);
    if (status != LH_OK)
        return status;

    lh_turn_begin(c);
    request->open = 1; /* until all of them have their places */
    request->link = (struct lh_link){0};
    for (size_t i = 0; i < request->count; i++) {
        struct lh_release *release = &request->items[i];
        if (release->skip)
            continue;
        request->open++;
        c->pending++;
        struct lh_scope *scope = lh_scope_get(c, release->item.ns, release->item.key);
        release->own = (struct lh_op_own){.scope = scope, .request = request, .arrived_us = c->now_us};
        if (lh_hooks_refuse(c, scope->ns, LH_KIND_RELEASE))
            retry_release(c, release, full_words);
        else
            lh_list_append(&scope->releases, &release->own.link);
        lh_scope_settle(c, scope);
    }
    if (--request->open == 0)
        lh_list_append(&c->releases_done, &request->link);
    lh_turn_end_call(c);
    return LH_OK;
}

void lh_direct_take(struct lh_lane *lane, struct lh_scope *scope, size_t room)
{
    bool is_heartbeat = lane->kind == LH_KIND_HEARTBEAT;
    struct lh_link *list = is_heartbeat ? &scope->heartbeats : &scope->releases;
    for (; room > 0 && !lh_list_is_empty(list); room--) {
        struct lh_link *link = list->next;
        lh_list_remove(link);
        lane->items[lane->n++] = is_heartbeat ? (void *)&HEARTBEAT_OF(link)->item : (void *)&RELEASE_OF(link)->item;
        scope->in_flight++;
    }
}

void lh_direct_expire(struct lh_coordinator *c, struct lh_scope *scope)
{
    int64_t limit_us = c->now_us - c->options.busy_limit_us;
    if (lh_scope_is_stuck(c, scope, LH_KIND_HEARTBEAT)) {
        while (lh_direct_oldest_us(&scope->heartbeats, LH_KIND_HEARTBEAT) <= limit_us)
            retry_heartbeat(c, HEARTBEAT_OF(scope->heartbeats.next), NULL);
    }
    if (lh_scope_is_stuck(c, scope, LH_KIND_RELEASE)) {
        while (lh_direct_oldest_us(&scope->releases, LH_KIND_RELEASE) <= limit_us)
            retry_release(c, RELEASE_OF(scope->releases.next), NULL);
    }
}

void lh_direct_drop(struct lh_coordinator *c, struct lh_scope *scope)
{
    while (!lh_list_is_empty(&scope->heartbeats))
        retry_heartbeat(c, HEARTBEAT_OF(scope->heartbeats.next), NULL);
    while (!lh_list_is_empty(&scope->releases))
        retry_release(c, RELEASE_OF(scope->releases.next), NULL);
}

/* Has it had its time? If not it goes back to its place, in order of arrival: batches are put back from the end. */
static bool goes_back(const struct lh_coordinator *c, struct lh_op_own *own, struct lh_link *list)
{
    if (c->now_us - own->arrived_us >= c->options.busy_limit_us)
        return false;
    lh_list_prepend(list, &own->link);
    return true;
}

static bool is_lost(enum lh_status status)
{
    return status == LH_DATABASE_UNAVAILABLE || status == LH_CANCELED;
}

static void note_loss(const struct lh_lane *lane, struct lh_scope *scope, enum lh_status status)
{
    if (lane->space != NULL && lane->is_sent && is_lost(status))
        scope->hook_losses = scope->hook_losses == 0 ? 1 : scope->hook_losses;
    else if (lane->space != NULL && status == LH_OK)
        scope->hook_losses = 0;
}

static void answer_heartbeat(struct lh_coordinator *c, struct lh_heartbeat *heartbeat)
{
    struct lh_heartbeat_item *item = &heartbeat->item;
    if (item->outcome == LH_OUTCOME_OK) {
        c->stats.heartbeats++;
        lh_scope_learn_heartbeat(c, heartbeat->own.scope, item->remaining_us);
    } else if (item->outcome == LH_OUTCOME_LOST && item->end_reason <= LH_END_UNKNOWN) {
        c->stats.losses[item->end_reason]++;
    } else if (item->outcome == LH_OUTCOME_REJECTED) {
        lh_hooks_on_rejected(c, LH_KIND_HEARTBEAT, item->message);
    }
    finish_heartbeat(c, heartbeat, item->message);
}

void lh_heartbeats_on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = lane->coordinator;
    for (size_t i = lane->n; i-- > 0;) {
        struct lh_heartbeat *heartbeat = LH_CONTAINER(struct lh_heartbeat, item, lane->items[i]);
        struct lh_scope *scope = heartbeat->own.scope;
        note_loss(lane, scope, status);
        if (status == LH_OK && heartbeat->item.is_hooked &&
            lh_hooks_learn(lane, scope, LH_KIND_HEARTBEAT, heartbeat->item.hook_timeout_us)) {
            lh_list_prepend(&scope->heartbeats, &heartbeat->own.link); /* it keeps its place */
        } else if (status == LH_OK && !heartbeat->item.is_busy && !heartbeat->item.is_hooked) {
            answer_heartbeat(c, heartbeat);
        } else if (status == LH_OK || is_lost(status)) {
            scope->saw_busy = scope->saw_busy || status == LH_OK;
            c->stats.busy += status == LH_OK;
            if (!goes_back(c, &heartbeat->own, &scope->heartbeats))
                retry_heartbeat(c, heartbeat, NULL);
        } else {
            retry_heartbeat(c, heartbeat, error != NULL ? error->message : NULL);
        }
        lh_scope_item_done(c, scope, LH_KIND_HEARTBEAT);
    }
}

static void answer_release(struct lh_coordinator *c, struct lh_release *release)
{
    struct lh_release_item *item = &release->item;
    bool is_own_doing = release->own.is_unknown && item->outcome == LH_OUTCOME_LOST &&
                        (item->end_reason == LH_END_RELEASED || item->end_reason == LH_END_FAILED);
    if (is_own_doing) {
        item->outcome = LH_OUTCOME_OK;
        item->end_reason = LH_END_UNSPECIFIED;
    }
    if (item->outcome == LH_OUTCOME_OK) {
        c->stats.releases++;
        lh_scope_learn_holder(c, release->own.scope, NULL);
    } else if (item->outcome == LH_OUTCOME_REJECTED) {
        lh_hooks_on_rejected(c, LH_KIND_RELEASE, item->message);
    }
    if (item->wake && !release->own.scope->has_rider)
        lh_scope_wake(c, release->own.scope);
    finish_release(c, release, is_own_doing ? NULL : item->message);
}

void lh_releases_on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error)
{
    struct lh_coordinator *c = lane->coordinator;
    for (size_t i = lane->n; i-- > 0;) {
        struct lh_release *release = LH_CONTAINER(struct lh_release, item, lane->items[i]);
        struct lh_scope *scope = release->own.scope;
        note_loss(lane, scope, status);
        if (status == LH_OK && release->item.is_hooked &&
            lh_hooks_learn(lane, scope, LH_KIND_RELEASE, release->item.hook_timeout_us)) {
            lh_list_prepend(&scope->releases, &release->own.link);
        } else if (status == LH_OK && !release->item.is_busy && !release->item.is_hooked) {
            answer_release(c, release);
        } else if (status == LH_OK || is_lost(status)) {
            scope->saw_busy = scope->saw_busy || status == LH_OK;
            c->stats.busy += status == LH_OK;
            release->own.is_unknown = release->own.is_unknown || (is_lost(status) && lane->is_sent);
            if (is_lost(status) && !lh_list_is_empty(&scope->queue))
                scope->wake_again = true; /* the reply may have said so */
            if (!goes_back(c, &release->own, &scope->releases))
                retry_release(c, release, NULL);
        } else {
            retry_release(c, release, error != NULL ? error->message : NULL);
        }
        lh_scope_item_done(c, scope, LH_KIND_RELEASE);
    }
    lh_asking_on_riders_done(lane, status, error);
}

/* on_done may free the request, so what is freed after it is noted before. */
#define DELIVER(request)                                                                                               \
    do {                                                                                                               \
        const char *few[8];                                                                                            \
        const char **kept = few;                                                                                       \
        size_t n = 0;                                                                                                  \
        for (size_t i = 0; i < (request)->count; i++)                                                                  \
            n += !(request)->items[i].skip && (request)->items[i].item.message != NULL;                                \
        if (n > sizeof(few) / sizeof(few[0]))                                                                          \
            kept = lh_alloc(n * sizeof(kept[0]));                                                                      \
        n = 0;                                                                                                         \
        for (size_t i = 0; i < (request)->count; i++) {                                                                \
            if (!(request)->items[i].skip && (request)->items[i].item.message != NULL)                                 \
                kept[n++] = (request)->items[i].item.message;                                                          \
        }                                                                                                              \
        (request)->on_done(request);                                                                                   \
        while (n > 0)                                                                                                  \
            free((void *)(uintptr_t)kept[--n]);                                                                        \
        if (kept != few)                                                                                               \
            free(kept);                                                                                                \
    } while (0)

void lh_direct_deliver(struct lh_coordinator *c)
{
    while (!lh_list_is_empty(&c->heartbeats_done)) {
        struct lh_heartbeat_request *request = LH_LIST_FIRST(struct lh_heartbeat_request, &c->heartbeats_done, link);
        lh_list_remove(&request->link);
        DELIVER(request);
    }
    while (!lh_list_is_empty(&c->releases_done)) {
        struct lh_release_request *request = LH_LIST_FIRST(struct lh_release_request, &c->releases_done, link);
        lh_list_remove(&request->link);
        DELIVER(request);
    }
}
