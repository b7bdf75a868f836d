/*
 * Random interleavings of several coordinators on one fake database. Each seed is one history: arrivals, cancels,
 * repeats with the same lease key, heartbeats, releases, holders that die, rows that are busy, replies and
 * notifications that get lost, outages, coordinators that stop or are killed; in some, hooks that come and go, refuse,
 * take their time, or break their connection. Checked at every step: one holder, tokens
 * that grow, no request answered twice or inside a call, first come first served, no live waiter forgotten while its
 * scope is free; and at the end: every request answered, nothing left.
 *
 * LH_SEED=n replays one seed (LH_TRACE=1: with what the core did), LH_SEEDS=n runs that many.
 */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fake_rules.h"

#define CALLS_MAX 700
#define HOLDS_MAX 500
#define SCOPES 3
#define STALL_US (3 * LH_US_PER_S)
#define STRICT_STALL_US (300 * LH_US_PER_MS)

struct call {
    struct lh_acquire acquire;
    char *owner;
    struct fake_node *node;
    int scope;
    int64_t sent_us;
    int answers;
    bool is_cancelled;
    bool is_repeat; /* its lease key was used before */
    bool is_split;  /* its lease key is out at two coordinators, so its place moves */
    bool is_lost;   /* its coordinator was killed */
};

struct hold {
    int scope;
    struct lh_uuid lease_key;
    int64_t token;
    int64_t until_us;
    int64_t duration_us;
    bool is_released;
    bool may_be_lost; /* a repeat of it was cancelled while replies got lost: its outcome was unknown */
    struct fake_node *node;
    struct lh_heartbeat_request heartbeat;
    struct lh_heartbeat heartbeat_item;
    struct lh_release_request release;
    struct lh_release release_item;
    int64_t heartbeat_sent_us;
    bool is_beating;
    bool is_releasing;
    int heartbeats_left;
    bool dies;
};

static struct {
    struct fake_world world;
    uint64_t seed;
    struct call *calls;
    int call_count;
    struct hold *holds;
    int hold_count;
    int64_t last_token[SCOPES];
    bool has_faults; /* replies get lost, lanes go down, coordinators die */
    bool is_strict;  /* no safety net: a lost wake-up stays lost */
    bool has_hooks;  /* at some time */
    bool is_healing;
    int64_t quiet_since_us; /* no failing batch since */
    int calling;
    int open;
    uint64_t next_key;
    struct lh_coordinator_options options;
} t;

void fake_fail(const char *format, ...)
{
    va_list args;
    fprintf(stderr, "seed %llu at %.6f s: ", (unsigned long long)t.seed,
            (double)(t.world.now_us - 1000 * LH_US_PER_S) / 1e6);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    abort();
}

static void begin_call(struct fake_node *node, int scope, const struct lh_uuid *lease_key, bool is_repeat);

static struct fake_node *any_node(void)
{
    struct fake_node *found = NULL;
    int seen = 0;
    for (int i = 0; i < t.world.node_count; i++) {
        struct fake_node *node = t.world.nodes[i];
        if (!node->is_gone && !node->is_leaving && fake_below(&t.world, ++seen) == 0)
            found = node;
    }
    return found;
}

static struct call *any_open_call(void)
{
    struct call *found = NULL;
    int seen = 0;
    for (int i = t.call_count - 1; i >= 0 && i > t.call_count - 100; i--) {
        struct call *call = &t.calls[i];
        if (call->answers == 0 && !call->is_lost && !call->is_cancelled && fake_below(&t.world, ++seen) == 0)
            found = call;
    }
    return found;
}

static struct hold *find_hold(int scope, const struct lh_uuid *lease_key)
{
    for (int i = t.hold_count - 1; i >= 0; i--) {
        if (t.holds[i].scope == scope && lh_uuid_equal(&t.holds[i].lease_key, lease_key))
            return &t.holds[i];
    }
    return NULL;
}

/* --- holders --- */

static void schedule_holder(struct hold *hold);

