"""Print leaseholdd(8) from what leaseholdd --help says: manual.py LEASEHOLDD."""
import re
import subprocess
import sys

PAGE = r""".TH LEASEHOLDD 8 "" "leasehold {version}"
.SH NAME
leaseholdd \- a lease coordinator on PostgreSQL
.SH SYNOPSIS
{synopsis}
.SH DESCRIPTION
The daemon grants, renews and ends leases over gRPC. All of its state is in the schema leasehold of a PostgreSQL database,
which \fBdatabase\fR names, or in a PostgreSQL of its own in the directory that \fBembedded\fR names.
.PP
Each setting below is an option of the command line, without its dashes a line of the configuration file
(\fB\-\-max\-waiters 5\fR is \fBmax_waiters = 5\fR), and some are environment variables. The command line comes before the
environment, and the environment before the file.
.SH OPTIONS
{options}
.SH SIGNALS AND EXIT STATUS
{end}
.SH FILES
.TP
\fI/etc/leasehold/leasehold.ini\fR
what the systemd unit reads; \fB\-\-print\-config\fR writes an example with every setting
.SH SEE ALSO
\fBleasehold\fR(1)"""


def roff(text):
    return re.sub(r"^(?=[.'])", r"\\&", text.replace("\\", "\\e").replace("-", "\\-"), flags=re.M)


def option(line):
    name, _, value = line.strip().partition(" ")
    return ".TP\n" + rf"\fB{roff(name)}\fR" + (rf" \fI{roff(value)}\fR" if value else "")


def options(lines):
    for line in lines:
        brief = re.match(r"  (--\S+)  (\S.*)", line)
        if brief:
            yield option(brief[1])
            yield roff(brief[2])
        elif line.startswith("      "):
            words = line.strip()
            yield (".br\n" if words.startswith(("Default ", "No default")) else "") + roff(words)
        elif line.startswith("  --"):
            yield option(line)
        elif line:
            yield ".SS " + line


def main():
    text = subprocess.run([sys.argv[1], "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    title, usage, *sections, end = text.strip().split("\n\n")
    synopsis = "\n.br\n".join(roff(line.replace("usage:", "").strip()) for line in usage.splitlines())
    print(PAGE.format(version=re.match(r"leaseholdd (\S+):", title)[1], synopsis=synopsis,
                      options="\n".join(options("\n".join(sections).splitlines())), end=roff(end).replace("\n", "\n.br\n")))


if __name__ == "__main__":
    main()
