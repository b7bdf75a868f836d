/* The places of keys of a spread namespace: where leases are must not change with a release, and what databases say decides. */
#include <stdio.h>
#include <string.h>

#include "test_service.h"
#include "test_service_spread.h"

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
    const char *name = names[lh_spread_find(spread, key).of];

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
            from = lh_spread_find(few, key).of;
            to = lh_spread_find(more, key).of;
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

/* --- what databases say --- */

const char *const abc[] = {"a", "b", "c"}, *const bc[] = {"b", "c"}, *const ab[] = {"a", "b"};

struct lh_spread_row row_of(const char *section, const char *const *sections, size_t count, bool is_settled)
{
    return (struct lh_spread_row){
        .ns = "jobs", .section = section, .sections = sections, .section_count = count, .is_settled = is_settled};
}

struct lh_spread_row settled(const char *section, const char *const *sections, size_t count)
{
    struct lh_spread_row row = row_of(section, sections, count, true);
    struct lh_spread *spread = lh_spread_create(sections, count);

    for (unsigned slot = 0; slot < LH_SPREAD_SLOTS; slot++)
        if (strcmp(sections[lh_spread_first(spread, slot)], section) == 0)
            row.slots[slot / 8] |= (uint8_t)(1 << slot % 8);
    lh_spread_destroy(spread);
    return row;
}

void move_all(struct lh_spread_row *from, struct lh_spread_row *to)
{
    for (size_t i = 0; i < LH_SPREAD_BYTES; i++) {
        if (to != NULL)
            to->slots[i] |= from->slots[i];
        from->slots[i] = 0;
    }
}

static void check(const struct lh_spread *spread, const char *key, enum lh_spread_state state, size_t of, size_t other)
{
    struct lh_spread_place place = lh_spread_find(spread, key);

    ck_assert_msg(place.state == state && place.of == of && place.other == other, "%s: state %d of %zu other %zu", key,
                  place.state, place.of, place.other);
}

/* k1 is of b in {a, b}, and invoice-42 of a. */
START_TEST(what_a_database_says_decides)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2);
    size_t moved;

    check(spread, "k1", LH_SPREAD_UNREAD, 1, 1);
    ck_assert(lh_spread_set_row(spread, 0, &a));
    ck_assert(!lh_spread_set_row(spread, 0, &a));
    check(spread, "invoice-42", LH_SPREAD_SERVED, 0, 2);
    check(spread, "k1", LH_SPREAD_UNREAD, 1, 1);
    ck_assert(lh_spread_set_row(spread, 1, &b));
    check(spread, "k1", LH_SPREAD_SERVED, 1, 2);
    ck_assert_uint_eq(lh_spread_count(spread, 0) + lh_spread_count(spread, 1), LH_SPREAD_SLOTS);
    ck_assert_uint_eq(lh_spread_count(spread, 2), 0);
    ck_assert(!lh_spread_lacks_leases(spread));

    moved = lh_spread_count(spread, 1);
    move_all(&b, NULL);
    ck_assert(lh_spread_set_row(spread, 1, &b));
    ck_assert(lh_spread_lacks_leases(spread));
    ck_assert_uint_eq(lh_spread_moves(spread), 0);
    check(spread, "k1", LH_SPREAD_MOVING, 1, 2);
    check(spread, "invoice-42", LH_SPREAD_SERVED, 0, 2);
    b = settled("b", ab, 2);
    move_all(&b, &a);
    ck_assert(lh_spread_set_row(spread, 0, &a));
    check(spread, "k1", LH_SPREAD_SERVED, 0, 2);
    ck_assert_uint_eq(lh_spread_count(spread, 0), LH_SPREAD_SLOTS);
    ck_assert(!lh_spread_lacks_leases(spread));
    ck_assert_uint_eq(lh_spread_moves(spread), moved);
    lh_spread_destroy(spread);
}
END_TEST

START_TEST(a_slot_that_two_databases_have_is_served_by_neither)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2), both = a;

    lh_spread_set_row(spread, 0, &a);
    lh_spread_set_row(spread, 1, &b);
    both = b;
    move_all(&both, &a);
    lh_spread_set_row(spread, 0, &a);
    check(spread, "k1", LH_SPREAD_SEVERAL, 1, 0); /* old leases are where they were */
    check(spread, "invoice-42", LH_SPREAD_SERVED, 0, 2);
    move_all(&b, NULL);
    lh_spread_set_row(spread, 1, &b);
    check(spread, "k1", LH_SPREAD_SERVED, 0, 2);
    lh_spread_destroy(spread);
}
END_TEST

START_TEST(one_more_section_serves_all_keys_of_the_others)
{
    struct lh_spread *spread = lh_spread_create(abc, 3);
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2);
    bool settles;

    lh_spread_set_row(spread, 0, &a);
    lh_spread_set_row(spread, 2, NULL);
    check(spread, "k1", LH_SPREAD_UNREAD, 1, 1);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 3);
    ck_assert_uint_eq(lh_spread_count(spread, 0) + lh_spread_count(spread, 1), LH_SPREAD_SLOTS);
    lh_spread_destroy(spread);
}
END_TEST

/* Zürich is of c in {a, b, c}. */
START_TEST(a_slot_of_a_section_that_the_daemon_lacks_is_missing)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = settled("a", abc, 3), b = settled("b", abc, 3);
    bool settles;

    lh_spread_set_row(spread, 0, &a);
    check(spread, "Zürich", LH_SPREAD_UNREAD, 1, 1);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_int_eq(lh_spread_find(spread, "Zürich").state, LH_SPREAD_MISSING);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2);
    check(spread, "k1", LH_SPREAD_SERVED, 1, 2);
    lh_spread_destroy(spread);
}
END_TEST

