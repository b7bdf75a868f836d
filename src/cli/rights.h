/* The rights of access rules, as words: read, lease, guard, admin. */
#ifndef LH_CLI_RIGHTS_H
#define LH_CLI_RIGHTS_H

#include "base/memory.h"
#include "base/status.h"
#include "leasehold/v1/leasehold.pb-c.h"

/* Parses words; `rights` has room for `count`. LH_INVALID_ARGUMENT: a word is no right. */
enum lh_status lh_rights_parse(const char *const *words, size_t count, Leasehold__V1__Right *rights,
                               struct lh_error *error);

/* Returns "read,lease"; rights unknown to this program as numbers. A new string. */
char *lh_rights_text(const Leasehold__V1__Right *rights, size_t count);

#endif
