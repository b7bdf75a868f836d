/*
 * One side of TLS: its certificate and key, and the authorities that it trusts. The files are read once, at
 * creation; a changed file needs a new context. A session keeps the context that it was made with.
 *
 *     const struct lh_tls_server_options options = {.cert_file = "cert.pem", .key_file = "key.pem", .protocol = "h2"};
 *     context = lh_tls_server_context_create(&options, &error);
 *     session = lh_tls_session_create(context, fd, NULL);      tls/session.h
 *     lh_tls_context_release(context);
 *
 * TLS 1.2 with ECDHE and an AEAD cipher, or TLS 1.3. Sessions are not resumed: each connection checks the certificates
 * that are in force.
 */
#ifndef LH_TLS_CONTEXT_H
#define LH_TLS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct lh_tls_context;

enum lh_tls_version { LH_TLS_1_2, LH_TLS_1_3 };

struct lh_tls_server_options {
    const char *cert_file;      /* PEM, the chain first */
    const char *key_file;       /* PEM, without a passphrase */
    const char *client_ca_file; /* PEM, the authorities of clients; NULL: clients are not asked for a certificate */
    const char *crl_file;   /* with client_ca_file: PEM, a revocation list of each authority; NULL: none is looked at */
    bool needs_client_cert; /* with client_ca_file: a client without a certificate is refused */
    enum lh_tls_version min_version;
    const char *protocol; /* chosen by ALPN; a client that does not offer it is refused. NULL: none is asked for */
};

struct lh_tls_client_options {
    const char *ca_file;   /* PEM, the authorities of servers; NULL: those of the system */
    const char *crl_file;  /* with ca_file: PEM, a revocation list of each authority; NULL: none is looked at */
    const char *cert_file; /* PEM, the chain first; NULL: none is shown */
    const char *key_file;  /* with cert_file */
    const char *protocol;  /* offered by ALPN; a server that does not choose it is refused */
};

/* One reference, the caller's. NULL: `error` names the file and says what is wrong with it. */
struct lh_tls_context *lh_tls_server_context_create(const struct lh_tls_server_options *options,
                                                    struct lh_error *error);
struct lh_tls_context *lh_tls_client_context_create(const struct lh_tls_client_options *options,
                                                    struct lh_error *error);
struct lh_tls_context *lh_tls_context_hold(struct lh_tls_context *context); /* one reference more */
void lh_tls_context_release(struct lh_tls_context *context);                /* one less */

/* The certificate that it shows: its name for people, and its last second since 1970. NULL and 0: none. */
const char *lh_tls_context_name(const struct lh_tls_context *context);
int64_t lh_tls_context_not_after_s(const struct lh_tls_context *context);

/* The revocation lists in force. */
struct lh_tls_lists {
    size_t lists;
    size_t revoked; /* certificates that they name */
    int64_t left_s; /* until the first of them should be followed by a newer one; below 0: it is overdue */
};
struct lh_tls_lists lh_tls_context_lists(const struct lh_tls_context *context);

#endif
