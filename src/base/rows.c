#include "base/rows.h"

#include <string.h>

static bool is_named(const char *column, const char *name)
{
    size_t size = strlen(name);

    return strncmp(column, name, size) == 0 && (column[size] == '\0' || strcmp(column + size, "_us") == 0);
}

const char *lh_rows_cell(const struct lh_rows *rows, size_t row, const char *column)
{
    for (size_t i = 0; i < rows->column_count; i++)
        if (is_named(rows->columns[i], column))
            return rows->cells[row * rows->column_count + i];
    return NULL;
}
