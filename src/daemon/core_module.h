/* The module of leasehold_core that was built or installed with this program, for a cluster of the daemon's own. */
#ifndef LH_DAEMON_CORE_MODULE_H
#define LH_DAEMON_CORE_MODULE_H

/*
 * Copies it into `directory`, where PostgreSQL can read it even if the build directory is closed to it. It returns the
 * copy's path: malloc'ed,
 * or NULL where there is none for the version of the PostgreSQL in `programs`. A program in /usr/bin has none: there the
 * module is in the server's own directories, with the extension.
 */
char *lh_core_module_place(const char *directory, const char *programs);

#endif
