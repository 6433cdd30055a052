// Package netdev reads from /sys/class/net what network interfaces stand on. It never fails: what
// the system does not say is left out.
package netdev

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mostBelow bounds how many interfaces are looked at. A bond has some ports, each of which may be a
// VLAN.
const mostBelow = 64

// Wires are interfaces and all those that they stand on: the interface of a VLAN, and the ports of
// a bond. Two interfaces that have one of them in common share its bandwidth. Outside of tests root
// is "/".
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
