/*
 * The sections [database NAME] of the configuration file: where there is more than one database, each has the
 * namespaces that live in it, with all below them; one section may be the default, which has all others.
 *
 *     [database eu]
 *     database = host=db1.eu,db2.eu dbname=leasehold
 *     namespaces = payments, shop.eu
 */
#ifndef LH_CONFIG_DATABASES_H
#define LH_CONFIG_DATABASES_H

#include <stdbool.h>

#include "config/settings.h"

#define LH_DATABASES_MAX 64
#define LH_DATABASE_NAME_MAX_BYTES 32 /* inih cuts a header at 49 bytes */

struct lh_database_section {
    char *name;
    char *database;               /* a connection string */
    struct lh_strings namespaces; /* dotted */
    bool is_default;
    int line; /* line of its first setting in the file */
    int lines[3];
};

/* A line of a section whose header is `section`. False: that is no section of a database. */
bool lh_databases_take(struct lh_settings *settings, const char *section, const char *name, const char *value, int line,
                       bool is_continuation, struct lh_config_errors *errors);
/* After the last line: what is missing, and what the sections may not say together. */
void lh_databases_check(const struct lh_settings *settings, struct lh_config_errors *errors);
void lh_databases_clear(struct lh_settings *settings);
bool lh_databases_are_equal(const struct lh_settings *one, const struct lh_settings *other);

#endif
