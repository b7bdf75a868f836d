#include "service/words_internal.h"

#include <string.h>

#include "base/base64.h"
#include "base/text.h"
#include "lease/types.h"

/* version, kind, checksum, length of the namespace; then namespace and key */
#define TOKEN_VERSION 1
#define HEADER_BYTES (1 + 1 + 8 + 1)
#define KEY_MAX_BYTES                                                                                                  \
    (LH_NAMESPACE_MAX_BYTES + LH_KEY_MAX_BYTES + 64) /* of a queue: database, namespace, key and ticket in one */
#define TOKEN_TEXT_MAX ((HEADER_BYTES + LH_NAMESPACE_MAX_BYTES + KEY_MAX_BYTES) * 4 / 3 + 4)

/* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv: a checksum against accidents, not against anyone. */
static uint64_t fnv(uint64_t hash, const void *data, size_t size)
{
    const uint8_t *bytes = data;

    if (hash == 0)
        hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t lh_page_filter(uint64_t seed, const char *text)
{
    return fnv(seed, text, strlen(text) + 1);
}

static uint64_t checksum(uint8_t kind, uint64_t filter, const uint8_t *tail, size_t size)
{
    return fnv(fnv(fnv(0, &kind, 1), &filter, sizeof(filter)), tail, size);
}

char *lh_page_token_make(enum lh_page_kind kind, uint64_t filter, const char *ns, const char *key,
                         struct lh_arena *arena)
{
    size_t ns_size = strlen(ns), key_size = strlen(key);
    uint8_t *bytes = lh_arena_alloc(arena, HEADER_BYTES + ns_size + key_size);
    struct lh_buffer text = {0};
    uint64_t sum;
    char *token;

    bytes[0] = TOKEN_VERSION;
    bytes[1] = (uint8_t)kind;
    bytes[10] = (uint8_t)ns_size;
    memcpy(bytes + HEADER_BYTES, ns, ns_size);
    memcpy(bytes + HEADER_BYTES + ns_size, key, key_size);
    sum = checksum(bytes[1], filter, bytes + 10, 1 + ns_size + key_size);
    memcpy(bytes + 2, &sum, sizeof(sum));
    lh_base64_encode(&text, bytes, HEADER_BYTES + ns_size + key_size);
    token = lh_arena_format(arena, "%.*s", (int)text.size, (const char *)text.data);
    lh_buffer_finish(&text);
    return token;
}

static bool parse_bytes(const uint8_t *bytes, size_t size, enum lh_page_kind kind, uint64_t filter,
                        struct lh_arena *arena, const char **ns, const char **key)
{
    size_t ns_size, key_size;
    uint64_t sum;
    char *text;

    if (size < HEADER_BYTES || bytes[0] != TOKEN_VERSION || bytes[1] != (uint8_t)kind)
        return false;
    memcpy(&sum, bytes + 2, sizeof(sum));
    ns_size = bytes[10];
    if (sum != checksum(bytes[1], filter, bytes + 10, size - 10) || ns_size > size - HEADER_BYTES)
        return false;
    key_size = size - HEADER_BYTES - ns_size;
    if (key_size > KEY_MAX_BYTES || !lh_utf8_is_valid((const char *)bytes + HEADER_BYTES, ns_size) ||
        !lh_utf8_is_valid((const char *)bytes + HEADER_BYTES + ns_size, key_size))
        return false;
    text = lh_arena_alloc(arena, ns_size + key_size + 2);
    memcpy(text, bytes + HEADER_BYTES, ns_size);
    text[ns_size] = '\0';
    memcpy(text + ns_size + 1, bytes + HEADER_BYTES + ns_size, key_size);
    text[ns_size + 1 + key_size] = '\0';
    *ns = text;
    *key = text + ns_size + 1;
    return true;
}

bool lh_page_token_parse(const char *token, enum lh_page_kind kind, uint64_t filter, struct lh_arena *arena,
                         const char **ns, const char **key)
{
    struct lh_buffer bytes = {0};
    size_t size = strlen(token);
    bool is_valid = size <= TOKEN_TEXT_MAX && lh_base64_decode(&bytes, token, size) &&
                    parse_bytes(bytes.data, bytes.size, kind, filter, arena, ns, key);

    lh_buffer_finish(&bytes);
    return is_valid;
}
