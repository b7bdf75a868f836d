/* State of contexts and sessions, and what the files of src/tls have of each other. */
#ifndef LH_TLS_TLS_INTERNAL_H
#define LH_TLS_TLS_INTERNAL_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#include "tls/context.h"
#include "tls/session.h"

/* --- identity.c: the owner of a certificate: its principal, its name for people, and its dates --- */

struct x509_st; /* OpenSSL's X509 */

/* Longer names are none: a SPIFFE ID has at most 2048 bytes. */
#define TLS_PRINCIPAL_MAX_BYTES 2048
#define TLS_NAME_BYTES 256
#define TLS_DATE_BYTES 32

/*
 * Returns the principal, from the subject alternative names: the first URI that begins with spiffe://, else the first
 * URI as "uri:...", else the first DNS name as "dns:NAME". Never the common name. Free it with free(). NULL: there is
 * none, or it is longer than the bound, or has other characters than printable ASCII.
 */
char *lh_tls_principal(const struct x509_st *certificate);

/* Writes the name for people: the principal, else the subject. */
void lh_tls_name(const struct x509_st *certificate, char name[TLS_NAME_BYTES]);
/* All names that a server may be called by: "localhost, 127.0.0.1", or "no name". */
void lh_tls_server_names(const struct x509_st *certificate, char names[TLS_NAME_BYTES]);

/* Seconds since 1970. */
int64_t lh_tls_not_after_s(const struct x509_st *certificate);
/* "2026-11-20 18:28:57 UTC" */
void lh_tls_not_before_text(const struct x509_st *certificate, char date[TLS_DATE_BYTES]);
void lh_tls_not_after_text(const struct x509_st *certificate, char date[TLS_DATE_BYTES]);

/* --- a context --- */

struct lh_tls_context {
    SSL_CTX *ssl;
    BIO_METHOD *socket;         /* method of its sessions' sockets */
    char *ca_file;              /* name in messages; NULL: the system's */
    STACK_OF(X509_CRL) * lists; /* NULL: revocation is not looked at */
    char *protocol;
    unsigned references;
    bool is_server;
    bool has_certificate;
    char name[TLS_NAME_BYTES];
    int64_t not_after_s;
};

/* session_openssl.c: what carries a session's bytes. NULL: no memory. */
BIO_METHOD *lh_tls_socket_create(void);
/* session_openssl.c */
int lh_tls_on_verified(int is_good, X509_STORE_CTX *store);

/* --- a session --- */

#define TLS_FAILURE_BYTES 768

struct lh_tls_session {
    struct lh_tls_context *context;
    SSL *ssl;
    char *server_name; /* NULL: of a server */
    int fd;
    int socket_error; /* errno; 0: the socket works */
    bool is_open;     /* the handshake is done */
    bool is_at_end;   /* the peer sends nothing more */
    bool is_drained;  /* the last read from the socket found nothing */
    bool reads_when_writable;
    bool has_first;      /* a byte has come */
    unsigned char first; /* the first byte of the peer */
    enum lh_tls_fault fault;
    char failure[TLS_FAILURE_BYTES];
    char *principal;
    int64_t not_after_s;
};

/* session_openssl.c: what an SSL_* function has failed with becomes `fault` and `failure`, once. */
void lh_tls_session_fail(struct lh_tls_session *session, int ssl_error);
void lh_tls_session_fail_protocol(struct lh_tls_session *session);  /* ALPN chose none */
bool lh_tls_session_is_plain(const struct lh_tls_session *session); /* the peer speaks without TLS */

/* --- revocation.c --- */

/* The lists of a PEM file that is open, after the authorities. False: `error` says what is wrong with `file`. */
bool lh_tls_use_lists(struct lh_tls_context *context, BIO *from, const char *file, struct lh_error *error);

#endif
