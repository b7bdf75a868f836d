/* Work that other threads hand over to the client's: a list, and a descriptor that wakes its loop. */
#include "client/request_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/bounds.h"
#include "client/client.h"
#include "client/lease_internal.h"

static _Thread_local const struct lh_client *served; /* by this thread */

/* --- references --- */

void lh_client_ref(struct lh_client *client)
{
    atomic_fetch_add_explicit(&client->refs, 1, memory_order_relaxed);
}

void lh_client_unref(struct lh_client *client)
{
    if (atomic_fetch_sub_explicit(&client->refs, 1, memory_order_acq_rel) != 1)
        return;
    lh_declarations_destroy(client);
    pthread_cond_destroy(&client->ended);
    pthread_mutex_destroy(&client->mutex);
    free(client->prefix);
    free(client->owner);
    free(client);
}

/* --- tasks --- */

void lh_client_serve(const struct lh_client *client)
{
    served = client;
}

bool lh_client_is_here(const struct lh_client *client)
{
    return !client->has_thread || served == client;
}

bool lh_client_is_open(struct lh_client *client)
{
    bool is_open;

    if (lh_client_is_forked(client))
        return false;
    pthread_mutex_lock(&client->mutex);
    is_open = client->state == CLIENT_OPEN;
    pthread_mutex_unlock(&client->mutex);
    return is_open;
}

void lh_client_wake_locked(struct lh_client *client)
{
    uint64_t one = 1;

    if (client->is_woken)
        return;
    client->is_woken = true;
    while (write(client->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

enum lh_status lh_client_post(struct lh_client *client, struct client_task *task)
{
    enum lh_status status = LH_OK;

    if (lh_client_is_forked(client))
        return LH_CLOSED;
    pthread_mutex_lock(&client->mutex);
    if (client->state == CLIENT_CLOSED) {
        status = LH_CLOSED;
    } else {
        task->next = NULL;
        *client->tasks_end = task;
        client->tasks_end = &task->next;
        lh_client_wake_locked(client);
    }
    pthread_mutex_unlock(&client->mutex);
    return status;
}

static struct client_task *take_tasks(struct lh_client *client)
{
    struct client_task *tasks;

    pthread_mutex_lock(&client->mutex);
    tasks = client->tasks;
    client->tasks = NULL;
    client->tasks_end = &client->tasks;
    client->is_woken = false;
    pthread_mutex_unlock(&client->mutex);
    return tasks;
}

void lh_client_run_tasks(struct lh_client *client)
{
    struct client_task *task = take_tasks(client);

    while (task != NULL) {
        struct client_task *next = task->next;
        task->run(task);
        task = next;
    }
}

void lh_client_settle(struct lh_client *client)
{
    if (client->state == CLIENT_CLOSING)
        lh_defer(client->loop, &client->settle);
}

/* --- decisions of strategies --- */

struct decision {
    struct client_task task;
    struct lh_client *client;
    uint64_t id;
    int64_t delay_us;
};

static void run_decision(struct client_task *task)
{
    struct decision *decision = LH_CONTAINER(struct decision, task, task);

    lh_retrier_decide(&decision->client->retrier, decision->id, decision->delay_us);
    free(decision);
}

void lh_retry_decide(struct lh_client *client, uint64_t request_id, int64_t delay_us)
{
    struct decision *decision;

    if (client == NULL)
        return;
    if (client->has_thread && lh_client_is_here(client)) {
        lh_retrier_decide(&client->retrier, request_id, delay_us);
        return;
    }
    decision = lh_alloc_zero(1, sizeof(*decision));
    *decision = (struct decision){.task.run = run_decision, .client = client, .id = request_id, .delay_us = delay_us};
    if (lh_client_post(client, &decision->task) != LH_OK)
        free(decision);
}

/* --- calls that block --- */

enum lh_status lh_blocked_begin(struct blocked *blocked, struct lh_client *client, struct lh_error *error)
{
    *blocked = (struct blocked){.error = error};
    sem_init(&blocked->done, 0, 0);
    if (client == NULL)
        return lh_bounds_refuse(error, "lease", "not NULL", "lease is missing");
    if (!client->has_thread)
        return lh_error_set(error, LH_WOULD_BLOCK,
                            "this client lives on an event base, which a call that blocks would stop");
    if (lh_client_is_here(client))
        return lh_error_set(error, LH_WOULD_BLOCK, "a call that blocks, from inside of a callback of its client");
    return LH_OK;
}

enum lh_status lh_blocked_wait(struct blocked *blocked, enum lh_status started)
{
    if (started == LH_OK)
        while (sem_wait(&blocked->done) != 0 && errno == EINTR)
            ;
    else
        blocked->status = started;
    sem_destroy(&blocked->done);
    return blocked->status;
}

void lh_blocked_wake(struct blocked *blocked, enum lh_status status, const struct lh_error *error)
{
    blocked->status = status;
    if (blocked->error != NULL && status != LH_OK)
        *blocked->error = *error;
    sem_post(&blocked->done);
}

void lh_blocked_on_done(void *arg, enum lh_status status, const struct lh_error *error)
{
    lh_blocked_wake(arg, status, error);
}
