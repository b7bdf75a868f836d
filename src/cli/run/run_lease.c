#include "cli/run/run_internal.h"

#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/lease_text.h"

/* --- what the library's thread tells --- */

/* "lease", or of several which one. */
static void name_of(const struct lh_run_lease *lease, const struct lh_lease *which, char *name, size_t size)
{
    if (lease->scopes->count == 1)
        snprintf(name, size, "lease");
    else
        snprintf(name, size, "lease %s/%.128s", lh_lease_namespace(which), lh_lease_scope_key(which));
}

static void wake(struct lh_run_lease *lease)
{
    uint64_t one = 1;
    if (write(lease->wake, &one, sizeof(one)) != sizeof(one))
        return; /* it is readable already */
}

static void on_all_acquired(void *arg, enum lh_status status, struct lh_lease *const *granted,
                            const struct lh_error *error)
{
    struct lh_run_lease *lease = arg;

    pthread_mutex_lock(&lease->mutex);
    lease->is_answered = true;
    lease->status = status;
    for (size_t i = 0; status == LH_OK && i < lease->scopes->count; i++)
        lease->leases[i] = granted[i];
    if (error != NULL)
        lease->error = *error;
    pthread_mutex_unlock(&lease->mutex);
    wake(lease);
}

static void on_acquired(void *arg, enum lh_status status, struct lh_lease *granted, const struct lh_error *error)
{
    on_all_acquired(arg, status, &granted, error);
}

static void on_lost(void *arg, struct lh_lease *lost, enum lh_lost_reason reason, const char *words)
{
    struct lh_run_lease *lease = arg;

    pthread_mutex_lock(&lease->mutex);
    if (lease->lost == 0) {
        lease->lost = reason;
        snprintf(lease->lost_words, sizeof(lease->lost_words), "%s", words != NULL ? words : "");
        name_of(lease, lost, lease->lost_name, sizeof(lease->lost_name));
    }
    pthread_mutex_unlock(&lease->mutex);
    wake(lease);
}

void lh_run_request_destroy(struct lh_run_request *request)
{
    free(request->by);
    free(request->principal);
    free(request->reason);
    free(request);
}

static void add_request(struct lh_run_lease *lease, struct lh_lease *which, const struct lh_hand_over_request *asked)
{
    struct lh_run_request **end = &lease->requests, *request = lh_alloc_zero(1, sizeof(*request));

    request->lease = which;
    request->by = lh_strdup(asked->asked_by);
    request->principal = lh_strdup(asked->principal);
    request->reason = lh_strdup(asked->reason);
    pthread_mutex_lock(&lease->mutex);
    while (*end != NULL)
        end = &(*end)->next;
    *end = request;
    pthread_mutex_unlock(&lease->mutex);
    wake(lease);
}

static void on_asked(void *arg, struct lh_lease *which, const struct lh_hand_over_request *asked)
{
    struct lh_run_lease *lease = arg;
    const char *by = asked->asked_by[0] != '\0' ? asked->asked_by : "somebody";
    char name[sizeof(lease->lost_name)];

    name_of(lease, which, name, sizeof(name));
    lh_run_status_tell(lease->status_file, "asked", "by", by, asked->reason);
    if (!lh_args_has(&lease->cli->args, "quiet"))
        lh_error_print("%s asks for the %s%s%s", by, name, asked->reason[0] != '\0' ? ": " : "", asked->reason);
    if (lease->refusal != NULL)
        lh_run_lease_refuse(lease, which, lease->refusal);
    else
        add_request(lease, which, asked);
}

/* A refusal of what is over by now is no news. */
static void on_refused(void *arg, enum lh_status status, const struct lh_error *error)
{
    if (status != LH_OK && status != LH_NOT_ASKED && status != LH_LOST && status != LH_CANCELED)
        lh_error_print("the request to hand over could not be refused: %s", error->message);
}

void lh_run_lease_refuse(struct lh_run_lease *lease, struct lh_lease *which, const char *words)
{
    struct lh_error error = {0};
    enum lh_status status = lh_lease_refuse_hand_over_async(which, words, NULL, on_refused, lease, NULL, &error);

    if (status != LH_OK)
        on_refused(lease, status, &error);
}

