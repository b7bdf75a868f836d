/* Messages in and out of their frames, without a connection. */
#include <string.h>

#include "rpc/frame.h"
#include "rpc/recycle.h"
#include "test_rpc.h"

static struct rpc_pool pool;

static void setup(void)
{
    lh_rpc_pool_init(&pool);
}

static void teardown(void)
{
    lh_rpc_pool_finish(&pool);
}

/* Feed one piece; append each complete message to `out`, followed by '|'. */
static enum rpc_inbox_result feed(struct rpc_inbox *inbox, const unsigned char *data, size_t size,
                                  struct lh_buffer *out)
{
    for (;;) {
        const unsigned char *message;
        size_t message_size;
        enum rpc_inbox_result result = lh_rpc_inbox_next(inbox, &pool, 100, &data, &size, &message, &message_size);
        if (result != RPC_INBOX_MESSAGE)
            return result;
        lh_buffer_append(out, message, message_size);
        lh_buffer_append(out, "|", 1);
    }
}

static struct lh_buffer framed(const char *const *messages)
{
    struct rpc_outbox outbox = {0};
    for (; *messages != NULL; messages++)
        lh_rpc_outbox_put(&outbox, &pool, *messages, strlen(*messages));
    return outbox.bytes;
}

START_TEST(messages_survive_any_two_cuts)
{
    static const char *const messages[] = {"one", "", "three33", "", NULL};
    static const char wanted[] = "one||three33||";
    struct lh_buffer bytes = framed(messages);

    for (size_t first = 0; first <= bytes.size; first++) {
        for (size_t second = first; second <= bytes.size; second++) {
            struct rpc_inbox inbox = {0};
            struct lh_buffer out = {0};
            ck_assert_int_eq(feed(&inbox, bytes.data, first, &out), RPC_INBOX_MORE);
            ck_assert_int_eq(feed(&inbox, bytes.data + first, second - first, &out), RPC_INBOX_MORE);
            ck_assert_int_eq(feed(&inbox, bytes.data + second, bytes.size - second, &out), RPC_INBOX_MORE);
            ck_assert_uint_eq(out.size, strlen(wanted));
            ck_assert_mem_eq(out.data, wanted, out.size);
            ck_assert(lh_rpc_inbox_is_between(&inbox));
            lh_rpc_inbox_finish(&inbox, &pool);
            lh_buffer_finish(&out);
        }
    }
    lh_buffer_finish(&bytes);
}
END_TEST

START_TEST(messages_survive_byte_by_byte)
{
    static const char *const messages[] = {"alpha", "", "omega", NULL};
    struct lh_buffer bytes = framed(messages), out = {0};
    struct rpc_inbox inbox = {0};

    for (size_t i = 0; i < bytes.size; i++)
        ck_assert_int_eq(feed(&inbox, bytes.data + i, 1, &out), RPC_INBOX_MORE);
    ck_assert_uint_eq(out.size, 13);
    ck_assert_mem_eq(out.data, "alpha||omega|", 13);
    lh_rpc_inbox_finish(&inbox, &pool);
    lh_buffer_finish(&bytes);
    lh_buffer_finish(&out);
}
END_TEST

START_TEST(length_is_judged_by_the_prefix_before_anything_is_kept)
{
    static const unsigned char at_limit[] = {0, 0, 0, 0, 100};
    static const unsigned char beyond[] = {0, 0, 0, 0, 101};
    static const unsigned char enormous[] = {0, 0xff, 0xff, 0xff, 0xff};
    struct rpc_inbox inbox = {0};
    struct lh_buffer out = {0};

    ck_assert_int_eq(feed(&inbox, at_limit, 5, &out), RPC_INBOX_MORE);
    ck_assert(!lh_rpc_inbox_is_between(&inbox));
    lh_rpc_inbox_finish(&inbox, &pool);
    ck_assert_int_eq(feed(&inbox, beyond, 5, &out), RPC_INBOX_TOO_LARGE);
    ck_assert_ptr_null(inbox.partial.data);
    lh_rpc_inbox_finish(&inbox, &pool);
    ck_assert_int_eq(feed(&inbox, enormous, 5, &out), RPC_INBOX_TOO_LARGE);
    ck_assert_uint_eq(inbox.message_bytes, 0xffffffff);
    lh_rpc_inbox_finish(&inbox, &pool);
}
END_TEST

