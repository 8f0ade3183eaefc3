// Package host is what the two programs of a peer have in common: an etcd as a process of its own, a port
// on loopback with a certificate, the one token, and the line that tells others of it.
//
//	PROGRAM [-dir DIR] [-etcd PROGRAM] [-fsync=false] [-cbor]
//
// Once the server is ready it prints one line of JSON:
//
//	{"url":"https://127.0.0.1:1","token":"t","ca":"PEM","kubeconfig":"DIR/kubeconfig",
//	 "pid":1,"etcdPid":2,"etcdVersion":"3.7.2","etcdURL":"http://127.0.0.1:2"}
//
// It ends on SIGTERM, SIGINT and when its standard input does, takes etcd with it and removes the
// directory unless it was given one. Without -etcd the etcd is the one linked into the program.
package host

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
	"time"

	"k8s.io/apiserver/pkg/features"
	genericserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Prepare makes an API server that listens by s and keeps its objects in the etcd at the URL.
type Prepare func(s *Serving, etcd string) (*genericserver.GenericAPIServer, error)

// ready is the line that is printed.
type ready struct {
	URL         string `json:"url"`
	Token       string `json:"token"`
	CA          string `json:"ca"`
	Kubeconfig  string `json:"kubeconfig"`
	PID         int    `json:"pid"`
	EtcdPID     int    `json:"etcdPid"`
	EtcdVersion string `json:"etcdVersion"`
	EtcdURL     string `json:"etcdURL"`
}

// Main is the whole program.
func Main(prepare Prepare) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // lives as long as the process
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := run(ctx, os.Args[1:], prepare); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, prepare Prepare) error {
	if len(args) == 3 && args[0] == etcdWord {
		return runEtcd(ctx, args[1], args[2] == "fsync=true")
	}
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory for everything that is written; a temporary one if empty")
	program := flags.String("etcd", "", "etcd program; the one linked in if empty")
	fsync := flags.Bool("fsync", true, "etcd waits for the disk")
	cbor := flags.Bool("cbor", false, "serve CBOR, which is behind a gate")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.CBORServingAndStorage): *cbor}); err != nil {
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
	serving, err := listen(filepath.Join(*dir, "certs"))
	if err != nil {
		return err
	}
	server, err := prepare(serving, store.url)
	if err != nil {
		return fmt.Errorf("make the API server: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.PrepareRun().RunWithContext(ctx) }()
	if err := wait(ctx, server.LoopbackClientConfig); err != nil {
		cancel()
		return errors.Join(err, <-ended)
	}
	r := ready{URL: serving.url, Token: token, CA: string(serving.ca), Kubeconfig: filepath.Join(*dir, "kubeconfig"),
		PID: os.Getpid(), EtcdPID: store.pid, EtcdVersion: store.version, EtcdURL: store.url}
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

// wait returns when the server says that it is ready.
func wait(ctx context.Context, loopback *rest.Config) error {
	client, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		b, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Param("verbose", "1").DoRaw(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready: %w\n%s", err, b)
		case <-time.After(50 * time.Millisecond):
		}
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
