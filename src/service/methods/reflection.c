/*
 * grpc.reflection.v1, and v1alpha, which is the same on the wire: https://grpc.io/docs/guides/reflection. At start the
 * FileDescriptorSet that protoc wrote is split into files, and every name in it is put into one sorted table; an answer
 * is the raw bytes of a file and of all that it imports.
 */
#include "service/service_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "descriptors.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "service/call_internal.h"
#include "service/words_internal.h"

#define FILES_MAX 32
#define NAME_BYTES 256

struct file {
    const uint8_t *data;
    size_t size;
    char *name;
    char *imports[FILES_MAX];
    size_t import_count;
};

struct symbol {
    char *name;
    size_t file;
    bool is_message;
};

struct lh_reflection {
    struct file files[FILES_MAX];
    size_t file_count;
    struct symbol *symbols; /* sorted by name */
    size_t symbol_count;
};

/* --- reading descriptors; field numbers are those of google/protobuf/descriptor.proto --- */

struct reader {
    const uint8_t *at;
    size_t left;
};

/* The next length-delimited field; others are passed over. protoc wrote the bytes, so they are well-formed. */
static bool next_field(struct reader *reader, unsigned *number, struct reader *value)
{
    while (reader->left > 0) {
        uint64_t tag, size = 0;
        size_t used = lh_wire_varint(reader->at, reader->left, &tag);
        unsigned wire = tag & 7;
        if (used == 0)
            return false;
        reader->at += used;
        reader->left -= used;
        used = wire == 1 ? 8 : wire == 5 ? 4 : lh_wire_varint(reader->at, reader->left, &size);
        if (used == 0 || used > reader->left || size > reader->left - used)
            return false;
        value->at = reader->at + used;
        value->left = wire == 2 ? (size_t)size : 0;
        reader->at = value->at + value->left;
        reader->left -= used + value->left;
        *number = (unsigned)(tag >> 3);
        if (wire == 2)
            return true;
    }
    return false;
}

static char *read_text(const struct reader *value)
{
    char *text = lh_alloc(value->left + 1);
    memcpy(text, value->at, value->left);
    text[value->left] = '\0';
    return text;
}

static void add_symbol(struct lh_reflection *reflection, const char *name, bool is_message)
{
    reflection->symbols = lh_realloc(reflection->symbols, reflection->symbol_count + 1, sizeof(*reflection->symbols));
    reflection->symbols[reflection->symbol_count++] =
        (struct symbol){.name = lh_strdup(name), .file = reflection->file_count, .is_message = is_message};
}

/* `scope` + "." + the name (field 1) of the thing at `value`. */
static void full_name(const char *scope, struct reader value, char name[NAME_BYTES])
{
    struct reader text;
    unsigned number;

    name[0] = '\0';
    while (next_field(&value, &number, &text))
        if (number == 1)
            snprintf(name, NAME_BYTES, "%s%s%.*s", scope, scope[0] == '\0' ? "" : ".", (int)text.left,
                     (const char *)text.at);
}

/* The members that have names only: fields, methods, enum values. */
static void add_members(struct lh_reflection *reflection, const char *scope, struct reader container, unsigned member)
{
    struct reader value;
    unsigned number;
    char name[NAME_BYTES];

    while (next_field(&container, &number, &value)) {
        if (number != member)
            continue;
        full_name(scope, value, name);
        add_symbol(reflection, name, false);
    }
}

static void add_enum(struct lh_reflection *reflection, const char *scope, struct reader value)
{
    char name[NAME_BYTES];

    full_name(scope, value, name);
    add_symbol(reflection, name, false);
    add_members(reflection, scope, value, 2); /* values are siblings of their enum */
}

static void add_message(struct lh_reflection *reflection, const char *scope, struct reader message)
{
    struct reader rest = message, value;
    char name[NAME_BYTES];
    unsigned number;

    full_name(scope, message, name);
    add_symbol(reflection, name, true);
    add_members(reflection, name, message, 2);
    while (next_field(&rest, &number, &value)) {
        if (number == 3)
            add_message(reflection, name, value);
        else if (number == 4)
            add_enum(reflection, name, value);
    }
}

static void add_service(struct lh_reflection *reflection, const char *scope, struct reader service)
{
    char name[NAME_BYTES];

    full_name(scope, service, name);
    add_symbol(reflection, name, false);
    add_members(reflection, name, service, 2);
}

