/*
 * Both sides of a TLS session over a socket pair, with certificates that the test makes: what is accepted, what is
 * refused, and what each side says of it.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "certificates.h"
#include "run_tests.h"
#include "tls/context.h"
#include "tls/session.h"

struct side {
    struct lh_tls_session *session;
    enum lh_tls_progress progress;
    int fd;
};

static struct side server, client;
static struct lh_error error;

/* What OpenSSL keeps for a server's session, as far as it comes and goes in the server's steps. */
static bool is_servers_step;
static int64_t kept_bytes, most_bytes;

static void count(int64_t bytes)
{
    kept_bytes += is_servers_step ? bytes : 0;
    if (kept_bytes > most_bytes)
        most_bytes = kept_bytes;
}

static void *counted_malloc(size_t size, const char *file, int line)
{
    void *memory = malloc(size);
    count((int64_t)malloc_usable_size(memory));
    return memory;
}

static void *counted_realloc(void *memory, size_t size, const char *file, int line)
{
    count(-(int64_t)malloc_usable_size(memory));
    memory = realloc(memory, size);
    count((int64_t)malloc_usable_size(memory));
    return memory;
}

static void counted_free(void *memory, const char *file, int line)
{
    count(-(int64_t)malloc_usable_size(memory));
    free(memory);
}

static void write_text(const char *file, const char *text)
{
    FILE *stream = fopen(path_of(file), "w");

    fputs(text, stream);
    fclose(stream);
}

static void setup(void)
{
    certificates_setup();
    make_certificate(&(struct certificate){.name = "server", .issuer = "ca", .san = "DNS:localhost,IP:127.0.0.1"});
    make_certificate(&(struct certificate){.name = "worker", .issuer = "ca", .san = "DNS:worker-1.example"});
    memset(&error, 0, sizeof(error));
}

static void disconnect(void)
{
    struct side *sides[] = {&server, &client};

    for (size_t i = 0; i < 2; i++) {
        if (sides[i]->session == NULL)
            continue;
        lh_tls_session_destroy(sides[i]->session);
        close(sides[i]->fd);
        sides[i]->session = NULL;
    }
}

static void teardown(void)
{
    disconnect();
    certificates_teardown();
}

static struct lh_tls_server_options server_of(const char *name)
{
    static char cert[64], key[64];

    snprintf(cert, sizeof(cert), "%s.pem", name);
    snprintf(key, sizeof(key), "%s.key", name);
    return (struct lh_tls_server_options){
        .cert_file = path_of(cert), .key_file = path_of(key), .client_ca_file = path_of("ca.pem"), .protocol = "h2"};
}

static struct lh_tls_client_options client_of(const char *name)
{
    static char cert[64], key[64];
    struct lh_tls_client_options options = {.ca_file = path_of("ca.pem"), .protocol = "h2"};

    if (name == NULL)
        return options;
    snprintf(cert, sizeof(cert), "%s.pem", name);
    snprintf(key, sizeof(key), "%s.key", name);
    options.cert_file = path_of(cert);
    options.key_file = path_of(key);
    return options;
}

static void connect_sides(const struct lh_tls_server_options *of_server, const struct lh_tls_client_options *of_client,
                          const char *name)
{
    struct lh_tls_context *server_context = lh_tls_server_context_create(of_server, &error);
    struct lh_tls_context *client_context = lh_tls_client_context_create(of_client, &error);
    int fds[2];

    ck_assert_msg(server_context != NULL && client_context != NULL, "%s", error.message);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    is_servers_step = true;
    kept_bytes = most_bytes = 0;
    server = (struct side){lh_tls_session_create(server_context, fds[0], NULL), LH_TLS_WANTS_READ, fds[0]};
    is_servers_step = false;
    client = (struct side){lh_tls_session_create(client_context, fds[1], name), LH_TLS_WANTS_READ, fds[1]};
    lh_tls_context_release(server_context);
    lh_tls_context_release(client_context);
}

static void step(struct side *side)
{
    is_servers_step = side == &server;
    if (side->progress == LH_TLS_WANTS_READ || side->progress == LH_TLS_WANTS_WRITE)
        side->progress = lh_tls_session_handshake(side->session);
    is_servers_step = false;
}

