/* The client against the server of the same loop, and against servers that are none. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "certificates.h"
#include "rpc/client.h"
#include "test_rpc.h"

static struct lh_rpc_channel *channel;
static struct lh_rpc_channel_options options;
static struct lh_rpc_tls tls;
static int states[8];

/* One call and what came of it. */
struct answer {
    struct lh_rpc_client_call *call;
    struct lh_rpc_client_call *cancel_in_message;
    int done;
    int messages;
    size_t bytes;
    enum lh_grpc_code code;
    enum lh_rpc_delivery delivery;
    char message[256];
    char details[64];
    char reply[64];
    bool starts_another;
};

static int done_count;

static void on_state(void *arg, enum lh_rpc_channel_state state, const char *reason)
{
    ck_assert_ptr_nonnull(reason);
    states[state]++;
}

static void connect_to(const char *target)
{
    struct lh_error error;
    lh_rpc_channel_destroy(channel);
    channel = lh_rpc_channel_create(loop, target, &options, &error);
    ck_assert_msg(channel != NULL, "%s", error.message);
}

static void connect_to_port(int port)
{
    char target[64];
    snprintf(target, sizeof(target), "127.0.0.1:%d", port);
    connect_to(target);
}

static void setup(void)
{
    rpc_setup();
    memset(states, 0, sizeof(states));
    done_count = 0;
    lh_rpc_channel_options_init(&options);
    options.on_state = on_state;
    if (server_tls != NULL)
        options.tls = &tls;
    connect_to_port(rpc_port(server));
}

static void teardown(void)
{
    lh_rpc_channel_destroy(channel);
    channel = NULL;
    rpc_teardown();
}

static void on_done(void *arg, const struct lh_rpc_result *result);

static void start_unary(struct answer *answer, const char *path, const char *text, int64_t deadline_us)
{
    *answer = (struct answer){.starts_another = answer->starts_another};
    answer->call = lh_rpc_client_call_unary(channel, path, text, strlen(text), deadline_us, on_done, answer);
    ck_assert_ptr_nonnull(answer->call);
    ck_assert_int_eq(answer->done, 0);
}

static void on_done(void *arg, const struct lh_rpc_result *result)
{
    struct answer *answer = arg;

    ck_assert_int_eq(answer->done, 0);
    answer->done++;
    done_count++;
    answer->code = result->code;
    answer->delivery = result->delivery;
    snprintf(answer->message, sizeof(answer->message), "%s", result->message);
    if (result->details_size > 0 && result->details_size < sizeof(answer->details))
        memcpy(answer->details, result->details, result->details_size);
    if (result->reply_size < sizeof(answer->reply))
        memcpy(answer->reply, result->reply == NULL ? "" : result->reply, result->reply_size);
    answer->bytes += result->reply_size;
    if (answer->starts_another) {
        answer->starts_another = false;
        start_unary(answer, "/t.T/Echo", "another", LH_RPC_FOREVER);
    }
}

static void on_message(void *arg, const void *data, size_t size)
{
    struct answer *answer = arg;
    answer->messages++;
    answer->bytes += size;
    if (answer->cancel_in_message != NULL)
        lh_rpc_client_call_cancel(answer->cancel_in_message);
}

static const struct lh_rpc_stream_callbacks stream_callbacks = {.on_message = on_message, .on_done = on_done};

static void expect(const struct answer *answer, enum lh_grpc_code code, enum lh_rpc_delivery delivery)
{
    WAIT_FOR(answer->done == 1);
    ck_assert_msg(answer->code == code, "%s: %s", lh_grpc_code_name(answer->code), answer->message);
    ck_assert_int_eq(answer->delivery, delivery);
}

START_TEST(unary_call_is_answered)
{
    struct answer answer = {0};

    start_unary(&answer, "/t.T/Echo", "hello", lh_clock_us() + 10 * LH_US_PER_S);
    ck_assert_int_eq(lh_rpc_channel_state(channel), LH_RPC_CHANNEL_CONNECTING);
    expect(&answer, LH_GRPC_OK, LH_RPC_ANSWERED);
    ck_assert_str_eq(answer.reply, "hello");
    ck_assert_int_eq(lh_rpc_channel_state(channel), LH_RPC_CHANNEL_READY);
    start_unary(&answer, "/t.T/Echo", "", LH_RPC_FOREVER);
    expect(&answer, LH_GRPC_OK, LH_RPC_ANSWERED);
    ck_assert_uint_eq(answer.bytes, 0);
    ck_assert_int_eq(states[LH_RPC_CHANNEL_READY], 1);
}
END_TEST

