/* Small things at the edge of the process: the port file, the limit of open files. */
#ifndef LH_DAEMON_FILES_H
#define LH_DAEMON_FILES_H

#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

/* Whole or not at all: written beside `path`, then renamed. Where the directory is closed to this user, into the file
   that lh_make_file left there, with one write. */
enum lh_status lh_write_lines(const char *path, const char *const *lines, size_t count, struct lh_error *error);

/* Makes an empty file at `path` for another user, in place of an old one. Call it as root. */
enum lh_status lh_make_file(const char *path, uid_t uid, gid_t gid, struct lh_error *error);

/* As many open files as the system lets us have; warns when that is less than `wanted`. */
void lh_raise_file_limit(size_t wanted);

#endif
