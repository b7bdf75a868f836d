#include "tls/tls_internal.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* Of the peer's certificates: a message of the length that it announces is allocated at once. */
#define CHAIN_MAX_BYTES (32 * 1024)

/* TLS 1.2: ECDHE and AEAD. The three suites of TLS 1.3 are OpenSSL's default. */
#define CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

/* OpenSSL would ask on the terminal. */
static int refuse_passphrase(char *to, int room, int is_writing, void *arg)
{
    return -1;
}

static BIO *open_file(const char *file, struct lh_error *error)
{
    FILE *stream = fopen(file, "re");
    BIO *bio = stream == NULL ? NULL : BIO_new_fp(stream, BIO_CLOSE);

    if (bio == NULL)
        lh_error_set(error, LH_INVALID_ARGUMENT, "%s: cannot be opened: %s", file, strerror(errno));
    return bio;
}

/* The first certificate of the file is the one that is shown, the others are its chain. */
static bool use_certificate(struct lh_tls_context *context, const char *file, struct lh_error *error)
{
    BIO *bio = open_file(file, error);
    X509 *certificate;

    if (bio == NULL)
        return false;
    certificate = PEM_read_bio_X509(bio, NULL, refuse_passphrase, NULL);
    BIO_free(bio);
    if (certificate == NULL) {
        lh_error_set(error, LH_INVALID_ARGUMENT, "%s: there is no certificate in it; PEM is expected", file);
        return false;
    }
    context->has_certificate = true;
    lh_tls_name(certificate, context->name);
    context->not_after_s = lh_tls_not_after_s(certificate);
    X509_free(certificate);
    if (SSL_CTX_use_certificate_chain_file(context->ssl, file) == 1)
        return true;
    lh_error_set(error, LH_INVALID_ARGUMENT, "%s: the certificate cannot be used: %s", file,
                 ERR_reason_error_string(ERR_peek_last_error()));
    return false;
}

static bool use_key(struct lh_tls_context *context, const char *file, const char *cert_file, struct lh_error *error)
{
    BIO *bio = open_file(file, error);
    EVP_PKEY *key;
    bool fits;

    if (bio == NULL)
        return false;
    key = PEM_read_bio_PrivateKey(bio, NULL, refuse_passphrase, NULL);
    BIO_free(bio);
    if (key == NULL) {
        lh_error_set(error, LH_INVALID_ARGUMENT,
                     "%s: there is no private key in it that can be read; PEM without a passphrase is expected", file);
        return false;
    }
    fits = SSL_CTX_use_PrivateKey(context->ssl, key) == 1 && SSL_CTX_check_private_key(context->ssl) == 1;
    EVP_PKEY_free(key);
    if (!fits)
        lh_error_set(error, LH_INVALID_ARGUMENT, "%s: this key does not belong to the certificate in %s", file,
                     cert_file);
    return fits;
}

static bool use_authorities(struct lh_tls_context *context, const char *file, struct lh_error *error)
{
    BIO *bio = open_file(file, error); /* OpenSSL's own message does not say what is wrong with a file */

    if (bio == NULL)
        return false;
    BIO_free(bio);
    if (SSL_CTX_load_verify_file(context->ssl, file) != 1) {
        lh_error_set(error, LH_INVALID_ARGUMENT, "%s: there is no authority's certificate in it; PEM is expected",
                     file);
        return false;
    }
    context->ca_file = lh_strdup(file);
    return true;
}

static bool use_lists(struct lh_tls_context *context, const char *file, struct lh_error *error)
{
    BIO *bio = open_file(file, error);
    bool is_good = bio != NULL && lh_tls_use_lists(context, bio, file, error);

    BIO_free(bio);
    return is_good;
}

