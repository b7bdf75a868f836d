/* Answers in JSON, and what fails. */
#include "console/console_internal.h"

#include <stdlib.h>
#include <string.h>

#include "google/rpc/code.pb-c.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "rpc/grpc.h"

#define POLICY                                                                                                         \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "              \
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

void lh_console_add_headers(struct lh_http_request *request)
{
    lh_http_add_header(request, "Content-Security-Policy", POLICY);
    lh_http_add_header(request, "X-Content-Type-Options", "nosniff");
    lh_http_add_header(request, "Referrer-Policy", "no-referrer");
    lh_http_add_header(request, "Cross-Origin-Resource-Policy", "same-origin");
}

/* No answer carries a credential of a lease, whatever message it comes from. */
void lh_console_remove_lease_keys(json_t *json)
{
    const char *name;
    json_t *value;
    size_t i;

    if (json_is_object(json)) {
        json_object_del(json, "lease_key");
        json_object_foreach(json, name, value) lh_console_remove_lease_keys(value);
    } else if (json_is_array(json)) {
        json_array_foreach(json, i, value) lh_console_remove_lease_keys(value);
    }
}

void lh_console_answer_json(struct lh_http_request *request, int code, json_t *json)
{
    char *text;

    lh_console_remove_lease_keys(json);
    text = json_dumps(json, JSON_COMPACT);
    lh_console_add_headers(request);
    lh_http_add_header(request, "Cache-Control", "no-store");
    lh_http_answer(request, code, "application/json; charset=utf-8", text, strlen(text));
    free(text);
    json_decref(json);
}

static json_t *new_error(const char *code, const char *message)
{
    return json_pack("{s:s, s:s, s:s, s:{}, s:[]}", "code", code, "reason", "", "message", message, "metadata",
                     "violations");
}

static const char *name_of(int code)
{
    switch (code) {
    case 401:
        return lh_grpc_code_name(LH_GRPC_UNAUTHENTICATED);
    case 403:
    case 421:
        return lh_grpc_code_name(LH_GRPC_PERMISSION_DENIED);
    case 404:
        return lh_grpc_code_name(LH_GRPC_NOT_FOUND);
    case 405:
        return lh_grpc_code_name(LH_GRPC_UNIMPLEMENTED);
    case 429:
        return lh_grpc_code_name(LH_GRPC_RESOURCE_EXHAUSTED);
    case 503:
        return lh_grpc_code_name(LH_GRPC_UNAVAILABLE);
    default:
        return lh_grpc_code_name(LH_GRPC_INVALID_ARGUMENT);
    }
}

bool lh_console_refuse(struct lh_http_request *request, int code, const char *message)
{
    lh_console_answer_json(request, code, json_pack("{s:o}", "error", new_error(name_of(code), message)));
    return false;
}

int lh_console_code_of(enum lh_grpc_code code)
{
    switch (code) {
    case LH_GRPC_OK:
        return 200;
    case LH_GRPC_INVALID_ARGUMENT:
    case LH_GRPC_OUT_OF_RANGE:
        return 400;
    case LH_GRPC_UNAUTHENTICATED:
        return 401;
    case LH_GRPC_PERMISSION_DENIED:
        return 403;
    case LH_GRPC_NOT_FOUND:
        return 404;
    case LH_GRPC_ALREADY_EXISTS:
    case LH_GRPC_FAILED_PRECONDITION:
    case LH_GRPC_ABORTED:
        return 409;
    case LH_GRPC_RESOURCE_EXHAUSTED:
        return 429;
    case LH_GRPC_UNIMPLEMENTED:
        return 501;
    case LH_GRPC_UNAVAILABLE:
    case LH_GRPC_CANCELLED:
        return 503;
    case LH_GRPC_DEADLINE_EXCEEDED:
        return 504;
    default:
        return 500;
    }
}

static void add_info(json_t *error, const Google__Protobuf__Any *any)
{
    Google__Rpc__ErrorInfo *info = google__rpc__error_info__unpack(NULL, any->value.len, any->value.data);

    if (info == NULL)
        return;
    json_object_set_new(error, "reason", json_string(info->reason));
    for (size_t i = 0; i < info->n_metadata; i++)
        json_object_set_new(json_object_get(error, "metadata"), info->metadata[i]->key,
                            json_string(info->metadata[i]->value));
    google__rpc__error_info__free_unpacked(info, NULL);
}

static void add_violations(json_t *error, const Google__Protobuf__Any *any)
{
    Google__Rpc__BadRequest *request = google__rpc__bad_request__unpack(NULL, any->value.len, any->value.data);

    if (request == NULL)
        return;
    for (size_t i = 0; i < request->n_field_violations; i++)
        json_array_append_new(json_object_get(error, "violations"),
                              json_pack("{s:s, s:s}", "field", request->field_violations[i]->field, "description",
                                        request->field_violations[i]->description));
    google__rpc__bad_request__free_unpacked(request, NULL);
}

static bool is_type(const Google__Protobuf__Any *any, const char *name)
{
    const char *type = strrchr(any->type_url, '/');
    return type != NULL && strcmp(type + 1, name) == 0;
}

json_t *lh_console_error_of(const struct lh_rpc_result *result)
{
    json_t *error = new_error(lh_grpc_code_name(result->code), result->message);
    Google__Rpc__Status *status = NULL;

    if (result->details != NULL)
        status = google__rpc__status__unpack(NULL, result->details_size, result->details);
    for (size_t i = 0; status != NULL && i < status->n_details; i++) {
        if (is_type(status->details[i], "google.rpc.ErrorInfo"))
            add_info(error, status->details[i]);
        else if (is_type(status->details[i], "google.rpc.BadRequest"))
            add_violations(error, status->details[i]);
    }
    google__rpc__status__free_unpacked(status, NULL);
    return json_pack("{s:o}", "error", error);
}

/* --- the page's files, compiled in --- */

static const struct console_file *find(const char *path)
{
    const char *name = strcmp(path, "/") == 0 ? "/index.html" : path;

    for (size_t i = 0; lh_console_files[i].name != NULL; i++)
        if (strcmp(lh_console_files[i].name, name + 1) == 0)
            return &lh_console_files[i];
    return NULL;
}

bool lh_console_serve_file(struct lh_http_request *request)
{
    const struct console_file *file = find(request->head.path);
    const char *seen = lh_http_head_find(&request->head, "if-none-match");
    bool is_same;

    if (file == NULL)
        return false;
    is_same = seen != NULL && strstr(seen, file->tag) != NULL;
    lh_console_add_headers(request);
    lh_http_add_header(request, "Cache-Control", "no-cache");
    lh_http_add_header(request, "ETag", file->tag);
    lh_http_answer(request, is_same ? 304 : 200, file->type, file->bytes, is_same ? 0 : file->size);
    return true;
}
