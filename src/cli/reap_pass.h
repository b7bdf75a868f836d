/*
 * One pass of reaping: its arguments and its results. reap.c makes it and hands it down to the server (reap_server.c)
 * or the database (reap_database.c); the callback in it (reap_exec.c, reap_plugin.c) is called for each lease.
 */
#ifndef LH_CLI_REAP_PASS_H
#define LH_CLI_REAP_PASS_H

#include <signal.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "leasehold.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* State that the process that runs a plugin shares with the one that watches it, in memory of both. */
struct lh_reap_flight {
    volatile sig_atomic_t is_in_callback;
    int32_t reaped; /* committed, and not reported yet */
    struct lh_embed_lease lease;
};

/* Called for each lease, in its transaction. Zero-initialised: only the hooks in SQL run. */
struct lh_reap_callback {
    lh_reap_cb *on_lease;
    void *arg;
    int64_t limit_us;     /* 0: the policy's */
    int64_t transactions; /* leases in one transaction at most; 0: the default */
    const char *command;  /* --exec */
    const struct lh_reap_plugin *plugin;
    struct lh_reap_flight *flight; /* the plugin's */
};

struct lh_reap_pass {
    struct lh_cli *cli;
    bool include_children;
    int64_t max; /* leases in one transaction; 0: the default */
    /* Keep it for a named namespace too: not the first pass of a loop. */
    bool keep_backoff;
    int64_t skip_failed_since_us;
    struct lh_reap_callback callback;

    struct lh_arena arena;
    Leasehold__V1__ReapResponse total;
};

/* Empties the results. */
void lh_reap_pass_begin(struct lh_reap_pass *pass);
void lh_reap_pass_end(struct lh_reap_pass *pass);

void lh_reap_pass_add_reaped(struct lh_reap_pass *pass, int32_t count);
void lh_reap_pass_add_failure(struct lh_reap_pass *pass, const Leasehold__V1__ReapFailure *failure);
void lh_reap_pass_add_failed(struct lh_reap_pass *pass, const struct lh_embed_lease *lease, const char *error,
                             int32_t reap_failures, int64_t next_try_at_us);

/* Prints failures on stderr, the result on stdout; a repeated pass without news prints nothing. */
void lh_reap_pass_report(const struct lh_reap_pass *pass, bool is_repeated);

#endif
