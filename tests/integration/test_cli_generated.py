"""The man pages and the completions, in what reads them: groff, bash, zsh and fish; and what else is installed."""
import re
import subprocess

import pytest

import harness
from commandline import cli

FILES = {"man": "leasehold.1", "bash": "leasehold.bash", "zsh": "_leasehold", "fish": "leasehold.fish"}


def commands():
    overview = cli("--help").stdout
    return re.findall(r"^  (\S+) +\S", overview.split("\nCommands\n")[1].split("\n\n")[0], re.M)


def options(command):
    """Letter and name of each, as help shows them."""
    return re.findall(r"^  (?:-(\w), |    )--([\w-]+)", cli(command, "--help").stdout, re.M)


@pytest.mark.parametrize("format, name", FILES.items())
def test_what_is_installed_is_what_the_program_says(format, name):
    assert (harness.BUILD / "src/cli" / name).read_text() == cli("--generate", format).stdout


def test_an_unknown_format_is_refused():
    assert cli("--generate", "pdf").returncode == 2


def man_page(path):
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-cbou", harness.BUILD / path], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return re.sub(r"-\n +", "-", done.stdout.replace("‐", "-"))


def test_the_man_page_of_the_daemon_has_every_setting():
    page = man_page("src/daemon/leaseholdd.8")
    names = re.findall(r"^;?(\w+) =", (harness.ROOT / "deploy/examples/leasehold.ini").read_text(), re.M)
    assert len(names) > 20
    for name in names:
        assert re.search(rf"^ +--{name.replace('_', '-')} .+\n +\S", page, re.M), name


READ = re.compile(r'''(?:getenv|environment|set_variable|setenv)\("([A-Z_]+)"|os\.(?:Getenv|environ\.get)\("([A-Z_]+)"|process\.env\.([A-Z_]+)|"(LEASEHOLD_[A-Z_]+)"''')


def test_every_environment_variable_is_on_its_page_and_the_page_has_no_other():
    page = (harness.ROOT / "docs/use/environment.md").read_text()
    listed = {name for item in re.findall(r"^- (`.+?`[^`:]*): ", page, re.M) for name in re.findall(r"`([A-Z_]+)`", item)}
    sources = [path for path in (harness.ROOT / "src").rglob("*.*") if path.suffix in (".c", ".py", ".go", ".js") and "test" not in path.name and
               "node_modules" not in path.parts]
    texts = [path.read_text() for path in sources] + [(harness.ROOT / "deploy/systemd/leasehold-reap@.service").read_text()]
    read = {name for text in texts for found in READ.findall(text) for name in found if name and name != "LEASEHOLD_"}
    assert len(sources) > 300 and len(read) > 20
    assert read - {"LC_ALL", "LOGNAME", "USER"} <= listed, read - listed  # those are for PostgreSQL's programs
    assert [name for name in listed if not any(name in text for text in texts)] == ["PGPASSFILE"]


def test_the_installation_is_complete(tmp_path):
    """Everything that a package or a user without one needs, below the prefix; the units start what was installed."""
    subprocess.run(["meson", "install", "-C", harness.BUILD, "--no-rebuild", "--quiet", "--destdir", tmp_path], check=True, timeout=120)
    prefix = tmp_path / "usr/local"
    for path in ("bin/leasehold", "bin/leaseholdd", "include/leasehold.h", "include/leasehold_embed.h", "include/leasehold_retry.h", "lib/*/libleasehold.so.0", "lib/*/libleasehold.a",
                 "lib/*/pkgconfig/leasehold.pc", "share/man/man1/leasehold.1", "share/man/man8/leaseholdd.8",
                 "share/bash-completion/completions/leasehold.bash", "share/zsh/site-functions/_leasehold",
                 "share/fish/vendor_completions.d/leasehold.fish", "share/leasehold/proto/leasehold/v1/leasehold.proto",
                 "lib/systemd/system/leasehold-reap@.timer"):
        assert len(list(prefix.glob(path))) == 1, path
    assert (prefix / "share/leasehold/leasehold.sql").read_text() == cli("migrate", "--print").stdout
    for unit in ("leaseholdd.service", "leasehold-reap@.service"):
        text = (prefix / "lib/systemd/system" / unit).read_text()
        assert "ExecStart=/usr/local/bin/leasehold" in text and "/usr/bin" not in text
        assert (prefix / re.search(r"^Documentation=file:/usr/local/(\S+)$", text, re.M)[1]).exists()
    pages = {path.relative_to(harness.ROOT / "docs") for path in (harness.ROOT / "docs").rglob("*.*")}
    assert len(pages) > 20 and [page for page in pages if not (prefix / "share/doc/leasehold" / page).exists()] == []