START_TEST(error_comes_with_message_and_details)
{
    static const struct lh_rpc_metadata fail[] = {{"x-fail", "10"}};
    struct answer answer = {0};

    answer.call = lh_rpc_client_call_start(channel, "/t.T/Echo", LH_RPC_FOREVER, fail, 1, &stream_callbacks, &answer);
    ck_assert_int_eq(lh_rpc_client_call_send(answer.call, "x", 1), LH_OK);
    lh_rpc_client_call_half_close(answer.call);
    ck_assert_int_eq(lh_rpc_client_call_send(answer.call, "y", 1), LH_CANCELED);
    expect(&answer, LH_GRPC_ABORTED, LH_RPC_ANSWERED);
    ck_assert_str_eq(answer.message, "öö");
    ck_assert_str_eq(answer.details, "details");
    start_unary(&answer, "/t.T/Nothing", "x", LH_RPC_FOREVER);
    expect(&answer, LH_GRPC_UNIMPLEMENTED, LH_RPC_ANSWERED);
    ck_assert_str_eq(answer.details, "UNIMPLEMENTED");
}
END_TEST

START_TEST(refused_connection_is_not_sent)
{
    struct answer answer = {0};

    connect_to("unix:/nonexistent/socket");
    start_unary(&answer, "/t.T/Echo", "x", LH_RPC_FOREVER);
    expect(&answer, LH_GRPC_UNAVAILABLE, LH_RPC_NOT_SENT);
    ck_assert_int_eq(lh_rpc_channel_state(channel), LH_RPC_CHANNEL_IDLE);
    connect_to("127.0.0.1:1");
    start_unary(&answer, "/t.T/Echo", "x", LH_RPC_FOREVER);
    expect(&answer, LH_GRPC_UNAVAILABLE, LH_RPC_NOT_SENT);
    /* The next call tries again. */
    start_unary(&answer, "/t.T/Echo", "x", LH_RPC_FOREVER);
    expect(&answer, LH_GRPC_UNAVAILABLE, LH_RPC_NOT_SENT);
}
END_TEST

START_TEST(the_client_of_a_unix_socket_is_the_user_that_the_system_names)
{
    struct answer answer = {0};
    struct lh_error error;
    char target[64], principal[128];

    snprintf(target, sizeof(target), "unix:/tmp/lh-test-rpc-%d.sock", (int)getpid());
    snprintf(principal, sizeof(principal), "user:%s", getpwuid(geteuid())->pw_name);
    ck_assert_msg(rpc_listen(server, target, &error) == LH_OK, "%s", error.message);
    connect_to(target);
    start_unary(&answer, "/t.T/Never", "x", LH_RPC_FOREVER);
    WAIT_FOR(heard.messages == 1);
    ck_assert_str_eq(lh_rpc_call_principal(heard.last), principal);
    ck_assert_str_eq(lh_rpc_call_peer(heard.last), "unix:");
    lh_rpc_call_reply(heard.last, "x", 1);
    expect(&answer, LH_GRPC_OK, LH_RPC_ANSWERED);
}
END_TEST

START_TEST(addresses_that_are_none_are_refused)
{
    static const char *const bad[] = {
        "",         "localhost", ":1",        "127.0.0.1:", "127.0.0.1:65536",   "127.0.0.1:x",
        "::1:7420", "[::1]",     "[::1:7420", "unix:",      "http://127.0.0.1:1"};
    struct lh_error error;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(lh_rpc_channel_create(loop, bad[i], NULL, &error) == NULL, "taken: %s", bad[i]);
    ck_assert_int_eq(rpc_listen(server, "a.host:0", &error), LH_INVALID_ARGUMENT);
    ck_assert_int_ne(rpc_listen(server, "unix:/nonexistent/socket", &error), LH_OK);
}
END_TEST

