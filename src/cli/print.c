#include "cli/print.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/text.h"

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

static void add_cell(struct lh_grid *grid, const char *text)
{
    grid->cells = lh_realloc(grid->cells, grid->cell_count + 1, sizeof(*grid->cells));
    grid->cells[grid->cell_count++] = lh_clean(text);
}

static void add_formatted(struct lh_grid *grid, const char *format, va_list arguments)
{
    char *text;

    if (vasprintf(&text, format, arguments) < 0)
        abort();
    add_cell(grid, text);
    free(text);
}

void lh_grid_add(struct lh_grid *grid, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    add_formatted(grid, format, arguments);
    va_end(arguments);
}

void lh_grid_row(struct lh_grid *grid, const char *name, const char *format, ...)
{
    va_list arguments;

    add_cell(grid, name);
    va_start(arguments, format);
    add_formatted(grid, format, arguments);
    va_end(arguments);
}

void lh_grid_texts(struct lh_grid *grid, ...)
{
    va_list arguments;
    const char *text;

    va_start(arguments, grid);
    while ((text = va_arg(arguments, const char *)) != NULL)
        add_cell(grid, text);
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
    grid->cells = NULL;
    grid->cell_count = 0;
}

void lh_grid_print(struct lh_grid *grid, FILE *out)
{
    size_t *widths = lh_alloc_zero(grid->columns, sizeof(*widths));

    for (size_t i = 0; i < grid->cell_count; i++) {
        size_t width = text_width(grid->cells[i]);
        if (width > widths[i % grid->columns])
            widths[i % grid->columns] = width;
    }
    for (size_t i = 0; i < grid->cell_count; i++) {
        size_t column = i % grid->columns;
        size_t gap = widths[column] - text_width(grid->cells[i]);
        bool is_right = grid->right >> column & 1;
        bool is_last = column + 1 == grid->columns;

        if (column == 0 && grid->indent != NULL)
            fputs(grid->indent, out);
        if (is_right)
            print_spaces(out, gap);
        fputs(grid->cells[i], out);
        if (is_last)
            fputc('\n', out);
        else
            print_spaces(out, (is_right ? 0 : gap) + 2);
    }
    free(widths);
    lh_grid_finish(grid);
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

void lh_time_format(int64_t seconds, char text[LH_TIME_TEXT_BYTES])
{
    time_t when = (time_t)seconds;
    struct tm tm;

    if (localtime_r(&when, &tm) == NULL || strftime(text, LH_TIME_TEXT_BYTES, "%Y-%m-%d %H:%M:%S %Z", &tm) == 0)
        snprintf(text, LH_TIME_TEXT_BYTES, "%lld s after 1970", (long long)seconds);
}
