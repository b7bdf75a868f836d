/*
 * mcp: leases for programs that speak the Model Context Protocol.
 *
 * The happy path: one loop reads messages from stdin, hands them to a tool, and writes the answer when the library, or a
 * child, has it. The library renews on the same loop what was acquired.
 *
 * The end: stdin has ended, stdout has no reader, or a signal came. Calls are cancelled, leases released, children ended;
 * when all of that was answered the client is closed, and the program ends with 0. What takes too long is left: leases
 * expire, and the supervisor of a command ends it.
 */
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/mcp/mcp_internal.h"

#define END_S 12 /* longer than a child is waited for, and than the client sends releases */

static void on_closed(void *arg)
{
    struct lh_mcp *mcp = arg;
    mcp->is_client_closed = true;
}

static void end(void *arg)
{
    const struct timeval most = {.tv_sec = END_S};
    struct lh_mcp *mcp = arg;

    if (mcp->is_ending)
        return;
    mcp->is_ending = true;
    event_add(mcp->too_late, &most);
    lh_mcp_hold_release_all(mcp);
    LH_LIST_EACH(struct lh_mcp_call, call, &mcp->calls, link)
        lh_mcp_call_cancel(call);
}

static void on_signal(evutil_socket_t number, short what, void *arg)
{
    (void)number;
    (void)what;
    end(arg);
}

static void on_child_ended(evutil_socket_t number, short what, void *arg)
{
    (void)number;
    (void)what;
    lh_mcp_child_look(arg);
}

static void on_too_late(evutil_socket_t fd, short what, void *arg)
{
    struct lh_mcp *mcp = arg;

    (void)fd;
    (void)what;
    lh_error_print("not all of the leases could be released; they end by their deadline");
    event_base_loopbreak(mcp->base);
}

/* One descriptor at a time may be a file, which epoll does not take. */
static struct event_base *base_create(void)
{
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;

    if (config != NULL && event_config_require_features(config, EV_FEATURE_FDS) == 0)
        base = event_base_new_with_config(config);
    if (config != NULL)
        event_config_free(config);
    return base;
}

static bool open_events(struct lh_mcp *mcp)
{
    struct event_base *base = mcp->base;

    mcp->term = evsignal_new(base, SIGTERM, on_signal, mcp);
    mcp->interrupt = evsignal_new(base, SIGINT, on_signal, mcp);
    mcp->child_ended = evsignal_new(base, SIGCHLD, on_child_ended, mcp);
    mcp->too_late = evtimer_new(base, on_too_late, mcp);
    mcp->wire.on_line = lh_mcp_take;
    mcp->wire.on_over = end;
    mcp->wire.arg = mcp;
    return mcp->term != NULL && mcp->interrupt != NULL && mcp->child_ended != NULL && mcp->too_late != NULL &&
           event_add(mcp->term, NULL) == 0 && event_add(mcp->interrupt, NULL) == 0 &&
           event_add(mcp->child_ended, NULL) == 0 && lh_mcp_wire_open(&mcp->wire, base);
}

static enum lh_exit serve(struct lh_mcp *mcp)
{
    bool is_closing = false;

    while (!event_base_got_break(mcp->base) &&
           !(mcp->is_client_closed && (lh_mcp_wire_is_flushed(&mcp->wire) || mcp->wire.is_over))) {
        event_base_loop(mcp->base, EVLOOP_ONCE);
        if (mcp->is_ending && !is_closing && mcp->call_count == 0) {
            is_closing = true;
            lh_mcp_hold_release_all(mcp);
            lh_client_close(mcp->client, on_closed, mcp);
        }
    }
    return LH_EXIT_DONE;
}

static void finish(struct lh_mcp *mcp)
{
    struct event *const events[] = {mcp->term, mcp->interrupt, mcp->child_ended, mcp->too_late};

    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    lh_client_destroy(mcp->client);
    for (size_t i = 0; i < mcp->namespace_count; i++)
        free(mcp->namespaces[i].text);
    free(mcp->namespaces);
    lh_mcp_wire_close(&mcp->wire);
    if (mcp->base != NULL)
        event_base_free(mcp->base);
}

static enum lh_status take_options(struct lh_mcp *mcp, const char **owner, struct lh_error *error)
{
    const struct lh_args *args = &mcp->cli->args;
    const char *duration = lh_args_value(args, "duration"), *ns;
    size_t at = 0;

