/* What TLS adds: who is let in, what the client hears where it is not, how long a connection lasts. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "certificates.h"
#include "rpc/client.h"
#include "test_rpc.h"
#include "tls/context.h"
#include "tls/session.h"

static struct lh_rpc_channel *channel;
static struct lh_rpc_tls tls;

static struct {
    int done;
    enum lh_grpc_code code;
    enum lh_rpc_delivery delivery;
    char message[512];
} answer;

static void connect_channel(const struct lh_rpc_tls *with)
{
    struct lh_rpc_channel_options options;
    struct lh_error error;
    char target[64];

    lh_rpc_channel_options_init(&options);
    options.tls = with;
    snprintf(target, sizeof(target), "127.0.0.1:%d", rpc_port(server));
    lh_rpc_channel_destroy(channel);
    channel = lh_rpc_channel_create(loop, target, &options, &error);
    ck_assert_msg(channel != NULL, "%s", error.message);
}

static void setup(void)
{
    rpc_secure(true);
    make_certificate(&(struct certificate){.name = "worker", .issuer = "ca", .san = "DNS:worker"});
    tls = (struct lh_rpc_tls){
        .ca_file = path_of("ca.pem"), .cert_file = path_of("worker.pem"), .key_file = path_of("worker.key")};
    rpc_setup();
}

static void teardown(void)
{
    lh_rpc_channel_destroy(channel);
    channel = NULL;
    rpc_teardown();
    rpc_plain();
}

static void on_done(void *arg, const struct lh_rpc_result *result)
{
    answer.done++;
    answer.code = result->code;
    answer.delivery = result->delivery;
    snprintf(answer.message, sizeof(answer.message), "%s", result->message);
}

static void call(const char *path)
{
    memset(&answer, 0, sizeof(answer));
    ck_assert_ptr_nonnull(lh_rpc_client_call_unary(channel, path, "x", 1, LH_RPC_FOREVER, on_done, NULL));
}

static void expect_done(enum lh_grpc_code code, enum lh_rpc_delivery delivery, const char *words)
{
    WAIT_FOR(answer.done == 1);
    ck_assert_msg(answer.code == code && answer.delivery == delivery && strstr(answer.message, words) != NULL,
                  "%s delivery=%d '%s' instead of '%s'", lh_grpc_code_name((int)answer.code), answer.delivery,
                  answer.message, words);
}

static void expect_echo(void)
{
    call("/t.T/Echo");
    expect_done(LH_GRPC_OK, LH_RPC_ANSWERED, "");
}

static void expect_refusal(const char *words)
{
    call("/t.T/Echo");
    expect_done(LH_GRPC_UNAUTHENTICATED, LH_RPC_NOT_SENT, words);
    ck_assert_int_eq(heard.messages, 0);
}

START_TEST(a_call_knows_the_principal_of_its_connection)
{
    connect_channel(&tls);
    call("/t.T/Never");
    WAIT_FOR(heard.last != NULL);
    ck_assert_str_eq(lh_rpc_call_principal(heard.last), "dns:worker");
}
END_TEST

static struct {
    int lines;
    char last[256];
} logged;

static void note_line(void *arg, enum lh_log_level level, const char *line)
{
    if (strstr(line, "certificate has no") == NULL)
        return;
    logged.lines++;
    snprintf(logged.last, sizeof(logged.last), "%s", line);
}

START_TEST(a_certificate_without_a_usable_name_is_anonymous_and_logged_once)
{
    memset(&logged, 0, sizeof(logged));
    lh_log_set_level(LH_LOG_WARN);
    lh_log_set_sink(note_line, NULL);
    make_certificate(&(struct certificate){.name = "worker", .issuer = "ca", .san = "IP:127.0.0.1"});
    connect_channel(&tls);
    for (int i = 1; i <= 2; i++) {
        call("/t.T/Never");
        WAIT_FOR(heard.messages == i);
        ck_assert_str_eq(lh_rpc_call_principal(heard.last), "anonymous");
    }
    lh_log_set_sink(NULL, NULL);
    lh_log_set_level(LH_LOG_ERROR);
    ck_assert_int_eq(logged.lines, 1);
    ck_assert_ptr_nonnull(strstr(logged.last, "the client is anonymous peer=127.0.0.1:"));
}
END_TEST

START_TEST(a_certificate_that_the_server_refuses_ends_calls_before_they_are_sent)
{
    struct lh_rpc_tls none = {.ca_file = path_of("ca.pem")};

    connect_channel(&none);
    expect_refusal("the server wants a certificate, and none was shown");
    make_certificate(&(struct certificate){.name = "worker", .issuer = "ca", .begins_s = -2 * DAY_S, .ends_s = -DAY_S});
    connect_channel(&tls);
    expect_refusal("the server refuses our certificate: it has expired");
}
END_TEST

START_TEST(a_server_that_is_not_believed_gets_no_call)
{
    struct lh_rpc_tls other = tls;

    other.server_name = "leases.example";
    connect_channel(&other);
    expect_refusal("the server's certificate is for 127.0.0.1, not for leases.example");
    make_certificate(&(struct certificate){.name = "other-ca"});
    other = tls;
    other.ca_file = path_of("other-ca.pem");
    connect_channel(&other);
    expect_refusal("is not signed by an authority of /tmp/");
}
END_TEST

START_TEST(files_are_read_for_each_attempt)
{
    struct lh_rpc_tls late = tls;

    late.cert_file = path_of("late.pem");
    late.key_file = path_of("late.key");
    connect_channel(&late);
    expect_refusal("late.pem: cannot be opened: No such file or directory");
    make_certificate(&(struct certificate){.name = "late", .issuer = "ca", .san = "DNS:late"});
    expect_echo();
}
END_TEST

START_TEST(a_side_with_tls_and_one_without_hear_of_each_other)
{
    connect_channel(NULL);
    call("/t.T/Echo");
    expect_done(LH_GRPC_UNAVAILABLE, LH_RPC_NOT_SENT, "it expects TLS");
    lh_rpc_server_destroy(server);
    lh_tls_context_release(server_tls);
    server_tls = NULL;
    server_start();
    connect_channel(&tls);
    call("/t.T/Echo");
    expect_done(LH_GRPC_UNAVAILABLE, LH_RPC_NOT_SENT, "the server speaks without TLS");
}
END_TEST

START_TEST(an_aged_connection_ends_with_its_last_call)
{
    struct lh_rpc_server_stats stats;

    lh_rpc_server_destroy(server);
    server_options.max_age_us = 50 * LH_US_PER_MS;
    server_options.drain_notice_us = LH_US_PER_MS;
    server_options.stall_timeout_us = 20 * LH_US_PER_MS; /* how often it looks */
    server_start();
    connect_channel(&tls);
    call("/t.T/Never");
    WAIT_FOR(lh_rpc_channel_state(channel) == LH_RPC_CHANNEL_DRAINING);
    ck_assert_int_eq(answer.done, 0);
    lh_rpc_call_reply(heard.last, "late", 4);
    expect_done(LH_GRPC_OK, LH_RPC_ANSWERED, "");
    WAIT_FOR((lh_rpc_server_stats(server, &stats), stats.connections == 0));
    ck_assert_uint_eq(stats.sent_away[LH_RPC_AWAY_AGED], 1);
    expect_echo();
}
END_TEST

