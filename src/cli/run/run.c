/*
 * run: a command under a lease.
 *
 * The happy path: fork the supervisor (before there are threads), acquire, tell it to start the command, tell it every
 * new deadline, hear from it that the command has ended and that nothing is left of it, release, exit with the
 * command's status. This process keeps the terminal, the signals and the lease; the other one keeps the processes.
 *
 * The failures: refused or interrupted before it is granted, the supervisor goes home and the command never ran. Lost,
 * the supervisor gets a message, and ends everything before the deadline. This process stopped or killed, it does so by
 * itself. The supervisor killed or stopped, its processes are ended from here.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/error.h"
#include "cli/run/run_internal.h"
#include "cli/run/supervisor_internal.h"
#include "cli/server.h"

/* --- before and after --- */

static void wait_for_lease(struct lh_run *run)
{
    while (!lh_run_lease_is_answered(&run->lease)) {
        struct pollfd polled[] = {
            {.fd = run->signals.file, .events = POLLIN},
            {.fd = run->lease.wake, .events = POLLIN},
        };
        poll(polled, 2, -1);
        lh_run_lease_look(&run->lease);
        lh_run_take_signals(run);
    }
}

static enum lh_exit own(const struct lh_run *run, enum lh_exit status)
{
    if (run->own_status >= 0 && (status == LH_EXIT_HELD || status == LH_EXIT_LOST))
        return (enum lh_exit)run->own_status;
    return status;
}

static enum lh_exit on_lost(struct lh_run *run)
{
    struct lh_run_lease *lease = &run->lease;
    const char *reason = "unreachable", *words = "no renewal got through in time", *name = "lease";
    char stopped[96];

    if (lh_run_lease_is_lost(lease)) {
        name = lease->lost_name;
        reason = lh_lost_reason_name(lease->lost);
        words = lease->lost_words;
    }
    /* The server answered: it was not asked. */
    if (run->pause_us > run->asked.duration_us / 2 &&
        (lease->lost == 0 || lease->lost == LH_LOST_UNREACHABLE || lease->lost == LH_LOST_EXPIRED)) {
        snprintf(stopped, sizeof(stopped), "leasehold run did not run for %s, so no renewal was sent",
                 LH_DURATION_TEXT(run->pause_us));
        reason = "stopped";
        words = stopped;
    }
    lh_error_print("the %s is lost (%s): %s; the command was ended", name, reason, words);
    lh_run_status_tell(run->status_file, "lost", "reason", reason, words);
    /* The next waiters need not wait for the deadlines of what is still held. */
    lh_run_lease_abandon(lease, "the lease could not be renewed; the command was ended", run->schedule.margin_us);
    return own(run, LH_EXIT_LOST);
}

static enum lh_exit on_ended(struct lh_run *run)
{
    char failure[96] = "";
    enum lh_exit released, status = (enum lh_exit)WEXITSTATUS(run->status);

    if (WIFSIGNALED(run->status)) {
        status = (enum lh_exit)(LH_EXIT_SIGNAL + WTERMSIG(run->status));
        if (!run->when_asked.has_stopped) /* else by us, for who asked */
            snprintf(failure, sizeof(failure), "the command was ended by signal %d (%s)", WTERMSIG(run->status),
                     strsignal(WTERMSIG(run->status)));
    } else if (status != 0) {
        snprintf(failure, sizeof(failure), "the command ended with status %d", (int)status);
    }
    released = lh_run_lease_release(&run->lease, failure[0] != '\0' ? failure : NULL);
    if (released == LH_EXIT_LOST) {
        lh_run_status_tell(run->status_file, "lost", "reason", "unknown", "it was lost before the command had ended");
        return own(run, LH_EXIT_LOST);
    }
    return released == LH_EXIT_FAILED && status == LH_EXIT_DONE ? LH_EXIT_FAILED : status;
}

static enum lh_exit on_abandoned(struct lh_run *run)
{
    lh_error_print("the supervisor of the command was killed or stopped; the command was ended");
    lh_run_lease_release(&run->lease, "the supervisor of the command was killed or stopped");
    return LH_EXIT_FAILED;
}

