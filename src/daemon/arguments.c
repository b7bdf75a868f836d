#include "daemon/arguments.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/settings.h"
#include "pg/conn.h"

#define FLAG "--database"

/* In place: what is shown instead is cut, or filled up with NULs. */
static void hide_password(char *value)
{
    char *shown = lh_database_redact(value);
    size_t size = strlen(value);

    if (strcmp(shown, value) != 0)
        strncpy(value, shown, size);
    free(shown);
}

char **lh_arguments_take(int argc, char **argv)
{
    char **copy = lh_alloc_zero((size_t)argc + 1, sizeof(char *));
    size_t flag = strlen(FLAG);

    for (int i = 0; i < argc; i++)
        copy[i] = lh_strdup(argv[i]);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], FLAG "=", flag + 1) == 0)
            hide_password(argv[i] + flag + 1);
        else if (strcmp(argv[i], FLAG) == 0 && i + 1 < argc)
            hide_password(argv[++i]);
    }
    return copy;
}

void lh_arguments_finish(char **arguments)
{
    for (char **argument = arguments; *argument != NULL; argument++)
        free(*argument);
    free(arguments);
}

bool lh_arguments_load(struct lh_settings *settings, int argc, char **argv, struct lh_config_errors *errors)
{
    char why[256];

    if (!lh_settings_load(settings, argc, argv, errors))
        return false;
    for (size_t i = 0; i < settings->database_count; i++)
        if (!lh_pg_conninfo_check(settings->databases[i].database, why, sizeof(why)))
            lh_settings_refuse_database(settings, i, why, errors);
    if (errors->size > 0)
        return false;
    if (settings->database == NULL || lh_pg_conninfo_check(settings->database, why, sizeof(why)))
        return true;
    lh_settings_refuse(settings, "database", why, errors);
    return false;
}
