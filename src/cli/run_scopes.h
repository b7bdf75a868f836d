/* What `leasehold run` holds while its command runs: NAMESPACE KEY, and each --also NS:KEY, in their order. */
#ifndef LH_CLI_RUN_SCOPES_H
#define LH_CLI_RUN_SCOPES_H

#include "cli/args.h"
#include "leasehold.h"

struct lh_run_scopes {
    size_t count;
    struct lh_run_scope {
        const char *ns;
        const char *key;
        char *text; /* of --also, which `ns` and `key` are in; NULL: words of the command line */
    } list[LH_ACQUIRE_ALL_MAX];
};

/* Zero-initialised before; finish it in any case. Borrows from `args`. LH_INVALID_ARGUMENT: `error` says which word. */
enum lh_status lh_run_scopes_take(struct lh_run_scopes *scopes, const struct lh_args *args, struct lh_error *error);
void lh_run_scopes_finish(struct lh_run_scopes *scopes);

#endif
