#include "base/base64.h"

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
