/*
 * Reaping: one pass of it has its arguments and its results. reap.c makes it and hands it down, to the server or to the
 * database; the callback in it (reap_exec.c, reap_plugin.c) is called for each lease.
 */
#ifndef LH_CLI_REAP_INTERNAL_H
#define LH_CLI_REAP_INTERNAL_H

#include <signal.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "cli/database.h"
#include "cli/server.h"
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

void lh_reap_pass_add_failed(struct lh_reap_pass *pass, const struct lh_embed_lease *lease, const char *error,
                             int32_t reap_failures, int64_t next_try_at_us);

/* Prints failures on stderr, the result on stdout; a repeated pass without news prints nothing. */
void lh_reap_pass_report(struct lh_reap_pass *pass, bool is_repeated);

/* Calls Reap until no lease is due. Not DONE: an error was printed. */
enum lh_exit lh_reap_by_server(struct lh_reap_pass *pass, struct lh_server *server);

/* Reaps every expired lease, in transactions of this session. Not DONE: an error was printed. */
enum lh_exit lh_reap_by_database(struct lh_reap_pass *pass, PGconn *session);

/* Prints a line for each named namespace that has no lease, policy or hook. */
void lh_reap_tell_unknown(const struct lh_reap_pass *pass, PGconn *session);

/* reap --exec: a command by /bin/sh for each lease. */

/* Sets the callback to a command. Borrows `callback`, which must stay in its place, and `command`. */
void lh_reap_use_command(struct lh_reap_callback *callback, const char *command, int64_t limit_us);

/* reap --plugin: a function of a shared object for each lease. */

/* Loads a plugin. Returns false, with the fault of the file in `error`. It stays loaded until the process ends. */
bool lh_reap_use_plugin(struct lh_reap_callback *callback, const char *path, struct lh_error *error);

/*
 * Does `work` in a process of its own, and again each time the plugin crashes there. Each crash is recorded as a
 * failure of its lease, and reported.
 */
typedef enum lh_exit lh_reap_work(void *arg);
enum lh_exit lh_reap_guard(struct lh_reap_pass *pass, lh_reap_work *work, void *arg);

#endif
