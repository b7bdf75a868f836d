/*
 * Revocation lists. OpenSSL looks into them at each handshake, for every certificate of the chain, and refuses one whose authority has no list: a list that
 * is missing must not let anybody in. So each authority of the file of authorities has to have one when the files are read; an administrator hears of it
 * then, and not through clients that are refused.
 *
 * A list whose next update is overdue stays in force: it refuses what it names as before, and the clients of a lease service are not locked out all at once
 * because a job did not run. The log warns.
 */
#ifndef LH_TLS_REVOCATION_H
#define LH_TLS_REVOCATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct bio_st;
struct lh_tls_context;
struct lh_tls_session;

/* The lists of a PEM file that is open, after the authorities. False: `error` says what is wrong with `file`. */
bool lh_tls_use_lists(struct lh_tls_context *context, struct bio_st *from, const char *file, struct lh_error *error);

struct lh_tls_lists {
    size_t lists;
    size_t revoked; /* certificates that they name */
    int64_t left_s; /* until the first of them should be followed by a newer one; below 0: it is overdue */
};
struct lh_tls_lists lh_tls_context_lists(const struct lh_tls_context *context);

/* A newer context than the session's own, with newer lists, names the peer's certificate or one of its chain. */
bool lh_tls_session_is_revoked(const struct lh_tls_session *session, const struct lh_tls_context *context);

#endif
