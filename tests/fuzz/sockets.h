/*
 * Sockets without a network, and a clock that stands still: what is put in is what recv() gives, what is sent is thrown
 * away, unless somebody listens. A descriptor is an eventfd, which is readable and writable at all times, so the event loop runs as it does
 * otherwise, without waiting. The program is linked with --wrap for these and for the clock.
 */
#ifndef LH_FUZZ_SOCKETS_H
#define LH_FUZZ_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_SOCKETS_MAX 256

struct lh_buffer;

extern int64_t fuzz_now_us; /* what lh_clock_us() says */

/* What becomes of connect(). */
enum fuzz_reach { FUZZ_REACHED, FUZZ_REFUSED, FUZZ_SILENT };
extern enum fuzz_reach fuzz_reach;

int fuzz_socket_open(void); /* as socket() does */
/* The one that socket() made last and that is still open, or -1. */
int fuzz_socket_last(void);
bool fuzz_socket_is_open(int fd);
void fuzz_socket_put(int fd, const void *data, size_t size);
void fuzz_socket_listen(int fd, struct lh_buffer *to); /* what is sent is appended; NULL: thrown away */
void fuzz_socket_end(int fd, bool is_reset);           /* nothing comes any more */
void fuzz_socket_set_stuck(int fd, bool is_stuck);     /* it takes nothing, or everything again */

#endif
