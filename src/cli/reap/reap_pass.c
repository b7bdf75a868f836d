#include "cli/reap/reap_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "embed/query.h"
#include "json/print.h"
#include "json/row_message.h"

void lh_reap_pass_begin(struct lh_reap_pass *pass)
{
    leasehold__v1__reap_response__init(&pass->total);
}

void lh_reap_pass_end(struct lh_reap_pass *pass)
{
    free(pass->total.failures);
    lh_reap_pass_begin(pass);
    lh_arena_reset(&pass->arena);
    if (pass->callback.flight != NULL)
        pass->callback.flight->reaped = 0;
}

static void add_reaped(struct lh_reap_pass *pass, int32_t count)
{
    pass->total.reaped += count;
    if (pass->callback.flight != NULL)
        pass->callback.flight->reaped = pass->total.reaped;
}

static void add(struct lh_reap_pass *pass, Leasehold__V1__ReapFailure *failure)
{
    size_t count = pass->total.n_failures;

    pass->total.failures = lh_realloc(pass->total.failures, count + 1, sizeof(*pass->total.failures));
    pass->total.failures[pass->total.n_failures++] = failure;
}

/* --- a failure of the server's, copied into the arena --- */

static void *allocate(void *arena, size_t size)
{
    return lh_arena_alloc(arena, size);
}

/* The arena frees everything at the end of the pass. */
static void free_nothing(void *arena, void *memory)
{
}

static void add_failure(struct lh_reap_pass *pass, const Leasehold__V1__ReapFailure *failure)
{
    ProtobufCAllocator allocator = {.alloc = allocate, .free = free_nothing, .allocator_data = &pass->arena};
    size_t size = leasehold__v1__reap_failure__get_packed_size(failure);
    Leasehold__V1__ReapFailure *copy;
    uint8_t *packed = lh_arena_alloc(&pass->arena, size + 1);

    leasehold__v1__reap_failure__pack(failure, packed);
    copy = leasehold__v1__reap_failure__unpack(&allocator, size, packed);
    if (copy != NULL)
        add(pass, copy);
}

/* --- one of the database's --- */

static Leasehold__V1__Lease *lease_message(struct lh_arena *arena, const struct lh_embed_lease *lease)
{
    Leasehold__V1__Lease *message = lh_message_new(&leasehold__v1__lease__descriptor, arena);

    message->scope = lh_message_scope(lease->namespace_text, lh_arena_strdup(arena, lease->key), arena);
    message->owner = lh_arena_strdup(arena, lease->owner);
    if (lease->principal != NULL)
        message->principal = lh_arena_strdup(arena, lease->principal);
    message->token = lease->token;
    message->heartbeats = lease->heartbeats;
    message->liveness = LEASEHOLD__V1__LIVENESS__LIVENESS_EXPIRED;
    message->duration = lh_message_duration(lease->duration_us, arena);
    message->grace = lh_message_duration(lease->grace_us, arena);
    message->deadline = lh_message_timestamp(lease->deadline_at_us, arena);
    message->acquired_at = lh_message_timestamp(lease->acquired_at_us, arena);
    message->heartbeat_at = lh_message_timestamp(lease->heartbeat_at_us, arena);
    lh_lease_add_labels(arena, message, lease->labels);
    return message;
}

void lh_reap_pass_add_failed(struct lh_reap_pass *pass, const struct lh_embed_lease *lease, const char *error,
                             int32_t reap_failures, int64_t next_try_at_us)
{
    Leasehold__V1__ReapFailure *failure = lh_message_new(&leasehold__v1__reap_failure__descriptor, &pass->arena);

    failure->lease = lease_message(&pass->arena, lease);
    failure->error = lh_arena_strdup(&pass->arena, error);
    failure->reap_failures = reap_failures;
    if (next_try_at_us != 0)
        failure->next_try_at = lh_message_timestamp(next_try_at_us, &pass->arena);
    add(pass, failure);
}