/* Said when it changes: by itself the library repeats it every few seconds. */
static void on_waiting(void *arg, const struct lh_obstacle *obstacle)
{
    struct lh_run_lease *lease = arg;
    const char *const *words = lease->cli->args.words;
    const char *owner = obstacle->owner[0] != '\0' ? obstacle->owner : "an unknown owner";
    char holder[400];

    if (obstacle->token == 0 && obstacle->rests_us > 0)
        snprintf(holder, sizeof(holder), "its minimum hold has not passed; %" PRIu32 " ahead", obstacle->waiters_ahead);
    else if (obstacle->holder_count > 1)
        snprintf(holder, sizeof(holder), "shared by %" PRIu32 " holders, the oldest %s%s; %" PRIu32 " ahead",
                 obstacle->holder_count, owner, lh_holder_liveness_words(obstacle->liveness), obstacle->waiters_ahead);
    else
        snprintf(holder, sizeof(holder), "held by %s%s; %" PRIu32 " ahead", owner,
                 lh_holder_liveness_words(obstacle->liveness), obstacle->waiters_ahead);
    if (strcmp(lease->told, holder) == 0)
        return;
    snprintf(lease->told, sizeof(lease->told), "%s", holder);
    lh_run_status_tell(lease->status_file, "waiting", "owner", owner, holder);
    if (!lease->tells_waiting)
        return;
    if (obstacle->token == 0 && obstacle->rests_us > 0)
        lh_error_print("waiting for %s: %s; it rests for %s more", LH_SCOPE_NAME(words[0], words[1]), holder,
                       LH_DURATION_TEXT(obstacle->rests_us));
    else
        lh_error_print("waiting for %s: %s; held for %s", LH_SCOPE_NAME(words[0], words[1]), holder,
                       LH_DURATION_TEXT(obstacle->held_us));
}

/* --- asking --- */

static enum lh_exit refuse(const struct lh_run_lease *lease, const struct lh_error *error)
{
    if (error->status == LH_INVALID_ARGUMENT && strcmp(error->field, "duration") == 0)
        return lh_error_field(lease->cli, error->field, error->message);
    if (error->status == LH_INVALID_ARGUMENT)
        return lh_error_value(lease->cli, error);
    if (lh_exit_of_status(error->status) != LH_EXIT_HELD || !lh_args_has(&lease->cli->args, "quiet"))
        lh_error_print("%s", error->message);
    return lh_exit_of_status(error->status);
}

static bool declare(struct lh_run_lease *lease, int64_t grace_us, struct lh_acquire_scope *wanted,
                    struct lh_error *error)
{
    const struct lh_client_options client = {
        .endpoints = lease->cli->server,
        .tls = &lease->cli->tls,
        .owner = lease->asked->owner,
        .timeout_us = lease->cli->timeout_us,
    };
    const struct lh_declare_options options = {.duration_us = lease->asked->duration_us,
                                               .margin_us = grace_us,
                                               .on_lost = on_lost,
                                               .on_asked = lease->hears_requests ? on_asked : NULL,
                                               .arg = lease};

    lease->client = lh_client_create(&client, error);
    if (lease->client == NULL)
        return false;
    for (size_t i = 0; i < lease->scopes->count; i++) {
        wanted[i].key = lease->scopes->list[i].key;
        wanted[i].declared = lh_declare(lease->client, lease->scopes->list[i].ns, &options, error);
        if (wanted[i].declared == NULL)
            return false;
    }
    return true;
}

static enum lh_status request(struct lh_run_lease *lease, struct lh_acquire_scope *wanted, struct lh_error *error)
{
    struct lh_acquire_options options = lease->asked->options;

    if (lease->scopes->count > 1) {
        lh_cli_acquire_share_out(&options, wanted, lease->scopes->count);
        return lh_acquire_all_async(wanted, lease->scopes->count, &options, on_all_acquired, lease, &lease->request,
                                    error);
    }
    options.on_waiting = lease->tells_waiting || lease->status_file >= 0 ? on_waiting : NULL;
    options.on_waiting_arg = lease;
    return lh_acquire_async(wanted[0].declared, wanted[0].key, &options, on_acquired, lease, &lease->request, error);
}

enum lh_exit lh_run_lease_ask(struct lh_run_lease *lease, const struct lh_cli *cli, const struct lh_cli_acquire *asked,
                              const struct lh_run_scopes *scopes, int64_t grace_us)
{
    struct lh_acquire_scope wanted[LH_ACQUIRE_ALL_MAX] = {{0}};
    struct lh_error error = {0};

    lease->cli = cli;
    lease->asked = asked;
    lease->scopes = scopes;
    lease->tells_waiting = isatty(STDERR_FILENO) && !lh_args_has(&cli->args, "quiet");
    pthread_mutex_init(&lease->mutex, NULL);
    lease->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lease->wake < 0)
        return lh_error_print("too many open files");
    if (!declare(lease, grace_us, wanted, &error) || request(lease, wanted, &error) != LH_OK)
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

struct lh_run_request *lh_run_lease_next_request(struct lh_run_lease *lease)
{
    struct lh_run_request *request;
    pthread_mutex_lock(&lease->mutex);
    request = lease->requests;
    if (request != NULL)
        lease->requests = request->next;
    pthread_mutex_unlock(&lease->mutex);
    return request;
}

bool lh_run_lease_is_held(const struct lh_run_lease *lease)
{
    bool is_held = true;

    for (size_t i = 0; i < lease->scopes->count; i++)
        is_held &= lh_lease_is_held(lease->leases[i]);
    return is_held;
}

