#include "client/batches_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "client/client.h"
#include "client/lease_internal.h"
#include "client/request_internal.h"

#define PAUSE_FIRST_US (50 * LH_US_PER_MS)
#define PAUSE_LAST_US (2 * LH_US_PER_S)

struct release_batch {
    struct lh_request request;
    bool was_told_to_retry; /* at least one of them: not at once */
    struct lease_batch batch;
};

/* --- queues --- */

static void queue_init(struct lease_queue *queue)
{
    queue->first = NULL;
    queue->end = &queue->first;
}

static void queue_append(struct lease_queue *queue, struct lh_lease *lease)
{
    lease->next = NULL;
    *queue->end = lease;
    queue->end = &lease->next;
}

static struct lh_lease *queue_take(struct lease_queue *queue)
{
    struct lh_lease *lease = queue->first;

    if (lease == NULL)
        return NULL;
    queue->first = lease->next;
    if (queue->first == NULL)
        queue->end = &queue->first;
    lease->next = NULL;
    return lease;
}

static size_t result_bytes(const struct lh_lease *lease)
{
    return lease->result == NULL ? 0 : strlen(lease->result) + 1;
}

/* --- into the set: any thread --- */

enum lh_status lh_releases_enqueue(struct lh_client *client, struct lh_lease *lease)
{
    struct release_inbox *inbox = &client->inbox;
    enum lh_status status = LH_OK;
    size_t bytes = result_bytes(lease);

    pthread_mutex_lock(&client->mutex);
    if (client->state != CLIENT_OPEN && (!lh_client_is_here(client) || client->releases.is_given_up)) {
        status = LH_CLOSED;
    } else if (inbox->count >= inbox->max || inbox->result_bytes + bytes > RELEASE_RESULT_BYTES_MAX) {
        status = LH_OVERLOADED;
    } else {
        inbox->count++;
        inbox->result_bytes += bytes;
        queue_append(&inbox->queue, lease);
        lh_client_wake_locked(client);
    }
    pthread_mutex_unlock(&client->mutex);
    return status;
}

/* --- out of it --- */

static uint64_t scope_hash(const char *namespace_text, const char *key)
{
    return lh_hash(key, strlen(key), lh_hash(namespace_text, strlen(namespace_text) + 1, 0));
}

struct scope_name {
    const char *namespace_text;
    const char *key;
};

static bool scope_is_equal(const struct lh_table_entry *entry, const void *key)
{
    const struct lh_lease *lease = LH_CONTAINER(struct lh_lease, entry, entry);
    const struct scope_name *name = key;

    return strcmp(lease->scope_key, name->key) == 0 && strcmp(lease->declared->text, name->namespace_text) == 0;
}

/* Everything that was enqueued up to now; the set that others fill is then an empty one. */
static void take_set(struct releases *releases)
{
    struct lh_client *client = releases->client;
    struct lease_queue set;
    struct lh_lease *lease;

    pthread_mutex_lock(&client->mutex);
    set = client->inbox.queue;
    queue_init(&client->inbox.queue);
    pthread_mutex_unlock(&client->mutex);
    while ((lease = queue_take(&set)) != NULL) {
        lh_lease_leave(lease);
        lh_table_insert(&releases->by_scope, &lease->entry, scope_hash(lease->declared->text, lease->scope_key));
        queue_append(&releases->taken, lease);
    }
}

struct lh_lease *lh_releases_find(struct releases *releases, const char *namespace_text, const char *key)
{
    struct scope_name name = {namespace_text, key};
    struct lh_table_entry *entry;

    take_set(releases);
    entry = lh_table_find(&releases->by_scope, scope_hash(namespace_text, key), &name);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_lease, entry, entry);
}

/* It is over with this lease, one way or the other: who waited for that goes on. The reference was the set's. */
static void let_go(struct releases *releases, struct lh_lease *lease)
{
    struct lh_client *client = releases->client;

    lh_table_remove(&releases->by_scope, &lease->entry);
    atomic_store(&lease->state, (unsigned char)(LEASE_GONE | LEASE_REASON(atomic_load(&lease->state))));
    pthread_mutex_lock(&client->mutex);
    client->inbox.count--;
    client->inbox.result_bytes -= result_bytes(lease);
    pthread_mutex_unlock(&client->mutex);
    lh_requests_resume(&lease->followers);
    lh_lease_unref(lease);
}

