/* Traces without a collector: the header traceparent, and the ring of finished spans. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "run_tests.h"
#include "trace/trace_internal.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"
#define SOUND "00-" TRACE "-" SPAN "-01"

START_TEST(traceparent_is_read)
{
    static const uint8_t trace_id[] = {0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6,
                                       0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36};
    static const uint8_t span_id[] = {0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7};
    struct lh_traceparent parent;

    ck_assert(lh_traceparent_parse(SOUND, &parent));
    ck_assert_mem_eq(parent.trace_id, trace_id, sizeof(trace_id));
    ck_assert_mem_eq(parent.span_id, span_id, sizeof(span_id));
    ck_assert_uint_eq(parent.flags, LH_TRACE_SAMPLED);
    ck_assert(lh_traceparent_parse("00-" TRACE "-" SPAN "-02", &parent));
    ck_assert_uint_eq(parent.flags & LH_TRACE_SAMPLED, 0);
}
END_TEST

START_TEST(traceparent_of_a_later_version_is_read)
{
    struct lh_traceparent parent;

    ck_assert(lh_traceparent_parse("01-" TRACE "-" SPAN "-01", &parent));
    ck_assert(lh_traceparent_parse("cc-" TRACE "-" SPAN "-01-what-comes-later", &parent));
    ck_assert(lh_traceparent_parse("cc-" TRACE "-" SPAN "-01-", &parent));
    ck_assert(!lh_traceparent_parse("cc-" TRACE "-" SPAN "-01.what-comes-later", &parent));
}
END_TEST

START_TEST(traceparent_that_is_malformed_is_none)
{
    static const char *const broken[] = {
        "",
        "00",
        "00-" TRACE "-" SPAN "-0",
        "00-" TRACE "-" SPAN "-01-",
        "00-" TRACE "-" SPAN "-01 ",
        " 00-" TRACE "-" SPAN "-01",
        "ff-" TRACE "-" SPAN "-01",
        "0-" TRACE "-" SPAN "-001",
        "00-" TRACE "-" SPAN "-0g",
        "0G-" TRACE "-" SPAN "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
        "00-" TRACE "-00F067AA0BA902B7-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" TRACE "-0000000000000000-01",
        "00_" TRACE "-" SPAN "-01",
        "00-" TRACE "_" SPAN "-01",
        "00-" TRACE "-" SPAN "_01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-0" SPAN "-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473.-" SPAN "-01",
    };
    struct lh_traceparent parent;

    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
        ck_assert_msg(!lh_traceparent_parse(broken[i], &parent), "%s", broken[i]);
    for (size_t size = 0; size < strlen(SOUND); size++) {
        char *cut = strndup(SOUND, size);
        ck_assert(!lh_traceparent_parse(cut, &parent));
        free(cut);
    }
}
END_TEST

static void put(struct lh_span_ring *ring, int64_t number)
{
    struct lh_span span = {.name = "s", .start_us = number, .call = lh_alloc_zero(1, sizeof(struct lh_span_call))};
    lh_span_ring_put(ring, &span);
}

static void expect(const struct lh_span_ring *ring, int64_t first, size_t count)
{
    ck_assert_uint_eq(ring->count, count);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(lh_span_ring_at(ring, i)->start_us, first + (int64_t)i);
}

START_TEST(ring_keeps_the_oldest_spans_in_order)
{
    struct lh_span_ring ring;

    lh_span_ring_init(&ring, 4);
    for (int64_t number = 1; number <= 3; number++)
        put(&ring, number);
    lh_span_ring_remove(&ring, 2);
    for (int64_t number = 4; number <= 6; number++)
        put(&ring, number); /* around its end */
    expect(&ring, 3, 4);
    ck_assert_uint_eq(ring.dropped, 0);
    lh_span_ring_remove(&ring, 3);
    expect(&ring, 6, 1);
    lh_span_ring_finish(&ring);
}
END_TEST

START_TEST(ring_that_is_full_drops_and_counts)
{
    struct lh_span_ring ring;

    lh_span_ring_init(&ring, 2);
    for (int64_t number = 1; number <= 5; number++)
        put(&ring, number);
    expect(&ring, 1, 2);
    ck_assert_uint_eq(ring.dropped, 3);
    lh_span_ring_remove(&ring, 1);
    put(&ring, 3);
    put(&ring, 4);
    expect(&ring, 2, 2);
    ck_assert_uint_eq(ring.dropped, 4);
    lh_span_ring_finish(&ring);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trace");
    TCase *traceparent = tcase_create("traceparent"), *ring = tcase_create("ring");

    tcase_add_test(traceparent, traceparent_is_read);
    tcase_add_test(traceparent, traceparent_of_a_later_version_is_read);
    tcase_add_test(traceparent, traceparent_that_is_malformed_is_none);
    suite_add_tcase(suite, traceparent);
    tcase_add_test(ring, ring_keeps_the_oldest_spans_in_order);
    tcase_add_test(ring, ring_that_is_full_drops_and_counts);
    suite_add_tcase(suite, ring);
    return run_tests(suite, CK_FORK_GETENV);
}
