"""A private PostgreSQL for tests: one cluster, one template with the schema, one cloned database for each test.

    with pgtest.Cluster() as cluster:
        database = cluster.clone('acquire')
        print(cluster.psql(database, 'select count(*) from leasehold.scope'))

The server listens on a unix socket in a temporary directory only. As root it runs as the user postgres, which need not
be able to enter this checkout: every SQL file is read here and fed through psql's stdin. The server ends with the
process that started it, however that ends. Whatever is missing is an error with a sentence, never a skip.
"""
import glob
import os
import pwd
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MIGRATIONS = os.environ.get('LEASEHOLD_MIGRATIONS', os.path.join(ROOT, 'migrations'))
TEMPLATE = 'leasehold_template'
ROW_CHECKS = os.path.join(ROOT, 'tests', 'lib', 'row_checks.sql')
sys.path.insert(0, os.path.join(ROOT, 'migrations'))
import expand  # noqa: E402
import prepared  # noqa: E402
import rundir  # noqa: E402
START_LIMIT_S = 60

SETTINGS = {
    'listen_addresses': "''",
    'fsync': 'off',
    'max_connections': '150',
    'shared_buffers': '64MB',
    'max_wal_size': '256MB',
    'log_min_messages': 'warning',
    'log_line_prefix': "'%m [%p] %d '",
    'deadlock_timeout': "'200ms'",
    'timezone': "'UTC'",
    'lc_messages': "'C'",
}


SWAP = """
alter function leasehold_internal.%(name)s set schema leasehold_sql;
create function leasehold_internal.%(name)s%(definition)s
revoke execute on function leasehold_internal.%(name)s from public;
grant execute on function leasehold_internal.%(name)s to leasehold_owner, leasehold_coordinator, leasehold_admin;
"""

# Requests with a priority do not go to the extension: a daemon decides that by the batch, and here this does.
BY_PRIORITY = """
alter function leasehold_internal.%(name)s set schema leasehold_c;
create function leasehold_internal.%(name)s(%(parameters)s, %(priority)s integer[] default null)
%(returns)s
language plpgsql as $$
#variable_conflict use_column
begin
  if exists (select from unnest(%(priority)s) p where p <> 0) then
    return query select * from leasehold_sql.%(name)s(%(arguments)s, %(priority)s);
  else
    return query select * from leasehold_c.%(name)s(%(arguments)s);
  end if;
end $$;
revoke execute on function leasehold_internal.%(name)s from public;
grant execute on function leasehold_internal.%(name)s to leasehold_owner, leasehold_coordinator, leasehold_admin;
"""


class Failure(Exception):
    """Something that a person has to put right: said in one sentence, without a traceback."""


def postgres_bin():
    """The directory with initdb, postgres and psql: LEASEHOLD_PGBIN, or Debian's newest."""
    chosen = os.environ.get('LEASEHOLD_PGBIN')
    found = [chosen] if chosen else sorted(
        glob.glob('/usr/lib/postgresql/*/bin'), key=lambda path: int(re.sub(r'\D', '', path) or 0), reverse=True)
    for directory in found:
        if all(os.access(os.path.join(directory, tool), os.X_OK) for tool in ('initdb', 'postgres', 'psql')):
            return directory
    raise Failure('PostgreSQL is not installed (looked for initdb, postgres and psql in %s): apt-get install '
                  'postgresql-15' % (', '.join(found) or '/usr/lib/postgresql/*/bin'))


def tool(name, package):
    path = shutil.which(name)
    if path is None:
        raise Failure('%s is not installed: apt-get install %s' % (name, package))
    return path


def schema_files():
    """Migrations by number, then the functions in their order."""
    migrations = sorted(glob.glob(os.path.join(MIGRATIONS, '[0-9][0-9][0-9][0-9]_*.sql')))
    functions = os.path.join(MIGRATIONS, 'functions')
    order = os.path.join(functions, 'order.txt')
    if not migrations or not os.path.exists(order):
        raise Failure('no schema to test: %s has no NNNN_topic.sql, or there is no %s' % (MIGRATIONS, order))
    with open(order, encoding='utf-8') as file:
        names = [line.split('#')[0].strip() for line in file]
    names = [name if name.endswith('.sql') else name + '.sql' for name in names if name]
    return migrations + [os.path.join(functions, name) for name in names]


def read(*path):
    with open(os.path.join(MIGRATIONS, *path), encoding='utf-8') as file:
        return file.read()


