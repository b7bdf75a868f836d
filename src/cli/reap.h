/* One pass of reaping: what is to be done, and what came of it. */
#ifndef LH_CLI_REAP_H
#define LH_CLI_REAP_H

#include "cli/database.h"
#include "cli/server.h"
#include "leasehold.h"

struct lh_reap_pass {
    struct lh_cli *cli;
    bool include_children;
    int64_t max; /* leases in one transaction; 0: as usual */
    struct lh_reap_callback *callback;

    struct lh_arena arena;
    Leasehold__V1__ReapResponse total;
};

/* A failure that lives in the pass's arena. */
void lh_reap_add_failure(struct lh_reap_pass *pass, Leasehold__V1__ReapFailure *failure);

enum lh_exit lh_reap_by_database(struct lh_reap_pass *pass, struct lh_session *session);

/* "nothing to do in a.b: ..." for each of the namespaces that nobody ever heard of. */
void lh_reap_tell_unknown(const struct lh_reap_pass *pass, struct lh_session *session);

/* What is done with each lease, in its transaction; zero-initialised: nothing but the hooks in SQL. */
struct lh_reap_callback {
    lh_reap_cb *on_lease;
    void *arg;
    int64_t limit_us;     /* 0: the policy's */
    int64_t transactions; /* leases in one at most; 0: as usual */
    const char *command;  /* --exec */
    PGconn *conn;
    void *library; /* --plugin */
};

/* --exec: COMMAND by /bin/sh for each lease. */
void lh_reap_use_command(struct lh_reap_callback *callback, const char *command, int64_t limit_us);

/* --plugin: false: `error` says what is wrong with the file. It stays loaded until the process ends. */
bool lh_reap_use_plugin(struct lh_reap_callback *callback, const char *path, struct lh_error *error);

#endif
