/*
 * run: a command under a lease.
 *
 * The happy path: fork the supervisor (before there are threads), acquire, tell it to start the command, tell it every
 * new deadline, hear from it that the command has ended and that nothing is left of it, release, exit with the
 * command's status. This process keeps the terminal, the signals and the lease; the other one keeps the processes.
 *
 * The failures: refused or interrupted before it is granted, the supervisor goes home and the command never ran. Lost,
 * the supervisor is told, and ends everything before the deadline. This process stopped or killed, it does so by
 * itself. The supervisor killed or stopped, its processes are ended from here.
 */
#include <errno.h>
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
#include "cli/complain.h"
#include "cli/run.h"
#include "cli/run_descendants.h"

#define KILL_AFTER_US (5 * LH_US_PER_S)

/* --- before and after --- */

static void wait_for_lease(struct lh_run *run)
{
    while (!lh_run_lease_is_answered(&run->lease)) {
        struct pollfd polled[] = {
            {.fd = run->signals, .events = POLLIN},
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
    const char *reason = "unreachable", *words = "no renewal got through in time";

    if (lh_run_lease_is_lost(lease)) {
        reason = lh_lost_reason_name(lease->lost);
        words = lease->lost_words;
    }
    lh_complain("the lease is lost (%s): %s; the command was ended", reason, words);
    if (!lh_run_lease_is_lost(lease) || lease->lost == LH_LOST_UNREACHABLE) {
        const struct lh_release_options options = {.failure = "the lease could not be renewed; the command was ended",
                                                   .call.timeout_us = run->schedule.margin_us};
        lh_release(lease->lease, &options, NULL); /* whoever waits for it need not wait for its deadline */
    }
    return own(run, LH_EXIT_LOST);
}

static enum lh_exit on_ended(struct lh_run *run)
{
    char failure[96] = "";
    enum lh_exit released, status = (enum lh_exit)WEXITSTATUS(run->status);

    if (WIFSIGNALED(run->status)) {
        status = (enum lh_exit)(LH_EXIT_SIGNAL + WTERMSIG(run->status));
        snprintf(failure, sizeof(failure), "the command was ended by signal %d (%s)", WTERMSIG(run->status),
                 strsignal(WTERMSIG(run->status)));
    } else if (status != 0) {
        snprintf(failure, sizeof(failure), "the command ended with status %d", (int)status);
    }
    released = lh_run_lease_release(&run->lease, failure[0] != '\0' ? failure : NULL);
    if (released == LH_EXIT_LOST)
        return own(run, LH_EXIT_LOST);
    return released == LH_EXIT_FAILED && status == LH_EXIT_DONE ? LH_EXIT_FAILED : status;
}

static enum lh_exit on_abandoned(struct lh_run *run)
{
    lh_complain("the supervisor of the command was killed or stopped; the command was ended");
    lh_run_lease_release(&run->lease, "the supervisor of the command was killed or stopped");
    return LH_EXIT_FAILED;
}

static enum lh_exit run_with_lease(struct lh_run *run)
{
    enum lh_exit status;

    lh_run_terminal_remember(&run->terminal);
    lh_run_watch(run);
    lh_run_terminal_restore(&run->terminal);
    if (run->was_late || lh_run_lease_is_lost(&run->lease) || !lh_lease_is_held(run->lease.lease))
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

static enum lh_exit hold(struct lh_run *run)
{
    enum lh_exit status;

    lh_run_block_signals(run);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    run->supervisor = lh_run_supervisor_start(&run->plan, &run->channel);
    if (run->supervisor < 0 || run->signals < 0) {
        lh_complain("cannot start a process: %s", strerror(errno));
        return LH_EXIT_FAILED;
    }
    run->lease.wake = -1;
    status = lh_run_lease_ask(&run->lease, run->cli, &run->words, run->schedule.grace_us);
    if (status == LH_EXIT_DONE) {
        wait_for_lease(run);
        if (run->interrupt != 0)
            status = (enum lh_exit)(LH_EXIT_SIGNAL + run->interrupt);
        else
            status = own(run, lh_run_lease_verdict(&run->lease));
        if (run->lease.lease != NULL && run->interrupt == 0)
            status = run_with_lease(run);
        else if (run->lease.lease != NULL)
            lh_run_lease_release(&run->lease, "interrupted before the command was started");
    }
    close(run->channel);
    lh_run_lease_finish(&run->lease);
    waitpid(run->supervisor, NULL, 0);
    die_of_interrupt(run);
    return status;
}

/* --- the words --- */

static enum lh_status take_words(struct lh_run *run, struct lh_error *error)
{
    const struct lh_args *args = &run->cli->args;
    const char *kill_after = lh_args_value(args, "kill-after");
    const char *code = lh_args_value(args, "conflict-exit-code");
    int64_t kill_after_us = KILL_AFTER_US, number = -1;

    if (lh_acquire_words_take(&run->words, args, error) != LH_OK ||
        (kill_after != NULL && lh_check_duration("kill-after", kill_after, 0, &kill_after_us, error) != LH_OK) ||
        (code != NULL && lh_check_number("conflict-exit-code", code, 0, 255, &number, error) != LH_OK))
        return LH_INVALID_ARGUMENT;
    if (lh_args_value(args, "owner") == NULL) {
        size_t size = strlen(run->words.owner);
        snprintf(run->words.owner + size, sizeof(run->words.owner) - size, "/%d", (int)getpid());
    }
    run->own_status = (int)number;
    run->schedule = lh_run_schedule_of(run->words.duration_us, kill_after_us);
    return LH_OK;
}

static void plan(struct lh_run *run)
{
    const struct lh_args *args = &run->cli->args;

    run->argv = lh_alloc_zero(args->word_count, sizeof(*run->argv));
    for (size_t i = 2; i < args->word_count; i++)
        run->argv[i - 2] = (char *)(uintptr_t)args->words[i];
    run->plan = (struct lh_run_plan){
        .argv = run->argv,
        .namespace_text = args->words[0],
        .key = args->words[1],
        .lease_key = run->words.lease_key,
        .schedule = run->schedule,
    };
}

static enum lh_exit run(struct lh_cli *cli)
{
    struct lh_run run = {.cli = cli};
    struct lh_error error = {0};
    enum lh_exit status;

    if (take_words(&run, &error) != LH_OK) {
        status = lh_complain_value(cli, &error);
    } else if (!lh_run_can_see_descendants()) {
        lh_complain("/proc is not mounted: a command could not be ended with all that it started");
        status = LH_EXIT_FAILED;
    } else {
        plan(&run);
        status = hold(&run);
    }
    free(run.argv);
    lh_acquire_words_finish(&run.words);
    return status;
}

static const struct lh_option options[] = {
    {"duration", 'd', "DURATION",
     "How long the lease outlives us; it is renewed every third of that. 30s unless told."},
    {"wait", 'w', "DURATION",
     "How long to queue for it; forever: until it is granted; alive: as long as the holder gives signs of life."},
    {"kill-after", 'k', "DURATION",
     "How long before the deadline a command whose lease cannot be renewed is sent TERM, before it is killed; 5s "
     "unless "
     "told, at most a third of the duration."},
    {"conflict-exit-code", 'E', "CODE",
     "Exit with CODE where it would be 3 or 4, to tell them from the command's own."},
    {"owner", 0, "TEXT", "Who holds it, for people; user@host/pid unless told."},
    {"label", 'l', "NAME=VALUE", "Kept with the lease; up to 16 times."},
    {0},
};

const struct lh_command lh_command_run = {
    .name = "run",
    .summary = "run a command while holding a lease",
    .usage = (const char *const[]){"run NAMESPACE KEY [--duration 30s] [--wait 5s|forever|alive]\n"
                                   "                [--kill-after 5s] [-E CODE] -- COMMAND...",
                                   NULL},
    .description = "Takes the lease, runs COMMAND, renews the lease while it runs, and gives it back when\n"
                   "it ends: as a success if its status is 0, else as failed. The exit status is the\n"
                   "command's own, 126 if it cannot be executed, 127 if it is not found, 128+N if signal N\n"
                   "ended it. Without --wait a lease that is held is refused at once (exit status 3).\n"
                   "\n"
                   "The command gets LEASEHOLD_NAMESPACE, LEASEHOLD_KEY, LEASEHOLD_LEASE_KEY and\n"
                   "LEASEHOLD_TOKEN. It has the terminal and all files; signals sent to leasehold run are\n"
                   "passed on to it.\n"
                   "\n"
                   "When the lease is lost, every process that descends from the command is sent TERM, and\n"
                   "KILL in time before somebody else can have the lease, also those that left its process\n"
                   "group or session; the exit status is then 4. The same is done when leasehold run itself\n"
                   "is killed or stopped, and with what the command leaves running in the background when it\n"
                   "ends: nothing works on without the lease.\n",
    .options = options,
    .examples = "  leasehold run cron nightly -- /usr/local/bin/nightly-report\n"
                "  leasehold run deploy production --wait 10m -- make deploy\n"
                "  leasehold run -E 0 cron cleanup -- ./cleanup   # held by another: fine\n"
                "  leasehold run db big -d 10s -- sh -c 'work --token $LEASEHOLD_TOKEN'\n",
    .words_min = 3,
    .words_max = -1,
    .run = run,
};