START_TEST(connection_lost_in_flight_is_told_from_one_that_never_was)
{
    struct answer answer = {0};

    start_unary(&answer, "/t.T/Never", "x", LH_RPC_FOREVER);
    WAIT_FOR(heard.messages == 1);
    lh_rpc_server_destroy(server);
    expect(&answer, LH_GRPC_UNAVAILABLE, LH_RPC_IN_FLIGHT);
    WAIT_FOR(lh_rpc_channel_state(channel) == LH_RPC_CHANNEL_IDLE);
    start_unary(&answer, "/t.T/Never", "x", LH_RPC_FOREVER);
    expect(&answer, LH_GRPC_UNAVAILABLE, LH_RPC_NOT_SENT);
    server_start();
}
END_TEST

START_TEST(deadline_ends_a_call_here_and_there)
{
    struct answer answer = {0};

    virtual_clock_begin();
    /* Long enough that the server has it before it passes, however busy the machine is. */
    start_unary(&answer, "/t.T/Never", "x", lh_clock_us() + LH_US_PER_S);
    WAIT_FOR(answer.done == 1);
    ck_assert_int_eq(answer.code, LH_GRPC_DEADLINE_EXCEEDED);
    WAIT_FOR(ends_total() == 1);
    start_unary(&answer, "/t.T/Echo", "x", lh_clock_us() - 1);
    expect(&answer, LH_GRPC_DEADLINE_EXCEEDED, LH_RPC_NOT_SENT);
}
END_TEST

START_TEST(cancelled_call_is_answered_later_and_the_server_hears_of_it)
{
    struct answer answer = {0}, early = {0};

    start_unary(&early, "/t.T/Never", "x", LH_RPC_FOREVER);
    lh_rpc_client_call_cancel(early.call);
    ck_assert_int_eq(early.done, 0);
    expect(&early, LH_GRPC_CANCELLED, LH_RPC_NOT_SENT);
    start_unary(&answer, "/t.T/Never", "x", LH_RPC_FOREVER);
    WAIT_FOR(heard.messages == 1);
    lh_rpc_client_call_cancel(answer.call);
    lh_rpc_client_call_cancel(answer.call);
    ck_assert_int_eq(answer.done, 0);
    expect(&answer, LH_GRPC_CANCELLED, LH_RPC_IN_FLIGHT);
    WAIT_FOR(heard.ends[LH_RPC_END_CANCELED] == 1);
}
END_TEST

START_TEST(calls_may_be_made_and_cancelled_inside_of_callbacks)
{
    struct answer answer = {.starts_another = true}, victim = {0}, stream = {0};

    start_unary(&answer, "/t.T/Echo", "first", LH_RPC_FOREVER);
    WAIT_FOR(done_count == 2);
    ck_assert_str_eq(answer.reply, "another");
    start_unary(&victim, "/t.T/Never", "x", LH_RPC_FOREVER);
    stream.call = lh_rpc_client_call_start(channel, "/t.T/Bidi", LH_RPC_FOREVER, NULL, 0, &stream_callbacks, &stream);
    stream.cancel_in_message = victim.call;
    lh_rpc_client_call_send(stream.call, "x", 1);
    WAIT_FOR(victim.done == 1);
    ck_assert_int_eq(victim.code, LH_GRPC_CANCELLED);
    stream.cancel_in_message = stream.call; /* itself */
    lh_rpc_client_call_send(stream.call, "x", 1);
    lh_rpc_client_call_send(stream.call, "x", 1);
    expect(&stream, LH_GRPC_CANCELLED, LH_RPC_IN_FLIGHT);
    ck_assert_int_eq(stream.messages, 2);
}
END_TEST

START_TEST(stream_carries_messages_both_ways)
{
    struct answer answer = {0};
    static char big[300000];

    answer.call = lh_rpc_client_call_start(channel, "/t.T/Bidi", LH_RPC_FOREVER, NULL, 0, &stream_callbacks, &answer);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(lh_rpc_client_call_send(answer.call, big, sizeof(big)), LH_OK);
    ck_assert_uint_gt(lh_rpc_outbox_unsent(&answer.call->outbox), 2000000);
    WAIT_FOR(answer.messages == 10);
    lh_rpc_client_call_half_close(answer.call);
    expect(&answer, LH_GRPC_OK, LH_RPC_ANSWERED);
    ck_assert_uint_eq(answer.bytes, 10 * sizeof(big));
    ck_assert_str_eq(answer.message, "done");
}
END_TEST

