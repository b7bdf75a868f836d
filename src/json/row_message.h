/*
 * A row as a message, by the message's descriptor: a field takes the column of its name. A Scope takes the columns
 * "namespace" and "key", or those of its field's name ("holds_namespace", "holds_key"); a Namespace "namespace";
 * Duration and Timestamp microseconds; an enum's value in small letters without the enum's name ("shared" is
 * MODE_SHARED), "none" of which is left out; repeated numbers and enums with commas between them, enums in the order of
 * their numbers. A null is an unset field.
 */
#ifndef LH_JSON_ROW_MESSAGE_H
#define LH_JSON_ROW_MESSAGE_H

#include <protobuf-c/protobuf-c.h>

#include "base/memory.h"
#include "base/rows.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* Return what stands for a value in a message, in the arena. Strings are borrowed. */
Google__Protobuf__Duration *lh_message_duration(int64_t duration_us, struct lh_arena *arena);
Google__Protobuf__Timestamp *lh_message_timestamp(int64_t time_us, struct lh_arena *arena);
Leasehold__V1__Namespace *lh_message_namespace(const char *ns, struct lh_arena *arena);
Leasehold__V1__Scope *lh_message_scope(const char *ns, const char *key, struct lh_arena *arena);

/* Returns "shared" for MODE_SHARED; NULL for 0, and for a value that this program does not know. */
const char *lh_message_word(const ProtobufCEnumDescriptor *type, int value, struct lh_arena *arena);

/* Returns "payments.invoices", in the arena; "" without segments. */
const char *lh_message_dotted(char *const *segments, size_t count, struct lh_arena *arena);

/* Returns an initialised message. */
void *lh_message_new(const ProtobufCMessageDescriptor *type, struct lh_arena *arena);

/* Sets those fields of `message` that the row has. Strings are borrowed from the rows. */
void lh_row_fill(ProtobufCMessage *message, const struct lh_rows *rows, size_t row, struct lh_arena *arena);
/* Returns a message of a row alone. */
void *lh_row_message(const ProtobufCMessageDescriptor *type, const struct lh_rows *rows, size_t row,
                     struct lh_arena *arena);

/* Returns an answer of rows: if the first field is repeated it has a message for each of them, if it is a message the
   first row's, if there is a row; else the answer itself is the first row. */
void *lh_rows_message(const ProtobufCMessageDescriptor *type, const struct lh_rows *rows, struct lh_arena *arena);

/* Returns where the field of this name is in `message`; NULL: it has none. */
void *lh_message_field(ProtobufCMessage *message, const char *name);

/* Returns the elements of the first field of `message`, which is repeated. */
void **lh_message_list(const ProtobufCMessage *message, size_t *count);
/* Sets the first field of `message`, which is repeated, to `count` elements. */
void lh_message_set_list(ProtobufCMessage *message, void *elements, size_t count);

#endif
