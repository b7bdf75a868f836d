#include "cli/server.h"

#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/clock.h"
#include "cli/complain.h"

#define BACKOFF_FIRST_US (50 * LH_US_PER_MS)
#define BACKOFF_MAX_US LH_US_PER_S
#define RETRY_AFTER_MAX_US (10 * LH_US_PER_S)

/* Could this be an address at all? What it resolves to is another question, whose answer may differ in a moment. */
static bool looks_like_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    const char *port = colon != NULL ? colon + 1 : "";

    if (strncmp(text, "unix:", 5) == 0)
        return text[5] != '\0' && strlen(text + 5) < sizeof(((struct sockaddr_un *)NULL)->sun_path);
    if (port[0] == '\0' || port[strspn(port, "0123456789")] != '\0' || strlen(port) > 5 || atoi(port) > 65535)
        return false;
    if (text[0] == '[')
        return colon - text > 2 && colon[-1] == ']';
    return colon != text && strchr(text, ':') == colon;
}

enum lh_exit lh_server_open(struct lh_server *server, const struct lh_cli *cli)
{
    struct lh_error error = {0};

    server->cli = cli;
    server->caller = NULL;
    if (!looks_like_address(cli->server))
        return lh_complain_usage(cli->command, "'%s' is no address of a server: HOST:PORT, [IPv6]:PORT or unix:PATH",
                                 cli->server);
    server->caller = lh_caller_create(cli->server, &error);
    if (server->caller != NULL)
        return LH_EXIT_DONE;
    lh_complain("cannot reach a server: %s", error.message);
    return LH_EXIT_UNAVAILABLE;
}

void lh_server_close(struct lh_server *server)
{
    lh_caller_destroy(server->caller);
    server->caller = NULL;
}

bool lh_reply_is_passing(const struct lh_reply *reply)
{
    if (reply->has_reason)
        return reply->reason == LH_DATABASE_UNAVAILABLE || reply->reason == LH_SHUTTING_DOWN ||
               reply->reason == LH_OVERLOADED;
    return reply->code == LH_GRPC_UNAVAILABLE && reply->delivery != LH_RPC_NOT_SENT;
}

int64_t lh_backoff_us(unsigned attempt, const struct lh_reply *reply)
{
    int64_t delay_us = BACKOFF_FIRST_US << (attempt < 5 ? attempt : 5);

    if (delay_us > BACKOFF_MAX_US)
        delay_us = BACKOFF_MAX_US;
    if (reply->retry_after_us > delay_us)
        delay_us = reply->retry_after_us < RETRY_AFTER_MAX_US ? reply->retry_after_us : RETRY_AFTER_MAX_US;
    return delay_us;
}

void lh_server_try(struct lh_server *server, const ProtobufCServiceDescriptor *service, const char *method,
                   const ProtobufCMessage *request, enum lh_repeat repeat, int64_t deadline_us, struct lh_reply *reply)
{
    for (unsigned attempt = 0;; attempt++) {
        int64_t delay_us;

        lh_caller_call(server->caller, service, method, request, deadline_us, reply);
        if (reply->code == LH_GRPC_OK || repeat == LH_NO_REPEAT || !lh_reply_is_passing(reply))
            return;
        delay_us = lh_backoff_us(attempt, reply);
        if (lh_clock_us() + delay_us >= deadline_us)
            return;
        lh_reply_finish(reply);
        lh_caller_sleep(server->caller, delay_us);
    }
}

enum lh_exit lh_server_call(struct lh_server *server, const ProtobufCServiceDescriptor *service, const char *method,
                            const ProtobufCMessage *request, enum lh_repeat repeat, struct lh_reply *reply)
{
    lh_server_try(server, service, method, request, repeat, lh_clock_us() + server->cli->timeout_us, reply);
    return reply->code == LH_GRPC_OK ? LH_EXIT_DONE : lh_complain_reply(server->cli, reply);
}
