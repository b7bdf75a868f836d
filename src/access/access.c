#include "access/access.h"

#include <stdlib.h>
#include <string.h>

#include "access/grants.h"
#include "base/list.h"
#include "base/memory.h"
#include "base/table.h"

#define TOKEN_PRINCIPAL "token:"

struct lh_access_principal {
    struct lh_table_entry entry;
    struct lh_access *access;
    size_t refs;
    uint64_t version; /* of the rules that it is compiled from; 0: it is not */
    struct lh_grants grants;
    char name[];
};

struct lh_access_badge {
    struct lh_table_entry entry; /* while it is valid */
    struct lh_access *access;
    size_t refs; /* one of them is the table's */
    bool is_valid;
    bool is_kept;        /* the load that goes on has it */
    struct lh_link used; /* shown, and not told yet */
    int64_t expires_at_us;
    struct lh_access_principal *principal;
    uint8_t hash[LH_ACCESS_HASH_BYTES];
    char id[];
};

struct lh_access {
    bool is_on;
    bool is_loaded;
    uint64_t version; /* grows with each change of the rules */
    int64_t now_us;
    int64_t next_end_us; /* no token expires before it */
    char **admins;
    size_t admin_count;
    struct lh_arena names;        /* of the rules */
    struct lh_access_rule *rules; /* by principal */
    size_t rule_count;
    struct lh_access_rule *patterns; /* those that end in '*' */
    size_t pattern_count;
    struct lh_table principals;
    struct lh_table badges;
    struct lh_link used;
};

/* --- rights --- */

static const struct {
    const char *name;
    enum lh_right right;
} rights[] = {{"read", LH_RIGHT_READ}, {"lease", LH_RIGHT_LEASE}, {"guard", LH_RIGHT_GUARD}, {"admin", LH_RIGHT_ADMIN}};

const char *lh_right_name(enum lh_right right)
{
    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
        if ((right & rights[i].right) != 0)
            return rights[i].name;
    return "";
}

unsigned lh_right_parse(const char *name)
{
    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
        if (strcmp(rights[i].name, name) == 0)
            return rights[i].right;
    return 0;
}

/* --- life --- */

static bool is_principal(const struct lh_table_entry *entry, const void *key)
{
    return strcmp(LH_CONTAINER(const struct lh_access_principal, entry, entry)->name, key) == 0;
}

static bool is_badge(const struct lh_table_entry *entry, const void *key)
{
    return memcmp(LH_CONTAINER(const struct lh_access_badge, entry, entry)->hash, key, LH_ACCESS_HASH_BYTES) == 0;
}

struct lh_access *lh_access_create(void)
{
    struct lh_access *access = lh_alloc_zero(1, sizeof(*access));

    access->version = 1;
    access->next_end_us = INT64_MAX;
    lh_table_init(&access->principals, is_principal);
    lh_table_init(&access->badges, is_badge);
    lh_list_init(&access->used);
    return access;
}

static void leave_principal(struct lh_access_principal *principal)
{
    if (--principal->refs > 0)
        return;
    lh_table_remove(&principal->access->principals, &principal->entry);
    free(principal->grants.items);
    free(principal);
}

static void leave_badge(struct lh_access_badge *badge)
{
    if (--badge->refs > 0)
        return;
    lh_list_remove(&badge->used);
    leave_principal(badge->principal);
    free(badge);
}

static void end_badge(struct lh_access_badge *badge)
{
    badge->is_valid = false;
    lh_table_remove(&badge->access->badges, &badge->entry);
    leave_badge(badge);
}

static void end_badges(struct lh_access *access)
{
    struct lh_table_entry *entry, *next = NULL;
    size_t slot = 0;

    while ((entry = lh_table_walk(&access->badges, &slot, &next)) != NULL) {
        struct lh_access_badge *badge = LH_CONTAINER(struct lh_access_badge, entry, entry);
        if (!badge->is_kept)
            end_badge(badge);
        else
            badge->is_kept = false;
    }
}