static void on_heartbeat_done(struct lh_heartbeat_request *request)
{
    struct hold *hold = request->arg;
    const struct lh_heartbeat_item *item = &request->items[0].item;
    if (t.calling > 0)
        fake_fail("a heartbeat was answered inside a call");
    if (!hold->is_beating)
        fake_fail("a heartbeat was answered twice");
    hold->is_beating = false;
    t.open--;
    if (item->outcome == LH_OUTCOME_OK) {
        int64_t until_us = hold->heartbeat_sent_us + item->remaining_us;
        hold->until_us = until_us > hold->until_us ? until_us : hold->until_us;
    } else if (item->outcome == LH_OUTCOME_LOST && hold->until_us > t.world.now_us && !hold->is_released &&
               !hold->may_be_lost) {
        fake_fail("a live holder of k%d lost its lease: end reason %d", hold->scope, item->end_reason);
    }
    schedule_holder(hold);
}

static void beat(struct hold *hold, struct fake_node *node)
{
    hold->heartbeat_item = (struct lh_heartbeat){.item = {.ns = t.world.scopes[hold->scope].ns,
                                                          .key = t.world.scopes[hold->scope].key,
                                                          .lease_key = hold->lease_key}};
    hold->heartbeat = (struct lh_heartbeat_request){
        .items = &hold->heartbeat_item, .count = 1, .on_done = on_heartbeat_done, .arg = hold};
    hold->heartbeat_sent_us = t.world.now_us;
    hold->node = node;
    t.calling++;
    enum lh_status status = lh_coordinator_heartbeat(node->coordinator, &hold->heartbeat);
    t.calling--;
    hold->is_beating = status == LH_OK;
    t.open += status == LH_OK;
}

static void on_release_done(struct lh_release_request *request)
{
    struct hold *hold = request->arg;
    const struct lh_release_item *item = &request->items[0].item;
    if (t.calling > 0)
        fake_fail("a release was answered inside a call");
    if (!hold->is_releasing)
        fake_fail("a release was answered twice");
    hold->is_releasing = false;
    t.open--;
    if (item->outcome == LH_OUTCOME_LOST && hold->until_us > t.world.now_us && !hold->may_be_lost)
        fake_fail("a live holder of k%d could not release: end reason %d", hold->scope, item->end_reason);
    if (item->outcome == LH_OUTCOME_REJECTED && !t.has_hooks)
        fake_fail("a release was refused by nobody");
    if (item->outcome == LH_OUTCOME_RETRY)
        schedule_holder(hold);
}

static void give_back(struct hold *hold, struct fake_node *node)
{
    hold->release_item = (struct lh_release){.item = {.ns = t.world.scopes[hold->scope].ns,
                                                      .key = t.world.scopes[hold->scope].key,
                                                      .lease_key = hold->lease_key,
                                                      .is_failure = fake_below(&t.world, 4) == 0,
                                                      .value = NULL}};
    hold->release =
        (struct lh_release_request){.items = &hold->release_item, .count = 1, .on_done = on_release_done, .arg = hold};
    hold->node = node;
    /* The outcome of an earlier attempt that ended as RETRY is unknown, so a repeat may be LOST. */
    hold->may_be_lost = hold->may_be_lost || hold->is_released;
    hold->is_released = true;
    t.calling++;
    enum lh_status status = lh_coordinator_release(node->coordinator, &hold->release);
    t.calling--;
    hold->is_releasing = status == LH_OK;
    t.open += status == LH_OK;
}

static void on_holder_turn(struct fake_world *world, void *arg, uint64_t n)
{
    struct hold *hold = arg;
    struct fake_node *node = any_node();
    if (hold->is_beating || hold->is_releasing || hold->dies)
        return;
    if (node == NULL) {
        schedule_holder(hold);
        return;
    }
    if (hold->heartbeats_left-- > 0 && !hold->is_released)
        beat(hold, node);
    else
        give_back(hold, node);
    if (!hold->is_beating && !hold->is_releasing)
        schedule_holder(hold);
}

static void schedule_holder(struct hold *hold)
{
    int64_t delay_us = hold->heartbeats_left > 0 ? hold->duration_us / 3 : fake_below(&t.world, 200) * LH_US_PER_MS;
    if (hold->until_us < t.world.now_us)
        return; /* it knows that its time is over */
    fake_at(&t.world, t.world.now_us + delay_us, on_holder_turn, hold, 0);
}

