/*
 * The process: its command line, its files, its user, and the service manager.
 *
 * Away from root. A daemon that root started does first what needs root: it takes its pid file, makes the embedded
 * cluster's directory and binds its sockets. Then it becomes a user for good, before it listens or talks to a database.
 *
 * The files that root made (pid file, unix sockets) may lie where that user may not remove them. A process that stays
 * behind as root, reads nothing and waits for the daemon's end, removes them.
 */
#ifndef LH_DAEMON_PROCESS_H
#define LH_DAEMON_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

/* --- its command line, and the settings that come from it --- */

struct lh_config_errors;
struct lh_settings;

/* A copy, read again at each reload. Overwrites the passwords in `argv`, which every user can read in
   /proc/PID/cmdline. */
char **lh_arguments_take(int argc, char **argv);
void lh_arguments_finish(char **arguments);

/* lh_settings_load, and what needs libpq to be checked. */
bool lh_arguments_load(struct lh_settings *settings, int argc, char **argv, struct lh_config_errors *errors);

/* Says what else is wrong with settings that a reload would adopt; returns false then. */
typedef bool lh_reload_check(void *arg, const struct lh_settings *fresh, struct lh_config_errors *errors);
/* Loads the settings again and adopts what may change while the process runs. Logs what differs, or what is wrong; false
   then. */
bool lh_arguments_reload(struct lh_settings *settings, int argc, char **argv, lh_reload_check *check, void *arg);

/* --- its files --- */

/* Whole or not at all: written beside `path`, then renamed. Where the directory is closed to this user, into the file
   that lh_user_leave_root left there, with one write. */
enum lh_status lh_write_lines(const char *path, const char *const *lines, size_t count, struct lh_error *error);

/* As many open files as the system lets us have; warns when that is less than `wanted`. */
void lh_raise_file_limit(size_t wanted);

/* A file with our process id that only one process can have: closed, or with its process gone, it is free again.
   `*fd` stays open as long as the lock is wanted. Refused: `error` names the process that has it. */
enum lh_status lh_lockfile_take(const char *path, int *fd, struct lh_error *error);

/* --- the service manager (sd_notify(3)); nothing where there is none --- */

/* Such as "READY=1" or "STOPPING=1". */
void lh_notify(const char *state);

/* --- its user --- */

struct lh_user {
    char *name; /* NULL: the process keeps its user */
    char *home;
    uid_t uid;
    gid_t gid;
};

/* Returns the account to run as: `wanted`, else `standard`. Without both it is postgres, or nobody. "root": stay root. */
enum lh_status lh_user_choose(const char *wanted, const char *standard, struct lh_user *user, struct lh_error *error);
void lh_user_finish(struct lh_user *user);

/* A process that removes files when the process that called it ends, however it ends. Started as root. */
struct lh_remover {
    pid_t pid; /* 0: no process */
    int fd;
};

/* The files of a process that root started. */
struct lh_root_files {
    const char *port_file; /* made here, in place of an old one, for the user to write into; or NULL */
    const char *pid_file;  /* removed at the end, as `paths` are; or NULL */
    const char *const *paths;
    size_t path_count;
};

/* Becomes the user for good, and leaves the remover behind; without a name: does nothing. */
enum lh_status lh_user_leave_root(const struct lh_user *user, const struct lh_root_files *files,
                                  struct lh_remover *remover, struct lh_error *error);
void lh_remover_finish(struct lh_remover *remover); /* they are gone when it returns */

#endif