static void forget_admins(struct lh_access *access)
{
    for (size_t i = 0; i < access->admin_count; i++)
        free(access->admins[i]);
    free(access->admins);
    access->admins = NULL;
    access->admin_count = 0;
}

static void forget_rules(struct lh_access *access)
{
    free(access->rules);
    free(access->patterns);
    lh_arena_finish(&access->names);
    access->rules = access->patterns = NULL;
    access->rule_count = access->pattern_count = 0;
}

void lh_access_destroy(struct lh_access *access)
{
    if (access == NULL)
        return;
    end_badges(access);
    forget_admins(access);
    forget_rules(access);
    lh_table_finish(&access->badges);
    lh_table_finish(&access->principals);
    free(access);
}

/* --- what is in force --- */

void lh_access_configure(struct lh_access *access, bool is_on, const char *const *admins, size_t admin_count)
{
    forget_admins(access);
    access->is_on = is_on;
    access->admins = lh_alloc_zero(admin_count + 1, sizeof(access->admins[0]));
    for (size_t i = 0; i < admin_count; i++)
        access->admins[i] = lh_strdup(admins[i]);
    access->admin_count = admin_count;
    access->version++;
}

static bool is_pattern(const char *principal)
{
    size_t size = strlen(principal);
    return size > 0 && principal[size - 1] == '*';
}

static bool matches(const char *pattern, const char *principal)
{
    return is_pattern(pattern) ? strncmp(pattern, principal, strlen(pattern) - 1) == 0
                               : strcmp(pattern, principal) == 0;
}

static int compare_rules(const void *a, const void *b)
{
    return strcmp(((const struct lh_access_rule *)a)->principal, ((const struct lh_access_rule *)b)->principal);
}

static void load_rules(struct lh_access *access, const struct lh_access_rule *rules_to_load, size_t count)
{
    forget_rules(access);
    access->rules = lh_alloc((count + 1) * sizeof(access->rules[0]));
    access->patterns = lh_alloc((count + 1) * sizeof(access->patterns[0]));
    for (size_t i = 0; i < count; i++) {
        const struct lh_access_rule *rule = &rules_to_load[i];
        struct lh_access_rule copy = {.rights = rule->rights};
        if (strlen(rule->ns) > LH_NAMESPACE_MAX_BYTES)
            continue;
        copy.principal = lh_arena_strdup(&access->names, rule->principal);
        copy.ns = lh_arena_strdup(&access->names, rule->ns);
        if (is_pattern(copy.principal))
            access->patterns[access->pattern_count++] = copy;
        else
            access->rules[access->rule_count++] = copy;
    }
    if (access->rule_count > 0)
        qsort(access->rules, access->rule_count, sizeof(access->rules[0]), compare_rules);
}

static struct lh_access_principal *enter_principal(struct lh_access *access, const char *name)
{
    size_t size = strlen(name);
    uint64_t hash = lh_hash(name, size, 0);
    struct lh_table_entry *entry = lh_table_find(&access->principals, hash, name);
    struct lh_access_principal *principal;

    if (entry != NULL) {
        principal = LH_CONTAINER(struct lh_access_principal, entry, entry);
    } else {
        principal = lh_alloc_zero(1, sizeof(*principal) + size + 1);
        principal->access = access;
        memcpy(principal->name, name, size + 1);
        lh_table_insert(&access->principals, &principal->entry, hash);
    }
    principal->refs++;
    return principal;
}

static struct lh_access_badge *find_badge(const struct lh_access *access, const uint8_t hash[LH_ACCESS_HASH_BYTES])
{
    struct lh_table_entry *entry = lh_table_find(&access->badges, lh_hash(hash, LH_ACCESS_HASH_BYTES, 0), hash);
    return entry == NULL ? NULL : LH_CONTAINER(struct lh_access_badge, entry, entry);
}

