#include "cli/holder/acquire_options.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static enum lh_status take_wait(struct lh_acquire_options *options, const struct lh_args *args, struct lh_error *error)
{
    const char *text = lh_args_value(args, "wait");

    if (text == NULL)
        return LH_OK;
    if (strcmp(text, "forever") == 0) {
        options->wait_us = LH_FOREVER;
    } else if (strcmp(text, "alive") == 0) {
        options->wait_while_alive = true;
    } else if (lh_check_duration("wait", text, 0, &options->wait_us, error) != LH_OK) {
        return options->wait_us == INT64_MAX
                   ? LH_INVALID_ARGUMENT
                   : lh_error_set(error, LH_INVALID_ARGUMENT,
                                  "invalid wait '%.64s'; use a duration such as 5s, forever or alive", text);
    }
    return LH_OK;
}

const char *lh_cli_given_number(const struct lh_args *args)
{
    for (size_t i = 0; i < LH_ACQUIRE_NUMBER_COUNT; i++)
        if (lh_args_has(args, lh_acquire_numbers[i].option))
            return lh_acquire_numbers[i].option;
    return NULL;
}

static enum lh_status take_number(const struct lh_acquire_number *number, const struct lh_args *args, int32_t *taken,
                                  struct lh_error *error)
{
    const char *text = lh_args_value(args, number->option);
    char *end;
    long given;

    if (text == NULL)
        return LH_OK;
    given = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0')
        return lh_error_set(error, LH_INVALID_ARGUMENT, "invalid %s '%.64s'; use a number, 0 to %d", number->option,
                            text, (int)number->most);
    if (lh_bounds_number(number->option, given, number->most, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    *taken = (int32_t)given;
    return LH_OK;
}

static enum lh_status take_numbers(struct lh_acquire_options *options, const struct lh_args *args,
                                   struct lh_error *error)
{
    int32_t *const numbers[] = {LH_ACQUIRE_NUMBERS(LH_NUMBER_ADDRESS, options)};
    enum lh_status status = LH_OK;

    for (size_t i = 0; status == LH_OK && i < LH_ACQUIRE_NUMBER_COUNT; i++)
        status = take_number(&lh_acquire_numbers[i], args, numbers[i], error);
    return status;
}

static enum lh_status take_at_least(struct lh_acquire_options *options, const struct lh_args *args,
                                    struct lh_error *error)
{
    const char *text = lh_args_value(args, "at-least");
    int64_t at_least_us;

    if (text == NULL)
        return LH_OK;
    if (lh_check_duration("at-least", text, 0, &at_least_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    options->at_least_us = at_least_us == 0 ? LH_NO_MINIMUM : at_least_us;
    return lh_bounds_duration("at-least", at_least_us, 0, LH_AT_LEAST_MAX_US, error);
}

static enum lh_status take_mode(struct lh_acquire_options *options, const struct lh_args *args, struct lh_error *error)
{
    const char *text = lh_args_value(args, "shared");
    int64_t units = 1;

    if (!lh_args_has(args, "shared"))
        return LH_OK;
    if (lh_args_has(args, "at-least"))
        return lh_error_set(error, LH_INVALID_ARGUMENT,
                            "--shared and --at-least cannot be combined: a shared lease has no minimum hold");
    if (text != NULL && lh_check_number("shared", text, 1, LH_UNITS_MAX, &units, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    options->mode = LH_SHARED;
    options->units = (int32_t)units;
    return LH_OK;
}

static enum lh_status take_label(struct lh_cli_acquire *asked, const char *text, struct lh_error *error)
{
    size_t name_size;

    if (lh_bounds_label(text, &name_size, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (asked->label_count == LH_LABELS_MAX)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "too many labels; a lease can have %d", LH_LABELS_MAX);
    for (size_t i = 0; i < asked->label_count; i++)
        if (strncmp(asked->labels[i], text, name_size + 1) == 0) /* the = too */
            return lh_error_set(error, LH_INVALID_ARGUMENT, "label %.*s is given twice", (int)name_size, text);
    asked->labels[asked->label_count++] = text;
    return LH_OK;
}

static enum lh_status take_labels(struct lh_cli_acquire *asked, const struct lh_args *args, struct lh_error *error)
{
    const char *text;
    size_t at = 0;

    while ((text = lh_args_next_value(args, "label", &at)) != NULL)
        if (take_label(asked, text, error) != LH_OK)
            return LH_INVALID_ARGUMENT;
    asked->options.labels = asked->labels;
    return LH_OK;
}

static enum lh_status take_lease_key(struct lh_cli_acquire *asked, const struct lh_args *args, struct lh_error *error)
{
    const char *text = lh_args_value(args, "lease-key");
    struct lh_uuid uuid;

    asked->is_own_key = text == NULL;
    if (text == NULL)
        uuid = lh_uuid_random();
    else if (lh_bounds_lease_key(text, &uuid, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    lh_uuid_format(&uuid, asked->lease_key);
    asked->options.lease_key = asked->lease_key;
    return LH_OK;
}

/* "user@host" by default: the process number of a shell would mean nothing a moment later. */
static enum lh_status take_owner(struct lh_cli_acquire *asked, const struct lh_args *args, struct lh_error *error)
{
    const char *text = lh_args_value(args, "owner");
    const struct passwd *user = getpwuid(geteuid());
    char host[128] = "localhost";

    if (text == NULL) {
        if (gethostname(host, sizeof(host)) == 0)
            host[sizeof(host) - 1] = '\0';
        if (user != NULL)
            snprintf(asked->owner, sizeof(asked->owner), "%.100s@%s", user->pw_name, host);
        else
            snprintf(asked->owner, sizeof(asked->owner), "%s", host);
        text = asked->owner;
    } else if (strlen(text) < sizeof(asked->owner)) {
        strcpy(asked->owner, text);
    }
    asked->options.owner = asked->owner;
    return lh_bounds_text("owner", LH_TEXT_OWNER, text, error);
}

enum lh_status lh_cli_acquire_take(struct lh_cli_acquire *asked, struct lh_cli *cli, struct lh_error *error)
{
    const struct lh_args *args = &cli->args;
    const char *duration = lh_args_value(args, "duration");

    asked->duration_us = 30 * LH_US_PER_S;
    if (duration != NULL &&
        lh_check_duration("duration", duration, LH_DURATION_MIN_US, &asked->duration_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (take_mode(&asked->options, args, error) != LH_OK || take_at_least(&asked->options, args, error) != LH_OK ||
        take_numbers(&asked->options, args, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (take_wait(&asked->options, args, error) != LH_OK || take_lease_key(asked, args, error) != LH_OK ||
        take_owner(asked, args, error) != LH_OK || take_labels(asked, args, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    asked->scope = lh_take_scope(args->words[0], args->words[1], &cli->arena, error);
    return asked->scope != NULL ? LH_OK : LH_INVALID_ARGUMENT;
}

void lh_cli_acquire_share_out(struct lh_acquire_options *options, struct lh_acquire_scope *scopes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        scopes[i].mode = options->mode;
        scopes[i].units = options->units;
        scopes[i].at_least_us = options->at_least_us;
    }
    options->mode = LH_EXCLUSIVE;
    options->units = 0;
    options->at_least_us = 0;
}
