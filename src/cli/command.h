/*
 * What a command is: a name, the words of its help, its options, and one function. Each lives in a file of its own and
 * is listed in command.c.
 *
 *     const struct lh_command lh_command_status = {.name = "status", .run = run, ...};
 */
#ifndef LH_CLI_COMMAND_H
#define LH_CLI_COMMAND_H

#include <stdbool.h>

#include "cli/args.h"
#include "cli/exit.h"

struct lh_cli;

/* Where a command gets its answers. */
enum lh_reach {
    LH_REACH_SERVER,
    LH_REACH_EITHER, /* a daemon, or the database without one */
    LH_REACH_DATABASE,
};

struct lh_command {
    const char *name;
    const char *summary;             /* one line of the list of commands, no full stop */
    const char *const *usage;        /* what follows "leasehold ", one line each, ends in NULL */
    const char *description;         /* lines of at most 79 columns; paragraphs are separated by an empty one */
    const struct lh_option *options; /* ends in a row without name; NULL: none of its own */
    const char *examples;            /* lines as they would be typed, indented by two */
    const char *const *verbs;        /* what its first word may be: three, then NULL; NULL: any word */
    int words_min;                   /* how many words follow the command */
    int words_max;                   /* -1: any number */
    enum lh_reach reach;
    enum lh_exit (*run)(struct lh_cli *cli);
    const void *arg; /* for `run` */
};

/* Ends in NULL. */
extern const struct lh_command *const lh_commands[];

/* Options that every command takes, before or after it: see lh_command_takes. */
extern const struct lh_option lh_global_options[];

const struct lh_command *lh_command_find(const char *name);

/* --server and --database are not for every command. */
bool lh_command_takes(const struct lh_command *command, const struct lh_option *global);

/* The names of those that can do without a daemon: "list, queue and migrate". A new string. */
char *lh_commands_with_database(void);

extern const struct lh_command lh_command_acquire;
extern const struct lh_command lh_command_heartbeat;
extern const struct lh_command lh_command_downgrade;
extern const struct lh_command lh_command_release;
extern const struct lh_command lh_command_run;
extern const struct lh_command lh_command_list;
extern const struct lh_command lh_command_show;
extern const struct lh_command lh_command_watch;
extern const struct lh_command lh_command_reap;
extern const struct lh_command lh_command_force_release;
extern const struct lh_command lh_command_policy;
extern const struct lh_command lh_command_hook;
extern const struct lh_command lh_command_access;
extern const struct lh_command lh_command_token;
extern const struct lh_command lh_command_queue;
extern const struct lh_command lh_command_explain;
extern const struct lh_command lh_command_history;
extern const struct lh_command lh_command_daemons;
extern const struct lh_command lh_command_status;
extern const struct lh_command lh_command_migrate;
extern const struct lh_command lh_command_check_database;

#endif
