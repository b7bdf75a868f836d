#include "service/words_internal.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

const char *lh_json_from_labels(Leasehold__V1__AcquireRequest__LabelsEntry *const *labels, size_t count,
                                struct lh_arena *arena)
{
    json_t *object;
    char *text;
    const char *json;

    if (count == 0)
        return "{}";
    object = json_object();
    for (size_t i = 0; i < count; i++)
        json_object_set_new(object, labels[i]->key, json_string(labels[i]->value));
    text = json_dumps(object, JSON_COMPACT);
    json = lh_arena_strdup(arena, text);
    free(text);
    json_decref(object);
    return json;
}

size_t lh_json_to_labels(const char *json, struct lh_arena *arena, Leasehold__V1__Lease__LabelsEntry ***labels)
{
    json_t *object, *value;
    const char *name;
    size_t count = 0;

    *labels = NULL;
    if (json == NULL || strcmp(json, "{}") == 0 || json[0] == '\0')
        return 0;
    object = json_loads(json, 0, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        return 0;
    }
    *labels = lh_arena_alloc(arena, json_object_size(object) * sizeof(**labels));
    json_object_foreach(object, name, value)
    {
        Leasehold__V1__Lease__LabelsEntry *entry;
        if (!json_is_string(value))
            continue;
        entry = lh_message_new(&leasehold__v1__lease__labels_entry__descriptor, arena);
        entry->key = lh_arena_strdup(arena, name);
        entry->value = lh_arena_strdup(arena, json_string_value(value));
        (*labels)[count++] = entry;
    }
    json_decref(object);
    return count;
}

const char *lh_json_problem(const char *text, struct lh_arena *arena)
{
    json_error_t error;
    json_t *json = json_loads(text, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &error);

    if (json != NULL) {
        json_decref(json);
        return NULL;
    }
    /* Too large for a double is not too large for numeric: the database parses it once more and decides. */
    if (json_error_code(&error) == json_error_numeric_overflow)
        return NULL;
    return lh_arena_strdup(arena, error.text);
}