    mcp->duration_us = 30 * LH_US_PER_S;
    mcp->is_read_only = lh_args_has(args, "read-only");
    mcp->allows_run = lh_args_has(args, "allow-run");
    *owner = lh_args_value(args, "owner");
    if (mcp->is_read_only && mcp->allows_run)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "--read-only and --allow-run cannot be combined");
    while ((ns = lh_args_next_value(args, "namespace", &at)) != NULL)
        if (lh_check_namespace(ns, error) != LH_OK)
            return error->status;
    if (duration != NULL &&
        lh_check_duration("duration", duration, LH_DURATION_MIN_US, &mcp->duration_us, error) != LH_OK)
        return error->status;
    return *owner != NULL ? lh_bounds_text("owner", LH_TEXT_OWNER, *owner, error) : LH_OK;
}

static enum lh_exit run(struct lh_cli *cli)
{
    struct lh_mcp mcp = {.cli = cli};
    struct lh_client_options options = {.endpoints = cli->server, .tls = &cli->tls, .timeout_us = cli->timeout_us};
    struct lh_error error = {0};
    enum lh_exit status;

    lh_list_init(&mcp.calls);
    lh_list_init(&mcp.holds);
    if (take_options(&mcp, &options.owner, &error) != LH_OK)
        return lh_error_value(cli, &error);
    mcp.base = options.event_base = base_create();
    if (mcp.base == NULL || !open_events(&mcp))
        status = lh_error_print("cannot watch stdin and stdout: no memory, or too many open files");
    else if ((mcp.client = lh_client_create(&options, &error)) == NULL)
        status =
            error.status == LH_INVALID_ARGUMENT ? lh_error_value(cli, &error) : lh_error_print("%s", error.message);
    else
        status = serve(&mcp);
    finish(&mcp);
    return status;
}

static const struct lh_option options[] = {
    {"namespace", 'n', "NAMESPACE", "Offer this namespace, and those below it, alone. May be repeated. Default: all."},
    {"read-only", 0, NULL, "Offer list and explain alone."},
    {"allow-run", 0, NULL, "Offer run, which starts programs on this machine."},
    {"duration", 'd', "DURATION",
     "How long a lease outlives this server, if it is killed; it is renewed at a third of that. Default: 30s."},
    {"owner", 0, "TEXT", "A name of the holder, for people. Default: host/leasehold/pid."},
    {0},
};

const struct lh_command lh_command_mcp = {
    .name = "mcp",
    .summary = "serve leases to AI agents, by the Model Context Protocol",
    .usage = (const char *const[]){"mcp [--namespace NAMESPACE]... [--read-only | --allow-run]", NULL},
    .description = "A server of the Model Context Protocol on stdin and stdout, which an agent's\n"
                   "program starts. Its tools are acquire, renew, release, explain and list, with\n"
                   "the rights of the token or certificate that it was started with; with\n"
                   "--allow-run also run, which runs a command under a lease and ends it when the\n"
                   "lease is lost. An agent that runs commands needs the consent of its user: its\n"
                   "program should ask.\n"
                   "\n"
                   "The server renews the leases that it has acquired as long as it lives. When\n"
                   "stdin ends, or at TERM or INT, it releases them and exits with 0. When a lease\n"
                   "is lost, it sends a warning, and the next call about this lease answers LOST.\n"
                   "\n"
                   "An acquire with wait tells by progress notifications who holds the lease and\n"
                   "how many are ahead; to cancel the call leaves the queue. Revisions 2026-07-28,\n"
                   "2025-11-25 and 2025-06-18 are spoken. At most 64 calls are in flight and 100\n"
                   "leases held; a message has 1 MiB at most, and stdout and stderr of a command\n"
                   "64 KiB each. While more than 1 MiB of answers is unread, the server reads no\n"
                   "message and sends no progress; it renews its leases.\n",
    .options = options,
    .examples = "  leasehold mcp --server 127.0.0.1:7420 --namespace deploy\n"
                "\n"
                "  The same in the configuration of an agent's program:\n"
                "  {\"mcpServers\": {\"leasehold\": {\"command\": \"leasehold\",\n"
                "    \"args\": [\"mcp\", \"--server\", \"127.0.0.1:7420\", \"--namespace\", \"deploy\"]}}}\n",
    .words_min = 0,
    .words_max = 0,
    .run = run,
};