static void check_one_holder(const struct hold *hold)
{
    for (int i = 0; i < t.hold_count; i++) {
        const struct hold *other = &t.holds[i];
        if (other != hold && other->scope == hold->scope && !other->is_released && !other->may_be_lost &&
            other->until_us > t.world.now_us)
            fake_fail("k%d has two holders: %d until %+lld us, and %d", hold->scope, (int)other->lease_key.bytes[0],
                      (long long)(other->until_us - t.world.now_us), (int)hold->lease_key.bytes[0]);
    }
}

/* On one coordinator nobody who came later, with a new lease key, is granted first. */
static void check_order(const struct call *granted)
{
    if (granted->is_repeat || granted->node->cleaned_at_us > t.world.now_us - 20 * LH_US_PER_S)
        return;
    for (int i = 0; i < t.call_count; i++) {
        const struct call *other = &t.calls[i];
        const struct lh_acquire *acquire = &other->acquire;
        if (other->node != granted->node || other->scope != granted->scope || other->answers > 0 ||
            other->is_cancelled || other->is_repeat || other->sent_us >= granted->sent_us ||
            acquire->wait == LH_WAIT_NONE || acquire->own.verdict != LH_OK || acquire->own.is_answering)
            continue;
        fake_fail("call %d overtook call %d on k%d", (int)(granted - t.calls), i, granted->scope);
    }
}

static void hold_lease(const struct call *call, const struct lh_acquire_result *result)
{
    struct hold *hold = find_hold(call->scope, &call->acquire.lease_key);
    int64_t until_us = call->sent_us + result->waited_us + result->lease->remaining_us;
    int64_t *last_token = &t.last_token[call->scope];

    if (result->waited_us < 0 || result->waited_us > t.world.now_us - call->sent_us)
        fake_fail("waited %lld", (long long)result->waited_us);
    if (!lh_uuid_equal(&result->lease->lease_key, &call->acquire.lease_key))
        fake_fail("somebody else's lease");
    const struct fake_scope *scope = &t.world.scopes[call->scope];
    if (scope->is_held && lh_uuid_equal(&scope->lease_key, &call->acquire.lease_key) &&
        until_us > fake_deadline_us(scope))
        fake_fail("call %d believes in k%d for %lld us after its deadline", (int)(call - t.calls), call->scope,
                  (long long)(until_us - fake_deadline_us(scope)));
    if (hold != NULL) {
        /* Its own: it may have been released since, and the reply of who came next been faster. */
        if (result->lease->token != hold->token)
            fake_fail("a renewal of k%d came with another token", call->scope);
        hold->until_us = until_us > hold->until_us ? until_us : hold->until_us;
        return;
    }
    if (t.hold_count == HOLDS_MAX)
        return;
    hold = &t.holds[t.hold_count++];
    *hold = (struct hold){.scope = call->scope,
                          .lease_key = call->acquire.lease_key,
                          .token = result->lease->token,
                          .until_us = until_us,
                          .duration_us = call->acquire.duration_us};
    if (until_us > t.world.now_us)
        check_one_holder(hold);
    check_order(call);
    if (result->lease->token <= *last_token)
        fake_fail("token %lld of k%d after %lld", (long long)result->lease->token, call->scope, (long long)*last_token);
    *last_token = result->lease->token;
    hold->heartbeats_left = fake_below(&t.world, 3);
    hold->dies = fake_below(&t.world, 6) == 0;
    if (!hold->dies)
        schedule_holder(hold);
}

/* --- acquirers --- */

static void cancel(struct call *call)
{
    struct hold *hold = find_hold(call->scope, &call->acquire.lease_key);
    call->is_cancelled = true;
    if (hold != NULL && t.has_faults)
        hold->may_be_lost = true;
    for (int i = 0; i < t.call_count; i++) {
        /* Its repeats are on their own now; if a reply is lost nobody knows whose the lease is. */
        if (lh_uuid_equal(&t.calls[i].acquire.lease_key, &call->acquire.lease_key))
            t.calls[i].is_repeat = true;
    }
    t.calling++;
    lh_coordinator_cancel(call->node->coordinator, &call->acquire);
    t.calling--;
}

static bool may_come_back(enum lh_status status)
{
    return status == LH_BLOCKING_TIMEOUT || status == LH_DATABASE_UNAVAILABLE || status == LH_SHUTTING_DOWN;
}

