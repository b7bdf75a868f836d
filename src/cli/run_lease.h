/*
 * The lease of `leasehold run`: libleasehold on a thread of its own, and a descriptor that is readable when it has
 * something to say. Everything here is for the main thread.
 */
#ifndef LH_CLI_RUN_LEASE_H
#define LH_CLI_RUN_LEASE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/acquire_words.h"
#include "cli/cli.h"
#include "leasehold.h"

struct lh_run_lease {
    const struct lh_cli *cli;
    const struct lh_acquire_words *words;
    int wake; /* readable: look again */
    bool tells_waiting;
    struct lh_client *client;
    struct lh_request *request; /* while it is acquired */

    pthread_mutex_t mutex; /* guards what the library's thread tells */
    bool is_answered;
    enum lh_status status;
    struct lh_error error;
    struct lh_lease *lease;
    enum lh_lost_reason lost; /* 0: not lost */
    char lost_words[256];
    char told[512]; /* what was said last about who stands in the way */
};

/* Ask for it. `grace_us`: so long before its deadline it counts as lost. Not DONE: complained about. */
enum lh_exit lh_run_lease_ask(struct lh_run_lease *lease, const struct lh_cli *cli,
                              const struct lh_acquire_words *words, int64_t grace_us);

/* Forget what made `wake` readable, before looking. */
void lh_run_lease_look(struct lh_run_lease *lease);
bool lh_run_lease_is_answered(struct lh_run_lease *lease);
bool lh_run_lease_is_lost(struct lh_run_lease *lease);

/* Leave the queue. The answer follows. */
void lh_run_lease_cancel(struct lh_run_lease *lease);

/* Once it is answered: DONE, or complained about, with the exit status. */
enum lh_exit lh_run_lease_verdict(struct lh_run_lease *lease);

/* Give it back: as a success, or with the words of what went wrong. Complains. DONE, LOST, or what was in the way. */
enum lh_exit lh_run_lease_release(struct lh_run_lease *lease, const char *failure);

void lh_run_lease_finish(struct lh_run_lease *lease);

#endif
