/* The rights of access rules, as words: read, lease, guard, admin. */
#ifndef LH_CLI_RIGHTS_H
#define LH_CLI_RIGHTS_H

#include "base/memory.h"
#include "base/status.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* `rights` has room for `count`. LH_INVALID_ARGUMENT: one of the words is none. */
enum lh_status lh_rights_parse(const char *const *words, size_t count, Leasehold__V1__Right *rights,
                               struct lh_error *error);

/* "read,lease"; those that this program does not know as numbers. A new string. */
char *lh_rights_text(const Leasehold__V1__Right *rights, size_t count);

#endif
