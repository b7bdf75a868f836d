/*
 * reap: passes, each until nothing is due, once or every so often. The pass is handed down: to calls of the server's Reap
 * (reap_server.c), or to transactions on the database (reap_database.c), each with the callback of the pass, a command
 * (reap_exec.c) or a plugin (reap_plugin.c, in a process that reap_guard.c watches).
 */
#include <time.h>

#include "base/clock.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/reap/reap_internal.h"

#define MAX_MOST 10000

struct reap {
    struct lh_reap_pass pass;
    struct lh_server server;
    PGconn *session;
    int64_t every_us; /* 0: once */
    bool has_told_unknown;
};

static enum lh_exit open_endpoint(struct reap *reap)
{
    if (reap->pass.cli->uses_database)
        return reap->session != NULL ? LH_EXIT_DONE
                                     : lh_database_open(&reap->session, reap->pass.cli, LH_DATABASE_WRITE);
    return reap->server.caller != NULL ? LH_EXIT_DONE : lh_server_open(&reap->server, reap->pass.cli);
}

static void close_endpoint(struct reap *reap)
{
    PQfinish(reap->session);
    reap->session = NULL;
    lh_server_close(&reap->server);
}

/* Printed once: the name may be mistyped. */
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
        lh_error_print("nothing is due in %s%s", args->words[0],
                       args->word_count > 1 ? " and the other namespaces" : "");
}

static enum lh_exit pass(struct reap *reap, bool is_repeated)
{
    enum lh_exit status = open_endpoint(reap);

    lh_reap_pass_begin(&reap->pass);
    if (status == LH_EXIT_DONE)
        status = reap->pass.cli->uses_database ? lh_reap_by_database(&reap->pass, reap->session)
                                               : lh_reap_by_server(&reap->pass, &reap->server);
    if (status == LH_EXIT_DONE || reap->pass.total.reaped > 0 || reap->pass.total.n_failures > 0)
        lh_reap_pass_report(&reap->pass, is_repeated);
    if (status == LH_EXIT_DONE)
        tell_nothing(reap);
    else
        close_endpoint(reap); /* the next pass begins anew */
    if (status == LH_EXIT_DONE && reap->pass.total.n_failures > 0)
        status = LH_EXIT_FAILED;
    return status;
}

/* A reaper outlives an outage and callbacks that fail; what an administrator must change ends it. */
static enum lh_exit pass_every(struct reap *reap)
{
    struct timespec pause = {.tv_sec = reap->every_us / LH_US_PER_S, .tv_nsec = reap->every_us % LH_US_PER_S * 1000};

    for (;;) {
        enum lh_exit status = pass(reap, true);
        bool had_failures = reap->pass.total.n_failures > 0;

        lh_reap_pass_end(&reap->pass);
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

    lh_reap_pass_end(&reap->pass);
    close_endpoint(reap);
    return status;
}

static enum lh_status take_callback(struct reap *reap, struct lh_error *error)
{
    struct lh_cli *cli = reap->pass.cli;
    const char *command = lh_args_value(&cli->args, "exec");
    const char *limit = lh_args_value(&cli->args, "exec-timeout");
    const char *plugin = lh_args_value(&cli->args, "plugin");
    int64_t limit_us = 0;

    if (command != NULL && plugin != NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--exec and --plugin cannot be combined");
    if (command != NULL && cli->args.plain_count < cli->args.word_count)
        return lh_error_set(
            error, LH_INVALID_ARGUMENT,
            "unexpected argument after --: %s; --exec takes the whole command as one argument, in quotes",
            cli->args.words[cli->args.plain_count]);
    if (limit != NULL && command == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--exec-timeout is for --exec only");
    if (limit != NULL && lh_check_duration("exec-timeout", limit, LH_US_PER_MS, &limit_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (command == NULL && plugin == NULL)
        return LH_OK;
    if (cli->database == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT,
                            "--%s works on a database: --database URL, or LEASEHOLD_DATABASE",
                            command != NULL ? "exec" : "plugin");
    cli->uses_database = true;
    if (plugin != NULL)
        return lh_reap_use_plugin(&reap->pass.callback, plugin, error) ? LH_OK : LH_INVALID_ARGUMENT;
    lh_reap_use_command(&reap->pass.callback, command, limit_us);
    return LH_OK;
}

static enum lh_status take_arguments(struct reap *reap, struct lh_error *error)
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
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--once and --every cannot be combined");
    if (every != NULL && lh_check_duration("every", every, 100 * LH_US_PER_MS, &reap->every_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return take_callback(reap, error);
}

static enum lh_exit run(struct lh_cli *cli)
{
    struct reap reap = {.pass = {.cli = cli, .include_children = lh_args_has(&cli->args, "children")}};
    struct lh_error error = {0};
    enum lh_exit status;

    if (take_arguments(&reap, &error) != LH_OK)
        return lh_error_value(cli, &error);
    status = reap.pass.callback.flight != NULL ? lh_reap_guard(&reap.pass, work, &reap) : work(&reap);
    lh_arena_finish(&reap.pass.arena);
    return status;
}

static const struct lh_option options[] = {
    {"children", 'r', NULL, "Include the namespaces below."},
    {"max", 0, "N",
     "Leases in one transaction at most, 1 to 10000. Default: 1000; 100 with --plugin; always 1 with --exec."},
    {"once", 0, NULL, "Until nothing is due, then end (the default)."},
    {"every", 0, "DURATION", "Repeat, with this pause in between. An outage does not end it."},
    {"exec", 0, "COMMAND",
     "Run it by /bin/sh for each lease, in the transaction that ends the lease: exit 0 commits, any other status "
     "leaves "
     "the lease for another try. It gets LEASEHOLD_NAMESPACE, _KEY, _LEASE_KEY, _TOKEN, _OWNER and _PRINCIPAL."},
    {"exec-timeout", 0, "DURATION",
     "Kill the command, and all it has started, after this time. Default: hook_timeout of the policy."},
    {"plugin", 0, "FILE.so",
     "Call its C callback for each lease, in the transaction that ends the lease (see leasehold.h). It runs in its own "
     "process, so a crash is a failure of one lease."},
    {"verbose", 'v', NULL, "Print each lease that is reaped, and passes that reap none."},
    {0},
};

const struct lh_command lh_command_reap = {
    .name = "reap",
    .summary = "end the leases whose expiry has passed",
    .usage = (const char *const[]){"reap [NAMESPACE...] [--children] [--max N] [--once | --every 10s]",
                                   "reap [NAMESPACE...] (--exec COMMAND | --plugin FILE.so) ...", NULL},
    .description = "Ends every lease whose expiry has passed, through the callbacks of its\n"
                   "namespace. Daemons do this every second. Use this command for namespaces whose\n"
                   "policy says reaper = external (name them), and for sites without a daemon: from\n"
                   "cron, from a systemd timer, or as a service with --every. A lease whose\n"
                   "callback fails is reported, stays as it is and is tried again later; the exit\n"
                   "status is then 1. Any number of reapers and daemons may run at the same time.\n",
    .options = options,
    .examples = "  leasehold reap --once --database postgresql:///leasehold\n"
                "  leasehold reap batch.nightly --children --every 10s -v\n"
                "  leasehold reap runners --database postgresql:///leasehold \\\n"
                "    --exec 'logger \"runner $LEASEHOLD_KEY is gone\"'\n",
    .words_min = 0,
    .words_max = -1,
    .reach = LH_REACH_EITHER,
    .run = run,
};
