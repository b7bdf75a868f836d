/*
 * Processes that the daemon starts: PostgreSQL, initdb, the schema's migration. Work that could block runs in a process
 * of its own, so that the event loop goes on and the daemon answers signals.
 *
 *     lh_child_start(children, &child, run, run_arg, on_exit, arg)
 */
#ifndef LH_DAEMON_CHILD_H
#define LH_DAEMON_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/list.h"

struct lh_children;
struct lh_loop;

struct lh_child {
    pid_t pid; /* 0: it is not running */
    struct lh_link link;
    void (*on_exit)(void *arg, int wait_status);
    void *arg;
};

/* Takes SIGCHLD for this process. */
struct lh_children *lh_children_create(struct lh_loop *loop);
void lh_children_destroy(struct lh_children *children); /* does not end them */

/*
 * Fork; `run` is called in the child, whose exit status is what it returns. The child has default signal handling, its
 * own session (a Ctrl-C at the terminal is for the daemon, which ends its children in good order) and no descriptors
 * but 0, 1 and 2. False, with errno: there is no process, and on_exit never fires.
 */
bool lh_child_start(struct lh_children *children, struct lh_child *child, int (*run)(void *arg), void *run_arg,
                    void (*on_exit)(void *arg, int wait_status), void *arg);
void lh_child_signal(struct lh_child *child, int number); /* does nothing when it is not running */
void lh_child_kill_all(struct lh_child *child);           /* SIGKILL, to all that it started too */

/* "exit status 1", "signal 9 (Killed)". */
#define LH_CHILD_END_BYTES 64
void lh_child_describe_end(int wait_status, char text[LH_CHILD_END_BYTES]);

#endif
