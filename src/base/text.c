#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Bytes in the well-formed sequence at `s`, or 0. */
static size_t utf8_sequence(const unsigned char *s, size_t left)
{
    size_t size;
    unsigned char low = 0x80, high = 0xbf;

    if (s[0] < 0x80)
        return s[0] != 0;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        size = 2;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        size = 3;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        size = 4;
    else
        return 0;
    if (s[0] == 0xe0)
        low = 0xa0;
    else if (s[0] == 0xed)
        high = 0x9f;
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f;
    if (left < size || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < size; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return size;
}

/* How many bytes at `s` are plain ASCII without NUL, counted in whole words: nearly every name is nothing else. */
static size_t ascii_words(const unsigned char *s, size_t left)
{
    const uint64_t tops = UINT64_C(0x8080808080808080), ones = UINT64_C(0x0101010101010101);
    size_t size = 0;
    uint64_t word;

    for (; left - size >= sizeof(word); size += sizeof(word)) {
        memcpy(&word, s + size, sizeof(word));
        /* A byte of 0 borrows from its own top bit. */
        if (((word | (word - ones)) & tops) != 0)
            break;
    }
    return size;
}

bool lh_utf8_is_valid(const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t plain = ascii_words(s, size);

    s += plain;
    size -= plain;
    while (size > 0) {
        size_t step = utf8_sequence(s, size);
        if (step == 0)
            return false;
        s += step;
        size -= step;
    }
    return true;
}

bool lh_utf8_has_control(const char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < size; i++) {
        if (s[i] < 0x20 || s[i] == 0x7f)
            return true;
        if (s[i] == 0xc2 && i + 1 < size && s[i + 1] < 0xa0)
            return true;
    }
    return false;
}

size_t lh_utf8_shown(const char *text, size_t size)
{
    /* U+061C, U+200E and U+200F, U+2028 to U+202E, U+2066 to U+2069: Unicode, UAX #9, and the line separators. */
    static const char *const steering[] = {"\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202b",
                                           "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"};
    size_t step = size == 0 ? 0 : utf8_sequence((const unsigned char *)text, size);

    if (step == 0 || lh_utf8_has_control(text, step))
        return 0;
    for (size_t i = 0; i < sizeof(steering) / sizeof(steering[0]); i++) {
        if (strlen(steering[i]) == step && memcmp(steering[i], text, step) == 0)
            return 0;
    }
    return step;
}

size_t lh_utf8_cut(const char *text, size_t size, size_t limit)
{
    if (size <= limit)
        return size;
    while (limit > 0 && ((unsigned char)text[limit] & 0xc0) == 0x80)
        limit--;
    return limit;
}

const char *lh_scope_name(const char *ns, const char *key, char text[LH_SCOPE_NAME_BYTES])
{
    const char *quote = strchr(ns, '/') != NULL ? "\"" : "";
    size_t size = strlen(key), kept = lh_utf8_cut(key, size, 128);

    snprintf(text, LH_SCOPE_NAME_BYTES, "%s%s%s/%.*s%s", quote, ns, quote, (int)kept, key, kept < size ? "..." : "");
    return text;
}

static bool unit_to_us(const char *unit, size_t size, int64_t *unit_us)
{
    static const struct {
        const char *name;
        int64_t us;
    } units[] = {
        {"us", 1},
        {"ms", LH_US_PER_MS},
        {"s", LH_US_PER_S},
        {"m", 60 * LH_US_PER_S},
        {"min", 60 * LH_US_PER_S},
        {"h", 3600 * LH_US_PER_S},
        {"d", 86400 * LH_US_PER_S},
    };
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strlen(units[i].name) == size && memcmp(units[i].name, unit, size) == 0) {
            *unit_us = units[i].us;
            return true;
        }
    }
    return false;
}

bool lh_duration_parse(const char *text, int64_t *duration_us)
{
    static const double longest_us = 100.0 * 365 * 86400 * 1e6;
    double total_us = 0;

    *duration_us = 0;
    if (*text == '\0')
        return false;
    while (*text != '\0') {
        size_t digits = strspn(text, "0123456789.");
        size_t letters = strspn(text + digits, "abcdefghijklmnopqrstuvwxyz");
        int64_t unit_us = LH_US_PER_S;
        char number[400];
        char *end;

        if (digits == 0 || digits >= sizeof(number) || !isdigit((unsigned char)*text))
            return false;
        memcpy(number, text, digits);
        number[digits] = '\0';
        if (letters == 0 && (text[digits] != '\0' || total_us > 0))
            return false;
        if (letters > 0 && !unit_to_us(text + digits, letters, &unit_us))
            return false;
        total_us += strtod(number, &end) * (double)unit_us;
        if (*end != '\0')
            return false;
        text += digits + letters;
    }
    if (total_us > longest_us) {
        *duration_us = INT64_MAX;
        return false;
    }
    *duration_us = (int64_t)(total_us + 0.5);
    return true;
}

const char *lh_duration_format(int64_t duration_us, char text[LH_DURATION_TEXT_BYTES])
{
    long long us = duration_us < 0 ? -duration_us : duration_us;
    const char *sign = duration_us < 0 ? "-" : "";
    long long s = us / LH_US_PER_S;

    if (us < LH_US_PER_MS)
        snprintf(text, LH_DURATION_TEXT_BYTES, "%s%lld us", sign, us);
    else if (s == 0)
        snprintf(text, LH_DURATION_TEXT_BYTES, "%s%lld ms", sign, us / LH_US_PER_MS);
    else if (s < 10)
        snprintf(text, LH_DURATION_TEXT_BYTES, "%s%lld.%lld s", sign, s, us % LH_US_PER_S / 100000);
    else if (s < 120)
        snprintf(text, LH_DURATION_TEXT_BYTES, "%s%lld s", sign, s);
    else if (s < 7200)
        snprintf(text, LH_DURATION_TEXT_BYTES, "%s%lld min %lld s", sign, s / 60, s % 60);
    else if (s < 2 * 86400)
        snprintf(text, LH_DURATION_TEXT_BYTES, "%s%lld h %lld min", sign, s / 3600, s % 3600 / 60);
    else
        snprintf(text, LH_DURATION_TEXT_BYTES, "%s%lld d %lld h", sign, s / 86400, s % 86400 / 3600);
    return text;
}
