#include "tls/tls_internal.h"

#include <arpa/inet.h>
#include <openssl/asn1.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"

#define SPIFFE "spiffe://"

static STACK_OF(GENERAL_NAME) * names_of(const X509 *certificate)
{
    return X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
}

static bool is_usable(const ASN1_IA5STRING *text)
{
    const unsigned char *bytes = ASN1_STRING_get0_data(text);
    int size = ASN1_STRING_length(text);

    for (int i = 0; i < size; i++)
        if (bytes[i] <= ' ' || bytes[i] > '~')
            return false;
    return size > 0 && size <= TLS_PRINCIPAL_MAX_BYTES;
}

static bool is_spiffe(const ASN1_IA5STRING *text)
{
    return (size_t)ASN1_STRING_length(text) > strlen(SPIFFE) &&
           strncasecmp((const char *)ASN1_STRING_get0_data(text), SPIFFE, strlen(SPIFFE)) == 0;
}

/* The first usable name of this type; of URIs one of SPIFFE goes before the others. */
static const ASN1_IA5STRING *find(const STACK_OF(GENERAL_NAME) * names, int type)
{
    const ASN1_IA5STRING *first = NULL;

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != type || !is_usable(name->d.ia5))
            continue;
        if (type == GEN_URI && is_spiffe(name->d.ia5))
            return name->d.ia5;
        if (first == NULL)
            first = name->d.ia5;
    }
    return first;
}

char *lh_tls_principal(const struct x509_st *certificate)
{
    STACK_OF(GENERAL_NAME) *names = names_of(certificate);
    const ASN1_IA5STRING *found = find(names, GEN_URI);
    const char *prefix = "uri:";
    char *principal = NULL;

    if (found != NULL && is_spiffe(found))
        prefix = "";
    if (found == NULL) {
        found = find(names, GEN_DNS);
        prefix = "dns:";
    }
    if (found != NULL)
        principal = lh_format("%s%.*s", prefix, ASN1_STRING_length(found), ASN1_STRING_get0_data(found));
    GENERAL_NAMES_free(names);
    return principal;
}

void lh_tls_name(const struct x509_st *certificate, char name[TLS_NAME_BYTES])
{
    char *principal = lh_tls_principal(certificate);

    if (principal != NULL)
        snprintf(name, TLS_NAME_BYTES, "%s", principal);
    else
        X509_NAME_oneline(X509_get_subject_name(certificate), name, TLS_NAME_BYTES);
    free(principal);
}

static void add_name(char names[TLS_NAME_BYTES], const char *text, int size)
{
    size_t used = strlen(names);
    snprintf(names + used, TLS_NAME_BYTES - used, "%s%.*s", used > 0 ? ", " : "", size, text);
}

/* False for an address that is neither 4 nor 16 bytes. */
static bool write_ip(const ASN1_OCTET_STRING *address, char ip[INET6_ADDRSTRLEN])
{
    int size = ASN1_STRING_length(address);

    return (size == 4 || size == 16) &&
           inet_ntop(size == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(address), ip, INET6_ADDRSTRLEN) != NULL;
}

void lh_tls_server_names(const struct x509_st *certificate, char names[TLS_NAME_BYTES])
{
    STACK_OF(GENERAL_NAME) *all = names_of(certificate);

    names[0] = '\0';
    for (int i = 0; i < sk_GENERAL_NAME_num(all); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(all, i);
        char ip[INET6_ADDRSTRLEN];
        if (name->type == GEN_DNS && is_usable(name->d.dNSName))
            add_name(names, (const char *)ASN1_STRING_get0_data(name->d.dNSName), ASN1_STRING_length(name->d.dNSName));
        else if (name->type == GEN_IPADD && write_ip(name->d.iPAddress, ip))
            add_name(names, ip, (int)strlen(ip));
    }
    if (names[0] == '\0')
        snprintf(names, TLS_NAME_BYTES, "no name");
    GENERAL_NAMES_free(all);
}

static int64_t seconds(const ASN1_TIME *time)
{
    struct tm parts;

    return ASN1_TIME_to_tm(time, &parts) == 1 ? (int64_t)timegm(&parts) : 0;
}

static void write_date(const ASN1_TIME *time, char date[TLS_DATE_BYTES])
{
    struct tm parts;

    if (ASN1_TIME_to_tm(time, &parts) != 1 || strftime(date, TLS_DATE_BYTES, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        snprintf(date, TLS_DATE_BYTES, "an unreadable date");
}

int64_t lh_tls_not_after_s(const struct x509_st *certificate)
{
    return seconds(X509_get0_notAfter(certificate));
}

void lh_tls_not_before_text(const struct x509_st *certificate, char date[TLS_DATE_BYTES])
{
    write_date(X509_get0_notBefore(certificate), date);
}

void lh_tls_not_after_text(const struct x509_st *certificate, char date[TLS_DATE_BYTES])
{
    write_date(X509_get0_notAfter(certificate), date);
}
