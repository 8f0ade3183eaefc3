package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// cloudRequest is an entry of the cloud's request log.
type cloudRequest struct {
	Seq      int64     `json:"seq"`
	ID       string    `json:"id"`
	Time     time.Time `json:"time"`
	Method   string    `json:"method"`
	Path     string    `json:"path"`
	Route    string    `json:"route"`
	Status   int       `json:"status"`
	Caller   string    `json:"caller"`
	Volume   string    `json:"volume,omitempty"`
	Fault    string    `json:"fault,omitempty"`
	Duration float64   `json:"duration_ms"`
}

func newCloudLog(f *cloudFlags) *cobra.Command {
	var format string
	var clear bool
	var expect, since int64
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show what was asked of the cloud, and assert on it",
		Long: `Show the newest requests, 20000 at most. With --expect the command fails unless exactly
so many fit the filters; with --wait it waits until there are that many:

  drydock cloud log --method POST --route '/v2/volumes' --expect 1
  drydock cloud log --status 429 --expect 0
  drydock cloud log --path '/v2/volumes/*/actions' -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := knownFormat(format); err != nil {
				return err
			}
			if clear {
				return f.ask(cmd.Context(), http.MethodDelete, "/requests", nil, 0, nil)
			}
			q := url.Values{"since": {strconv.FormatInt(since, 10)}}
			for _, name := range []string{"method", "path", "route", "caller", "volume", "status"} {
				if v, _ := cmd.Flags().GetString(name); v != "" {
					q.Set(name, v)
				}
			}
			if wait > 0 {
				q.Set("at_least", strconv.FormatInt(max(expect, 1), 10))
			}
			var got struct{ Requests []cloudRequest }
			if err := f.ask(cmd.Context(), http.MethodGet, "/requests?"+q.Encode(), nil, wait, &got); err != nil {
				return err
			}
			if err := printRequests(cmd.OutOrStdout(), format, got.Requests); err != nil {
				return err
			}
			if n := int64(len(got.Requests)); expect >= 0 && n != expect {
				return fmt.Errorf("%d of the requests fit, not %d", n, expect)
			}
			return nil
		},
	}
	p := cmd.Flags()
	formatFlag(p, &format)
	for name, usage := range map[string]string{
		"method": "only this method", "path": "only paths that fit this glob, without their query", "route": "only this route, as /v2/volumes/{id}",
		"caller": "only this caller: the first word of its user agent", "volume": "only requests about the volume of this name", "status": "only this status",
	} {
		p.String(name, "", usage)
	}
	p.Int64Var(&since, "since", 0, "only from this sequence number on")
	p.Int64Var(&expect, "expect", -1, "fail unless exactly so many requests fit")
	p.DurationVar(&wait, "wait", 0, "wait as long for the expected number, or for one")
	p.BoolVar(&clear, "clear", false, "forget all requests so far")
	return cmd
}

func printRequests(out io.Writer, format string, list []cloudRequest) error {
	if format == "json" {
		if list == nil {
			list = []cloudRequest{}
		}
		return printJSON(out, list)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SEQ\tTIME\tMETHOD\tPATH\tSTATUS\tCALLER\tTOOK")
	for _, r := range list {
		status := strconv.Itoa(r.Status)
		if r.Status == 0 {
			status = "dropped"
		}
		if r.Fault != "" {
			status += " (" + r.Fault + ")"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%.1f ms\n", r.Seq, r.Time.Local().Format("15:04:05.000"), r.Method, r.Path, status, r.Caller, r.Duration)
	}
	return w.Flush()
}

func newCloudDump(f *cloudFlags) *cobra.Command {
	return &cobra.Command{
		Use: "dump", Short: "Print everything the cloud knows, as JSON", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var state json.RawMessage
			if err := f.ask(cmd.Context(), http.MethodGet, "/state", nil, 0, &state); err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), state)
		},
	}
}

func newCloudSettings(f *cloudFlags) *cobra.Command {
	var reset bool
	cmd := &cobra.Command{
		Use:   "settings [KEY=VALUE...]",
		Short: "Show the cloud's rules, or change them while it runs",
		Long: `Show the settings, or change some. A key is a path, a value is JSON or plain text; null
gives a setting back to what it was at the start:

  drydock cloud settings latency.attach=normal(2s,500ms) limits.snapshot_interval=10m
  drydock cloud settings limits.no_droplet_lock=true names=lenient`,
		RunE: func(cmd *cobra.Command, args []string) error {
			method, body := http.MethodGet, any(nil)
			switch {
			case reset && len(args) > 0:
				return usageError{fmt.Errorf("--reset takes no settings")}
			case reset:
				method = http.MethodDelete
			case len(args) > 0:
				patch, err := patchOf(args)
				if err != nil {
					return err
				}
				method, body = http.MethodPatch, patch
			}
			var got struct{ Settings json.RawMessage }
			if err := f.ask(cmd.Context(), method, "/settings", body, 0, &got); err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), got.Settings)
		},
	}
	cmd.Flags().BoolVar(&reset, "reset", false, "give up every change")
	return cmd
}

// patchOf makes a JSON merge patch of KEY=VALUE words.
func patchOf(args []string) (map[string]any, error) {
	patch := map[string]any{}
	for _, a := range args {
		key, text, ok := strings.Cut(a, "=")
		if !ok || key == "" {
			return nil, usageError{fmt.Errorf("%q: write KEY=VALUE, such as limits.volumes=5", a)}
		}
		var value any
		if json.Unmarshal([]byte(text), &value) != nil {
			value = text
		}
		at, names := patch, strings.Split(key, ".")
		for _, n := range names[:len(names)-1] {
			next, ok := at[n].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[n] = next
			}
			at = next
		}
		at[names[len(names)-1]] = value
	}
	return patch, nil
}

func newCloudCosts(f *cloudFlags) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "costs", Short: "Show what everything in the cloud would cost in a month, at public list price", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := knownFormat(format); err != nil {
				return err
			}
			var got struct {
				Costs []struct {
					Kind  string  `json:"kind"`
					ID    string  `json:"id"`
					Name  string  `json:"name"`
					Month float64 `json:"usd_month"`
				} `json:"costs"`
				Month float64 `json:"usd_month"`
			}
			if err := f.ask(cmd.Context(), http.MethodGet, "/costs", nil, 0, &got); err != nil {
				return err
			}
			if format == "json" {
				return printJSON(cmd.OutOrStdout(), got)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			for _, c := range got.Costs {
				fmt.Fprintf(w, "%s\t%s\t%s\t$%.2f\n", c.Kind, c.Name, c.ID, c.Month)
			}
			fmt.Fprintf(w, "\t\ta month\t$%.2f\n", got.Month)
			return w.Flush()
		},
	}
	formatFlag(cmd.Flags(), &format)
	return cmd
}
