/* The value of an `authorization` header. */
#ifndef LH_ACCESS_BEARER_H
#define LH_ACCESS_BEARER_H

#include <stdbool.h>
#include <stdint.h>

#include "access/access.h"

/* Credentials for somebody else, such as those of a proxy in front that asks for a password: another scheme, and no token
 * of this product. A token under a wrong scheme is a mistake that its caller must hear of. */
bool lh_bearer_is_foreign(const char *header);

/* Hashes the token of a header. Returns false if it is not "Bearer" and a token of this product. */
bool lh_bearer_hash(const char *header, uint8_t hash[LH_ACCESS_HASH_BYTES]);

#endif
