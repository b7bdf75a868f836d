/*
 * Heartbeat, release and downgrade, the operations of a holder: they have no queue. Each item waits in its scope for a
 * lane and is retried while the row is busy or the database away, for busy_limit at most; then it is RETRY. Items and
 * their memory are the callers'.
 */
#include <stdlib.h>
#include <string.h>

#include "lease/hooks_internal.h"

/* The store's words live until its callback returns; the request may be answered later. */
struct lh_holder_message {
    struct lh_holder_message *next;
    char text[];
};

static struct lh_link *list_of(struct lh_scope *scope, enum lh_kind kind)
{
    if (kind == LH_KIND_DOWNGRADE)
        return &scope->downgrades;
    return kind == LH_KIND_HEARTBEAT ? &scope->heartbeats : &scope->releases;
}

static const char *keep(struct lh_holder_request *request, const char *words)
{
    size_t size = words == NULL ? 0 : strlen(words) + 1;
    struct lh_holder_message *message;

    if (words == NULL)
        return NULL;
    message = lh_alloc(sizeof(*message) + size);
    message->next = request->own.messages;
    request->own.messages = message;
    return memcpy(message->text, words, size);
}

static void close_one(struct lh_coordinator *c, struct lh_holder_request *request)
{
    if (--request->own.open == 0)
        lh_list_append(&c->holder_ops.done, &request->own.link);
}

static void finish(struct lh_coordinator *c, struct lh_holder_entry *entry, const char *message)
{
    entry->item.message = keep(entry->own.request, message);
    c->pending--;
    close_one(c, entry->own.request);
}

static void answer_retry(struct lh_coordinator *c, struct lh_holder_entry *entry, const char *message)
{
    lh_list_remove(&entry->own.link);
    entry->item.outcome = LH_OUTCOME_RETRY;
    entry->item.end_reason = LH_END_UNSPECIFIED;
    finish(c, entry, message);
}

/* --- requests --- */

static void add(struct lh_coordinator *c, struct lh_holder_request *request, struct lh_holder_entry *entry,
                enum lh_kind kind)
{
    struct lh_scope *scope = lh_scope_get(c, entry->item.ns, entry->item.key);

    request->own.open++;
    c->pending++;
    memset(&entry->own, 0, sizeof(entry->own));
    entry->own.scope = scope;
    entry->own.request = request;
    entry->own.arrived_us = c->now_us;
    if (lh_hook_queue_refuse(c, scope->ns, kind))
        answer_retry(c, entry, "too many leases wait for their hooks");
    else
        lh_list_append(list_of(scope, kind), &entry->own.link);
    lh_scope_schedule_or_free(c, scope);
}

static enum lh_status submit(struct lh_coordinator *c, struct lh_holder_request *request, enum lh_kind kind)
{
    if (lh_readiness_of_life(c) != LH_OK)
        return lh_readiness_of_life(c);
    /* Promise 12: bounded. An empty coordinator takes even a request that is larger than the bound: it could never be sent else. */
    if (c->pending > 0 && c->pending + request->count > c->options.max_pending) {
        c->stats.refused++;
        return LH_OVERLOADED;
    }
    lh_turn_begin(c);
    memset(&request->own, 0, sizeof(request->own));
    request->batch = (struct lh_batch_record){0};
    request->own.open = 1; /* until all of them have their places */
    for (size_t i = 0; i < request->count; i++)
        if (!request->items[i].skip)
            add(c, request, &request->items[i], kind);
    close_one(c, request);
    lh_turn_end_call(c);
    return LH_OK;
}

void lh_holder_op_deliver(struct lh_coordinator *c)
{
    while (!lh_list_is_empty(&c->holder_ops.done)) {
        struct lh_holder_request *request = LH_LIST_FIRST(struct lh_holder_request, &c->holder_ops.done, own.link);
        struct lh_holder_message *messages = request->own.messages;

        lh_list_remove(&request->own.link);
        request->on_done(request); /* it may be gone then */
        while (messages != NULL) {
            struct lh_holder_message *next = messages->next;
            free(messages);
            messages = next;
        }
    }
}

/* --- batches --- */

