/*
 * Away from root. A daemon that root started does first what needs root: it takes its pid file, makes the embedded
 * cluster's directory and binds its sockets. Then it becomes a user for good, before it listens or talks to a database.
 *
 * The files that root made (pid file, unix sockets) may lie where that user may not remove them. A process that stays
 * behind as root, reads nothing and waits for the daemon's end, removes them.
 */
#ifndef LH_DAEMON_USER_H
#define LH_DAEMON_USER_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

struct lh_user {
    char *name; /* NULL: the process keeps its user */
    char *home;
    uid_t uid;
    gid_t gid;
};

/* The first that is not NULL: `wanted`, `standard`, the user postgres, the user nobody. "root": stay root. */
enum lh_status lh_user_choose(const char *wanted, const char *standard, struct lh_user *user, struct lh_error *error);
enum lh_status lh_user_become(const struct lh_user *user, struct lh_error *error);
void lh_user_finish(struct lh_user *user);

/* A process that removes `paths` when the process that called it ends, however it ends. Started as root. */
struct lh_remover {
    pid_t pid; /* 0: no process */
    int fd;
};

enum lh_status lh_remover_start(struct lh_remover *remover, const char *const *paths, size_t count,
                                struct lh_error *error);
void lh_remover_finish(struct lh_remover *remover); /* they are gone when it returns */

#endif
