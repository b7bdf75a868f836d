#include "tls/tls_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* One read takes so many records that bring no data (key updates), then it is others' turn. */
#define EMPTY_RECORDS_MAX 16

/* As measured with OpenSSL 3.0 (tests/unit/test_tls.c), and some more. The buffers are there while a record is in them. */
#define OPEN_BYTES ((size_t)24 * 1024)
#define BUFFER_BYTES ((size_t)18 * 1024)

static bool is_ip(const char *name)
{
    unsigned char address[16];
    return inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;
}

static void expect_name(SSL *ssl, const char *name)
{
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (is_ip(name)) {
        X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
        return;
    }
    SSL_set1_host(ssl, name);
    SSL_set_tlsext_host_name(ssl, name);
}

struct lh_tls_session *lh_tls_session_create(struct lh_tls_context *context, int fd, const char *server_name)
{
    struct lh_tls_session *session = lh_alloc_zero(1, sizeof(*session));
    BIO *bio = BIO_new(context->socket);

    session->context = lh_tls_context_hold(context);
    session->fd = fd;
    session->ssl = SSL_new(context->ssl);
    if (session->ssl == NULL || bio == NULL) {
        lh_err("out of memory for TLS; stopping");
        abort();
    }
    BIO_set_data(bio, session);
    BIO_set_init(bio, 1);
    SSL_set_bio(session->ssl, bio, bio);
    SSL_set_app_data(session->ssl, session);
    if (context->is_server) {
        SSL_set_accept_state(session->ssl);
    } else {
        session->server_name = lh_strdup(server_name);
        SSL_set_connect_state(session->ssl);
        expect_name(session->ssl, server_name);
    }
    return session;
}

void lh_tls_session_destroy(struct lh_tls_session *session)
{
    if (session == NULL)
        return;
    SSL_free(session->ssl);
    lh_tls_context_release(session->context);
    free(session->server_name);
    free(session->principal);
    free(session);
}

/* A client that speaks HTTP/2 without TLS hears two alerts, as long as the frame that it expects: this is TLS. */
static void answer_plain(struct lh_tls_session *session)
{
    static const unsigned char alerts[] = {0x15, 0x03, 0x01, 0, 2, 2, SSL_AD_PROTOCOL_VERSION,
                                           0x15, 0x03, 0x01, 0, 2, 1, SSL_AD_CLOSE_NOTIFY};

    if (session->context->is_server && lh_tls_session_is_plain(session))
        send(session->fd, alerts, sizeof(alerts), MSG_NOSIGNAL);
}

static void note_peer(struct lh_tls_session *session)
{
    const X509 *certificate = SSL_get0_peer_certificate(session->ssl);

    if (certificate == NULL)
        return;
    session->principal = lh_tls_principal(certificate);
    session->not_after_s = lh_tls_not_after_s(certificate);
}

static bool has_protocol(const struct lh_tls_session *session)
{
    const unsigned char *chosen;
    unsigned size;

    if (session->context->protocol == NULL)
        return true;
    SSL_get0_alpn_selected(session->ssl, &chosen, &size);
    return size == strlen(session->context->protocol) && memcmp(chosen, session->context->protocol, size) == 0;
}

enum lh_tls_progress lh_tls_session_handshake(struct lh_tls_session *session)
{
    int result, error;

    ERR_clear_error();
    result = SSL_do_handshake(session->ssl);
    if (result == 1) {
        session->is_open = has_protocol(session);
        if (session->is_open)
            note_peer(session);
        else
            lh_tls_session_fail_protocol(session);
        return session->is_open ? LH_TLS_DONE : LH_TLS_FAILED;
    }
    error = SSL_get_error(session->ssl, result);
    if (error == SSL_ERROR_WANT_READ)
        return LH_TLS_WANTS_READ;
    if (error == SSL_ERROR_WANT_WRITE)
        return LH_TLS_WANTS_WRITE;
    lh_tls_session_fail(session, error);
    answer_plain(session);
    return LH_TLS_FAILED;
}

