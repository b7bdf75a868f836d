/* A check of connection strings: libpq itself refuses unknown words and values only when it connects. */
#ifndef LH_PG_CONNINFO_H
#define LH_PG_CONNINFO_H

#include <stdbool.h>
#include <stddef.h>

/* Returns false, with the fault in `why` (without any password), if libpq would refuse the string. Does not connect. */
bool lh_pg_conninfo_check(const char *conninfo, char *why, size_t why_bytes);

#endif
