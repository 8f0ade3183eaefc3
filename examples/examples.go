// Package examples holds the manifests that "drydock demo" applies. They are plain
// files for kubectl first, and embedded second.
package examples

import "embed"

// FS holds the manifests by file name.
//
//go:embed *.yaml
var FS embed.FS

// Demo lists the manifests of the demonstration in the order in which they are applied.
var Demo = []string{"storageclass.yaml", "claim.yaml", "pod.yaml"}
