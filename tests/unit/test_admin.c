/* The text of /metrics, apart from HTTP: what Prometheus reads must be exactly this. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "admin/exposition.h"
#include "base/clock.h"
#include "run_tests.h"

static struct lh_exposition out;

static void begin(void)
{
    memset(&out, 0, sizeof(out));
}

static void end(void)
{
    lh_buffer_finish(&out.text);
}

static void expect(const char *text)
{
    ck_assert_uint_eq(out.text.size, strlen(text));
    ck_assert_mem_eq(out.text.data, text, out.text.size);
}

static void expect_within(const char *text)
{
    ck_assert_ptr_nonnull(memmem(out.text.data, out.text.size, text, strlen(text)));
}

START_TEST(a_family_is_its_help_its_type_and_its_samples)
{
    lh_expose_family(&out, "x_total", LH_EXPOSE_COUNTER, "Things, by kind.");
    lh_expose_count(&out, 3, "kind", "a", "way", "b", NULL);
    lh_expose_count(&out, UINT64_MAX, NULL);
    lh_expose_gauge(&out, "y", 0, "Others.");
    expect("# HELP x_total Things, by kind.\n# TYPE x_total counter\n"
           "x_total{kind=\"a\",way=\"b\"} 3\nx_total 18446744073709551615\n"
           "# HELP y Others.\n# TYPE y gauge\ny 0\n");
}
END_TEST

START_TEST(label_values_and_help_are_escaped)
{
    lh_expose_family(&out, "x", LH_EXPOSE_GAUGE, "a \\ \"b\"\nc");
    lh_expose_count(&out, 1, "l", "\\ \"q\"\n{}=,", NULL);
    expect("# HELP x a \\\\ \"b\"\\nc\n# TYPE x gauge\nx{l=\"\\\\ \\\"q\\\"\\n{}=,\"} 1\n");
}
END_TEST

START_TEST(seconds_are_exact_to_the_microsecond)
{
    out.name = "x";
    lh_expose_seconds(&out, 1732130000123456, NULL);
    lh_expose_seconds(&out, -1, NULL);
    lh_expose_seconds(&out, -1500000, NULL);
    lh_expose_seconds(&out, 10 * LH_US_PER_S, NULL);
    lh_expose_seconds(&out, 0, NULL);
    expect("x 1732130000.123456\nx -0.000001\nx -1.5\nx 10\nx 0\n");
}
END_TEST

START_TEST(buckets_are_cumulative_and_the_last_is_the_count)
{
    static const struct lh_bounds bounds = {3, {500, 1000, 2500000}};
    struct lh_histogram histogram = {0};

    lh_histogram_add(&histogram, &bounds, -7);
    lh_histogram_add(&histogram, &bounds, 500); /* up to a bound is within it */
    lh_histogram_add(&histogram, &bounds, 501);
    lh_histogram_add(&histogram, &bounds, 2500001);
    out.name = "x_seconds";
    lh_expose_histogram(&out, &histogram, &bounds, true, "m", "A", NULL);
    expect("x_seconds_bucket{m=\"A\",le=\"0.0005\"} 2\nx_seconds_bucket{m=\"A\",le=\"0.001\"} 3\n"
           "x_seconds_bucket{m=\"A\",le=\"2.5\"} 3\nx_seconds_bucket{m=\"A\",le=\"+Inf\"} 4\n"
           "x_seconds_count{m=\"A\"} 4\nx_seconds_sum{m=\"A\"} 2.501002\n");
}
END_TEST

START_TEST(a_histogram_of_sizes_has_whole_numbers)
{
    struct lh_histogram histogram = {0};

    lh_histogram_add(&histogram, &lh_size_bounds, 500);
    lh_histogram_add(&histogram, &lh_size_bounds, 3);
    out.name = "x";
    lh_expose_histogram(&out, &histogram, &lh_size_bounds, false, NULL);
    expect_within("x_bucket{le=\"2\"} 0\nx_bucket{le=\"4\"} 1\n");
    expect_within("x_bucket{le=\"+Inf\"} 2\nx_count 2\nx_sum 503\n");
}
END_TEST

START_TEST(bounds_ascend)
{
    static const struct lh_bounds *const all[] = {&lh_latency_bounds, &lh_size_bounds};

    for (size_t i = 0; i < 2; i++) {
        ck_assert_uint_le(all[i]->count, LH_HISTOGRAM_BOUNDS_MAX);
        for (size_t j = 1; j < all[i]->count; j++)
            ck_assert_int_gt(all[i]->at[j], all[i]->at[j - 1]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("admin");
    TCase *tests = tcase_create("exposition");

    tcase_add_checked_fixture(tests, begin, end);
    tcase_add_test(tests, a_family_is_its_help_its_type_and_its_samples);
    tcase_add_test(tests, label_values_and_help_are_escaped);
    tcase_add_test(tests, seconds_are_exact_to_the_microsecond);
    tcase_add_test(tests, buckets_are_cumulative_and_the_last_is_the_count);
    tcase_add_test(tests, a_histogram_of_sizes_has_whole_numbers);
    tcase_add_test(tests, bounds_ascend);
    suite_add_tcase(suite, tests);
    return run_tests(suite, CK_FORK_GETENV);
}
