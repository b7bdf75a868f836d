/*
 * A client from its beginning to its end.
 *
 *     OPEN ---- lh_client_close: requests are answered, renewals end ----> CLOSING ---- the releases are sent, or their
 *     time is over; every request has finished ----> CLOSED: leases that are still held are left, the thread ends
 *
 * With a thread of its own the loop runs there; other threads hand over tasks and wake it by a descriptor. On the
 * caller's event base the same happens without a thread, and tasks come only from contexts that others cancel.
 */
#include "client/client.h"
#include "base/bounds.h"
#include "client/lease_internal.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/request_internal.h"

#define TIMEOUT_DEFAULT_US (5 * LH_US_PER_S)
#define FLUSH_DEFAULT_US (5 * LH_US_PER_S)
#define REQUESTS_MAX_DEFAULT 65536

/* --- the end --- */

static void close_now(struct lh_client *client)
{
    pthread_mutex_lock(&client->mutex);
    client->state = CLIENT_CLOSED;
    pthread_mutex_unlock(&client->mutex);
    lh_leases_abandon(client);
    if (client->on_closed != NULL)
        client->on_closed(client->on_closed_arg);
    if (client->has_thread)
        lh_loop_stop(client->loop);
}

static void settle(void *arg)
{
    struct lh_client *client = arg;

    if (client->state == CLIENT_CLOSING && client->request_count == 0 &&
        lh_list_is_empty(&client->renewals.keep_alive.streams) && lh_releases_are_empty(&client->releases))
        close_now(client);
}

static void on_flush_limit(void *arg)
{
    struct lh_client *client = arg;

    lh_releases_give_up(&client->releases);
    lh_client_settle(client);
}

static void begin_to_close(struct lh_client *client)
{
    pthread_mutex_lock(&client->mutex);
    client->state = CLIENT_CLOSING;
    pthread_mutex_unlock(&client->mutex);
    lh_renewals_stop(&client->renewals);
    LH_LIST_EACH(struct lh_request, request, &client->requests, link)
        if (!lh_releases_is_theirs(&client->releases, request))
            lh_request_cancel(request, LH_CANCELED, "the client was closed");
    if (client->flush_us > 0) {
        lh_timer_arm_at_us(&client->flush_limit, lh_clock_us() + client->flush_us);
        lh_releases_close(&client->releases);
    } else {
        lh_releases_give_up(&client->releases);
    }
    lh_client_settle(client);
}

struct close_task {
    struct client_task task;
    struct lh_client *client;
    lh_closed_cb *on_closed;
    void *arg;
};

static void run_close(struct client_task *task)
{
    struct close_task *closing = LH_CONTAINER(struct close_task, task, task);
    struct lh_client *client = closing->client;

    if (client->state == CLIENT_OPEN) {
        client->on_closed = closing->on_closed;
        client->on_closed_arg = closing->arg;
        begin_to_close(client);
    }
    free(closing);
}

static void wait_for_end(struct lh_client *client)
{
    pthread_mutex_lock(&client->mutex);
    while (!client->has_ended)
        pthread_cond_wait(&client->ended, &client->mutex);
    pthread_mutex_unlock(&client->mutex);
}

void lh_client_close(struct lh_client *client, lh_closed_cb *on_closed, void *arg)
{
    struct close_task *closing;

    if (client == NULL || lh_client_is_forked(client))
        return;
    closing = lh_alloc_zero(1, sizeof(*closing));
    closing->task.run = run_close;
    closing->client = client;
    closing->on_closed = on_closed;
    closing->arg = arg;
    if (lh_client_post(client, &closing->task) != LH_OK)
        free(closing);
    if (client->has_thread && !lh_client_is_here(client))
        wait_for_end(client);
}

/* What was handed over until the last moment is still answered. */
static void finish_tasks(struct lh_client *client)
{
    while (client->request_count > 0 || client->tasks != NULL) {
        lh_client_run_tasks(client);
        lh_loop_run_once(client->loop, 0);
    }
}

static void *run_thread(void *arg)
{
    struct lh_client *client = arg;

    lh_client_serve(client);
    lh_loop_run(client->loop);
    finish_tasks(client);
    pthread_mutex_lock(&client->mutex);
    client->has_ended = true;
    pthread_cond_broadcast(&client->ended);
    pthread_mutex_unlock(&client->mutex);
    return NULL;
}

/* Everything of the loop's; nobody else runs it any more. */
static void take_apart(struct lh_client *client)
{
    lh_renewals_stop(&client->renewals);
    lh_timer_finish(&client->leases.timer);
    lh_timer_finish(&client->flush_limit);
    lh_timer_cancel(&client->releases.pause);
    lh_watch_finish(&client->wake);
    lh_endpoints_finish(&client->endpoints);
    lh_loop_destroy(client->loop);
    lh_leases_abandon(client);
    lh_releases_finish(&client->releases);
    lh_retrier_finish(&client->retrier);
    close(client->wake_fd);
}

void lh_client_destroy(struct lh_client *client)
{
    if (client == NULL || lh_client_is_forked(client))
        return;
    if (client->has_thread && lh_client_is_here(client)) {
        lh_err("lh_client_destroy from inside of a callback of its client: it is closed, and not freed");
        lh_client_close(client, NULL, NULL);
        return;
    }
    if (client->has_thread) {
        lh_client_close(client, NULL, NULL);
        pthread_join(client->thread, NULL);
    } else if (client->state != CLIENT_CLOSED) {
        lh_client_run_tasks(client);
        client->flush_us = 0;
        begin_to_close(client);
    }
    take_apart(client);
    client->state = CLIENT_CLOSED;
    lh_client_unref(client);
}

/* --- the beginning --- */

static int64_t port_now_us(void *arg)
{
    return lh_clock_us();
}