static void on_acquired(struct lh_acquire *acquire, const struct lh_acquire_result *result)
{
    struct call *call = acquire->arg;
    if (t.calling > 0)
        fake_fail("an acquire was answered inside a call");
    if (++call->answers > 1)
        fake_fail("an acquire was answered twice");
    if (call->is_cancelled && result->status == LH_OK)
        fake_fail("a cancelled acquire was granted");
    t.open--;
    free(call->owner); /* the caller's again */
    call->owner = NULL;
    if (result->message != NULL && strlen(result->message) > 500)
        fake_fail("a message of great length");
    if (result->contention != NULL && result->contention->has_holder && result->contention->holder.owner[0] == 0)
        fake_fail("a holder without a name");
    if (result->status == LH_OK)
        hold_lease(call, result);
    else if (may_come_back(result->status) && fake_below(&t.world, 2) == 0 && any_node() != NULL)
        begin_call(any_node(), call->scope, &call->acquire.lease_key, true);

    struct call *other = any_open_call();
    if (fake_below(&t.world, 8) == 0 && other != NULL && !other->node->is_gone)
        cancel(other);
    if (fake_below(&t.world, 8) == 0 && any_node() != NULL)
        begin_call(any_node(), fake_below(&t.world, SCOPES), NULL, false);
}

static void begin_call(struct fake_node *node, int scope, const struct lh_uuid *lease_key, bool is_repeat)
{
    if (t.call_count == CALLS_MAX || t.is_healing)
        return;
    struct call *call = &t.calls[t.call_count];
    *call = (struct call){.node = node, .scope = scope, .sent_us = t.world.now_us, .is_repeat = is_repeat};
    call->owner = lh_strdup("worker");
    call->acquire = (struct lh_acquire){
        .ns = t.world.scopes[scope].ns,
        .key = t.world.scopes[scope].key,
        .owner = call->owner,
        .labels = "{}",
        .wait = (enum lh_wait)fake_below(&t.world, 4),
        .wait_us = fake_below(&t.world, 4) == 0 ? fake_below(&t.world, 5) * LH_US_PER_MS
                                                : fake_below(&t.world, 3000) * LH_US_PER_MS,
        .on_done = on_acquired,
        .arg = call,
    };
    if (lease_key != NULL) {
        call->acquire.lease_key = *lease_key;
    } else {
        t.next_key++;
        memcpy(call->acquire.lease_key.bytes, &t.next_key, sizeof(t.next_key));
    }
    /* The same for all with one lease key: a repeat takes the new duration, and would shorten what others believe. */
    call->acquire.duration_us = (500 + call->acquire.lease_key.bytes[0] * 37 % 1500) * LH_US_PER_MS;
    for (int i = 0; i < t.call_count && lease_key != NULL; i++) {
        if (lh_uuid_equal(&t.calls[i].acquire.lease_key, lease_key) && t.calls[i].node != node)
            t.calls[i].is_split = call->is_split = true;
    }
    t.calling++;
    enum lh_status status = lh_coordinator_acquire(node->coordinator, &call->acquire);
    t.calling--;
    if (status == LH_OK) {
        t.call_count++;
        t.open++;
    } else {
        free(call->owner);
    }
}

/* --- the hand of fate --- */

static void on_database_back(struct fake_world *world, void *arg, uint64_t n)
{
    fake_database_raise(world);
}

static void on_lane_back(struct fake_world *world, void *arg, uint64_t n)
{
    fake_lane_raise(arg, (unsigned)n);
}

static void on_control_back(struct fake_world *world, void *arg, uint64_t n)
{
    fake_control_raise(arg);
}

static void on_listener_back(struct fake_world *world, void *arg, uint64_t n)
{
    fake_listener_raise(arg);
}

static void on_failure_over(struct fake_world *world, void *arg, uint64_t n)
{
    world->fail_with = LH_OK;
    t.quiet_since_us = world->now_us;
}

static void lose_calls_of(const struct fake_node *node)
{
    for (int i = 0; i < t.call_count; i++) {
        if (t.calls[i].node == node && t.calls[i].answers == 0) {
            t.calls[i].is_lost = true;
            free(t.calls[i].owner);
            t.calls[i].owner = NULL;
            t.open--;
        }
    }
    for (int i = 0; i < t.hold_count; i++) {
        struct hold *hold = &t.holds[i];
        if (hold->node != node || (!hold->is_beating && !hold->is_releasing))
            continue;
        hold->is_beating = hold->is_releasing = false;
        t.open--;
        schedule_holder(hold);
    }
}

