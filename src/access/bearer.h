/* The value of an `authorization` header. */
#ifndef LH_ACCESS_BEARER_H
#define LH_ACCESS_BEARER_H

#include <stdbool.h>
#include <stdint.h>

#include "access/access.h"

/* False: it is not "Bearer" and a token of this product. */
bool lh_bearer_hash(const char *header, uint8_t hash[LH_ACCESS_HASH_BYTES]);

#endif
