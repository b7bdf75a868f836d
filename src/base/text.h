/* UUIDs, UTF-8, durations: text as callers write it. */
#ifndef LH_BASE_TEXT_H
#define LH_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lh_uuid {
    uint8_t bytes[16];
};

#define LH_UUID_TEXT_BYTES 37 /* with the final NUL */

/* Version 4, from getrandom(2). */
struct lh_uuid lh_uuid_random(void);

/* 8-4-4-4-12 hexadecimal digits of either case, nothing else (RFC 9562). */
bool lh_uuid_parse(const char *text, struct lh_uuid *uuid);
void lh_uuid_format(const struct lh_uuid *uuid, char text[LH_UUID_TEXT_BYTES]);
bool lh_uuid_equal(const struct lh_uuid *a, const struct lh_uuid *b);
bool lh_uuid_is_zero(const struct lh_uuid *uuid);

/* Well-formed UTF-8 (Unicode 15, table 3-7: no surrogates, nothing overlong, nothing above U+10FFFF) without NUL. */
bool lh_utf8_is_valid(const char *text, size_t size);

/* Has it a control character: U+0000..U+001F, U+007F..U+009F? `text` must be valid UTF-8. */
bool lh_utf8_has_control(const char *text, size_t size);

/* The size of the first character, when a terminal shows it as itself; 0: it is a control character, or turns lines or
   the direction of text, or is not well-formed. */
size_t lh_utf8_shown(const char *text, size_t size);

/* At most `limit` bytes of `text`, never cutting a character in two. */
size_t lh_utf8_cut(const char *text, size_t size, size_t limit);

/*
 * "30s", "1.5s", "250ms", "5m", "1h30m", "2d", or a bare number of seconds. Units: us, ms, s, m, h, d. False when it is
 * anything else, negative, or beyond 100 years.
 */
bool lh_duration_parse(const char *text, int64_t *duration_us);

/* For people: "250 ms", "1.5 s", "35 s", "2 min 5 s", "3 h 20 min", "2 d 4 h". */
#define LH_DURATION_TEXT_BYTES 32
void lh_duration_format(int64_t duration_us, char text[LH_DURATION_TEXT_BYTES]);

#endif
