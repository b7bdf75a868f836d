/* The command line of the process, and the settings that come from it. */
#ifndef LH_DAEMON_ARGUMENTS_H
#define LH_DAEMON_ARGUMENTS_H

#include <stdbool.h>

struct lh_config_errors;
struct lh_settings;

/* A copy, read again at each reload. Overwrites the passwords in `argv`, which every user can read in
   /proc/PID/cmdline. */
char **lh_arguments_take(int argc, char **argv);
void lh_arguments_finish(char **arguments);

/* lh_settings_load, and what needs libpq to be checked. */
bool lh_arguments_load(struct lh_settings *settings, int argc, char **argv, struct lh_config_errors *errors);

#endif
