//go:build tools

package tools

import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/chromedp/chromedp"
	_ "go.uber.org/goleak"
	_ "pgregory.net/rapid"
)
