/* What the suites of test_embed share: a connection to a database of their own, and callbacks that take notes. */
#ifndef LH_TEST_EMBED_H
#define LH_TEST_EMBED_H

#include <check.h>
#include <libpq-fe.h>

#include "leasehold.h"

extern const char *conninfo;
extern PGconn *conn; /* of each test anew */
extern struct lh_error test_error;

void execute(const char *sql);
const char *value(const char *sql);
void check_value(const char *sql, const char *expected);

/* What a callback does. */
struct script {
    const char *name;
    const char *sql; /* run in the transaction; NULL: nothing */
    int calls;
    int failures; /* of so many calls: with error 40001 */
    int answer;
    const char *words;
};

int note(void *arg, PGconn *on, const struct lh_embed_lease *lease, const char *words, struct lh_error *err);
/* That callback for every verb. */
struct lh_embed_options calling(struct script *script);
enum lh_status acquire(struct script *script, const char *key, struct lh_embed_lease *lease);

void add_embed_verbs(TCase *tests);
void add_embed_repeats(TCase *tests);
void add_embed_waiting(TCase *tests);
void add_embed_reaping(TCase *tests);

#endif