def test_the_man_page_is_clean_and_complete():
    page = man_page("src/cli/leasehold.1")
    for command in commands():
        assert f"   {command}: " in page
        for letter, name in options(command):
            assert (f"-{letter}, --{name}" if letter else f"--{name}") in page, (command, name)
    assert page.index("EXIT STATUS") < page.index("another holder has the lease")


def bash(*words):
    """What Tab offers after these words."""
    script = f'''
        source {harness.BUILD}/src/cli/leasehold.bash
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _leasehold
        printf '%s\\n' "${{COMPREPLY[@]}}"'''
    done = subprocess.run(["bash", "--norc", "-u", "-c", script, "bash", "leasehold", *words], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0 and done.stderr == ""
    return done.stdout.split()


def test_bash_completes():
    assert set(commands()) < set(bash("")) and bash("acq") == ["acquire"] and bash("--server", "x:1", "for") == ["force-release"]
    for command in commands():
        offered = bash(command, "-")
        assert {f"--{name}" for _, name in options(command)} <= set(offered)
        assert {f"-{letter}" for letter, _ in options(command) if letter} <= set(offered)
    assert "--database" not in bash("status", "--") and "--server" not in bash("hook", "--")
    assert bash("policy", "s") == ["show", "set"]
    assert bash("acquire", "a", "k", "-o", "") == ["text", "json", "env"]
    assert bash("acquire", "a", "k", "--duration", "") == []
    assert bash("-o", "json", "li") == ["list"]
    assert "--shared" in bash("acquire", "a", "k", "--shared", "")  # its value is optional: the next word is another


def test_zsh_reads_it():
    script = harness.BUILD / "src/cli/_leasehold"
    done = subprocess.run(["zsh", "-f", "-n", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""
    # What _arguments and _describe are handed, with stand-ins for them.
    stub = ('_arguments() { if [[ $1 == -C ]]; then state=$STATE; else print -rl -- "$@"; fi }; _describe() { print -rl -- $commands; }; '
            f'words=($WORD); source {script}')
    offered = lambda state, word: subprocess.run(["zsh", "-f", "-c", stub], capture_output=True, text=True, timeout=60, check=True,
                                                 env={"STATE": state, "WORD": word, "PATH": "/usr/bin:/bin"}).stdout
    assert {line.split(":")[0] for line in offered("command", "").splitlines()} == set(commands())
    for command in commands():
        said = offered("argument", command)
        for letter, name in options(command):
            assert re.search(rf"\*--{name}(=-)?\[", said) and (not letter or f"*-{letter}[" in said), (command, name)


def fish(line):
    done = subprocess.run(["fish", "--no-config", "-c", f"source {harness.BUILD}/src/cli/leasehold.fish; complete -C '{line}'"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""
    return {offer.split("\t")[0] for offer in done.stdout.splitlines()}


def test_fish_completes():
    assert fish("leasehold ") == set(commands()) and fish("leasehold force") == {"force-release"}
    for command in commands():
        offered = fish(f"leasehold {command} --")
        assert {f"--{name}" for _, name in options(command)} <= offered
    assert {"show", "set", "reset"} <= fish("leasehold policy ")
    assert fish("leasehold list -o ") == {"text", "json", "env"}