static void replace(struct fake_node *node, bool is_kill)
{
    if (node == NULL || t.world.node_count >= FAKE_NODES)
        return;
    if (is_kill) {
        fake_node_kill(node);
        lose_calls_of(node);
    } else {
        node->is_leaving = true;
        t.calling++;
        fake_node_stop(node);
        t.calling--;
    }
    fake_node_start(&t.world, &t.options);
}

static void strike(void)
{
    struct fake_world *world = &t.world;
    struct fake_node *node = any_node();
    int64_t later_us = world->now_us + (1 + fake_below(world, 400)) * LH_US_PER_MS;
    if (node == NULL)
        return;
    switch (fake_below(world, 12)) {
    case 0:
    case 1:
    case 2:
    case 3: {
        unsigned lane = (unsigned)fake_below(world, FAKE_LANES);
        fake_lane_drop(node, lane, fake_below(world, 2) == 0);
        fake_at(world, later_us, on_lane_back, node, lane);
        break;
    }
    case 4:
    case 5:
        fake_control_drop(node);
        fake_at(world, later_us + (fake_below(world, 4) == 0 ? 6 * LH_US_PER_S : 0), on_control_back, node, 0);
        break;
    case 6:
        fake_listener_drop(node);
        fake_at(world, later_us, on_listener_back, node, 0);
        break;
    case 7:
        fake_database_drop(world);
        if (fake_below(world, 2) == 0)
            fake_rows_lose(world, fake_below(world, 100));
        fake_at(world, later_us + (fake_below(world, 3) == 0 ? 3 * LH_US_PER_S : 0), on_database_back, NULL, 0);
        break;
    case 8:
        world->fail_with = LH_INTERNAL;
        fake_at(world, later_us, on_failure_over, NULL, 0);
        break;
    case 9:
        replace(node, true);
        break;
    case 10:
        replace(node, false);
        break;
    default:
        world->clock_offset_us += fake_below(world, 100);
        break;
    }
}

static void act(void)
{
    struct fake_world *world = &t.world;
    struct call *call;
    int what = fake_below(world, 100);

    if (what < 45) {
        if (any_node() != NULL)
            begin_call(any_node(), fake_below(world, SCOPES), NULL, false);
    } else if (what < 60) {
        call = any_open_call();
        if (call != NULL && !call->node->is_gone)
            cancel(call);
    } else if (what < 70) {
        call = any_open_call();
        if (call != NULL && !call->node->is_gone && !call->node->is_leaving) {
            call->is_repeat = true;
            begin_call(call->node, call->scope, &call->acquire.lease_key, true);
        }
    } else if (what < 80) {
        int64_t busy_us = fake_below(world, 10) == 0 ? 1500 * LH_US_PER_MS : fake_below(world, 80) * LH_US_PER_MS;
        world->scopes[fake_below(world, SCOPES)].busy_until_us = world->now_us + busy_us;
    } else if (what < 90 && t.has_faults) {
        strike();
    } else if (what >= 97 && t.has_hooks) {
        world->is_hooked = !world->is_hooked;
    }
}

/* A scope that is free, with a first waiter whose coordinator is well, does not stay so. */
static void check_stalls(void)
{
    for (int s = 0; s < SCOPES; s++) {
        struct fake_scope *scope = &t.world.scopes[s];
        const struct fake_row *head = fake_head(&t.world, scope);
        bool is_stalled = head != NULL && fake_is_free(&t.world, scope) && scope->busy_until_us <= t.world.now_us &&
                          t.world.fail_with == LH_OK && fake_node_is_healthy(t.world.nodes[head->node]);
        /* Without a net only a release is told at once; an expiry may have to wait for the reaper. */
        int64_t limit_us = t.is_strict && !scope->is_held ? STRICT_STALL_US : STALL_US;
        if (!is_stalled || scope->is_held != scope->stalled_while_held)
            scope->stalled_since_us = -1;
        else if (scope->stalled_since_us < 0)
            scope->stalled_since_us = t.world.now_us;
        else if (t.world.now_us - scope->stalled_since_us > limit_us)
            fake_fail("k%d is free since %lld us and its first waiter is not granted: key %d ticket %lld of node %d", s,
                      (long long)(t.world.now_us - scope->stalled_since_us), head->lease_key.bytes[0],
                      (long long)head->ticket, head->node);
        scope->stalled_while_held = scope->is_held;
    }
}

