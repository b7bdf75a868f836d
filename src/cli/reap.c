/*
 * reap: rounds of at most --max leases until nothing is due, once or every so often. A round is one call of the
 * server's Reap, or one transaction of leasehold.reap(); what failed in it backs off and does not come again at once.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/bounds.h"
#include "cli/complain.h"
#include "cli/database.h"
#include "cli/json.h"
#include "cli/lease_text.h"
#include "cli/message.h"
#include "cli/server.h"

#define SERVICE (&leasehold__v1__admin_service__descriptor)
#define MAX_DEFAULT 1000
#define MAX_MOST 10000

struct reap {
    struct lh_cli *cli;
    bool include_children;
    int64_t max;
    struct lh_segments *segments; /* one for each namespace named; none: all */
    struct lh_server server;
    struct lh_session *session;

    /* since the pass began */
    struct lh_arena arena;
    Leasehold__V1__ReapResponse total;
    bool more;
};

static bool is_verbose(const struct reap *reap)
{
    return lh_args_has(&reap->cli->args, "verbose");
}

static void add_failure(struct reap *reap, Leasehold__V1__ReapFailure *failure)
{
    size_t count = reap->total.n_failures;

    reap->total.failures = lh_realloc(reap->total.failures, count + 1, sizeof(*reap->total.failures));
    reap->total.failures[reap->total.n_failures++] = failure;
}

/* --- by the server --- */

static void *allocate(void *arena, size_t size)
{
    return lh_arena_alloc(arena, size);
}

/* The arena frees everything at the end of the pass. */
static void free_nothing(void *arena, void *memory)
{
}

/* The reply goes before the pass is over. */
static Leasehold__V1__ReapFailure *copy_failure(struct reap *reap, const Leasehold__V1__ReapFailure *failure)
{
    ProtobufCAllocator allocator = {.alloc = allocate, .free = free_nothing, .allocator_data = &reap->arena};
    size_t size = leasehold__v1__reap_failure__get_packed_size(failure);
    uint8_t *packed = lh_arena_alloc(&reap->arena, size + 1);

    leasehold__v1__reap_failure__pack(failure, packed);
    return leasehold__v1__reap_failure__unpack(&allocator, size, packed);
}

static enum lh_exit round_by_server(struct reap *reap)
{
    Leasehold__V1__ReapRequest request = LEASEHOLD__V1__REAP_REQUEST__INIT;
    size_t count = reap->cli->args.word_count;
    Leasehold__V1__Namespace *namespaces = lh_alloc_zero(count + 1, sizeof(*namespaces));
    Leasehold__V1__Namespace **list = lh_alloc_zero(count + 1, sizeof(*list));
    const Leasehold__V1__ReapResponse *response;
    Leasehold__V1__ReapFailure *failure;
    struct lh_reply reply;
    enum lh_exit status;

    for (size_t i = 0; i < count; i++) {
        leasehold__v1__namespace__init(&namespaces[i]);
        namespaces[i].segments = reap->segments[i].list;
        namespaces[i].n_segments = reap->segments[i].count;
        list[i] = &namespaces[i];
    }
    request.namespaces = list;
    request.n_namespaces = count;
    request.include_children = reap->include_children;
    request.max = (int32_t)reap->max;
    status = lh_server_call(&reap->server, SERVICE, "Reap", &request.base, LH_REPEAT, &reply);
    response = (const Leasehold__V1__ReapResponse *)reply.message;
    reap->more = response != NULL && response->more;
    if (response != NULL)
        reap->total.reaped += response->reaped;
    for (size_t i = 0; response != NULL && i < response->n_failures; i++)
        if ((failure = copy_failure(reap, response->failures[i])) != NULL)
            add_failure(reap, failure);
    lh_reply_finish(&reply);
    free(list);
    free(namespaces);
    return status;
}

/* --- by the database --- */

/* '{"a.b","c"}'; NULL for none, which is all. A new string. */
static char *namespace_array(const struct reap *reap)
{
    struct lh_buffer text = {0};

    if (reap->cli->args.word_count == 0)
        return NULL;
    for (size_t i = 0; i < reap->cli->args.word_count; i++) {
        lh_buffer_append(&text, i == 0 ? "{\"" : "\",\"", i == 0 ? 2 : 3);
        for (const char *c = reap->cli->args.words[i]; *c != '\0'; c++) {
            if (*c == '"' || *c == '\\')
                lh_buffer_append(&text, "\\", 1);
            lh_buffer_append(&text, c, 1);
        }
    }
    lh_buffer_append(&text, "\"}", 3);
    return (char *)text.data;
}

