/*
 * What the fuzzers share. Each is one file, fuzz_NAME.c, with libFuzzer's LLVMFuzzerTestOneInput, and a folder of seeds,
 * corpus/NAME; tests/fuzz/run builds and runs them.
 *
 * Those that speak HTTP/2 read their input as a list of deeds: one byte says what is done, the bytes behind it with what.
 * So a change of one byte is still a frame, and the fuzzer need not guess lengths.
 */
#ifndef LH_FUZZ_H
#define LH_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* What must hold whatever the input is. */
#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fuzz_fail(#condition, __FILE__, __LINE__);                                                                 \
    } while (0)
_Noreturn void fuzz_fail(const char *condition, const char *file, int line);

/* No line of the log is written; each is put together all the same. */
void fuzz_quiet(void);

struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

uint8_t fuzz_byte(struct fuzz_input *input); /* 0 at the end */
/* A byte or two of length, then so many bytes, or as many as there are. */
size_t fuzz_bytes(struct fuzz_input *input, const uint8_t **bytes);
/* The rest as a string, NUL at the end; free() it. */
char *fuzz_text(struct fuzz_input *input);

/* HTTP/2 into a buffer. */
void fuzz_frame(struct lh_buffer *out, uint8_t type, uint8_t flags, uint32_t stream, const void *payload, size_t size);
/* A field of a header block: a literal, nothing indexed. */
void fuzz_field(struct lh_buffer *block, const char *name, const void *value, size_t size);
/* DATA with a message and its prefix, in frames of 16 KiB. */
void fuzz_message(struct lh_buffer *out, uint32_t stream, const void *message, size_t size, bool is_last);

#endif
