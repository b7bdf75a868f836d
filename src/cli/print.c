#include "cli/print.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"

#define CUT_MIN 12 /* characters of a column, below which others are left out */

/* Bytes of the printable character at `text`; 0: it is to be escaped. */
static size_t printable_bytes(const char *text)
{
    size_t left = strnlen(text, 4);

    for (size_t size = 1; size <= left; size++)
        if (lh_utf8_is_valid(text, size))
            return lh_utf8_has_control(text, size) ? 0 : size;
    return 0;
}

char *lh_clean(const char *text)
{
    struct lh_buffer clean = {0};

    while (*text != '\0') {
        size_t size = printable_bytes(text);
        if (size > 0) {
            lh_buffer_append(&clean, text, size);
            text += size;
        } else {
            char escape[8];
            snprintf(escape, sizeof(escape), "\\x%02x", (unsigned)(unsigned char)*text++);
            lh_buffer_append(&clean, escape, strlen(escape));
        }
    }
    lh_buffer_append(&clean, "", 1);
    return (char *)clean.data;
}

char *lh_shell_quote(const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@%+,-";
    struct lh_buffer quoted = {0};

    if (*text != '\0' && text[strspn(text, plain)] == '\0')
        return lh_strdup(text);
    lh_buffer_append(&quoted, "'", 1);
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            lh_buffer_append(&quoted, "'\\''", 4);
        else
            lh_buffer_append(&quoted, text, 1);
    }
    lh_buffer_append(&quoted, "'", 2);
    return (char *)quoted.data;
}