static void take_row(struct reap *reap, const PGresult *result, int row)
{
    const char *outcome = lh_row_text(result, row, "outcome");
    const char *error = lh_row_text(result, row, "error");
    Leasehold__V1__ReapFailure *failure;
    Leasehold__V1__Lease *lease = lh_lease_from_row(&reap->arena, result, row);

    if (outcome == NULL || strcmp(outcome, "failed") != 0) {
        reap->total.reaped++;
        if (is_verbose(reap))
            lh_complain("reaped %s/%s of %s, token %" PRId64, lh_row_text(result, row, "namespace"), lease->scope->key,
                        lease->owner[0] != '\0' ? lease->owner : "an owner not told", lease->token);
        return;
    }
    failure = lh_arena_alloc(&reap->arena, sizeof(*failure));
    leasehold__v1__reap_failure__init(failure);
    failure->lease = lease;
    failure->error = lh_arena_strdup(&reap->arena, error != NULL ? error : "");
    failure->reap_failures = (int32_t)lh_row_number(result, row, "reap_failures", 0);
    failure->next_try_at = lh_row_timestamp(&reap->arena, result, row, "next_try_at_us");
    add_failure(reap, failure);
}

static enum lh_exit round_by_database(struct reap *reap)
{
    static const char sql[] =
        "select r.*, (extract(epoch from r.next_try_at) * 1000000)::bigint as next_try_at_us"
        " from leasehold.reap(namespaces => $1::text[], include_children => $2::boolean, max => $3::integer) r";
    char *namespaces = namespace_array(reap);
    char max[24];
    const char *const values[] = {namespaces, reap->include_children ? "true" : "false", max};
    enum lh_exit status;
    PGresult *result;

    snprintf(max, sizeof(max), "%" PRId64, reap->max);
    result = lh_database_query(reap->session, reap->cli, sql, values, 3, &status);
    reap->more = result != NULL && PQntuples(result) >= reap->max;
    for (int row = 0; result != NULL && row < PQntuples(result); row++)
        take_row(reap, result, row);
    PQclear(result);
    free(namespaces);
    return status;
}

/* --- passes --- */

static enum lh_exit open_endpoint(struct reap *reap)
{
    if (reap->cli->uses_database)
        return reap->session != NULL ? LH_EXIT_DONE : lh_database_open(&reap->session, reap->cli);
    return reap->server.caller != NULL ? LH_EXIT_DONE : lh_server_open(&reap->server, reap->cli);
}

static void close_endpoint(struct reap *reap)
{
    lh_session_close(reap->session);
    reap->session = NULL;
    lh_server_close(&reap->server);
}

static void report_failures(const struct reap *reap)
{
    for (size_t i = 0; i < reap->total.n_failures; i++) {
        const Leasehold__V1__ReapFailure *failure = reap->total.failures[i];
        const Leasehold__V1__Scope *scope = failure->lease != NULL ? failure->lease->scope : NULL;
        char *ns = scope != NULL ? lh_namespace_text(scope->namespace_, scope->n_namespace_) : lh_strdup("?");
        char when[LH_TIME_TEXT_BYTES] = "never by itself";

        if (failure->next_try_at != NULL)
            lh_time_format(failure->next_try_at->seconds, when);
        lh_complain("could not reap %s/%s (%" PRId32 " times so far): %s; next try: %s", ns,
                    scope != NULL ? scope->key : "?", failure->reap_failures, failure->error, when);
        free(ns);
    }
}

static void report(const struct reap *reap, bool is_repeated)
{
    bool has_news = reap->total.reaped > 0 || reap->total.n_failures > 0 || is_verbose(reap);

    report_failures(reap);
    if (is_repeated && !has_news)
        return;
    if (reap->cli->output == LH_OUTPUT_JSON)
        lh_json_print(stdout, &reap->total.base);
    else
        printf("reaped %" PRId32 " lease%s\n", reap->total.reaped, reap->total.reaped == 1 ? "" : "s");
    fflush(stdout);
}

static enum lh_exit pass(struct reap *reap, bool is_repeated)
{
    enum lh_exit status = open_endpoint(reap);

