/* UUIDs: lease keys, and names of daemons. */
#ifndef LH_BASE_UUID_H
#define LH_BASE_UUID_H

#include <stdbool.h>
#include <stdint.h>

struct lh_uuid {
    uint8_t bytes[16];
};

#define LH_UUID_TEXT_BYTES 37 /* with the final NUL */

/* Version 4, from getrandom(2). */
struct lh_uuid lh_uuid_random(void);

/* 8-4-4-4-12 hexadecimal digits of either case, nothing else (RFC 9562). */
bool lh_uuid_parse(const char *text, struct lh_uuid *uuid);
char *lh_uuid_format(const struct lh_uuid *uuid, char text[LH_UUID_TEXT_BYTES]);
/* The same, until the end of the block that it stands in, which a branch is too. */
#define LH_UUID_TEXT(uuid) lh_uuid_format(uuid, (char[LH_UUID_TEXT_BYTES]){0})
bool lh_uuid_equal(const struct lh_uuid *a, const struct lh_uuid *b);
bool lh_uuid_is_zero(const struct lh_uuid *uuid);

#endif
