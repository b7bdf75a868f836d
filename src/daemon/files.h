/* Small things at the edge of the process: the admin socket, the port file, the limit of open files. */
#ifndef LH_DAEMON_FILES_H
#define LH_DAEMON_FILES_H

#include <stddef.h>

#include "base/status.h"
#include "config/address.h"

/* A listening, non-blocking socket in *fd, and in `bound` the address it really has. */
enum lh_status lh_listen(const char *address, int *fd, char bound[LH_ADDRESS_TEXT_BYTES], struct lh_error *error);

/* Whole or not at all: written beside `path`, then renamed. */
enum lh_status lh_write_lines(const char *path, const char *const *lines, size_t count, struct lh_error *error);

/* As many open files as the system lets us have; warns when that is less than `wanted`. */
void lh_raise_file_limit(size_t wanted);

#endif
