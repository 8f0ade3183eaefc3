package main

import (
	"context"
	"encoding/json"
	"regexp"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// await waits until an object of the script's cluster is as said: await RESOURCE REGEXP, where the
// expression is of the object's JSON. "! await" waits until no object is so.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: await RESOURCE REGEXP")
	}
	want, err := regexp.Compile(args[1])
	ts.Check(err)
	cfg, err := clientcmd.BuildConfigFromFlags("", ts.MkAbs("state/drydock/default/kubeconfig"))
	ts.Check(err)
	client, err := dynamic.NewForConfig(cfg)
	ts.Check(err)
	gvr, _ := schema.ParseResourceArg(args[0])
	if gvr == nil {
		gvr = &schema.GroupVersionResource{Version: "v1", Resource: args[0]}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		list, err := client.Resource(*gvr).List(ctx, metav1.ListOptions{})
		ts.Check(err)
		if found := among(list, want); found != neg {
			return
		}
		w, err := client.Resource(*gvr).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		ts.Check(err)
		_, open := <-w.ResultChan()
		w.Stop()
		if !open && ctx.Err() != nil {
			b, _ := json.Marshal(list.Items)
			ts.Fatalf("await %v: not within two minutes; there are %s", args, b)
		}
	}
}

func among(list *unstructured.UnstructuredList, want *regexp.Regexp) bool {
	for _, o := range list.Items {
		if b, err := o.MarshalJSON(); err == nil && want.Match(b) {
			return true
		}
	}
	return false
}
