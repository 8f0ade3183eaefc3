package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/lab"
)

// GroupVersion is what the objects' apiVersion says.
var GroupVersion = schema.GroupVersion{Group: lab.Group, Version: "v1alpha1"}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Fault{}, &FaultList{}, &NodeFault{}, &NodeFaultList{}, &Clock{}, &ClockList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Client speaks of the laboratory's objects to an API server.
type Client struct {
	Faults     *gentype.ClientWithList[*Fault, *FaultList]
	NodeFaults *gentype.ClientWithList[*NodeFault, *NodeFaultList]
	Clocks     *gentype.ClientWithList[*Clock, *ClockList]
}

// NewClient returns a client.
func NewClient(cfg *rest.Config) (*Client, error) {
	s := runtime.NewScheme()
	if err := AddToScheme(s); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	gv := GroupVersion
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	cfg.ContentType, cfg.AcceptContentTypes = "application/json", "application/json"
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", GroupVersion, err)
	}
	p := runtime.NewParameterCodec(s)
	return &Client{
		Faults:     gentype.NewClientWithList("faults", c, p, "", func() *Fault { return &Fault{} }, func() *FaultList { return &FaultList{} }),
		NodeFaults: gentype.NewClientWithList("nodefaults", c, p, "", func() *NodeFault { return &NodeFault{} }, func() *NodeFaultList { return &NodeFaultList{} }),
		Clocks:     gentype.NewClientWithList("clocks", c, p, "", func() *Clock { return &Clock{} }, func() *ClockList { return &ClockList{} }),
	}, nil
}