START_TEST(more_calls_than_the_server_takes_at_once_wait_their_turn)
{
    enum { CALLS = 300 };
    static struct answer answers[CALLS];

    lh_rpc_server_destroy(server);
    server_options.max_streams = 7;
    server_start();
    connect_to_port(rpc_port(server));
    for (int i = 0; i < CALLS; i++) {
        answers[i] = (struct answer){0};
        start_unary(&answers[i], "/t.T/Echo", "x", LH_RPC_FOREVER);
    }
    for (int i = 0; i < CALLS; i++) {
        WAIT_FOR(answers[i].done == 1);
        /* Before the server's SETTINGS are known more may go out; those it must refuse unseen. */
        if (answers[i].code != LH_GRPC_OK)
            ck_assert_int_eq(answers[i].delivery, LH_RPC_NOT_SENT);
    }
    for (int i = 0; i < CALLS; i++)
        start_unary(&answers[i], "/t.T/Echo", "x", LH_RPC_FOREVER);
    for (int i = 0; i < CALLS; i++)
        expect(&answers[i], LH_GRPC_OK, LH_RPC_ANSWERED);
}
END_TEST

START_TEST(goaway_keeps_old_calls_and_sends_new_ones_elsewhere)
{
    struct answer old = {0}, fresh = {0};
    struct lh_rpc_server *old_server = server;
    int port = rpc_port(server);
    struct lh_error error;
    char address[64];

    start_unary(&old, "/t.T/Never", "x", LH_RPC_FOREVER);
    WAIT_FOR(heard.messages == 1);
    lh_rpc_server_drain(old_server, NULL, NULL, NULL);
    WAIT_FOR(lh_rpc_channel_state(channel) == LH_RPC_CHANNEL_DRAINING);
    server_start();
    snprintf(address, sizeof(address), "127.0.0.1:%d", port);
    ck_assert_int_eq(rpc_listen(server, address, &error), LH_OK);
    start_unary(&fresh, "/t.T/Echo", "new", LH_RPC_FOREVER);
    expect(&fresh, LH_GRPC_OK, LH_RPC_ANSWERED);
    lh_rpc_call_reply(heard.last, "old", 3);
    expect(&old, LH_GRPC_OK, LH_RPC_ANSWERED);
    ck_assert_str_eq(old.reply, "old");
    lh_rpc_server_destroy(old_server);
}
END_TEST

START_TEST(destroyed_channel_answers_what_is_open)
{
    struct answer answers[3] = {0};

    start_unary(&answers[0], "/t.T/Never", "x", LH_RPC_FOREVER);
    WAIT_FOR(heard.messages == 1);
    start_unary(&answers[1], "/t.T/Never", "x", lh_clock_us() + LH_US_PER_S);
    answers[1].starts_another = false;
    lh_rpc_channel_destroy(channel);
    channel = NULL;
    ck_assert_int_eq(answers[0].done, 1);
    ck_assert_int_eq(answers[0].code, LH_GRPC_CANCELLED);
    ck_assert_int_eq(answers[0].delivery, LH_RPC_IN_FLIGHT);
    ck_assert_int_eq(answers[1].done, 1);
    ck_assert_int_eq(answers[1].delivery, LH_RPC_NOT_SENT);
    WAIT_FOR(heard.ends[LH_RPC_END_DISCONNECTED] == 1);
}
END_TEST

START_TEST(calls_beyond_the_limit_are_refused_at_once)
{
    struct answer answers[3] = {0};

    options.max_calls = 2;
    connect_to_port(rpc_port(server));
    start_unary(&answers[0], "/t.T/Never", "x", LH_RPC_FOREVER);
    start_unary(&answers[1], "/t.T/Never", "x", LH_RPC_FOREVER);
    ck_assert_ptr_null(lh_rpc_client_call_unary(channel, "/t.T/Echo", "x", 1, LH_RPC_FOREVER, on_done, &answers[2]));
    lh_rpc_client_call_cancel(answers[0].call);
    WAIT_FOR(answers[0].done == 1);
    start_unary(&answers[2], "/t.T/Echo", "x", LH_RPC_FOREVER);
    expect(&answers[2], LH_GRPC_OK, LH_RPC_ANSWERED);
    lh_rpc_client_call_cancel(answers[1].call);
    expect(&answers[1], LH_GRPC_CANCELLED, LH_RPC_IN_FLIGHT);
}
END_TEST

