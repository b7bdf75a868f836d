#include "rpc/grpc.h"

#include "base/clock.h"
#include "base/text.h"

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

void lh_grpc_percent_decode(struct lh_buffer *out, const char *text, size_t size)
{
    unsigned char *to = lh_buffer_reserve(out, size);
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '%' && size - i > 2 && lh_hex_digit(text[i + 1]) >= 0 && lh_hex_digit(text[i + 2]) >= 0) {
            *to++ = (unsigned char)(lh_hex_digit(text[i + 1]) << 4 | lh_hex_digit(text[i + 2]));
            i += 2;
        } else {
            *to++ = (unsigned char)text[i];
        }
    }
    out->size = (size_t)(to - out->data);
}
