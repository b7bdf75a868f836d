/*
 * list, explain and run are commands of this program already: they are started as children, with the same server and
 * token. So a command of run is ended with all its descendants by the supervisor of `leasehold run`.
 *
 * A child writes to pipes, of which a bounded part is kept. When its call is cancelled it gets TERM, and KILL some seconds
 * later, which the supervisor outlives.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/mcp/mcp_internal.h"

#define STREAMS 3 /* stdout, stderr, and what `run --status-fd` writes */
#define STATUS 2
#define PATIENCE_S 5
#define WORDS_OF_PROGRAM 64 /* with the options of every command, which need not be given so often */

struct lh_mcp_child {
    struct lh_mcp_call *call;
    pid_t pid;
    struct event *late;
    void (*on_ended)(struct lh_mcp_child *child, int status);
    struct stream {
        struct lh_mcp_child *child;
        int fd; /* -1: closed */
        struct event *event;
        struct lh_buffer kept;
        size_t limit, total;
    } streams[STREAMS];
    json_t *granted, *refused, *lost; /* what run told */
};

/* --- words for the child --- */

struct words {
    char *list[LH_MCP_COMMAND_MAX + WORDS_OF_PROGRAM + 16]; /* ends in NULL */
    size_t count;
};

static void add_option(struct words *words, const char *name, const char *value)
{
    words->list[words->count++] = value != NULL ? lh_format("--%s=%s", name, value) : lh_format("--%s", name);
}

static void add_text(struct words *words, const char *text)
{
    words->list[words->count++] = lh_strdup(text);
}

static bool is_in(const struct lh_option *options, const struct lh_option *option)
{
    while (options->name != NULL && options != option)
        options++;
    return options->name != NULL;
}

/* The program, and the options of every command that this server was started with. */
static void add_program(struct words *words, const struct lh_cli *cli)
{
    add_text(words, "leasehold");
    add_option(words, "server", cli->server);
    for (size_t i = 0; i < cli->args.given_count && words->count < WORDS_OF_PROGRAM; i++) {
        const struct lh_given *given = &cli->args.given[i];
        if (!is_in(cli->command->options, given->option) && strcmp(given->option->name, "output") != 0)
            add_option(words, given->option->name, given->value);
    }
}

static void words_finish(struct words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->list[i]);
}

/* --- starting and reading --- */

static void read_some(struct stream *stream)
{
    char bytes[16384];
    ssize_t size;

    while (stream->fd >= 0 && (size = read(stream->fd, bytes, sizeof(bytes))) != 0) {
        size_t room = stream->limit - stream->kept.size;
        if (size < 0)
            return; /* EAGAIN: no more for now */
        lh_buffer_append(&stream->kept, bytes, (size_t)size < room ? (size_t)size : room);
        stream->total += (size_t)size;
    }
    if (stream->event != NULL)
        event_del(stream->event);
}

static void take_status(struct lh_mcp_child *child);

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct stream *stream = arg;

    (void)fd;
    (void)what;
    read_some(stream);
    take_status(stream->child);
}

/* What run tells: the lines that have arrived whole. */
static void take_status(struct lh_mcp_child *child)
{
    struct lh_buffer *kept = &child->streams[STATUS].kept;
    const char *newline;

    while (kept->size > 0 && (newline = memchr(kept->data, '\n', kept->size)) != NULL) {
        size_t size = (size_t)(newline - (const char *)kept->data) + 1;
        json_t *told = json_loadb((const char *)kept->data, size, 0, NULL);
        const char *event = json_string_value(json_object_get(told, "event"));
        json_t **place = event == NULL                   ? NULL
                         : strcmp(event, "granted") == 0 ? &child->granted
                         : strcmp(event, "refused") == 0 ? &child->refused
                         : strcmp(event, "lost") == 0    ? &child->lost
                                                         : NULL;
        if (place != NULL && *place == NULL)
            *place = json_incref(told);
        else if (event != NULL && strcmp(event, "waiting") == 0)
            lh_mcp_call_progress(child->call, json_string_value(json_object_get(told, "message")));
        json_decref(told);
        memmove(kept->data, kept->data + size, kept->size - size);
        kept->size -= size;
    }
}

