/* The bearer token of a channel: which file it comes from, when it is read, where it never goes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "rpc/client.h"
#include "test_rpc.h"

static struct lh_rpc_channel *channel;
static struct lh_rpc_channel_options options;
static char folder[64], file[96], warning[512];

static struct {
    int done;
    enum lh_grpc_code code;
    enum lh_rpc_delivery delivery;
    char message[512];
} answer;

static void write_file(const char *text)
{
    char whole[96];
    FILE *out;

    snprintf(whole, sizeof(whole), "%s/new", folder);
    out = fopen(whole, "w");
    ck_assert_ptr_nonnull(out);
    ck_assert_int_ge(fputs(text, out), 0);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_int_eq(rename(whole, file), 0);
}

static void setup(void)
{
    char target[64];

    rpc_setup();
    snprintf(folder, sizeof(folder), "/tmp/test-token-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/token", folder);
    lh_rpc_channel_options_init(&options);
    options.token_file = file;
    snprintf(target, sizeof(target), "127.0.0.1:%d", rpc_port(server));
    channel = lh_rpc_channel_create(loop, target, &options, NULL);
    ck_assert_ptr_nonnull(channel);
}

static void teardown(void)
{
    lh_rpc_channel_destroy(channel);
    channel = NULL;
    (void)!unlink(file);
    ck_assert_int_eq(rmdir(folder), 0);
    rpc_teardown();
}

static void on_done(void *arg, const struct lh_rpc_result *result)
{
    answer.done++;
    answer.code = result->code;
    answer.delivery = result->delivery;
    snprintf(answer.message, sizeof(answer.message), "%s", result->message);
}

static void call(void)
{
    answer.done = 0;
    ck_assert_ptr_nonnull(lh_rpc_client_call_unary(channel, "/t.T/Echo", "x", 1, LH_RPC_FOREVER, on_done, NULL));
    WAIT_FOR(answer.done == 1);
}

static bool sends(const char *authorization)
{
    call();
    ck_assert_msg(answer.code == LH_GRPC_OK, "%s", answer.message);
    return strcmp(heard.authorization, authorization) == 0;
}

START_TEST(token_goes_with_each_call_and_each_stream)
{
    static const struct lh_rpc_stream_callbacks callbacks = {.on_done = on_done};
    const struct lh_rpc_metadata own = {"x-own", "value"};
    struct lh_rpc_client_call *stream;

    write_file("first\n");
    ck_assert(sends("Bearer first"));
    heard.authorization[0] = '\0';
    ck_assert(sends("Bearer first"));
    heard.authorization[0] = '\0';
    answer.done = 0;
    stream = lh_rpc_client_call_start(channel, "/t.T/Bidi", LH_RPC_FOREVER, &own, 1, &callbacks, NULL);
    ck_assert_int_eq(lh_rpc_client_call_send(stream, "x", 1), LH_OK);
    WAIT_FOR(heard.authorization[0] != '\0');
    ck_assert_str_eq(heard.authorization, "Bearer first");
    lh_rpc_client_call_cancel(stream);
    WAIT_FOR(answer.done == 1);
}
END_TEST

START_TEST(file_that_changes_is_read_again_on_the_same_connection)
{
    virtual_clock_begin();
    write_file("first");
    ck_assert(sends("Bearer first"));
    write_file("second \r\n");
    virtual_clock_pass(LH_US_PER_S);
    WAIT_FOR(sends("Bearer second"));
}
END_TEST

static void on_line(void *arg, enum lh_log_level level, const char *line)
{
    snprintf(warning, sizeof(warning), "%s", line);
}

START_TEST(file_that_is_spoiled_later_leaves_the_old_token_in_force)
{
    virtual_clock_begin();
    write_file("first");
    ck_assert(sends("Bearer first"));
    write_file("");
    lh_log_set_level(LH_LOG_WARN);
    lh_log_set_sink(on_line, NULL);
    virtual_clock_pass(LH_US_PER_S);
    WAIT_FOR(sends("Bearer first") && warning[0] != '\0');
    ck_assert_ptr_nonnull(strstr(warning, "holds no token"));
    ck_assert_ptr_nonnull(strstr(warning, "the token that was read before stays in use"));
    write_file("second");
    virtual_clock_pass(LH_US_PER_S);
    WAIT_FOR(sends("Bearer second"));
}
END_TEST

static void expect_failure(const char *words)
{
    char whole[512];

    call();
    snprintf(whole, sizeof(whole), words, file);
    ck_assert_int_eq(answer.code, LH_GRPC_UNAUTHENTICATED);
    ck_assert_int_eq(answer.delivery, LH_RPC_NOT_SENT);
    ck_assert_str_eq(answer.message, whole);
}

START_TEST(file_that_holds_no_token_is_named_and_nothing_is_sent)
{
    static const char none[] =
        "the token file %s holds no token: one line of visible ASCII is expected, 1 to 4096 bytes";
    char large[4098];

    expect_failure("the token file %s cannot be opened: No such file or directory");
    write_file(" \n");
    expect_failure(none);
    write_file("two\nlines\n");
    expect_failure(none);
    write_file("smörgås");
    expect_failure(none);
    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    write_file(large);
    expect_failure(none);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(mkfifo(file, 0600), 0);
    expect_failure("the token file %s is not a regular file");
    ck_assert_int_eq(heard.messages, 0);
    write_file("first");
    ck_assert(sends("Bearer first"));
}
END_TEST

START_TEST(token_is_never_sent_in_plaintext_beyond_this_machine)
{
    static const struct lh_rpc_tls tls = {0};
    static const char *const local[] = {"127.1.2.3:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/nowhere"};
    static const char *const far[] = {"192.0.2.1:1", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1"};
    struct lh_rpc_channel *other;
    struct lh_error error;

    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++) {
        other = lh_rpc_channel_create(loop, local[i], &options, &error);
        ck_assert_msg(other != NULL, "%s", error.message);
        lh_rpc_channel_destroy(other);
    }
    for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
        options.tls = NULL;
        ck_assert_ptr_null(lh_rpc_channel_create(loop, far[i], &options, &error));
        ck_assert_int_eq(error.status, LH_INVALID_ARGUMENT);
        ck_assert_str_eq(error.field, "token_file");
        ck_assert_ptr_nonnull(strstr(error.message, "loopback addresses and unix sockets only"));
        options.tls = &tls;
        other = lh_rpc_channel_create(loop, far[i], &options, &error);
        ck_assert_msg(other != NULL, "%s", error.message);
        lh_rpc_channel_destroy(other);
    }
}
END_TEST

TCase *token_tests(void)
{
    TCase *tests = tcase_create("token");

    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, token_goes_with_each_call_and_each_stream);
    tcase_add_test(tests, file_that_changes_is_read_again_on_the_same_connection);
    tcase_add_test(tests, file_that_is_spoiled_later_leaves_the_old_token_in_force);
    tcase_add_test(tests, file_that_holds_no_token_is_named_and_nothing_is_sent);
    tcase_add_test(tests, token_is_never_sent_in_plaintext_beyond_this_machine);
    return tests;
}
