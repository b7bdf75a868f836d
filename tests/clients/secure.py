"""A daemon with TLS and access rules, and what clients show it.

In the namespace `secure` the certificate dns:worker and the token worker have the right `lease`; the token stranger has none
anywhere, and the token revoked is not valid any more.
"""
import pathlib
import shutil

import certificates
import harness
import rundir


class SecureDaemon:
    def __init__(self, cluster, database):
        self.dir = pathlib.Path(rundir.mkdtemp("lh-secure-"))
        authority, other = certificates.Authority(self.dir), certificates.Authority(self.dir, "other")
        server, worker = authority.issue("server", certificates.SERVER_NAMES), authority.issue("worker", "DNS:worker")

        def psql(sql):
            return cluster.psql(sql, database)

        for principal in ("dns:worker", "token:worker"):
            psql(f"select leasehold.access_grant('{principal}', 'secure', 'lease')")
        tokens = {name: self.dir / f"{name}.token" for name in ("worker", "stranger", "revoked")}
        for name, path in tokens.items():
            path.write_text(psql(f"select token from leasehold.token_create('{name}')"))
        psql("select leasehold.token_revoke('revoked')")
        self.daemon = harness.Daemon(*certificates.flags(server, authority), "--tls-client-auth", "request", "--authorization", "yes",
                                     database=cluster.url(database))
        self.facts = {"target": self.daemon.target, "ca": authority.cert, "other_ca": other.cert, "cert": worker.cert, "key": worker.key,
                      **{name: str(path) for name, path in tokens.items()}}

    def close(self):
        self.daemon.destroy()
        shutil.rmtree(self.dir)
