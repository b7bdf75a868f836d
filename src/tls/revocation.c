/*
 * Revocation lists. OpenSSL looks into them at each handshake, for every certificate of the chain, and refuses one whose authority has no list: a list that
 * is missing must not let anybody in. So each authority of the file of authorities has to have one when the files are read; an administrator hears of it
 * then, and not through clients that are refused.
 *
 * A list whose next update is overdue stays in force: it refuses what it names as before, and the clients of a lease service are not locked out all at once
 * because a job did not run. The log warns.
 */
#include "tls/tls_internal.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <time.h>

static bool has_list(STACK_OF(X509_CRL) * lists, X509 *authority)
{
    for (int i = 0; i < sk_X509_CRL_num(lists); i++) {
        X509_CRL *list = sk_X509_CRL_value(lists, i);
        if (X509_NAME_cmp(X509_CRL_get_issuer(list), X509_get_subject_name(authority)) == 0 &&
            X509_CRL_verify(list, X509_get0_pubkey(authority)) == 1)
            return true;
    }
    return false;
}

static bool check_authorities(const struct lh_tls_context *context, const char *file, struct lh_error *error)
{
    STACK_OF(X509_OBJECT) *all = X509_STORE_get0_objects(SSL_CTX_get_cert_store(context->ssl));
    char name[TLS_NAME_BYTES];

    for (int i = 0; i < sk_X509_OBJECT_num(all); i++) {
        X509 *authority = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(all, i));
        if (authority == NULL || X509_check_ca(authority) == 0 || has_list(context->lists, authority))
            continue;
        lh_tls_name(authority, name);
        lh_error_set(error, LH_INVALID_ARGUMENT, "%s: there is no revocation list of the authority %s of %s in it",
                     file, name, context->ca_file != NULL ? context->ca_file : "the system");
        return false;
    }
    return true;
}

bool lh_tls_use_lists(struct lh_tls_context *context, BIO *from, const char *file, struct lh_error *error)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context->ssl);
    X509_CRL *list;

    context->lists = sk_X509_CRL_new_null();
    while ((list = PEM_read_bio_X509_CRL(from, NULL, NULL, NULL)) != NULL) {
        X509_STORE_add_crl(store, list); /* has a reference of its own */
        if (sk_X509_CRL_push(context->lists, list) == 0)
            abort();
    }
    if (sk_X509_CRL_num(context->lists) == 0) {
        lh_error_set(error, LH_INVALID_ARGUMENT, "%s: there is no revocation list in it; PEM is expected", file);
        return false;
    }
    X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
    return check_authorities(context, file, error);
}

struct lh_tls_lists lh_tls_context_lists(const struct lh_tls_context *context)
{
    struct lh_tls_lists found = {.left_s = INT64_MAX};

    for (int i = 0; i < sk_X509_CRL_num(context->lists); i++) {
        X509_CRL *list = sk_X509_CRL_value(context->lists, i);
        const ASN1_TIME *next = X509_CRL_get0_nextUpdate(list);
        int days = 0, seconds = 0;
        found.lists++;
        found.revoked +=
            (size_t)(X509_CRL_get_REVOKED(list) == NULL ? 0 : sk_X509_REVOKED_num(X509_CRL_get_REVOKED(list)));
        if (next != NULL && ASN1_TIME_diff(&days, &seconds, NULL, next) == 1 &&
            days * INT64_C(86400) + seconds < found.left_s)
            found.left_s = days * INT64_C(86400) + seconds;
    }
    return found;
}

static bool is_in(STACK_OF(X509_CRL) * lists, X509 *certificate)
{
    for (int i = 0; i < sk_X509_CRL_num(lists); i++) {
        X509_CRL *list = sk_X509_CRL_value(lists, i);
        X509_REVOKED *entry;
        if (X509_NAME_cmp(X509_CRL_get_issuer(list), X509_get_issuer_name(certificate)) == 0 &&
            X509_CRL_get0_by_cert(list, &entry, certificate) == 1)
            return true;
    }
    return false;
}

bool lh_tls_session_is_revoked(const struct lh_tls_session *session, const struct lh_tls_context *context)
{
    STACK_OF(X509) *chain = session->is_open ? SSL_get0_verified_chain(session->ssl) : NULL;

    if (context == session->context || context->lists == NULL)
        return false;
    for (int i = 0; i < sk_X509_num(chain); i++)
        if (is_in(context->lists, sk_X509_value(chain, i)))
            return true;
    return false;
}
