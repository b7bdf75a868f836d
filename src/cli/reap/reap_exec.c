/*
 * --exec: a command for each lease, inside of its transaction.
 *
 * Between us and /bin/sh stands a process of our own, the leader of the command's process group. It waits for the
 * shell, writes how that ended into a pipe, and kills the whole group when we die (PR_SET_PDEATHSIG): a reaper
 * that is killed leaves no command behind that goes on with a lease which another may be reaping. When the command has
 * ended, what is left of its group is killed.
 */
#include "cli/reap/reap_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/error.h"
#include "client/endpoints.h"

#define LINE_MAX_BYTES 4096
#define DRAIN_READS_MAX 32
#define TAIL_BYTES 400 /* of the output, kept with the failure */

struct command {
    const struct lh_embed_lease *lease;
    PGconn *conn;
    pid_t leader;
    int output;
    int end;
    char line[LINE_MAX_BYTES];
    size_t line_size;
    char tail[TAIL_BYTES + 1];
    size_t tail_size;
};

/* --- the child's side --- */

static void kill_group(int signal_number)
{
    kill(0, SIGKILL);
}

static void set_variables(const struct lh_embed_lease *lease)
{
    char token[24];

    snprintf(token, sizeof(token), "%" PRId64, lease->token);
    unsetenv("LEASEHOLD_DATABASE"); /* may hold a password */
    unsetenv("LEASEHOLD_SLOT");     /* of a lease that this process may run under */
    unsetenv("LEASEHOLD_SLOTS");
    unsetenv("LEASEHOLD_TOKENS");
    setenv("LEASEHOLD_NAMESPACE", lease->namespace_text, 1);
    lh_tls_move_key_file();
    setenv("LEASEHOLD_KEY", lease->key, 1);
    setenv("LEASEHOLD_LEASE_KEY", lease->lease_key, 1);
    setenv("LEASEHOLD_TOKEN", token, 1);
    setenv("LEASEHOLD_OWNER", lease->owner, 1);
    setenv("LEASEHOLD_PRINCIPAL", lease->principal != NULL ? lease->principal : "", 1);
}

static void become_shell(const struct command *command, const char *text)
{
    int null = open("/dev/null", O_RDONLY);

    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    set_variables(command->lease);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(command->output, STDOUT_FILENO) < 0 ||
        dup2(command->output, STDERR_FILENO) < 0)
        _exit(126);
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(127);
}

static void lead(struct command *command, const char *text, pid_t parent)
{
    int status = 126 << 8;
    pid_t shell;

    setpgid(0, 0);
    signal(SIGTERM, kill_group);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(126);
    shell = fork();
    if (shell == 0)
        become_shell(command, text);
    close(command->output);
    while (shell > 0 && waitpid(shell, &status, 0) < 0 && errno == EINTR)
        ;
    if (write(command->end, &status, sizeof(status)) != sizeof(status))
        _exit(126);
    pause(); /* keeps the group's number ours until we are told */
    _exit(0);
}

/* --- our side --- */

static bool start(struct command *command, const char *text)
{
    int output[2], end[2];
    pid_t parent = getpid();

    if (pipe2(output, O_CLOEXEC) != 0)
        return false;
    if (pipe2(end, O_CLOEXEC) != 0) {
        close(output[0]);
        close(output[1]);
        return false;
    }
    fflush(NULL);
    command->leader = fork();
    if (command->leader == 0) {
        command->output = output[1];
        command->end = end[1];
        lead(command, text, parent);
    }
    if (command->leader > 0)
        setpgid(command->leader, command->leader); /* both do it: either may be first */
    close(output[1]);
    close(end[1]);
    command->output = output[0];
    command->end = end[0];
    fcntl(command->output, F_SETFL, O_NONBLOCK);
    if (command->leader > 0)
        return true;
    close(command->output);
    close(command->end);
    return false;
}

static void print_line(struct command *command)
{

    command->line[command->line_size] = '\0';
    lh_error_print("%s: %s", LH_SCOPE_NAME(command->lease->namespace_text, command->lease->key), command->line);
    command->line_size = 0;
}

static void keep_tail(struct command *command, const char *data, size_t size)
{
    size_t over;

    if (size > TAIL_BYTES) {
        data += size - TAIL_BYTES;
        size = TAIL_BYTES;
    }
    over = command->tail_size + size > TAIL_BYTES ? command->tail_size + size - TAIL_BYTES : 0;
    memmove(command->tail, command->tail + over, command->tail_size - over);
    command->tail_size -= over;
    memcpy(command->tail + command->tail_size, data, size);
    command->tail_size += size;
    command->tail[command->tail_size] = '\0';
}

