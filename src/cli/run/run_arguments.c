/* The arguments of run: its options, and what may stand together. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/error.h"
#include "cli/run/run_internal.h"

#define KILL_AFTER_US (5 * LH_US_PER_S)

/* Where a word is missing or one too many before "--", the next would be executed, or one not be. */
static enum lh_status check_words(const struct lh_args *args, struct lh_error *error)
{
    static const char usage[] = "usage: leasehold run NAMESPACE KEY -- COMMAND";

    if (lh_args_has(args, "schedule") && args->plain_count > 2)
        return lh_error_set(error, LH_INVALID_ARGUMENT,
                            "unexpected argument: %s; usage: leasehold run --schedule NAME -- COMMAND", args->words[2]);
    if (args->plain_count < 2)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "missing %s before --; %s",
                            args->plain_count == 0 ? "NAMESPACE and KEY" : "KEY", usage);
    if (args->plain_count > 2)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "unexpected argument: %s; COMMAND stands after --; %s",
                            args->words[2], usage);
    if (lh_args_has(args, "command") && args->word_count > 2)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--command and COMMAND cannot be combined");
    if (!lh_args_has(args, "command") && args->word_count == 2)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "missing command; %s", usage);
    return LH_OK;
}

/* Of which one excludes the other, and why. */
static const struct {
    const char *one;
    const char *other;
    const char *why;
} excluded[] = {
    {"nonblock", "wait", ""},
    {"exclusive", "shared", ""},
    {"terraform", "shared", ": a state has one writer"},
    {"terraform", "also", ": a state has one lease"},
    {"also", "preferred", ": who waits for several leases asks nobody"},
    {"when-asked", "preferred", ": a preferred holder refuses"},
    /* A tick is exclusive, and the schedule says when it is due. */
    {"schedule", "nonblock", ""},
    {"schedule", "wait", ""},
    {"schedule", "shared", ""},
    {"schedule", "also", ""},
    {"schedule", "at-least", ""},
    {"schedule", "preferred", ""},
    {"schedule", "when-asked", ""},
    {"schedule", "terraform", ""},
};

static enum lh_status refuse_both(const char *one, const char *other, const char *why, struct lh_error *error)
{
    return lh_error_set(error, LH_INVALID_ARGUMENT, "--%s and --%s cannot be combined%s", one, other, why);
}

static enum lh_status check_combination(const struct lh_args *args, struct lh_error *error)
{
    const char *number = lh_cli_given_number(args);

    if (lh_args_has(args, "also") && lh_args_has(args, "wait") && strcmp(lh_args_value(args, "wait"), "alive") == 0)
        return refuse_both("also", "wait alive", "; use a duration, or forever", error);
    if (lh_args_has(args, "also") && number != NULL)
        return refuse_both("also", number, ": who waits for several leases has none", error);
    if (lh_args_has(args, "schedule") && number != NULL)
        return refuse_both("schedule", number, "", error);
    for (size_t i = 0; i < sizeof(excluded) / sizeof(excluded[0]); i++)
        if (lh_args_has(args, excluded[i].one) && lh_args_has(args, excluded[i].other))
            return refuse_both(excluded[i].one, excluded[i].other, excluded[i].why, error);
    if (lh_args_has(args, "preferred") && !lh_args_has(args, "wait") &&
        (lh_args_has(args, "nonblock") || !lh_args_has(args, "repeat")))
        return lh_error_set(error, LH_INVALID_ARGUMENT,
                            "--preferred is for a run that waits for the lease; use --wait or --repeat");
    if (lh_args_has(args, "state") && !lh_args_has(args, "terraform"))
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--state is for --terraform");
    return LH_OK;
}

enum lh_status lh_run_arguments_take(struct lh_run *run, struct lh_error *error)
{
    const struct lh_args *args = &run->cli->args;
    const char *kill_after = lh_args_value(args, "kill-after");
    const char *code = lh_args_value(args, "conflict-exit-code");
    int64_t kill_after_us = KILL_AFTER_US, number = -1;

