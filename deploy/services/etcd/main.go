// Command etcd is the etcd server built from its published module, so that a
// machine with Go but neither an etcd package nor docker can run the version
// Muster is tested with. `go install` cannot build it: the server's own go.mod
// has replace directives, which that command refuses.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
