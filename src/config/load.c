/*
 * Where settings come from. The command line is read first, for it may name the file; then the file, the environment
 * and the command line are applied in that order, so that the later one wins. Everything wrong is collected, so that
 * one run tells all.
 */
#include "config/config_internal.h"

#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/memory.h"

#define SECTION "leasehold"
#define LINE_MAX_BYTES 4096
#define ARGUMENTS_MAX 200
#define ORIGIN_BYTES 512

struct flag {
    const struct lh_setting *setting;
    const char *value;
};

struct file {
    struct lh_settings *settings;
    struct lh_config_errors *errors;
    const char *path;
    FILE *stream;
    int line;
    bool is_continuation; /* the line begins with white space: more of the value above */
};

/* One value from one place; `line` is 0 outside of a file. */
struct origin {
    enum lh_config_rank rank;
    const char *where;
    int line;
    bool is_more; /* of the value that the line above began */
};

static void apply(struct lh_settings *settings, const struct lh_setting *setting, const char *text,
                  const struct origin *origin, struct lh_config_errors *errors)
{
    size_t i = (size_t)(setting - lh_settings_table);
    char why[160];

    if (lh_setting_set(settings, setting, text, origin->is_more, why, sizeof(why))) {
        settings->ranks[i] = origin->rank;
        settings->lines[i] = origin->line;
        return;
    }
    if ((setting->flags & LH_SETTING_SECRET) != 0)
        text = "...";
    if (origin->line > 0)
        lh_config_error(errors, "%s:%d: %s = %s: %s", origin->where, origin->line, setting->name, text, why);
    else
        lh_config_error(errors, "%s: %s = %s: %s", origin->where, setting->name, text, why);
}

static bool takes_value(const struct lh_setting *setting, const char *next)
{
    static const char *const words[] = {"yes", "no", "on", "off", "true", "false", "0", "1"};

    if (setting->type != LH_TYPE_BOOL)
        return true;
    for (size_t i = 0; next != NULL && i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(next, words[i]) == 0)
            return true;
    }
    return false; /* --insecure alone means yes */
}

static bool is_action(const char *argument, enum lh_config_action *action)
{
    static const struct {
        const char *name;
        enum lh_config_action action;
    } actions[] = {{"--help", LH_CONFIG_HELP},
                   {"-h", LH_CONFIG_HELP},
                   {"--version", LH_CONFIG_VERSION},
                   {"--check-config", LH_CONFIG_CHECK},
                   {"--print-config", LH_CONFIG_PRINT}};

    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(argument, actions[i].name) == 0) {
            *action = actions[i].action;
            return true;
        }
    }
    return false;
}

static size_t read_flags(int argc, char **argv, enum lh_config_action *action, struct flag *flags,
                         struct lh_config_errors *errors)
{
    size_t count = 0;

    for (int i = 1; i < argc && count < ARGUMENTS_MAX; i++) {
        const char *argument = argv[i];
        const char *value = strchr(argument, '=');
        const struct lh_setting *setting = NULL;
        if (is_action(argument, action))
            continue;
        if (strncmp(argument, "--", 2) == 0)
            setting =
                lh_setting_find(argument + 2, value != NULL ? (size_t)(value - argument) - 2 : strlen(argument) - 2);
        if (setting == NULL) {
            lh_config_error(errors, "command line: %s: unknown option; --help lists them", argument);
            continue;
        }
        if (value != NULL) {
            value++;
        } else if (!takes_value(setting, argv[i + 1])) {
            value = "yes";
        } else if (argv[i + 1] == NULL) {
            lh_config_error(errors, "command line: %s: a value is missing", argument);
            continue;
        } else {
            value = argv[++i];
        }
        flags[count].setting = setting;
        flags[count++].value = value;
    }
    if (count == ARGUMENTS_MAX)
        lh_config_error(errors, "command line: more than %d options", ARGUMENTS_MAX);
    return count;
}

