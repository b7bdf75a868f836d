#include "service/places/spread.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "lease/store.h"

#define SLOT_BITS 12
#define SLOTS (1 << SLOT_BITS)
#define HASH_BYTES 32 /* of SHA-256 */
#define WORDS_BYTES 80

_Static_assert(SLOTS == LH_SPREAD_SLOTS && SLOTS == LH_SPREAD_BYTES * 8, "slots");

/* What a database says. */
struct database {
    const char *name;
    bool is_read;
    bool has_row;
    bool is_ours; /* its row is of the sections that this daemon has */
    struct lh_spread_row row;
    struct lh_arena memory;
};

struct slot {
    uint8_t first; /* by its name */
    uint8_t of;
    uint8_t other;
    uint8_t state;
    bool was_served; /* by `of` */
};

struct lh_spread {
    EVP_MD *md;
    EVP_MD_CTX *context; /* looking up the algorithm takes longer than a hash */
    struct slot slots[SLOTS];
    unsigned counts[LH_SPREAD_MISSING + 1]; /* of slots, by their states: asked for each row of a list */
    struct lh_arena names;
    uint64_t moves;
    size_t count;
    struct database databases[];
};

/* --- hashes --- */

static void hash_of(const struct lh_spread *spread, const char *text, uint8_t hash[HASH_BYTES])
{
    if (EVP_DigestInit_ex(spread->context, spread->md, NULL) != 1 ||
        EVP_DigestUpdate(spread->context, text, strlen(text)) != 1 ||
        EVP_DigestFinal_ex(spread->context, hash, NULL) != 1)
        abort(); /* a key without a place */
}

static uint8_t first_of(const struct lh_spread *spread, unsigned slot)
{
    uint8_t largest[HASH_BYTES] = {0};
    uint8_t first = 0;

    for (size_t i = 0; i < spread->count; i++) {
        char words[WORDS_BYTES];
        uint8_t hash[HASH_BYTES];
        snprintf(words, sizeof(words), "%s %u", spread->databases[i].name, slot);
        hash_of(spread, words, hash);
        if (memcmp(hash, largest, HASH_BYTES) > 0) {
            memcpy(largest, hash, HASH_BYTES);
            first = (uint8_t)i;
        }
    }
    return first;
}

/* --- rows --- */

/* As get_bit() of PostgreSQL. */
static bool has_slot(const struct database *database, unsigned slot)
{
    return database->has_row && (database->row.slots[slot / 8] >> slot % 8 & 1) != 0;
}

static bool is_settled(const struct database *database)
{
    return database->has_row && database->row.is_settled;
}

static bool has_name(const struct lh_spread_row *row, const char *name)
{
    for (size_t i = 0; i < row->section_count; i++)
        if (strcmp(row->sections[i], name) == 0)
            return true;
    return false;
}

static bool is_ours(const struct lh_spread *spread, const struct lh_spread_row *row)
{
    if (row->section_count != spread->count)
        return false;
    for (size_t i = 0; i < spread->count; i++)
        if (!has_name(row, spread->databases[i].name))
            return false;
    return true;
}

static void keep_row(struct lh_spread *spread, struct database *database, const struct lh_spread_row *row)
{
    lh_arena_reset(&database->memory);
    database->row = *row;
    database->row.ns = lh_arena_strdup(&database->memory, row->ns);
    database->row.section = lh_arena_strdup(&database->memory, row->section);
    database->row.sections = lh_arena_strdup_all(&database->memory, row->sections, row->section_count);
    database->is_ours = is_ours(spread, row);
}

static bool is_equal(const struct lh_spread_row *one, const struct lh_spread_row *other)
{
    if (one->is_settled != other->is_settled || memcmp(one->slots, other->slots, LH_SPREAD_BYTES) != 0 ||
        strcmp(one->section, other->section) != 0 || one->section_count != other->section_count)
        return false;
    for (size_t i = 0; i < one->section_count; i++)
        if (strcmp(one->sections[i], other->sections[i]) != 0)
            return false;
    return true;
}

/* --- slots --- */

