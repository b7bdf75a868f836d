/* The scopes that `leasehold run` holds while its command runs: NAMESPACE KEY, and each --also NS:KEY, in their
   order. */
#ifndef LH_CLI_RUN_SCOPES_H
#define LH_CLI_RUN_SCOPES_H

#include "cli/args.h"
#include "leasehold.h"

struct lh_run_scopes {
    size_t count;
    struct lh_run_scope {
        const char *ns;
        const char *key;
        /* Memory of `ns` and `key` of --also; NULL: they are words of the command line. */
        char *text;
    } list[LH_ACQUIRE_ALL_MAX];
};

/* Takes the scopes; `scopes` is zero-initialised before. Finish it in any case. Borrows from `args`.
   LH_INVALID_ARGUMENT: `error` names the word. */
enum lh_status lh_run_scopes_take(struct lh_run_scopes *scopes, const struct lh_args *args, struct lh_error *error);
void lh_run_scopes_finish(struct lh_run_scopes *scopes);

#endif