/* The one protocol, if the client offers it. */
static int choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *chosen_size,
                           const unsigned char *offered, unsigned offered_size, void *arg)
{
    const struct lh_tls_context *context = arg;
    size_t size = strlen(context->protocol);

    for (unsigned at = 0; at < offered_size; at += 1u + offered[at]) {
        if (offered[at] == size && offered_size - at > size && memcmp(offered + at + 1, context->protocol, size) == 0) {
            *chosen = offered + at + 1;
            *chosen_size = (unsigned char)size;
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static struct lh_tls_context *create(bool is_server, const char *protocol, enum lh_tls_version min_version)
{
    struct lh_tls_context *context = lh_alloc_zero(1, sizeof(*context));

    context->references = 1;
    context->is_server = is_server;
    context->protocol = lh_strdup(protocol);
    context->ssl = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());
    context->socket = lh_tls_socket_create();
    if (context->ssl == NULL || context->socket == NULL ||
        SSL_CTX_set_min_proto_version(context->ssl, min_version == LH_TLS_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(context->ssl, CIPHERS) != 1) {
        lh_err("OpenSSL does not start; stopping");
        abort();
    }
    SSL_CTX_set_options(context->ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
                                          SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_session_cache_mode(context->ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context->ssl, 0);
    SSL_CTX_set_mode(context->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                       SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_max_cert_list(context->ssl, CHAIN_MAX_BYTES);
    /* A peer that sends records without data must not keep one read busy: see tls/session.c. */
    SSL_CTX_clear_mode(context->ssl, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_read_ahead(context->ssl, 1);
    return context;
}

struct lh_tls_context *lh_tls_server_context_create(const struct lh_tls_server_options *options, struct lh_error *error)
{
    struct lh_tls_context *context = create(true, options->protocol, options->min_version);
    int verify = SSL_VERIFY_PEER | (options->needs_client_cert ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0);

    ERR_clear_error();
    if (options->protocol != NULL)
        SSL_CTX_set_alpn_select_cb(context->ssl, choose_protocol, context);
    if (!use_certificate(context, options->cert_file, error) ||
        !use_key(context, options->key_file, options->cert_file, error))
        goto failed;
    if (options->client_ca_file != NULL) {
        if (!use_authorities(context, options->client_ca_file, error))
            goto failed;
        if (options->crl_file != NULL && !use_lists(context, options->crl_file, error))
            goto failed;
        SSL_CTX_set_client_CA_list(context->ssl, SSL_load_client_CA_file(options->client_ca_file));
        SSL_CTX_set_verify(context->ssl, verify, lh_tls_on_verified);
    }
    return context;

failed:
    lh_tls_context_release(context);
    return NULL;
}

static void offer_protocol(struct lh_tls_context *context)
{
    unsigned char offer[256];
    size_t size = strlen(context->protocol);

    offer[0] = (unsigned char)size;
    memcpy(offer + 1, context->protocol, size);
    SSL_CTX_set_alpn_protos(context->ssl, offer, (unsigned)size + 1);
}

struct lh_tls_context *lh_tls_client_context_create(const struct lh_tls_client_options *options, struct lh_error *error)
{
    struct lh_tls_context *context = create(false, options->protocol, LH_TLS_1_2);

    ERR_clear_error();
    SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER, lh_tls_on_verified);
    offer_protocol(context);
    if (options->ca_file == NULL)
        SSL_CTX_set_default_verify_paths(context->ssl);
    else if (!use_authorities(context, options->ca_file, error))
        goto failed;
    if (options->crl_file != NULL && options->ca_file == NULL) {
        lh_error_set(error, LH_INVALID_ARGUMENT, "%s: a revocation list needs the file of its authorities",
                     options->crl_file);
        goto failed;
    }
    if (options->crl_file != NULL && !use_lists(context, options->crl_file, error))
        goto failed;
    if (options->cert_file != NULL && (!use_certificate(context, options->cert_file, error) ||
                                       !use_key(context, options->key_file, options->cert_file, error)))
        goto failed;
    return context;

failed:
    lh_tls_context_release(context);
    return NULL;
}

struct lh_tls_context *lh_tls_context_hold(struct lh_tls_context *context)
{
    context->references++;
    return context;
}

void lh_tls_context_release(struct lh_tls_context *context)
{
    if (context == NULL || --context->references > 0)
        return;
    SSL_CTX_free(context->ssl);
    BIO_meth_free(context->socket);
    sk_X509_CRL_pop_free(context->lists, X509_CRL_free);
    free(context->ca_file);
    free(context->protocol);
    free(context);
}

const char *lh_tls_context_name(const struct lh_tls_context *context)
{
    return context->has_certificate ? context->name : NULL;
}

int64_t lh_tls_context_not_after_s(const struct lh_tls_context *context)
{
    return context->not_after_s;
}