/* False: there is nothing more to be had now. */
static bool read_record(struct lh_tls_session *session, char *to, size_t room, size_t *taken)
{
    int error;

    session->is_drained = false;
    *taken = 0;
    ERR_clear_error();
    if (SSL_read_ex(session->ssl, to, room, taken) == 1)
        return true;
    error = SSL_get_error(session->ssl, 0);
    if (error == SSL_ERROR_WANT_READ)
        return !session->is_drained;
    if (error == SSL_ERROR_WANT_WRITE)
        session->reads_when_writable = true;
    else if (error == SSL_ERROR_ZERO_RETURN)
        session->is_at_end = true;
    else
        lh_tls_session_fail(session, error);
    return false;
}

ssize_t lh_tls_session_read(struct lh_tls_session *session, void *to, size_t room)
{
    size_t done = 0;
    int empty = 0;

    session->reads_when_writable = false;
    while (done < room && empty < EMPTY_RECORDS_MAX && session->fault == LH_TLS_FAULT_NONE) {
        size_t taken;
        if (!read_record(session, (char *)to + done, room - done, &taken))
            break;
        done += taken;
        empty += taken == 0;
    }
    if (done > 0)
        return (ssize_t)done;
    if (session->fault == LH_TLS_FAULT_NONE && session->is_at_end)
        return 0;
    errno = session->fault == LH_TLS_FAULT_NONE ? EAGAIN : session->socket_error != 0 ? session->socket_error : EPROTO;
    return -1;
}

ssize_t lh_tls_session_write(struct lh_tls_session *session, const void *from, size_t size)
{
    size_t done = 0, written;
    int error = SSL_ERROR_NONE;

    while (done < size && error == SSL_ERROR_NONE && session->fault == LH_TLS_FAULT_NONE) {
        ERR_clear_error();
        if (SSL_write_ex(session->ssl, (const char *)from + done, size - done, &written) == 1) {
            done += written;
            continue;
        }
        error = SSL_get_error(session->ssl, 0);
        if (error != SSL_ERROR_WANT_WRITE && error != SSL_ERROR_WANT_READ)
            lh_tls_session_fail(session, error);
    }
    if (done > 0)
        return (ssize_t)done;
    errno = session->fault == LH_TLS_FAULT_NONE ? EAGAIN : session->socket_error != 0 ? session->socket_error : EPROTO;
    return -1;
}

size_t lh_tls_session_bytes(const struct lh_tls_session *session)
{
    if (!session->is_open)
        return session->has_first ? LH_TLS_HANDSHAKE_BYTES : OPEN_BYTES;
    return OPEN_BYTES + (SSL_has_pending(session->ssl) ? BUFFER_BYTES : 0) +
           (SSL_want_write(session->ssl) ? BUFFER_BYTES : 0);
}

bool lh_tls_session_has_input(const struct lh_tls_session *session)
{
    return !session->is_drained &&
           (SSL_has_pending(session->ssl) || session->is_at_end || session->fault != LH_TLS_FAULT_NONE);
}

bool lh_tls_session_reads_when_writable(const struct lh_tls_session *session)
{
    return session->reads_when_writable;
}

void lh_tls_session_close(struct lh_tls_session *session)
{
    if (session->is_open && session->fault == LH_TLS_FAULT_NONE)
        SSL_shutdown(session->ssl);
}

enum lh_tls_fault lh_tls_session_fault(const struct lh_tls_session *session)
{
    return session->fault;
}

const char *lh_tls_session_failure(const struct lh_tls_session *session)
{
    return session->failure;
}

const char *lh_tls_session_principal(const struct lh_tls_session *session)
{
    return session->principal;
}

int64_t lh_tls_session_not_after_s(const struct lh_tls_session *session)
{
    return session->not_after_s;
}