static void child_finish(struct lh_mcp_child *child)
{
    for (size_t i = 0; i < STREAMS; i++) {
        if (child->streams[i].event != NULL)
            event_free(child->streams[i].event);
        if (child->streams[i].fd >= 0)
            close(child->streams[i].fd);
        lh_buffer_finish(&child->streams[i].kept);
    }
    if (child->late != NULL)
        event_free(child->late);
    json_decref(child->granted);
    json_decref(child->refused);
    json_decref(child->lost);
    free(child);
}

static void on_late(evutil_socket_t fd, short what, void *arg)
{
    const struct lh_mcp_child *child = arg;

    (void)fd;
    (void)what;
    kill(child->pid, SIGKILL);
}

static void on_cancel(struct lh_mcp_call *call)
{
    const struct timeval patience = {.tv_sec = PATIENCE_S};

    kill(call->child->pid, SIGTERM);
    event_add(call->child->late, &patience);
}

/* In the child: nothing but what may be called after a fork. */
static void become(const struct words *words, int pipes[STREAMS][2], pid_t parent)
{
    int nothing = open("/dev/null", O_RDONLY);

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || nothing < 0)
        _exit(LH_EXIT_FAILED);
    signal(SIGPIPE, SIG_DFL);
    /* Out of the way of the numbers that they get, and closed by exec. */
    for (size_t i = 0; i < STREAMS; i++)
        pipes[i][1] = fcntl(pipes[i][1], F_DUPFD_CLOEXEC, 10);
    dup2(nothing, STDIN_FILENO);
    for (int i = 0; i < STREAMS; i++)
        dup2(pipes[i][1], i + 1);
    execv("/proc/self/exe", (char *const *)words->list);
    _exit(LH_EXIT_FAILED);
}

static bool open_streams(struct lh_mcp_child *child, int pipes[STREAMS][2], size_t limit)
{
    for (int i = 0; i < STREAMS; i++) {
        struct stream *stream = &child->streams[i];
        if (pipe2(pipes[i], O_CLOEXEC) != 0)
            return false;
        fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
        stream->fd = pipes[i][0];
        stream->limit = limit;
        stream->event = event_new(child->call->mcp->base, stream->fd, EV_READ | EV_PERSIST, on_readable, stream);
        event_add(stream->event, NULL);
    }
    return true;
}