START_TEST(a_connection_ends_with_its_certificate_whatever_goes_on)
{
    struct lh_rpc_server_stats stats;

    virtual_clock_begin();
    make_certificate(&(struct certificate){.name = "worker", .issuer = "ca", .san = "DNS:worker", .ends_s = 2});
    connect_channel(&tls);
    call("/t.T/Never");
    expect_done(LH_GRPC_UNAVAILABLE, LH_RPC_IN_FLIGHT, "");
    lh_rpc_server_stats(server, &stats);
    ck_assert_uint_eq(stats.sent_away[LH_RPC_AWAY_CERTIFICATE], 1);
}
END_TEST

START_TEST(handshakes_that_fail_or_never_end_leave_nothing_behind)
{
    struct lh_rpc_server_stats stats;
    char byte;
    int fd;

    lh_rpc_server_destroy(server);
    server_options.handshake_timeout_us = 50 * LH_US_PER_MS;
    server_start();
    fd = raw_connect();
    WAIT_FOR((lh_rpc_server_stats(server, &stats), stats.sent_away[LH_RPC_AWAY_NO_PREFACE] == 1));
    close(fd);
    fd = raw_connect();
    ck_assert_int_eq(write(fd, "GET / HTTP/1.1\r\n\r\n", 18), 18);
    WAIT_FOR((lh_rpc_server_stats(server, &stats), stats.sent_away[LH_RPC_AWAY_TLS] == 1));
    close(fd);
    fd = raw_connect();
    WAIT_FOR((lh_rpc_server_stats(server, &stats), stats.handshakes == 1));
    lh_rpc_server_drain(server, NULL, NULL, NULL);
    WAIT_FOR(recv(fd, &byte, 1, MSG_DONTWAIT) == 0);
    close(fd);
    lh_rpc_server_stats(server, &stats);
    ck_assert_uint_eq(stats.connections, 0);
}
END_TEST

