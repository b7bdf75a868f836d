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

#include "cli/cli.h"
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

/* Makes a single call: opens and closes the server. */
enum lh_exit lh_server_ask(const struct lh_cli *cli, const ProtobufCServiceDescriptor *service, const char *method,
                           const ProtobufCMessage *request, enum lh_repeat repeat, struct lh_reply *reply);

/*
 * Reads a list, all of its pages as one: `request` has page_size and page_token; the first field of the answer is the
 * list, and gets all of it; with `max` pages until it has so many or more, 0 is all. Otherwise as lh_server_ask.
 */
enum lh_exit lh_server_list(const struct lh_cli *cli, const ProtobufCServiceDescriptor *service, const char *method,
                            ProtobufCMessage *request, size_t max, struct lh_reply *reply);

/* Makes a call without printing errors, repeated until `deadline_us`; `reply` is the last one. */
void lh_server_try(struct lh_server *server, const ProtobufCServiceDescriptor *service, const char *method,
                   const ProtobufCMessage *request, enum lh_repeat repeat, int64_t deadline_us, struct lh_reply *reply);

/* Tries to release a lease, without printing errors. `failure` NULL: as a success. */
void lh_server_release(struct lh_server *server, Leasehold__V1__Scope *scope, char *lease_key, const char *failure,
                       int64_t deadline_us);

/* Returns true if the same request may have a better answer in a moment. For a server that was never reached it does
   not. */
bool lh_reply_is_passing(const struct lh_reply *reply);

/* Returns 50 ms doubling to 1 s, or the server's RetryInfo if that is longer. `attempt` counts from 0. */
int64_t lh_backoff_us(unsigned attempt, const struct lh_reply *reply);

#endif
