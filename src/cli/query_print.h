/* Rows of a query on standard output: a table, a card or JSON, as the command line asks; without any, a word about that. */
#ifndef LH_CLI_QUERY_PRINT_H
#define LH_CLI_QUERY_PRINT_H

#include "cli/query_rows.h"

void lh_query_print(const struct lh_cli *cli, const struct lh_query *query, const struct lh_query_cells *rows);

#endif
