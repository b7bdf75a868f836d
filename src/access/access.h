/*
 * Access of callers: access rules, bearer tokens, and the rights of one caller. It makes no system call: its owner
 * reads the rules from the database and hands them in, with the time.
 *
 *     lh_access_configure(access, true, admins, admin_count);
 *     lh_access_load(access, rules, rule_count, tokens, token_count);      again at each change
 *     lh_access_enter(access, "dns:worker.example.org", &caller);          once for a connection
 *     if (!lh_access_may(&caller, LH_RIGHT_LEASE, "payments.invoices")) ...
 *     lh_access_leave(&caller);
 *
 * A rule gives rights in a namespace and all below it; rules add up, and none takes rights away. The first question
 * about a principal after a change compiles its rights; later questions look them up in memory.
 */
#ifndef LH_ACCESS_ACCESS_H
#define LH_ACCESS_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bounds.h"

#define LH_ACCESS_HASH_BYTES 32 /* SHA-256 */
#define LH_ACCESS_TOKEN_PREFIX "lht_"

enum lh_right {
    LH_RIGHT_READ = 1,
    LH_RIGHT_LEASE = 2,
    LH_RIGHT_GUARD = 4,
    LH_RIGHT_ADMIN = 8, /* includes read and lease */
};

/* "read" and so on; of several rights the first. */
const char *lh_right_name(enum lh_right right);
/* 0: there is none of that name. */
unsigned lh_right_parse(const char *name);

struct lh_access_rule {
    const char *principal; /* exact, or a prefix that ends in '*' */
    const char *ns;        /* "" is everything */
    unsigned rights;
};

struct lh_access_token {
    const char *id;
    const char *name; /* the principal is token:NAME */
    uint8_t hash[LH_ACCESS_HASH_BYTES];
    int64_t expires_at_us; /* on the database's clock; INT64_MAX: never */
};

struct lh_access;
struct lh_access_principal;
struct lh_access_badge; /* a token that callers have shown */

/* A caller. Zero-initialised it has no rights. */
struct lh_access_caller {
    struct lh_access_principal *principal;
    struct lh_access_badge *badge; /* NULL: it came without a token */
};

struct lh_access *lh_access_create(void);         /* off, nothing loaded */
void lh_access_destroy(struct lh_access *access); /* after the last lh_access_leave */

/* Off, every caller may do everything. The admins have the right admin everywhere; '*' as in rules. All is copied. */
void lh_access_configure(struct lh_access *access, bool is_on, const char *const *admins, size_t admin_count);
/* Replaces all rules and tokens by these. All is copied. */
void lh_access_load(struct lh_access *access, const struct lh_access_rule *rules, size_t rule_count,
                    const struct lh_access_token *tokens, size_t token_count);
/* The database's clock. True: a token has expired since the last time. */
bool lh_access_set_now(struct lh_access *access, int64_t now_us);

bool lh_access_is_on(const struct lh_access *access);
/* Returns false while access is on and no rules were loaded yet. */
bool lh_access_is_ready(const struct lh_access *access);
bool lh_access_is_loaded(const struct lh_access *access);
size_t lh_access_rule_count(const struct lh_access *access);
size_t lh_access_token_count(const struct lh_access *access);

/* A caller keeps what it has until it leaves. */
void lh_access_enter(struct lh_access *access, const char *principal, struct lh_access_caller *caller);
/* Enters the owner of a token. Returns false if no valid token has this hash. */
bool lh_access_enter_by_token(struct lh_access *access, const uint8_t hash[LH_ACCESS_HASH_BYTES],
                              struct lh_access_caller *caller);
bool lh_access_knows_token(const struct lh_access *access, const uint8_t hash[LH_ACCESS_HASH_BYTES]);
struct lh_access_caller lh_access_copy(const struct lh_access_caller *caller); /* leaves by itself */
void lh_access_leave(struct lh_access_caller *caller);

const char *lh_access_name(const struct lh_access_caller *caller); /* name of its principal */
bool lh_access_may(const struct lh_access_caller *caller, enum lh_right right, const char *ns);

/*
 * Finds the next name in which a caller has a right, in a namespace and below it, for walks in the order of the bytes
 * of names: `next` becomes the first name that is not before `from` (NULL: the first of all) and in which the caller
 * has the right. It may be one with a dot behind it, which stands for the names below it. Returns false if there is
 * none.
 */
#define LH_ACCESS_NAME_BYTES (LH_NAMESPACE_MAX_BYTES + 2)
bool lh_access_next(const struct lh_access_caller *caller, enum lh_right right, const char *ns, const char *from,
                    char next[LH_ACCESS_NAME_BYTES]);
/* The namespaces that hold all of these, none below another one: `ns` itself, or some that are below it. Returns how
   many; NULL: only that. The names are valid until the rules change. */
size_t lh_access_tops(const struct lh_access_caller *caller, enum lh_right right, const char *ns, const char **names);

/* The ids of tokens that were shown since the last time, as many as there is room for. */
size_t lh_access_take_used(struct lh_access *access, const char **ids, size_t room);

#endif