START_TEST(reply_that_is_too_large_is_refused)
{
    struct answer answer = {0};
    char big[2000] = {0};

    options.max_message_bytes = 1000;
    connect_to_port(rpc_port(server));
    memset(big, 'b', sizeof(big) - 1);
    start_unary(&answer, "/t.T/Echo", big, LH_RPC_FOREVER);
    expect(&answer, LH_GRPC_RESOURCE_EXHAUSTED, LH_RPC_IN_FLIGHT);
    big[1000] = '\0';
    start_unary(&answer, "/t.T/Echo", big, LH_RPC_FOREVER);
    expect(&answer, LH_GRPC_OK, LH_RPC_ANSWERED);
    ck_assert_uint_eq(answer.bytes, 1000);
}
END_TEST

/* A listening socket that is no gRPC server. */
static int listen_plain(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, size), 0);
    ck_assert_int_eq(listen(fd, 5), 0);
    getsockname(fd, (struct sockaddr *)&at, &size);
    connect_to_port(ntohs(at.sin_port));
    return fd;
}

static int accept_plain(int listening)
{
    int64_t until_us = lh_clock_us() + PATIENCE_US;
    int fd = -1;

    while (fd < 0 && lh_clock_us() < until_us) {
        virtual_clock_turn(loop);
        fd = accept(listening, NULL, NULL);
    }
    ck_assert_int_ge(fd, 0);
    return fd;
}

START_TEST(server_that_speaks_something_else_ends_the_call)
{
    struct answer answer = {0};
    char request[1000];
    int listening = listen_plain(), fd;

    start_unary(&answer, "/t.T/Echo", "x", LH_RPC_FOREVER);
    fd = accept_plain(listening);
    WAIT_FOR(recv(fd, request, sizeof(request), MSG_PEEK | MSG_DONTWAIT) > 24); /* more than the preface */
    ck_assert_int_gt(send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, 0), 0);
    expect(&answer, LH_GRPC_UNAVAILABLE, LH_RPC_IN_FLIGHT);
    close(fd);
    close(listening);
}
END_TEST

/* SETTINGS, then for streams 1, 3 and 5: response headers, a message, trailers; then some bytes are changed. */
static size_t spoiled_answers(unsigned char *to)
{
    static const unsigned char settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
    static const unsigned char headers[] = {0, 0, 1, 1, 4, 0, 0, 0, 0, 0x88};
    static const unsigned char message[] = {0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 'o', 'k'};
    static const unsigned char trailers[] = {0,   0,   15,  1,   5,   0,   0,   0,   0,   0,   11, 'g',
                                             'r', 'p', 'c', '-', 's', 't', 'a', 't', 'u', 's', 1,  '0'};
    size_t size = sizeof(settings);

    memcpy(to, settings, size);
    for (unsigned char stream = 1; stream <= 5; stream = (unsigned char)(stream + 2)) {
        memcpy(to + size, headers, sizeof(headers));
        to[size + 8] = stream;
        size += sizeof(headers);
        memcpy(to + size, message, sizeof(message));
        to[size + 8] = stream;
        size += sizeof(message);
        memcpy(to + size, trailers, sizeof(trailers));
        to[size + 8] = stream;
        size += sizeof(trailers);
    }
    for (int spoils = rand() % 5; spoils > 0; spoils--)
        to[(size_t)rand() % size] = (unsigned char)rand();
    return size;
}

