#!/bin/sh
# Keeps a daemon with an embedded PostgreSQL for a test process, and ends both with it: standard input ends when the process does, however it ends.
#     keeper.sh LEASEHOLDD
# It prints the daemon's address and its directory, then for each line "fail over" of its input the address, once the daemon serves again, on a new
# timeline of its database: PostgreSQL recovers as a standby does that is promoted.
set -u
dir=$(mktemp -d /tmp/leasehold-test-XXXXXX) || exit 1
chmod 755 "$dir"
listen=127.0.0.1:0
starts=0

end() {
  kill -CONT "$pid" 2>/dev/null
  kill -TERM "$pid" 2>/dev/null
  wait "$pid"
}

start() {
  starts=$((starts + 1))
  "$1" --embedded "$dir/state" --listen "$listen" --admin none --port-file "$dir/port-$starts" </dev/null >>"$dir/log" 2>&1 &
  pid=$!
  until [ -s "$dir/port-$starts" ]; do
    kill -0 "$pid" 2>/dev/null || { cat "$dir/log" >&2; rm -rf "$dir"; exit 1; }
    sleep 0.05
  done
  listen=$(head -n 1 "$dir/port-$starts")
}

promote() {
  touch "$dir/state/data/recovery.signal"
  echo "restore_command = 'false'" >>"$dir/state/data/postgresql.auto.conf"
}

trap '' INT QUIT HUP TERM
start "$1"
echo "$listen $dir"
while read -r command; do
  [ "$command" = "fail over" ] && end && promote && start "$1" && echo "$listen"
done
end
rm -rf "$dir"
