// Command serve is k8s.io/apiextensions-apiserver on etcd: custom resource definitions
// and what they define, and nothing else. It is what loads are compared with. How it is used says package host.
package main

import "drydock.dev/drydock/internal/interop/peer/host"

func main() { host.Main(host.Extensions) }
