#include "access/bearer.h"

#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

#define SCHEME "bearer "
#define TOKEN_BYTES 53 /* the prefix, 43 characters of secret, 6 of checksum */

bool lh_bearer_is_foreign(const char *header)
{
    size_t scheme = strcspn(header, " ");

    return scheme > 0 && header[scheme] == ' ' && strncasecmp(header, SCHEME, strlen(SCHEME)) != 0 &&
           strstr(header, LH_ACCESS_TOKEN_PREFIX) == NULL;
}

bool lh_bearer_hash(const char *header, uint8_t hash[LH_ACCESS_HASH_BYTES])
{
    const char *token = header + strlen(SCHEME);
    unsigned size;

    if (strncasecmp(header, SCHEME, strlen(SCHEME)) != 0)
        return false;
    token += strspn(token, " ");
    if (strncmp(token, LH_ACCESS_TOKEN_PREFIX, strlen(LH_ACCESS_TOKEN_PREFIX)) != 0 || strlen(token) != TOKEN_BYTES)
        return false;
    return EVP_Digest(token, TOKEN_BYTES, hash, &size, EVP_sha256(), NULL) == 1;
}