/* A raw client whose bytes go through TLS. */
static struct lh_tls_session *secure(struct raw *raw)
{
    const struct lh_tls_client_options options = {
        .ca_file = tls.ca_file, .cert_file = tls.cert_file, .key_file = tls.key_file, .protocol = "h2"};
    struct lh_error error;
    struct lh_tls_context *context = lh_tls_client_context_create(&options, &error);
    struct lh_tls_session *session = lh_tls_session_create(context, raw->fd, "127.0.0.1");
    int room = 1 << 20;

    fcntl(raw->fd, F_SETFL, O_NONBLOCK);
    setsockopt(raw->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    lh_tls_context_release(context);
    WAIT_FOR(lh_tls_session_handshake(session) == LH_TLS_DONE);
    return session;
}

static void write_all(struct raw *raw, struct lh_tls_session *session)
{
    size_t at = 0;

    raw_collect(raw);
    while (at < raw->out.size) {
        ssize_t size = lh_tls_session_write(session, raw->out.data + at, raw->out.size - at);
        ck_assert_msg(size > 0 || errno == EAGAIN, "%s", lh_tls_session_failure(session));
        if (size < 0)
            lh_loop_run_once(loop, 0);
        at += size > 0 ? (size_t)size : 0;
    }
    raw->out.size = 0;
}

static void read_all(struct raw *raw, struct lh_tls_session *session)
{
    unsigned char bytes[4096];
    ssize_t size;

    while ((size = lh_tls_session_read(session, bytes, sizeof(bytes))) > 0)
        ck_assert_int_eq(nghttp2_session_mem_recv(raw->session, bytes, (size_t)size), size);
    write_all(raw, session);
}

/* Turns end after 16 KiB and three times 64 KiB: then TLS may have read what the socket does not show any more. */
START_TEST(what_tls_has_read_ahead_is_not_forgotten_at_the_end_of_a_turn)
{
    size_t taken = 16384 + 3 * 65536;

    for (size_t size = taken - 256; size < taken + 256; size += 32) {
        char *text = lh_alloc_zero(size + 1, 1);
        struct raw raw;
        struct lh_tls_session *session;
        struct lh_rpc_server_stats stats;
        int32_t stream;

        memset(text, 'x', size);
        raw_open(&raw);
        session = secure(&raw);
        stream = raw_call(&raw, "/t.T/Echo", NULL);
        write_all(&raw, session);
        WAIT_FOR((lh_rpc_server_stats(server, &stats), stats.handshakes == 0));
        read_all(&raw, session);
        raw_message(&raw, stream, text, true);
        write_all(&raw, session);
        WAIT_FOR(heard.messages == 1);
        heard.messages = 0;
        lh_tls_session_destroy(session);
        raw_close(&raw);
        free(text);
    }
}
END_TEST

TCase *tls_tests(void)
{
    TCase *tests = tcase_create("tls");

    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_call_knows_the_principal_of_its_connection);
    tcase_add_test(tests, a_certificate_without_a_usable_name_is_anonymous_and_logged_once);
    tcase_add_test(tests, a_certificate_that_the_server_refuses_ends_calls_before_they_are_sent);
    tcase_add_test(tests, a_server_that_is_not_believed_gets_no_call);
    tcase_add_test(tests, files_are_read_for_each_attempt);
    tcase_add_test(tests, a_side_with_tls_and_one_without_hear_of_each_other);
    tcase_add_test(tests, an_aged_connection_ends_with_its_last_call);
    tcase_add_test(tests, a_connection_ends_with_its_certificate_whatever_goes_on);
    tcase_add_test(tests, handshakes_that_fail_or_never_end_leave_nothing_behind);
    tcase_add_test(tests, what_tls_has_read_ahead_is_not_forgotten_at_the_end_of_a_turn);
    return tests;
}
