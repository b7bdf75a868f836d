#include "base/uuid.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/text.h"

struct lh_uuid lh_uuid_random(void)
{
    struct lh_uuid uuid;
    if (getrandom(uuid.bytes, sizeof(uuid.bytes), 0) != (ssize_t)sizeof(uuid.bytes)) {
        lh_err("getrandom failed; stopping, for a lease key that can be guessed is no credential");
        abort();
    }
    uuid.bytes[6] = (uint8_t)((uuid.bytes[6] & 0x0f) | 0x40);
    uuid.bytes[8] = (uint8_t)((uuid.bytes[8] & 0x3f) | 0x80);
    return uuid;
}

bool lh_uuid_parse(const char *text, struct lh_uuid *uuid)
{
    size_t at = 0;
    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        int high, low;
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            if (text[at++] != '-')
                return false;
        }
        high = lh_hex_digit(text[at]);
        if (high < 0)
            return false;
        low = lh_hex_digit(text[at + 1]);
        if (low < 0)
            return false;
        uuid->bytes[i] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    return text[at] == '\0';
}

char *lh_uuid_format(const struct lh_uuid *uuid, char text[LH_UUID_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    char *to = text;

    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *to++ = '-';
        *to++ = digits[uuid->bytes[i] >> 4];
        *to++ = digits[uuid->bytes[i] & 0x0f];
    }
    *to = '\0';
    return text;
}

bool lh_uuid_equal(const struct lh_uuid *a, const struct lh_uuid *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

bool lh_uuid_is_zero(const struct lh_uuid *uuid)
{
    static const struct lh_uuid zero;
    return lh_uuid_equal(uuid, &zero);
}
