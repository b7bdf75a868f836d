/* Who may do what where: rules, patterns, tokens, and where a caller has a right. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access/access.h"
#include "access/bearer.h"
#include "run_tests.h"

#define ADMIN_OF_ALL "dns:admin.example.org"
/* Its SHA-256, of the whole string. */
#define TOKEN "lht_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAabcdef"

static struct lh_access *access;
static struct lh_access_caller caller;

static void setup(void)
{
    access = lh_access_create();
    lh_access_configure(access, true, NULL, 0);
}

static void teardown(void)
{
    lh_access_leave(&caller);
    lh_access_destroy(access);
}

static void load(const struct lh_access_rule *rules, size_t count)
{
    lh_access_load(access, rules, count, NULL, 0);
}

static void load_token(const char *id, int64_t expires_at_us)
{
    static const struct lh_access_rule rule = {"token:ci", "a", LH_RIGHT_LEASE};
    struct lh_access_token token = {.id = id, .name = "ci", .expires_at_us = expires_at_us};

    ck_assert(lh_bearer_hash("Bearer " TOKEN, token.hash));
    lh_access_load(access, &rule, 1, &token, 1);
}

START_TEST(nothing_is_allowed_before_rules_were_loaded)
{
    const char *admins[] = {"dns:a"};

    lh_access_configure(access, true, admins, 1);
    lh_access_enter(access, "dns:a", &caller);
    ck_assert(!lh_access_is_ready(access));
    ck_assert(!lh_access_may(&caller, LH_RIGHT_READ, "x"));
    load(NULL, 0);
    ck_assert(lh_access_is_ready(access));
    ck_assert(lh_access_may(&caller, LH_RIGHT_ADMIN, "x"));
}
END_TEST

START_TEST(everything_is_allowed_without_authorization)
{
    lh_access_configure(access, false, NULL, 0);
    lh_access_enter(access, "anonymous", &caller);
    ck_assert(lh_access_is_ready(access));
    ck_assert(lh_access_may(&caller, LH_RIGHT_ADMIN, ""));
}
END_TEST

START_TEST(rule_holds_in_its_namespace_and_below_it)
{
    const struct lh_access_rule rules[] = {{"dns:a", "pay.in", LH_RIGHT_LEASE}, {"dns:b", "", LH_RIGHT_READ}};

    load(rules, 2);
    lh_access_enter(access, "dns:a", &caller);
    ck_assert(lh_access_may(&caller, LH_RIGHT_LEASE, "pay.in"));
    ck_assert(lh_access_may(&caller, LH_RIGHT_LEASE, "pay.in.x.y"));
    ck_assert(!lh_access_may(&caller, LH_RIGHT_READ, "pay.in"));
    ck_assert(!lh_access_may(&caller, LH_RIGHT_LEASE, "pay"));
    ck_assert(!lh_access_may(&caller, LH_RIGHT_LEASE, "pay.inx"));
    ck_assert(!lh_access_may(&caller, LH_RIGHT_LEASE, "pay.i"));
    ck_assert(!lh_access_may(&caller, LH_RIGHT_LEASE, ""));
    lh_access_leave(&caller);
    lh_access_enter(access, "dns:b", &caller);
    ck_assert(lh_access_may(&caller, LH_RIGHT_READ, ""));
    ck_assert(lh_access_may(&caller, LH_RIGHT_READ, "any.thing"));
    lh_access_leave(&caller);
    lh_access_enter(access, "dns:", &caller);
    ck_assert(!lh_access_may(&caller, LH_RIGHT_READ, "any"));
}
END_TEST

START_TEST(rules_of_patterns_add_up_and_admin_includes_read_and_lease)
{
    const struct lh_access_rule rules[] = {{"dns:*", "a", LH_RIGHT_READ},
                                           {"*", "a.b", LH_RIGHT_LEASE},
                                           {"dns:x", "a.b.c", LH_RIGHT_ADMIN},
                                           {"dns:x", "a.b.c", LH_RIGHT_GUARD},
                                           {"spiffe://*", "", LH_RIGHT_ADMIN}};

    load(rules, 5);
    lh_access_enter(access, "dns:x", &caller);
    ck_assert(lh_access_may(&caller, LH_RIGHT_READ, "a.b"));
    ck_assert(lh_access_may(&caller, LH_RIGHT_LEASE, "a.b"));
    ck_assert(!lh_access_may(&caller, LH_RIGHT_LEASE, "a"));
    ck_assert(!lh_access_may(&caller, LH_RIGHT_ADMIN, "a.b"));
    ck_assert(lh_access_may(&caller, LH_RIGHT_ADMIN, "a.b.c.d"));
    ck_assert(lh_access_may(&caller, LH_RIGHT_GUARD, "a.b.c"));
    lh_access_leave(&caller);
    lh_access_enter(access, "anonymous", &caller);
    ck_assert(!lh_access_may(&caller, LH_RIGHT_READ, "a"));
    ck_assert(lh_access_may(&caller, LH_RIGHT_LEASE, "a.b"));
    lh_access_leave(&caller);
    lh_access_enter(access, "spiffe://td/x", &caller);
    ck_assert(lh_access_may(&caller, LH_RIGHT_READ, "q"));
    ck_assert(lh_access_may(&caller, LH_RIGHT_LEASE, "q"));
    ck_assert(!lh_access_may(&caller, LH_RIGHT_GUARD, "q"));
}
END_TEST

