#include "certificates.h"

#include <dirent.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Not check's: the fuzzers have no test that runs. */
#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            perror(#condition);                                                                                        \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static char directory[] = "/tmp/lh-tls-XXXXXX";

const char *path_of(const char *file)
{
    static char paths[64][128];
    static unsigned next;
    char *path = paths[next++ % 64];

    snprintf(path, sizeof(paths[0]), "%s/%s", directory, file);
    return path;
}

static FILE *open_file(const char *name, const char *suffix, const char *mode)
{
    char file[64];
    FILE *stream;

    snprintf(file, sizeof(file), "%s%s", name, suffix);
    stream = fopen(path_of(file), mode);
    REQUIRE(stream != NULL);
    return stream;
}

static void extend(X509 *certificate, X509V3_CTX *context, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, context, nid, value);

    REQUIRE(extension != NULL);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
}

static X509 *read_certificate(const char *name)
{
    FILE *file = open_file(name, ".pem", "r");
    X509 *certificate = PEM_read_X509(file, NULL, NULL, NULL);

    fclose(file);
    return certificate;
}

static EVP_PKEY *read_key(const char *name)
{
    FILE *file = open_file(name, ".key", "r");
    EVP_PKEY *key = PEM_read_PrivateKey(file, NULL, NULL, NULL);

    fclose(file);
    return key;
}

static void write_files(const char *name, X509 *certificate, EVP_PKEY *key)
{
    FILE *file = open_file(name, ".pem", "w");

    PEM_write_X509(file, certificate);
    fclose(file);
    file = open_file(name, ".key", "w");
    PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
    fclose(file);
}

void make_certificate(const struct certificate *wanted)
{
    static long serial = 1;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    X509 *issuer = wanted->issuer != NULL ? read_certificate(wanted->issuer) : certificate;
    EVP_PKEY *issuer_key = wanted->issuer != NULL ? read_key(wanted->issuer) : key;
    X509V3_CTX context;

    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
    X509_gmtime_adj(X509_getm_notBefore(certificate), wanted->begins_s);
    X509_gmtime_adj(X509_getm_notAfter(certificate), wanted->ends_s != 0 ? wanted->ends_s : DAY_S);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                               (const unsigned char *)wanted->name, -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
    X509_set_pubkey(certificate, key);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    extend(certificate, &context, NID_basic_constraints, wanted->issuer == NULL ? "critical,CA:TRUE" : "CA:FALSE");
    if (wanted->san != NULL)
        extend(certificate, &context, NID_subject_alt_name, wanted->san);
    if (wanted->purpose != NULL)
        extend(certificate, &context, NID_ext_key_usage, wanted->purpose);
    REQUIRE(X509_sign(certificate, issuer_key, EVP_sha256()) > 0);
    write_files(wanted->name, certificate, key);
    if (wanted->issuer != NULL) {
        X509_free(issuer);
        EVP_PKEY_free(issuer_key);
    }
    X509_free(certificate);
    EVP_PKEY_free(key);
}

void certificates_setup(void)
{
    strcpy(directory + strlen(directory) - 6, "XXXXXX");
    REQUIRE(mkdtemp(directory) != NULL);
    make_certificate(&(struct certificate){.name = "ca", .begins_s = -DAY_S});
}

void certificates_teardown(void)
{
    DIR *files = opendir(directory);

    for (struct dirent *file; (file = readdir(files)) != NULL;)
        unlink(path_of(file->d_name));
    closedir(files);
    rmdir(directory);
}
