/*
 * The questions of `leasehold check-database` that one statement answers. A statement gives a row for each thing that it
 * found: level ('ok', 'note', 'warning' or 'failed'), found (what is so) and advice (what to do, or ''). No row: there is
 * nothing to tell.
 */
#ifndef LH_CLI_DATABASE_CHECKS_H
#define LH_CLI_DATABASE_CHECKS_H

struct lh_database_check {
    const char *name;
    const char *sql;
    const char *hidden; /* advice where the role may not ask this; NULL: then the answer is "not known", a note */
};

/* Ends in a row without name. Runs on PostgreSQL 12 and later, on a standby, and without the schema. */
extern const struct lh_database_check lh_database_checks[];

#endif
