"""A client of the console's API, as a browser or a script is one."""
import http.client
import json
import ssl


class Answer:
    def __init__(self, reply):
        self.status = reply.status
        self.headers = reply.headers
        self.text = reply.read().decode()

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def error(self):
        return self.json["error"]

    @property
    def cookie(self):
        """What a browser sends back; "" for a cookie that was deleted."""
        return self.headers["Set-Cookie"].split(";")[0].removeprefix("leasehold_session=")


class Console:
    """One caller: with a token, with a cookie, or with neither."""

    def __init__(self, port, token=None, tls=None, host=None):
        self.port = port
        self.token = token
        self.tls = tls
        self.host = host
        self.cookie = None
        self.csrf = None

    def request(self, method, path, body=None, headers=None, raw=None):
        port = ("127.0.0.1", self.port)
        connection = (http.client.HTTPSConnection(*port, timeout=60, context=self.tls) if self.tls else
                      http.client.HTTPConnection(*port, timeout=60))
        sent = dict(headers or {})
        if self.host:
            sent.setdefault("Host", self.host)
        if self.token:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        if self.cookie is not None:
            sent.setdefault("Cookie", f"other=1; leasehold_session={self.cookie}; more=2")
        data = raw
        if body is not None:
            data = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
            if self.csrf:
                sent.setdefault("X-CSRF-Token", self.csrf)
        try:
            connection.request(method, path, body=data, headers=sent)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.request("GET", "/api/v1" + path, headers=headers)

    def post(self, path, body, **headers):
        return self.request("POST", "/api/v1" + path, body, headers=headers)

    def sign_in(self, token):
        answer = self.post("/sign-in", {"token": token})
        if answer.status == 200:
            self.cookie = answer.cookie
            self.csrf = answer.json["csrf_token"]
        return answer


class Events:
    """A stream of events; `next()` is the name and the data of the next one, None at its end."""

    def __init__(self, console, path="/events", **headers):
        sent = dict(headers)
        if console.token:
            sent["Authorization"] = f"Bearer {console.token}"
        if console.cookie is not None:
            sent["Cookie"] = f"leasehold_session={console.cookie}"
        self.connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
        self.connection.request("GET", "/api/v1" + path, headers=sent)
        self.reply = self.connection.getresponse()
        self.status = self.reply.status

    def next(self):
        name, data = None, None
        for line in iter(self.reply.readline, b""):
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name = text[7:]
            elif text.startswith("data: "):
                data = json.loads(text[6:])
            elif text == "" and name:
                return name, data
        return None

    def close(self):
        self.reply.close()
        self.connection.close()


def trusting(authority, certificate=None):
    context = ssl.create_default_context(cafile=authority.cert)
    context.check_hostname = False
    if certificate:
        context.load_cert_chain(certificate.cert, certificate.key)
    return context
