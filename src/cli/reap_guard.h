#ifndef LH_CLI_REAP_GUARD_H
#define LH_CLI_REAP_GUARD_H

#include "cli/reap_pass.h"

/*
 * Does `work` in a process of its own, and again each time the plugin crashes there. Each crash is recorded as a
 * failure of its lease, and reported.
 */
typedef enum lh_exit lh_reap_work(void *arg);
enum lh_exit lh_reap_guard(struct lh_reap_pass *pass, lh_reap_work *work, void *arg);

#endif
