/*
 * The lease of `leasehold run`, or the leases with --also: libleasehold on a thread of its own, and a descriptor that is
 * readable when it has something to say. Everything here is for the main thread.
 */
#ifndef LH_CLI_RUN_LEASE_H
#define LH_CLI_RUN_LEASE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/acquire_options.h"
#include "cli/cli.h"
#include "cli/run_scopes.h"
#include "leasehold.h"

struct lh_run_lease {
    const struct lh_cli *cli;
    const struct lh_cli_acquire *asked;
    const struct lh_run_scopes *scopes;
    int wake; /* readable: look again */
    bool tells_waiting;
    struct lh_client *client;
    struct lh_request *request; /* while it is acquired */

    pthread_mutex_t mutex; /* guards what the library's thread tells */
    bool is_answered;
    enum lh_status status;
    struct lh_error error;
    struct lh_lease *leases[LH_ACQUIRE_ALL_MAX]; /* of the scopes; NULL: not granted */
    enum lh_lost_reason lost;                    /* of the first that was lost; 0: none was */
    char lost_words[256];
    char lost_name[400]; /* "lease", with several which one */
    char told[512];      /* what was printed last about the holder in the way */
};

/* Acquires all of them. One counts as lost `grace_us` before its deadline. Not DONE: an error was printed. */
enum lh_exit lh_run_lease_ask(struct lh_run_lease *lease, const struct lh_cli *cli, const struct lh_cli_acquire *asked,
                              const struct lh_run_scopes *scopes, int64_t grace_us);

/* Forget what made `wake` readable, before looking. */
void lh_run_lease_look(struct lh_run_lease *lease);
bool lh_run_lease_is_answered(struct lh_run_lease *lease);

/* Of any of them. */
bool lh_run_lease_is_lost(struct lh_run_lease *lease);

/* For one that was granted: all are held as far as this process knows; the earliest of their deadlines. */
bool lh_run_lease_is_held(const struct lh_run_lease *lease);
int64_t lh_run_lease_deadline_us(const struct lh_run_lease *lease);

/* Leave the queue. The answer follows. */
void lh_run_lease_cancel(struct lh_run_lease *lease);

/* Once it is answered: DONE, or an error was printed, with the exit status. */
enum lh_exit lh_run_lease_verdict(struct lh_run_lease *lease);

/* Give all of them back: as a success, or with the words of what went wrong. Prints errors. DONE, LOST, or what was in the
 * way of the first that could not be released. */
enum lh_exit lh_run_lease_release(struct lh_run_lease *lease, const char *failure);

/* The same after a loss, for the next waiters: at most for so long, without a word. */
void lh_run_lease_abandon(struct lh_run_lease *lease, const char *failure, int64_t timeout_us);

void lh_run_lease_finish(struct lh_run_lease *lease);

#endif
