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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A new string in which control characters, and bytes that are no UTF-8, have become \xNN: safe for a terminal. */
char *lh_clean(const char *text);

/* One word of a POSIX shell that means `text`; quoted only where that is needed. A new string. */
char *lh_shell_quote(const char *text);

/* Cells in rows of `columns`, as wide as their widest; the last of a row ends it. Zero-initialise the rest. */
struct lh_grid {
    size_t columns;
    unsigned right;     /* bit i: column i has numbers and stands to the right */
    const char *indent; /* before each row; NULL: nothing */
    size_t width;       /* of the terminal; 0: there is none, and each cell is printed whole */
    unsigned cut;       /* bit i: on a terminal column i is cut to fit; others are left out, from the right */
    const char *(*colour)(size_t column,
                          const char *cell); /* SGR parameters such as "31"; NULL: none, and may be NULL */
    char **cells;
    size_t cell_count;
};

void lh_grid_add(struct lh_grid *grid, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Two cells: a name, and what it is. */
void lh_grid_row(struct lh_grid *grid, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Cells as they are; NULL ends them. */
void lh_grid_texts(struct lh_grid *grid, ...) __attribute__((sentinel));
/* Then the grid is empty, as after lh_grid_finish. */
void lh_grid_print(struct lh_grid *grid, FILE *out);
void lh_grid_finish(struct lh_grid *grid);

/* Of the terminal at `out`; 0: there is none. Whether it shows colours: NO_COLOR and TERM=dumb say that it does not. */
size_t lh_terminal_width(FILE *out);
bool lh_terminal_has_colour(FILE *out);

/* `text` broken at spaces so that no line is longer than `width`, each but the first behind `indent` spaces. */
void lh_print_wrapped(FILE *out, const char *text, size_t indent, size_t width);

/* "2026-11-20 18:28:57 UTC", in the local time zone. */
#define LH_TIME_TEXT_BYTES 64
void lh_time_format(int64_t seconds, char text[LH_TIME_TEXT_BYTES]);

#endif