static void port_arm(void *arg, struct retry *retry, int64_t at_us)
{
    struct lh_request *request = LH_CONTAINER(struct lh_request, retry, retry);

    lh_timer_arm_at_us(&request->timer, at_us);
}

static char *default_owner(void)
{
    char host[128] = "localhost";

    gethostname(host, sizeof(host) - 1);
    return lh_format("%s/%.64s/%ld", host, program_invocation_short_name, (long)getpid());
}

static void take_options(struct lh_client *client, const struct lh_client_options *options)
{
    client->has_thread = options->event_base == NULL;
    client->forks = lh_client_count_forks();
    client->prefix = lh_strdup(options->namespace_prefix != NULL ? options->namespace_prefix : "");
    client->owner = options->owner != NULL ? lh_strdup(options->owner) : default_owner();
    client->timeout_us = options->timeout_us > 0 ? options->timeout_us : TIMEOUT_DEFAULT_US;
    client->flush_us = options->flush_us != 0 ? options->flush_us : FLUSH_DEFAULT_US;
    client->max_requests = options->max_requests > 0 ? options->max_requests : REQUESTS_MAX_DEFAULT;
    client->inbox.max = options->max_releases > 0 ? options->max_releases : RELEASES_MAX_DEFAULT;
}

static enum lh_status check_options(const struct lh_client_options *options, struct lh_error *error)
{
    if (lh_bounds_time("timeout_us", options->timeout_us, error) != LH_OK ||
        lh_bounds_time("connect_timeout_us", options->connect_timeout_us, error) != LH_OK ||
        lh_bounds_time("breaker_open_us", options->breaker_open_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return options->owner == NULL ? LH_OK : lh_bounds_text("owner", LH_TEXT_OWNER, options->owner, error);
}

static void on_woken(void *arg, unsigned ready)
{
    struct lh_client *client = arg;
    uint64_t count;

    if (read(client->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
        return;
    lh_leases_look_at_clock(client);
    lh_client_run_tasks(client);
    lh_releases_drain(&client->releases);
}

static void init_parts(struct lh_client *client, const struct lh_client_options *options)
{
    struct retry_port port = {.now_us = port_now_us, .arm = port_arm, .arg = client};

    lh_list_init(&client->requests);
    lh_leases_init(client);
    lh_renewals_init(&client->renewals, client);
    lh_releases_init(&client->releases, client);
    lh_retrier_init(&client->retrier, &port);
    if (options->strategy != NULL)
        client->retrier.strategy = *options->strategy;
    if (options->max_retrying > 0)
        client->retrier.limit = options->max_retrying;
    lh_timer_init(&client->flush_limit, client->loop, on_flush_limit, client);
    lh_deferred_init(&client->settle, settle, client);
    lh_watch_init(&client->wake, client->loop, client->wake_fd, on_woken, client);
    lh_watch_want(&client->wake, LH_WATCH_READ);
}

/* Signals are for the program's own threads. */
static bool start_thread(struct lh_client *client)
{
    sigset_t all, before;
    int failure;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(&client->thread, NULL, run_thread, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure == 0;
}

struct lh_client *lh_client_create(const struct lh_client_options *options, struct lh_error *error)
{
    static const struct lh_client_options none;
    struct lh_client *client;

    if (options == NULL)
        options = &none;
    if (check_options(options, error) != LH_OK)
        return NULL;
    client = lh_alloc_zero(1, sizeof(*client));
    atomic_init(&client->refs, 1);
    pthread_mutex_init(&client->mutex, NULL);
    pthread_cond_init(&client->ended, NULL);
    client->tasks_end = &client->tasks;
    lh_list_init(&client->declarations);
    take_options(client, options);
    client->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    client->loop = client->wake_fd < 0 ? NULL : lh_loop_create_guest(options->event_base);
    if (client->loop == NULL) {
        lh_error_set(error, LH_INTERNAL, "no event loop: %s", strerror(errno));
        goto no_loop;
    }
    if (lh_endpoints_init(&client->endpoints, client->loop, options, error) != LH_OK)
        goto no_endpoints;
    init_parts(client, options);
    if (!client->has_thread || start_thread(client))
        return client;
    lh_error_set(error, LH_INTERNAL, "no thread: %s", strerror(errno));
    take_apart(client);
    lh_client_unref(client);
    return NULL;

no_endpoints:
    lh_loop_destroy(client->loop);
no_loop:
    if (client->wake_fd >= 0)
        close(client->wake_fd);
    lh_client_unref(client);
    return NULL;
}

/* --- what is left --- */

void lh_client_get_stats(struct lh_client *client, struct lh_client_stats *stats)
{
    struct client_counts *counts;

    if (stats == NULL)
        return;
    *stats = (struct lh_client_stats){0};
    if (client == NULL)
        return;
    counts = &client->counts;
    *stats = (struct lh_client_stats){
        .leases = atomic_load(&counts->leases),
        .requests = atomic_load(&counts->requests),
        .rpcs = atomic_load(&counts->rpcs),
        .renewal_batches = atomic_load(&counts->renewal_batches),
        .renewals = atomic_load(&counts->renewals),
        .retries = atomic_load(&counts->retries),
        .refusals = atomic_load(&counts->refusals),
        .lost = atomic_load(&counts->lost),
        .left_to_expire = atomic_load(&counts->left_to_expire),
    };
    if (lh_client_is_forked(client))
        return;
    pthread_mutex_lock(&client->mutex);
    stats->releases = client->inbox.count;
    pthread_mutex_unlock(&client->mutex);
}

void lh_log_to(enum lh_log_level level, lh_log_cb *on_line, void *arg)
{
    lh_log_set_level(level);
    lh_log_set_sink(on_line, arg);
}
