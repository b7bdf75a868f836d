/*
 * Restores the terminal after the command. The command is in the process group of `leasehold run`, so it reads the
 * terminal and gets Ctrl-C and Ctrl-Z from the kernel. A shell or an editor sets terminal modes and a foreground process
 * group of its own; when it is killed, these are set back here.
 */
#ifndef LH_CLI_RUN_TERMINAL_H
#define LH_CLI_RUN_TERMINAL_H

#include <termios.h>

struct lh_run_terminal {
    int file; /* -1: there is no terminal, or it is not ours now */
    struct termios modes;
};

void lh_run_terminal_remember(struct lh_run_terminal *terminal);

/* Restores. Call it with SIGTTOU blocked. Takes nothing from a process group that lives: it may be the user's shell,
   and we in its background. */
void lh_run_terminal_restore(const struct lh_run_terminal *terminal);

#endif
