"""leasehold access and leasehold token, by the server and by the database; the same methods with a stock client."""
import hashlib
import json
import re
import shlex

import grpc
import pytest

import harness
from commandline import NOWHERE, cli, timestamp
from harness import Duration, pb
from streams import keys

TOKEN = re.compile(r"lht_[A-Za-z0-9_-]{49}")


@pytest.fixture(params=["server", "database"])
def command(request, service):
    """The command line that reaches the same rules in one way or the other."""
    env = {"LEASEHOLD_SERVER": service.daemon.target} if request.param == "server" else \
        {"LEASEHOLD_DATABASE": service.cluster.url(service.database)}

    def run(*args, status=0, **more):
        done = cli(*args, **env, **more)
        assert done.returncode == status, f"{args}: exit {done.returncode}: {done.stderr}"
        return done

    return run


@pytest.fixture
def admin(service):
    client = harness.Client(service.daemon.target)
    yield client.admin
    client.close()


def row(words, text):
    """The line of a table that begins with these words, without its times."""
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    return next(line for line in lines if line[:len(words)] == words)


# --- access ---


def test_rights_are_granted_listed_and_revoked(command, service):
    who = "token:" + keys()
    assert command("access", "grant", who, "jobs.nightly", "lease", "read").stdout == f"{who} in jobs.nightly and below: read,lease\n"
    assert command("access", "grant", who, "jobs.nightly", "admin").stdout == f"{who} in jobs.nightly and below: read,lease,admin\n"
    assert command("access", "grant", who, ".", "read").stdout == f"{who} in (root) and below: read\n"
    listed = command("access", "list").stdout
    assert row([who, "(root)"], listed)[2] == "read"
    assert row([who, "jobs.nightly"], listed)[2] == "read,lease,admin"
    assert service.psql(f"select array_to_string(rights, ' ') from leasehold.access_rule where principal = '{who}' and namespace = 'jobs.nightly'") \
        == "admin lease read"
    left = command("access", "revoke", who, "jobs.nightly", "admin", "read").stdout
    assert left == f"{who} in jobs.nightly and below: lease\n"
    assert command("access", "revoke", who, "jobs.nightly").stdout == f"{who} in jobs.nightly and below: no rule\n"
    assert command("access", "revoke", who, ".", "read").stdout == f"{who} in (root) and below: no rule\n"
    assert who not in command("access", "list").stdout


def test_each_principal_of_the_help_is_accepted(command):
    page = cli("access", "--help").stdout
    typed = [shlex.split(line) for line in re.findall(r"^ +leasehold (access (?:grant|revoke) .*)", page, re.M) if "PRINCIPAL" not in line]
    listed = [re.sub(r"NAME|PREFIX", "name", form) for line in re.findall(r"^  (.*?)  +", page.partition("\nPrincipals\n")[2].partition("\n\n")[0], re.M)
              for form in line.split(", ")]
    assert len(typed) == 3 and len(listed) == 8
    for words in typed + [["access", "grant", form, "help", "read"] for form in listed]:
        command(*words)
    for words in [words[:4] for words in typed] + [["access", "revoke", form, "help"] for form in listed]:
        command("access", "revoke", *words[2:])


def test_rules_as_json(command):
    who = "dns:" + keys() + ".*"
    rule = json.loads(command("access", "grant", who, "a.b", "guard", "-o", "json").stdout)["rule"]
    assert rule["principal"] == who and rule["namespace"] == {"segments": ["a", "b"]} and rule["rights"] == ["RIGHT_GUARD"]
    assert rule["created_by"] and timestamp(rule["created_at"])
    rules = json.loads(command("access", "list", "-o", "json").stdout)["rules"]
    assert [each for each in rules if each["principal"] == who] == [rule]
    assert json.loads(command("access", "revoke", who, "a.b", "-o", "json").stdout).get("rule") is None