static enum lh_exit run_with_lease(struct lh_run *run)
{
    enum lh_exit status;

    lh_run_terminal_remember(&run->terminal);
    if (run->terraform != NULL && !lh_terraform_start(run->terraform, run->lease.leases[0])) {
        lh_error_print("cannot start a thread: %s", strerror(errno));
        lh_run_lease_release(&run->lease, "no thread for Terraform's backend");
        return LH_EXIT_FAILED;
    }
    lh_run_watch(run);
    lh_terraform_stop(run->terraform);
    lh_run_terminal_restore(&run->terminal);
    if (run->was_late || lh_run_lease_is_lost(&run->lease) || !lh_run_lease_is_held(&run->lease))
        status = on_lost(run);
    else if (run->was_abandoned)
        status = on_abandoned(run);
    else
        status = on_ended(run);
    return status;
}

/* A shell that runs a script ends with its Ctrl-C if what it waited for died of it, not if that exited with 130. */
static void die_of_interrupt(const struct lh_run *run)
{
    sigset_t interrupt;

    if (!run->has_terminal_interrupt || !WIFSIGNALED(run->status) || WTERMSIG(run->status) != SIGINT)
        return;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
    sigprocmask(SIG_UNBLOCK, &interrupt, NULL);
}

/* For --status-fd. */
static void tell_answer(const struct lh_run *run)
{
    const struct lh_run_lease *lease = &run->lease;
    char token[24];

    if (lease->leases[0] == NULL) {
        lh_run_status_tell(run->status_file, "refused", "status", lh_status_name(lease->status), lease->error.message);
        return;
    }
    snprintf(token, sizeof(token), "%" PRId64, lh_lease_token(lease->leases[0]));
    lh_run_status_tell(run->status_file, "granted", "token", token, "");
}

static enum lh_exit hold(struct lh_run *run)
{
    enum lh_exit status;

    if (!lh_run_witness_start(&run->signals) ||
        (run->supervisor = lh_run_supervisor_start(&run->plan, &run->channel)) < 0) {
        status = lh_error_print("cannot start a process: %s", strerror(errno));
        lh_run_witness_end(&run->signals);
        return status;
    }
    run->lease = (struct lh_run_lease){.wake = -1,
                                       .status_file = run->status_file,
                                       .hears_requests = run->when_asked.kind != LH_RUN_ASKED_NOTHING,
                                       .refusal = run->when_asked.refusal};
    status = lh_run_lease_ask(&run->lease, run->cli, &run->asked, &run->scopes, run->schedule.grace_us);
    if (status == LH_EXIT_DONE) {
        wait_for_lease(run);
        if (run->interrupt != 0)
            status = (enum lh_exit)(LH_EXIT_SIGNAL + run->interrupt);
        else
            status = own(run, lh_run_lease_verdict(&run->lease));
        tell_answer(run);
        if (run->lease.leases[0] != NULL && run->interrupt == 0)
            status = run_with_lease(run);
        else if (run->lease.leases[0] != NULL)
            lh_run_lease_release(&run->lease, "interrupted before the command was started");
    }
    close(run->channel);
    lh_run_lease_finish(&run->lease);
    waitpid(run->supervisor, NULL, 0);
    lh_run_witness_end(&run->signals);
    return status;
}

/* --- again and again --- */

/* Ready for another acquisition. */
static void renew(struct lh_run *run)
{
    struct lh_uuid uuid = lh_uuid_random();

    lh_uuid_format(&uuid, run->asked.lease_key);
    run->lease = (struct lh_run_lease){.is_answered = true}; /* there is nothing to cancel */
    run->told_us = run->pause_us = 0;
    run->when_asked.has_stopped = false;
    run->was_lost_told = run->has_ended = run->was_late = run->was_abandoned = false;
    run->status = 0;
}

static enum lh_exit hold_tick(struct lh_run *run)
{
    enum lh_exit status = lh_run_tick_claim(run);

