// Package conformance holds tests of what upstream's end-to-end suite asks of a Kubernetes API,
// as far as no container has to run for it. They are our own tests of the same behaviours: each is
// named for one, and docs/api-conformance.md says which upstream spec it stands for, and which
// specs have no test here and why.
//
// The tests are clients. They reach one cluster, with simulated devices and nodes, over its TLS
// port by its kubeconfig, as a program of its user does; they run at the same time, each in a
// namespace of its own, and wait for watch events, never for time.
package conformance
