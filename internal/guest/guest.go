// Package guest runs a program on a simulated node: "drydock node exec".
//
// With real devices the program gets a mount namespace of its own inside the running
// cluster's private one. There /dev/disk/by-id is the node's, the kubelet's directory
// lies at its own path and at /var/lib/kubelet, and what the program mounts below
// it appears in the cluster, and the other way round. It is the second process of a process
// namespace: whatever it starts ends with it.
//
// With simulated devices, or off Linux, there is no namespace: the program runs as it
// would anyway, and the environment says where the node's files are.
//
// The program ends with the context of Run and, on Linux, with the process that called Run,
// however that one ends.
package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Exit codes for a program that did not run, as other tools that run programs elsewhere use them.
const (
	ExitNotEntered  = 125 // the node could not be entered
	ExitNotRunnable = 126
	ExitNotFound    = 127
	exitSignalled   = 128 // and the signal's number
)

// Spec says where a program runs.
type Spec struct {
	Node string
	// Process is the cluster's, whose mount namespace is entered; zero means that none is.
	Process int
	// Kubelet is the node's kubelet directory.
	Kubelet string
	// Links is the node's /dev/disk/by-id.
	Links string
	// Scratch is a directory of the node's to mount on for a moment.
	Scratch string
	// Env is added to the environment, as KEY=VALUE.
	Env []string
	// Dir is the working directory; where it does not exist on the node, / is.
	Dir string
}

// marker carries the Spec to the process that enters the node.
const marker = "DRYDOCK_GUEST"

// Main takes over the process if Run started it; the first thing a main function does
// is to call it. Otherwise it returns at once.
func Main() {
	text, ok := os.LookupEnv(marker)
	if !ok {
		return
	}
	var s Spec
	err := json.Unmarshal([]byte(text), &s)
	if err == nil && len(os.Args) < 2 {
		err = fmt.Errorf("no program is named")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "drydock: enter node: %v\n", err)
		os.Exit(ExitNotEntered)
	}
	os.Exit(inside(s, os.Args[1:]))
}

// environment is the caller's with the Spec's over it.
func (s Spec) environment() []string {
	set := map[string]bool{marker: true}
	for _, kv := range s.Env {
		name, _, _ := strings.Cut(kv, "=")
		set[name] = true
	}
	var out []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !set[name] {
			out = append(out, kv)
		}
	}
	return append(out, s.Env...)
}