static void add_file(struct lh_reflection *reflection, struct reader content)
{
    struct file *file = &reflection->files[reflection->file_count];
    struct reader rest = content, value;
    char package[NAME_BYTES] = "";
    unsigned number;

    file->data = content.at;
    file->size = content.left;
    while (next_field(&rest, &number, &value)) {
        if (number == 1)
            file->name = read_text(&value);
        else if (number == 2)
            snprintf(package, sizeof(package), "%.*s", (int)value.left, (const char *)value.at);
        else if (number == 3 && file->import_count < FILES_MAX)
            file->imports[file->import_count++] = read_text(&value);
    }
    for (rest = content; next_field(&rest, &number, &value);) {
        if (number == 4)
            add_message(reflection, package, value);
        else if (number == 5)
            add_enum(reflection, package, value);
        else if (number == 6)
            add_service(reflection, package, value);
    }
    reflection->file_count++;
}

static int compare_symbols(const void *a, const void *b)
{
    return strcmp(((const struct symbol *)a)->name, ((const struct symbol *)b)->name);
}

struct lh_reflection *lh_reflection_create(void)
{
    struct lh_reflection *reflection = lh_alloc_zero(1, sizeof(*reflection));
    struct reader set = {.at = lh_proto_descriptors, .left = lh_proto_descriptors_size}, value;
    unsigned number;

    while (reflection->file_count < FILES_MAX && next_field(&set, &number, &value))
        if (number == 1)
            add_file(reflection, value);
    qsort(reflection->symbols, reflection->symbol_count, sizeof(*reflection->symbols), compare_symbols);
    return reflection;
}

void lh_reflection_destroy(struct lh_reflection *reflection)
{
    if (reflection == NULL)
        return;
    for (size_t i = 0; i < reflection->file_count; i++) {
        free(reflection->files[i].name);
        for (size_t j = 0; j < reflection->files[i].import_count; j++)
            free(reflection->files[i].imports[j]);
    }
    for (size_t i = 0; i < reflection->symbol_count; i++)
        free(reflection->symbols[i].name);
    free(reflection->symbols);
    free(reflection);
}

/* --- answers --- */

#define NONE SIZE_MAX

static size_t find_file(const struct lh_reflection *reflection, const char *name)
{
    for (size_t i = 0; i < reflection->file_count; i++)
        if (strcmp(reflection->files[i].name, name) == 0)
            return i;
    return NONE;
}

static const struct symbol *find_symbol(const struct lh_reflection *reflection, const char *name)
{
    struct symbol wanted = {.name = (char *)name};
    return bsearch(&wanted, reflection->symbols, reflection->symbol_count, sizeof(wanted), compare_symbols);
}

/* Bits of the files that `file` needs, itself included. */
static uint32_t with_imports(const struct lh_reflection *reflection, size_t file, uint32_t chosen)
{
    if (file == NONE || (chosen >> file & 1) != 0)
        return chosen;
    chosen |= UINT32_C(1) << file;
    for (size_t i = 0; i < reflection->files[file].import_count; i++)
        chosen = with_imports(reflection, find_file(reflection, reflection->files[file].imports[i]), chosen);
    return chosen;
}

static void answer_error(Grpc__Reflection__V1__ServerReflectionResponse *response, enum lh_grpc_code code,
                         const char *message, struct lh_arena *arena)
{
    Grpc__Reflection__V1__ErrorResponse *error =
        lh_message_new(&grpc__reflection__v1__error_response__descriptor, arena);

    error->error_code = (int32_t)code;
    error->error_message = (char *)message;
    response->message_response_case = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    response->error_response = error;
}

static void answer_file(const struct lh_reflection *reflection, size_t file,
                        Grpc__Reflection__V1__ServerReflectionResponse *response, struct lh_arena *arena)
{
    uint32_t chosen = with_imports(reflection, file, 0);
    Grpc__Reflection__V1__FileDescriptorResponse *files;

    if (file == NONE) {
        answer_error(response, LH_GRPC_NOT_FOUND, "no file here has or declares that", arena);
        return;
    }
    files = lh_message_new(&grpc__reflection__v1__file_descriptor_response__descriptor, arena);
    files->file_descriptor_proto = lh_arena_alloc(arena, FILES_MAX * sizeof(*files->file_descriptor_proto));
    /* The one that was asked for comes first. */
    for (size_t i = 0; i < reflection->file_count; i++) {
        size_t at = (file + i) % reflection->file_count;
        if ((chosen >> at & 1) != 0)
            files->file_descriptor_proto[files->n_file_descriptor_proto++] =
                (ProtobufCBinaryData){.data = (uint8_t *)reflection->files[at].data, .len = reflection->files[at].size};
    }
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    response->file_descriptor_response = files;
}

