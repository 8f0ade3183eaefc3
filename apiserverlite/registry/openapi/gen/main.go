// Command gen writes the OpenAPI models of the kinds that the registry serves: structure
// only, taken from the definitions that k8s.io/kubernetes and the snapshot CRDs publish in their modules.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("o", "models.json.gz", "file to write")
	flag.Parse()
	b, err := generate()
	if err == nil {
		err = os.WriteFile(*out, b, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}
