#include "base/table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/memory.h"

#define FIRST_SLOT_COUNT 64

void lh_table_init(struct lh_table *table, lh_table_equal *is_equal)
{
    memset(table, 0, sizeof(*table));
    table->is_equal = is_equal;
}

void lh_table_finish(struct lh_table *table)
{
    free(table->slots);
    table->slots = NULL;
    table->slot_count = 0;
    table->count = 0;
}

struct lh_table_entry *lh_table_find(const struct lh_table *table, uint64_t hash, const void *key)
{
    if (table->slot_count == 0)
        return NULL;
    struct lh_table_entry *entry = table->slots[hash & (table->slot_count - 1)];
    while (entry != NULL && !(entry->hash == hash && table->is_equal(entry, key)))
        entry = entry->next;
    return entry;
}

static void link_entry(struct lh_table *table, struct lh_table_entry *entry)
{
    struct lh_table_entry **slot = &table->slots[entry->hash & (table->slot_count - 1)];
    entry->next = *slot;
    *slot = entry;
}

static void grow(struct lh_table *table)
{
    struct lh_table_entry **old_slots = table->slots;
    size_t old_count = table->slot_count;

    table->slot_count = old_count == 0 ? FIRST_SLOT_COUNT : old_count * 2;
    table->slots = lh_alloc_zero(table->slot_count, sizeof(table->slots[0]));
    for (size_t i = 0; i < old_count; i++) {
        struct lh_table_entry *entry = old_slots[i];
        while (entry != NULL) {
            struct lh_table_entry *next = entry->next;
            link_entry(table, entry);
            entry = next;
        }
    }
    free(old_slots);
}

void lh_table_insert(struct lh_table *table, struct lh_table_entry *entry, uint64_t hash)
{
    if (table->count >= table->slot_count)
        grow(table);
    entry->hash = hash;
    link_entry(table, entry);
    table->count++;
}

void lh_table_remove(struct lh_table *table, struct lh_table_entry *entry)
{
    struct lh_table_entry **slot = &table->slots[entry->hash & (table->slot_count - 1)];
    while (*slot != entry)
        slot = &(*slot)->next;
    *slot = entry->next;
    entry->next = NULL;
    table->count--;
}

struct lh_table_entry *lh_table_walk(const struct lh_table *table, size_t *slot, struct lh_table_entry **next)
{
    struct lh_table_entry *entry = *next;
    while (entry == NULL && *slot < table->slot_count)
        entry = table->slots[(*slot)++];
    *next = entry == NULL ? NULL : entry->next;
    return entry;
}

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static uint64_t secret[2];

static void make_secret(void)
{
    if (getrandom(secret, sizeof(secret), 0) != (ssize_t)sizeof(secret))
        secret[0] = (uint64_t)(uintptr_t)&secret;
}

uint64_t lh_hash(const void *data, size_t size, uint64_t seed)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint64_t *key = secret;
    const unsigned char *bytes = data;

    pthread_once(&once, make_secret);
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d) ^ seed,
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573) ^ seed};
    uint64_t word;
    size_t left = size;

    for (; left >= 8; left -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = (uint64_t)size << 56;
    for (size_t i = 0; i < left; i++)
        word |= (uint64_t)bytes[i] << (8 * i);
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
