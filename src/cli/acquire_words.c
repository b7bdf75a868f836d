#include "cli/acquire_words.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

static enum lh_status take_wait(struct lh_acquire_words *words, const struct lh_args *args, struct lh_error *error)
{
    const char *text = lh_args_value(args, "wait");

    words->wait = LH_CLI_WAIT_NONE;
    if (text == NULL)
        return LH_OK;
    if (strcmp(text, "forever") == 0) {
        words->wait = LH_CLI_WAIT_FOREVER;
    } else if (strcmp(text, "alive") == 0) {
        words->wait = LH_CLI_WAIT_ALIVE;
    } else {
        if (lh_check_duration("wait", text, 0, &words->wait_us, error) != LH_OK)
            return lh_error_set(error, LH_INVALID_ARGUMENT,
                                "wait '%.64s' is neither a duration, such as 5s, nor forever nor alive", text);
        words->wait = words->wait_us > 0 ? LH_CLI_WAIT_TIME : LH_CLI_WAIT_NONE;
    }
    return LH_OK;
}

static enum lh_status take_label(struct lh_acquire_words *words, const char *text, struct lh_error *error)
{
    Leasehold__V1__AcquireRequest__LabelsEntry *label = &words->labels[words->label_count];
    size_t name_size;

    if (lh_check_label(text, &name_size, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (words->label_count == LH_BOUND_LABELS)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "label: there are too many; a lease may have %d",
                            LH_BOUND_LABELS);
    for (size_t i = 0; i < words->label_count; i++)
        if (strlen(words->labels[i].key) == name_size && memcmp(words->labels[i].key, text, name_size) == 0)
            return lh_error_set(error, LH_INVALID_ARGUMENT, "label %s is given twice; each may be given once",
                                words->labels[i].key);
    leasehold__v1__acquire_request__labels_entry__init(label);
    label->key = lh_strdup(text);
    label->key[name_size] = '\0';
    label->value = label->key + name_size + 1;
    words->label_list[words->label_count++] = label;
    return LH_OK;
}

static enum lh_status take_labels(struct lh_acquire_words *words, const struct lh_args *args, struct lh_error *error)
{
    const char *text;
    size_t at = 0;

    while ((text = lh_args_next_value(args, "label", &at)) != NULL)
        if (take_label(words, text, error) != LH_OK)
            return LH_INVALID_ARGUMENT;
    return LH_OK;
}

static enum lh_status take_lease_key(struct lh_acquire_words *words, const struct lh_args *args, struct lh_error *error)
{
    const char *text = lh_args_value(args, "lease-key");
    struct lh_uuid uuid;

    words->is_own_key = text == NULL;
    if (text == NULL)
        uuid = lh_uuid_random();
    else if (lh_check_lease_key(text, &uuid, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    lh_uuid_format(&uuid, words->lease_key);
    return LH_OK;
}

/* "user@host" unless told: a shell's process number would mean nothing a moment later. */
static enum lh_status take_owner(struct lh_acquire_words *words, const struct lh_args *args, struct lh_error *error)
{
    const char *text = lh_args_value(args, "owner");
    const struct passwd *user = getpwuid(geteuid());
    char host[128] = "localhost";

    if (text == NULL) {
        if (gethostname(host, sizeof(host)) == 0)
            host[sizeof(host) - 1] = '\0';
        if (user != NULL)
            snprintf(words->owner, sizeof(words->owner), "%.100s@%s", user->pw_name, host);
        else
            snprintf(words->owner, sizeof(words->owner), "%s", host);
        text = words->owner;
    } else if (strlen(text) < sizeof(words->owner)) {
        strcpy(words->owner, text);
    }
    return lh_check_owner(text, error);
}

enum lh_status lh_acquire_words_take(struct lh_acquire_words *words, const struct lh_args *args, struct lh_error *error)
{
    const char *duration = lh_args_value(args, "duration");

    words->duration_us = 30 * LH_US_PER_S;
    if (duration != NULL &&
        lh_check_duration("duration", duration, LH_BOUND_DURATION_MIN_US, &words->duration_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (take_wait(words, args, error) != LH_OK || take_lease_key(words, args, error) != LH_OK ||
        take_owner(words, args, error) != LH_OK || take_labels(words, args, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return lh_scope_init(&words->scope, args->words[0], args->words[1], error) ? LH_OK : LH_INVALID_ARGUMENT;
}

void lh_acquire_words_finish(struct lh_acquire_words *words)
{
    lh_scope_finish(&words->scope);
    for (size_t i = 0; i < words->label_count; i++)
        free(words->labels[i].key);
}
