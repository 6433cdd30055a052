// Package netdev reads from /sys/class/net the lower interfaces of network interfaces. It never
// fails: it leaves out what the system does not report.
package netdev

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mostBelow bounds the number of interfaces that are read. A bond has several ports, each of which
// may be a VLAN.
const mostBelow = 64

// Wires returns the named interfaces and all their lower interfaces: the interface of a VLAN, and
// the ports of a bond. Two interfaces with a common lower interface share its bandwidth. Outside of
// tests root is "/".
func Wires(root string, names ...string) (all []string) {
	all = slices.Clone(names)
	for i := 0; i < len(all) && len(all) < mostBelow; i++ {
		entries, _ := os.ReadDir(filepath.Join(root, "sys/class/net", filepath.Base(all[i])))
		for _, e := range entries {
			if lower, is := strings.CutPrefix(e.Name(), "lower_"); is && !slices.Contains(all, lower) {
				all = append(all, lower)
			}
		}
	}
	return all
}