static void answer_services(Grpc__Reflection__V1__ServerReflectionResponse *response, struct lh_arena *arena)
{
    Grpc__Reflection__V1__ListServiceResponse *list =
        lh_message_new(&grpc__reflection__v1__list_service_response__descriptor, arena);
    size_t count = 0;

    while (lh_service_names[count] != NULL)
        count++;
    list->n_service = count;
    list->service = lh_arena_alloc(arena, count * sizeof(*list->service));
    for (size_t i = 0; i < count; i++) {
        list->service[i] = lh_arena_alloc(arena, sizeof(**list->service));
        grpc__reflection__v1__service_response__init(list->service[i]);
        list->service[i]->name = (char *)lh_service_names[i];
    }
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    response->list_services_response = list;
}

/* There are no extensions in proto3 messages: a known message has none, an unknown one is an error. */
static void answer_extensions(const struct lh_reflection *reflection, char *type,
                              Grpc__Reflection__V1__ServerReflectionResponse *response, struct lh_arena *arena)
{
    const struct symbol *symbol = find_symbol(reflection, type);
    Grpc__Reflection__V1__ExtensionNumberResponse *numbers;

    if (symbol == NULL || !symbol->is_message) {
        answer_error(response, LH_GRPC_NOT_FOUND, "no such message here", arena);
        return;
    }
    numbers = lh_message_new(&grpc__reflection__v1__extension_number_response__descriptor, arena);
    numbers->base_type_name = type;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
    response->all_extension_numbers_response = numbers;
}

static void answer(const struct lh_reflection *reflection, Grpc__Reflection__V1__ServerReflectionRequest *request,
                   Grpc__Reflection__V1__ServerReflectionResponse *response, struct lh_arena *arena)
{
    const struct symbol *symbol;

    response->valid_host = request->host;
    response->original_request = request;
    switch (request->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        answer_services(response, arena);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        answer_file(reflection, find_file(reflection, request->file_by_filename), response, arena);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        symbol = find_symbol(reflection, request->file_containing_symbol);
        answer_file(reflection, symbol == NULL ? NONE : symbol->file, response, arena);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        answer_extensions(reflection, request->all_extension_numbers_of_type, response, arena);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
        answer_error(response, LH_GRPC_NOT_FOUND, "there are no extensions here", arena);
        break;
    default:
        answer_error(response, LH_GRPC_INVALID_ARGUMENT, "the request asks for nothing that is known here", arena);
        break;
    }
}

void lh_reflection_on_message(struct lh_rpc_call *call, const void *data, size_t size)
{
    struct lh_service *service = lh_call_service(call);
    struct lh_arena *arena = &service->scratch;
    Grpc__Reflection__V1__ServerReflectionRequest *request =
        lh_call_unpack(call, &grpc__reflection__v1__server_reflection_request__descriptor, data, size, arena);

    if (request != NULL) {
        Grpc__Reflection__V1__ServerReflectionResponse response =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
        struct lh_failure overloaded = {.status = LH_OVERLOADED, .message = "too many answers wait to be read"};
        const void *bytes;
        size_t length;

        answer(service->reflection, request, &response, arena);
        length = lh_message_pack(&response.base, arena, &bytes);
        if (lh_rpc_call_send(call, bytes, length) == LH_OVERLOADED)
            lh_failure_send(call, &overloaded);
        else if (lh_rpc_call_is_over_mark(call))
            lh_rpc_call_pause(call); /* who does not read asks for nothing more */
    }
    lh_arena_reset(arena);
}

void lh_reflection_on_writable(struct lh_rpc_call *call)
{
    lh_rpc_call_resume(call);
}

void lh_reflection_on_half_close(struct lh_rpc_call *call)
{
    lh_rpc_call_finish(call, LH_GRPC_OK, NULL, NULL, 0);
}
