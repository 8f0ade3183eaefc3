package journal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
)

// config is how the tests reach the cluster that they share.
var config *rest.Config

// TestMain starts a cluster for all tests, as envtest's Environment would, and takes it away again.
func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	cfg, stop, err := startCluster()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	config = cfg
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// startCluster runs "drydock up" with flags of yours: --api-only for what envtest gives, nothing for volumes that
// bind. The program is $DRYDOCK_BIN or the one on the PATH.
func startCluster(flags ...string) (*rest.Config, func() error, error) {
	program := os.Getenv("DRYDOCK_BIN")
	if program == "" {
		program = "drydock"
	}
	dir, err := os.MkdirTemp("/tmp", "ddo")
	if err != nil {
		return nil, nil, err
	}
	state := filepath.Join(dir, "s")
	drydock := func(args ...string) error {
		if out, err := exec.Command(program, append(args, "--state", state)...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w\n%s", program, args[0], err, out)
		}
		return nil
	}
	if err := drydock(append([]string{"up", "--detach", "--listen", "127.0.0.1:0", "--devices", "sim"}, flags...)...); err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	stop := func() error {
		err := drydock("down", "--purge")
		os.RemoveAll(dir)
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(state, "kubeconfig"))
	if err != nil {
		stop()
		return nil, nil, err
	}
	return cfg, stop, nil
}
