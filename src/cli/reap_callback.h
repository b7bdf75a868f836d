/* Callbacks of the command line for each lease: a command, or a plugin. */
#ifndef LH_CLI_REAP_CALLBACK_H
#define LH_CLI_REAP_CALLBACK_H

#include "cli/reap_pass.h"

/* --exec: COMMAND by /bin/sh for each lease. Both borrow `callback`, which must stay in its place. */
void lh_reap_use_command(struct lh_reap_callback *callback, const char *command, int64_t limit_us);

/* --plugin. False: `error` says what is wrong with the file. It stays loaded until the process ends. */
bool lh_reap_use_plugin(struct lh_reap_callback *callback, const char *path, struct lh_error *error);

#endif