/* Both sides in turn; a client that is done may hear only in a read that the server is not. */
static void shake_hands(void)
{
    char byte;

    for (int i = 0; i < 10; i++) {
        step(&client);
        step(&server);
    }
    if (client.progress == LH_TLS_DONE)
        ck_assert_int_le(lh_tls_session_read(client.session, &byte, 1), 0);
}

static void expect_agreement(const struct lh_tls_server_options *of_server,
                             const struct lh_tls_client_options *of_client, const char *name)
{
    connect_sides(of_server, of_client, name);
    shake_hands();
    ck_assert_msg(client.progress == LH_TLS_DONE, "client: %s", lh_tls_session_failure(client.session));
    ck_assert_msg(server.progress == LH_TLS_DONE, "server: %s", lh_tls_session_failure(server.session));
}

static void expect_words(const struct side *side, enum lh_tls_fault fault, const char *words)
{
    const char *failure = lh_tls_session_failure(side->session);

    ck_assert_msg(strstr(failure, words) != NULL, "'%s' does not say '%s'", failure, words);
    ck_assert_int_eq(lh_tls_session_fault(side->session), fault);
}

static void expect_refusal(const struct lh_tls_server_options *of_server, const struct lh_tls_client_options *of_client,
                           const char *name, const char *server_words, const char *client_words)
{
    connect_sides(of_server, of_client, name);
    shake_hands();
    ck_assert_int_ne(server.progress, LH_TLS_DONE);
    expect_words(&server, LH_TLS_FAULT_CERTIFICATE, server_words);
    expect_words(&client, LH_TLS_FAULT_CERTIFICATE, client_words);
}

START_TEST(both_sides_know_each_other_and_bytes_pass)
{
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client = client_of("worker");
    size_t size = 100000, at = 0;
    char *sent = malloc(size), *got = malloc(size);

    of_server.needs_client_cert = true;
    expect_agreement(&of_server, &of_client, "localhost");
    ck_assert_str_eq(lh_tls_session_principal(server.session), "dns:worker-1.example");
    ck_assert_int_ge(lh_tls_session_not_after_s(server.session), (int64_t)time(NULL) + DAY_S - 60);
    ck_assert_str_eq(lh_tls_session_failure(server.session), "");

    for (size_t i = 0; i < size; i++)
        sent[i] = (char)(i * 7);
    for (size_t written = 0; at < size;) {
        ssize_t done = written < size ? lh_tls_session_write(client.session, sent + written, size - written) : 0;
        written += done > 0 ? (size_t)done : 0;
        done = lh_tls_session_read(server.session, got + at, size - at);
        ck_assert(done > 0 || (done < 0 && errno == EAGAIN));
        at += done > 0 ? (size_t)done : 0;
    }
    ck_assert_mem_eq(sent, got, size);
    free(sent);
    free(got);
}
END_TEST

START_TEST(what_was_read_ahead_is_told)
{
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client = client_of(NULL);
    char byte[4];

    expect_agreement(&of_server, &of_client, "localhost");
    ck_assert_int_eq(lh_tls_session_write(client.session, "abcd", 4), 4);
    ck_assert_int_eq(lh_tls_session_write(client.session, "ef", 2), 2);
    ck_assert_int_eq(lh_tls_session_read(server.session, byte, 3), 3);
    ck_assert(lh_tls_session_has_input(server.session));
    ck_assert_int_eq(lh_tls_session_read(server.session, byte, 4), 3);
    ck_assert(!lh_tls_session_has_input(server.session));
    ck_assert_int_eq(lh_tls_session_read(server.session, byte, 1), -1);
    ck_assert_int_eq(errno, EAGAIN);

    lh_tls_session_write(client.session, "g", 1);
    lh_tls_session_close(client.session);
    ck_assert_int_eq(lh_tls_session_read(server.session, byte, 4), 1);
    ck_assert_msg(lh_tls_session_has_input(server.session), "the end is input that the socket does not show");
    ck_assert_int_eq(lh_tls_session_read(server.session, byte, 4), 0);
}
END_TEST

START_TEST(a_server_is_known_by_its_ip_address_too)
{
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client = client_of(NULL);

    expect_agreement(&of_server, &of_client, "127.0.0.1");
    ck_assert_ptr_null(lh_tls_session_principal(server.session));
    ck_assert_int_eq(lh_tls_session_not_after_s(server.session), 0);
}
END_TEST