class Cluster:
    def __init__(self, schema=True, settings=None):
        self.bin = postgres_bin()
        self.schema = schema
        self.settings = dict(SETTINGS, **(settings or {}))
        self.server = None
        self.clones = 0
        self.directory = None

    def __enter__(self):
        self.directory = rundir.mkdtemp('leasehold-test-')
        self.data = os.path.join(self.directory, 'data')
        self.socket = self.directory
        self.log = os.path.join(self.directory, 'log')
        try:
            if os.geteuid() == 0:
                try:
                    account = pwd.getpwnam('postgres')
                except KeyError:
                    raise Failure('PostgreSQL refuses to run as root, and there is no user postgres') from None
                os.chown(self.directory, account.pw_uid, account.pw_gid)
            os.chmod(self.directory, 0o755)
            key = re.sub(r'\W', '-', self.bin)
            if self.schema:
                prepared.copy('-'.join(['schema', key, re.sub(r'\W', '-', MIGRATIONS), os.environ.get('LEASEHOLD_CORE', '')]), self._make_schema, self.data)
            else:
                prepared.copy('bare' + key, self._make_bare, self.data)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        self.stop('immediate')
        if self.directory and os.environ.get('LEASEHOLD_KEEP'):
            print('# kept: %s' % self.directory, file=sys.stderr)
        elif self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _make_bare(self, directory):
        self._run_as_server(['initdb', '--pgdata', directory, '--username', 'postgres', '--auth', 'trust', '--encoding', 'UTF8', '--locale', 'C',
                             '--no-sync'])

    @staticmethod
    def _make_schema(directory):
        with Cluster(schema=False) as cluster:
            cluster.create_database(TEMPLATE)
            cluster.load_schema(TEMPLATE)
            cluster.psql_file(TEMPLATE, ROW_CHECKS)
            cluster.stop()
            os.rename(cluster.data, directory)

    # --- the server ---

    def _as_server(self, command):
        """The command as the account that the server runs under; it dies with us."""
        switch = ['setpriv', '--pdeathsig', 'INT']
        if os.geteuid() == 0:
            switch += ['--reuid', 'postgres', '--regid', 'postgres', '--init-groups']
        return switch + [os.path.join(self.bin, command[0])] + command[1:]

    def _run_as_server(self, command):
        done = subprocess.run(self._as_server(command), cwd='/', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, universal_newlines=True, check=False)
        if done.returncode != 0:
            raise Failure('%s failed:\n%s' % (command[0], done.stdout))

    def start(self):
        options = []
        for name, value in self.settings.items():
            options += ['-c', '%s=%s' % (name, value.strip("'"))]
        with open(self.log, 'ab') as log:
            self.server = subprocess.Popen(
                self._as_server(['postgres', '-D', self.data, '-k', self.socket] + options),
                cwd='/', stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        limit = time.monotonic() + START_LIMIT_S
        ready = [os.path.join(self.bin, 'pg_isready'), '-q', '-h', self.socket]
        while subprocess.run(ready, check=False).returncode != 0:
            if self.server.poll() is not None or time.monotonic() > limit:
                raise Failure('PostgreSQL did not start:\n%s' % self.log_text())
            time.sleep(0.02)

    def stop(self, mode='fast'):
        if self.server is None:
            return
        if self.server.poll() is None:
            subprocess.run(self._as_server(['pg_ctl', 'stop', '-D', self.data, '-m', mode, '-w', '-t', '30']), cwd='/',
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        try:
            self.server.wait(30)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.server = None

    def promote_to_new_timeline(self):
        """Restart as a standby and promote: what a failover does to the WAL timeline."""
        self.stop()
        signal = os.path.join(self.data, 'standby.signal')
        with open(signal, 'w', encoding='ascii'):
            pass
        if os.geteuid() == 0:
            account = pwd.getpwnam('postgres')
            os.chown(signal, account.pw_uid, account.pw_gid)
        self.start()
        self._run_as_server(['pg_ctl', 'promote', '-D', self.data, '-w', '-t', '30'])

    def log_text(self):
        try:
            with open(self.log, encoding='utf-8', errors='replace') as file:
                return file.read()
        except OSError:
            return ''

    # --- databases ---

    def environment(self, database='postgres', user='postgres'):
        kept = {name: value for name, value in os.environ.items() if not name.startswith('PG')}
        kept.update(PGHOST=self.socket, PGUSER=user, PGDATABASE=database, PGAPPNAME='leasehold-test',
                    PGOPTIONS='-c client_min_messages=warning')
        kept['PATH'] = self.bin + ':' + kept.get('PATH', '/usr/bin:/bin')
        return kept

    def psql_command(self, *options):
        return [os.path.join(self.bin, 'psql'), '-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1'] + list(options)

    def psql(self, database, sql, *options, user='postgres'):
        """Run SQL; return what it printed. An error of the SQL is a Failure with psql's words."""
        done = subprocess.run(self.psql_command(*options), env=self.environment(database, user), input=sql,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
        if done.returncode != 0:
            raise Failure(done.stderr.strip() or 'psql failed')
        return done.stdout.strip()

    def psql_file(self, database, path, *options):
        with open(path, encoding='utf-8') as file:
            sql = file.read()
        try:
            return self.psql(database, sql, *options)
        except Failure as failure:
            raise Failure('%s: %s' % (os.path.relpath(path, ROOT), failure)) from None

    def session(self, database, user='postgres'):
        """A psql that goes on: write SQL to its stdin, read its stdout, close."""
        return subprocess.Popen(self.psql_command(), env=self.environment(database, user), stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, bufsize=1)

    def create_database(self, name, template='template0'):
        self.psql('postgres', 'create database "%s" template "%s"' % (name, template))
        return name

    def clone(self, name='test', template=TEMPLATE):
        self.clones += 1
        return self.create_database('%s_%d' % (re.sub(r'\W', '_', name)[:50], self.clones), template)

    def drop(self, name):
        self.psql('postgres', 'drop database if exists "%s" with (force)' % name)

    def load_schema(self, database, without=None):
        """What the daemon's migration runner does (src/pg/migrate.c), with psql. `without`: the name of a migration that is left out."""
        parts = [read('runner', 'roles.sql'), 'set role leasehold_owner;', 'begin;', read('runner', 'table.sql'), 'commit;']
        self.psql(database, '\n'.join(parts))
        functions = expand.applied(os.path.join(MIGRATIONS, 'functions'))
        for path in schema_files():
            name = os.path.basename(path)
            if name == without:
                continue
            sql = functions.get(name[:-4]) or read(path)
            # The runner leaves out what roles.sql has done (migrations/embed.py).
            if name == '0001_tables.sql':
                sql = re.sub(r'do \$\$\ndeclare\n  v_role text;.*?\n\$\$;\n', '', sql, count=1, flags=re.S)
            number = re.match(r'(\d{4})_', name)
            if number:
                sql += "\ninsert into leasehold.migration (number, name, checksum, version) values (%d, '%s', 'tests', '0');" % (
                    int(number.group(1)), name[5:-4])
            try:
                self.psql(database, 'begin;\nset local role leasehold_owner;\n%s\n;commit;' % sql)
            except Failure as failure:
                raise Failure('%s: %s' % (os.path.relpath(path, ROOT), failure)) from None
        if os.environ.get('LEASEHOLD_CORE') == 'swapped':
            self.swap_core(database)

    def swap_core(self, database):
        """Put the functions of leasehold_core, in C, in the place of those in SQL, which are then in schema leasehold_sql: so
        every test runs them that calls the latter."""
        script = read_file(os.path.join(ROOT, 'src', 'extension', 'leasehold_core--1.sql'))
        script = script.replace('MODULE_PATHNAME', core_module(self.bin, 'swapped_core'))
        definitions = dict(re.findall(r'create function leasehold_core\.(\w+)(.*?;)\n', script, re.S))
        swapped = ['create schema leasehold_sql authorization leasehold_owner;', 'create schema leasehold_c authorization leasehold_owner;',
                   'grant usage on schema leasehold_sql, leasehold_c to leasehold_coordinator, leasehold_admin;']
        for name, definition in definitions.items():
            if name != 'trouble':
                definition = self.with_rows_of_sql(definition)
                swapped.append(SWAP % {'name': name, 'definition': definition})
                priority = {'acquire_items': 'p_priority', 'hand_over_batch': 'p_next_priority'}.get(name)
                if priority:
                    parameters, returns = re.match(r'\((.*?)\)\n(returns .*?)\nlanguage', definition, re.S).groups()
                    swapped.append(BY_PRIORITY % {'name': name, 'parameters': parameters, 'returns': returns, 'priority': priority,
                                                  'arguments': ', '.join(re.findall(r'\b(p_\w+) ', parameters))})
        self.psql(database, '\n'.join(swapped), '--single-transaction')

    @staticmethod
    def with_rows_of_sql(definition):
        """With the row type and the defaults that callers of the function in SQL rely on."""
        definition = definition.replace('returns setof record', 'returns setof leasehold_internal.acquired')
        for name, value in (('p_principals text[]', 'null'), ('p_at_least_us bigint[]', 'null'), ('p_units integer[]', 'null'),
                            ('p_next_principals text[]', 'null'), ('p_next_at_least_us bigint[]', 'null'), ('p_next_units integer[]', 'null'),
                            ('p_relax boolean', 'false')):
            definition = definition.replace(name, '%s default %s' % (name, value))
        return definition


def read_file(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def core_module(programs, name='leasehold_core'):
    """The module that was built for this PostgreSQL, in LEASEHOLD_BUILD or build."""
    done = subprocess.run([os.path.join(programs, 'postgres'), '--version'], stdout=subprocess.PIPE, universal_newlines=True, check=True)
    major = re.search(r' (\d+)', done.stdout).group(1)
    path = os.path.join(os.environ.get('LEASEHOLD_BUILD', os.path.join(ROOT, 'build')), 'src', 'extension', '%s-%s.so' % (name, major))
    if not os.path.exists(path):
        raise Failure('%s is missing: build with the headers of the server of PostgreSQL %s' % (path, major))
    return path


def main_guard(main):
    """Run a test runner's main: its failures are sentences, its exit status counts."""
    try:
        sys.exit(main())
    except Failure as failure:
        print('FAILED: %s' % failure, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
