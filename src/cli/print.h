/*
 * Text for people and for shells.
 *
 *     struct lh_grid grid = {.columns = 2};
 *     lh_grid_row(&grid, "token", "%" PRId64, token);
 *     ...
 *     lh_grid_print(&grid, stdout);
 */
#ifndef LH_CLI_PRINT_H
#define LH_CLI_PRINT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/memory.h"

/* Returns a new string in which control characters, and bytes that are no UTF-8, have become \xNN: safe for a
   terminal. */
char *lh_clean(const char *text);
char *lh_clean_format(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));

/* Prints such a text and a newline on stdout. */
void lh_print_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns one word of a POSIX shell that means `text`; quoted only if needed. A new string. */
char *lh_shell_quote(const char *text);

/* Cells in rows of `columns`, as wide as their widest; the last of a row ends it. Zero-initialise the rest. */
struct lh_grid {
    size_t columns;
    unsigned right;     /* bit i: column i has numbers and stands to the right */
    const char *indent; /* text before each row; NULL: none */
    /* The terminal's; 0: there is none, and each cell is printed whole. */
    size_t width;
    unsigned cut; /* bit i: on a terminal column i is cut to fit; others are left out, from the right */
    const char *(*colour)(size_t column,
                          const char *cell); /* SGR parameters such as "31"; NULL: none, and may be NULL */
    char **cells;
    size_t cell_count;
    struct lh_arena arena; /* has texts that its cells are made of */
};

void lh_grid_add(struct lh_grid *grid, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds two cells: a name and its value. */
void lh_grid_row(struct lh_grid *grid, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Adds cells as they are; NULL ends them. */
void lh_grid_texts(struct lh_grid *grid, ...) __attribute__((sentinel));
/* Prints and empties the grid. */
void lh_grid_print(struct lh_grid *grid, FILE *out);
void lh_grid_finish(struct lh_grid *grid);

/* Return the width of the terminal at `out` (0: no terminal), and whether it shows colours: not with NO_COLOR or
   TERM=dumb. */
size_t lh_terminal_width(FILE *out);
bool lh_terminal_has_colour(FILE *out);

/* Prints `text` broken at spaces so that no line is longer than `width`, each but the first behind `indent` spaces. */
void lh_print_wrapped(FILE *out, const char *text, size_t indent, size_t width);

/* Writes "2026-11-20 18:28:57 UTC", in the local time zone. */
#define LH_TIME_TEXT_BYTES 64
const char *lh_time_format(int64_t seconds, char text[LH_TIME_TEXT_BYTES]);
/* The same, until the end of the block that it stands in. */
#define LH_TIME_TEXT(seconds) lh_time_format(seconds, (char[LH_TIME_TEXT_BYTES]){0})

#endif
