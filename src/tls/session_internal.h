/* State shared by the files of a session. */
#ifndef LH_TLS_SESSION_INTERNAL_H
#define LH_TLS_SESSION_INTERNAL_H

#include "tls/context_internal.h"
#include "tls/session.h"

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

/* session_words.c: what an SSL_* function has failed with becomes `fault` and `failure`, once. */
void lh_tls_session_fail(struct lh_tls_session *session, int ssl_error);
void lh_tls_session_fail_protocol(struct lh_tls_session *session);  /* ALPN chose none */
bool lh_tls_session_is_plain(const struct lh_tls_session *session); /* the peer speaks without TLS */

#endif
