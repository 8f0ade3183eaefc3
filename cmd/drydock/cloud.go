package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/host"
)

// cloudFlags are those of "drydock cloud" and its subcommands.
type cloudFlags struct {
	*flags
	token, url, seed, region, droplet, metadata string
	detach                                      bool
}

func newCloud(shared *flags) *cobra.Command {
	own := *shared // its --listen and --devices have other defaults and meanings
	f := &cloudFlags{flags: &own}
	cmd := &cobra.Command{
		Use:   "cloud",
		Short: "Run the fake cloud alone, or look into a running one",
		Long: `Run the fake DigitalOcean cloud alone, without a cluster: for drivers, Terraform,
doctl and clean-up jobs. It stays until Ctrl-C; its state outlives it.

  drydock cloud --seed file.yaml          run it, with droplets, volumes and settings
  drydock cloud log -o json               what was asked of it: method, path, status, caller, duration
  drydock cloud dump                      everything it knows
  drydock cloud settings limits.volumes=5 change a rule while it runs

The subcommands look into the cloud alone of that --state or --name, or else into that
cluster's. Seed files and settings are described in docs/CLOUD.md.`,
		Args: cobra.NoArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			own.name, own.state = shared.name, shared.state
			err := fromEnvironment(cmd.Flags())
			own.name, own.state = shared.name, shared.state
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.detach {
				return f.leave(cmd)
			}
			return f.run(cmd)
		},
	}
	p := cmd.Flags()
	p.BoolVar(&own.ephemeral, "ephemeral", false, "keep the state in a temporary directory and remove it at the end")
	p.BoolVarP(&f.detach, "detach", "d", false, "return when the cloud is ready and leave it running")
	p.StringVar(&own.listen, "listen", cluster.DefaultCloudListen, "loopback address to listen on; port 0 takes a free one")
	p.StringVar(&own.devices, "devices", string(host.Auto), "auto, loop (real devices, needs root) or sim (simulated)")
	p.StringVar(&f.seed, "seed", "", "YAML file with droplets, volumes, snapshots and settings to begin with")
	p.StringVar(&f.region, "region", cluster.Region, "region of droplets that name none")
	p.StringVar(&f.droplet, "droplet", "", "droplet whose metadata is served to those who do not say which")
	p.StringVar(&f.metadata, "metadata", "", "one more address, for that droplet's metadata alone: 169.254.169.254:80 in a network namespace")
	p.StringVar(&own.logLevel, "log-level", "warn", "debug, info, warn or error")
	p.StringVar(&own.logFormat, "log-format", "text", "text or json")
	cmd.PersistentFlags().StringVar(&f.token, "token", "", "bearer token (default: the one in the state directory)")
	cmd.AddCommand(newCloudDown(f), newCloudLog(f), newCloudDump(f), newCloudSettings(f), newCloudCosts(f))
	for _, c := range cmd.Commands() {
		if c.Name() == "down" {
			continue
		}
		c.Flags().StringVar(&f.url, "url", "", "address of the cloud (default: the one in the state directory)")
	}
	return cmd
}

// alone is the state directory of a cloud alone.
func (f *cloudFlags) alone() (cluster.Layout, error) {
	if f.state != "" {
		return f.layout()
	}
	dir, err := cluster.DefaultState(f.name)
	if err != nil {
		return cluster.Layout{}, usageError{err}
	}
	return cluster.Layout{Root: dir + "-cloud"}, nil
}

