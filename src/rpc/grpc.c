#include "rpc/grpc.h"

#include <string.h>

#include "base/clock.h"

const char *lh_grpc_code_name(int code)
{
    static const char *const names[] = {
        "OK",        "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
        "NOT_FOUND", "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
        "ABORTED",   "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
        "DATA_LOSS", "UNAUTHENTICATED",
    };
    return code >= 0 && code <= LH_GRPC_UNAUTHENTICATED ? names[code] : "UNKNOWN";
}

#define TIMEOUT_MAX_DIGITS 8

bool lh_grpc_timeout_parse(const char *text, size_t size, int64_t *timeout_us)
{
    int64_t value = 0;

    if (size < 2 || size > TIMEOUT_MAX_DIGITS + 1)
        return false;
    for (size_t i = 0; i + 1 < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (text[i] - '0');
    }
    switch (text[size - 1]) {
    case 'H': /* 99,999,999 hours are 3.6e17 us: no overflow */
        *timeout_us = value * 3600 * LH_US_PER_S;
        return true;
    case 'M':
        *timeout_us = value * 60 * LH_US_PER_S;
        return true;
    case 'S':
        *timeout_us = value * LH_US_PER_S;
        return true;
    case 'm':
        *timeout_us = value * LH_US_PER_MS;
        return true;
    case 'u':
        *timeout_us = value;
        return true;
    case 'n':
        *timeout_us = (value + 999) / 1000;
        return true;
    default:
        return false;
    }
}

void lh_grpc_timeout_format(int64_t timeout_us, char text[LH_GRPC_TIMEOUT_TEXT_BYTES])
{
    static const struct {
        int64_t us;
        char unit;
    } units[] = {{1, 'u'}, {LH_US_PER_MS, 'm'}, {LH_US_PER_S, 'S'}, {60 * LH_US_PER_S, 'M'}, {3600 * LH_US_PER_S, 'H'}};
    int64_t value = timeout_us < 0 ? 0 : timeout_us;
    size_t unit = 0;
    char digits[24];
    size_t count = 0;

    /* The finest unit that fits into the eight digits allowed; rounded up, for the caller's own timer decides. */
    while (unit < 4 && value / units[unit].us + (value % units[unit].us != 0) > 99999999)
        unit++;
    value = value / units[unit].us + (value % units[unit].us != 0);
    if (value > 99999999)
        value = 99999999;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (count > 0)
        *text++ = digits[--count];
    *text++ = units[unit].unit;
    *text = '\0';
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c <= 0x7e && c != '%';
}

void lh_grpc_percent_encode(struct lh_buffer *out, const char *text, size_t size)
{
    static const char hex[] = "0123456789ABCDEF";
    unsigned char *to = lh_buffer_reserve(out, size * 3);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (is_plain(c)) {
            *to++ = c;
        } else {
            *to++ = '%';
            *to++ = (unsigned char)hex[c >> 4];
            *to++ = (unsigned char)hex[c & 15];
        }
    }
    out->size = (size_t)(to - out->data);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

void lh_grpc_percent_decode(struct lh_buffer *out, const char *text, size_t size)
{
    unsigned char *to = lh_buffer_reserve(out, size);
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '%' && size - i > 2 && hex_value(text[i + 1]) >= 0 && hex_value(text[i + 2]) >= 0) {
            *to++ = (unsigned char)(hex_value(text[i + 1]) << 4 | hex_value(text[i + 2]));
            i += 2;
        } else {
            *to++ = (unsigned char)text[i];
        }
    }
    out->size = (size_t)(to - out->data);
}

void lh_base64_encode(struct lh_buffer *out, const void *data, size_t size)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = data;
    unsigned char *to = lh_buffer_reserve(out, (size + 2) / 3 * 4);

    for (; size >= 3; size -= 3, from += 3) {
        *to++ = (unsigned char)letters[from[0] >> 2];
        *to++ = (unsigned char)letters[(from[0] & 3) << 4 | from[1] >> 4];
        *to++ = (unsigned char)letters[(from[1] & 15) << 2 | from[2] >> 6];
        *to++ = (unsigned char)letters[from[2] & 63];
    }
    if (size > 0) {
        unsigned second = size > 1 ? from[1] : 0;
        *to++ = (unsigned char)letters[from[0] >> 2];
        *to++ = (unsigned char)letters[(from[0] & 3u) << 4 | second >> 4];
        if (size > 1)
            *to++ = (unsigned char)letters[(second & 15) << 2];
    }
    out->size = (size_t)(to - out->data);
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+')
        return 62;
    return c == '/' ? 63 : -1;
}

bool lh_base64_decode(struct lh_buffer *out, const char *text, size_t size)
{
    unsigned char *to;
    uint32_t bits = 0;
    unsigned count = 0;

    if (size % 4 == 0 && size > 0 && text[size - 1] == '=')
        size -= text[size - 2] == '=' ? 2 : 1;
    if (size % 4 == 1)
        return false;
    to = lh_buffer_reserve(out, size / 4 * 3 + 3);
    for (size_t i = 0; i < size; i++) {
        int value = base64_value(text[i]);
        if (value < 0)
            return false;
        bits = (bits << 6 | (uint32_t)value) & 0xffffff;
        count += 6;
        if (count >= 8) {
            count -= 8;
            *to++ = (unsigned char)(bits >> count);
        }
    }
    out->size = (size_t)(to - out->data);
    return true;
}
