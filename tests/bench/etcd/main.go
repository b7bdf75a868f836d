// etcd of the version in go.mod, which tests/bench/run builds and compares with: Debian's is older.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
