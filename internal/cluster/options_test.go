package cluster

import (
	"strings"
	"testing"
)

func TestGates(t *testing.T) {
	for list, want := range map[string]bool{"": false, "CSIVolumeHealth=true": true, " CSIVolumeHealth=true,CSIVolumeHealth=false": false, "CSIVolumeHealth=1,": true} {
		var g Gates
		if err := g.Set(list); err != nil || g.CSIVolumeHealth != want {
			t.Errorf("%q: %+v %v", list, g, err)
		}
	}
	for list, says := range map[string]string{"CSIVolumeHealth": "write it as", "CSIVolumeHealth=maybe": "write it as", "SELinuxMount=true": "the only one that can be opened", "=true": "the only one"} {
		var g Gates
		if err := g.Set(list); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", list, err)
		}
	}
}
