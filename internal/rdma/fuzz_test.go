package rdma

import (
	"strings"
	"testing"
)

func FuzzPort(f *testing.F) {
	f.Add("4: ACTIVE\n", "100 Gb/sec (4X EDR)\n", "0x1\n", "fe80::1\n", "RoCE v2\n", "eth0\n")
	f.Add("", "1e309 Gb/sec", "-1", "::ffff:1.2.3.4", "\xff", "..")
	f.Fuzz(func(t *testing.T, state, rate, lid, gid, kind, dev string) {
		files := map[string]string{"state": state, "rate": rate, "lid": lid, "gids/0": gid, "gid_attrs/types/0": kind, "gid_attrs/ndevs/0": dev}
		var p Port
		p.parse(func(name string) string { return firstLine([]byte(files[name])) }, []int{0, 1})
		if p.Mbps < 0 || len(p.GIDs) > 1 {
			t.Errorf("%+v", p)
		}
		for _, s := range append([]string{p.State, p.Rate}, p.NetDevs...) {
			if strings.ContainsAny(s, "\x1b\n\x00") {
				t.Errorf("%q", s)
			}
		}
		for _, dev := range p.NetDevs {
			if strings.Contains(dev, "/") || dev == ".." {
				t.Errorf("%q leads elsewhere", dev)
			}
		}
	})
}
