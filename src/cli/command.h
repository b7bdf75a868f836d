/*
 * What a command is: a name, the words of its help, its options, and one function. Each lives in a file of its own and
 * is listed in commands.c.
 *
 *     const struct lh_command lh_command_status = {.name = "status", .run = run, ...};
 */
#ifndef LH_CLI_COMMAND_H
#define LH_CLI_COMMAND_H

#include "cli/args.h"
#include "cli/exit.h"

struct lh_cli;

struct lh_command {
    const char *name;
    const char *summary;             /* one line of the list of commands, no full stop */
    const char *const *usage;        /* what follows "leasehold ", one line each, ends in NULL */
    const char *description;         /* paragraphs, which help wraps; lines that begin with a space it leaves alone */
    const struct lh_option *options; /* ends in a row without name; NULL: none of its own */
    const char *examples;            /* lines as they would be typed, indented by two */
    int words_min;                   /* how many words follow the command */
    int words_max;                   /* -1: any number */
    bool takes_database;             /* can do without a daemon */
    enum lh_exit (*run)(struct lh_cli *cli);
};

/* Ends in NULL. */
extern const struct lh_command *const lh_commands[];

/* Options that every command takes, and the ones before it. */
extern const struct lh_option lh_global_options[];

const struct lh_command *lh_command_find(const char *name);

extern const struct lh_command lh_command_acquire;
extern const struct lh_command lh_command_heartbeat;
extern const struct lh_command lh_command_release;
extern const struct lh_command lh_command_run;
extern const struct lh_command lh_command_list;
extern const struct lh_command lh_command_show;
extern const struct lh_command lh_command_watch;
extern const struct lh_command lh_command_reap;
extern const struct lh_command lh_command_force_release;
extern const struct lh_command lh_command_policy;
extern const struct lh_command lh_command_hook;
extern const struct lh_command lh_command_status;
extern const struct lh_command lh_command_migrate;

#endif
