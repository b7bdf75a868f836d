#include "cli/rights.h"

#include <stdlib.h>
#include <string.h>

#include "cli/args.h"

#define COUNT 5

static const char *const names[COUNT + 1] = {
    [LEASEHOLD__V1__RIGHT__RIGHT_UNSPECIFIED] = "", [LEASEHOLD__V1__RIGHT__RIGHT_READ] = "read",
    [LEASEHOLD__V1__RIGHT__RIGHT_LEASE] = "lease",  [LEASEHOLD__V1__RIGHT__RIGHT_GUARD] = "guard",
    [LEASEHOLD__V1__RIGHT__RIGHT_ADMIN] = "admin",
};

static enum lh_status parse(const char *word, Leasehold__V1__Right *right, struct lh_error *error)
{
    const char *near;

    for (int i = 1; i < COUNT; i++)
        if (strcmp(names[i], word) == 0) {
            *right = (Leasehold__V1__Right)i;
            return LH_OK;
        }
    near = lh_nearest(word, names + 1);
    return lh_error_set(error, LH_INVALID_ARGUMENT, "unknown right: %s; use read, lease, guard or admin%s%s%s", word,
                        near != NULL ? "; did you mean " : "", near != NULL ? near : "", near != NULL ? "?" : "");
}

enum lh_status lh_rights_parse(const char *const *words, size_t count, Leasehold__V1__Right *rights,
                               struct lh_error *error)
{
    enum lh_status status = LH_OK;

    for (size_t i = 0; i < count && status == LH_OK; i++)
        status = parse(words[i], &rights[i], error);
    return status;
}

char *lh_rights_text(const Leasehold__V1__Right *rights, size_t count)
{
    char *text = lh_strdup("");

    for (size_t i = 0; i < count; i++) {
        const char *comma = i > 0 ? "," : "";
        char *longer = rights[i] > 0 && rights[i] < COUNT ? lh_format("%s%s%s", text, comma, names[rights[i]])
                                                          : lh_format("%s%s%d", text, comma, (int)rights[i]);
        free(text);
        text = longer;
    }
    return text;
}