    return status == LH_EXIT_DONE ? hold(run) : status;
}

/* Would another round fare no better? */
static bool is_final(const struct lh_run *run, enum lh_exit status)
{
    enum lh_status refusal = run->lease.status;

    return run->is_stopping || status == LH_EXIT_USAGE || refusal == LH_ACCESS_DENIED ||
           refusal == LH_UNAUTHENTICATED ||
           (run->told_us != 0 && WIFEXITED(run->status) && WEXITSTATUS(run->status) >= 126);
}

/* Rounds begin no faster than one a second, so that others get their turn, and a command that fails does not spin. */
static void pause_until(struct lh_run *run, int64_t until_us)
{
    int64_t left_us;

    while (!run->is_stopping && (left_us = until_us - lh_clock_us()) > 0) {
        struct pollfd polled = {.fd = run->signals.file, .events = POLLIN};
        poll(&polled, 1, (int)(left_us / LH_US_PER_MS) + 1);
        lh_run_take_signals(run);
    }
}

static enum lh_exit hold_again_and_again(struct lh_run *run)
{
    enum lh_exit status;

    for (;;) {
        int64_t began_us = lh_clock_us();
        bool has_run;

        status = run->runs_ticks ? hold_tick(run) : hold(run);
        if (!run->repeats || is_final(run, status))
            return status;
        has_run = run->told_us != 0;
        renew(run);
        if (!run->runs_ticks || !has_run) /* the schedule says when the next tick is due */
            pause_until(run, began_us + LH_US_PER_S);
        if (run->is_stopping)
            return status;
    }
}

/* --- the plan --- */

static void give_back(struct lh_run *run, struct lh_caller *caller, Leasehold__V1__Scope *scope)
{
    static const struct lh_release_options killed = {.failure = "leasehold run was killed; its command was ended"};
    const struct lh_by_key lease = {.caller = caller,
                                    .scope = scope,
                                    .lease_key = run->asked.lease_key,
                                    .deadline_us = lh_clock_us() + run->cli->timeout_us};
    enum lh_status status;
    struct lh_reply reply;

    lh_by_key_release(&lease, &killed, &reply, &status);
    lh_reply_finish(&reply);
}

/* In the supervisor. This process is gone, and its lease would otherwise last until its deadline. */
static void on_alone(void *arg)
{
    struct lh_run *run = arg;
    struct lh_server server;

    if (lh_server_open(&server, run->cli) == LH_EXIT_DONE)
        for (size_t i = 0; i < run->scopes.count; i++) {
            struct lh_error error;
            Leasehold__V1__Scope *scope =
                lh_take_scope(run->scopes.list[i].ns, run->scopes.list[i].key, &run->cli->arena, &error);
            if (scope != NULL)
                give_back(run, server.caller, scope);
        }
    lh_server_close(&server);
}

static void plan(struct lh_run *run)
{
    const struct lh_args *args = &run->cli->args;
    const char *shell[] = {"/bin/sh", "-c", lh_args_value(args, "command")};
    const char *const *words = shell[2] != NULL ? shell : args->words + 2;
    size_t count = shell[2] != NULL ? 3 : args->word_count - 2;

    run->argv = lh_alloc_zero(count + 1, sizeof(*run->argv));
    for (size_t i = 0; i < count; i++)
        run->argv[i] = (char *)(uintptr_t)words[i];
    run->plan = (struct lh_run_plan){
        .argv = run->argv,
        .namespace_text = args->words[0],
        .key = args->words[1],
        .lease_key = run->asked.lease_key,
        .values = run->values,
        .schedule = run->schedule,
        .keeps_detached = lh_args_has(args, "keep-detached"),
        .on_alone = on_alone,
        .arg = run,
    };
    /* All of it would be ended: what has left the command's session is to be kept. */
    if (!run->plan.keeps_detached)
        lh_run_cgroup_make(&run->plan.cgroup);
}