/* What there is to read: 0 at the end of the output, negative when there is nothing now. */
static ssize_t take_output(struct command *command)
{
    char data[LINE_MAX_BYTES];
    ssize_t size = read(command->output, data, sizeof(data));

    if (size <= 0)
        return size;
    keep_tail(command, data, (size_t)size);
    for (ssize_t i = 0; i < size; i++) {
        if (data[i] == '\n' || command->line_size == LINE_MAX_BYTES - 1)
            print_line(command);
        if (data[i] != '\n')
            command->line[command->line_size++] = data[i];
    }
    return size;
}

static bool is_connection_gone(PGconn *conn)
{
    PQconsumeInput(conn);
    return PQstatus(conn) != CONNECTION_OK;
}

enum end {
    END_STATUS,
    END_LATE,
    END_DISCONNECTED,
};

/* Until the command has ended, its time is over, or the lease's transaction is gone with its connection. */
static enum end wait_for_end(struct command *command, int64_t limit_us, int *status)
{
    int64_t until_us = limit_us > 0 ? lh_clock_us() + limit_us : INT64_MAX;
    bool has_output = true;

    for (;;) {
        int64_t left_us = until_us - lh_clock_us();
        struct pollfd polled[] = {
            {.fd = command->end, .events = POLLIN},
            {.fd = PQsocket(command->conn), .events = POLLIN},
            {.fd = has_output ? command->output : -1, .events = POLLIN},
        };
        int wait_ms = limit_us <= 0 || left_us > 3600 * LH_US_PER_S ? 3600000 : (int)(left_us / LH_US_PER_MS) + 1;

        if (left_us <= 0)
            return END_LATE;
        if (poll(polled, 3, wait_ms) < 0)
            continue;
        if (polled[2].revents != 0)
            has_output = take_output(command) != 0;
        if (polled[1].revents != 0 && is_connection_gone(command->conn))
            return END_DISCONNECTED;
        if (polled[0].revents != 0) {
            if (read(command->end, status, sizeof(*status)) != sizeof(*status))
                *status = SIGKILL; /* its leader was killed with it */
            return END_STATUS;
        }
    }
}

static void finish(struct command *command)
{
    kill(-command->leader, SIGKILL);
    while (waitpid(command->leader, NULL, 0) < 0 && errno == EINTR)
        ;
    /* What is still in the pipe; a process that left the group may go on writing. */
    for (int i = 0; i < DRAIN_READS_MAX && take_output(command) > 0; i++)
        ;
    if (command->line_size > 0)
        print_line(command);
    close(command->output);
    close(command->end);
}

static void tell(const struct command *command, enum end end, int status, int64_t limit_us, struct lh_error *error)
{
    char how[96];

    if (end == END_LATE)
        snprintf(how, sizeof(how), "the command ran over its limit of %s and was killed", LH_DURATION_TEXT(limit_us));
    else if (end == END_DISCONNECTED)
        snprintf(how, sizeof(how), "the connection to the database was lost while the command ran");
    else if (WIFSIGNALED(status))
        snprintf(how, sizeof(how), "the command was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(how, sizeof(how), "the command ended with status %d", WEXITSTATUS(status));
    lh_error_set(error, LH_HOOK_REJECTED, "%s%s%s", how, command->tail_size > 0 ? ": " : "", command->tail);
    for (char *c = error->message; *c != '\0'; c++)
        if (*c == '\n')
            *c = c[1] == '\0' ? '\0' : ' ';
    error->message[lh_utf8_cut(error->message, strlen(error->message), sizeof(error->message) - 1)] = '\0';
}

static int run_command(void *arg, PGconn *conn, const struct lh_embed_lease *lease, struct lh_error *error)
{
    const struct lh_reap_callback *callback = arg;
    struct command command = {.lease = lease, .conn = conn};
    int status = 0;
    enum end end;

    if (!start(&command, callback->command)) {
        lh_error_set(error, LH_HOOK_REJECTED, "cannot run the command: %s", strerror(errno));
        return 1;
    }
    end = wait_for_end(&command, lease->limit_us, &status);
    finish(&command);
    if (end == END_STATUS && status == 0)
        return 0;
    tell(&command, end, status, lease->limit_us, error);
    return 1;
}

void lh_reap_use_command(struct lh_reap_callback *callback, const char *command, int64_t limit_us)
{
    callback->on_lease = run_command;
    callback->arg = callback;
    callback->command = command;
    callback->limit_us = limit_us;
    /* What a command does cannot be rolled back: its lease is not to depend on others. */
    callback->transactions = 1;
}