/* inih cuts what does not fit without a word, so lines are measured here. */
static char *read_line(char *to, int size, void *arg)
{
    struct file *file = arg;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length = getline(&line, &capacity, file->stream);

    if (length < 0) {
        free(line);
        return NULL;
    }
    file->line++;
    file->is_continuation = line[0] == ' ' || line[0] == '\t';
    if (length >= size || strlen(line) != (size_t)length) {
        lh_config_error(file->errors, "%s:%d: %s", file->path, file->line,
                        length >= size ? "the line is too long: 4094 bytes are allowed" : "a NUL byte");
        length = 0;
    }
    memcpy(to, line, (size_t)length);
    to[length] = '\0';
    free(line);
    return to;
}

static void continue_value(struct file *file, const struct lh_setting *setting, const char *value,
                           const struct origin *origin)
{
    char *begin = lh_setting_format(file->settings, setting);
    char *whole = lh_format("%s %s", begin, value);

    apply(file->settings, setting, whole, origin, file->errors);
    free(begin);
    free(whole);
}

static int on_line(void *arg, const char *section, const char *name, const char *value)
{
    struct file *file = arg;
    struct origin origin = {LH_RANK_FILE, file->path, file->line, false};
    const struct lh_setting *setting = lh_setting_find(name, strlen(name));
    size_t i;

    if (strcmp(section, SECTION) != 0) {
        if (!lh_databases_take(file->settings, section, name, value, file->line, file->is_continuation, file->errors))
            lh_config_error(file->errors,
                            "%s:%d: %s stands in section [%s]; settings belong in [" SECTION "] or [database NAME]",
                            file->path, file->line, name, section);
        return 1;
    }
    if (setting == NULL || (setting->flags & LH_SETTING_FLAG_ONLY) != 0) {
        lh_config_error(file->errors, "%s:%d: %s: %s", file->path, file->line, name,
                        setting == NULL ? "unknown setting; leaseholdd --print-config lists them"
                                        : "belongs on the command line");
        return 1;
    }
    i = (size_t)(setting - lh_settings_table);
    origin.is_more = file->is_continuation && (setting->type == LH_TYPE_ADDRESSES || setting->type == LH_TYPE_WORDS);
    if (file->settings->ranks[i] == LH_RANK_DEFAULT || origin.is_more)
        apply(file->settings, setting, value, &origin, file->errors);
    else if (file->is_continuation && setting->type == LH_TYPE_STRING)
        continue_value(file, setting, value, &origin);
    else
        lh_config_error(file->errors, "%s:%d: %s: set in line %d already", file->path, file->line, name,
                        file->settings->lines[i]);
    return 1;
}

static void read_file(struct lh_settings *settings, struct lh_config_errors *errors)
{
    struct file file = {settings, errors, settings->config, fopen(settings->config, "re"), 0, false};
    size_t size_before = errors->size;
    int bad_line;

    if (file.stream == NULL) {
        lh_config_error(errors, "%s: cannot be opened: %s", file.path, strerror(errno));
        return;
    }
    ini_max_line = LINE_MAX_BYTES;
    bad_line = ini_parse_stream(read_line, &file, on_line, &file);
    if (bad_line > 0 && size_before == errors->size)
        lh_config_error(errors, "%s:%d: neither a [section], nor a # comment, nor name = value", file.path, bad_line);
    fclose(file.stream);
}

static void read_environment(struct lh_settings *settings, struct lh_config_errors *errors)
{
    for (size_t i = 0; i < lh_settings_count; i++) {
        const struct lh_setting *setting = &lh_settings_table[i];
        const char *value = setting->environment == NULL ? NULL : getenv(setting->environment);
        char where[64];
        struct origin origin = {LH_RANK_ENVIRONMENT, where, 0, false};
        if (value == NULL || *value == '\0' || (setting->flags & LH_SETTING_FLAG_ONLY) != 0)
            continue;
        snprintf(where, sizeof(where), "environment, %s", setting->environment);
        apply(settings, setting, value, &origin, errors);
    }
}

static char *default_directory(void)
{
    const char *of_service = getenv("STATE_DIRECTORY"); /* systemd, StateDirectory=: several are separated by colons */
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");

    if (of_service != NULL && *of_service == '/' && strchr(of_service, ':') == NULL)
        return lh_strdup(of_service);
    if (geteuid() == 0)
        return lh_strdup("/var/lib/leasehold");
    if (state != NULL && *state == '/')
        return lh_format("%s/leasehold", state);
    if (home != NULL && *home == '/')
        return lh_format("%s/.local/state/leasehold", home);
    return NULL;
}

