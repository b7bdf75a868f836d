/* The exit statuses of the command line. */
#ifndef LH_CLI_EXIT_H
#define LH_CLI_EXIT_H

enum lh_exit {
    LH_EXIT_DONE = 0,
    LH_EXIT_FAILED = 1,      /* refused or broken: frozen, vetoed, quota, denied, our own bugs */
    LH_EXIT_USAGE = 2,       /* wrong usage, or a value out of bounds */
    LH_EXIT_HELD = 3,        /* another holder has it, or the wait has timed out */
    LH_EXIT_LOST = 4,        /* lost, ended, or not held */
    LH_EXIT_UNAVAILABLE = 5, /* no server, no database, no answer in time: try again */
    LH_EXIT_SIGNAL = 128,    /* plus the signal's number, as in shells */
};

#endif
