/*
 * Calls to the server named on the command line; those that are safe to repeat are repeated within --timeout.
 *
 *     status = lh_server_open(&server, cli);
 *     if (status == LH_EXIT_DONE)
 *         status = lh_server_call(&server, &leasehold__v1__lease_service__descriptor, "ListLeases", &request.base,
 *                                 LH_REPEAT, &reply);
 *     ...
 *     lh_reply_finish(&reply);
 *     lh_server_close(&server);
 */
#ifndef LH_CLI_SERVER_H
#define LH_CLI_SERVER_H

#include "base/uuid.h"
#include "cli/arguments.h"
#include "cli/cli.h"
#include "client/by_key.h"
#include "client/caller.h"

struct lh_server {
    const struct lh_cli *cli;
    struct lh_caller *caller;
};

enum lh_repeat {
    LH_NO_REPEAT, /* once: a repetition could have a second effect */
    /* Calls that change nothing, or that their lease key makes the same request. */
    LH_REPEAT,
};

/* Opens the connection. Not DONE: an error was printed. */
enum lh_exit lh_server_open(struct lh_server *server, const struct lh_cli *cli);
void lh_server_close(struct lh_server *server);

/* Makes a call. Not DONE: an error was printed. `reply` is to be finished either way. */
enum lh_exit lh_server_call(struct lh_server *server, const ProtobufCServiceDescriptor *service, const char *method,
                            const ProtobufCMessage *request, enum lh_repeat repeat, struct lh_reply *reply);

/*
 * Opens the server for a single call. A list, whose request has page_size and page_token, is read page by page, as one: the
 * first field of the answer gets all of it, or with `max` so many or more.
 */
enum lh_exit lh_server_ask(const struct lh_cli *cli, const ProtobufCServiceDescriptor *service, const char *method,
                           ProtobufCMessage *request, enum lh_repeat repeat, size_t max, struct lh_reply *reply);

/* Prints the answer of a call if the output is JSON. Returns false if it is to be printed as text. */
bool lh_print_json(const struct lh_cli *cli, const void *answer);

/*
 * The lease that NAMESPACE KEY [LEASE_KEY] name, and the server: for a command that calls lh_by_key_ functions until
 * --timeout has passed. Not DONE: an error was printed. Close it in any case; leave it in place until then.
 */
struct lh_server_lease {
    struct lh_server server;
    char lease_key[LH_UUID_TEXT_BYTES];
    struct lh_by_key by_key;
};
enum lh_exit lh_server_open_lease(struct lh_server_lease *lease, struct lh_cli *cli);

#endif