static const struct {
    const char *san;
    const char *principal;
} principals[] = {
    {"URI:spiffe://example.org/worker", "spiffe://example.org/worker"},
    {"DNS:a.example,URI:spiffe://example.org/worker", "spiffe://example.org/worker"},
    {"URI:https://example.org/x,URI:spiffe://example.org/w", "spiffe://example.org/w"},
    {"URI:https://example.org/x,DNS:a.example", "uri:https://example.org/x"},
    {"email:a@example.org,DNS:a.example,DNS:b.example", "dns:a.example"},
    {"email:a@example.org", NULL},
    {"DNS:has space", NULL},
    {NULL, NULL},
};

START_TEST(the_principal_is_a_name_of_the_certificate_and_never_the_common_name)
{
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client;

    make_certificate(&(struct certificate){.name = "named", .issuer = "ca", .san = principals[_i].san});
    of_client = client_of("named");
    expect_agreement(&of_server, &of_client, "localhost");
    ck_assert_pstr_eq(lh_tls_session_principal(server.session), principals[_i].principal);
}
END_TEST

START_TEST(an_unknown_authority_is_refused_by_either_side)
{
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client;

    make_certificate(&(struct certificate){.name = "other-ca"});
    make_certificate(&(struct certificate){.name = "stranger", .issuer = "other-ca", .san = "DNS:stranger"});
    of_client = client_of("stranger");
    expect_refusal(&of_server, &of_client, "localhost",
                   "the client's certificate dns:stranger is not signed by an authority of /tmp/",
                   "the server does not know the authority that signed our certificate");
    disconnect();
    of_client = client_of("worker");
    of_client.ca_file = path_of("other-ca.pem");
    expect_refusal(&of_server, &of_client, "localhost", "the client does not know the authority",
                   "the server's certificate dns:localhost is not signed by an authority of /tmp/");
}
END_TEST

START_TEST(dates_are_checked_by_either_side)
{
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client;

    make_certificate(&(struct certificate){
        .name = "old", .issuer = "ca", .san = "DNS:localhost", .begins_s = -2 * DAY_S, .ends_s = -DAY_S});
    make_certificate(&(struct certificate){
        .name = "early", .issuer = "ca", .san = "DNS:localhost", .begins_s = DAY_S, .ends_s = 2 * DAY_S});
    of_client = client_of("old");
    expect_refusal(&of_server, &of_client, "localhost", "the client's certificate dns:localhost has expired: it ended",
                   "the server refuses our certificate: it has expired");
    disconnect();
    of_client = client_of("early");
    expect_refusal(&of_server, &of_client, "localhost", "certificate dns:localhost is not yet valid: it begins at",
                   "the server refuses our certificate");
    disconnect();
    of_server = server_of("old");
    of_client = client_of("worker");
    expect_refusal(&of_server, &of_client, "localhost", "the client refuses our certificate: it has expired",
                   "the server's certificate dns:localhost has expired: it ended at");
    disconnect();
    of_server = server_of("early");
    expect_refusal(&of_server, &of_client, "localhost", "the client refuses our certificate", "is not yet valid");
}
END_TEST

START_TEST(a_wrong_name_is_refused)
{
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client = client_of("worker");

    expect_refusal(&of_server, &of_client, "leases.example", "the client refuses our certificate",
                   "the server's certificate is for localhost, 127.0.0.1, not for leases.example");
    disconnect();
    expect_refusal(&of_server, &of_client, "127.0.0.2", "the client refuses our certificate", "not for 127.0.0.2");
    disconnect();
    /* The common name is none. */
    make_certificate(&(struct certificate){.name = "leases.example", .issuer = "ca"});
    of_server = server_of("leases.example");
    expect_refusal(&of_server, &of_client, "leases.example", "the client refuses our certificate",
                   "the server's certificate is for no name, not for leases.example");
}
END_TEST

START_TEST(a_client_without_a_certificate_is_refused_where_one_is_required)
{
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client = client_of(NULL);

    expect_agreement(&of_server, &of_client, "localhost");
    disconnect();
    of_server.needs_client_cert = true;
    expect_refusal(&of_server, &of_client, "localhost", "the client shows no certificate",
                   "the server wants a certificate, and none was shown");
}
END_TEST

