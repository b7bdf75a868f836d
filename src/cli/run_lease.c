#include "cli/run_lease.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/error.h"

/* --- what the library's thread tells --- */

static void wake(struct lh_run_lease *lease)
{
    uint64_t one = 1;
    if (write(lease->wake, &one, sizeof(one)) != sizeof(one))
        return; /* it is readable already */
}

static void on_acquired(void *arg, enum lh_status status, struct lh_lease *granted, const struct lh_error *error)
{
    struct lh_run_lease *lease = arg;

    pthread_mutex_lock(&lease->mutex);
    lease->is_answered = true;
    lease->status = status;
    lease->lease = granted;
    if (error != NULL)
        lease->error = *error;
    pthread_mutex_unlock(&lease->mutex);
    wake(lease);
}

static void on_lost(void *arg, struct lh_lease *lost, enum lh_lost_reason reason, const char *words)
{
    struct lh_run_lease *lease = arg;

    pthread_mutex_lock(&lease->mutex);
    lease->lost = reason;
    snprintf(lease->lost_words, sizeof(lease->lost_words), "%s", words != NULL ? words : "");
    pthread_mutex_unlock(&lease->mutex);
    wake(lease);
}

static const char *liveness_words(enum lh_holder_liveness liveness)
{
    switch (liveness) {
    case LH_HOLDER_ALIVE:
        return ", alive";
    case LH_HOLDER_SUSPECTED_DEAD:
        return ", suspected dead";
    case LH_HOLDER_OVERDUE:
        return ", alive, but holding it unreasonably long";
    case LH_HOLDER_EXPIRED:
        return ", expired";
    default:
        return "";
    }
}

/* Said when it changes: by itself the library repeats it every few seconds. */
static void on_waiting(void *arg, const struct lh_obstacle *obstacle)
{
    struct lh_run_lease *lease = arg;
    const char *const *words = lease->cli->args.words;
    const char *owner = obstacle->owner[0] != '\0' ? obstacle->owner : "an unknown owner";
    char held[LH_DURATION_TEXT_BYTES], holder[400];

    if (obstacle->token == 0 && obstacle->rests_us > 0)
        snprintf(holder, sizeof(holder), "its minimum hold has not passed; %" PRIu32 " ahead", obstacle->waiters_ahead);
    else if (obstacle->holder_count > 1)
        snprintf(holder, sizeof(holder), "shared by %" PRIu32 " holders, the oldest %s%s; %" PRIu32 " ahead",
                 obstacle->holder_count, owner, liveness_words(obstacle->liveness), obstacle->waiters_ahead);
    else
        snprintf(holder, sizeof(holder), "held by %s%s; %" PRIu32 " ahead", owner, liveness_words(obstacle->liveness),
                 obstacle->waiters_ahead);
    if (strcmp(lease->told, holder) == 0)
        return;
    snprintf(lease->told, sizeof(lease->told), "%s", holder);
    if (obstacle->token == 0 && obstacle->rests_us > 0) {
        lh_duration_format(obstacle->rests_us, held);
        lh_error_print("waiting for %s/%s: %s; it rests for %s more", words[0], words[1], holder, held);
        return;
    }
    lh_duration_format(obstacle->held_us, held);
    lh_error_print("waiting for %s/%s: %s; held for %s", words[0], words[1], holder, held);
}

/* --- asking --- */

static enum lh_exit refuse(const struct lh_run_lease *lease, const struct lh_error *error)
{
    if (error->status == LH_INVALID_ARGUMENT && strcmp(error->field, "duration") == 0)
        return lh_error_field(lease->cli, error->field, error->message);
    if (error->status == LH_INVALID_ARGUMENT)
        return lh_error_value(lease->cli, error);
    lh_error_print("%s", error->message);
    return lh_exit_of_status(error->status);
}

static struct lh_declared *declare(struct lh_run_lease *lease, int64_t grace_us, struct lh_error *error)
{
    const struct lh_client_options client = {
        .endpoints = lease->cli->server,
        .tls = &lease->cli->tls,
        .owner = lease->asked->owner,
        .timeout_us = lease->cli->timeout_us,
    };
    const struct lh_declare_options options = {
        .duration_us = lease->asked->duration_us, .margin_us = grace_us, .on_lost = on_lost, .arg = lease};

    lease->client = lh_client_create(&client, error);
    return lease->client != NULL ? lh_declare(lease->client, lease->cli->args.words[0], &options, error) : NULL;
}

