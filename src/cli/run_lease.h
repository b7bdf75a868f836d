/*
 * The lease of `leasehold run`, or the leases with --also: libleasehold on a thread of its own, and a descriptor that
 * is readable when it has news. The functions here are the main thread's.
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

    pthread_mutex_t mutex; /* guards the members that the library's thread sets */
    bool is_answered;
    enum lh_status status;
    struct lh_error error;
    struct lh_lease *leases[LH_ACQUIRE_ALL_MAX]; /* leases of the scopes; NULL: not granted */
    enum lh_lost_reason lost;                    /* reason of the first loss; 0: no loss */
    char lost_words[256];
    char lost_name[400]; /* "lease", with several scopes the name of the lost one */
    char told[512];      /* last line printed about the holder in the way */
};

/* Acquires all scopes. A lease counts as lost `grace_us` before its deadline. Not DONE: an error was printed. */
enum lh_exit lh_run_lease_ask(struct lh_run_lease *lease, const struct lh_cli *cli, const struct lh_cli_acquire *asked,
                              const struct lh_run_scopes *scopes, int64_t grace_us);

/* Clears `wake`. Call it before looking. */
void lh_run_lease_look(struct lh_run_lease *lease);
bool lh_run_lease_is_answered(struct lh_run_lease *lease);

/* Returns true if any lease is lost. */
bool lh_run_lease_is_lost(struct lh_run_lease *lease);

/* Tell, of granted leases, whether all are held as far as this process knows, and the earliest of their deadlines. */
bool lh_run_lease_is_held(const struct lh_run_lease *lease);
int64_t lh_run_lease_deadline_us(const struct lh_run_lease *lease);

/* Leaves the queue. The answer follows. */
void lh_run_lease_cancel(struct lh_run_lease *lease);

/* Returns DONE, or prints an error and returns the exit status. Call it after the answer. */
enum lh_exit lh_run_lease_verdict(struct lh_run_lease *lease);

/* Releases all leases: as a success, or with the text of a failure. Prints errors. Returns DONE, LOST, or the error
   of the first that could not be released. */
enum lh_exit lh_run_lease_release(struct lh_run_lease *lease, const char *failure);

/* Releases after a loss, for the next waiters, silently, within `timeout_us`. */
void lh_run_lease_abandon(struct lh_run_lease *lease, const char *failure, int64_t timeout_us);

void lh_run_lease_finish(struct lh_run_lease *lease);

#endif
