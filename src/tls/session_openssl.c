/*
 * Between OpenSSL and a session: what it says about a failure, in words that name the side, the certificate and the file;
 * and its way to the socket.
 */
#include "tls/tls_internal.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define FIRST_HANDSHAKE_BYTE 0x16
#define FIRST_ALERT_BYTE 0x15

static const char *peer_of(const struct lh_tls_session *session)
{
    return session->context->is_server ? "client" : "server";
}

bool lh_tls_session_is_plain(const struct lh_tls_session *session)
{
    return session->has_first && session->first != FIRST_HANDSHAKE_BYTE && session->first != FIRST_ALERT_BYTE;
}

static void fail(struct lh_tls_session *session, enum lh_tls_fault fault, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fail(struct lh_tls_session *session, enum lh_tls_fault fault, const char *format, ...)
{
    va_list arguments;

    if (session->fault != LH_TLS_FAULT_NONE)
        return;
    session->fault = fault;
    va_start(arguments, format);
    vsnprintf(session->failure, sizeof(session->failure), format, arguments);
    va_end(arguments);
}

/* --- the peer's certificate --- */

static bool is_foreign(int error)
{
    switch (error) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        return true;
    default:
        return false;
    }
}

static void fail_name(struct lh_tls_session *session, const X509 *certificate)
{
    char names[TLS_NAME_BYTES];

    lh_tls_server_names(certificate, names);
    fail(session, LH_TLS_FAULT_CERTIFICATE, "the server's certificate is for %s, not for %s", names,
         session->server_name);
}

static void fail_foreign(struct lh_tls_session *session, const X509 *certificate)
{
    const char *ca_file = session->context->ca_file;
    char name[TLS_NAME_BYTES];

    lh_tls_name(certificate, name);
    fail(session, LH_TLS_FAULT_CERTIFICATE, "the %s's certificate %s is not signed by an authority of %s",
         peer_of(session), name, ca_file != NULL ? ca_file : "the system");
}

static void fail_certificate(struct lh_tls_session *session, const X509 *certificate, int error)
{
    const char *peer = peer_of(session);
    char name[TLS_NAME_BYTES], date[TLS_DATE_BYTES];

    lh_tls_name(certificate, name);
    if (error == X509_V_ERR_CERT_HAS_EXPIRED) {
        lh_tls_not_after_text(certificate, date);
        fail(session, LH_TLS_FAULT_CERTIFICATE, "the %s's certificate %s has expired: it ended at %s", peer, name,
             date);
    } else if (error == X509_V_ERR_CERT_NOT_YET_VALID) {
        lh_tls_not_before_text(certificate, date);
        fail(session, LH_TLS_FAULT_CERTIFICATE, "the %s's certificate %s is not yet valid: it begins at %s", peer, name,
             date);
    } else if (error == X509_V_ERR_CERT_REVOKED) {
        fail(session, LH_TLS_FAULT_CERTIFICATE, "the %s's certificate %s is revoked", peer, name);
    } else if (error == X509_V_ERR_UNABLE_TO_GET_CRL) {
        fail(session, LH_TLS_FAULT_CERTIFICATE,
             "the %s's certificate %s is refused: there is no revocation list of the authority that signed it", peer,
             name);
    } else if (error == X509_V_ERR_HOSTNAME_MISMATCH || error == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        fail_name(session, certificate);
    } else {
        fail(session, LH_TLS_FAULT_CERTIFICATE, "the %s's certificate %s is refused: %s", peer, name,
             X509_verify_cert_error_string(error));
    }
}

int lh_tls_on_verified(int is_good, X509_STORE_CTX *store)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    int error = X509_STORE_CTX_get_error(store);

    if (is_good)
        return 1;
    /* A list that is overdue stays in force: revocation.c. */
    if (error == X509_V_ERR_CRL_HAS_EXPIRED || error == X509_V_ERR_CRL_NOT_YET_VALID) {
        X509_STORE_CTX_set_error(store, X509_V_OK);
        return 1;
    }
    if (is_foreign(error))
        fail_foreign(SSL_get_app_data(ssl), X509_STORE_CTX_get0_cert(store));
    else
        fail_certificate(SSL_get_app_data(ssl), X509_STORE_CTX_get_current_cert(store), error);
    return 0;
}

/* --- what the peer says of ours --- */

struct alert {
    int number; /* RFC 8446, section 6 */
    enum lh_tls_fault fault;
    const char *words;
};

static const struct alert alerts[] = {
    {42, LH_TLS_FAULT_CERTIFICATE, "refuses our certificate"},
    {43, LH_TLS_FAULT_CERTIFICATE, "refuses our certificate: it is of a kind that is not supported"},
    {44, LH_TLS_FAULT_CERTIFICATE, "refuses our certificate: it is revoked"},
    {45, LH_TLS_FAULT_CERTIFICATE, "refuses our certificate: it has expired, or is not yet valid"},
    {46, LH_TLS_FAULT_CERTIFICATE, "refuses our certificate"},
    {48, LH_TLS_FAULT_CERTIFICATE, "does not know the authority that signed our certificate"},
    {49, LH_TLS_FAULT_CERTIFICATE, "refuses our certificate: access denied"},
    {116, LH_TLS_FAULT_CERTIFICATE, "wants a certificate, and none was shown"},
    {70, LH_TLS_FAULT_PROTOCOL, "does not speak a version of TLS that we do: 1.2 and 1.3 are"},
    {112, LH_TLS_FAULT_CERTIFICATE, "has no certificate for the name that we ask for"},
    {120, LH_TLS_FAULT_PROTOCOL, "does not speak HTTP/2 (ALPN h2)"},
};

