/*
 * reap: passes, each until nothing is due, once or every so often. A pass is calls of the server's Reap, or
 * transactions on the database (reap_database.c), in which a command (reap_exec.c) or a plugin (reap_plugin.c) may have
 * its say.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/bounds.h"
#include "cli/complain.h"
#include "cli/json.h"
#include "cli/lease_text.h"
#include "cli/message.h"
#include "cli/reap.h"

#define SERVICE (&leasehold__v1__admin_service__descriptor)
#define MAX_DEFAULT 1000
#define MAX_MOST 10000

struct reap {
    struct lh_reap_pass pass;
    struct lh_segments *segments; /* one for each namespace named; none: all */
    struct lh_server server;
    struct lh_session *session;
    int64_t every_us; /* 0: once */
    bool has_told_unknown;
    bool more; /* by the server's word */
};

static bool is_verbose(const struct reap *reap)
{
    return lh_args_has(&reap->pass.cli->args, "verbose");
}

void lh_reap_add_failure(struct lh_reap_pass *pass, Leasehold__V1__ReapFailure *failure)
{
    size_t count = pass->total.n_failures;

    pass->total.failures = lh_realloc(pass->total.failures, count + 1, sizeof(*pass->total.failures));
    pass->total.failures[pass->total.n_failures++] = failure;
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
    ProtobufCAllocator allocator = {.alloc = allocate, .free = free_nothing, .allocator_data = &reap->pass.arena};
    size_t size = leasehold__v1__reap_failure__get_packed_size(failure);
    uint8_t *packed = lh_arena_alloc(&reap->pass.arena, size + 1);

    leasehold__v1__reap_failure__pack(failure, packed);
    return leasehold__v1__reap_failure__unpack(&allocator, size, packed);
}

static enum lh_exit round_by_server(struct reap *reap)
{
    Leasehold__V1__ReapRequest request = LEASEHOLD__V1__REAP_REQUEST__INIT;
    size_t count = reap->pass.cli->args.word_count;
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
    request.include_children = reap->pass.include_children;
    request.max = (int32_t)(reap->pass.max > 0 ? reap->pass.max : MAX_DEFAULT);
    status = lh_server_call(&reap->server, SERVICE, "Reap", &request.base, LH_REPEAT, &reply);
    response = (const Leasehold__V1__ReapResponse *)reply.message;
    reap->more = response != NULL && response->more;
    if (response != NULL)
        reap->pass.total.reaped += response->reaped;
    for (size_t i = 0; response != NULL && i < response->n_failures; i++)
        if ((failure = copy_failure(reap, response->failures[i])) != NULL)
            lh_reap_add_failure(&reap->pass, failure);
    lh_reply_finish(&reply);
    free(list);
    free(namespaces);
    return status;
}

/* --- passes --- */

static enum lh_exit open_endpoint(struct reap *reap)
{
    if (reap->pass.cli->uses_database)
        return reap->session != NULL ? LH_EXIT_DONE : lh_database_open(&reap->session, reap->pass.cli);
    return reap->server.caller != NULL ? LH_EXIT_DONE : lh_server_open(&reap->server, reap->pass.cli);
}

static void close_endpoint(struct reap *reap)
{
    lh_session_close(reap->session);
    reap->session = NULL;
    lh_server_close(&reap->server);
}

