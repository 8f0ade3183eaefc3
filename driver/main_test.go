package driver

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"drydock.dev/drydock/internal/host"
)

// TestMain moves the tests of a root into a mount namespace of their own: what they
// mount is gone with them.
func TestMain(m *testing.M) {
	if runtime.GOOS == "linux" && os.Geteuid() == 0 {
		if err := host.EnterPrivate(); err != nil {
			fmt.Fprintln(os.Stderr, "tests that mount are skipped:", err)
		} else {
			private = true
		}
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"))
}

// private is set when the tests run in a mount namespace of their own.
var private bool
