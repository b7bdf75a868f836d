/* The owner of a certificate: its principal, its name for people, and its dates. */
#ifndef LH_TLS_IDENTITY_H
#define LH_TLS_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

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

#endif
