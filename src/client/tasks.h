/*
 * The client as its parts see it: the references to it, and the work that other threads hand over to its thread.
 *
 *     operation->task.run = run_operation;
 *     if (lh_client_post(client, &operation->task) != LH_OK)
 *         the client is closed: run_operation is never called
 */
#ifndef LH_CLIENT_TASKS_H
#define LH_CLIENT_TASKS_H

#include <stdbool.h>

#include "base/status.h"

struct lh_client;

/* A piece of work for the client's thread, embedded in its subject. */
struct client_task {
    struct client_task *next;
    void (*run)(struct client_task *task);
};

/* Take and drop a reference, on any thread. The last one frees the client. */
void lh_client_ref(struct lh_client *client);
void lh_client_unref(struct lh_client *client);
bool lh_client_is_here(const struct lh_client *client); /* whether this is its thread */
bool lh_client_is_open(struct lh_client *client);

/* Wakes the thread. Call it with the mutex held. */
void lh_client_wake_locked(struct lh_client *client);

/* Hands over a task to run on the client's thread, soon. LH_CLOSED: it never runs. */
enum lh_status lh_client_post(struct lh_client *client, struct client_task *task);

/* Makes this thread the client's. */
void lh_client_serve(const struct lh_client *client);
void lh_client_run_tasks(struct lh_client *client);

/* Checks at the end of the turn whether a closing client is done. */
void lh_client_settle(struct lh_client *client);

#endif
