"""Sessions of PostgreSQL that are kept: cases ask for rows all the time, and to connect costs several times what a question does.

    sessions = Sessions(cluster)
    sessions.psql("select 1", database)     what Cluster.psql returns; several threads may ask

A case that ends the sessions of others finds no question of these in pg_stat_activity.
"""
import collections
import select

import harness


class Sessions:
    def __init__(self, cluster):
        self.cluster, self.idle = cluster, collections.defaultdict(collections.deque)

    def psql(self, sql, database):
        if not harness.is_statement(sql):
            return self.cluster.psql(sql, database)
        session = self._take(database, sql)
        try:
            said = harness.execute(session, sql)
            session.pgconn.exec_(b"")
            self.idle[database].append(session)
        except AssertionError:
            session.close()
            raise
        return said

    def _take(self, database, sql):
        while True:
            try:
                session = self.idle[database].pop()
            except IndexError:
                return harness.connect(self.cluster.url(database), sql)
            if not select.select([session.fileno()], [], [], 0)[0]:
                return session
            session.close()  # the server has ended it, and says so

    def close(self):
        for idle in self.idle.values():
            while idle:
                idle.pop().close()
