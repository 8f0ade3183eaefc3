// Command kinds is a generic API server on etcd with the built-in kinds: upstream's stores, rules and
// admission, linked as packages, and nothing of its own between them. It is what answers are
// compared with. It runs no controllers. How it is used says package host.
package main

import "drydock.dev/drydock/internal/interop/peer/host"

func main() { host.Main(kinds) }
