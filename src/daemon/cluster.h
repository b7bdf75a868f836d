/*
 * The private PostgreSQL cluster below a directory: where things lie, which programs run it, and as which user.
 *
 *     DIR/leaseholdd.lock   one daemon at a time
 *     DIR/data              the cluster; made as data.new and renamed, so it is whole when it is there
 *     DIR/log               what PostgreSQL and initdb say, a week of it
 *     DIR/run               the unix socket
 *     DIR/leasehold_core.so what the daemon was built with, where it runs from its build
 *
 * PostgreSQL refuses to run as root. When root starts the daemon, the cluster and the daemon run as the owner of
 * DIR/data; a new DIR/data gets the wanted user, or postgres, as its owner. When another user starts the daemon, all of it
 * runs as that user.
 * There is no TCP port. The socket's directory is closed to others (0700), and PostgreSQL asks the kernel who connects
 * (`peer`): root, the cluster's user and the daemon's user may be the role `leasehold`, which owns everything.
 */
#ifndef LH_DAEMON_CLUSTER_H
#define LH_DAEMON_CLUSTER_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

#define LH_CLUSTER_ROLE "leasehold"                /* the superuser: for people and migrations */
#define LH_CLUSTER_SERVING_ROLE "leasehold_daemon" /* the role that the daemon serves as; the migration makes it */

struct lh_cluster {
    char *directory;
    char *data;
    char *log;
    char *run;      /* DIR/run, or a short path elsewhere when that would not fit into a socket address */
    char *programs; /* the directory of initdb and postgres */
    char *core;     /* a module of leasehold_core for it, or NULL */
    char *user;
    uid_t uid;
    gid_t gid;
    int lock_fd; /* -1: not locked */
};

/* `user` may be NULL. Makes DIR where it is missing, finds user and programs, and takes the lock. Not LH_OK: `error`
 * says what to do. */
enum lh_status lh_cluster_open(struct lh_cluster *cluster, const char *directory, const char *user,
                               struct lh_error *error);
void lh_cluster_close(struct lh_cluster *cluster); /* accepts what was zeroed */

/* In a child process, exit status 0 or 1; what they say goes to DIR/log. */
int lh_cluster_create_data(void *cluster); /* does what is left to do of making the cluster; cluster_create.c */
int lh_cluster_run_postgres(void *cluster);

/* In a child process: become the cluster's user. False: said on stderr. */
bool lh_cluster_become_user(const struct lh_cluster *cluster);

/* The content of DIR/data/postmaster.pid about a process that is alive and works there. */
struct lh_postmaster {
    pid_t pid; /* 0: no process */
    bool is_ready;
};
struct lh_postmaster lh_cluster_postmaster(const struct lh_cluster *cluster);

/* Return the connection string for libpq, and the psql command for people; free() them. */
char *lh_cluster_conninfo(const struct lh_cluster *cluster, const char *role);
char *lh_cluster_psql(const struct lh_cluster *cluster);

/* The last words in a file of DIR/log, at most a few lines, as warnings. */
void lh_cluster_log_tail(const struct lh_cluster *cluster, const char *file);

#endif