START_TEST(admins_are_those_of_the_configuration)
{
    const char *admins[] = {ADMIN_OF_ALL, "user:*"};

    lh_access_configure(access, true, admins, 2);
    load(NULL, 0);
    lh_access_enter(access, ADMIN_OF_ALL, &caller);
    ck_assert(lh_access_may(&caller, LH_RIGHT_ADMIN, ""));
    lh_access_leave(&caller);
    lh_access_enter(access, "user:root", &caller);
    ck_assert(lh_access_may(&caller, LH_RIGHT_ADMIN, "x"));
    lh_access_configure(access, true, admins, 1);
    ck_assert(!lh_access_may(&caller, LH_RIGHT_ADMIN, "x"));
}
END_TEST

START_TEST(change_of_the_rules_reaches_a_caller_that_is_there)
{
    const struct lh_access_rule before = {"dns:a", "a", LH_RIGHT_LEASE}, after = {"dns:a", "b", LH_RIGHT_LEASE};

    load(&before, 1);
    lh_access_enter(access, "dns:a", &caller);
    ck_assert(lh_access_may(&caller, LH_RIGHT_LEASE, "a"));
    load(&after, 1);
    ck_assert(!lh_access_may(&caller, LH_RIGHT_LEASE, "a"));
    ck_assert(lh_access_may(&caller, LH_RIGHT_LEASE, "b"));
}
END_TEST

START_TEST(token_is_its_name_until_it_ends)
{
    uint8_t hash[LH_ACCESS_HASH_BYTES];
    const char *used[4];
    struct lh_access_caller copy;

    ck_assert(lh_bearer_hash("bearer  " TOKEN, hash));
    ck_assert(!lh_access_enter_by_token(access, hash, &caller));
    load_token("abcd1234", 1000);
    lh_access_set_now(access, 999);
    ck_assert(lh_access_enter_by_token(access, hash, &caller));
    ck_assert_str_eq(lh_access_name(&caller), "token:ci");
    ck_assert(lh_access_may(&caller, LH_RIGHT_LEASE, "a.b"));
    ck_assert_uint_eq(lh_access_take_used(access, used, 4), 1);
    ck_assert_str_eq(used[0], "abcd1234");
    ck_assert_uint_eq(lh_access_take_used(access, used, 4), 0);
    load_token("abcd1234", 1000); /* it stays itself */
    ck_assert(lh_access_may(&caller, LH_RIGHT_LEASE, "a.b"));

    ck_assert(lh_access_set_now(access, 1000));
    ck_assert(!lh_access_may(&caller, LH_RIGHT_LEASE, "a.b"));
    ck_assert(!lh_access_enter_by_token(access, hash, &copy));
    ck_assert(!lh_access_set_now(access, 1001));
    lh_access_configure(access, false, NULL, 0);
    ck_assert(!lh_access_may(&caller, LH_RIGHT_LEASE, "a.b"));
}
END_TEST

START_TEST(token_that_is_revoked_ends_for_those_who_have_shown_it)
{
    uint8_t hash[LH_ACCESS_HASH_BYTES];
    struct lh_access_caller copy;

    ck_assert(lh_bearer_hash("Bearer " TOKEN, hash));
    load_token("abcd1234", INT64_MAX);
    ck_assert(lh_access_enter_by_token(access, hash, &caller));
    copy = lh_access_copy(&caller);
    ck_assert_uint_eq(lh_access_token_count(access), 1);
    load(&(struct lh_access_rule){"token:ci", "a", LH_RIGHT_LEASE}, 1);
    ck_assert_uint_eq(lh_access_token_count(access), 0);
    ck_assert(!lh_access_may(&caller, LH_RIGHT_LEASE, "a"));
    lh_access_leave(&caller);
    ck_assert(!lh_access_may(&copy, LH_RIGHT_LEASE, "a"));
    lh_access_leave(&copy);
}
END_TEST

