#include "cli/server.h"

#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "json/print.h"
#include "json/row_message.h"

#define PAGE_SIZE 1000

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

/* One, or several with commas between. */
static enum lh_exit check_addresses(const struct lh_cli *cli)
{
    char *copy = lh_strdup(cli->server), *rest = copy, *address;
    enum lh_exit status = LH_EXIT_DONE;

    while (status == LH_EXIT_DONE && (address = strsep(&rest, ",")) != NULL) {
        address += strspn(address, " ");
        if (!looks_like_address(address))
            status = lh_error_usage(
                cli->command, "'%s' is not an address of a server; use HOST:PORT, [IPv6]:PORT or unix:PATH", address);
    }
    free(copy);
    return status;
}

enum lh_exit lh_server_open(struct lh_server *server, const struct lh_cli *cli)
{
    struct lh_error error = {0};
    enum lh_exit status = check_addresses(cli);

    server->cli = cli;
    server->caller = NULL;
    if (status != LH_EXIT_DONE)
        return status;
    server->caller = lh_caller_create(cli->server, &cli->tls, &error);
    if (server->caller != NULL)
        return LH_EXIT_DONE;
    if (strcmp(error.field, "token_file") == 0)
        return lh_error_value(cli, &error);
    lh_error_print("cannot reach a server: %s", error.message);
    return LH_EXIT_UNAVAILABLE;
}

void lh_server_close(struct lh_server *server)
{
    lh_caller_destroy(server->caller);
    server->caller = NULL;
}

enum lh_exit lh_server_call(struct lh_server *server, const ProtobufCServiceDescriptor *service, const char *method,
                            const ProtobufCMessage *request, enum lh_repeat repeat, struct lh_reply *reply)
{
    int64_t deadline_us = lh_clock_us() + server->cli->timeout_us;

    if (repeat == LH_REPEAT)
        lh_caller_repeat(server->caller, service, method, request, deadline_us, NULL, reply);
    else
        lh_caller_call(server->caller, service, method, request, deadline_us, reply);
    return reply->code == LH_GRPC_OK ? LH_EXIT_DONE : lh_error_reply(server->cli, reply);
}

/* What `page` lists goes to the end of `all`, which gets its next_page_token too. */
static void take_page(ProtobufCMessage *all, ProtobufCMessage *page)
{
    char **next = lh_message_field(all, "next_page_token"), **after = lh_message_field(page, "next_page_token");
    char *token = *next;
    size_t count, more;
    void **items = lh_message_list(all, &count), **moved = lh_message_list(page, &more);

    if (more > 0) {
        items = lh_realloc(items, count + more, sizeof(*items));
        memcpy(items + count, moved, more * sizeof(*moved));
        lh_message_set_list(all, items, count + more);
        lh_message_set_list(page, moved, 0);
    }
    *next = *after;
    *after = token;
}

/* Sets the request's page_token to the page behind `answer`. False: there is none, or `max` are there. */
static bool turn_page(ProtobufCMessage *request, ProtobufCMessage *answer, size_t max)
{
    char **page_token = lh_message_field(request, "page_token");
    size_t count;

    if (page_token == NULL)
        return false;
    lh_message_list(answer, &count);
    *page_token = *(char **)lh_message_field(answer, "next_page_token");
    return (max == 0 || count < max) && (*page_token)[0] != '\0';
}

enum lh_exit lh_server_ask(const struct lh_cli *cli, const ProtobufCServiceDescriptor *service, const char *method,
                           ProtobufCMessage *request, enum lh_repeat repeat, size_t max, struct lh_reply *reply)
{
    int32_t *page_size = lh_message_field(request, "page_size");
    struct lh_server server;
    enum lh_exit status = lh_server_open(&server, cli);

    if (page_size != NULL)
        *page_size = max > 0 && max < PAGE_SIZE ? (int32_t)max : PAGE_SIZE;
    *reply = (struct lh_reply){0};
    if (status == LH_EXIT_DONE)
        status = lh_server_call(&server, service, method, request, repeat, reply);
    while (status == LH_EXIT_DONE && turn_page(request, reply->message, max)) {
        struct lh_reply page;
        status = lh_server_call(&server, service, method, request, repeat, &page);
        if (status == LH_EXIT_DONE)
            take_page(reply->message, page.message);
        lh_reply_finish(&page);
    }
    lh_server_close(&server);
    return status;
}

bool lh_print_json(const struct lh_cli *cli, const void *answer)
{
    if (cli->output == LH_OUTPUT_JSON)
        lh_json_print(stdout, answer);
    return cli->output == LH_OUTPUT_JSON;
}

enum lh_exit lh_server_open_lease(struct lh_server_lease *lease, struct lh_cli *cli)
{
    const char *word = cli->args.word_count > 2 ? cli->args.words[2] : NULL;
    Leasehold__V1__Scope *scope = NULL;
    struct lh_error error = {0};
    enum lh_exit status;

    *lease = (struct lh_server_lease){0};
    if (lh_take_lease_key(word, lease->lease_key, &error) == LH_OK)
        scope = lh_take_scope(cli->args.words[0], cli->args.words[1], &cli->arena, &error);
    if (scope == NULL)
        return lh_error_value(cli, &error);
    status = lh_server_open(&lease->server, cli);
    lease->by_key = (struct lh_by_key){.caller = lease->server.caller,
                                       .scope = scope,
                                       .lease_key = lease->lease_key,
                                       .deadline_us = lh_clock_us() + cli->timeout_us};
    return status;
}