START_TEST(a_certificate_for_servers_does_not_make_a_client)
{
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client;

    make_certificate(&(struct certificate){.name = "web", .issuer = "ca", .san = "DNS:web", .purpose = "serverAuth"});
    of_client = client_of("web");
    expect_refusal(&of_server, &of_client, "localhost",
                   "the client's certificate dns:web is refused: ", "the server refuses our certificate");
}
END_TEST

START_TEST(another_protocol_than_http2_is_refused)
{
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client = client_of(NULL);

    of_client.protocol = "http/1.1";
    connect_sides(&of_server, &of_client, "localhost");
    shake_hands();
    expect_words(&server, LH_TLS_FAULT_PROTOCOL, "the client does not speak HTTP/2 (ALPN h2)");
    expect_words(&client, LH_TLS_FAULT_PROTOCOL, "the server does not speak HTTP/2");
}
END_TEST

START_TEST(bytes_without_tls_are_told_from_broken_tls)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    static const char frame[] = {0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100};
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client = client_of(NULL);
    unsigned char answer[16];

    connect_sides(&of_server, &of_client, "localhost");
    ck_assert_int_eq(write(client.fd, preface, sizeof(preface) - 1), sizeof(preface) - 1);
    step(&server);
    expect_words(&server, LH_TLS_FAULT_PROTOCOL, "the client speaks without TLS");
    ck_assert_int_eq(read(client.fd, answer, sizeof(answer)), 14);
    ck_assert_msg(answer[0] == 0x15, "it is told by an alert");
    ck_assert_int_eq(write(server.fd, frame, sizeof(frame)), sizeof(frame));
    step(&client);
    step(&client);
    expect_words(&client, LH_TLS_FAULT_PROTOCOL, "the server speaks without TLS");
}
END_TEST

START_TEST(an_end_in_the_handshake_is_of_the_network_unless_a_client_has_begun_it)
{
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client = client_of(NULL);

    connect_sides(&of_server, &of_client, "localhost");
    shutdown(client.fd, SHUT_WR);
    step(&server);
    expect_words(&server, LH_TLS_FAULT_NETWORK, "closed by the client during the handshake");
    disconnect();
    connect_sides(&of_server, &of_client, "localhost");
    step(&client);
    step(&server);
    shutdown(client.fd, SHUT_WR);
    step(&server);
    expect_words(&server, LH_TLS_FAULT_PROTOCOL, "it may refuse our certificate");
    disconnect();

    connect_sides(&of_server, &of_client, "localhost");
    step(&client);
    shutdown(server.fd, SHUT_WR);
    step(&client);
    expect_words(&client, LH_TLS_FAULT_NETWORK, "closed by the server during the handshake");
}
END_TEST

static void expect_server_error(const struct lh_tls_server_options *options, const char *words, const char *file)
{
    ck_assert_ptr_null(lh_tls_server_context_create(options, &error));
    ck_assert_msg(strstr(error.message, words) != NULL, "'%s' does not say '%s'", error.message, words);
    ck_assert_msg(strstr(error.message, file) != NULL, "'%s' does not name %s", error.message, file);
}

START_TEST(files_that_do_not_fit_are_named)
{
    struct lh_tls_server_options options = server_of("server");

    write_text("empty", "");
    write_text("locked.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n");
    options.cert_file = path_of("missing.pem");
    expect_server_error(&options, "cannot be opened: No such file", "missing.pem");
    options.cert_file = path_of("empty");
    expect_server_error(&options, "there is no certificate in it", "empty");
    options.cert_file = path_of("server.key");
    expect_server_error(&options, "there is no certificate in it", "server.key");
    options = server_of("server");
    options.key_file = path_of("worker.key");
    expect_server_error(&options, "does not belong to the certificate in", "worker.key");
    options.key_file = path_of("locked.key");
    expect_server_error(&options, "PEM without a passphrase is expected", "locked.key");
    options = server_of("server");
    options.client_ca_file = path_of("empty");
    expect_server_error(&options, "there is no authority's certificate in it", "empty");
}
END_TEST

