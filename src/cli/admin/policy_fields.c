#include "cli/admin/admin_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "cli/args.h"
#include "cli/arguments.h"
#include "json/row_message.h"

const ProtobufCFieldDescriptor *lh_policy_field(const char *name, struct lh_error *error)
{
    const ProtobufCFieldDescriptor *fields[LH_POLICY_SETTINGS_MAX];
    const char *names[LH_POLICY_SETTINGS_MAX + 1];
    size_t count = lh_policy_settings(fields);
    const char *near;

    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i]->name, name) == 0)
            return fields[i];
        names[i] = fields[i]->name;
    }
    names[count] = NULL;
    near = lh_nearest(name, names);
    if (near != NULL)
        lh_error_set(error, LH_INVALID_ARGUMENT, "a policy has no setting '%.64s'; did you mean %s?", name, near);
    else
        lh_error_set(error, LH_INVALID_ARGUMENT, "a policy has no setting '%.64s'", name);
    return NULL;
}

/* --- from words --- */

/* NULL: `choices` are the words that there are. */
static const char *parse_enum(const ProtobufCFieldDescriptor *field, const char *text, struct lh_arena *arena,
                              char choices[128])
{
    const ProtobufCEnumDescriptor *type = field->descriptor;

    choices[0] = '\0';
    for (unsigned i = 0; i < type->n_values; i++) {
        const char *word = lh_message_word(type, type->values[i].value, arena);
        size_t used = strlen(choices);

        if (word == NULL) /* unspecified */
            continue;
        if (strcmp(word, text) == 0)
            return word;
        snprintf(choices + used, 128 - used, "%s%s", used > 0 ? ", " : "", word);
    }
    return NULL;
}

static const char *parse_bool(const char *text)
{
    static const char *const words[][2] = {{"true", "false"}, {"yes", "no"}, {"on", "off"}, {"1", "0"}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        for (size_t j = 0; j < 2; j++)
            if (strcasecmp(text, words[i][j]) == 0)
                return words[0][j];
    return NULL;
}

static enum lh_status parse_number(const ProtobufCFieldDescriptor *field, const char *text, char value[24],
                                   struct lh_error *error)
{
    enum lh_setting_kind kind = lh_policy_setting_kind(field);
    int64_t number = 0;
    enum lh_status status =
        kind == LH_SETTING_DURATION
            ? lh_check_duration(field->name, text, 0, &number, error)
            : lh_check_number(field->name, text, 0, kind == LH_SETTING_INT32 ? INT32_MAX : INT64_MAX, &number, error);

    snprintf(value, 24, "%" PRId64, number);
    return status;
}

enum lh_status lh_policy_parse(struct lh_arena *arena, Leasehold__V1__Policy *policy,
                               const ProtobufCFieldDescriptor *field, const char *text, struct lh_error *error)
{
    enum lh_setting_kind kind = lh_policy_setting_kind(field);
    char number[24], choices[128];
    const char *value = number;
    struct lh_rows row = {.columns = &field->name, .column_count = 1, .cells = &value, .row_count = 1};

    if (kind == LH_SETTING_ENUM) {
        value = parse_enum(field, text, arena, choices);
        if (value == NULL)
            return lh_error_set(error, LH_INVALID_ARGUMENT, "%s '%.64s' is unknown; it may be one of: %s", field->name,
                                text, choices);
    } else if (kind == LH_SETTING_BOOL) {
        value = parse_bool(text);
        if (value == NULL)
            return lh_error_set(error, LH_INVALID_ARGUMENT, "%s '%.64s' is neither true nor false", field->name, text);
    } else if (parse_number(field, text, number, error) != LH_OK) {
        return LH_INVALID_ARGUMENT;
    }
    lh_row_fill(&policy->base, &row, 0, arena);
    return LH_OK;
}

/* --- to words --- */

char *lh_policy_text(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field)
{
    struct lh_arena arena = {0};
    const char *value = lh_policy_value(policy, field, &arena);
    char *text;

    if (value != NULL && lh_policy_setting_kind(field) == LH_SETTING_DURATION)
        value = lh_arena_strdup(&arena, LH_DURATION_TEXT(lh_policy_number(policy, field)));
    else if (value == NULL && lh_policy_has(policy, field)) /* an enum's that is newer than this program */
        value = lh_arena_format(&arena, "%" PRId64, lh_policy_number(policy, field));
    text = lh_strdup(value);
    lh_arena_finish(&arena);
    return text;
}