static void leave_to_expire(struct releases *releases, struct lh_lease *lease, const char *words)
{
    lh_warn("release not delivered, left to expire scope=%s token=%lld: %s",
            LH_SCOPE_NAME(lease->declared->text, lease->scope_key), (long long)lh_lease_token(lease), words);
    atomic_fetch_add(&releases->client->counts.left_to_expire, 1);
    let_go(releases, lease);
}

/* --- doubt: who waits for the release goes on, and the release is repeated after twice as long each time --- */

static void arm_doubt(struct releases *releases)
{
    int64_t next_us = lh_heap_next_us(&releases->doubted);

    if (next_us != LH_NEVER)
        lh_timer_arm_at_us(&releases->doubt, next_us);
}

static void doubt(struct releases *releases, struct lh_lease *lease)
{
    int64_t again_us = lh_plus_us(lh_clock_us(), lease->doubt_us);

    if (lease->doubt_us == 0 || releases->is_closing || releases->doubted.count >= releases->client->inbox.max ||
        again_us >= atomic_load(&lease->deadline_us))
        return;
    lease->doubt_us *= 2;
    lh_lease_ref(lease);
    lh_heap_set(&releases->doubted, &lease->due, again_us);
    arm_doubt(releases);
}

static void on_doubt(void *arg)
{
    struct releases *releases = arg;
    struct lh_heap_timer *due;

    while ((due = lh_heap_due(&releases->doubted, lh_clock_us())) != NULL) {
        struct lh_lease *lease = LH_CONTAINER(struct lh_lease, due, due);
        atomic_store(&lease->state, LEASE_RELEASING);
        if (lh_releases_enqueue(releases->client, lease) != LH_OK)
            lh_lease_unref(lease);
    }
    arm_doubt(releases);
}

static void end_doubts(struct releases *releases)
{
    struct lh_heap_timer *due;

    releases->is_closing = true;
    while ((due = lh_heap_due(&releases->doubted, LH_NEVER)) != NULL)
        lh_lease_unref(LH_CONTAINER(struct lh_lease, due, due));
    lh_timer_cancel(&releases->doubt);
}

/* Again, as long as there may be something to release. */
static void try_again(struct releases *releases, struct lh_lease *lease, const char *words)
{
    if (lh_clock_us() >= atomic_load(&lease->deadline_us))
        leave_to_expire(releases, lease, words);
    else
        queue_append(&releases->taken, lease);
}

/* --- one batch --- */

static struct release_batch *batch_of(struct lh_request *request)
{
    return LH_CONTAINER(struct release_batch, request, request);
}

static void pack(struct lh_request *request, struct lh_buffer *message)
{
    struct lease_batch *batch = &batch_of(request)->batch;
    lh_release_pack(batch->leases, batch->count, message);
}

static unsigned judge(struct lh_request *request, const struct lh_reply *reply)
{
    const Leasehold__V1__ReleaseResponse *response = (const void *)reply->message;
    struct lease_batch *batch = &batch_of(request)->batch;
    struct releases *releases = &request->client->releases;

    if (reply->code != LH_GRPC_OK)
        return lh_attempt_judge_error(request, reply);
    if (response->n_results != batch->count) {
        request->status = lh_error_set(&request->error, LH_INTERNAL, "an answer for %zu releases, not for %zu",
                                       response->n_results, batch->count);
        return RETRY_NO_REASON;
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (lh_is_answer_about(response->results[i]->lease_key, &batch->leases[i]->key))
            continue;
        request->status = lh_error_set(&request->error, LH_INTERNAL, "an answer for other leases than were released");
        return RETRY_NO_REASON;
    }
    request->status = LH_OK;
    for (size_t i = 0; i < batch->count; i++) {
        const Leasehold__V1__ReleaseResult *result = response->results[i];
        batch_of(request)->was_told_to_retry |= result->outcome == LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY;
        if (result->outcome == LEASEHOLD__V1__OUTCOME__OUTCOME_LOST &&
            result->end_reason == LEASEHOLD__V1__END_REASON__END_REASON_UNKNOWN)
            doubt(releases, batch->leases[i]);
        if (result->outcome == LEASEHOLD__V1__OUTCOME__OUTCOME_OK ||
            result->outcome == LEASEHOLD__V1__OUTCOME__OUTCOME_LOST)
            let_go(releases, batch->leases[i]);
        else if (result->outcome == LEASEHOLD__V1__OUTCOME__OUTCOME_RETRY)
            try_again(releases, batch->leases[i], result->message);
        else
            leave_to_expire(releases, batch->leases[i], result->message);
    }
    batch->count = 0;
    return RETRY_NO_REASON;
}