/* What is known of all databases of the namespace, for slots that no row has. */
struct summary {
    size_t unread;  /* the first that was not read yet, or the number of them */
    size_t foreign; /* the first whose row is of other sections, or that */
    bool has_settled;
};

static struct summary sum_up(const struct lh_spread *spread)
{
    struct summary all = {spread->count, spread->count, false};

    for (size_t i = spread->count; i-- > 0;) {
        const struct database *database = &spread->databases[i];
        if (!database->is_read)
            all.unread = i;
        if (database->has_row && !database->is_ours)
            all.foreign = i;
        all.has_settled |= is_settled(database);
    }
    return all;
}

static void set(struct slot *slot, enum lh_spread_state state, size_t of, size_t other)
{
    slot->state = (uint8_t)state;
    slot->of = (uint8_t)of;
    slot->other = (uint8_t)other;
    slot->was_served |= state == LH_SPREAD_SERVED;
}

static void settle_unowned(const struct lh_spread *spread, const struct summary *all, struct slot *slot)
{
    bool is_first_read = spread->databases[slot->first].is_read;

    if (slot->was_served)
        set(slot, LH_SPREAD_MOVING, slot->of, spread->count);
    else if (!is_first_read)
        set(slot, LH_SPREAD_UNREAD, slot->first, slot->first);
    else if (all->unread < spread->count)
        set(slot, LH_SPREAD_UNREAD, all->has_settled ? all->unread : slot->first, all->unread);
    else if (!all->has_settled || (all->foreign == spread->count && !is_settled(&spread->databases[slot->first])))
        set(slot, LH_SPREAD_UNCLAIMED, slot->first, all->foreign);
    else
        set(slot, LH_SPREAD_MISSING, slot->first, spread->count);
}

static void settle(struct lh_spread *spread)
{
    struct summary all = sum_up(spread);

    memset(spread->counts, 0, sizeof(spread->counts));
    for (unsigned number = 0; number < SLOTS; number++) {
        struct slot *slot = &spread->slots[number];
        size_t owners[2] = {0}, count = 0, before = slot->was_served ? slot->of : spread->count;
        for (size_t i = 0; i < spread->count && count < 2; i++)
            if (has_slot(&spread->databases[i], number))
                owners[count++] = i;
        if (count == 0)
            settle_unowned(spread, &all, slot);
        else if (count == 1)
            set(slot, LH_SPREAD_SERVED, owners[0], spread->count);
        else if (slot->was_served && slot->of == owners[1])
            set(slot, LH_SPREAD_SEVERAL, owners[1], owners[0]);
        else
            set(slot, LH_SPREAD_SEVERAL, owners[0], owners[1]);
        spread->moves += before < spread->count && slot->of != before;
        spread->counts[slot->state]++;
    }
}

/* --- what the others call --- */

struct lh_spread *lh_spread_create(const char *const *names, size_t count)
{
    struct lh_spread *spread = lh_alloc_zero(1, sizeof(*spread) + count * sizeof(spread->databases[0]));

    assert(count >= 1 && count < UINT8_MAX);
    spread->md = EVP_MD_fetch(NULL, "SHA256", NULL);
    spread->context = EVP_MD_CTX_new();
    spread->count = count;
    for (size_t i = 0; i < count; i++)
        spread->databases[i].name = lh_arena_strdup(&spread->names, names[i]);
    for (unsigned slot = 0; slot < SLOTS; slot++)
        spread->slots[slot].first = first_of(spread, slot);
    settle(spread);
    return spread;
}

static size_t index_of(const struct lh_spread *spread, const char *name)
{
    size_t i = 0;

    while (i < spread->count && strcmp(spread->databases[i].name, name) != 0)
        i++;
    return i;
}