static void load_token(struct lh_access *access, const struct lh_access_token *token)
{
    struct lh_access_badge *badge = find_badge(access, token->hash);
    char *name;

    if (badge == NULL) {
        badge = lh_alloc_zero(1, sizeof(*badge) + strlen(token->id) + 1);
        badge->access = access;
        badge->refs = 1;
        badge->is_valid = true;
        strcpy(badge->id, token->id);
        memcpy(badge->hash, token->hash, LH_ACCESS_HASH_BYTES);
        name = lh_format(TOKEN_PRINCIPAL "%s", token->name);
        badge->principal = enter_principal(access, name);
        free(name);
        lh_table_insert(&access->badges, &badge->entry, lh_hash(badge->hash, LH_ACCESS_HASH_BYTES, 0));
    }
    badge->is_kept = true;
    badge->expires_at_us = token->expires_at_us;
    if (token->expires_at_us < access->next_end_us)
        access->next_end_us = token->expires_at_us;
}

void lh_access_load(struct lh_access *access, const struct lh_access_rule *rules_to_load, size_t rule_count,
                    const struct lh_access_token *tokens, size_t token_count)
{
    load_rules(access, rules_to_load, rule_count);
    access->next_end_us = INT64_MAX;
    for (size_t i = 0; i < token_count; i++)
        load_token(access, &tokens[i]);
    end_badges(access);
    access->is_loaded = true;
    access->version++;
}

bool lh_access_set_now(struct lh_access *access, int64_t now_us)
{
    struct lh_table_entry *entry, *next = NULL;
    size_t slot = 0;
    bool has_expired = false;

    access->now_us = now_us;
    if (now_us < access->next_end_us)
        return false;
    access->next_end_us = INT64_MAX;
    while ((entry = lh_table_walk(&access->badges, &slot, &next)) != NULL) {
        struct lh_access_badge *badge = LH_CONTAINER(struct lh_access_badge, entry, entry);
        if (badge->expires_at_us > now_us) {
            if (badge->expires_at_us < access->next_end_us)
                access->next_end_us = badge->expires_at_us;
            continue;
        }
        end_badge(badge);
        has_expired = true;
    }
    return has_expired;
}

bool lh_access_is_on(const struct lh_access *access)
{
    return access->is_on;
}

bool lh_access_is_loaded(const struct lh_access *access)
{
    return access->is_loaded;
}

bool lh_access_is_ready(const struct lh_access *access)
{
    return !access->is_on || access->is_loaded;
}

size_t lh_access_rule_count(const struct lh_access *access)
{
    return access->rule_count + access->pattern_count;
}

size_t lh_access_token_count(const struct lh_access *access)
{
    return access->badges.count;
}

/* --- callers --- */

void lh_access_enter(struct lh_access *access, const char *principal, struct lh_access_caller *caller)
{
    *caller = (struct lh_access_caller){.principal = enter_principal(access, principal)};
}

bool lh_access_knows_token(const struct lh_access *access, const uint8_t hash[LH_ACCESS_HASH_BYTES])
{
    return find_badge(access, hash) != NULL;
}

bool lh_access_enter_by_token(struct lh_access *access, const uint8_t hash[LH_ACCESS_HASH_BYTES],
                              struct lh_access_caller *caller)
{
    struct lh_access_badge *badge = find_badge(access, hash);

    if (badge == NULL || badge->expires_at_us <= access->now_us)
        return false;
    if (!lh_link_is_linked(&badge->used))
        lh_list_append(&access->used, &badge->used);
    *caller = lh_access_copy(&(struct lh_access_caller){badge->principal, badge});
    return true;
}

struct lh_access_caller lh_access_copy(const struct lh_access_caller *caller)
{
    if (caller->principal != NULL)
        caller->principal->refs++;
    if (caller->badge != NULL)
        caller->badge->refs++;
    return *caller;
}