static struct lh_holder_entry *first(const struct lh_scope *scope, enum lh_kind kind)
{
    const struct lh_link *list = list_of((struct lh_scope *)scope, kind);
    return LH_LIST_FIRST(struct lh_holder_entry, list, own.link);
}

static int64_t oldest_us(const struct lh_scope *scope, enum lh_kind kind)
{
    const struct lh_holder_entry *entry = first(scope, kind);
    return entry == NULL ? LH_NEVER : entry->own.arrived_us;
}

static void take(struct lh_lane *lane, struct lh_scope *scope, size_t room)
{
    struct lh_holder_entry *entry;

    for (; room > 0 && (entry = first(scope, lane->kind)) != NULL; room--) {
        lh_list_remove(&entry->own.link);
        entry->item.hook_timeout_us = lane->hook_timeout_us;
        lane->items[lane->n++] = &entry->item;
        scope->in_flight++;
    }
}

static void retry_until(struct lh_coordinator *c, struct lh_scope *scope, enum lh_kind kind, int64_t arrived_us)
{
    struct lh_holder_entry *entry;

    while ((entry = first(scope, kind)) != NULL && entry->own.arrived_us <= arrived_us)
        answer_retry(c, entry, lh_hook_queue_trouble(c, scope, kind));
}

/* The database tells the end, not the words. */
static const char *lost_words(enum lh_end_reason reason)
{
    switch (reason) {
    case LH_END_RELEASED:
    case LH_END_FAILED:
        return "it was released under its lease key";
    case LH_END_EXPIRED:
        return "it expired: the server got no renewal in time";
    case LH_END_FORCED:
        return "an administrator ended it";
    case LH_END_MAX_HOLD:
        return "the policy of its namespace ended it at max_hold";
    default:
        return "the server does not know this lease any more, nor how it ended";
    }
}

static bool is_lost(enum lh_status status)
{
    return status == LH_DATABASE_UNAVAILABLE || status == LH_CANCELED;
}

/* Nothing was done. Until it has had its time it goes back to its place: batches are put back from the end. */
static void go_back_or_retry(struct lh_coordinator *c, struct lh_holder_entry *entry, enum lh_kind kind)
{
    if (c->now_us - entry->own.arrived_us >= c->options.busy_limit_us)
        answer_retry(c, entry, lh_hook_queue_trouble(c, entry->own.scope, kind));
    else
        lh_list_prepend(list_of(entry->own.scope, kind), &entry->own.link);
}

static void on_heartbeat(struct lh_coordinator *c, struct lh_holder_entry *entry)
{
    const struct lh_holder_item *item = &entry->item;

    if (item->outcome == LH_OUTCOME_OK) {
        c->stats.heartbeats++;
        lh_scope_learn_heartbeat(c, entry->own.scope, item->remaining_us);
    } else if (item->outcome == LH_OUTCOME_LOST && item->end_reason < LH_END_REASONS) {
        c->stats.losses[item->end_reason]++;
    }
}

static void on_downgrade(struct lh_coordinator *c, struct lh_holder_entry *entry)
{
    if (entry->item.outcome == LH_OUTCOME_OK) {
        c->stats.downgrades++;
        lh_scope_learn_grant(c, entry->own.scope, &entry->item.downgrade->lease, 0);
    }
    if (entry->item.wake)
        lh_scope_wake(c, entry->own.scope);
}

/* One whose reply was lost was sent again: if the lease was released already, the first sending did it. */
static void on_release(struct lh_coordinator *c, struct lh_holder_entry *entry)
{
    struct lh_holder_item *item = &entry->item;

    if (entry->own.is_unknown && item->outcome == LH_OUTCOME_LOST &&
        (item->end_reason == LH_END_RELEASED || item->end_reason == LH_END_FAILED)) {
        item->outcome = LH_OUTCOME_OK; /* its own doing */
        item->end_reason = LH_END_UNSPECIFIED;
        item->message = NULL;
    }
    if (item->outcome == LH_OUTCOME_OK) {
        c->stats.releases++;
        /* Behind one of several, what is known of the others stays. */
        if (!entry->own.scope->is_shared)
            lh_scope_learn_holder(c, entry->own.scope, NULL, 0);
    }
    if (item->wake && !entry->own.scope->has_rider)
        lh_scope_wake(c, entry->own.scope);
}