func (f *cloudFlags) run(cmd *cobra.Command) (err error) {
	mode, err := host.ParseMode(f.devices)
	if err != nil {
		return usageError{err}
	}
	log, err := f.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	l, err := f.alone()
	if err != nil {
		return err
	}
	if f.ephemeral && f.state != "" {
		return usageError{errors.New("--ephemeral and --state exclude each other: an ephemeral cloud's directory is temporary")}
	}
	host.KeepHeadroom()
	c, err := cluster.StartCloud(cmd.Context(), cluster.CloudOptions{
		State: l.Root, Ephemeral: f.ephemeral, Listen: f.listen, Token: f.token, Region: f.region, Droplet: f.droplet, Metadata: f.metadata, Devices: mode, Seed: f.seed, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "cloud is ready: %s\n\n  export DIGITALOCEAN_API_URL=%s\n  export DIGITALOCEAN_ACCESS_TOKEN=%s\n  device links  %s\n  stop          Ctrl-C\n",
		c.Reason, c.URL(), quote(c.Token), c.Layout.Links("DROPLET"))
	announceReady()
	if err := host.GiveBackStart(); err != nil {
		log.Warn().Err(err).Msg("more memory stays resident than is needed")
	}
	<-cmd.Context().Done()
	return nil
}

// leave starts a cloud in a process of its own and returns when it is ready.
func (f *cloudFlags) leave(cmd *cobra.Command) error {
	if f.ephemeral {
		return usageError{errors.New("--detach and --ephemeral exclude each other: nobody could find the cloud to stop it")}
	}
	l, err := f.alone()
	if err != nil {
		return err
	}
	args := []string{"cloud", "--state", l.Root, "--listen", f.listen, "--devices", f.devices, "--region", f.region,
		"--log-level", f.logLevel, "--log-format", f.logFormat, "--droplet", f.droplet, "--metadata", f.metadata}
	if f.seed != "" {
		file, err := filepath.Abs(f.seed)
		if err != nil {
			return err
		}
		args = append(args, "--seed", file)
	}
	var env []string
	if f.token != "" {
		env = []string{"DRYDOCK_TOKEN=" + f.token} // a command line can be read by everybody
	}
	if err := spawn(cmd.Context(), l, env, args...); err != nil {
		return err
	}
	url, token, err := f.target()
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "cloud is ready\n\n  export DIGITALOCEAN_API_URL=%s\n  export DIGITALOCEAN_ACCESS_TOKEN=%s\n  device links  %s\n  stop          %s cloud down%s\n",
		url, quote(token), l.Links("DROPLET"), os.Args[0], f.suffix())
	return nil
}

func newCloudDown(f *cloudFlags) *cobra.Command {
	var purge bool
	cmd := &cobra.Command{
		Use: "down", Short: "Stop a cloud that runs alone", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := f.alone()
			if err != nil {
				return err
			}
			return down(cmd, "cloud "+f.name, l, purge)
		},
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the cloud's state and the data of its volumes")
	return cmd
}

// target finds the cloud that the flags mean, and its token.
func (f *cloudFlags) target() (url, token string, err error) {
	url, token = f.url, f.token
	var at cluster.Layout
	if url == "" {
		if at, err = f.alone(); err != nil {
			return "", "", err
		}
		b, err := os.ReadFile(at.CloudURL())
		pid, e := cluster.Owner(at)
		if url = strings.TrimSpace(string(b)); err != nil || e != nil || pid == 0 {
			r, err := f.find()
			if err != nil {
				return "", "", fmt.Errorf("no cloud alone runs in %s, and %w", at.Root, err)
			}
			url, at = r.url(), r.layout
		}
	}
	if token == "" {
		if at.Root == "" {
			return "", "", usageError{errors.New("--url needs --token")}
		}
		b, err := os.ReadFile(at.Token())
		if err != nil {
			return "", "", fmt.Errorf("read the cloud's token: %w", err)
		}
		token = strings.TrimSpace(string(b))
	}
	return strings.TrimSuffix(url, "/"), token, nil
}

// ask sends a request under the cloud's own prefix and decodes the answer.
func (f *cloudFlags) ask(ctx context.Context, method, path string, body any, wait time.Duration, into any) error {
	url, token, err := f.target()
	if err != nil {
		return err
	}
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, url+"/v2/drydock"+path, payload)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("User-Agent", "drydock-cli")
	if wait > 0 {
		req.Header.Set("Prefer", fmt.Sprintf("wait=%d", max(1, int(wait.Seconds()))))
	}
	client := http.Client{Timeout: wait + time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the cloud: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		var e struct{ Message string }
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if json.Unmarshal(b, &e) != nil || e.Message == "" {
			e.Message = strings.TrimSpace(string(b))
		}
		return fmt.Errorf("ask the cloud: %s: %s", resp.Status, e.Message)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func formatFlag(p *pflag.FlagSet, format *string) {
	p.StringVarP(format, "output", "o", "", "json for programs")
}
