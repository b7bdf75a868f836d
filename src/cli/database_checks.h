/*
 * The checks of `leasehold check-database` that one statement does. A statement returns a row for each finding: level
 * ('ok', 'note', 'warning' or 'failed'), found (the fact) and advice (or ''). No row: no finding.
 */
#ifndef LH_CLI_DATABASE_CHECKS_H
#define LH_CLI_DATABASE_CHECKS_H

struct lh_database_check {
    const char *name;
    const char *sql;
    /* Advice if the role has no right to the statement; NULL: the finding is "not known" then, a note. */
    const char *hidden;
};

/* All checks; ends in a row without name. They run on PostgreSQL 12 and later, on a standby, and without the schema. */
extern const struct lh_database_check lh_database_checks[];

#endif