/* Characters, not bytes. Wide and combining ones count as one: a crooked line is the worst of it. */
static size_t text_width(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

char *lh_clean_format(const char *format, va_list arguments)
{
    char *text, *clean;

    if (vasprintf(&text, format, arguments) < 0)
        abort();
    clean = lh_clean(text);
    free(text);
    return clean;
}

void lh_print_line(const char *format, ...)
{
    va_list arguments;
    char *line;

    va_start(arguments, format);
    line = lh_clean_format(format, arguments);
    va_end(arguments);
    puts(line);
    free(line);
}

/* Takes the text over. */
static void add_cell(struct lh_grid *grid, char *clean)
{
    grid->cells = lh_realloc(grid->cells, grid->cell_count + 1, sizeof(*grid->cells));
    grid->cells[grid->cell_count++] = clean;
}

void lh_grid_add(struct lh_grid *grid, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add_cell(grid, lh_clean_format(format, arguments));
    va_end(arguments);
}

void lh_grid_row(struct lh_grid *grid, const char *name, const char *format, ...)
{
    va_list arguments;

    add_cell(grid, lh_clean(name));
    va_start(arguments, format);
    add_cell(grid, lh_clean_format(format, arguments));
    va_end(arguments);
}

void lh_grid_texts(struct lh_grid *grid, ...)
{
    va_list arguments;
    const char *text;

    va_start(arguments, grid);
    while ((text = va_arg(arguments, const char *)) != NULL)
        add_cell(grid, lh_clean(text));
    va_end(arguments);
}

static void print_spaces(FILE *out, size_t count)
{
    while (count-- > 0)
        fputc(' ', out);
}

void lh_grid_finish(struct lh_grid *grid)
{
    for (size_t i = 0; i < grid->cell_count; i++)
        free(grid->cells[i]);
    free(grid->cells);
    lh_arena_finish(&grid->arena);
    grid->cells = NULL;
    grid->cell_count = 0;
}

/* Each column as wide as its widest cell; 0: it is left out, for no cell of it but the first has a text. */
static size_t *measure(const struct lh_grid *grid)
{
    size_t *widths = lh_alloc_zero(grid->columns, sizeof(*widths));
    bool *has_text = lh_alloc_zero(grid->columns, sizeof(*has_text));

    for (size_t i = 0; i < grid->cell_count; i++) {
        size_t column = i % grid->columns, width = text_width(grid->cells[i]);
        widths[column] = width > widths[column] ? width : widths[column];
        has_text[column] |= width > 0 && i >= grid->columns;
    }
    for (size_t i = 0; grid->width > 0 && i < grid->columns; i++)
        widths[i] = has_text[i] ? widths[i] : 0;
    free(has_text);
    return widths;
}

/* `most`: the columns that are cut have so many characters at most. */
static size_t line_width(const struct lh_grid *grid, const size_t *widths, size_t most)
{
    size_t width = 0;

    for (size_t i = 0; i < grid->columns; i++) {
        size_t own = (grid->cut >> i & 1) && widths[i] > most ? most : widths[i];
        width += own > 0 ? own + (width > 0 ? 2 : 0) : 0;
    }
    return width;
}

static void fit(const struct lh_grid *grid, size_t *widths)
{
    size_t most = grid->width;

    for (size_t i = grid->columns; i-- > 0 && line_width(grid, widths, CUT_MIN) > grid->width;)
        widths[i] = grid->cut >> i & 1 ? widths[i] : 0;
    while (most > 1 && line_width(grid, widths, most) > grid->width)
        most--;
    for (size_t i = 0; i < grid->columns; i++)
        widths[i] = (grid->cut >> i & 1) && widths[i] > most ? most : widths[i];
}

static size_t bytes_of(const char *text, size_t characters)
{
    const char *at = text;

    while (*at != '\0' && (characters > 0 || ((unsigned char)*at & 0xc0) == 0x80))
        characters -= ((unsigned char)*at++ & 0xc0) != 0x80;
    return (size_t)(at - text);
}

static void print_cell(const struct lh_grid *grid, size_t column, const char *cell, size_t width, FILE *out)
{
    const char *colour = grid->colour != NULL ? grid->colour(column, cell) : NULL;

    if (colour != NULL)
        fprintf(out, "\x1b[%sm", colour);
    if (text_width(cell) <= width)
        fputs(cell, out);
    else
        fprintf(out, "%.*s\u2026", (int)bytes_of(cell, width - 1), cell);
    if (colour != NULL)
        fputs("\x1b[0m", out);
}

static void print_row(const struct lh_grid *grid, char *const *cells, const size_t *widths, FILE *out)
{
    size_t last = grid->columns - 1, spaces = 0;

    while (last > 0 && widths[last] == 0)
        last--;
    if (grid->indent != NULL)
        fputs(grid->indent, out);
    for (size_t i = 0; i <= last; i++) {
        size_t width = text_width(cells[i]);
        size_t gap = widths[i] > width ? widths[i] - width : 0;
        bool is_right = grid->right >> i & 1;
        if (widths[i] == 0 && i > 0 && grid->width > 0)
            continue;
        print_spaces(out, spaces + (is_right ? gap : 0));
        print_cell(grid, i, cells[i], widths[i], out);
        spaces = 2 + (is_right ? 0 : gap);
    }
    fputc('\n', out);
}

void lh_grid_print(struct lh_grid *grid, FILE *out)
{
    size_t *widths = measure(grid);

    if (grid->width > 0)
        fit(grid, widths);
    for (size_t i = 0; i + grid->columns <= grid->cell_count; i += grid->columns)
        print_row(grid, grid->cells + i, widths, out);
    free(widths);
    lh_grid_finish(grid);
}

size_t lh_terminal_width(FILE *out)
{
    struct winsize size;

    return isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool lh_terminal_has_colour(FILE *out)
{
    const char *refused = getenv("NO_COLOR"), *terminal = getenv("TERM"); /* no-color.org */

    return isatty(fileno(out)) && (refused == NULL || refused[0] == '\0') &&
           (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

void lh_print_wrapped(FILE *out, const char *text, size_t indent, size_t width)
{
    size_t column = indent;

    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (column > indent && column + 1 + word > width) {
            fputc('\n', out);
            print_spaces(out, indent);
            column = indent;
        }
        if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fwrite(text, 1, word, out);
        column += word;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

const char *lh_time_format(int64_t seconds, char text[LH_TIME_TEXT_BYTES])
{
    time_t when = (time_t)seconds;
    struct tm tm;

    if (localtime_r(&when, &tm) == NULL || strftime(text, LH_TIME_TEXT_BYTES, "%Y-%m-%d %H:%M:%S %Z", &tm) == 0)
        snprintf(text, LH_TIME_TEXT_BYTES, "%lld s after 1970", (long long)seconds);
    return text;
}
