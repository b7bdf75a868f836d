#include "config/config_internal.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bounds.h"
#include "base/memory.h"

#define PREFIX "database "

enum { OF_DATABASE, OF_NAMESPACES, OF_SPREAD, OF_DEFAULT };

/* What a section may hold, as values of settings; offsets are those of struct lh_database_section. */
static const struct {
    const char *name;
    enum lh_setting_type type;
} keys[] = {
    {"database", LH_TYPE_STRING}, {"namespaces", LH_TYPE_WORDS}, {"spread", LH_TYPE_WORDS}, {"default", LH_TYPE_BOOL}};

#define KEYS (sizeof(keys) / sizeof(keys[0]))

/* --- one line --- */

static const char *name_of(const char *section)
{
    size_t size = strlen(PREFIX);

    if (strncmp(section, PREFIX, size) != 0)
        return NULL;
    section += size;
    return section + strspn(section, " \t");
}

/* It is a label of metrics, and a part of page tokens. */
static bool is_good_name(const char *name)
{
    size_t size = strlen(name);

    for (size_t i = 0; i < size; i++)
        if (!isascii(name[i]) || (!isalnum((unsigned char)name[i]) && name[i] != '-' && name[i] != '_'))
            return false;
    return size > 0 && size <= LH_DATABASE_NAME_MAX_BYTES;
}

static struct lh_database_section *find(struct lh_settings *settings, const char *name)
{
    for (size_t i = 0; i < settings->database_count; i++)
        if (strcmp(settings->databases[i].name, name) == 0)
            return &settings->databases[i];
    return NULL;
}

static struct lh_database_section *add(struct lh_settings *settings, const char *name, int line)
{
    struct lh_database_section *section;

    settings->databases =
        lh_realloc(settings->databases, settings->database_count + 1, sizeof(struct lh_database_section));
    section = &settings->databases[settings->database_count++];
    *section = (struct lh_database_section){.name = lh_strdup(name), .line = line};
    return section;
}

static bool check_namespace(const char *ns, char *why, size_t why_bytes)
{
    char *segments[LH_NAMESPACE_MAX_SEGMENTS], *copy = lh_strdup(ns);
    struct lh_error error;
    size_t count;
    bool is_valid = lh_bounds_namespace(copy, segments, &count, &error) == LH_OK;

    if (!is_valid)
        snprintf(why, why_bytes, "%s", error.message);
    free(copy);
    return is_valid;
}

static bool take(struct lh_database_section *section, size_t key, const char *value, bool is_more, char *why,
                 size_t why_bytes)
{
    static const struct lh_setting list = {.type = LH_TYPE_WORDS, .offset = offsetof(struct lh_settings, listen)};
    static const struct lh_setting truth = {.type = LH_TYPE_BOOL, .offset = offsetof(struct lh_settings, insecure)};
    struct lh_strings *names = key == OF_SPREAD ? &section->spread : &section->namespaces;
    struct lh_settings scratch = {.listen = *names, .insecure = section->is_default};
    bool is_valid;

    if (key == OF_DATABASE) {
        char *whole = is_more ? lh_format("%s %s", section->database, value) : lh_strdup(value);
        if (*whole == '\0')
            snprintf(why, why_bytes, "must not be empty");
        free(section->database);
        section->database = *whole == '\0' ? NULL : whole;
        if (section->database == NULL)
            free(whole);
        return section->database != NULL;
    }
    is_valid = lh_setting_set(&scratch, key == OF_DEFAULT ? &truth : &list, value, is_more, why, why_bytes);
    *names = scratch.listen;
    section->is_default = scratch.insecure;
    for (size_t i = 0; key != OF_DEFAULT && is_valid && i < names->count; i++)
        is_valid = check_namespace(names->items[i], why, why_bytes);
    return is_valid;
}

static void take_line(const struct lh_settings *settings, struct lh_database_section *section, const char *name,
                      const char *value, int line, bool is_continuation, struct lh_config_errors *errors)
{
    char why[sizeof(((struct lh_error *)0)->message)];

    for (size_t i = 0; i < KEYS; i++) {
        bool is_more = is_continuation && section->lines[i] != 0 && keys[i].type != LH_TYPE_BOOL;
        if (strcmp(name, keys[i].name) != 0)
            continue;
        if (section->lines[i] != 0 && !is_more) {
            lh_config_error(errors, "%s:%d: [" PREFIX "%s] %s: set in line %d already", settings->config, line,
                            section->name, name, section->lines[i]);
            return;
        }
        section->lines[i] = line;
        if (!take(section, i, value, is_more, why, sizeof(why)))
            lh_config_error(errors, "%s:%d: [" PREFIX "%s] %s = %s: %s", settings->config, line, section->name, name,
                            i == OF_DATABASE ? "..." : value, why);
        return;
    }
    lh_config_error(errors,
                    "%s:%d: [" PREFIX "%s] %s: unknown setting; a section of a database has database, namespaces, "
                    "spread and default, the others belong in [leasehold]",
                    settings->config, line, section->name, name);
}

