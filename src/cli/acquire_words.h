/* What an acquire asks for, from the words of the command line, checked. */
#ifndef LH_CLI_ACQUIRE_WORDS_H
#define LH_CLI_ACQUIRE_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "cli/args.h"
#include "cli/bounds.h"
#include "cli/message.h"

enum lh_cli_wait {
    LH_CLI_WAIT_NONE,
    LH_CLI_WAIT_TIME, /* wait_us */
    LH_CLI_WAIT_FOREVER,
    LH_CLI_WAIT_ALIVE, /* while the holder is */
};

struct lh_acquire_words {
    struct lh_scope scope;
    char lease_key[LH_UUID_TEXT_BYTES];
    bool is_own_key; /* we made it: nobody else knows it */
    char owner[256];
    int64_t duration_us;
    enum lh_cli_wait wait;
    int64_t wait_us;
    Leasehold__V1__AcquireRequest__LabelsEntry labels[LH_BOUND_LABELS];
    Leasehold__V1__AcquireRequest__LabelsEntry *label_list[LH_BOUND_LABELS];
    size_t label_count;
};

/* Zero-initialised before; finish it in any case. Borrows from `args`. LH_INVALID_ARGUMENT: `error` says which word. */
enum lh_status lh_acquire_words_take(struct lh_acquire_words *words, const struct lh_args *args,
                                     struct lh_error *error);
void lh_acquire_words_finish(struct lh_acquire_words *words);

#endif
