/*
 * --when-asked and --preferred: what a run does when somebody asks for its lease.
 *
 * The library's thread hears a request and refuses it at once, or puts it into the lease's list. The main thread takes
 * one after the other: it sends the command a signal, has it ended, or starts COMMAND and does what its status says.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/error.h"
#include "cli/run/run_internal.h"

/* --- the options --- */

static const struct {
    const char *name;
    int number;
} signals[] = {
    {"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"TERM", SIGTERM},   {"USR1", SIGUSR1},
    {"USR2", SIGUSR2}, {"ALRM", SIGALRM}, {"CONT", SIGCONT}, {"WINCH", SIGWINCH},
};

/* A word of capitals is meant as a signal; no program is called like that. */
static bool is_signal_name(const char *text)
{
    return text[0] != '\0' && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == strlen(text);
}

static enum lh_status take_signal(struct lh_run_when_asked *when, const char *text, struct lh_error *error)
{
    const char *name = strncmp(text, "SIG", 3) == 0 ? text + 3 : text;

    when->kind = LH_RUN_ASKED_SIGNAL;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (strcmp(name, signals[i].name) == 0)
            when->signal = signals[i].number;
    if (when->signal == 0)
        return lh_bounds_refuse(error, "when-asked", "a signal, stop, refuse or a command",
                                "--when-asked '%.64s' is no signal; use HUP, INT, QUIT, TERM, USR1, USR2, ALRM, CONT, "
                                "WINCH, stop, refuse, or a command",
                                text);
    return LH_OK;
}

enum lh_status lh_run_when_asked_take(struct lh_run_when_asked *when, const struct lh_args *args,
                                      struct lh_error *error)
{
    const char *text = lh_args_value(args, "when-asked");

    *when = (struct lh_run_when_asked){.kind = LH_RUN_ASKED_NOTHING};
    if (lh_args_has(args, "preferred")) {
        when->kind = LH_RUN_ASKED_REFUSE;
        when->refusal = "this is the preferred holder";
    } else if (text != NULL && text[strspn(text, " \t\n")] == '\0') {
        return lh_bounds_refuse(error, "when-asked", "not empty",
                                "--when-asked is empty; use a signal, stop, refuse, or a command");
    } else if (text != NULL && strcmp(text, "refuse") == 0) {
        when->kind = LH_RUN_ASKED_REFUSE;
        when->refusal = "leasehold run --when-asked refuse";
    } else if (text != NULL && strcmp(text, "stop") == 0) {
        when->kind = LH_RUN_ASKED_STOP;
    } else if (text != NULL && is_signal_name(text)) {
        return take_signal(when, text, error);
    } else if (text != NULL) {
        when->kind = LH_RUN_ASKED_COMMAND;
        when->command = text;
    }
    return LH_OK;
}

/* --- COMMAND --- */

static const char *const variables[] = {
    "LEASEHOLD_NAMESPACE=",       "LEASEHOLD_KEY=",          "LEASEHOLD_LEASE_KEY=",
    "LEASEHOLD_TOKEN=",           "LEASEHOLD_DATABASE=",     "LEASEHOLD_ASKED_BY=",
    "LEASEHOLD_ASKED_PRINCIPAL=", "LEASEHOLD_ASKED_REASON=", "LEASEHOLD_TLS_KEY=",
};
#define VARIABLES (sizeof(variables) / sizeof(variables[0]))

static bool is_ours(const char *entry)
{
    for (size_t i = 0; i < VARIABLES; i++)
        if (strncmp(entry, variables[i], strlen(variables[i])) == 0)
            return true;
    return false;
}

/* This process has threads, so its own environment stays as it is. A new array; its first entries are new strings. */
static char **environment_for(const struct lh_run *run, const struct lh_run_request *request, size_t *own)
{
    size_t count = 0;
    char lease_key[37], **made;

    while (environ[count] != NULL)
        count++;
    made = lh_alloc_zero(count + VARIABLES + 1, sizeof(*made));
    lh_lease_key(request->lease, lease_key);
    count = 0;
    made[count++] = lh_format("LEASEHOLD_NAMESPACE=%s", lh_lease_namespace(request->lease));
    made[count++] = lh_format("LEASEHOLD_KEY=%s", lh_lease_scope_key(request->lease));
    made[count++] = lh_format("LEASEHOLD_LEASE_KEY=%s", lease_key);
    made[count++] = lh_format("LEASEHOLD_TOKEN=%" PRId64, lh_lease_token(request->lease));
    made[count++] = lh_format("LEASEHOLD_ASKED_BY=%s", request->by);
    made[count++] = lh_format("LEASEHOLD_ASKED_PRINCIPAL=%s", request->principal);
    made[count++] = lh_format("LEASEHOLD_ASKED_REASON=%s", request->reason);
    if (run->cli->tls.key_file != NULL)
        made[count++] = lh_format("LEASEHOLD_TLS_KEY=%s", run->cli->tls.key_file);
    *own = count;
    for (char **entry = environ; *entry != NULL; entry++)
        if (!is_ours(*entry))
            made[count++] = *entry;
    return made;
}

/* Its output goes where our errors go: the files of the command are the command's. */
static int spawn(const struct lh_run *run, const struct lh_run_request *request, pid_t *process)
{
    const char *const words[] = {"/bin/sh", "-c", run->when_asked.command, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    size_t own;
    char **environment = environment_for(run, request, &own);
    int failure;

    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &run->plan.mask);
    failure = posix_spawn(process, words[0], &files, &attributes, (char *const *)(uintptr_t)words, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    for (size_t i = 0; i < own; i++)
        free(environment[i]);
    free(environment);
    return failure;
}

static void start_command(struct lh_run *run, const struct lh_run_request *request)
{
    struct lh_run_when_asked *when = &run->when_asked;
    int failure = spawn(run, request, &when->process);

    when->lease = request->lease;
    if (failure == 0)
        return;
    when->process = 0;
    lh_error_print("cannot start the command of --when-asked: %s", strerror(failure));
    lh_run_lease_refuse(&run->lease, when->lease, "the command of --when-asked could not be started");
}

/* Status 0 hands over; with any other the lease is kept, and the asker sees why. */
static void take_answer(struct lh_run *run)
{
    struct lh_run_when_asked *when = &run->when_asked;
    char words[80];
    int status;

    if (when->process == 0 || waitpid(when->process, &status, WNOHANG) != when->process)
        return;
    when->process = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        when->is_to_stop = true;
        return;
    }
    if (WIFEXITED(status))
        snprintf(words, sizeof(words), "the command of --when-asked ended with status %d", WEXITSTATUS(status));
    else
        snprintf(words, sizeof(words), "the command of --when-asked was ended by signal %d", WTERMSIG(status));
    lh_run_lease_refuse(&run->lease, when->lease, words);
}

/* --- one request --- */

static void act(struct lh_run *run, const struct lh_run_request *request)
{
    struct lh_run_when_asked *when = &run->when_asked;
    /* As a signal that came to us alone: the command has not had it. */
    struct lh_run_message message = {.kind = LH_RUN_SIGNAL, .number = when->signal};

    if (when->kind == LH_RUN_ASKED_SIGNAL)
        lh_run_send(run->channel, &message);
    else if (when->kind == LH_RUN_ASKED_STOP)
        when->is_to_stop = true;
    else if (when->kind == LH_RUN_ASKED_COMMAND)
        start_command(run, request);
}

void lh_run_asked_look(struct lh_run *run)
{
    static const struct lh_run_message stop = {.kind = LH_RUN_STOP};
    struct lh_run_when_asked *when = &run->when_asked;
    struct lh_run_request *request;

    take_answer(run);
    while (when->process == 0 && (request = lh_run_lease_next_request(&run->lease)) != NULL) {
        act(run, request);
        lh_run_request_destroy(request);
    }
    if (when->is_to_stop && lh_run_send(run->channel, &stop)) {
        when->is_to_stop = false;
        when->has_stopped = true;
    }
}

void lh_run_asked_finish(struct lh_run *run)
{
    struct lh_run_when_asked *when = &run->when_asked;

    if (when->process != 0) {
        kill(-when->process, SIGKILL);
        waitpid(when->process, NULL, 0);
    }
    when->process = 0;
    when->is_to_stop = false;
}