bool lh_databases_take(struct lh_settings *settings, const char *header, const char *name, const char *value, int line,
                       bool is_continuation, struct lh_config_errors *errors)
{
    const char *of = name_of(header);
    struct lh_database_section *section;

    if (of == NULL)
        return false;
    section = find(settings, of);
    if (section == NULL && !is_good_name(of)) {
        lh_config_error(errors,
                        "%s:%d: [%s]: the name of a database has 1 to %d letters, digits, hyphens and underscores",
                        settings->config, line, header, LH_DATABASE_NAME_MAX_BYTES);
        return true;
    }
    if (section == NULL && settings->database_count == LH_DATABASES_MAX) {
        lh_config_error(errors, "%s:%d: [%s]: at most %d databases may be configured", settings->config, line, header,
                        LH_DATABASES_MAX);
        return true;
    }
    if (section == NULL)
        section = add(settings, of, line);
    take_line(settings, section, name, value, line, is_continuation, errors);
    return true;
}

/* --- all of them --- */

static bool is_at_or_below(const char *ns, const char *top)
{
    size_t size = strlen(top);

    return strncmp(ns, top, size) == 0 && (ns[size] == '\0' || ns[size] == '.');
}

/* A namespace of a section: one of `namespaces`, or behind them one of `spread`. */
struct entry {
    const struct lh_database_section *section;
    const char *ns;
    size_t of;
};

/* Returns false behind the last. */
static bool get_entry(const struct lh_database_section *section, size_t index, struct entry *entry)
{
    bool is_spread = index >= section->namespaces.count;

    if (is_spread)
        index -= section->namespaces.count;
    if (is_spread && index >= section->spread.count)
        return false;
    *entry = (struct entry){.section = section,
                            .ns = is_spread ? section->spread.items[index] : section->namespaces.items[index],
                            .of = is_spread ? OF_SPREAD : OF_NAMESPACES};
    return true;
}

/* `is_later`: one stands behind the other. */
static void check_pair(const struct lh_settings *settings, const struct entry *one, const struct entry *other,
                       bool is_later, struct lh_config_errors *errors)
{
    bool is_same = strcmp(one->ns, other->ns) == 0;
    bool are_parts = one->of == OF_SPREAD && other->of == OF_SPREAD && one->section != other->section;

    if (is_same && is_later && !are_parts)
        lh_config_error(errors, "%s:%d: [" PREFIX "%s] %s: %s is in [" PREFIX "%s] (line %d) already", settings->config,
                        one->section->lines[one->of], one->section->name, keys[one->of].name, one->ns,
                        other->section->name, other->section->lines[other->of]);
    else if (!is_same && is_at_or_below(one->ns, other->ns))
        lh_config_error(errors,
                        "%s:%d: [" PREFIX "%s] %s: %s is below %s of [" PREFIX
                        "%s] (line %d): a namespace and all below it live in the same databases",
                        settings->config, one->section->lines[one->of], one->section->name, keys[one->of].name, one->ns,
                        other->ns, other->section->name, other->section->lines[other->of]);
}

static void check_overlaps(const struct lh_settings *settings, struct lh_config_errors *errors)
{
    const struct lh_database_section *list = settings->databases;
    struct entry one, other;

    for (size_t s = 0; s < settings->database_count; s++)
        for (size_t i = 0; get_entry(&list[s], i, &one); i++)
            for (size_t t = 0; t < settings->database_count; t++)
                for (size_t j = 0; get_entry(&list[t], j, &other); j++)
                    check_pair(settings, &one, &other, s > t || (s == t && i > j), errors);
}

static void check_database(const struct lh_settings *settings, const struct lh_database_section *section,
                           struct lh_config_errors *errors)
{
    const struct lh_database_section *other = settings->databases;

    if (section->lines[OF_DATABASE] == 0) {
        lh_config_error(errors, "%s:%d: [" PREFIX "%s] has no database: set it to a connection string",
                        settings->config, section->line, section->name);
        return;
    }
    if (section->database == NULL)
        return; /* refused in its line */
    while (other < section && (other->database == NULL || strcmp(other->database, section->database) != 0))
        other++;
    if (other < section)
        lh_config_error(errors,
                        "%s:%d: [" PREFIX "%s] has the database of [" PREFIX
                        "%s] (line %d): put all namespaces of one database into one section",
                        settings->config, section->lines[OF_DATABASE], section->name, other->name,
                        other->lines[OF_DATABASE]);
}

void lh_databases_check(const struct lh_settings *settings, struct lh_config_errors *errors)
{
    const struct lh_database_section *standard = NULL;

    for (size_t i = 0; i < settings->database_count; i++) {
        const struct lh_database_section *section = &settings->databases[i];
        check_database(settings, section, errors);
        if (section->namespaces.count == 0 && section->spread.count == 0 && !section->is_default)
            lh_config_error(errors, "%s:%d: [" PREFIX "%s] has no namespace: set namespaces, spread, or default = yes",
                            settings->config, section->line, section->name);
        if (section->is_default && standard != NULL)
            lh_config_error(errors, "%s:%d: [" PREFIX "%s] default = yes: [" PREFIX "%s] (line %d) is the default",
                            settings->config, section->lines[OF_DEFAULT], section->name, standard->name,
                            standard->lines[OF_DEFAULT]);
        else if (section->is_default)
            standard = section;
    }
    check_overlaps(settings, errors);
}

