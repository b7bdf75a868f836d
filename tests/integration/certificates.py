"""Certificates for the tests, by the openssl command: an authority and what it signs.

    authority = Authority(directory)
    daemon = authority.issue("daemon", "DNS:localhost,IP:127.0.0.1")
    ["--tls-cert", daemon.cert, "--tls-key", daemon.key, "--tls-client-ca", authority.cert]
"""
import datetime
import pathlib
import subprocess

import grpc

SERVER_NAMES = "DNS:localhost,IP:127.0.0.1"

CONFIG = """
[ca]
default_ca = own
[own]
database = {dir}/{name}.index
new_certs_dir = {dir}
certificate = {dir}/{name}.pem
private_key = {dir}/{name}.key
default_md = sha256
rand_serial = yes
crlnumber = {dir}/{name}.crlnumber
default_crl_days = 7
unique_subject = no
policy = any
[any]
commonName = supplied
"""


def flags(server, authority=None):
    """Of leaseholdd; with an authority, clients need a certificate."""
    return ["--tls-cert", server.cert, "--tls-key", server.key, *(["--tls-client-ca", authority.cert] if authority else [])]


def credentials(authority, certificate=None):
    """Of a stock Python client."""
    key, cert = certificate.read() if certificate else (None, None)
    return grpc.ssl_channel_credentials(pathlib.Path(authority.cert).read_bytes(), key, cert)


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def date(seconds):
    when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return when.strftime("%Y%m%d%H%M%SZ")


class Certificate:
    def __init__(self, directory, name):
        self.cert = str(directory / f"{name}.pem")
        self.key = str(directory / f"{name}.key")

    def read(self):
        """Key and certificate, as stock clients take them."""
        return pathlib.Path(self.key).read_bytes(), pathlib.Path(self.cert).read_bytes()


class Authority(Certificate):
    def __init__(self, directory, name="ca"):
        super().__init__(directory, name)
        self.dir, self.name = directory, name
        self.dir.chmod(0o755)  # the daemon may run as another user
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", 30,
                "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.cert)
        (directory / f"{name}.index").touch()
        (directory / f"{name}.cnf").write_text(CONFIG.format(dir=directory, name=name))

    def issue(self, name, san, begins=-60, ends=86400):
        """A certificate that is valid between these seconds from now."""
        out = Certificate(self.dir, name)
        request, extensions = self.dir / f"{name}.csr", self.dir / f"{name}.ext"
        extensions.write_text(f"subjectAltName = {san}\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-subj", f"/CN={name}",
                "-keyout", out.key, "-out", request)
        openssl("ca", "-batch", "-notext", "-config", self.dir / f"{self.name}.cnf", "-extfile", extensions,
                "-startdate", date(begins), "-enddate", date(ends), "-in", request, "-out", out.cert)
        pathlib.Path(out.key).chmod(0o644)
        return out

    def revoke(self, *certificates, **when):
        """The authority's list with these in it too, written beside and renamed, as a careful job does it."""
        for certificate in certificates:
            openssl("ca", "-config", self.dir / f"{self.name}.cnf", "-revoke", certificate.cert)
        return self.list(**when)

    def list(self, begins=-60, ends=86400):
        number = self.dir / f"{self.name}.crlnumber"
        if not number.exists():
            number.write_text("01\n")
        fresh = self.dir / f"{self.name}.crl.new"
        openssl("ca", "-config", self.dir / f"{self.name}.cnf", "-gencrl", "-crl_lastupdate", date(begins), "-crl_nextupdate", date(ends), "-out", fresh)
        return str(fresh.rename(self.dir / f"{self.name}.crl"))