START_TEST(only_tokens_of_ours_are_hashed)
{
    static const uint8_t of_token[4] = {0x1a, 0x66, 0x65, 0x4b};
    uint8_t hash[LH_ACCESS_HASH_BYTES];

    ck_assert(lh_bearer_hash("Bearer " TOKEN, hash));
    ck_assert_mem_eq(hash, of_token, sizeof(of_token));
    ck_assert(!lh_bearer_hash("", hash));
    ck_assert(!lh_bearer_hash("Bearer", hash));
    ck_assert(!lh_bearer_hash("Bearer ", hash));
    ck_assert(!lh_bearer_hash("Basic " TOKEN, hash));
    ck_assert(!lh_bearer_hash(TOKEN, hash));
    ck_assert(!lh_bearer_hash("Bearer " TOKEN "x", hash));
    ck_assert(!lh_bearer_hash("Bearer x" TOKEN, hash));
    ck_assert(!lh_bearer_hash("Bearer lht_short", hash));
}
END_TEST

static const char *next_of(const char *ns, const char *from)
{
    static char next[LH_ACCESS_NAME_BYTES];
    return lh_access_next(&caller, LH_RIGHT_READ, ns, from, next) ? next : "none";
}

static char *tops_of(const char *ns)
{
    static char text[512];
    const char *found[8];
    size_t count = lh_access_tops(&caller, LH_RIGHT_READ, ns, NULL);

    ck_assert_uint_le(count, 8);
    ck_assert_uint_eq(lh_access_tops(&caller, LH_RIGHT_READ, ns, found), count);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        sprintf(text + strlen(text), " %s", found[i]);
    return text;
}

START_TEST(next_is_the_first_name_that_may_be_seen)
{
    const struct lh_access_rule rules[] = {{"dns:a", "a.b", LH_RIGHT_READ},    {"dns:a", "a.b-c", LH_RIGHT_READ},
                                           {"dns:a", "a.b.x", LH_RIGHT_ADMIN}, {"dns:a", "c", LH_RIGHT_READ},
                                           {"dns:a", "b", LH_RIGHT_LEASE},     {"dns:a", "b.y", LH_RIGHT_ADMIN}};

    load(rules, 6);
    lh_access_enter(access, "dns:a", &caller);
    ck_assert_str_eq(next_of("", NULL), "a.b");
    ck_assert_str_eq(next_of("", "a.b"), "a.b");
    ck_assert_str_eq(next_of("", "a.b "), "a.b-c");
    ck_assert_str_eq(next_of("", "a.b-c"), "a.b-c");
    ck_assert_str_eq(next_of("", "a.b-c "), "a.b-c.");
    ck_assert_str_eq(next_of("", "a.b-c.z"), "a.b-c.z");
    ck_assert_str_eq(next_of("", "a.b-d"), "a.b.");
    ck_assert_str_eq(next_of("", "a.b.m"), "a.b.m");
    ck_assert_str_eq(next_of("", "a.ba"), "b.y");
    ck_assert_str_eq(next_of("", "b.yy"), "c");
    ck_assert_str_eq(next_of("", "c-"), "c.");
    ck_assert_str_eq(next_of("", "d"), "none");
    ck_assert_str_eq(next_of("a", NULL), "a.b");
    ck_assert_str_eq(next_of("a", "a.ba"), "none");
    ck_assert_str_eq(next_of("a.b", NULL), "a.b");
    ck_assert_str_eq(next_of("a.b", "a.b.q"), "a.b.q");
    ck_assert_str_eq(next_of("b", "a"), "b.y");
    ck_assert_str_eq(next_of("d", NULL), "none");
    ck_assert_str_eq(tops_of(""), " a.b a.b-c b.y c");
    ck_assert_str_eq(tops_of("a"), " a.b a.b-c");
    ck_assert_str_eq(tops_of("a.b.q"), " a.b.q");
    ck_assert_str_eq(tops_of("d"), "");
}
END_TEST

/* --- any rules, against the definition --- */

static const char *const names[] = {"", "a", "b", "a.a", "a.b", "a-b", "a.b.a", "a.b-a", "ab", "b.a.a"};
#define NAMES (sizeof(names) / sizeof(names[0]))
static const char *const who[] = {"dns:a", "dns:ab", "dns:*", "*", "dns:a*", "user:x"};
#define WHO (sizeof(who) / sizeof(who[0]))

static bool covers(const char *above, const char *ns)
{
    size_t size = strlen(above);
    return size == 0 || (strncmp(above, ns, size) == 0 && (ns[size] == '\0' || ns[size] == '.'));
}