@pytest.mark.parametrize("args, words", [
    (["grant", "token:ci", "jobs", "wread"], "unknown right: wread; use read, lease, guard or admin; did you mean read?"),
    (["grant", "token:ci", "jobs"], "missing argument; usage: leasehold access grant PRINCIPAL NAMESPACE RIGHT..."),
    (["revoke", "token:ci"], "missing argument; usage: leasehold access revoke PRINCIPAL NAMESPACE [RIGHT...]"),
    (["list", "jobs"], "unexpected argument: jobs"),
    (["grant", "token:ci", "a..b", "read"], "segment 2 of namespace must be 1 to 63 bytes, has 0"),
    (["grant", "to*en", "jobs", "read"], "principal"),
    (["show"], "unknown subcommand: access show; use list, grant or revoke"),
])
def test_a_rule_that_cannot_be_is_wrong_usage(command, args, words):
    assert words in command("access", *args, status=2).stderr


# --- tokens ---


def test_a_token_is_shown_once_listed_and_revoked(command, service):
    name = keys()
    done = command("token", "create", name, "--expires", "90d")
    token = done.stdout.strip()
    assert TOKEN.fullmatch(token) and done.stdout == token + "\n"
    ident = re.fullmatch(rf"token ([a-z0-9]+) of token:{name} expires .+; it is shown only now\n", done.stderr).group(1)
    assert service.psql(f"select encode(hash, 'hex') from leasehold.access_token where id = '{ident}'") == hashlib.sha256(token.encode()).hexdigest()
    other = command("token", "create", name)
    assert "does not expire; it is shown only now" in other.stderr and other.stdout != done.stdout
    text = command("token", "list").stdout
    listed = row([ident, name], text)
    assert len(listed) == 5 and listed[3] != "never" and listed[4] == "never" and token not in text
    listed = json.loads(command("token", "list", "-o", "json").stdout)["tokens"]
    first, second = sorted((each for each in listed if each["name"] == name), key=lambda each: "expires_at" not in each)
    assert first["id"] == ident and timestamp(first["expires_at"]).ToSeconds() - timestamp(first["created_at"]).ToSeconds() == 90 * 86400
    assert not second.get("expires_at") and not second.get("last_used_at")
    assert command("token", "revoke", ident).stdout == "1 token revoked\n"
    command("token", "create", name)
    assert command("token", "revoke", name).stdout == "2 tokens revoked\n"
    gone = command("token", "revoke", name, status=1)
    assert gone.stderr == f"leasehold: no token has the name or the ID {name}\n" and gone.stdout == ""


def test_a_token_as_json(command):
    name = keys()
    made = json.loads(command("token", "create", name, "--expires", "1h", "-o", "json").stdout)
    assert TOKEN.fullmatch(made["token"]) and timestamp(made["expires_at"])
    assert json.loads(command("token", "revoke", made["id"], "-o", "json").stdout) == {"revoked": "1"}


@pytest.mark.parametrize("args, words", [
    (["create"], "missing argument; usage: leasehold token create NAME"),
    (["revoke"], "missing argument; usage: leasehold token revoke NAME|ID"),
    (["create", "a", "b"], "unexpected argument: b"),
    (["create", "Big"], "1 to 63 of a-z, 0-9"),
    (["create", "0123abcd"], "other than 8 of 0-9 and a-f, which is what IDs of tokens are"),
    (["create", "x" * 64], "1 to 63 of a-z, 0-9"),
    (["create", "ci", "--expires", "soon"], "expires"),
    (["list", "--expires", "1h"], "--expires is for token create only"),
])
def test_a_token_that_cannot_be_is_wrong_usage(command, args, words):
    assert words in command("token", *args, status=2).stderr


def test_where_nobody_answers_is_unavailable():
    for args in (["access", "list"], ["token", "list"], ["token", "create", "ci"], ["access", "grant", "a", "b", "read"]):
        assert cli(*args, "--server", NOWHERE).returncode == 5