static void pause(struct releases *releases)
{
    int64_t pause_us = PAUSE_FIRST_US;

    for (uint32_t i = 1; i < releases->failures && pause_us < PAUSE_LAST_US; i++)
        pause_us *= 2;
    lh_timer_arm_at_us(&releases->pause, lh_clock_us() + (pause_us < PAUSE_LAST_US ? pause_us : PAUSE_LAST_US));
}

static void finish(struct lh_request *request)
{
    struct release_batch *batch = batch_of(request);
    struct releases *releases = &request->client->releases;
    bool is_cut_off = request->status == LH_CANCELED;

    releases->batch = NULL;
    releases->failures = request->status == LH_OK && !batch->was_told_to_retry ? 0 : releases->failures + 1;
    if (request->status != LH_OK && !is_cut_off)
        lh_warn("release failed, tried again later leases=%zu status=%s: %s", batch->batch.count,
                lh_status_name(request->status), request->error.message);
    for (size_t i = 0; i < batch->batch.count; i++) {
        if (is_cut_off || releases->is_given_up)
            leave_to_expire(releases, batch->batch.leases[i], request->error.message);
        else
            try_again(releases, batch->batch.leases[i], request->error.message);
    }
    batch->batch.count = 0;
    lh_lease_batch_finish(&batch->batch);
    free(batch);
    if (releases->failures > 0 && !releases->is_given_up)
        pause(releases);
    lh_releases_drain(releases);
}

static const struct request_verb release_set_verb = {
    .name = "Release",
    .path = "/leasehold.v1.LeaseService/Release",
    .output = &leasehold__v1__release_response__descriptor,
    .pack = pack,
    .judge = judge,
    .finish = finish,
};

void lh_releases_drain(struct releases *releases)
{
    struct lh_client *client = releases->client;
    struct release_batch *batch;

    if (releases->batch != NULL || lh_timer_is_armed(&releases->pause) || releases->is_given_up)
        return;
    if (releases->taken.first == NULL)
        take_set(releases);
    if (releases->taken.first == NULL)
        return;
    batch = lh_alloc_zero(1, sizeof(*batch));
    while (releases->taken.first != NULL && lh_lease_batch_add(&batch->batch, releases->taken.first))
        queue_take(&releases->taken);
    releases->batch = batch;
    lh_request_init(&batch->request, client, &release_set_verb, lh_clock_us() + client->timeout_us, NULL, NULL);
    batch->request.name = "a set";
    lh_request_begin_internal(&batch->request);
    lh_request_go(&batch->request);
}

static void on_pause_over(void *arg)
{
    struct releases *releases = arg;

    lh_leases_look_at_clock(releases->client);
    lh_releases_drain(releases);
}

void lh_releases_hurry(struct releases *releases)
{
    lh_timer_cancel(&releases->pause);
    lh_releases_drain(releases);
}

void lh_releases_close(struct releases *releases)
{
    end_doubts(releases);
    lh_releases_hurry(releases);
}

bool lh_releases_are_empty(struct releases *releases)
{
    struct lh_client *client = releases->client;
    bool is_empty;

    pthread_mutex_lock(&client->mutex);
    is_empty = client->inbox.count == 0;
    pthread_mutex_unlock(&client->mutex);
    return is_empty;
}

bool lh_releases_is_theirs(const struct releases *releases, const struct lh_request *request)
{
    return releases->batch != NULL && &releases->batch->request == request;
}

void lh_releases_give_up(struct releases *releases)
{
    struct lh_lease *lease;

    releases->is_given_up = true;
    lh_timer_cancel(&releases->pause);
    end_doubts(releases);
    take_set(releases);
    while ((lease = queue_take(&releases->taken)) != NULL)
        leave_to_expire(releases, lease, "the client was closed");
    if (releases->batch != NULL)
        lh_request_cancel(&releases->batch->request, LH_CANCELED, "the client was closed");
}

void lh_releases_init(struct releases *releases, struct lh_client *client)
{
    releases->client = client;
    queue_init(&releases->taken);
    queue_init(&client->inbox.queue);
    lh_table_init(&releases->by_scope, scope_is_equal);
    lh_timer_init(&releases->pause, client->loop, on_pause_over, releases);
    lh_timer_init(&releases->doubt, client->loop, on_doubt, releases);
}

void lh_releases_finish(struct releases *releases)
{
    lh_timer_finish(&releases->pause);
    lh_timer_finish(&releases->doubt);
    lh_heap_finish(&releases->doubted);
    lh_table_finish(&releases->by_scope);
}
