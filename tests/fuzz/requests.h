/* Requests as clients send them, of few scopes and lease keys, so that they get into each other's way. */
#ifndef LH_FUZZ_REQUESTS_H
#define LH_FUZZ_REQUESTS_H

#include <protobuf-c/protobuf-c.h>

#include "fuzz.h"

/* The next of them, packed; *path is its method. */
void fuzz_request(struct fuzz_input *input, struct lh_buffer *packed, const char **path);

#endif
