package scenario

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/sock"
)

// expectStats asks a node's driver for a volume's numbers at a path.
func (s *story) expectStats(args []string) error {
	if len(args) < 3 {
		return errUsage
	}
	o, err := options(args[3:], "code", "units")
	if err != nil {
		return err
	}
	ctx, cancel := s.limit()
	defer cancel()
	socket := filepath.Join(s.world.KubeletDir(args[0]), "plugins", s.world.Driver(), "csi.sock")
	conn, err := grpc.NewClient("passthrough:driver", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return sock.Dial(ctx, socket) }))
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := csipb.NewNodeClient(conn).NodeGetVolumeStats(ctx, &csipb.NodeGetVolumeStatsRequest{VolumeId: args[1], VolumePath: args[2]})
	code := status.Code(err).String()
	if want := o["code"]; want != "" && want != code || want == "" && err != nil {
		return notSof("the answer is %s, %v %v", code, r, err)
	}
	var units []string
	for _, u := range r.GetUsage() {
		units = append(units, u.GetUnit().String())
	}
	slices.Sort(units)
	if got := strings.Join(units, ","); o["units"] != "" && o["units"] != got {
		return notSof("it counts %s", got)
	}
	return nil
}

// lookAgain is how long a page is left alone that is not yet as expected: it tells nobody that it changes.
const lookAgain = 10 * time.Millisecond

// waitPage waits until a page of the API server's has a text, or has it no more.
func (s *story) waitPage(args []string) error {
	without := len(args) == 3 && args[0] == "-without"
	if without {
		args = args[1:]
	}
	if len(args) != 2 {
		return errUsage
	}
	cfg := *s.world.RESTConfig("scenario")
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(&cfg)
	if err != nil {
		return err
	}
	ctx, cancel := s.limit()
	defer cancel()
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		b, err := client.Get().AbsPath(args[0]).DoRaw(ctx)
		if err == nil && strings.Contains(string(b), args[1]) != without {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%w; the page is %.3000s %v", context.Cause(ctx), b, err)
		}
	}
}
