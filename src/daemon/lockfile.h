/* A file with our process id that only one process can have: closed, or with its process gone, it is free again. */
#ifndef LH_DAEMON_LOCKFILE_H
#define LH_DAEMON_LOCKFILE_H

#include "base/status.h"

/* `*fd` stays open as long as the lock is wanted. Refused: `error` names the process that has it. */
enum lh_status lh_lockfile_take(const char *path, int *fd, struct lh_error *error);

#endif
