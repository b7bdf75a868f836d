/* Text in headers and arguments: base64, grpc-timeout, grpc-message, addresses, durations, UUIDs, characters. */
#include <string.h>

#include "base/address.h"
#include "base/base64.h"
#include "base/text.h"
#include "base/uuid.h"
#include "fuzz.h"
#include "rpc/grpc.h"

static void take_base64(const char *text, size_t size)
{
    struct lh_buffer bytes = {0}, encoded = {0}, again = {0};

    if (lh_base64_decode(&bytes, text, size)) {
        lh_base64_encode(&encoded, bytes.data, bytes.size);
        FUZZ_CHECK(lh_base64_decode(&again, (const char *)encoded.data, encoded.size));
        FUZZ_CHECK(again.size == bytes.size && (bytes.size == 0 || memcmp(again.data, bytes.data, bytes.size) == 0));
    }
    lh_buffer_finish(&bytes);
    lh_buffer_finish(&encoded);
    lh_buffer_finish(&again);
}

static void take_message(const char *text, size_t size)
{
    struct lh_buffer encoded = {0}, again = {0}, decoded = {0};

    lh_grpc_percent_decode(&decoded, text, size);
    lh_grpc_percent_encode(&encoded, text, size);
    for (size_t i = 0; i < encoded.size; i++)
        FUZZ_CHECK(encoded.data[i] >= 0x20 && encoded.data[i] <= 0x7e);
    lh_grpc_percent_decode(&again, (const char *)encoded.data, encoded.size);
    FUZZ_CHECK(again.size == size && (size == 0 || memcmp(again.data, text, size) == 0));
    lh_buffer_finish(&encoded);
    lh_buffer_finish(&again);
    lh_buffer_finish(&decoded);
}

static void take_timeout(const char *text, size_t size)
{
    char formatted[LH_GRPC_TIMEOUT_TEXT_BYTES];
    int64_t timeout_us, again_us;

    if (!lh_grpc_timeout_parse(text, size, &timeout_us))
        return;
    FUZZ_CHECK(timeout_us >= 0);
    lh_grpc_timeout_format(timeout_us, formatted);
    FUZZ_CHECK(lh_grpc_timeout_parse(formatted, strlen(formatted), &again_us));
}

static void take_address(const char *text)
{
    struct lh_address address;
    char shown[LH_ADDRESS_TEXT_BYTES], why[160];

    if (lh_address_parse(text, &address, why, sizeof(why)))
        lh_address_format(&address, shown);
}

static void take_text(const char *text, size_t size)
{
    char shown[LH_DURATION_TEXT_BYTES], uuid_text[LH_UUID_TEXT_BYTES];
    struct lh_uuid uuid, again;
    int64_t duration_us;
    bool is_valid = lh_utf8_is_valid(text, size);

    FUZZ_CHECK(lh_utf8_cut(text, size, size / 2) <= size / 2);
    FUZZ_CHECK(!is_valid || lh_utf8_is_valid(text, lh_utf8_cut(text, size, size / 2)));
    FUZZ_CHECK(size == 0 || lh_utf8_shown(text, size) <= size);
    if (is_valid)
        lh_utf8_has_control(text, size);
    if (lh_duration_parse(text, &duration_us))
        lh_duration_format(duration_us, shown);
    if (lh_uuid_parse(text, &uuid)) {
        lh_uuid_format(&uuid, uuid_text);
        FUZZ_CHECK(lh_uuid_parse(uuid_text, &again) && lh_uuid_equal(&uuid, &again));
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    fuzz_quiet();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    char *text = fuzz_text(&input);

    take_base64(text, size);
    take_message(text, size);
    take_timeout(text, size);
    take_address(text);
    take_text(text, strlen(text));
    free(text);
    return 0;
}