static void on_answer(struct lh_lane *lane, struct lh_holder_entry *entry)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_holder_item *item = &entry->item;

    if (item->outcome == LH_OUTCOME_REJECTED)
        lh_hook_queue_on_rejected(c, lane->kind, item->message);
    if (item->outcome == LH_OUTCOME_LOST && item->message == NULL)
        item->message = lost_words(item->end_reason);
    if (lane->kind == LH_KIND_HEARTBEAT)
        on_heartbeat(c, entry);
    else if (lane->kind == LH_KIND_DOWNGRADE)
        on_downgrade(c, entry);
    else
        on_release(c, entry);
    entry->own.request->batch = c->lanes.record;
    finish(c, entry, item->message);
}

/* What it did may have made room for a waiter here, and the lost reply said so. */
static void on_lost(const struct lh_lane *lane, struct lh_holder_entry *entry)
{
    if (lane->kind == LH_KIND_HEARTBEAT)
        return;
    entry->own.is_unknown |= lane->is_sent;
    if (!lh_list_is_empty(&entry->own.scope->queue))
        entry->own.scope->wake_when_answered = true;
}

static void on_item_done(struct lh_lane *lane, struct lh_holder_entry *entry, enum lh_status status,
                         const struct lh_error *error)
{
    struct lh_coordinator *c = lane->coordinator;
    struct lh_holder_item *item = &entry->item;
    struct lh_scope *scope = entry->own.scope;

    if (status == LH_OK && item->is_hooked && lh_hook_queue_learn(lane, scope, lane->kind, item->hook_timeout_us)) {
        lh_list_prepend(list_of(scope, lane->kind), &entry->own.link); /* it keeps its place */
    } else if (status == LH_OK && !item->is_busy && !item->is_hooked) {
        on_answer(lane, entry);
    } else if (status == LH_OK) {
        scope->trouble = LH_SCOPE_BUSY;
        c->stats.busy++;
        go_back_or_retry(c, entry, lane->kind);
    } else if (is_lost(status)) {
        on_lost(lane, entry);
        go_back_or_retry(c, entry, lane->kind);
    } else {
        answer_retry(c, entry, error != NULL ? error->message : NULL);
    }
    lh_scope_item_done(c, scope, lane->kind);
}

static void on_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error)
{
    for (size_t i = lane->n; i-- > 0;)
        on_item_done(lane, LH_CONTAINER(struct lh_holder_entry, item, lane->items[i]), status, error);
}

/* --- the operations --- */

enum lh_status lh_coordinator_heartbeat(struct lh_coordinator *c, struct lh_holder_request *request)
{
    return submit(c, request, LH_KIND_HEARTBEAT);
}

enum lh_status lh_coordinator_downgrade(struct lh_coordinator *c, struct lh_holder_request *request)
{
    return submit(c, request, LH_KIND_DOWNGRADE);
}

enum lh_status lh_coordinator_release(struct lh_coordinator *c, struct lh_holder_request *request)
{
    return submit(c, request, LH_KIND_RELEASE);
}

/* The first waiters of their scopes ride along in the same transaction. */
static void take_releases(struct lh_lane *lane, struct lh_scope *scope, size_t room)
{
    take(lane, scope, room);
    lh_acquire_ride(lane, scope);
}

static void on_releases_done(struct lh_lane *lane, enum lh_status status, const struct lh_error *error)
{
    on_done(lane, status, error);
    lh_acquire_on_riders_done(lane, status, error);
}

#define HOLDER_ROW .oldest_us = oldest_us, .retry_until = retry_until

const struct lh_operation lh_heartbeat_operation = {HOLDER_ROW, .name = "heartbeat", .take = take, .on_done = on_done};

const struct lh_operation lh_downgrade_operation = {HOLDER_ROW, .name = "downgrade", .take = take, .on_done = on_done};

const struct lh_operation lh_release_operation = {HOLDER_ROW, .name = "release", .take = take_releases,
                                                  .on_done = on_releases_done};