#define SETTLED_US (500 * LH_US_PER_MS)

static void note_health(void)
{
    for (int i = 0; i < t.world.node_count; i++) {
        struct fake_node *node = t.world.nodes[i];
        if (!fake_node_is_healthy(node) || node->is_leaving)
            node->well_since_us = -1;
        else if (node->well_since_us < 0)
            node->well_since_us = t.world.now_us;
    }
}

static bool is_settled(const struct fake_node *node, const struct fake_scope *scope)
{
    int64_t before_us = t.world.now_us - SETTLED_US;
    /* After errors the core takes its time, up to 10 s between two attempts. */
    return node->well_since_us >= 0 && node->well_since_us < before_us && scope->busy_until_us < before_us &&
           t.world.fail_with == LH_OK && t.quiet_since_us < t.world.now_us - 15 * LH_US_PER_S;
}

/* Whoever waits has a place in the queue, also after an outage that lost it. */
static void check_places(void)
{
    if (t.has_hooks)
        return; /* a hook may keep the lane for whoever comes */
    for (int i = 0; i < t.call_count; i++) {
        const struct call *call = &t.calls[i];
        const struct fake_scope *scope = &t.world.scopes[call->scope];
        if (call->answers > 0 || call->is_lost || call->is_split || call->is_cancelled ||
            call->acquire.wait == LH_WAIT_NONE || call->acquire.own.verdict != LH_OK ||
            call->sent_us > t.world.now_us - SETTLED_US || !is_settled(call->node, scope))
            continue;
        bool is_granted = scope->is_held && lh_uuid_equal(&scope->lease_key, &call->acquire.lease_key);
        if (!is_granted && fake_row(scope, &call->acquire.lease_key) == NULL)
            fake_fail("call %d (key %d) waits for k%d at node %d and has no place there", i,
                      call->acquire.lease_key.bytes[0], call->scope, call->node->index);
    }
}

/* Whoever holds a lease was told so, or will be, or was told to come back. */
static void check_owners(void)
{
    for (int s = 0; s < SCOPES; s++) {
        const struct fake_scope *scope = &t.world.scopes[s];
        if (!scope->is_held || scope->acquired_at_us > t.world.now_us - SETTLED_US ||
            !is_settled(t.world.nodes[scope->granted_by], scope) || find_hold(s, &scope->lease_key) != NULL)
            continue;
        bool has_owner = false;
        for (int i = 0; i < t.call_count && !has_owner; i++) {
            const struct call *call = &t.calls[i];
            if (call->scope == s && lh_uuid_equal(&call->acquire.lease_key, &scope->lease_key))
                has_owner = call->answers == 0 || call->is_lost || may_come_back(call->acquire.own.verdict) ||
                            (t.has_faults && call->acquire.own.verdict == LH_HOOK_REJECTED) ||
                            /* who leaves may wait long for a hook lane whose connection is broken again and again */
                            (t.has_faults && t.has_hooks && call->is_cancelled);
        }
        if (!has_owner)
            fake_fail("k%d is held by key %d, and nobody knows", s, scope->lease_key.bytes[0]);
    }
}

static void check_now_and_then(void)
{
    note_health();
    if (fake_below(&t.world, 8) == 0) {
        check_places();
        check_owners();
    }
}

static void run(int64_t duration_us)
{
    int64_t until_us = t.world.now_us + duration_us;
    while (fake_step(&t.world, until_us)) {
        check_stalls();
        check_now_and_then();
    }
    check_stalls();
}

