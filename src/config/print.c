/* What the table says for people. */
#include "config/config_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define WIDTH 100
#define BLANKS " \t\n\r\f\v"

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
    bool is_number = setting->type == LH_TYPE_INT || setting->type == LH_TYPE_DURATION ||
                     setting->type == LH_TYPE_MODE || setting->type == LH_TYPE_SIZE || setting->type == LH_TYPE_RATIO;
    char *min = is_number ? number(setting, setting->min) : NULL;
    char *max = is_number ? number(setting, setting->max) : NULL;
    bool has_standard = setting->standard != NULL && *setting->standard != '\0';
    char *text = lh_format("%s%s%s%s%s%s%s%s%s%s", has_standard ? "Default " : "No default",
                           has_standard ? setting->standard : "", is_number ? "; " : "",
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
    static const char *const words[] = {
        [LH_TYPE_STRING] = "TEXT",    [LH_TYPE_ADDRESS] = "ADDRESS", [LH_TYPE_ADDRESSES] = "ADDRESS,...",
        [LH_TYPE_WORDS] = "WORD,...", [LH_TYPE_INT] = "N",           [LH_TYPE_DURATION] = "DURATION",
        [LH_TYPE_MODE] = "MODE",      [LH_TYPE_SIZE] = "SIZE",       [LH_TYPE_BOOL] = "yes|no",
        [LH_TYPE_CHOICE] = NULL,      [LH_TYPE_RATIO] = "RATIO",
    };
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

static void print_names(FILE *out, const char *name, const struct lh_strings *names)
{
    fprintf(out, "\n%s =", name);
    for (size_t i = 0; i < names->count; i++)
        fprintf(out, "%s %s", i > 0 ? "," : "", names->items[i]);
}

static void print_databases(const struct lh_settings *settings, FILE *out)
{
    for (size_t i = 0; i < settings->database_count; i++) {
        const struct lh_database_section *section = &settings->databases[i];
        char *shown = lh_database_redact(section->database);
        fprintf(out, "\n# %s:%d\n[database %s]\ndatabase = %s", settings->config, section->line, section->name, shown);
        print_names(out, "namespaces", &section->namespaces);
        if (section->spread.count > 0)
            print_names(out, "spread", &section->spread);
        fprintf(out, "\ndefault = %s\n", section->is_default ? "yes" : "no");
        free(shown);
    }
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
    print_databases(settings, out);
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
    fputs(
        "\n# ---- Several databases ----\n"
        "\n# Instead of database and embedded: a section for each, with the namespaces that live there, all below\n"
        "# them included. One may be the default: it has all other namespaces. A namespace under spread has its keys\n"
        "# spread over all sections that name it there.\n"
        "#\n"
        "#     [database eu]\n"
        "#     database = host=db1.eu,db2.eu dbname=leasehold\n"
        "#     namespaces = payments, shop.eu\n"
        "#     spread = jobs\n"
        "#     default = no\n",
        out);
}

/* The end of a value in a connection string: a blank, unless quoted (libpq, "Connection Strings"). */
static const char *value_end(const char *text)
{
    if (*text != '\'') {
        for (; *text != '\0' && strchr(BLANKS, *text) == NULL; text++) {
            if (*text == '\\' && text[1] != '\0')
                text++;
        }
        return text;
    }
    for (text++; *text != '\0' && *text != '\''; text++) {
        if (*text == '\\' && text[1] != '\0')
            text++;
    }
    return *text == '\0' ? text : text + 1;
}

/* Is it a password by its name? Libpq decodes the names in a URL too: one with an escape is taken for one. */
static bool is_secret(const char *name, const char *end)
{
    size_t size = (size_t)(end - name);

    return memchr(name, '%', size) != NULL || (size == 8 && memcmp(name, "password", 8) == 0) ||
           (size == 11 && memcmp(name, "sslpassword", 11) == 0);
}

static void append(struct lh_buffer *shown, const char *begin, const char *end)
{
    lh_buffer_append(shown, begin, (size_t)(end - begin));
}

/* user:password@host/name?option=value&... */
static void redact_url(struct lh_buffer *shown, const char *url)
{
    const char *host = strstr(url, "://") + 3;
    const char *options = host + strcspn(host, "?");
    const char *at = memrchr(host, '@', strcspn(host, "/?"));
    const char *colon = at == NULL ? NULL : memchr(host, ':', (size_t)(at - host));

    append(shown, url, colon != NULL ? colon + 1 : host);
    if (colon != NULL)
        lh_buffer_append(shown, "***", 3);
    append(shown, colon != NULL ? at : host, options);
    while (*options != '\0') {
        const char *name = options + 1;
        const char *equals = name + strcspn(name, "=&");
        const char *end = equals + strcspn(equals, "&");
        bool is_hidden = *equals == '=' && is_secret(name, equals);
        append(shown, options, is_hidden ? equals + 1 : end);
        if (is_hidden)
            lh_buffer_append(shown, "***", 3);
        options = end;
    }
}

/* name = value ..., with blanks around the = or without */
static void redact_pairs(struct lh_buffer *shown, const char *text)
{
    while (*text != '\0') {
        const char *name = text + strspn(text, BLANKS);
        const char *end_of_name = name + strcspn(name, "=" BLANKS);
        const char *equals = end_of_name + strspn(end_of_name, BLANKS);
        const char *value = *equals == '=' ? equals + 1 + strspn(equals + 1, BLANKS) : equals;
        const char *end = *equals == '=' ? value_end(value) : value;
        bool is_hidden = *equals == '=' && is_secret(name, end_of_name);
        append(shown, text, is_hidden ? value : end);
        if (is_hidden)
            lh_buffer_append(shown, "***", 3);
        text = end;
    }
}

char *lh_database_redact(const char *database)
{
    struct lh_buffer shown = {0};

    if (strncmp(database + strcspn(database, ":=" BLANKS), "://", 3) == 0)
        redact_url(&shown, database);
    else
        redact_pairs(&shown, database);
    lh_buffer_append(&shown, "", 1);
    return (char *)shown.data;
}
