/*
 * The daemon from its first log line to its last.
 *
 *     daemon = lh_daemon_create(&settings, argc, argv)
 *     status = lh_daemon_run(daemon)
 *     lh_daemon_destroy(daemon)
 */
#ifndef LH_DAEMON_DAEMON_H
#define LH_DAEMON_DAEMON_H

struct lh_daemon;
struct lh_settings;

/* Everything is borrowed; a reload reads argv again and changes `settings`. NULL: it cannot start (logged). */
struct lh_daemon *lh_daemon_create(struct lh_settings *settings, int argc, char **argv);
int lh_daemon_run(struct lh_daemon *daemon); /* the exit status */
void lh_daemon_destroy(struct lh_daemon *daemon);

#endif