    leasehold__v1__reap_response__init(&reap->total);
    do {
        reap->more = false;
        if (status == LH_EXIT_DONE)
            status = reap->cli->uses_database ? round_by_database(reap) : round_by_server(reap);
    } while (status == LH_EXIT_DONE && reap->more);
    if (status == LH_EXIT_DONE || reap->total.reaped > 0 || reap->total.n_failures > 0)
        report(reap, is_repeated);
    if (status != LH_EXIT_DONE)
        close_endpoint(reap); /* the next pass begins anew */
    if (status == LH_EXIT_DONE && reap->total.n_failures > 0)
        status = LH_EXIT_FAILED;
    free(reap->total.failures);
    lh_arena_reset(&reap->arena);
    return status;
}

/* A reaper outlives an outage and callbacks that fail; what an administrator must change ends it. */
static enum lh_exit pass_every(struct reap *reap, int64_t every_us)
{
    struct timespec pause = {.tv_sec = every_us / LH_US_PER_S, .tv_nsec = every_us % LH_US_PER_S * 1000};

    for (;;) {
        enum lh_exit status = pass(reap, true);
        bool had_failures = reap->total.n_failures > 0;
        if (status != LH_EXIT_DONE && status != LH_EXIT_UNAVAILABLE && !had_failures)
            return status;
        nanosleep(&pause, NULL);
    }
}

static enum lh_status take_words(struct reap *reap, int64_t *every_us, struct lh_error *error)
{
    const struct lh_args *args = &reap->cli->args;
    const char *max = lh_args_value(args, "max");
    const char *every = lh_args_value(args, "every");

    reap->max = MAX_DEFAULT;
    *every_us = 0;
    for (size_t i = 0; i < args->word_count; i++)
        if (lh_check_namespace(args->words[i], error) != LH_OK)
            return LH_INVALID_ARGUMENT;
    if (max != NULL && lh_check_number("max", max, 1, MAX_MOST, &reap->max, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (every != NULL && lh_args_has(args, "once"))
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--once and --every exclude each other");
    if (every != NULL)
        return lh_check_duration("every", every, 100 * LH_US_PER_MS, every_us, error);
    return LH_OK;
}

static enum lh_exit run(struct lh_cli *cli)
{
    struct reap reap = {.cli = cli, .include_children = lh_args_has(&cli->args, "children")};
    struct lh_error error = {0};
    enum lh_exit status;
    int64_t every_us;

    if (take_words(&reap, &every_us, &error) != LH_OK)
        return lh_complain_value(cli, &error);
    reap.segments = lh_alloc_zero(cli->args.word_count + 1, sizeof(*reap.segments));
    for (size_t i = 0; i < cli->args.word_count; i++)
        lh_segments_split(&reap.segments[i], cli->args.words[i]);
    status = every_us > 0 ? pass_every(&reap, every_us) : pass(&reap, false);
    close_endpoint(&reap);
    for (size_t i = 0; i < cli->args.word_count; i++)
        lh_segments_finish(&reap.segments[i]);
    free(reap.segments);
    lh_arena_finish(&reap.arena);
    return status;
}

static const struct lh_option options[] = {
    {"children", 'r', NULL, "The namespaces below those named too."},
    {"max", 0, "N", "How many leases in one transaction at most, 1 to 10000; 1000 unless told."},
    {"once", 0, NULL, "Until nothing is due, then end; this is what it does unless told --every."},
    {"every", 0, "DURATION", "Again and again, with a pause between; an outage does not end it."},
    {"verbose", 'v', NULL, "Say what is reaped, and that nothing was."},
    {0},
};

const struct lh_command lh_command_reap = {
    .name = "reap",
    .summary = "end leases whose holders are gone",
    .usage = (const char *const[]){"reap [NAMESPACE...] [--children] [--max N] [--once | --every 10s]", NULL},
    .description = "Ends every lease whose expiry has passed, through the callbacks of its namespace.\n"
                   "Daemons do this by themselves every second; this is for namespaces whose policy\n"
                   "says reaper = external (name them), and for sites without a daemon: from cron, a\n"
                   "systemd timer, or as a service with --every. A lease whose callback fails is\n"
                   "reported, stays as it is and is tried again later; the exit status is then 1.\n",
    .options = options,
    .examples = "  leasehold reap --once --database postgresql:///leasehold\n"
                "  leasehold reap batch.nightly --children --every 10s -v\n",
    .words_min = 0,
    .words_max = -1,
    .takes_database = true,
    .run = run,
};
