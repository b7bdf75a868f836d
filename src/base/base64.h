/* Base64 of RFC 4648, section 4. */
#ifndef LH_BASE_BASE64_H
#define LH_BASE_BASE64_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"

/* Appends; written without padding. */
void lh_base64_encode(struct lh_buffer *out, const void *data, size_t size);

/* With or without padding. False: it is none. */
bool lh_base64_decode(struct lh_buffer *out, const char *text, size_t size);

#endif
