/* PostgreSQL's programs: where they are, and how they are run. */
#ifndef LH_DAEMON_PROGRAMS_H
#define LH_DAEMON_PROGRAMS_H

#include <stdbool.h>

#include "base/status.h"

#define LH_POSTGRES_OLDEST 13

/*
 * The directory that holds initdb and postgres: the newest below /usr/lib/postgresql, else the first on PATH. Where
 * `data` is a cluster already, only its own major version will do. *programs is malloc'ed.
 */
enum lh_status lh_programs_find(const char *data, char **programs, struct lh_error *error);

/* Redirects a child process: stdin from /dev/null, stdout and stderr to the file. Returns false if an error was
   printed on stderr. */
bool lh_programs_redirect(const char *path, bool append);

/* Takes out what would make PostgreSQL's programs do something else than they were asked. */
void lh_programs_clean_environment(void);

/* Run and wait; the arguments end with NULL. `input` (may be NULL) is what it reads. True: it exited with 0. */
bool lh_programs_run(const char *const *arguments, const char *input);

/*
 * Copies the module of leasehold_core that was built or installed with this program, for a cluster of the daemon's own,
 * into `directory`, where PostgreSQL can read it even if the build directory is closed to it. Returns the copy's path,
 * malloc'ed, or NULL where there is none for the version of the PostgreSQL in `programs`. A program in /usr/bin has
 * none: there the module is in the server's own directories, with the extension.
 */
char *lh_core_module_place(const char *directory, const char *programs);

#endif