/* --- reporting --- */

static void report_failures(struct lh_reap_pass *pass)
{
    for (size_t i = 0; i < pass->total.n_failures; i++) {
        const Leasehold__V1__ReapFailure *failure = pass->total.failures[i];
        const Leasehold__V1__Scope *scope = failure->lease != NULL ? failure->lease->scope : NULL;
        const char *name = scope != NULL ? lh_scope_text(scope, &pass->arena) : "?";
        const char *when = failure->next_try_at != NULL ? LH_TIME_TEXT(failure->next_try_at->seconds)
                                                        : "none, an administrator must act";

        lh_error_print("could not reap %s (%" PRId32 " times so far): %s; next try: %s", name, failure->reap_failures,
                       failure->error, when);
    }
}

void lh_reap_pass_report(struct lh_reap_pass *pass, bool is_repeated)
{
    bool has_news = pass->total.reaped > 0 || pass->total.n_failures > 0 || lh_args_has(&pass->cli->args, "verbose");

    report_failures(pass);
    if (is_repeated && !has_news)
        return;
    if (pass->cli->output == LH_OUTPUT_JSON)
        lh_json_print(stdout, &pass->total.base);
    else
        printf("reaped %" PRId32 " lease%s\n", pass->total.reaped, pass->total.reaped == 1 ? "" : "s");
    fflush(stdout);
}

/* --- by a server --- */

#define SERVICE (&leasehold__v1__admin_service__descriptor)
#define MAX_DEFAULT 1000

static enum lh_exit round_by_server(struct lh_reap_pass *pass, struct lh_server *server, bool *more)
{
    Leasehold__V1__ReapRequest request = LEASEHOLD__V1__REAP_REQUEST__INIT;
    size_t count = pass->cli->args.word_count;
    Leasehold__V1__Namespace **list = lh_arena_alloc(&pass->arena, (count + 1) * sizeof(*list));
    const Leasehold__V1__ReapResponse *response;
    struct lh_reply reply;
    enum lh_exit status;

    for (size_t i = 0; i < count; i++)
        list[i] = lh_take_namespace(pass->cli->args.words[i], &pass->arena);
    request.namespaces = list;
    request.n_namespaces = count;
    request.include_children = pass->include_children;
    request.max = (int32_t)(pass->max > 0 ? pass->max : MAX_DEFAULT);
    status = lh_server_call(server, SERVICE, "Reap", &request.base, LH_REPEAT, &reply);
    response = (const Leasehold__V1__ReapResponse *)reply.message;
    *more = response != NULL && response->more;
    add_reaped(pass, response != NULL ? response->reaped : 0);
    for (size_t i = 0; response != NULL && i < response->n_failures; i++)
        add_failure(pass, response->failures[i]);
    lh_reply_finish(&reply);
    return status;
}

enum lh_exit lh_reap_by_server(struct lh_reap_pass *pass, struct lh_server *server)
{
    enum lh_exit status;
    bool more;

    do
        status = round_by_server(pass, server, &more);
    while (status == LH_EXIT_DONE && more);
    return status;
}

/* --- in the database --- */

#define TRANSACTION_LEASES 1000 /* of those without a callback of ours */
#define PROGRESS_AFTER_US (2 * LH_US_PER_S)
#define PROGRESS_EVERY_US (LH_US_PER_S / 4)

struct run {
    struct lh_reap_pass *pass;
    bool is_verbose;
    bool shows_progress;
    bool has_progress; /* on the screen */
    int64_t begun_us;
    int64_t shown_us;
};

/* One line that stays in its place, on a terminal, if it takes long. */
static void show_progress(struct run *run)
{
    int64_t now_us = lh_clock_us();

    if (!run->shows_progress || now_us - run->begun_us < PROGRESS_AFTER_US ||
        now_us - run->shown_us < PROGRESS_EVERY_US)
        return;
    fprintf(stderr, "\r\033[Kreaped %" PRId32 ", failed %zu, %" PRId64 " s", run->pass->total.reaped,
            run->pass->total.n_failures, (now_us - run->begun_us) / LH_US_PER_S);
    run->shown_us = now_us;
    run->has_progress = true;
}

