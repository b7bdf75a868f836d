/*
 * The terminal, as it is to be found again. The command shares our process group, so it reads the terminal, and hears
 * Ctrl-C and Ctrl-Z, without our doing. What is left to do is to put things right after a command that was killed: a
 * shell or an editor may have had modes and a foreground process group of its own.
 */
#ifndef LH_CLI_RUN_TERMINAL_H
#define LH_CLI_RUN_TERMINAL_H

#include <stdbool.h>
#include <termios.h>

struct lh_run_terminal {
    int file; /* -1: there is none, or it is not ours now */
    struct termios modes;
};

void lh_run_terminal_remember(struct lh_run_terminal *terminal);

/* With SIGTTOU blocked. Takes nothing from a process group that lives: it may be the user's shell, and we in its
 * background. */
void lh_run_terminal_restore(const struct lh_run_terminal *terminal);

#endif
