/*
 * The standard streams of a program: they are open, and a reader that sleeps does not stop the program.
 *
 *     int main(void)
 *     {
 *         lh_standard_open();
 */
#ifndef LH_BASE_STANDARD_H
#define LH_BASE_STANDARD_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* A pipe takes a line up to this size as a whole or not at all. */
#define LH_STANDARD_LINE_BYTES PIPE_BUF

/* Opens /dev/null on each of the descriptors 0 to 2 that is closed, so that no other file gets its number. Every main calls
 * it first. Ends the program with status 1 when /dev/null cannot be opened. */
void lh_standard_open(void);

/* Writes a line of at most LH_STANDARD_LINE_BYTES to stderr. Waits at most `patience_ms` where a pipe, terminal or socket is
 * full; a file is written as a file is. Returns false when the line was not written. */
bool lh_standard_error(const char *line, size_t size, int patience_ms);

#endif
