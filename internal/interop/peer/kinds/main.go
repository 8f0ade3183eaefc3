// Command kinds is a generic API server on etcd with the built-in kinds: upstream's stores, rules and
// admission, linked as packages, and nothing of its own between them. It is what answers are
// compared with. It runs no controllers. How it is used says package host.
package main

import (
	"k8s.io/kubernetes/pkg/capabilities"

	"drydock.dev/drydock/internal/interop/peer/host"
)

func main() {
	capabilities.Setup(true, 0) // as the flag --allow-privileged does, which clusters have
	host.Main(kinds)
}
