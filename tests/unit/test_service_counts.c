/* Counts of the namespaces of several databases: what a page has while keys are on their way between two of them. */
#include <stdio.h>
#include <string.h>

#include "service/places_internal.h"
#include "test_service.h"
#include "test_service_fakes.h"
#include "test_service_spread.h"

static struct fake_store stores[2];
static struct lh_coordinator coordinators[2];
static struct lh_store_ops ops;
static struct lh_places *places;

/* Of each database, "namespace held" in order. */
static const char *const *counted[2];
static size_t counted_count[2];

static char page[256]; /* "namespace held partial, ..." */

static enum lh_status view(struct lh_store *base, const struct lh_view_request *request, lh_rows_cb *on_done, void *arg)
{
    struct fake_store *store = (struct fake_store *)base;

    (void)request;
    store->on_rows = on_done;
    store->arg = arg;
    return LH_OK;
}

static void setup(void)
{
    static const char *const spread[] = {"jobs"};
    struct lh_service_place list[2];

    for (int i = 0; i < 2; i++) {
        fake_store_init(&stores[i]);
        ops = *stores[i].base.ops;
        ops.view = view;
        stores[i].base.ops = &ops;
        coordinators[i] = (struct lh_coordinator){.store = &stores[i].base, .readiness.is_ready = true};
        list[i] = (struct lh_service_place){
            .name = ab[i], .coordinator = &coordinators[i], .spread = spread, .spread_count = 1, .is_default = i == 0};
        counted_count[i] = 0;
    }
    places = lh_places_create(list, 2);
}

static void teardown(void)
{
    lh_places_destroy(places);
}

static void read_slots(int place, const struct lh_spread_row *row)
{
    lh_places_keep_spread(places, &places->list[place], &(struct lh_spread_answer){row, 1});
}

static void has_counted(int place, const char *const *rows, size_t count)
{
    counted[place] = rows;
    counted_count[place] = count;
}

static void on_counts(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    (void)arg;
    (void)error;
    ck_assert_int_eq(status, LH_OK);
    page[0] = '\0';
    for (size_t i = 0; i < rows->row_count; i++) {
        size_t size = strlen(page);
        snprintf(page + size, sizeof(page) - size, "%s%s %s %s", i > 0 ? ", " : "", lh_rows_cell(rows, i, "namespace"),
                 lh_rows_cell(rows, i, "held"), lh_rows_cell(rows, i, "partial"));
    }
}

static void answer(int place)
{
    static const char *const columns[] = {"namespace", "held"};
    const struct lh_rows rows = {
        .columns = columns, .column_count = 2, .cells = counted[place], .row_count = counted_count[place]};

    lh_rows_cb *on_rows = stores[place].on_rows;

    stores[place].on_rows = NULL;
    on_rows(stores[place].arg, LH_OK, NULL, &rows);
}

static void ask(const char *ns, bool include_children, const char *after)
{
    const struct lh_view_request request = {.view = LH_VIEW_NAMESPACES,
                                            .namespaces = &ns,
                                            .namespace_count = 1,
                                            .include_children = include_children,
                                            .key = "",
                                            .page_size = 2,
                                            .after = after};

    ck_assert_int_eq(lh_placed_counts(places, &request, on_counts, NULL), LH_OK);
}

static void check_page(const char *ns, bool include_children, const char *after, const char *wanted)
{
    ask(ns, include_children, after);
    for (int i = 0; i < 2; i++)
        if (stores[i].on_rows != NULL)
            answer(i);
    ck_assert_str_eq(page, wanted);
}

START_TEST(a_namespace_whose_leases_are_all_on_their_way_has_a_row)
{
    static const char *const others[] = {"a", "1", "z", "2"};
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2);

    has_counted(0, others, 2);
    read_slots(0, &a);
    read_slots(1, &b);
    check_page("", true, "", "a 1 false, z 2 false");
    move_all(&b, NULL);
    read_slots(1, &b);
    check_page("", true, "", "a 1 false, jobs 0 true");
}
END_TEST

START_TEST(a_row_of_leases_on_their_way_is_on_one_page_and_of_what_was_asked_for)
{
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2);

    move_all(&b, NULL);
    read_slots(0, &a);
    read_slots(1, &b);
    check_page("", true, "jobs", "");
    check_page("jobs", true, "", "jobs 0 true");
    check_page("jobs", false, "", "jobs 0 true");
    check_page("jobs.x", false, "", "jobs.x 0 true");
    check_page("jobs.x", true, "", "jobs.x 0 true");
    check_page("jobsx", false, "", "");
    check_page("other", false, "", "");
}
END_TEST

START_TEST(a_namespace_that_is_counted_in_part_has_one_row)
{
    static const char *const some[] = {"jobs", "3"};
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2);

    has_counted(0, some, 1);
    move_all(&b, NULL);
    read_slots(0, &a);
    read_slots(1, &b);
    check_page("", true, "", "jobs 3 true");
}
END_TEST

/* The first database was asked before they came to it, and the second one after they had left. */
START_TEST(leases_that_came_to_a_database_meanwhile_make_a_row)
{
    struct lh_spread_row a = settled("a", ab, 2), b = settled("b", ab, 2);

    read_slots(0, &a);
    read_slots(1, &b);
    ask("", true, "");
    answer(0);
    move_all(&b, &a);
    read_slots(1, &b);
    read_slots(0, &a);
    answer(1);
    ck_assert_str_eq(page, "jobs 0 true");
    check_page("", true, "", "");
}
END_TEST

Suite *counts_suite(void)
{
    Suite *suite = suite_create("counts");
    TCase *tcase = tcase_create("counts");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_namespace_whose_leases_are_all_on_their_way_has_a_row);
    tcase_add_test(tcase, a_row_of_leases_on_their_way_is_on_one_page_and_of_what_was_asked_for);
    tcase_add_test(tcase, a_namespace_that_is_counted_in_part_has_one_row);
    tcase_add_test(tcase, leases_that_came_to_a_database_meanwhile_make_a_row);
    suite_add_tcase(suite, tcase);
    return suite;
}