START_TEST(rubbish_from_a_server_answers_each_call_once)
{
    unsigned seed = getenv("RPC_FUZZ_SEED") != NULL ? (unsigned)atoi(getenv("RPC_FUZZ_SEED")) : (unsigned)lh_clock_us();
    int listening = listen_plain(), oks = 0;

    printf("seed %u\n", seed);
    fflush(stdout);
    srand(seed);
    for (int round = 0; round < 300; round++) {
        struct answer answers[3] = {0};
        unsigned char bytes[512];
        size_t size = spoiled_answers(bytes), cut = (size_t)rand() % size;
        int fd;

        for (int i = 0; i < 3; i++)
            start_unary(&answers[i], "/t.T/Echo", "x", LH_RPC_FOREVER);
        fd = accept_plain(listening);
        lh_loop_run_once(loop, 0);
        (void)!send(fd, bytes, cut, MSG_NOSIGNAL);
        virtual_clock_turn(loop);
        if (round % 5 != 0)
            (void)!send(fd, bytes + cut, size - cut, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        for (int i = 0; i < 3; i++)
            WAIT_FOR(answers[i].done == 1);
        for (int i = 0; i < 3; i++)
            oks += answers[i].code == LH_GRPC_OK;
        WAIT_FOR(lh_rpc_channel_state(channel) == LH_RPC_CHANNEL_IDLE);
        close(fd);
    }
    ck_assert_int_gt(oks, 50); /* it was nearly right: the unspoiled ones were understood */
    close(listening);
}
END_TEST

START_TEST(silent_server_is_found_by_ping)
{
    struct answer answer = {0};
    int listening, fd;

    options.keepalive_us = 20 * LH_US_PER_MS;
    listening = listen_plain();
    start_unary(&answer, "/t.T/Echo", "x", LH_RPC_FOREVER);
    fd = accept_plain(listening);
    expect(&answer, LH_GRPC_UNAVAILABLE, LH_RPC_IN_FLIGHT);
    close(fd);
    close(listening);
}
END_TEST

START_TEST(answering_server_is_not_taken_for_a_silent_one)
{
    struct answer answer = {0}, other = {0};

    virtual_clock_begin();
    options.keepalive_us = 300 * LH_US_PER_MS;
    connect_to_port(rpc_port(server));
    start_unary(&answer, "/t.T/Never", "x", lh_clock_us() + LH_US_PER_S);
    expect(&answer, LH_GRPC_DEADLINE_EXCEEDED, LH_RPC_IN_FLIGHT);
    start_unary(&other, "/t.T/Echo", "x", LH_RPC_FOREVER);
    expect(&other, LH_GRPC_OK, LH_RPC_ANSWERED);
    ck_assert_int_eq(states[LH_RPC_CHANNEL_READY], 1);
}
END_TEST

static void add_tests(TCase *tests)
{
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, unary_call_is_answered);
    tcase_add_test(tests, error_comes_with_message_and_details);
    tcase_add_test(tests, refused_connection_is_not_sent);
    tcase_add_test(tests, connection_lost_in_flight_is_told_from_one_that_never_was);
    tcase_add_test(tests, deadline_ends_a_call_here_and_there);
    tcase_add_test(tests, cancelled_call_is_answered_later_and_the_server_hears_of_it);
    tcase_add_test(tests, calls_may_be_made_and_cancelled_inside_of_callbacks);
    tcase_add_test(tests, stream_carries_messages_both_ways);
    tcase_add_test(tests, more_calls_than_the_server_takes_at_once_wait_their_turn);
    tcase_add_test(tests, goaway_keeps_old_calls_and_sends_new_ones_elsewhere);
    tcase_add_test(tests, destroyed_channel_answers_what_is_open);
    tcase_add_test(tests, calls_beyond_the_limit_are_refused_at_once);
    tcase_add_test(tests, reply_that_is_too_large_is_refused);
    tcase_add_test(tests, answering_server_is_not_taken_for_a_silent_one);
}

TCase *client_tests(void)
{
    TCase *tests = tcase_create("client");

    tcase_add_checked_fixture(tests, setup, teardown);
    add_tests(tests);
    tcase_add_test(tests, addresses_that_are_none_are_refused);
    tcase_add_test(tests, the_client_of_a_unix_socket_is_the_user_that_the_system_names);
    tcase_add_test(tests, server_that_speaks_something_else_ends_the_call);
    tcase_add_test(tests, rubbish_from_a_server_answers_each_call_once);
    tcase_add_test(tests, silent_server_is_found_by_ping);
    return tests;
}

static void secure_setup(void)
{
    rpc_secure(false);
    tls = (struct lh_rpc_tls){.ca_file = path_of("ca.pem")};
    setup();
}

static void secure_teardown(void)
{
    teardown();
    rpc_plain();
}

/* The same over TLS. */
TCase *secure_client_tests(void)
{
    TCase *tests = tcase_create("client-tls");

    tcase_add_checked_fixture(tests, secure_setup, secure_teardown);
    add_tests(tests);
    return tests;
}