static void start(struct lh_mcp_call *call, struct words *words, size_t limit,
                  void (*on_ended)(struct lh_mcp_child *child, int status))
{
    struct lh_mcp_child *child = lh_alloc_zero(1, sizeof(*child));
    int pipes[STREAMS][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    pid_t parent = getpid();
    bool is_open;

    child->call = call;
    child->on_ended = on_ended;
    for (size_t i = 0; i < STREAMS; i++)
        child->streams[i] = (struct stream){.child = child, .fd = -1};
    child->late = evtimer_new(call->mcp->base, on_late, child);
    is_open = open_streams(child, pipes, limit);
    child->pid = is_open ? fork() : -1;
    if (child->pid == 0)
        become(words, pipes, parent);
    for (size_t i = 0; i < STREAMS; i++)
        if (pipes[i][1] >= 0)
            close(pipes[i][1]);
    words_finish(words);
    if (child->pid > 0) {
        call->child = child;
        call->on_cancel = on_cancel;
        return;
    }
    lh_mcp_call_refused(call, "OVERLOADED", strerror(errno), "No process can be started now. Try again later.", NULL);
    child_finish(child);
}

void lh_mcp_child_look(struct lh_mcp *mcp)
{
    LH_LIST_EACH(struct lh_mcp_call, call, &mcp->calls, link) {
        struct lh_mcp_child *child = call->child;
        int status;
        if (child == NULL || waitpid(child->pid, &status, WNOHANG) != child->pid)
            continue;
        for (size_t i = 0; i < STREAMS; i++)
            read_some(&child->streams[i]);
        take_status(child);
        child->on_ended(child, status);
        child_finish(child);
    }
}

/* --- answers --- */

/* The bytes that a stream had, as UTF-8: others become U+FFFD. */
static json_t *text_of(const struct lh_buffer *bytes)
{
    struct lh_buffer text = {0};
    json_t *json;

    for (size_t at = 0, size; at < bytes->size; at += size) {
        const char *from = (const char *)bytes->data + at;
        for (size = 1; size <= 4 && at + size <= bytes->size && !lh_utf8_is_valid(from, size); size++)
            ;
        if (size <= 4 && at + size <= bytes->size) {
            lh_buffer_append(&text, from, size);
        } else {
            lh_buffer_append(&text, "\xef\xbf\xbd", 3);
            size = 1;
        }
    }
    json = json_stringn(text.data != NULL ? (const char *)text.data : "", text.size);
    lh_buffer_finish(&text);
    return json;
}

/* The words of a child that failed, as it wrote them. */
static void refuse(struct lh_mcp_child *child, int status)
{
    static const char *const names[] = {"INTERNAL", "REFUSED", "INVALID_ARGUMENT", "LEASE_HELD", "LOST", "UNAVAILABLE"};
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    json_t *words = text_of(&child->streams[1].kept);
    const char *text = json_string_value(words);
    char *line;

    text += strncmp(text, "leasehold: ", 11) == 0 ? 11 : 0;
    line = strndup(text, strcspn(text, "\n"));
    lh_mcp_call_refused(child->call, names[code < 6 ? code : 0], line != NULL ? line : text,
                        code == LH_EXIT_UNAVAILABLE ? "Try again later." : "The message says why, and what to do.",
                        NULL);
    free(line);
    json_decref(words);
}

/* list and explain: JSON on stdout. */
static void on_looked(struct lh_mcp_child *child, int status)
{
    const struct stream *out = &child->streams[0];
    struct lh_mcp_call *call = child->call;
    char words[200];
    json_t *json;

    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        refuse(child, status);
        return;
    }
    json = out->total <= out->limit ? json_loadb((const char *)out->kept.data, out->kept.size, 0, NULL) : NULL;
    if (json != NULL) {
        lh_mcp_call_done(call, json, "as of now");
        return;
    }
    snprintf(words, sizeof(words), "the answer has %zu bytes; the limit is %zu", out->total, out->limit);
    lh_mcp_call_refused(call, "MESSAGE_TOO_LARGE", words, "Ask for one namespace, without those below it.", NULL);
}

void lh_mcp_list(struct lh_mcp_call *call)
{
    const char *ns = lh_mcp_call_text(call, "namespace");
    struct words words = {0};

    add_program(&words, call->mcp->cli);
    add_text(&words, "list");
    add_text(&words, "--output=json");
    if (json_is_true(json_object_get(call->arguments, "children")))
        add_text(&words, "--children");
    add_text(&words, "--");
    add_text(&words, ns != NULL ? ns : ".");
    start(call, &words, LH_MCP_ANSWER_MAX, on_looked);
}

void lh_mcp_explain(struct lh_mcp_call *call)
{
    struct words words = {0};

    add_program(&words, call->mcp->cli);
    add_text(&words, "explain");
    add_text(&words, "--output=json");
    add_text(&words, "--");
    add_text(&words, lh_mcp_call_text(call, "namespace"));
    add_text(&words, lh_mcp_call_text(call, "key"));
    start(call, &words, LH_MCP_ANSWER_MAX, on_looked);
}

/* --- run --- */

static json_t *output_of(const struct lh_mcp_child *child)
{
    const struct stream *out = &child->streams[0], *err = &child->streams[1];
    json_t *output = json_pack("{s:o, s:o, s:I, s:I, s:b}", "stdout", text_of(&out->kept), "stderr",
                               text_of(&err->kept), "stdout_bytes", (json_int_t)out->total, "stderr_bytes",
                               (json_int_t)err->total, "is_cut", out->total > out->limit || err->total > err->limit);
    json_t *token = json_object_get(child->granted, "token");

    if (token != NULL)
        json_object_set(output, "token", token);
    return output;
}