def test_a_role_without_the_right_is_denied(service):
    role = "weak_" + keys().replace("-", "_")
    service.psql(f"create role {role} login in role leasehold_client")
    database = service.cluster.url(service.database, role)
    for args in (["access", "grant", "token:ci", "jobs", "read"], ["token", "create", "ci"], ["token", "list"], ["access", "list"]):
        done = cli(*args, "--database", database)
        assert done.returncode == 1 and "leasehold_admin" in done.stderr, (args, done.stderr)


def test_a_right_that_a_role_has_not_is_named(cluster, database):
    url = cluster.url(database)
    role = "reader_" + keys().replace("-", "_")
    assert cli("migrate", "--database", url).returncode == 0
    cluster.psql(f"create role {role} login in role leasehold_client", database)
    assert cli("access", "grant", f"role:{role}", "mine", "read", "--database", url).returncode == 0
    denied = cli("explain", "theirs", "k", "--database", cluster.url(database, role))
    assert denied.returncode == 1 and f"role:{role}" in denied.stderr and "leasehold_admin" not in denied.stderr, denied.stderr
    assert "; an administrator grants a right with: leasehold access grant PRINCIPAL theirs RIGHT" in denied.stderr
    assert cli("explain", "mine", "k", "--database", cluster.url(database, role)).returncode == 0


# --- with a stock client ---


def refusal(call, request):
    with pytest.raises(grpc.RpcError) as raised:
        call(request)
    return raised.value


def namespace(*segments):
    return pb.Namespace(segments=segments)


@pytest.mark.parametrize("method, request_, field, words", [
    ("GrantAccess", pb.GrantAccessRequest(rights=[pb.RIGHT_READ]), "principal", "must be 1 to 1024 bytes, has 0"),
    ("GrantAccess", pb.GrantAccessRequest(principal="x" * 1025, rights=[pb.RIGHT_READ]), "principal", "must be 1 to 1024 bytes, has 1025"),
    ("GrantAccess", pb.GrantAccessRequest(principal="a\nb", rights=[pb.RIGHT_READ]), "principal", "must not contain control characters"),
    ("GrantAccess", pb.GrantAccessRequest(principal="a*b", rights=[pb.RIGHT_READ]), "principal", "must have * at its end only, is \"a*b\""),
    ("GrantAccess", pb.GrantAccessRequest(principal="a"), "rights", "must have at least one right"),
    ("GrantAccess", pb.GrantAccessRequest(principal="a", rights=[pb.RIGHT_READ, 9]), "rights[1]",
     "must be RIGHT_READ, RIGHT_LEASE, RIGHT_GUARD or RIGHT_ADMIN, is 9"),
    ("GrantAccess", pb.GrantAccessRequest(principal="a", namespace=namespace("a.b"), rights=[pb.RIGHT_READ]), "namespace.segments[0]", "must not contain a dot"),
    ("RevokeAccess", pb.RevokeAccessRequest(principal="a", rights=[0]), "rights[0]", "must be RIGHT_READ, RIGHT_LEASE, RIGHT_GUARD or RIGHT_ADMIN, is 0"),
    ("RevokeAccess", pb.RevokeAccessRequest(), "principal", "must be 1 to 1024 bytes, has 0"),
    ("CreateToken", pb.CreateTokenRequest(name="deadbeef"), "name",
     "must be other than 8 of 0-9 and a-f, which is what IDs of tokens are, is \"deadbeef\""),
    ("CreateToken", pb.CreateTokenRequest(name="Big"), "name", "must be 1 to 63 of a-z, 0-9, '.', '_' and '-', is \"Big\""),
    ("CreateToken", pb.CreateTokenRequest(name="a", expires=Duration()), "expires", "must be at least"),
    ("CreateToken", pb.CreateTokenRequest(name="a", expires=Duration(seconds=-1)), "expires", "must not be negative"),
    ("CreateToken", pb.CreateTokenRequest(name="a", expires=Duration(seconds=101 * 365 * 86400)), "expires", "must be at most 100 years"),
    ("RevokeToken", pb.RevokeTokenRequest(), "name_or_id", "must be 1 to 63 of a-z"),
    ("ListAccess", pb.ListAccessRequest(page_size=1001), "page_size", "must be 0 (which is 100) to 1000, is 1001"),
    ("ListAccess", pb.ListAccessRequest(page_token="x"), "page_token", "must be the next_page_token of the page before"),
    ("ListTokens", pb.ListTokensRequest(page_size=-1), "page_size", "must be 0 (which is 100) to 1000, is -1"),
])
def test_a_request_out_of_bounds_names_field_and_limit(admin, method, request_, field, words):
    error = refusal(getattr(admin, method), request_)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert f"{field} {words}" in error.details()


