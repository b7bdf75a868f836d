/* Whether a connection string can be meant: libpq itself takes unknown words and values only when it connects. */
#ifndef LH_PG_CONNINFO_H
#define LH_PG_CONNINFO_H

#include <stdbool.h>
#include <stddef.h>

/* False: `why` says what is wrong, without any password. No connection is made. */
bool lh_pg_conninfo_check(const char *conninfo, char *why, size_t why_bytes);

#endif
