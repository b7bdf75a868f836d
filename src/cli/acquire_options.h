/* The options of an acquire: parsed from the command line, and checked. */
#ifndef LH_CLI_ACQUIRE_OPTIONS_H
#define LH_CLI_ACQUIRE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/uuid.h"
#include "cli/args.h"
#include "cli/bounds.h"
#include "cli/message.h"

enum lh_cli_wait {
    LH_CLI_WAIT_NONE,
    LH_CLI_WAIT_TIME, /* wait_us */
    LH_CLI_WAIT_FOREVER,
    LH_CLI_WAIT_ALIVE, /* while the holder is alive */
};

#define LH_CLI_AT_LEAST_POLICY INT64_C(-1)

struct lh_cli_acquire {
    struct lh_scope_message scope;
    char lease_key[LH_UUID_TEXT_BYTES];
    bool is_own_key; /* made here: no other process knows the key */
    char owner[256];
    int64_t duration_us;
    int64_t at_least_us; /* LH_CLI_AT_LEAST_POLICY: not given */
    int32_t units;       /* units of a shared lease; 0: exclusive */
    enum lh_cli_wait wait;
    int64_t wait_us;
    Leasehold__V1__AcquireRequest__LabelsEntry labels[LH_LABELS_MAX];
    Leasehold__V1__AcquireRequest__LabelsEntry *label_list[LH_LABELS_MAX];
    size_t label_count;
};

/* Takes the options; `asked` is zero-initialised before. Finish it in any case. Borrows from `args`.
   LH_INVALID_ARGUMENT: `error` names the word. */
enum lh_status lh_cli_acquire_take(struct lh_cli_acquire *asked, const struct lh_args *args, struct lh_error *error);
void lh_cli_acquire_finish(struct lh_cli_acquire *asked);

#endif