/* A tick is a scope: NAMESPACE is the name of the schedule, KEY the tick of this round. */
static void words_of_schedule(struct lh_args *args, struct lh_run_values *values)
{
    args->words = lh_realloc(args->words, args->word_count + 2, sizeof(*args->words));
    memmove(args->words + 2, args->words, args->word_count * sizeof(*args->words));
    strcpy(values->tick, "tick"); /* until one is claimed */
    args->words[0] = lh_args_value(args, "schedule");
    args->words[1] = values->tick;
    args->word_count += 2;
    args->plain_count += 2;
}

static enum lh_exit run_with(struct lh_cli *cli, struct lh_run_values *values)
{
    struct lh_run run = {.cli = cli, .values = values, .lease.is_answered = true};
    struct lh_error error = {0};
    enum lh_exit status;

    if (lh_run_arguments_take(&run, &error) != LH_OK) {
        status = lh_error_value(cli, &error);
    } else if (!lh_run_can_see_descendants()) {
        status = lh_error_print("/proc is not mounted: a command could not be ended with all that it started");
    } else if (lh_args_has(&cli->args, "terraform") &&
               (run.terraform = lh_terraform_open(lh_args_value(&cli->args, "state"))) == NULL) {
        status = LH_EXIT_FAILED;
    } else if (plan(&run), !lh_run_signals_open(&run.signals, &run.plan.mask)) {
        status = lh_error_print("cannot take signals: %s", strerror(errno));
    } else {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        status = hold_again_and_again(&run);
        lh_run_cgroup_remove(&run.plan.cgroup);
        die_of_interrupt(&run);
    }
    lh_terraform_close(run.terraform);
    free(run.argv);
    for (size_t i = 0; i < run.scopes.count; i++)
        free(run.scopes.list[i].text);
    return status;
}

static enum lh_exit run(struct lh_cli *cli)
{
    struct lh_run_values *values = lh_run_values_create();

    if (values == NULL)
        return lh_error_print("cannot share memory with a process: %s", strerror(errno));
    if (lh_args_has(&cli->args, "schedule"))
        words_of_schedule(&cli->args, values);
    return run_with(cli, values);
}

