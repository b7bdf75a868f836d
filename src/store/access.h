#ifndef LH_STORE_ACCESS_H
#define LH_STORE_ACCESS_H

#include <libpq-fe.h>

#include "base/memory.h"

/* Reads a text[] of rights as bits of enum lh_right. */
unsigned lh_rights_read(const PGresult *result, int row, int column, struct lh_arena *arena);

#endif