    if (check_words(args, error) != LH_OK || check_combination(args, error) != LH_OK ||
        lh_cli_acquire_take(&run->asked, run->cli, error) != LH_OK ||
        lh_run_scopes_take(&run->scopes, args, error) != LH_OK ||
        lh_run_status_take(&run->status_file, args, error) != LH_OK ||
        lh_run_when_asked_take(&run->when_asked, args, error) != LH_OK ||
        (kill_after != NULL && lh_check_duration("kill-after", kill_after, 0, &kill_after_us, error) != LH_OK) ||
        (code != NULL && lh_check_number("conflict-exit-code", code, 0, 255, &number, error) != LH_OK))
        return LH_INVALID_ARGUMENT;
    if (lh_args_value(args, "owner") == NULL) {
        size_t size = strlen(run->asked.owner);
        snprintf(run->asked.owner + size, sizeof(run->asked.owner) - size, "/%d", (int)getpid());
    }
    run->own_status = (int)number;
    run->runs_ticks = lh_args_has(args, "schedule");
    run->repeats = lh_args_has(args, "repeat") || run->runs_ticks;
    if (run->repeats && !run->runs_ticks && run->asked.options.wait_us == 0 && !run->asked.options.wait_while_alive &&
        !lh_args_has(args, "nonblock"))
        run->asked.options.wait_us = LH_FOREVER;
    run->asked.options.ask_hand_over = lh_args_has(args, "preferred");
    run->schedule = lh_run_schedule_of(run->asked.duration_us, kill_after_us);
    return LH_OK;
}

const struct lh_option lh_run_options[] = {
    {"duration", 'd', "DURATION",
     "How long the lease outlives leasehold run; it is renewed at a third of that. Default: 30s."},
    {"wait", 'w', "DURATION", "Queue for that long; forever: until granted; alive: while the holder is alive."},
    {"nonblock", 'n', NULL, "Do not queue (the default, except with --repeat)."},
    {"command", 'c', "COMMAND", "Run this by /bin/sh -c, instead of COMMAND after --."},
    {"conflict-exit-code", 'E', "CODE",
     "Exit with CODE instead of 3 and 4, to tell them from the command's own status."},
    {"quiet", 'q', NULL, "Do not say that the lease is held. All other errors are printed."},
    {"exclusive", 'x', NULL, "An exclusive lease (the default)."},
    {"shared", 's', "[=UNITS]",
     "A shared lease, beside other shared ones: so many units of the policy's capacity, 1 to 1000000. Default: 1."},
    {"also", 0, "NS:KEY",
     "Acquire this key of this namespace too, in the same step: all or none. Up to 99 times. It has the mode of the "
     "first, "
     "its units, and its minimum hold."},
    {"repeat", 0, NULL,
     "When the command has ended or the lease was lost, acquire it and run the command again, with a new token; "
     "without "
     "--wait it waits forever. Ends by TERM, INT, HUP or QUIT, when the caller is denied, or with a command's status "
     "of "
     "126 or 127."},
    {"schedule", 0, "NAME",
     "Instead of NAMESPACE and KEY: wait for the next tick of this schedule, run the command under its lease, and "
     "again. "
     "Ends as with --repeat."},
    {"terraform", 0, NULL,
     "Serve Terraform's and OpenTofu's http backend to the command, on loopback, by TF_HTTP_*: the lease is the lock."},
    {"state", 0, "DIRECTORY", "With --terraform: keep the state there too, as terraform.tfstate."},
    {"kill-after", 'k', "DURATION",
     "How long before the deadline a command whose lease cannot be renewed gets TERM, before it is killed. Default: "
     "5s; "
     "at most a third of the duration."},
    {"keep-detached", 0, NULL,
     "When the command ends, leave processes that have a session of their own, as a daemon has. They go on without the "
     "lease."},
    {"at-least", 0, "DURATION",
     "Nobody else gets the lease until so long after the grant, even if the command ends before. At most 1d. Default: "
     "at_least of the policy."},
    LH_CLI_ACQUIRE_NUMBERS,
    {"preferred", 0, NULL,
     "Ask each holder that this run waits behind to hand the lease over, and refuse to hand it over while this run "
     "holds it."},
    {"when-asked", 0, "ANSWER",
     "When somebody asks for the lease: a signal, such as USR1, is sent to the command; stop ends the command and "
     "releases the lease; refuse refuses; anything else is run by /bin/sh -c, and its status decides: 0 as stop, "
     "another as refuse. Without this option the request stays unanswered."},
    {"owner", 0, "TEXT", "A name of the holder, for people. Default: user@host/pid."},
    {"label", 'l', "NAME=VALUE", "Stored with the lease; up to 16 times."},
    {"status-fd", 0, "FD",
     "Write a line of JSON to this open descriptor when the lease is waited for, granted, refused, asked for or lost, "
     "for a program that starts leasehold run: event, message, and token, status, by or reason."},
    {0},
};