int64_t lh_run_lease_deadline_us(const struct lh_run_lease *lease)
{
    int64_t first_us = LH_FOREVER;

    for (size_t i = 0; i < lease->scopes->count; i++) {
        int64_t deadline_us = lh_lease_deadline_us(lease->leases[i]);
        first_us = deadline_us < first_us ? deadline_us : first_us;
    }
    return first_us;
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

static enum lh_exit told(const struct lh_run_lease *lease, const struct lh_lease *which, enum lh_status status,
                         const struct lh_error *error)
{
    char name[sizeof(lease->lost_name)];

    name_of(lease, which, name, sizeof(name));
    switch (status) {
    case LH_OK:
        return LH_EXIT_DONE;
    case LH_LOST:
        lh_error_print("the %s was lost before the command had ended: %s", name, error->message);
        return LH_EXIT_LOST;
    case LH_HOOK_REJECTED:
        return lh_error_print("the release was refused, so the %s will expire: %s", name, error->message);
    default:
        lh_error_print("the %s could not be released and ends by its deadline: %s", name, error->message);
        return lh_exit_of_status(status);
    }
}

/* One answer of several that come at once. */
struct release {
    sem_t *answered;
    enum lh_status status;
    struct lh_error error;
};

static void on_released(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct release *release = arg;

    release->status = status;
    release->error = *error;
    sem_post(release->answered);
}

static void release_all(struct lh_run_lease *lease, const struct lh_release_options *options, struct release *releases)
{
    size_t count = lease->scopes->count, started = 0;
    sem_t answered;

    sem_init(&answered, 0, 0);
    for (size_t i = 0; i < count; i++) {
        enum lh_status status;
        releases[i].answered = &answered;
        status = lh_release_async(lease->leases[i], options, on_released, &releases[i], NULL, &releases[i].error);
        if (status == LH_OK)
            started++;
        else
            releases[i].status = status;
    }
    while (started > 0)
        if (sem_wait(&answered) == 0)
            started--;
    sem_destroy(&answered);
}

enum lh_exit lh_run_lease_release(struct lh_run_lease *lease, const char *failure)
{
    const struct lh_release_options options = {.failure = failure, .call.timeout_us = lease->cli->timeout_us};
    struct release *releases = lh_alloc_zero(lease->scopes->count, sizeof(*releases));
    enum lh_exit status = LH_EXIT_DONE;

    release_all(lease, &options, releases);
    for (size_t i = 0; i < lease->scopes->count; i++) {
        enum lh_exit of_this = told(lease, lease->leases[i], releases[i].status, &releases[i].error);
        status = status == LH_EXIT_DONE ? of_this : status;
    }
    free(releases);
    return status;
}

void lh_run_lease_abandon(struct lh_run_lease *lease, const char *failure, int64_t timeout_us)
{
    const struct lh_release_options options = {.failure = failure, .call.timeout_us = timeout_us};
    struct release *releases = lh_alloc_zero(lease->scopes->count, sizeof(*releases));

    release_all(lease, &options, releases);
    free(releases);
}

void lh_run_lease_finish(struct lh_run_lease *lease)
{
    for (size_t i = 0; i < LH_ACQUIRE_ALL_MAX; i++)
        lh_lease_destroy(lease->leases[i]);
    lh_client_destroy(lease->client);
    while (lease->requests != NULL)
        lh_run_request_destroy(lh_run_lease_next_request(lease));
    if (lease->wake >= 0)
        close(lease->wake);
}

static enum lh_status take(struct lh_run_scopes *scopes, const char *text, struct lh_error *error)
{
    struct lh_run_scope *scope = &scopes->list[scopes->count];
    char *colon;

    if (scopes->count == LH_ACQUIRE_ALL_MAX)
        return lh_bounds_refuse(error, "also", "at most 99 times",
                                "--also is given more than %d times; a command holds at most %d leases",
                                LH_ACQUIRE_ALL_MAX - 1, LH_ACQUIRE_ALL_MAX);
    if (strchr(text, ':') == NULL)
        return lh_bounds_refuse(error, "also", "of the form NS:KEY",
                                "also '%.64s' has no colon; it must be of the form NS:KEY", text);
    scope->text = lh_strdup(text);
    scopes->count++; /* from here on it is freed */
    colon = strchr(scope->text, ':');
    *colon = '\0';
    scope->ns = scope->text;
    scope->key = colon + 1;
    if (lh_check_namespace(scope->ns, error) != LH_OK || lh_bounds_key(scope->key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    for (const struct lh_run_scope *other = scopes->list; other < scope; other++)
        if (strcmp(other->ns, scope->ns) == 0 && strcmp(other->key, scope->key) == 0)
            return lh_bounds_refuse(error, "also", "another key than the ones before",
                                    "also '%.64s' names a key that was named before", text);
    return LH_OK;
}

enum lh_status lh_run_scopes_take(struct lh_run_scopes *scopes, const struct lh_args *args, struct lh_error *error)
{
    const char *text;
    size_t at = 0;

    scopes->list[0] = (struct lh_run_scope){.ns = args->words[0], .key = args->words[1]};
    scopes->count = 1;
    while ((text = lh_args_next_value(args, "also", &at)) != NULL)
        if (take(scopes, text, error) != LH_OK)
            return LH_INVALID_ARGUMENT;
    return LH_OK;
}
