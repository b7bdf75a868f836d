/*
 * A row of a view as a message, by the message's descriptor: a field takes the column of its name. A Scope takes the
 * columns "namespace" and "key", or those of its field's name ("holds_namespace", "holds_key"); a Namespace
 * "namespace"; Duration and Timestamp microseconds; an enum's value in small letters without the enum's name ("shared"
 * is MODE_SHARED); repeated numbers with commas between them. A null is an unset field.
 */
#ifndef LH_SERVICE_VIEW_ROW_H
#define LH_SERVICE_VIEW_ROW_H

#include <protobuf-c/protobuf-c.h>

#include "base/memory.h"
#include "lease/view.h"

/* Fills an initialised message. Strings are borrowed from the answer. */
void lh_view_row_fill(ProtobufCMessage *message, const struct lh_view_answer *answer, size_t row,
                      struct lh_arena *arena);
/* Returns the cell of a column; NULL: there is no such column, or it is null. */
const char *lh_view_cell(const struct lh_view_answer *answer, size_t row, const char *column);

#endif