static void finish_names(struct lh_strings *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->items[i]);
    free(names->items);
}

static void finish(struct lh_database_section *section)
{
    finish_names(&section->namespaces);
    finish_names(&section->spread);
    free(section->database);
    free(section->name);
}

void lh_databases_clear(struct lh_settings *settings)
{
    for (size_t i = 0; i < settings->database_count; i++)
        finish(&settings->databases[i]);
    free(settings->databases);
    settings->databases = NULL;
    settings->database_count = 0;
}

static bool are_equal_names(const struct lh_strings *one, const struct lh_strings *other)
{
    if (one->count != other->count)
        return false;
    for (size_t i = 0; i < one->count; i++)
        if (strcmp(one->items[i], other->items[i]) != 0)
            return false;
    return true;
}

/* --- a reload --- */

void lh_settings_refuse_section(const struct lh_settings *settings, const char *section,
                                struct lh_config_errors *errors, const char *format, ...)
{
    char why[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    lh_config_error(errors, "%s: [database %s] %s", settings->config, section, why);
}

/* Returns the setting that differs, or NULL. */
static const char *find_difference(const struct lh_database_section *one, const struct lh_database_section *other)
{
    if (strcmp(one->database, other->database) != 0)
        return keys[OF_DATABASE].name;
    if (!are_equal_names(&one->namespaces, &other->namespaces))
        return keys[OF_NAMESPACES].name;
    if (!are_equal_names(&one->spread, &other->spread))
        return keys[OF_SPREAD].name;
    return one->is_default != other->is_default ? keys[OF_DEFAULT].name : NULL;
}

static bool is_spread(const struct lh_settings *settings, const char *ns)
{
    for (size_t i = 0; i < settings->database_count; i++)
        for (size_t j = 0; j < settings->databases[i].spread.count; j++)
            if (strcmp(settings->databases[i].spread.items[j], ns) == 0)
                return true;
    return false;
}

/* It comes or goes: it may only have keys of namespaces that other sections have, too. */
static void check_change(const struct lh_settings *settings, const struct lh_settings *others,
                         const struct lh_database_section *section, struct lh_config_errors *errors)
{
    const char *verb = settings == others ? "removed" : "added";

    if (section->is_default || section->namespaces.count > 0)
        lh_settings_refuse_section(settings, section->name, errors,
                                   "%s: a section that has it is %s by a restart of the daemon",
                                   keys[section->is_default ? OF_DEFAULT : OF_NAMESPACES].name, verb);
    for (size_t i = 0; i < section->spread.count; i++)
        if (!is_spread(others, section->spread.items[i]))
            lh_settings_refuse_section(settings, section->name, errors,
                                       "spread: %s has no other section; that takes a restart of the daemon",
                                       section->spread.items[i]);
}

/* Without a default it is the first section. */
static const char *home_of(const struct lh_settings *settings)
{
    for (size_t i = 0; i < settings->database_count; i++)
        if (settings->databases[i].is_default)
            return settings->databases[i].name;
    return settings->databases[0].name;
}

bool lh_settings_check_reload(struct lh_settings *settings, struct lh_settings *fresh, struct lh_config_errors *errors)
{
    if (settings->database_count == 0 || fresh->database_count == 0) {
        if (settings->database_count != fresh->database_count)
            lh_config_error(errors,
                            "%s: sections [" PREFIX "NAME] in the place of one database, or the other way round, take "
                            "a restart of the daemon",
                            fresh->config != NULL ? fresh->config : settings->config);
        return errors->size == 0;
    }
    for (size_t i = 0; i < fresh->database_count; i++) {
        const struct lh_database_section *section = &fresh->databases[i], *old = find(settings, section->name);
        const char *differs = old == NULL ? NULL : find_difference(old, section);
        if (old == NULL)
            check_change(fresh, settings, section, errors);
        if (differs != NULL)
            lh_settings_refuse_section(fresh, section->name, errors, "%s: a change takes a restart of the daemon",
                                       differs);
    }
    for (size_t i = 0; i < settings->database_count; i++)
        if (find(fresh, settings->databases[i].name) == NULL)
            check_change(fresh, fresh, &settings->databases[i], errors);
    if (errors->size == 0 && strcmp(home_of(settings), home_of(fresh)) != 0)
        lh_settings_refuse_section(fresh, home_of(fresh), errors,
                                   "without a default the first section has the tokens of clients, and that is %s; "
                                   "a change takes a restart of the daemon",
                                   home_of(settings));
    return errors->size == 0;
}

void lh_databases_adopt(struct lh_settings *settings, struct lh_settings *fresh)
{
    struct lh_database_section *list = settings->databases;
    size_t count = settings->database_count;

    settings->databases = fresh->databases;
    settings->database_count = fresh->database_count;
    fresh->databases = list;
    fresh->database_count = count;
}