/* --- claims --- */

START_TEST(a_claim_gets_slots_when_all_databases_have_one_of_the_same_sections)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = row_of("a", ab, 2, false), b = row_of("b", ab, 2, false);
    bool settles;

    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2);
    lh_spread_set_row(spread, 1, NULL);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2); /* a was not reached */
    check(spread, "k1", LH_SPREAD_UNREAD, 1, 0);
    lh_spread_set_row(spread, 0, NULL);
    check(spread, "k1", LH_SPREAD_UNCLAIMED, 1, 2);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 0);
    ck_assert(!settles);
    lh_spread_set_row(spread, 0, &a);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 1);
    ck_assert(!settles);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 0);
    ck_assert(settles);
    a = settled("a", ab, 2);
    lh_spread_set_row(spread, 0, &a);
    check(spread, "k1", LH_SPREAD_UNCLAIMED, 1, 2);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 1);
    ck_assert(settles);
    b = settled("b", ab, 2);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2);
    check(spread, "k1", LH_SPREAD_SERVED, 1, 2);
    lh_spread_destroy(spread);
}
END_TEST

START_TEST(one_more_or_less_database_leaves_what_is_known_of_the_others)
{
    struct lh_spread *few = lh_spread_create(bc, 2), *more = lh_spread_create(abc, 3), *again = lh_spread_create(bc, 2);
    struct lh_spread_row a = row_of("a", abc, 3, true), b = settled("b", bc, 2), c = settled("c", bc, 2);

    lh_spread_set_row(few, 0, &b);
    lh_spread_set_row(few, 1, &c);
    move_all(&c, NULL);
    lh_spread_set_row(few, 1, &c);
    lh_spread_adopt(more, few);
    ck_assert(!lh_spread_is_read(more, 0));
    for (size_t i = 0; i < 2; i++)
        ck_assert_uint_eq(lh_spread_count(more, i + 1), lh_spread_count(few, i));
    for (int i = 0; i < 100; i++) { /* the same, but that its database has another index */
        struct lh_spread_place was, is;
        char key[16];
        snprintf(key, sizeof(key), "k%d", i);
        was = lh_spread_find(few, key);
        is = lh_spread_find(more, key);
        ck_assert(was.state == LH_SPREAD_SERVED || was.state == LH_SPREAD_MOVING);
        ck_assert_int_eq(is.state, was.state);
        ck_assert_uint_eq(is.of, was.of + 1);
    }
    c = settled("c", bc, 2);
    move_all(&c, &a);
    lh_spread_set_row(more, 0, &a);
    ck_assert_uint_eq(lh_spread_count(more, 3), 0);
    move_all(&a, &b);
    lh_spread_set_row(more, 0, &a);
    lh_spread_set_row(more, 1, &b);
    lh_spread_adopt(again, more);
    ck_assert_uint_eq(lh_spread_count(again, 0), LH_SPREAD_SLOTS);
    lh_spread_destroy(few);
    lh_spread_destroy(more);
    lh_spread_destroy(again);
}
END_TEST

START_TEST(a_claim_stops_at_a_row_of_other_sections)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = row_of("a", ab, 2, false), b = row_of("b", bc, 2, false);
    bool settles;

    lh_spread_set_row(spread, 0, &a);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2);
    check(spread, "k1", LH_SPREAD_UNCLAIMED, 1, 1);
    check(spread, "invoice-42", LH_SPREAD_UNCLAIMED, 0, 1);
    lh_spread_destroy(spread);
}
END_TEST

/* Its row was lost: the database is older than it was, or another one. */
START_TEST(a_share_that_another_database_has_by_now_is_not_taken_back)
{
    struct lh_spread *spread = lh_spread_create(ab, 2);
    struct lh_spread_row a = row_of("a", ab, 2, false), b = settled("b", ab, 2), moved = settled("a", ab, 2);
    bool settles;

    lh_spread_set_row(spread, 0, &a);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 0);
    ck_assert(settles);
    move_all(&moved, &b);
    lh_spread_set_row(spread, 1, &b);
    ck_assert_uint_eq(lh_spread_next_claim(spread, &settles), 2);
    lh_spread_destroy(spread);
}
END_TEST
Suite *slots_suite(void)
{
    Suite *suite = suite_create("slots");
    TCase *tcase = tcase_create("slots");

    tcase_add_loop_test(tcase, a_key_is_where_it_always_was, 0, sizeof(golden) / sizeof(golden[0]));
    tcase_add_test(tcase, one_more_database_takes_its_share_and_moves_nothing_else);
    tcase_add_test(tcase, what_a_database_says_decides);
    tcase_add_test(tcase, a_slot_that_two_databases_have_is_served_by_neither);
    tcase_add_test(tcase, one_more_section_serves_all_keys_of_the_others);
    tcase_add_test(tcase, a_slot_of_a_section_that_the_daemon_lacks_is_missing);
    tcase_add_test(tcase, a_claim_gets_slots_when_all_databases_have_one_of_the_same_sections);
    tcase_add_test(tcase, one_more_or_less_database_leaves_what_is_known_of_the_others);
    tcase_add_test(tcase, a_claim_stops_at_a_row_of_other_sections);
    tcase_add_test(tcase, a_share_that_another_database_has_by_now_is_not_taken_back);
    suite_add_tcase(suite, tcase);
    return suite;
}
