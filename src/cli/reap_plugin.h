/* reap --plugin: a function of a shared object for each lease. */
#ifndef LH_CLI_REAP_PLUGIN_H
#define LH_CLI_REAP_PLUGIN_H

#include "cli/reap_pass.h"

/* Loads a plugin. Returns false, with the fault of the file in `error`. It stays loaded until the process ends. */
bool lh_reap_use_plugin(struct lh_reap_callback *callback, const char *path, struct lh_error *error);

#endif
