/*
 * A command: a name, the words of its help, its options, and one function. command.c lists all of
 * them.
 *
 *     const struct lh_command lh_command_status = {.name = "status", .run = run, ...};
 */
#ifndef LH_CLI_COMMAND_H
#define LH_CLI_COMMAND_H

#include <stdbool.h>

#include "cli/args.h"

/* The exit statuses of the command line. */
enum lh_exit {
    LH_EXIT_DONE = 0,
    LH_EXIT_FAILED = 1,      /* refused or broken: frozen, vetoed, quota, denied, our own bugs */
    LH_EXIT_USAGE = 2,       /* wrong usage, or a value out of bounds */
    LH_EXIT_HELD = 3,        /* another holder has it, or the wait has timed out */
    LH_EXIT_LOST = 4,        /* lost, ended, or not held */
    LH_EXIT_UNAVAILABLE = 5, /* no server, no database, no answer in time: try again */
    LH_EXIT_SIGNAL = 128,    /* plus the signal's number, as in shells */
};

struct lh_cli;

/* The source of a command's answers. */
enum lh_reach {
    LH_REACH_SERVER,
    LH_REACH_EITHER, /* a daemon, or the database without one */
    LH_REACH_DATABASE,
};

/* A subcommand. It has `least` to `most` words, its own included; `most` 0: any number. */
struct lh_verb {
    const char *name;
    size_t least, most;
    const char *usage; /* its words, where some are missing */
    enum lh_exit (*run)(struct lh_cli *cli);
    const char *options; /* options that no other takes, " apply below "; NULL: none */
};

struct lh_command {
    const char *name;
    const char *summary; /* one line of the list of commands, no full stop */
    /* The words behind "leasehold ", one line each, ends in NULL. */
    const char *const *usage;
    const char *description;         /* lines of at most 79 columns; paragraphs are separated by an empty one */
    const struct lh_option *options; /* ends in a row without name; NULL: none of its own */
    const char *examples;            /* lines as typed, indented by two */
    const struct lh_verb *verbs;     /* the first word is one of them; ends in a row without name; NULL: any word */
    int words_min;                   /* words that follow the command */
    int words_max;                   /* -1: any number */
    enum lh_reach reach;
    enum lh_exit (*run)(struct lh_cli *cli); /* NULL: that of the verb */
    const void *arg;                         /* passed to `run` */
};

/* Finds the verb of the first word. NULL: `error` lists the verbs. */
const struct lh_verb *lh_command_verb(const struct lh_command *command, const char *word, struct lh_error *error);

/* All commands; ends in NULL. */
extern const struct lh_command *const lh_commands[];

/* Options that every command takes, before or after it: see lh_command_takes. */
extern const struct lh_option lh_global_options[];

const struct lh_command *lh_command_find(const char *name);

/* Returns false for --server or --database if the command does not take it. */
bool lh_command_takes(const struct lh_command *command, const struct lh_option *global);

/* Returns the names of the commands that do without a daemon: "list, queue and migrate". A new string. */
char *lh_commands_with_database(void);

/* In the order in which a new user meets them. */
#define LH_COMMANDS(X)                                                                                                 \
    X(acquire), X(heartbeat), X(downgrade), X(release), X(ask_hand_over), X(refuse_hand_over), X(run), X(schedule),    \
        X(mcp), X(list), X(show), X(watch), X(queue), X(explain), X(history), X(reap), X(force_release), X(policy),    \
        X(hook), X(access), X(token), X(status), X(daemons), X(migrate), X(check_database)
#define LH_COMMAND_NAME(name) lh_command_##name
extern const struct lh_command LH_COMMANDS(LH_COMMAND_NAME);

#endif
