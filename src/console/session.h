/*
 * Sessions of browsers: a cookie that stands for a bearer token. They live in memory, at most SESSION_LIFE_US, and
 * end with the token, because each call carries it. At SESSIONS_MAX the oldest gives way.
 */
#ifndef LH_CONSOLE_SESSION_H
#define LH_CONSOLE_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SESSION_COOKIE "leasehold_session"
#define SESSIONS_MAX 256
#define SESSION_LIFE_US (INT64_C(12) * 3600 * 1000000)
#define SESSION_SECRET_BYTES 44 /* 256 bits in base64url, and NUL */

/* Attempts to sign in from one address: as many at once, then one a second. */
#define SIGN_IN_BURST 10
#define SIGN_IN_SOURCES 64

struct session {
    char id[SESSION_SECRET_BYTES]; /* "": none */
    char csrf[SESSION_SECRET_BYTES];
    char *authorization; /* "Bearer TOKEN" */
    uint64_t number;     /* never used again */
    int64_t ends_at_us;
};

struct session_table {
    struct session sessions[SESSIONS_MAX];
    size_t count;
    uint64_t made;
    struct sign_in_source {
        char address[64];
        int64_t full_at_us; /* time when all of the burst is there again */
    } sources[SIGN_IN_SOURCES];
};

/* NULL: there is none with that cookie (any more). */
struct session *lh_session_find(struct session_table *table, const char *id, int64_t now_us);
struct session *lh_session_find_number(struct session_table *table, uint64_t number, int64_t now_us);
struct session *lh_session_create(struct session_table *table, const char *authorization, int64_t now_us);
void lh_session_end(struct session_table *table, struct session *session);
void lh_session_finish(struct session_table *table);

/* In the time that both take whatever is in them. */
bool lh_session_is_csrf(const struct session *session, const char *text);

/* The value of a cookie in a Cookie header, into `value`; false: there is none, or it does not fit. */
bool lh_session_cookie(const char *header, const char *name, char *value, size_t room);

/* Returns false after too many attempts from `peer`, "ADDRESS:PORT"; of IPv6 the first 64 bits count. */
bool lh_session_may_sign_in(struct session_table *table, const char *peer, int64_t now_us);

#endif
