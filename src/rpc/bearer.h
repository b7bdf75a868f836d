/*
 * The bearer token that a channel sends with each call, from a file. The file is looked at when a connection is made, and
 * with the calls at most once a second; it is read again when it has changed. A file that cannot be used any more leaves
 * the token that was read before in force, with a warning. The token is never logged, nor part of an error.
 */
#ifndef LH_RPC_BEARER_H
#define LH_RPC_BEARER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/status.h"

#define RPC_TOKEN_MAX_BYTES 4096

struct rpc_bearer {
    char *file;        /* NULL: no token */
    char *header;      /* "Bearer TOKEN"; NULL: not read yet */
    struct stat seen;  /* state of the file when it was read */
    int64_t looked_us; /* time of the last look */
};

/* Initialises; `file` NULL: no token. */
void lh_rpc_bearer_init(struct rpc_bearer *bearer, const char *file);
void lh_rpc_bearer_finish(struct rpc_bearer *bearer);

/* Reads the file for a new connection. Returns false, with the file in `error`, if there is no token. */
bool lh_rpc_bearer_read(struct rpc_bearer *bearer, struct lh_error *error);

/* Returns the value of `authorization` for a call at this time; NULL: none. */
const char *lh_rpc_bearer_header(struct rpc_bearer *bearer, int64_t now_us);

#endif
