#!/bin/sh
# ZooKeeper 3.9.5 from Maven Central with everything that its POM asks for is a client: as a server it ends at once, for a class of metrics-core.
# With metrics-core it opens its port, its main thread dies for a class of snappy-java, and it stays: it serves nobody, and does not end. Only a
# logger, which its POM does not ask for either, says why.
set -eu

work=$(mktemp -d)
trap 'kill -9 "$server" 2>/dev/null && wait "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
server=
cat > "$work/pom.xml" <<'XML'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>try</groupId>
  <artifactId>try</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.zookeeper</groupId><artifactId>zookeeper</artifactId><version>3.9.5</version></dependency>
    <dependency><groupId>io.dropwizard.metrics</groupId><artifactId>metrics-core</artifactId><version>4.1.12.1</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>2.0.13</version></dependency>
  </dependencies>
</project>
XML
(cd "$work" && mvn -B -q -C org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DoutputDirectory="$work/jars")
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '%s\n' "dataDir=$work/data" "clientPort=$port" clientPortAddress=127.0.0.1 admin.enableServer=false 4lw.commands.whitelist=srvr > "$work/zoo.cfg"
main=org.apache.zookeeper.server.quorum.QuorumPeerMain

# The POM's own: without what was added above.
asked=$(find "$work/jars" -name '*.jar' ! -name 'metrics-core-*' ! -name 'slf4j-simple-*' | tr '\n' ':')
timeout 60 java -cp "$asked" "$main" "$work/zoo.cfg" > "$work/asked" 2>&1 && exit 1
first=$(grep -o 'NoClassDefFoundError: .*' "$work/asked" | head -1)
echo "as its POM asks: $first"

java -cp "$work/jars/*" "$main" "$work/zoo.cfg" > "$work/metrics" 2>&1 &
server=$!
sleep 10
second=$(grep -o 'NoClassDefFoundError: .*' "$work/metrics" | head -1)
answer=$(python3 -c '
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) as server:
    server.sendall(b"srvr")
    print(server.recv(200).decode().strip())' "$port")
kill -0 "$server"
echo "with metrics-core: $second; 10 s later it runs, and says: $answer"
[ "$first" = "NoClassDefFoundError: com/codahale/metrics/Reservoir" ]
echo "$second" | grep -q "org/xerial/snappy"
[ "$answer" = "This ZooKeeper instance is not currently serving requests" ]