static void report_failures(const struct reap *reap)
{
    for (size_t i = 0; i < reap->pass.total.n_failures; i++) {
        const Leasehold__V1__ReapFailure *failure = reap->pass.total.failures[i];
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
    bool has_news = reap->pass.total.reaped > 0 || reap->pass.total.n_failures > 0 || is_verbose(reap);

    report_failures(reap);
    if (is_repeated && !has_news)
        return;
    if (reap->pass.cli->output == LH_OUTPUT_JSON)
        lh_json_print(stdout, &reap->pass.total.base);
    else
        printf("reaped %" PRId32 " lease%s\n", reap->pass.total.reaped, reap->pass.total.reaped == 1 ? "" : "s");
    fflush(stdout);
}

/* Said once: somebody may have mistyped it. */
static void tell_nothing(struct reap *reap)
{
    const struct lh_args *args = &reap->pass.cli->args;

    if (reap->has_told_unknown || args->word_count == 0 || reap->pass.total.reaped > 0 ||
        reap->pass.total.n_failures > 0)
        return;
    reap->has_told_unknown = true;
    if (reap->pass.cli->uses_database)
        lh_reap_tell_unknown(&reap->pass, reap->session);
    else
        lh_complain("nothing is due in %s%s", args->words[0], args->word_count > 1 ? " and the other namespaces" : "");
}

static enum lh_exit rounds_by_server(struct reap *reap)
{
    enum lh_exit status;

    do {
        reap->more = false;
        status = round_by_server(reap);
    } while (status == LH_EXIT_DONE && reap->more);
    return status;
}

static void end_pass(struct reap *reap)
{
    free(reap->pass.total.failures);
    reap->pass.total.failures = NULL;
    lh_arena_reset(&reap->pass.arena);
    if (reap->pass.callback->flight != NULL)
        lh_reap_flight_count(reap->pass.callback->flight, 0);
}

static enum lh_exit pass(struct reap *reap, bool is_repeated)
{
    enum lh_exit status = open_endpoint(reap);

    leasehold__v1__reap_response__init(&reap->pass.total);
    if (status == LH_EXIT_DONE)
        status =
            reap->pass.cli->uses_database ? lh_reap_by_database(&reap->pass, reap->session) : rounds_by_server(reap);
    if (status == LH_EXIT_DONE || reap->pass.total.reaped > 0 || reap->pass.total.n_failures > 0)
        report(reap, is_repeated);
    if (status == LH_EXIT_DONE)
        tell_nothing(reap);
    else
        close_endpoint(reap); /* the next pass begins anew */
    if (status == LH_EXIT_DONE && reap->pass.total.n_failures > 0)
        status = LH_EXIT_FAILED;
    end_pass(reap);
    return status;
}

/* A reaper outlives an outage and callbacks that fail; what an administrator must change ends it. */
static enum lh_exit pass_every(struct reap *reap)
{
    struct timespec pause = {.tv_sec = reap->every_us / LH_US_PER_S, .tv_nsec = reap->every_us % LH_US_PER_S * 1000};

    for (;;) {
        enum lh_exit status = pass(reap, true);
        bool had_failures = reap->pass.total.n_failures > 0;
        reap->pass.keep_backoff = true;
        reap->pass.skip_failed_since_us = 0;
        if (status != LH_EXIT_DONE && status != LH_EXIT_UNAVAILABLE && !had_failures)
            return status;
        nanosleep(&pause, NULL);
    }
}

static enum lh_exit work(void *arg)
{
    struct reap *reap = arg;
    enum lh_exit status = reap->every_us > 0 ? pass_every(reap) : pass(reap, false);

    close_endpoint(reap);
    return status;
}

/* What the process that crashed had done and could not tell, and what it crashed at. */
static void on_crash(void *arg)
{
    report(arg, true);
    end_pass(arg);
}

static enum lh_status take_callback(struct reap *reap, struct lh_error *error)
{
    struct lh_cli *cli = reap->pass.cli;
    const char *command = lh_args_value(&cli->args, "exec");
    const char *limit = lh_args_value(&cli->args, "exec-timeout");
    const char *plugin = lh_args_value(&cli->args, "plugin");
    int64_t limit_us = 0;

    if (command != NULL && plugin != NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--exec and --plugin exclude each other");
    if (limit != NULL && command == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--exec-timeout is for --exec");
    if (limit != NULL && lh_check_duration("exec-timeout", limit, LH_US_PER_MS, &limit_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (command == NULL && plugin == NULL)
        return LH_OK;
    if (cli->database == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT,
                            "--%s works on the database: --database URL, or LEASEHOLD_DATABASE",
                            command != NULL ? "exec" : "plugin");
    cli->uses_database = true;
    if (plugin != NULL)
        return lh_reap_use_plugin(reap->pass.callback, plugin, error) ? LH_OK : LH_INVALID_ARGUMENT;
    lh_reap_use_command(reap->pass.callback, command, limit_us);
    return LH_OK;
}

static enum lh_status take_words(struct reap *reap, struct lh_error *error)
{
    const struct lh_args *args = &reap->pass.cli->args;
    const char *max = lh_args_value(args, "max");
    const char *every = lh_args_value(args, "every");

    for (size_t i = 0; i < args->word_count; i++)
        if (lh_check_namespace(args->words[i], error) != LH_OK)
            return LH_INVALID_ARGUMENT;
    if (max != NULL && lh_check_number("max", max, 1, MAX_MOST, &reap->pass.max, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (every != NULL && lh_args_has(args, "once"))
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--once and --every exclude each other");
    if (every != NULL && lh_check_duration("every", every, 100 * LH_US_PER_MS, &reap->every_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return take_callback(reap, error);
}

static enum lh_exit run(struct lh_cli *cli)
{
    struct lh_reap_callback callback = {0};
    struct reap reap = {
        .pass = {.cli = cli, .include_children = lh_args_has(&cli->args, "children"), .callback = &callback},
    };
    struct lh_error error = {0};
    enum lh_exit status;

    if (take_words(&reap, &error) != LH_OK)
        return lh_complain_value(cli, &error);
    reap.segments = lh_alloc_zero(cli->args.word_count + 1, sizeof(*reap.segments));
    for (size_t i = 0; i < cli->args.word_count; i++)
        lh_segments_split(&reap.segments[i], cli->args.words[i]);
    status = callback.flight != NULL ? lh_reap_guard(&reap.pass, work, on_crash, &reap) : work(&reap);
    for (size_t i = 0; i < cli->args.word_count; i++)
        lh_segments_finish(&reap.segments[i]);
    free(reap.segments);
    lh_arena_finish(&reap.pass.arena);
    return status;
}

static const struct lh_option options[] = {
    {"children", 'r', NULL, "The namespaces below those named too."},
    {"max", 0, "N",
     "How many leases in one transaction at most, 1 to 10000; 1000 unless told, 100 with --plugin, always 1 with "
     "--exec."},
    {"once", 0, NULL, "Until nothing is due, then end; this is what it does unless told --every."},
    {"every", 0, "DURATION", "Again and again, with a pause between; an outage does not end it."},
    {"exec", 0, "COMMAND",
     "Run it by /bin/sh for each lease, in the transaction that ends it: exit 0 commits, anything else leaves the "
     "lease to be tried again. It is told LEASEHOLD_NAMESPACE, _KEY, _LEASE_KEY, _TOKEN and _OWNER."},
    {"exec-timeout", 0, "DURATION",
     "Kill the command, and all it has started, after this time; otherwise the hook_timeout of the namespace's "
     "policy."},
    {"plugin", 0, "FILE.so",
     "Call its C callback for each lease, in the transaction that ends it; see leasehold.h. It runs in a process of "
     "its "
     "own, so that a crash is a failure of one lease."},
    {"verbose", 'v', NULL, "Say what is reaped, and that nothing was."},
    {0},
};

const struct lh_command lh_command_reap = {
    .name = "reap",
    .summary = "end leases whose holders are gone",
    .usage = (const char *const[]){"reap [NAMESPACE...] [--children] [--max N] [--once | --every 10s]",
                                   "reap [NAMESPACE...] (--exec COMMAND | --plugin FILE.so) ...", NULL},
    .description = "Ends every lease whose expiry has passed, through the callbacks of its namespace.\n"
                   "Daemons do this by themselves every second; this is for namespaces whose policy\n"
                   "says reaper = external (name them), and for sites without a daemon: from cron, a\n"
                   "systemd timer, or as a service with --every. A lease whose callback fails is\n"
                   "reported, stays as it is and is tried again later; the exit status is then 1.\n"
                   "Any number of reapers and daemons may run at once.\n",
    .options = options,
    .examples = "  leasehold reap --once --database postgresql:///leasehold\n"
                "  leasehold reap batch.nightly --children --every 10s -v\n"
                "  leasehold reap runners --database postgresql:///leasehold \\\n"
                "    --exec 'logger \"runner $LEASEHOLD_KEY is gone\"'\n",
    .words_min = 0,
    .words_max = -1,
    .takes_database = true,
    .run = run,
};