static bool may_by_definition(const struct lh_access_rule *rules, size_t count, const char *principal,
                              enum lh_right right, const char *ns)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(rules[i].principal);
        bool is_his = rules[i].principal[size - 1] == '*' ? strncmp(rules[i].principal, principal, size - 1) == 0
                                                          : strcmp(rules[i].principal, principal) == 0;
        unsigned given = rules[i].rights;
        if (given & LH_RIGHT_ADMIN)
            given |= LH_RIGHT_READ | LH_RIGHT_LEASE;
        if (is_his && (given & right) != 0 && covers(rules[i].ns, ns))
            return true;
    }
    return false;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* From each name a walk goes to the next that may be read: it passes none, and stops at none that may not. */
static void walk_all(const char *ns)
{
    const char *sorted[NAMES];
    char next[LH_ACCESS_NAME_BYTES];

    memcpy(sorted, names, sizeof(names));
    qsort(sorted, NAMES, sizeof(sorted[0]), by_bytes);
    for (size_t from = 0; from < NAMES; from++) {
        bool is_there = lh_access_next(&caller, LH_RIGHT_READ, ns, sorted[from], next);
        for (size_t n = from; n < NAMES; n++)
            if (covers(ns, sorted[n]) && lh_access_may(&caller, LH_RIGHT_READ, sorted[n]))
                ck_assert_msg(is_there && strcmp(next, sorted[n]) <= 0, "in '%s' from '%s' to '%s': passes '%s'", ns,
                              sorted[from], is_there ? next : "none", sorted[n]);
        if (is_there)
            ck_assert_msg(strcmp(next, sorted[from]) >= 0 && lh_access_may(&caller, LH_RIGHT_READ, next),
                          "in '%s' from '%s' to '%s'", ns, sorted[from], next);
    }
}

static bool is_in_tops(const char *ns)
{
    const char *found[NAMES];
    size_t count = lh_access_tops(&caller, LH_RIGHT_READ, "", found), in = 0;

    for (size_t i = 0; i < count; i++)
        in += covers(found[i], ns);
    ck_assert_uint_le(in, 1);
    return in == 1;
}

static void compare_all(const struct lh_access_rule *rules, size_t count)
{
    static const char *const principals[] = {"dns:a", "dns:ab", "user:x", "anonymous"};

    for (size_t p = 0; p < 4; p++) {
        lh_access_enter(access, principals[p], &caller);
        for (size_t n = 0; n < NAMES; n++) {
            for (unsigned right = 1; right <= 8; right *= 2)
                ck_assert_int_eq(lh_access_may(&caller, (enum lh_right)right, names[n]),
                                 may_by_definition(rules, count, principals[p], (enum lh_right)right, names[n]));
            ck_assert_int_eq(is_in_tops(names[n]), lh_access_may(&caller, LH_RIGHT_READ, names[n]));
        }
        for (size_t n = 0; n < 4; n++) {
            static const char *const inside[] = {"", "a", "a.b", "b"};
            walk_all(inside[n]);
        }
        lh_access_leave(&caller);
    }
}

START_TEST(any_rules_give_what_the_definition_gives)
{
    srand(4711);
    for (int round = 0; round < 1000; round++) {
        struct lh_access_rule rules[8];
        size_t count = (size_t)(rand() % 9);
        for (size_t i = 0; i < count; i++)
            rules[i] = (struct lh_access_rule){who[(size_t)rand() % WHO], names[(size_t)rand() % NAMES],
                                               (unsigned)(rand() % 15 + 1)};
        load(rules, count);
        compare_all(rules, count);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("access");
    TCase *tcase = tcase_create("rules");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, nothing_is_allowed_before_rules_were_loaded);
    tcase_add_test(tcase, everything_is_allowed_without_authorization);
    tcase_add_test(tcase, rule_holds_in_its_namespace_and_below_it);
    tcase_add_test(tcase, rules_of_patterns_add_up_and_admin_includes_read_and_lease);
    tcase_add_test(tcase, admins_are_those_of_the_configuration);
    tcase_add_test(tcase, change_of_the_rules_reaches_a_caller_that_is_there);
    tcase_add_test(tcase, token_is_its_name_until_it_ends);
    tcase_add_test(tcase, token_that_is_revoked_ends_for_those_who_have_shown_it);
    tcase_add_test(tcase, only_tokens_of_ours_are_hashed);
    tcase_add_test(tcase, next_is_the_first_name_that_may_be_seen);
    tcase_add_test(tcase, any_rules_give_what_the_definition_gives);
    suite_add_tcase(suite, tcase);
    return run_tests(suite, CK_FORK_GETENV);
}
