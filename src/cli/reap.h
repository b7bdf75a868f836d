/* One pass of reaping: what is to be done, and what came of it. */
#ifndef LH_CLI_REAP_H
#define LH_CLI_REAP_H

#include "cli/database.h"
#include "cli/server.h"
#include "leasehold.h"

struct lh_reap_pass {
    struct lh_cli *cli;
    bool include_children;
    int64_t max;       /* leases in one transaction; 0: as usual */
    bool keep_backoff; /* also where the namespace is named: not the first pass of a loop */
    int64_t skip_failed_since_us;
    struct lh_reap_callback *callback;

    struct lh_arena arena;
    Leasehold__V1__ReapResponse total;
};

/* A failure that lives in the pass's arena; one made there. */
void lh_reap_add_failure(struct lh_reap_pass *pass, Leasehold__V1__ReapFailure *failure);
void lh_reap_add_outcome(struct lh_reap_pass *pass, const struct lh_embed_lease *lease, const char *error,
                         int32_t reap_failures, int64_t next_try_at_us);

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
    const struct lh_reap_plugin *plugin;
    struct lh_reap_flight *flight; /* of the plugin, for whoever watches it */
};

/* --exec: COMMAND by /bin/sh for each lease. */
void lh_reap_use_command(struct lh_reap_callback *callback, const char *command, int64_t limit_us);

/* --plugin: false: `error` says what is wrong with the file. It stays loaded until the process ends. */
bool lh_reap_use_plugin(struct lh_reap_callback *callback, const char *path, struct lh_error *error);

/*
 * Do `work` in a process of its own, and again as often as the plugin crashes there; each time the failure is recorded
 * and put into the pass, and on_crash tells of it.
 */
typedef enum lh_exit lh_reap_work(void *arg);
typedef void lh_reap_crash(void *arg);
enum lh_exit lh_reap_guard(struct lh_reap_pass *pass, lh_reap_work *work, lh_reap_crash *on_crash, void *arg);

/* Memory for both processes; NULL: there is none. */
struct lh_reap_flight *lh_reap_flight_create(void);
void lh_reap_flight_begin(struct lh_reap_flight *flight, const struct lh_embed_lease *lease);
void lh_reap_flight_end(struct lh_reap_flight *flight);
void lh_reap_flight_count(struct lh_reap_flight *flight, int32_t reaped);

#endif