def pages(call, request, field):
    """All that is listed, and how many came in each page."""
    sizes, found = [], []
    while True:
        page = call(request)
        sizes.append(len(getattr(page, field)))
        found.extend(getattr(page, field))
        if not page.next_page_token:
            return found, sizes
        request.page_token = page.next_page_token


def test_rules_come_in_pages_and_in_order(admin):
    mark = "token:" + keys()
    made = [(f"{mark}-{i}", ns) for i in range(3) for ns in ([], ["a"], ["a", "b"])]
    for principal, segments in made:
        answer = admin.GrantAccess(pb.GrantAccessRequest(principal=principal, namespace=namespace(*segments), rights=[pb.RIGHT_READ]))
        assert (answer.rule.principal, list(answer.rule.namespace.segments), list(answer.rule.rights)) == (principal, segments, [pb.RIGHT_READ])
    found, sizes = pages(admin.ListAccess, pb.ListAccessRequest(page_size=2), "rules")
    assert [(rule.principal, list(rule.namespace.segments)) for rule in found if rule.principal.startswith(mark)] == made
    assert set(sizes[:-1]) == {2} and sizes[-1] in (1, 2)
    assert all(rule.created_by and rule.created_at.seconds for rule in found)
    for principal, segments in made:
        assert not admin.RevokeAccess(pb.RevokeAccessRequest(principal=principal, namespace=namespace(*segments))).HasField("rule")
    token = admin.ListTokens(pb.ListTokensRequest(page_size=1)).next_page_token
    if token:
        assert refusal(admin.ListAccess, pb.ListAccessRequest(page_token=token)).code() == grpc.StatusCode.INVALID_ARGUMENT


def test_tokens_come_in_pages_and_in_order(admin):
    mark = keys()
    made = [(name, admin.CreateToken(pb.CreateTokenRequest(name=name)).id) for name in (mark + ".a", mark + ".a", mark + ".b")]
    found, sizes = pages(admin.ListTokens, pb.ListTokensRequest(page_size=1), "tokens")
    assert [(token.name, token.id) for token in found if token.name.startswith(mark)] == sorted(made)
    assert set(sizes) == {1}
    for name, count in ((mark + ".a", 2), (mark + ".b", 1), (mark + ".c", 0)):
        assert admin.RevokeToken(pb.RevokeTokenRequest(name_or_id=name)).revoked == count


def test_the_audit_names_the_caller(admin, service):
    who = "token:" + keys()
    admin.GrantAccess(pb.GrantAccessRequest(principal=who, namespace=namespace("jobs"), rights=[pb.RIGHT_READ]))
    admin.RevokeAccess(pb.RevokeAccessRequest(principal=who, namespace=namespace("jobs")))
    rows = service.psql("select string_agg(concat_ws('|', principal, split_part(peer, ':', 1), action, namespace, reason, outcome), E'\\n' order by at)"
                        f" from leasehold.audit where reason like '{who}%'")
    assert rows.splitlines() == [f"anonymous|127.0.0.1|access_grant|jobs|{who}: read|done", f"anonymous|127.0.0.1|access_revoke|jobs|{who}: read|done"]
