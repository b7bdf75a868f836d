/* State of a context, shared by the files of src/tls. */
#ifndef LH_TLS_CONTEXT_INTERNAL_H
#define LH_TLS_CONTEXT_INTERNAL_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#include "tls/context.h"
#include "tls/identity.h"

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

/* session_socket.c: what carries a session's bytes. NULL: no memory. */
BIO_METHOD *lh_tls_socket_create(void);
/* session_words.c */
int lh_tls_on_verified(int is_good, X509_STORE_CTX *store);

#endif