static void clear_progress(struct run *run)
{
    if (run->has_progress)
        fputs("\r\033[K", stderr);
    run->has_progress = false;
}

static void on_outcome(void *arg, const struct lh_reap_outcome *outcome)
{
    struct run *run = arg;
    struct lh_reap_pass *pass = run->pass;
    const struct lh_embed_lease *lease = outcome->lease;

    if (outcome->is_reaped)
        add_reaped(pass, 1);
    else
        lh_reap_pass_add_failed(pass, lease, outcome->error, outcome->reap_failures, outcome->next_try_at_us);
    if (outcome->is_reaped && run->is_verbose)
        lh_error_print("reaped %s of %s, token %" PRId64, LH_SCOPE_NAME(lease->namespace_text, lease->key),
                       lease->owner[0] != '\0' ? lease->owner : "an unknown owner", lease->token);
    show_progress(run);
}

static int on_lease(void *arg, PGconn *conn, const struct lh_embed_lease *lease, struct lh_error *error)
{
    struct run *run = arg;
    const struct lh_reap_callback *callback = &run->pass->callback;

    clear_progress(run);
    return callback->on_lease(callback->arg, conn, lease, error);
}

enum lh_exit lh_reap_by_database(struct lh_reap_pass *pass, PGconn *session)
{
    const struct lh_args *args = &pass->cli->args;
    const struct lh_reap_callback *callback = &pass->callback;
    struct run run = {
        .pass = pass,
        .is_verbose = lh_args_has(args, "verbose"),
        .shows_progress = isatty(STDERR_FILENO) && !lh_args_has(args, "verbose"),
        .begun_us = lh_clock_us(),
    };
    struct lh_reap_options options = {
        .namespaces = args->words,
        .namespace_count = args->word_count,
        .include_children = pass->include_children,
        .on_lease = callback->on_lease != NULL ? on_lease : NULL,
        .on_outcome = on_outcome,
        .arg = &run,
        .statement_timeout_us = pass->cli->timeout_us,
        .limit_us = callback->limit_us,
        .keep_backoff = pass->keep_backoff,
        .skip_failed_since_us = pass->skip_failed_since_us,
    };
    struct lh_error error = {0};
    enum lh_status status;

    if (callback->transactions > 0)
        options.transaction_max = (uint32_t)callback->transactions;
    else if (pass->max > 0)
        options.transaction_max = (uint32_t)pass->max;
    else if (callback->on_lease == NULL)
        options.transaction_max = TRANSACTION_LEASES;
    status = lh_reap_stale_with(session, &options, NULL, &error);
    clear_progress(&run);
    return status == LH_OK ? LH_EXIT_DONE : lh_error_database(pass->cli, &error);
}

void lh_reap_tell_unknown(const struct lh_reap_pass *pass, PGconn *session)
{
    static const char sql[] =
        "select n.namespace from unnest($1::text[]) as n (namespace)"
        " where not exists (select from leasehold.policy p where p.namespace = n.namespace)"
        "   and not exists (select from leasehold.hook h where h.namespace = n.namespace)"
        "   and not exists (select from leasehold.scope s"
        "                    where s.namespace = n.namespace or starts_with(s.namespace, n.namespace || '.'))";
    const struct lh_args *args = &pass->cli->args;
    char *namespaces = lh_query_array(args->words, args->word_count);
    const char *const values[] = {namespaces};
    PGresult *unknown = lh_query(session, sql, values, 1, NULL);

    for (int row = 0; unknown != NULL && row < PQntuples(unknown); row++)
        lh_error_print("%s has no lease, policy or hook: nothing to do", PQgetvalue(unknown, row, 0));
    PQclear(unknown);
    free(namespaces);
}