START_TEST(a_context_knows_what_it_shows)
{
    struct lh_tls_server_options options = server_of("server");
    struct lh_tls_context *context = lh_tls_server_context_create(&options, &error);

    ck_assert_str_eq(lh_tls_context_name(context), "dns:localhost");
    ck_assert_int_ge(lh_tls_context_not_after_s(context), (int64_t)time(NULL) + DAY_S - 60);
    lh_tls_context_release(context);
}
END_TEST

static void expect_kept(void)
{
    ck_assert_msg(kept_bytes <= (int64_t)lh_tls_session_bytes(server.session), "%lld are kept, %zu are said",
                  (long long)kept_bytes, lh_tls_session_bytes(server.session));
}

static void servers_read(void)
{
    char byte;

    is_servers_step = true;
    ck_assert_int_le(lh_tls_session_read(server.session, &byte, 1), 0);
    is_servers_step = false;
}

/* Of the first one some stays: OpenSSL's own, of the process. */
START_TEST(a_session_keeps_no_more_than_it_says)
{
    static const unsigned char half_a_record[] = {23, 3, 3, 0x40, 0, 1, 2, 3};
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client = client_of(_i == 0 ? NULL : "worker");

    for (int i = 0; i < 2; i++) {
        disconnect();
        expect_agreement(&of_server, &of_client, "localhost");
    }
    ck_assert_int_gt(most_bytes, 16384);
    ck_assert_int_le(most_bytes, (int64_t)LH_TLS_HANDSHAKE_BYTES);
    expect_kept();
    ck_assert_int_eq(write(client.fd, half_a_record, sizeof(half_a_record)), sizeof(half_a_record));
    servers_read();
    expect_kept();
}
END_TEST

/* What a client announces of certificates: 24 bits. */
START_TEST(a_long_chain_is_refused_before_it_is_kept)
{
    FILE *authority = fopen(path_of("ca.pem"), "r"), *chain = fopen(path_of("worker.pem"), "a");
    struct lh_tls_server_options of_server = server_of("server");
    struct lh_tls_client_options of_client = client_of("worker");
    char text[4096];
    size_t size = fread(text, 1, sizeof(text), authority);

    for (int i = 0; i < 200; i++)
        fwrite(text, 1, size, chain);
    fclose(chain);
    fclose(authority);
    connect_sides(&of_server, &of_client, "localhost");
    shake_hands();
    ck_assert_int_eq(server.progress, LH_TLS_FAILED);
    ck_assert_int_le(most_bytes, (int64_t)LH_TLS_HANDSHAKE_BYTES);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls");
    TCase *tests = tcase_create("tls");

    if (CRYPTO_set_mem_functions(counted_malloc, counted_realloc, counted_free) != 1)
        return 1;
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, a_session_keeps_no_more_than_it_says, 0, 2);
    tcase_add_test(tests, a_long_chain_is_refused_before_it_is_kept);
    tcase_add_test(tests, both_sides_know_each_other_and_bytes_pass);
    tcase_add_test(tests, what_was_read_ahead_is_told);
    tcase_add_test(tests, a_server_is_known_by_its_ip_address_too);
    tcase_add_loop_test(tests, the_principal_is_a_name_of_the_certificate_and_never_the_common_name, 0,
                        sizeof(principals) / sizeof(principals[0]));
    tcase_add_test(tests, an_unknown_authority_is_refused_by_either_side);
    tcase_add_test(tests, dates_are_checked_by_either_side);
    tcase_add_test(tests, a_wrong_name_is_refused);
    tcase_add_test(tests, a_client_without_a_certificate_is_refused_where_one_is_required);
    tcase_add_test(tests, a_certificate_for_servers_does_not_make_a_client);
    tcase_add_test(tests, another_protocol_than_http2_is_refused);
    tcase_add_test(tests, bytes_without_tls_are_told_from_broken_tls);
    tcase_add_test(tests, an_end_in_the_handshake_is_of_the_network_unless_a_client_has_begun_it);
    tcase_add_test(tests, files_that_do_not_fit_are_named);
    tcase_add_test(tests, a_context_knows_what_it_shows);
    suite_add_tcase(suite, tests);
    return run_tests(suite, CK_FORK_GETENV);
}