static void fail_alert(struct lh_tls_session *session, int number)
{
    const char *peer = peer_of(session);

    for (size_t i = 0; i < sizeof(alerts) / sizeof(alerts[0]); i++)
        if (alerts[i].number == number)
            fail(session, alerts[i].fault, "the %s %s", peer, alerts[i].words);
    /* In TLS 1.2 this is how a server says that it wants a certificate. */
    if (number == SSL_AD_HANDSHAKE_FAILURE && !session->context->is_server && !session->context->has_certificate)
        fail(session, LH_TLS_FAULT_CERTIFICATE, "the server ends the handshake: it may want a certificate");
    fail(session, LH_TLS_FAULT_PROTOCOL, "the %s ends the handshake: %s", peer, SSL_alert_desc_string_long(number));
}

/* --- the rest --- */

static void fail_library(struct lh_tls_session *session, unsigned long error)
{
    int reason = ERR_GET_REASON(error);
    const char *words = ERR_reason_error_string(error);

    if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET) {
        fail_alert(session, reason - SSL_AD_REASON_OFFSET);
        return;
    }
    switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        fail(session, LH_TLS_FAULT_CERTIFICATE, "the client shows no certificate");
        break;
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
        fail(session, LH_TLS_FAULT_PROTOCOL, "the %s does not speak a version of TLS that is allowed here",
             peer_of(session));
        break;
    case SSL_R_NO_SHARED_CIPHER:
        fail(session, LH_TLS_FAULT_PROTOCOL, "the %s has no cipher with ECDHE and AEAD", peer_of(session));
        break;
    case SSL_R_NO_APPLICATION_PROTOCOL:
        lh_tls_session_fail_protocol(session);
        break;
    default:
        fail(session, LH_TLS_FAULT_PROTOCOL, "the %s breaks the rules of TLS: %s", peer_of(session),
             words != NULL ? words : "no reason is known");
        break;
    }
}

void lh_tls_session_fail_protocol(struct lh_tls_session *session)
{
    fail(session, LH_TLS_FAULT_PROTOCOL, "the %s does not speak HTTP/2 (ALPN h2)", peer_of(session));
}

void lh_tls_session_fail(struct lh_tls_session *session, int ssl_error)
{
    unsigned long error = ERR_peek_error();

    if (lh_tls_session_is_plain(session))
        fail(session, LH_TLS_FAULT_PROTOCOL, "the %s speaks without TLS", peer_of(session));
    else if (ssl_error == SSL_ERROR_SSL && error != 0)
        fail_library(session, error);
    else if (session->socket_error == 0 && session->context->is_server && session->has_first && !session->is_open)
        /* grpc-core sends no alert. */
        fail(session, LH_TLS_FAULT_PROTOCOL,
             "the client closed the connection in the handshake: it may refuse our "
             "certificate");
    else if (session->socket_error != 0)
        fail(session, LH_TLS_FAULT_NETWORK, "the socket failed: %s", strerror(session->socket_error));
    else
        fail(session, LH_TLS_FAULT_NETWORK, "closed by the %s%s", peer_of(session),
             session->is_open ? "" : " during the handshake");
    ERR_clear_error();
}

/* --- OpenSSL's way to the socket: recv and send, for its own BIO would raise SIGPIPE in programs that use the library --- */

static int finish(BIO *bio, struct lh_tls_session *session, ssize_t done, size_t *moved, int retry)
{
    BIO_clear_retry_flags(bio);
    if (done > 0) {
        *moved = (size_t)done;
        return 1;
    }
    if (done < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    else if (done < 0)
        session->socket_error = errno;
    return 0;
}

static int read_socket(BIO *bio, char *to, size_t room, size_t *taken)
{
    struct lh_tls_session *session = BIO_get_data(bio);
    ssize_t done = recv(session->fd, to, room, 0);
    int result = finish(bio, session, done, taken, BIO_FLAGS_READ);

    session->is_drained = BIO_should_retry(bio);
    session->is_at_end |= done == 0;
    if (done > 0 && !session->has_first) {
        session->has_first = true;
        session->first = (unsigned char)to[0];
    }
    return result;
}

static int write_socket(BIO *bio, const char *from, size_t size, size_t *written)
{
    struct lh_tls_session *session = BIO_get_data(bio);
    return finish(bio, session, send(session->fd, from, size, MSG_NOSIGNAL), written, BIO_FLAGS_WRITE);
}

static long control(BIO *bio, int command, long number, void *pointer)
{
    const struct lh_tls_session *session = BIO_get_data(bio);

    if (command == BIO_CTRL_EOF)
        return session->is_at_end;
    return command == BIO_CTRL_FLUSH; /* nothing is kept */
}

BIO_METHOD *lh_tls_socket_create(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket");

    if (method == NULL)
        return NULL;
    BIO_meth_set_read_ex(method, read_socket);
    BIO_meth_set_write_ex(method, write_socket);
    BIO_meth_set_ctrl(method, control);
    return method;
}