void lh_spread_adopt(struct lh_spread *spread, const struct lh_spread *before)
{
    size_t now_at[UINT8_MAX];

    for (size_t i = 0; i < before->count; i++) {
        const struct database *old = &before->databases[i];
        size_t at = now_at[i] = index_of(spread, old->name);
        if (at == spread->count)
            continue;
        spread->databases[at].is_read = old->is_read;
        spread->databases[at].has_row = old->has_row;
        if (old->has_row)
            keep_row(spread, &spread->databases[at], &old->row);
    }
    for (unsigned number = 0; number < SLOTS; number++) {
        const struct slot *old = &before->slots[number];
        if (!old->was_served || now_at[old->of] == spread->count)
            continue;
        spread->slots[number].was_served = true;
        spread->slots[number].of = (uint8_t)now_at[old->of];
    }
    spread->moves = before->moves + 1; /* places that were left out are not counted */
    settle(spread);
}

void lh_spread_destroy(struct lh_spread *spread)
{
    if (spread == NULL)
        return;
    for (size_t i = 0; i < spread->count; i++)
        lh_arena_finish(&spread->databases[i].memory);
    lh_arena_finish(&spread->names);
    EVP_MD_CTX_free(spread->context);
    EVP_MD_free(spread->md);
    free(spread);
}

bool lh_spread_set_row(struct lh_spread *spread, size_t index, const struct lh_spread_row *row)
{
    struct database *database = &spread->databases[index];
    bool is_same = database->is_read && database->has_row == (row != NULL);

    if (is_same && (row == NULL || is_equal(&database->row, row)))
        return false;
    database->is_read = true;
    database->has_row = row != NULL;
    if (row != NULL)
        keep_row(spread, database, row);
    settle(spread);
    return true;
}

bool lh_spread_is_read(const struct lh_spread *spread, size_t index)
{
    return spread->databases[index].is_read;
}

const struct lh_spread_row *lh_spread_row(const struct lh_spread *spread, size_t index)
{
    const struct database *database = &spread->databases[index];

    return database->has_row ? &database->row : NULL;
}

struct lh_spread_place lh_spread_find(const struct lh_spread *spread, const char *key)
{
    uint8_t hash[HASH_BYTES];
    const struct slot *slot;

    hash_of(spread, key, hash);
    slot = &spread->slots[hash[0] << (SLOT_BITS - 8) | hash[1] >> (16 - SLOT_BITS)];
    return (struct lh_spread_place){(enum lh_spread_state)slot->state, slot->of, slot->other};
}

/* A database that lost its row to an older backup may have slots that are elsewhere by now: a person decides. */
static bool is_share_free(const struct lh_spread *spread, size_t index)
{
    for (unsigned slot = 0; slot < SLOTS; slot++)
        if (spread->slots[slot].first == index && spread->slots[slot].state != LH_SPREAD_UNCLAIMED)
            return false;
    return true;
}

size_t lh_spread_next_claim(const struct lh_spread *spread, bool *settles)
{
    struct summary all = sum_up(spread);

    *settles = false;
    if (all.unread < spread->count || all.foreign < spread->count)
        return spread->count;
    for (size_t i = 0; i < spread->count; i++)
        if (!spread->databases[i].has_row)
            return i;
    *settles = true;
    for (size_t i = 0; i < spread->count; i++)
        if (!is_settled(&spread->databases[i]) && is_share_free(spread, i))
            return i;
    return spread->count;
}

size_t lh_spread_first(const struct lh_spread *spread, unsigned slot)
{
    return spread->slots[slot].first;
}

bool lh_spread_has(const struct lh_spread *spread, enum lh_spread_state state)
{
    return spread->counts[state] > 0;
}

bool lh_spread_lacks_leases(const struct lh_spread *spread)
{
    return lh_spread_has(spread, LH_SPREAD_MOVING) || lh_spread_has(spread, LH_SPREAD_MISSING);
}

uint64_t lh_spread_moves(const struct lh_spread *spread)
{
    return spread->moves;
}

size_t lh_spread_count(const struct lh_spread *spread, size_t index)
{
    size_t count = 0;

    for (unsigned slot = 0; slot < SLOTS; slot++) {
        bool is_served = spread->slots[slot].state == LH_SPREAD_SERVED;
        count += index < spread->count ? is_served && spread->slots[slot].of == index : !is_served;
    }
    return count;
}
