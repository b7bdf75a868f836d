#include "service/places/spread.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define SLOT_BITS 12
#define SLOTS (1 << SLOT_BITS)
#define HASH_BYTES 32 /* of SHA-256 */
#define WORDS_BYTES 80

struct lh_spread {
    EVP_MD *md;
    EVP_MD_CTX *context; /* looking up the algorithm takes longer than a hash */
    uint8_t owners[SLOTS];
};

static void hash_of(const struct lh_spread *spread, const char *text, uint8_t hash[HASH_BYTES])
{
    if (EVP_DigestInit_ex(spread->context, spread->md, NULL) != 1 ||
        EVP_DigestUpdate(spread->context, text, strlen(text)) != 1 ||
        EVP_DigestFinal_ex(spread->context, hash, NULL) != 1)
        abort(); /* a key without a place */
}

static uint8_t owner_of(const struct lh_spread *spread, unsigned slot, const char *const *names, size_t count)
{
    uint8_t largest[HASH_BYTES] = {0};
    uint8_t owner = 0;

    for (size_t i = 0; i < count; i++) {
        char words[WORDS_BYTES];
        uint8_t hash[HASH_BYTES];
        snprintf(words, sizeof(words), "%s %u", names[i], slot);
        hash_of(spread, words, hash);
        if (memcmp(hash, largest, HASH_BYTES) > 0) {
            memcpy(largest, hash, HASH_BYTES);
            owner = (uint8_t)i;
        }
    }
    return owner;
}

struct lh_spread *lh_spread_create(const char *const *names, size_t count)
{
    struct lh_spread *spread = lh_alloc_zero(1, sizeof(*spread));

    assert(count >= 1 && count <= UINT8_MAX);
    spread->md = EVP_MD_fetch(NULL, "SHA256", NULL);
    spread->context = EVP_MD_CTX_new();
    for (unsigned slot = 0; slot < SLOTS; slot++)
        spread->owners[slot] = owner_of(spread, slot, names, count);
    return spread;
}

void lh_spread_destroy(struct lh_spread *spread)
{
    if (spread == NULL)
        return;
    EVP_MD_CTX_free(spread->context);
    EVP_MD_free(spread->md);
    free(spread);
}

size_t lh_spread_find(const struct lh_spread *spread, const char *key)
{
    uint8_t hash[HASH_BYTES];

    hash_of(spread, key, hash);
    return spread->owners[hash[0] << (SLOT_BITS - 8) | hash[1] >> (16 - SLOT_BITS)];
}