const struct lh_command lh_command_run = {
    .name = "run",
    .summary = "run a command while holding a lease",
    .usage =
        (const char *const[]){
            "run NAMESPACE KEY [--wait 5s|forever|alive] [-E CODE] -- COMMAND...",
            "run NAMESPACE KEY [-n | -w SECONDS] -c COMMAND", "run NAMESPACE KEY --shared[=UNITS] -- COMMAND...",
            "run NAMESPACE KEY --also NS:KEY [--also NS:KEY] -- COMMAND...", "run NAMESPACE KEY --repeat -- COMMAND...",
            "run NAMESPACE KEY --repeat --preferred -- COMMAND...", "run --schedule NAME -- COMMAND...",
            "run NAMESPACE KEY --terraform [--state DIRECTORY] -- terraform apply", NULL},
    .description = "NAMESPACE and KEY stand before --, COMMAND after it.\n"
                   "\n"
                   "Acquires the lease, runs COMMAND, renews the lease while the command runs, and\n"
                   "releases it when the command ends: as a success if its status is 0, otherwise\n"
                   "as failed. The exit status is the command's own: 126 if it cannot be executed,\n"
                   "127 if it is not found, 128+N if signal N ended it. Without --wait a held lease\n"
                   "is refused at once (exit status 3). -n, -w, -E, -c, -s and -x are those of\n"
                   "flock(1).\n"
                   "\n"
                   "The command gets LEASEHOLD_NAMESPACE, LEASEHOLD_KEY, LEASEHOLD_LEASE_KEY and\n"
                   "LEASEHOLD_TOKEN. It has the terminal and all files. Its environment loses\n"
                   "LEASEHOLD_DATABASE, which may hold a password, and keeps LEASEHOLD_TOKEN_FILE,\n"
                   "which is a path. A signal to leasehold run is passed on to it, unless the\n"
                   "command has had it too: one to their process group, or by systemd.\n"
                   "\n"
                   "With --shared and a capacity in the policy, LEASEHOLD_SLOT is a number from 1 to\n"
                   "the capacity that no other holder has: a GPU, a port, a worker. With several\n"
                   "units it is the lowest, and LEASEHOLD_SLOTS has all of them, as in 1,2,5.\n"
                   "\n"
                   "With --also the command runs while it holds several leases. They are acquired in\n"
                   "one step; while leasehold run waits it holds none of them, so commands may name\n"
                   "them in any order. LEASEHOLD_TOKEN is the token of the first, LEASEHOLD_TOKENS\n"
                   "has all of them in the order of the arguments, as in 17,18,19. When one of them\n"
                   "is lost, the command is ended.\n"
                   "\n"
                   "When the lease is lost, every process that descends from the command gets TERM,\n"
                   "then KILL before another holder can have the lease, including those that left\n"
                   "its process group or session. The exit status is then 4. The same happens when\n"
                   "leasehold run itself is killed or stopped, and to background processes that the\n"
                   "command leaves behind, apart from those of --keep-detached. A process that has\n"
                   "become another user, as by sudo, can be ended only where a cgroup is delegated\n"
                   "(systemd: Delegate=yes): else a warning names it.\n"
                   "\n"
                   "-q -E 0 is for cron: no mail and no failure where another host has the lease;\n"
                   "the job's own errors and status stay. --at-least is for cron on several hosts,\n"
                   "whose clocks differ: give it a little less than the time between two runs, and\n"
                   "a job that ends at once is not run again by a host whose clock is late.\n"
                   "\n"
                   "Of two runs of one leader, --preferred is for the host that should have the\n"
                   "lease whenever it is up, and --when-asked stop for the others: they hand over\n"
                   "within a third of their duration. The server ends no lease for a request. A\n"
                   "command of --when-asked gets LEASEHOLD_ASKED_BY, LEASEHOLD_ASKED_PRINCIPAL and\n"
                   "LEASEHOLD_ASKED_REASON, and those of the lease.\n"
                   "\n"
                   "--schedule makes a worker of a schedule, see leasehold schedule. The command\n"
                   "gets LEASEHOLD_TICK, such as 2026-11-28T03:00:00Z, which is LEASEHOLD_KEY too,\n"
                   "and LEASEHOLD_ATTEMPT, 1 for the first. A status other than 0 gives the tick to\n"
                   "the next attempt, as the schedule says. Without a server the worker waits.\n"
                   "\n"
                   "--terraform is for a configuration with an empty backend \"http\" {} block. A run\n"
                   "that is killed leaves no lock that somebody must break: its lease ends by its\n"
                   "deadline. A state in --state is written only while the lease is held.\n",
    .options = lh_run_options,
    .examples = "  leasehold run cron nightly -q -E 0 --at-least 50s -- /usr/local/bin/report\n"
                "  leasehold run deploy production --wait 10m -- make deploy\n"
                "  leasehold run gpus host-7 --shared --wait 1h -- \\\n"
                "    sh -c 'CUDA_VISIBLE_DEVICES=$((LEASEHOLD_SLOT - 1)) exec ./train'\n"
                "  leasehold run accounts alice --also accounts:bob --wait 1m -- ./transfer\n"
                "  leasehold run -n -q -E 0 cron cleanup -c './cleanup && ./report'\n"
                "  leasehold run --repeat service leader -d 10s -- /usr/sbin/scheduler\n"
                "  leasehold run --repeat --preferred service leader -- /usr/sbin/scheduler\n"
                "  leasehold run --repeat --when-asked stop service leader -- /usr/sbin/scheduler\n"
                "  leasehold run --schedule reports.nightly -- /usr/local/bin/report\n"
                "  leasehold run terraform prod --terraform --state . -- terraform apply\n"
                "  leasehold run db big -d 10s -- sh -c 'work --token $LEASEHOLD_TOKEN'\n",
    .words_min = 0,
    .words_max = -1,
    .run = run,
};
