/* reap --exec: a command by /bin/sh for each lease. */
#ifndef LH_CLI_REAP_EXEC_H
#define LH_CLI_REAP_EXEC_H

#include "cli/reap_pass.h"

/* Sets the callback to a command. Borrows `callback`, which must stay in its place, and `command`. */
void lh_reap_use_command(struct lh_reap_callback *callback, const char *command, int64_t limit_us);

#endif
