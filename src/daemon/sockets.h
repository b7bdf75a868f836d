/* The daemon's sockets: bound together at the start, so that an address that is taken is known before anything is done.
 */
#ifndef LH_DAEMON_SOCKETS_H
#define LH_DAEMON_SOCKETS_H

#include <stddef.h>

#include "base/address.h"
#include "base/status.h"

struct lh_settings;
struct lh_user;

struct lh_sockets {
    int admin;                                 /* -1: none, or handed on */
    char admin_address[LH_ADDRESS_TEXT_BYTES]; /* "none" */
    int *grpc;                                 /* one for each address of `listen`; -1: handed on */
    size_t grpc_count;
    char grpc_address[LH_ADDRESS_TEXT_BYTES]; /* the first TCP address with its real port, else the first address */
    char **paths;                             /* paths of unix sockets */
    size_t path_count;
};

/* Unix sockets belong to `user`, with the mode of the settings. Not LH_OK: `error`, and nothing is left open. */
enum lh_status lh_sockets_bind(struct lh_sockets *sockets, const struct lh_settings *settings,
                               const struct lh_user *user, struct lh_error *error);
void lh_sockets_finish(struct lh_sockets *sockets); /* closes what was not handed on, removes the unix sockets */

#endif
