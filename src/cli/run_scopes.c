#include "cli/run_scopes.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/bounds.h"

static enum lh_status take(struct lh_run_scopes *scopes, const char *text, struct lh_error *error)
{
    struct lh_run_scope *scope = &scopes->list[scopes->count];
    char *colon;

    if (scopes->count == LH_ACQUIRE_ALL_MAX)
        return lh_bounds_refuse(error, "also", "at most 99 times",
                                "--also is given more than %d times; a command holds at most %d leases",
                                LH_ACQUIRE_ALL_MAX - 1, LH_ACQUIRE_ALL_MAX);
    if (strchr(text, ':') == NULL)
        return lh_bounds_refuse(error, "also", "of the form NS:KEY",
                                "also '%.64s' has no colon; it must be of the form NS:KEY", text);
    scope->text = lh_strdup(text);
    scopes->count++; /* from here on it is freed */
    colon = strchr(scope->text, ':');
    *colon = '\0';
    scope->ns = scope->text;
    scope->key = colon + 1;
    if (lh_check_namespace(scope->ns, error) != LH_OK || lh_bounds_key(scope->key, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    for (const struct lh_run_scope *other = scopes->list; other < scope; other++)
        if (strcmp(other->ns, scope->ns) == 0 && strcmp(other->key, scope->key) == 0)
            return lh_bounds_refuse(error, "also", "another key than the ones before",
                                    "also '%.64s' names a key that was named before", text);
    return LH_OK;
}

enum lh_status lh_run_scopes_take(struct lh_run_scopes *scopes, const struct lh_args *args, struct lh_error *error)
{
    const char *text;
    size_t at = 0;

    scopes->list[0] = (struct lh_run_scope){.ns = args->words[0], .key = args->words[1]};
    scopes->count = 1;
    while ((text = lh_args_next_value(args, "also", &at)) != NULL)
        if (take(scopes, text, error) != LH_OK)
            return LH_INVALID_ARGUMENT;
    return LH_OK;
}

void lh_run_scopes_finish(struct lh_run_scopes *scopes)
{
    for (size_t i = 0; i < scopes->count; i++)
        free(scopes->list[i].text);
}