/* "--embedded", "LEASEHOLD_DATABASE", "/etc/leasehold.ini:7" */
static void name_origin(const struct lh_settings *settings, const struct lh_setting *setting, char text[ORIGIN_BYTES])
{
    size_t i = (size_t)(setting - lh_settings_table);

    if (settings->ranks[i] == LH_RANK_FILE)
        snprintf(text, ORIGIN_BYTES, "%s:%d", settings->config, settings->lines[i]);
    else if (settings->ranks[i] == LH_RANK_ENVIRONMENT)
        snprintf(text, ORIGIN_BYTES, "environment, %s", setting->environment);
    else
        snprintf(text, ORIGIN_BYTES, "command line");
}

static void choose_sections(const struct lh_settings *settings, const struct lh_setting *other,
                            struct lh_config_errors *errors)
{
    char origin[ORIGIN_BYTES];

    lh_databases_check(settings, errors);
    if (other == NULL)
        return;
    name_origin(settings, other, origin);
    lh_config_error(errors, "%s (%s) and [database %s] (%s:%d) exclude each other: use one or the other", other->name,
                    origin, settings->databases->name, settings->config, settings->databases->line);
}

/*
 * Exactly one of the two, wherever they were set: a place that wins without a word would leave a daemon on another
 * database than the one its file names.
 */
static void choose_database(struct lh_settings *settings, struct lh_config_errors *errors)
{
    const struct lh_setting *database = lh_setting_find("database", strlen("database"));
    const struct lh_setting *embedded = lh_setting_find("embedded", strlen("embedded"));
    char one[ORIGIN_BYTES], other[ORIGIN_BYTES];

    if (settings->database_count > 0) {
        choose_sections(settings,
                        settings->database != NULL   ? database
                        : settings->embedded != NULL ? embedded
                                                     : NULL,
                        errors);
        return;
    }
    if (settings->database != NULL && settings->embedded != NULL) {
        name_origin(settings, database, one);
        name_origin(settings, embedded, other);
        lh_config_error(errors, "database (%s) and embedded (%s) exclude each other: set one of them", one, other);
    }
    if (settings->database == NULL && settings->embedded == NULL)
        settings->embedded = default_directory();
    if (settings->database == NULL && settings->embedded == NULL)
        lh_config_error(errors, "embedded: HOME is not set: say where the data goes, or set database");
    if (settings->embedded != NULL && settings->embedded[0] != '/') {
        char *here = getcwd(NULL, 0);
        char *whole = lh_format("%s/%s", here == NULL ? "" : here, settings->embedded);
        free(here);
        free(settings->embedded);
        settings->embedded = whole;
    }
}

/* What does not go without something else. */
static void check_tls(const struct lh_settings *settings, struct lh_config_errors *errors)
{
    if (settings->tls_cert != NULL && settings->tls_key == NULL)
        lh_settings_refuse(settings, "tls_cert", "set tls_key too, the file with its private key", errors);
    if (settings->tls_cert == NULL && settings->tls_key != NULL)
        lh_settings_refuse(settings, "tls_key", "set tls_cert too, the file with the certificate", errors);
    if (settings->tls_cert == NULL && settings->tls_client_ca != NULL)
        lh_settings_refuse(settings, "tls_client_ca", "set tls_cert and tls_key too", errors);
    if (settings->tls_client_ca == NULL && settings->tls_crl != NULL)
        lh_settings_refuse(settings, "tls_crl", "set tls_client_ca too, whose certificates it revokes", errors);
}

static bool is_of_this_machine(const char *text)
{
    struct lh_address address;
    char why[160];

    return !lh_address_parse(text, &address, why, sizeof(why)) || lh_address_is_local(&address);
}

static void choose_authorization(struct lh_settings *settings)
{
    if (settings->ranks[lh_setting_find("authorization", strlen("authorization")) - lh_settings_table] !=
        LH_RANK_DEFAULT)
        return;
    for (size_t i = 0; i < settings->listen.count; i++)
        settings->authorization = settings->authorization || !is_of_this_machine(settings->listen.items[i]);
}

