package check

import (
	"strings"
	"testing"
)

func TestAccount(t *testing.T) {
	holdings := func() Holdings {
		return Holdings{
			Snapshots: []CloudItem{{ID: "s1", Name: "snap", Month: 0.6}}, Handles: []string{"s1"},
			Droplets: []CloudItem{{ID: "1", Name: "n1", Month: 6}}, Nodes: []string{"n1"},
		}
	}
	for _, c := range []struct {
		name string
		do   func(*Inventory, *Holdings)
		want []string
		usd  float64
	}{
		{"all justified", func(*Inventory, *Holdings) {}, nil, 0},
		{"volume being made", func(i *Inventory, _ *Holdings) { i.Volumes = nil; i.Cloud[0].Droplets = nil }, nil, 0},
		{"volume", func(i *Inventory, _ *Holdings) { i.Volumes, i.Claims, i.Cloud[0].Droplets = nil, nil, nil },
			[]string{"leak: volume pvc-u1: no persistent volume and no claim has it ($1.00 a month)"}, 1},
		{"volume made by hand", func(i *Inventory, _ *Holdings) {
			i.Cloud = append(i.Cloud, CloudVolume{ID: "x", Name: "by-hand", Month: 10})
		},
			[]string{"volume by-hand"}, 10},
		{"attachment", func(i *Inventory, _ *Holdings) { i.Attachments = nil }, []string{"leak: attachment pvc-u1 to n1: no volume attachment says so"}, 0},
		{"snapshot", func(_ *Inventory, h *Holdings) { h.Handles = nil }, []string{"snapshot snap"}, 0.6},
		{"droplet", func(_ *Inventory, h *Holdings) { h.Nodes = nil }, []string{"leak: droplet n1: no node is it ($6.00 a month)"}, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			inv, h := whole(), holdings()
			inv.Cloud[0].Month = 1
			c.do(&inv, &h)
			got := Account(inv, h)
			if len(got) != len(c.want) || Total(got) != c.usd {
				t.Fatalf("%v, together %v", got, Total(got))
			}
			for i, w := range c.want {
				if !strings.Contains(got[i].String(), w) {
					t.Errorf("%q does not say %q", got[i], w)
				}
			}
		})
	}
}