static void on_run(struct lh_mcp_child *child, int status)
{
    const json_t *told = child->lost != NULL ? child->lost : child->refused;
    struct lh_mcp_call *call = child->call;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : LH_EXIT_SIGNAL + WTERMSIG(status);
    json_t *output;
    char words[100];

    if (child->granted == NULL && child->refused == NULL) {
        refuse(child, status);
        return;
    }
    output = output_of(child);
    if (told != NULL) {
        lh_mcp_call_refused(
            call, child->lost != NULL ? "LOST" : json_string_value(json_object_get(told, "status")),
            json_string_value(json_object_get(told, "message")),
            child->lost != NULL
                ? "The command and its descendants were ended. Look at what it left before you repeat it."
                : "The command was not started. Call again with wait to queue for the lease.",
            output);
        return;
    }
    json_object_set_new(output, "exit_status", json_integer(code));
    snprintf(words, sizeof(words), "the command ended with status %d; the lease was released as failed", code);
    if (code == 0)
        lh_mcp_call_done(call, output, "the command has succeeded; the lease was released");
    else
        lh_mcp_call_refused(call, "COMMAND_FAILED", words, "stderr says why.", output);
}

/* Its words, as they are: no shell reads them. */
static enum lh_status take_command(const struct lh_mcp_call *call, struct lh_error *error)
{
    const json_t *command = json_object_get(call->arguments, "command");
    const char *wait = lh_mcp_call_text(call, "wait"), *key = lh_mcp_call_text(call, "key");
    int64_t wait_us;

    if (json_array_size(command) < 1 || json_array_size(command) > LH_MCP_COMMAND_MAX)
        return lh_bounds_refuse(error, "command", "1 to 1000 words", "command must have 1 to %d words, has %zu",
                                LH_MCP_COMMAND_MAX, json_array_size(command));
    for (size_t i = 0; i < json_array_size(command); i++)
        if (!json_is_string(json_array_get(command, i)))
            return lh_bounds_refuse(error, "command", "texts", "command[%zu] must be a text", i);
    if (key[0] == '-')
        return lh_bounds_refuse(error, "key", "no '-' at its beginning",
                                "key '%.64s' begins with '-', which run does not take", key);
    return wait == NULL || strcmp(wait, "forever") == 0 ? LH_OK : lh_check_duration("wait", wait, 0, &wait_us, error);
}

void lh_mcp_run(struct lh_mcp_call *call)
{
    const json_t *command = json_object_get(call->arguments, "command");
    const struct lh_cli *cli = call->mcp->cli;
    const char *wait = lh_mcp_call_text(call, "wait");
    struct lh_error error = {0};
    struct words words = {0};

    if (lh_mcp_hold_is_in_the_way(call))
        return;
    if (take_command(call, &error) != LH_OK) {
        lh_mcp_call_failed(call, error.status, &error);
        return;
    }
    add_program(&words, cli);
    add_text(&words, "run");
    add_text(&words, "--status-fd=3");
    if (wait != NULL)
        add_option(&words, "wait", wait);
    if (lh_args_value(&cli->args, "duration") != NULL)
        add_option(&words, "duration", lh_args_value(&cli->args, "duration"));
    if (lh_args_value(&cli->args, "owner") != NULL)
        add_option(&words, "owner", lh_args_value(&cli->args, "owner"));
    add_text(&words, lh_mcp_call_text(call, "namespace"));
    add_text(&words, lh_mcp_call_text(call, "key"));
    add_text(&words, "--");
    for (size_t i = 0; i < json_array_size(command); i++)
        add_text(&words, json_string_value(json_array_get(command, i)));
    start(call, &words, LH_MCP_OUTPUT_MAX, on_run);
}