static void check_reach(const char *name, const char *text, struct lh_config_errors *errors)
{
    if (!is_of_this_machine(text))
        lh_config_error(errors,
                        "%s = %s: other machines could reach it, without encryption or authentication: use a loopback "
                        "address or a unix socket, set tls_cert and tls_key, or say insecure = yes",
                        name, text);
}

bool lh_settings_load(struct lh_settings *settings, int argc, char **argv, struct lh_config_errors *errors)
{
    struct flag flags[ARGUMENTS_MAX];
    size_t count = read_flags(argc, argv, &settings->action, flags, errors);
    struct origin origin = {LH_RANK_FLAG, "command line", 0, false};
    const char *file = getenv("LEASEHOLD_CONFIG");
    bool is_open;

    if (settings->action == LH_CONFIG_HELP || settings->action == LH_CONFIG_VERSION ||
        settings->action == LH_CONFIG_PRINT)
        return errors->size == 0;
    for (size_t i = 0; i < count; i++) {
        if ((flags[i].setting->flags & LH_SETTING_FLAG_ONLY) != 0)
            file = flags[i].value;
    }
    if (file != NULL && *file != '\0') {
        free(settings->config);
        settings->config = lh_strdup(file);
        read_file(settings, errors);
    }
    read_environment(settings, errors);
    for (size_t i = 0; i < count; i++) {
        if ((flags[i].setting->flags & LH_SETTING_FLAG_ONLY) == 0)
            apply(settings, flags[i].setting, flags[i].value, &origin, errors);
    }
    choose_database(settings, errors);
    choose_authorization(settings);
    check_tls(settings, errors);
    is_open = settings->insecure || settings->tls_cert != NULL;
    for (size_t i = 0; !is_open && i < settings->listen.count; i++)
        check_reach("listen", settings->listen.items[i], errors);
    if (!is_open && settings->admin != NULL)
        check_reach("admin", settings->admin, errors);
    return errors->size == 0;
}

void lh_settings_refuse(const struct lh_settings *settings, const char *name, const char *why,
                        struct lh_config_errors *errors)
{
    const struct lh_setting *setting = lh_setting_find(name, strlen(name));
    char *value = lh_setting_format(settings, setting);
    char *shown = (setting->flags & LH_SETTING_SECRET) != 0 ? lh_database_redact(value) : lh_strdup(value);
    char where[ORIGIN_BYTES];

    name_origin(settings, setting, where);
    lh_config_error(errors, "%s: %s = %s: %s", where, name, shown, why);
    free(shown);
    free(value);
}

void lh_settings_refuse_database(const struct lh_settings *settings, size_t index, const char *why,
                                 struct lh_config_errors *errors)
{
    const struct lh_database_section *section = &settings->databases[index];
    char *shown = lh_database_redact(section->database);

    lh_config_error(errors, "%s:%d: [database %s] database = %s: %s", settings->config, section->line, section->name,
                    shown, why);
    free(shown);
}

void lh_settings_adopt(struct lh_settings *settings, struct lh_settings *fresh,
                       void (*told)(void *arg, const char *sentence), void *arg)
{
    for (size_t i = 0; i < lh_settings_count; i++) {
        const struct lh_setting *setting = &lh_settings_table[i];
        char *was = lh_setting_format(settings, setting);
        char *is = lh_setting_format(fresh, setting);
        bool differs = (was == NULL) != (is == NULL) || (was != NULL && strcmp(was, is) != 0);
        bool is_secret = (setting->flags & LH_SETTING_SECRET) != 0;
        char why[160];
        if (differs) {
            bool changes = (setting->flags & LH_SETTING_RELOADABLE) != 0 && is != NULL &&
                           lh_setting_set(settings, setting, is, false, why, sizeof(why));
            char *sentence = lh_format("%s %s%s%s%s%s", setting->name, changes ? "is now " : "differs",
                                       !changes && !is_secret ? ": " : "", is_secret || is == NULL ? "" : is,
                                       changes ? ", it was " : " in the file; it takes effect at the next start",
                                       changes && was != NULL ? was : "");
            told(arg, sentence);
            free(sentence);
        }
        free(was);
        free(is);
    }
    lh_databases_adopt(settings, fresh);
}
