package cluster

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"drydock.dev/drydock/internal/guest"
	"drydock.dev/drydock/internal/host"
)

// childState makes the test binary run a cluster in that directory in place of tests, so that tests can kill a whole process.
const childState = "DRYDOCK_TEST_CLUSTER"

func TestMain(m *testing.M) {
	guest.Main()
	if os.Getenv(guestDriver) != "" {
		if err := runGuestDriver(); err != nil {
			fmt.Fprintln(os.Stderr, "guest driver:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Geteuid() == 0 {
		if err := host.EnterPrivate(); err != nil {
			fmt.Fprintln(os.Stderr, "tests of real devices need a private mount namespace:", err)
		}
	}
	RouteLogs(zerolog.New(os.Stderr).Level(zerolog.WarnLevel))
	if dir := os.Getenv(childState); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel).With().Timestamp().Logger()
	c, err := Start(ctx, Options{State: dir, Listen: "127.0.0.1:0", Devices: host.Mode(os.Getenv("DRYDOCK_TEST_DEVICES")), Log: log})
	if err != nil {
		return err
	}
	if err := c.WaitReady(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return c.Close()
}
