/* The places of keys of a spread namespace: where leases are must not change with a release. */
#include <stdio.h>

#include "service/places/spread.h"
#include "test_service.h"

#define KEYS 20000

static const struct {
    const char *key;
    const char *of_two;
    const char *of_three;
    const char *of_four;
} golden[] = {
    {"", "b", "b", "us-1"},       {"k", "b", "b", "asia_2"},  {"invoice-42", "a", "a", "us-1"},
    {"Zürich", "a", "c", "us-1"}, {"k1", "b", "b", "home"},   {"k2", "b", "b", "eu"},
    {"k3", "b", "b", "eu"},       {"db/7", "b", "b", "home"}, {"a b", "a", "a", "us-1"},
};

static const char *find(const char *const *names, size_t count, const char *key)
{
    struct lh_spread *spread = lh_spread_create(names, count);
    const char *name = names[lh_spread_find(spread, key)];

    lh_spread_destroy(spread);
    return name;
}

START_TEST(a_key_is_where_it_always_was)
{
    static const char *const two[] = {"a", "b"}, *const three[] = {"c", "b", "a"};
    static const char *const four[] = {"eu", "us-1", "asia_2", "home"};

    ck_assert_str_eq(find(two, 1, golden[_i].key), "a");
    ck_assert_str_eq(find(two, 2, golden[_i].key), golden[_i].of_two);
    ck_assert_str_eq(find(three, 3, golden[_i].key), golden[_i].of_three);
    ck_assert_str_eq(find(four, 4, golden[_i].key), golden[_i].of_four);
}
END_TEST

START_TEST(one_more_database_takes_its_share_and_moves_nothing_else)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};

    for (size_t count = 1; count < sizeof(names) / sizeof(names[0]); count++) {
        struct lh_spread *few = lh_spread_create(names, count), *more = lh_spread_create(names, count + 1);
        size_t moved = 0, share = KEYS / (count + 1);
        for (int i = 0; i < KEYS; i++) {
            char key[16];
            size_t from, to;
            snprintf(key, sizeof(key), "job-%d", i);
            from = lh_spread_find(few, key);
            to = lh_spread_find(more, key);
            ck_assert_msg(to == from || to == count, "%s moved from %s to %s", key, names[from], names[to]);
            moved += to != from;
        }
        ck_assert_msg(moved > share * 9 / 10 && moved < share * 11 / 10, "%zu of %d keys moved to %s", moved, KEYS,
                      names[count]);
        lh_spread_destroy(few);
        lh_spread_destroy(more);
    }
}
END_TEST

Suite *spread_suite(void)
{
    Suite *suite = suite_create("spread");
    TCase *tcase = tcase_create("spread");

    tcase_add_loop_test(tcase, a_key_is_where_it_always_was, 0, sizeof(golden) / sizeof(golden[0]));
    tcase_add_test(tcase, one_more_database_takes_its_share_and_moves_nothing_else);
    suite_add_tcase(suite, tcase);
    return suite;
}
