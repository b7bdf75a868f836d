/* UTF-8 and durations: text as callers write it. */
#ifndef LH_BASE_TEXT_H
#define LH_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Its value; -1: it is none. */
static inline int lh_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Well-formed UTF-8 (Unicode 15, table 3-7: no surrogates, nothing overlong, nothing above U+10FFFF) without NUL. */
bool lh_utf8_is_valid(const char *text, size_t size);

/* Has it a control character: U+0000..U+001F, U+007F..U+009F? `text` must be valid UTF-8. */
bool lh_utf8_has_control(const char *text, size_t size);

/* The size of the first character, when a terminal shows it as itself; 0: it is a control character, or turns lines or
   the direction of text, or is not well-formed. */
size_t lh_utf8_shown(const char *text, size_t size);

/* At most `limit` bytes of `text`, never cutting a character in two. */
size_t lh_utf8_cut(const char *text, size_t size, size_t limit);

/* A scope as people read it: ns/key. A namespace that has a '/' stands in quotes, for a/b/k would name two scopes. A key is
   cut at 128 bytes. */
#define LH_SCOPE_NAME_BYTES (255 + 128 + 8)
const char *lh_scope_name(const char *ns, const char *key, char text[LH_SCOPE_NAME_BYTES]);
/* The same, until the end of the block that it stands in, which a branch is too:
   lh_info("lease expired scope=%s", LH_SCOPE_NAME(ns, key)). */
#define LH_SCOPE_NAME(ns, key) lh_scope_name(ns, key, (char[LH_SCOPE_NAME_BYTES]){0})

/*
 * "30s", "1.5s", "250ms", "5m", "1h30m", "2d", or a bare number of seconds. Units: us, ms, s, m, h, d. False when it is
 * anything else, negative, or beyond 100 years, which leaves INT64_MAX in *duration_us; else that is 0.
 */
bool lh_duration_parse(const char *text, int64_t *duration_us);

/* Writes a duration for people: "250 ms", "1.5 s", "35 s", "2 min 5 s", "3 h 20 min", "2 d 4 h". */
#define LH_DURATION_TEXT_BYTES 32
const char *lh_duration_format(int64_t duration_us, char text[LH_DURATION_TEXT_BYTES]);
/* Likewise. */
#define LH_DURATION_TEXT(duration_us) lh_duration_format(duration_us, (char[LH_DURATION_TEXT_BYTES]){0})

#endif
