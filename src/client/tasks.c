/* Work that other threads hand over to the client's: a list, and a descriptor that wakes its loop. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/client.h"

static _Thread_local const struct lh_client *served; /* by this thread */

void client_serve(const struct lh_client *client)
{
    served = client;
}

bool client_is_here(const struct lh_client *client)
{
    return !client->has_thread || served == client;
}

bool client_is_open(struct lh_client *client)
{
    bool is_open;

    pthread_mutex_lock(&client->mutex);
    is_open = client->state == CLIENT_OPEN;
    pthread_mutex_unlock(&client->mutex);
    return is_open;
}

void client_wake_locked(struct lh_client *client)
{
    uint64_t one = 1;

    if (client->is_woken)
        return;
    client->is_woken = true;
    while (write(client->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

enum lh_status client_post(struct lh_client *client, struct client_task *task)
{
    enum lh_status status = LH_OK;

    pthread_mutex_lock(&client->mutex);
    if (client->state == CLIENT_CLOSED) {
        status = LH_CLOSED;
    } else {
        task->next = NULL;
        *client->tasks_end = task;
        client->tasks_end = &task->next;
        client_wake_locked(client);
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

void client_run_tasks(struct lh_client *client)
{
    struct client_task *task = take_tasks(client);

    while (task != NULL) {
        struct client_task *next = task->next;
        task->run(task);
        task = next;
    }
}

void client_on_woken(void *arg, unsigned ready)
{
    struct lh_client *client = arg;
    uint64_t count;

    if (read(client->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
        return;
    client_look_at_clock(client);
    client_run_tasks(client);
    releases_drain(&client->releases);
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

    retrier_decide(&decision->client->retrier, decision->id, decision->delay_us);
    free(decision);
}

void lh_retry_decide(struct lh_client *client, uint64_t request_id, int64_t delay_us)
{
    struct decision *decision;

    if (client == NULL)
        return;
    if (client->has_thread && client_is_here(client)) {
        retrier_decide(&client->retrier, request_id, delay_us);
        return;
    }
    decision = lh_alloc_zero(1, sizeof(*decision));
    *decision = (struct decision){.task.run = run_decision, .client = client, .id = request_id, .delay_us = delay_us};
    if (client_post(client, &decision->task) != LH_OK)
        free(decision);
}