void lh_access_leave(struct lh_access_caller *caller)
{
    if (caller->badge != NULL)
        leave_badge(caller->badge);
    if (caller->principal != NULL)
        leave_principal(caller->principal);
    *caller = (struct lh_access_caller){0};
}

const char *lh_access_name(const struct lh_access_caller *caller)
{
    return caller->principal->name;
}

static size_t first_rule_of(const struct lh_access *access, const char *principal)
{
    size_t low = 0, high = access->rule_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(access->rules[middle].principal, principal) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void compile(struct lh_access_principal *principal)
{
    const struct lh_access *access = principal->access;
    struct lh_grants *grants = &principal->grants;

    grants->count = 0;
    for (size_t i = first_rule_of(access, principal->name);
         i < access->rule_count && strcmp(access->rules[i].principal, principal->name) == 0; i++)
        lh_grants_add(grants, access->rules[i].ns, access->rules[i].rights);
    for (size_t i = 0; i < access->pattern_count; i++)
        if (matches(access->patterns[i].principal, principal->name))
            lh_grants_add(grants, access->patterns[i].ns, access->patterns[i].rights);
    for (size_t i = 0; i < access->admin_count; i++)
        if (matches(access->admins[i], principal->name))
            lh_grants_add(grants, "", LH_RIGHT_ADMIN);
    lh_grants_compile(grants);
    principal->version = access->version;
}

/* NULL: nothing at all. */
static const struct lh_grants *grants_of(const struct lh_access_caller *caller)
{
    struct lh_access_principal *principal = caller->principal;

    if (principal == NULL || !lh_access_is_ready(principal->access))
        return NULL;
    if (caller->badge != NULL && !caller->badge->is_valid)
        return NULL;
    if (principal->version != principal->access->version)
        compile(principal);
    return &principal->grants;
}

static bool may_everything(const struct lh_access_caller *caller)
{
    return caller->principal != NULL && !caller->principal->access->is_on &&
           (caller->badge == NULL || caller->badge->is_valid);
}

bool lh_access_may(const struct lh_access_caller *caller, enum lh_right right, const char *ns)
{
    const struct lh_grants *grants;

    if (may_everything(caller))
        return true;
    grants = grants_of(caller);
    return grants != NULL && (lh_grants_rights(grants, ns) & right) != 0;
}

bool lh_access_next(const struct lh_access_caller *caller, enum lh_right right, const char *ns, const char *from,
                    char next[LH_ACCESS_NAME_BYTES])
{
    const struct lh_grants *grants = grants_of(caller);
    bool may_all = lh_access_may(caller, right, ns);
    char below[LH_ACCESS_NAME_BYTES];

    strcpy(stpcpy(below, ns), *ns == '\0' ? "" : ".");
    if (may_all && (from == NULL || strcmp(from, ns) <= 0))
        from = ns;
    else if (from == NULL || strcmp(from, below) < 0)
        from = below;
    if (may_all)
        strcpy(next, from);
    else if (grants == NULL || !lh_grants_next(grants, right, from, next))
        return false;
    return strcmp(next, ns) == 0 || lh_grants_is_below(next, ns);
}

size_t lh_access_tops(const struct lh_access_caller *caller, enum lh_right right, const char *ns, const char **names)
{
    const struct lh_grants *grants = grants_of(caller);

    if (!lh_access_may(caller, right, ns))
        return grants != NULL ? lh_grants_tops(grants, right, ns, names) : 0;
    if (names != NULL)
        names[0] = ns;
    return 1;
}

size_t lh_access_take_used(struct lh_access *access, const char **ids, size_t room)
{
    size_t count = 0;
    struct lh_access_badge *badge;

    while (count < room && (badge = LH_LIST_FIRST(struct lh_access_badge, &access->used, used)) != NULL) {
        lh_list_remove(&badge->used);
        if (badge->is_valid)
            ids[count++] = badge->id;
    }
    return count;
}
