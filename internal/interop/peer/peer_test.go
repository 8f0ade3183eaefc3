package peer

import (
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPeerServes is the least that others build on.
func TestPeerServes(t *testing.T) {
	p := Start(t, Options{})
	client, err := apiextensions.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if p.PID == 0 || p.EtcdPID == 0 || p.EtcdVersion == "" {
		t.Errorf("what a measurement needs is not told: %+v", p)
	}
}
