// Command serve is a generic API server on etcd, for comparisons with apiserverlite.
//
//	serve [-dir DIR] [-etcd PROGRAM] [-fsync=false]
//
// It starts an etcd as a process of its own, then k8s.io/apiextensions-apiserver in this
// one: custom resource definitions and what they define, and nothing else. Once it is ready it prints one line of JSON:
//
//	{"url":"https://127.0.0.1:1","token":"t","ca":"PEM","kubeconfig":"DIR/kubeconfig","pid":1,"etcdPid":2,"etcdVersion":"3.7.2"}
//
// It ends on SIGTERM, SIGINT and when its standard input does, takes etcd with it and removes the
// directory unless it was given one. Without -etcd the etcd is the one linked into this program.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ready is the line that is printed.
type ready struct {
	URL         string `json:"url"`
	Token       string `json:"token"`
	CA          string `json:"ca"`
	Kubeconfig  string `json:"kubeconfig"`
	PID         int    `json:"pid"`
	EtcdPID     int    `json:"etcdPid"`
	EtcdVersion string `json:"etcdVersion"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // lives as long as the process
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 3 && args[0] == etcdWord {
		return runEtcd(ctx, args[1], args[2] == "fsync=true")
	}
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory for everything that is written; a temporary one if empty")
	program := flags.String("etcd", "", "etcd program; the one linked in if empty")
	fsync := flags.Bool("fsync", true, "etcd waits for the disk")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		d, err := os.MkdirTemp("/tmp", "ddpeer")
		if err != nil {
			return err
		}
		defer os.RemoveAll(d)
		*dir = d
	}
	store, err := startEtcd(ctx, etcdOptions{program: *program, dir: filepath.Join(*dir, "etcd"), fsync: *fsync})
	if err != nil {
		return err
	}
	defer store.stop()
	s, err := newServer(*dir, store.url)
	if err != nil {
		return fmt.Errorf("make the API server: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	if err := s.wait(ctx); err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	r := ready{URL: s.url, Token: token, CA: string(s.ca), Kubeconfig: filepath.Join(*dir, "kubeconfig"), PID: os.Getpid(), EtcdPID: store.pid, EtcdVersion: store.version}
	if err := writeKubeconfig(r); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case err := <-store.ended:
		cancel()
		<-ended
		return fmt.Errorf("etcd ended: %w", err)
	}
}

func writeKubeconfig(r ready) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["peer"] = &clientcmdapi.Cluster{Server: r.URL, CertificateAuthorityData: []byte(r.CA)}
	c.AuthInfos["peer"] = &clientcmdapi.AuthInfo{Token: r.Token}
	c.Contexts["peer"] = &clientcmdapi.Context{Cluster: "peer", AuthInfo: "peer"}
	c.CurrentContext = "peer"
	return clientcmd.WriteToFile(*c, r.Kubeconfig)
}