static void heal(void)
{
    t.is_healing = true;
    t.world.fail_with = LH_OK;
    t.world.hook_reject_percent = t.world.hook_break_percent = 0;
    t.world.notify_loss_percent = t.is_strict ? 0 : 20;
    fake_database_raise(&t.world);
    for (int s = 0; s < SCOPES; s++)
        t.world.scopes[s].busy_until_us = t.world.now_us;
    for (int i = 0; i < 400 && t.open > 0; i++)
        run(LH_US_PER_S);
    for (int i = 0; i < t.call_count; i++) {
        if (t.calls[i].answers == 0 && !t.calls[i].is_lost)
            fake_fail("call %d on k%d was never answered: wait %d, state %d", i, t.calls[i].scope,
                      t.calls[i].acquire.wait, (int)t.calls[i].acquire.own.verdict);
    }
    if (t.open != 0)
        fake_fail("%d heartbeats or releases were never answered", t.open);
}

static void stop_all(void)
{
    for (int i = 0; i < t.world.node_count; i++) {
        struct fake_node *node = t.world.nodes[i];
        if (!node->is_gone && !node->is_leaving) {
            node->is_leaving = true;
            fake_node_stop(node);
        }
    }
    run(20 * LH_US_PER_S);
    for (int i = 0; i < t.world.node_count; i++) {
        if (!t.world.nodes[i]->has_stopped && t.world.nodes[i]->coordinator != NULL)
            fake_fail("node %d did not stop", i);
    }
    for (int i = 0; i < t.call_count; i++) {
        if (t.calls[i].answers == 0 && !t.calls[i].is_lost)
            fake_fail("call %d was not answered at the stop", i);
    }
    if (t.open != 0)
        fake_fail("%d requests were not answered at the stop", t.open);
}

static void play(uint64_t seed)
{
    memset(&t, 0, sizeof(t));
    t.seed = seed;
    t.calls = lh_alloc_zero(CALLS_MAX, sizeof(t.calls[0]));
    t.holds = lh_alloc_zero(HOLDS_MAX, sizeof(t.holds[0]));
    fake_world_init(&t.world, seed);
    struct fake_world *world = &t.world;

    t.has_faults = seed % 2 == 0;
    t.is_strict = seed % 4 == 1;
    world->slow_poll_helps = !t.is_strict;
    world->notify_loss_percent = t.is_strict ? 0 : fake_below(world, 30);
    world->min_delay_us = 50;
    world->max_delay_us = (1 + fake_below(world, 10)) * LH_US_PER_MS;
    t.has_hooks = seed % 3 == 0;
    world->is_hooked = t.has_hooks;
    world->hook_reject_percent = fake_below(world, 3) * 10;
    world->hook_break_percent = t.has_faults ? fake_below(world, 3) * 5 : 0;
    world->hook_us = (1 + fake_below(world, 10)) * LH_US_PER_MS;
    world->hook_timeout_us = LH_US_PER_S;
    lh_coordinator_options_init(&t.options);
    t.options.max_block_us = fake_below(world, 2) == 0 ? 0 : 700 * LH_US_PER_MS;
    t.options.batch_max = (size_t)(1 + fake_below(world, 8));
    for (int i = 1 + fake_below(world, 3); i > 0; i--)
        fake_node_start(world, &t.options);

    for (int i = 0; i < 150; i++) {
        act();
        note_health();
        check_stalls();
        if (fake_below(world, 3) > 0)
            run(fake_below(world, 20) == 0 ? fake_below(world, 2000) * LH_US_PER_MS : fake_below(world, 30000));
    }
    if (fake_below(world, 4) > 0)
        heal(); /* else: stop in the middle of it all */
    t.is_healing = true;
    stop_all();

    for (int i = 0; i < t.call_count; i++)
        free(t.calls[i].owner);
    fake_world_finish(world);
    free(t.calls);
    free(t.holds);
}

START_TEST(random_histories_keep_the_promises)
{
    const char *one = getenv("LH_SEED");
    const char *many = getenv("LH_SEEDS");
    if (one != NULL) {
        if (getenv("LH_TRACE") != NULL)
            lh_log_set_level(LH_LOG_DEBUG);
        play(strtoull(one, NULL, 10));
        return;
    }
    uint64_t count = many != NULL ? strtoull(many, NULL, 10) : 2000;
    for (uint64_t seed = 1; seed <= count; seed++)
        play(seed);
}
END_TEST

int main(void)
{
    lh_log_set_level(LH_LOG_ERROR);
    Suite *suite = suite_create("lease, random histories");
    TCase *tcase = tcase_create("random");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, random_histories_keep_the_promises);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
