// Package peer starts a generic Kubernetes API server that is not ours, on an etcd of its
// own, to hold apiserverlite against: the same requests to both, and the same loads.
//
// There are two: custom resources only (package main in serve), to measure against, and
// one that has the built-in kinds with upstream's own stores, rules and admission (kinds), to
// compare answers with. A server is a process beside the test, so that what it
// takes of memory and time can be told from what the test takes. It listens on loopback,
// knows one token, which may do everything, and keeps all it has in a temporary directory.
// It ends with the test, and with the test's process if that is killed: it reads a pipe.
//
// The module is its own, because of what such a server is made of. Others than its tests
// build a program and read the line it prints: see package host.
package peer