START_TEST(flags_other_than_zero_are_no_plain_message)
{
    for (unsigned flag = 1; flag < 256; flag++) {
        unsigned char prefix[] = {(unsigned char)flag, 0, 0, 0, 0};
        struct rpc_inbox inbox = {0};
        struct lh_buffer out = {0};
        ck_assert_int_eq(feed(&inbox, prefix, 5, &out), RPC_INBOX_COMPRESSED);
        lh_rpc_inbox_finish(&inbox, &pool);
    }
}
END_TEST

START_TEST(outbox_gives_what_was_put_in_while_it_is_emptied)
{
    struct rpc_outbox outbox = {0};
    struct rpc_inbox inbox = {0};
    struct lh_buffer out = {0};
    unsigned char piece[7];
    size_t taken, puts = 0;

    do {
        if (puts < 500) {
            lh_rpc_outbox_put(&outbox, &pool, "12345678", puts % 9);
            puts++;
        }
        taken = lh_rpc_outbox_take(&outbox, &pool, piece, sizeof(piece));
        ck_assert_int_eq(feed(&inbox, piece, taken, &out), RPC_INBOX_MORE);
        ck_assert_uint_le(outbox.bytes.capacity, 16 * 1024);
    } while (lh_rpc_outbox_unsent(&outbox) > 0);
    for (size_t i = 0, at = 0; i < puts; at += i % 9 + 1, i++) {
        ck_assert_mem_eq(out.data + at, "12345678", i % 9);
        ck_assert_int_eq(out.data[at + i % 9], '|');
    }
    lh_rpc_inbox_finish(&inbox, &pool);
    lh_rpc_outbox_finish(&outbox, &pool);
    lh_buffer_finish(&out);
}
END_TEST

START_TEST(spares_are_used_again_and_large_buffers_are_not_kept)
{
    struct lh_buffer small = {0}, large = {0}, again = {0};
    unsigned char *memory;

    lh_buffer_append(&small, "x", 1);
    memory = small.data;
    lh_rpc_pool_give(&pool, &small);
    ck_assert_ptr_null(small.data);
    lh_buffer_reserve(&large, 1 << 20);
    lh_rpc_pool_give(&pool, &large);
    ck_assert_uint_eq(pool.spare_count, 1);
    lh_rpc_pool_take(&pool, &again);
    ck_assert_ptr_eq(again.data, memory);
    ck_assert_uint_eq(again.size, 0);
    lh_buffer_finish(&again);
}
END_TEST

START_TEST(blocks_of_nghttp2_are_used_again)
{
    struct rpc_recycle recycle;
    unsigned char *first, *again, *large;

    lh_rpc_recycle_init(&recycle);
    first = recycle.mem.malloc(100, &recycle);
    memset(first, 0xff, 100);
    recycle.mem.free(first, &recycle);
    recycle.mem.free(NULL, &recycle);
    again = recycle.mem.calloc(1, 97, &recycle);
    ck_assert_ptr_eq(again, first);
    for (int i = 0; i < 97; i++)
        ck_assert_int_eq(again[i], 0);
    again = recycle.mem.realloc(again, 5000, &recycle);
    large = recycle.mem.malloc(100000, &recycle);
    memset(large, 1, 100000);
    recycle.mem.free(large, &recycle);
    recycle.mem.free(again, &recycle);
    ck_assert_ptr_null(recycle.mem.calloc(SIZE_MAX / 2, 3, &recycle));
    for (size_t size = 1; size <= 600; size++) {
        unsigned char *block = recycle.mem.malloc(size, &recycle);
        memset(block, 2, size);
        recycle.mem.free(block, &recycle);
    }
    lh_rpc_recycle_finish(&recycle);
}
END_TEST

TCase *frame_tests(void)
{
    TCase *tests = tcase_create("frame");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, messages_survive_any_two_cuts);
    tcase_add_test(tests, messages_survive_byte_by_byte);
    tcase_add_test(tests, length_is_judged_by_the_prefix_before_anything_is_kept);
    tcase_add_test(tests, flags_other_than_zero_are_no_plain_message);
    tcase_add_test(tests, outbox_gives_what_was_put_in_while_it_is_emptied);
    tcase_add_test(tests, spares_are_used_again_and_large_buffers_are_not_kept);
    tcase_add_test(tests, blocks_of_nghttp2_are_used_again);
    return tests;
}