static enum lh_status request(struct lh_run_lease *lease, struct lh_declared *declared, struct lh_error *error)
{
    const struct lh_cli_acquire *asked = lease->asked;
    const char *labels[LH_LABELS_MAX + 1] = {NULL};
    struct lh_acquire_options options = {
        .wait_us = asked->wait == LH_CLI_WAIT_FOREVER ? LH_FOREVER : asked->wait_us,
        .wait_while_alive = asked->wait == LH_CLI_WAIT_ALIVE,
        .at_least_us = asked->at_least_us == LH_CLI_AT_LEAST_POLICY ? 0
                       : asked->at_least_us == 0                    ? LH_NO_MINIMUM
                                                                    : asked->at_least_us,
        .mode = asked->units > 0 ? LH_SHARED : LH_EXCLUSIVE,
        .units = asked->units,
        .owner = asked->owner,
        .lease_key = asked->lease_key,
        .labels = labels,
        .on_waiting = lease->tells_waiting ? on_waiting : NULL,
        .on_waiting_arg = lease,
    };
    size_t at = 0;

    for (size_t i = 0; i < LH_LABELS_MAX; i++)
        labels[i] = lh_args_next_value(&lease->cli->args, "label", &at);
    return lh_acquire_async(declared, lease->cli->args.words[1], &options, on_acquired, lease, &lease->request, error);
}

enum lh_exit lh_run_lease_ask(struct lh_run_lease *lease, const struct lh_cli *cli, const struct lh_cli_acquire *asked,
                              int64_t grace_us)
{
    struct lh_error error = {0};
    struct lh_declared *declared;

    lease->cli = cli;
    lease->asked = asked;
    lease->tells_waiting = isatty(STDERR_FILENO);
    pthread_mutex_init(&lease->mutex, NULL);
    lease->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lease->wake < 0) {
        lh_error_print("too many open files");
        return LH_EXIT_FAILED;
    }
    declared = declare(lease, grace_us, &error);
    if (declared == NULL || request(lease, declared, &error) != LH_OK)
        return refuse(lease, &error);
    return LH_EXIT_DONE;
}

void lh_run_lease_look(struct lh_run_lease *lease)
{
    uint64_t count;
    if (read(lease->wake, &count, sizeof(count)) != sizeof(count))
        return; /* nothing new */
}

bool lh_run_lease_is_answered(struct lh_run_lease *lease)
{
    bool is_answered;
    pthread_mutex_lock(&lease->mutex);
    is_answered = lease->is_answered;
    pthread_mutex_unlock(&lease->mutex);
    return is_answered;
}

bool lh_run_lease_is_lost(struct lh_run_lease *lease)
{
    bool is_lost;
    pthread_mutex_lock(&lease->mutex);
    is_lost = lease->lost != 0;
    pthread_mutex_unlock(&lease->mutex);
    return is_lost;
}

void lh_run_lease_cancel(struct lh_run_lease *lease)
{
    pthread_mutex_lock(&lease->mutex);
    if (!lease->is_answered)
        lh_cancel(lease->request);
    pthread_mutex_unlock(&lease->mutex);
}

enum lh_exit lh_run_lease_verdict(struct lh_run_lease *lease)
{
    return lease->status == LH_OK ? LH_EXIT_DONE : refuse(lease, &lease->error);
}

/* --- giving back --- */

enum lh_exit lh_run_lease_release(struct lh_run_lease *lease, const char *failure)
{
    const struct lh_release_options options = {.failure = failure, .call.timeout_us = lease->cli->timeout_us};
    struct lh_error error = {0};
    enum lh_status status = lh_release(lease->lease, &options, &error);

    switch (status) {
    case LH_OK:
        return LH_EXIT_DONE;
    case LH_LOST:
        lh_error_print("the lease was lost before the command had ended: %s", error.message);
        return LH_EXIT_LOST;
    case LH_HOOK_REJECTED:
        lh_error_print("the release was refused, so the lease will expire: %s", error.message);
        return LH_EXIT_FAILED;
    default:
        lh_error_print("the lease could not be released and ends by its deadline: %s", error.message);
        return lh_exit_of_status(status);
    }
}

void lh_run_lease_finish(struct lh_run_lease *lease)
{
    lh_lease_destroy(lease->lease);
    lh_client_destroy(lease->client);
    if (lease->wake >= 0)
        close(lease->wake);
}
