/* What the table says for people. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "config/table.h"

#define WIDTH 100

/* Break at spaces; each line begins with `indent`. */
static void print_wrapped(FILE *out, const char *indent, const char *text)
{
    size_t room = WIDTH - strlen(indent);

    while (*text != '\0') {
        size_t size = strlen(text);
        if (size > room) {
            size = room;
            while (size > 0 && text[size] != ' ')
                size--;
            if (size == 0)
                size = strcspn(text, " ");
        }
        fprintf(out, "%s%.*s\n", indent, (int)size, text);
        text += size;
        text += strspn(text, " ");
    }
}

static char *number(const struct lh_setting *setting, int64_t value)
{
    struct lh_settings settings = {0};

    memcpy((char *)&settings + setting->offset, &value, sizeof(value));
    return lh_setting_format(&settings, setting);
}

/* "Default 20s; 0, or 100ms to 1d; a reload changes it." */
static char *facts(const struct lh_setting *setting)
{
    bool is_number = setting->type == LH_TYPE_INT || setting->type == LH_TYPE_DURATION;
    char *min = is_number ? number(setting, setting->min) : NULL;
    char *max = is_number ? number(setting, setting->max) : NULL;
    char *text = lh_format("%s%s%s%s%s%s%s%s%s%s", setting->standard == NULL ? "No default" : "Default ",
                           setting->standard == NULL ? "" : setting->standard, is_number ? "; " : "",
                           (setting->flags & LH_SETTING_OR_ZERO) != 0 ? "0, or " : "", is_number ? min : "",
                           is_number ? " to " : "", is_number ? max : "",
                           (setting->flags & LH_SETTING_RELOADABLE) != 0 ? "; a reload changes it" : "",
                           setting->environment == NULL ? "" : "; environment: ",
                           setting->environment == NULL ? "" : setting->environment);
    free(min);
    free(max);
    return text;
}

static void print_flag(FILE *out, const struct lh_setting *setting)
{
    static const char *const words[] = {"TEXT", "ADDRESS", "ADDRESS,...", "N", "DURATION", "yes|no", NULL};
    const char *word = words[setting->type];
    char *name = lh_strdup(setting->name);
    char *more = facts(setting);

    for (char *c = name; *c != '\0'; c++) {
        if (*c == '_')
            *c = '-';
    }
    fprintf(out, "  --%s %s\n", name, word == NULL ? setting->choices : word);
    print_wrapped(out, "      ", setting->help);
    print_wrapped(out, "      ", more);
    free(name);
    free(more);
}

void lh_settings_print_help(FILE *out)
{
    fprintf(out, "leaseholdd " LH_VERSION ": a lease coordinator on PostgreSQL\n\n"
                 "usage: leaseholdd [--config FILE] [--NAME VALUE | --NAME=VALUE]...\n"
                 "       leaseholdd --check-config | --print-config | --version | --help\n\n"
                 "  --check-config  print the settings in effect, or what is wrong with them, and end\n"
                 "  --print-config  print a documented example of a configuration file and end\n");
    for (size_t i = 0; i < lh_settings_count; i++) {
        if (lh_settings_table[i].heading != NULL)
            fprintf(out, "\n%s\n", lh_settings_table[i].heading);
        print_flag(out, &lh_settings_table[i]);
    }
    fprintf(out, "\nTERM and INT shut down; HUP reads the configuration file again.\n"
                 "Exit status: 0 after a clean shutdown, 1 when it could not go on, 2 for wrong usage or settings.\n");
}

void lh_settings_print_effective(const struct lh_settings *settings, FILE *out)
{
    static const char *const from[] = {"default", NULL, "environment", "command line"};

    fprintf(out, "[leasehold]\n");
    for (size_t i = 0; i < lh_settings_count; i++) {
        const struct lh_setting *setting = &lh_settings_table[i];
        char *value = lh_setting_format(settings, setting);
        if (value == NULL || (setting->flags & LH_SETTING_FLAG_ONLY) != 0) {
            free(value);
            continue;
        }
        if ((setting->flags & LH_SETTING_SECRET) != 0) {
            char *shown = lh_database_redact(value);
            free(value);
            value = shown;
        }
        if (settings->ranks[i] == LH_RANK_FILE)
            fprintf(out, "# %s:%d\n%s = %s\n", settings->config, settings->lines[i], setting->name, value);
        else
            fprintf(out, "# %s\n%s = %s\n", from[settings->ranks[i]], setting->name, value);
        free(value);
    }
}

void lh_settings_print_example(FILE *out)
{
    fprintf(out,
            "# Settings of leaseholdd " LH_VERSION ", as leaseholdd --print-config writes them. Every line that is\n"
            "# commented out shows the default. Durations: 500ms, 20s, 5m, 1h30m, 1d.\n"
            "[leasehold]\n");
    for (size_t i = 0; i < lh_settings_count; i++) {
        const struct lh_setting *setting = &lh_settings_table[i];
        char *more;
        if ((setting->flags & LH_SETTING_FLAG_ONLY) != 0)
            continue;
        if (setting->heading != NULL)
            fprintf(out, "\n# ---- %s ----\n", setting->heading);
        more = facts(setting);
        fputc('\n', out);
        print_wrapped(out, "# ", setting->help);
        print_wrapped(out, "# ", more);
        fprintf(out, ";%s =%s%s\n", setting->name, setting->standard == NULL ? "" : " ",
                setting->standard == NULL ? "" : setting->standard);
        free(more);
    }
}

/* The end of a value in a connection string: a blank, unless quoted (libpq, "Connection Strings"). */
static const char *value_end(const char *text)
{
    if (*text != '\'')
        return text + strcspn(text, " \t");
    for (text++; *text != '\0' && *text != '\''; text++) {
        if (*text == '\\' && text[1] != '\0')
            text++;
    }
    return *text == '\0' ? text : text + 1;
}

static char *without(const char *text, const char *begin, const char *end)
{
    return lh_format("%.*s***%s", (int)(begin - text), text, end);
}

char *lh_database_redact(const char *database)
{
    const char *host = strstr(database, "://");
    const char *password = strstr(database, "password=");

    if (host != NULL) {
        const char *begin = host + 3;
        const char *at = begin + strcspn(begin, "/?");
        const char *colon;
        while (at > begin && *at != '@')
            at--;
        colon = memchr(begin, ':', (size_t)(at - begin));
        if (*at == '@' && colon != NULL)
            return without(database, colon + 1, at);
        if (password != NULL)
            return without(database, password + strlen("password="), password + strcspn(password, "&"));
    } else if (password != NULL) {
        password += strlen("password=");
        return without(database, password, value_end(password));
    }
    return lh_strdup(database);
}
