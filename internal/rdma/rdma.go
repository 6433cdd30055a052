// Package rdma reads the descriptions of RDMA devices in /sys/class/infiniband. It needs neither
// cgo nor a library. It skips files and values that it cannot parse, and never fails.
package rdma

import (
	"cmp"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Device is an RDMA device.
type Device struct {
	Name  string `json:"name"`
	Ports []Port `json:"ports"`
}

// Port of a device. Fields that are not known are 0 or empty.
type Port struct {
	Number    int      `json:"number"`     // from 1
	State     string   `json:"state"`      // ACTIVE, DOWN, …
	LinkLayer string   `json:"link_layer"` // InfiniBand or Ethernet
	Rate      string   `json:"rate"`       // the kernel's text: 100 Gb/sec (4X EDR)
	Mbps      int      `json:"mbps"`
	LID       uint16   `json:"lid"`
	NetDevs   []string `json:"netdevs"` // network devices of its GIDs
	MTU       int      `json:"mtu"`     // of the first network device
	GIDs      []GID    `json:"gids"`    // those that are set
}

// GID is an entry of a port's GID table.
type GID struct {
	Index  int        `json:"index"`
	Addr   netip.Addr `json:"gid"` // an IPv4-mapped address is unmapped
	Type   GIDType    `json:"type"`
	NetDev string     `json:"netdev,omitempty"`
}

// GIDType is the protocol of a GID.
type GIDType string

const (
	IB     GIDType = "IB"
	RoCEv1 GIDType = "RoCE v1"
	RoCEv2 GIDType = "RoCE v2"
)

// maxEntries bounds the number of entries that are read from one directory. The longest GID tables
// have several hundred entries.
const maxEntries = 4096

// Devices returns the RDMA devices below root, by name. Outside of tests root is "/".
func Devices(root string) []Device {
	devices := []Device{}
	for _, name := range list(filepath.Join(root, "sys/class/infiniband")) {
		if info, err := os.Stat(filepath.Join(root, "sys/class/infiniband", name)); err != nil || !info.IsDir() {
			continue
		}
		d := Device{Name: name, Ports: []Port{}}
		for _, port := range numbers(filepath.Join(root, "sys/class/infiniband", name, "ports")) {
			if port > 0 {
				d.Ports = append(d.Ports, ReadPort(root, name, port))
			}
		}
		devices = append(devices, d)
	}
	return devices
}

// Found reports whether this machine has an RDMA device.
func Found(root string) bool { return len(list(filepath.Join(root, "sys/class/infiniband"))) > 0 }

// ReadPort reads one port. If the port does not exist, only its number is set.
func ReadPort(root, device string, port int) Port {
	p := Port{Number: port, NetDevs: []string{}, GIDs: []GID{}}
	if !isName(device) {
		return p
	}
	dir := filepath.Join(root, "sys/class/infiniband", device, "ports", strconv.Itoa(port))
	p.parse(func(name string) string { return firstLine(read(filepath.Join(dir, name))) }, numbers(filepath.Join(dir, "gids")))
	if len(p.NetDevs) > 0 {
		mtu := firstLine(read(filepath.Join(root, "sys/class/net", p.NetDevs[0], "mtu")))
		if n, err := strconv.ParseUint(mtu, 10, 31); err == nil {
			p.MTU = int(n)
		}
	}
	return p
}

// NetDevs returns the network devices of a port's GIDs and of its device. An InfiniBand port
// carries IP through the latter.
func NetDevs(root, device string, port int) []string {
	names := ReadPort(root, device, port).NetDevs
	if !isName(device) {
		return names
	}
	dir := filepath.Join(root, "sys/class/infiniband", device)
	more := list(filepath.Join(dir, "device/net"))
	if soft := firstLine(read(filepath.Join(dir, "parent"))); isName(soft) { // a device in software
		more = append(more, soft)
	}
	for _, name := range more {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// parse sets the fields from the files of the port's directory; line returns the first line of a
// file. gids are the indices of the GID table.
func (p *Port) parse(line func(name string) string, gids []int) {
	_, p.State, _ = strings.Cut(line("state"), ": ") // 4: ACTIVE
	p.LinkLayer = line("link_layer")
	p.Rate = line("rate")
	p.Mbps = mbps(p.Rate)
	if lid, err := strconv.ParseUint(line("lid"), 0, 16); err == nil {
		p.LID = uint16(lid)
	}
	for _, index := range gids {
		name := strconv.Itoa(index)
		addr, err := netip.ParseAddr(line("gids/" + name))
		if err != nil || addr.Zone() != "" || addr.IsUnspecified() {
			continue
		}
		g := GID{Index: index, Addr: addr.Unmap(), Type: IB}
		switch kind := line("gid_attrs/types/" + name); {
		case kind == "RoCE v2":
			g.Type = RoCEv2
		case p.LinkLayer == "Ethernet":
			g.Type = RoCEv1
		}
		if dev := line("gid_attrs/ndevs/" + name); isName(dev) {
			g.NetDev = dev
			if !slices.Contains(p.NetDevs, dev) {
				p.NetDevs = append(p.NetDevs, dev)
			}
		}
		p.GIDs = append(p.GIDs, g)
	}
}

// mbps converts a rate to a number: "2.5 Gb/sec (1X SDR)" to 2500.
func mbps(rate string) int {
	number, unit, _ := strings.Cut(rate, " ")
	gb, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(unit, "Gb/sec") || !(gb > 0 && gb < 1e6) {
		return 0
	}
	return int(gb*1000 + 0.5)
}

// isName reports whether s can be the name of a device: a printable file name.
func isName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) < 256 && !strings.ContainsFunc(s, func(r rune) bool {
		return r == '/' || r == unicode.ReplacementChar || !unicode.IsGraphic(r)
	})
}

// list returns the names in a directory, sorted.
func list(dir string) []string {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	names, _ := f.Readdirnames(maxEntries)
	names = slices.DeleteFunc(names, func(name string) bool { return !isName(name) })
	slices.Sort(names)
	return names
}

// numbers returns the names in a directory that are numbers, in order.
func numbers(dir string) []int {
	var all []int
	for _, name := range list(dir) {
		if n, err := strconv.Atoi(name); err == nil && strconv.Itoa(n) == name && n >= 0 && n < 1<<16 {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, cmp.Compare[int])
	return all
}

// read returns the beginning of a file. It returns nil if the file does not exist or is not
// regular: reading another kind of file might block.
func read(name string) []byte {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	text := make([]byte, 256)
	n, err := io.ReadFull(f, text)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil // as for the type of a GID that is not set
	}
	return text[:n]
}

// firstLine returns the first line, without characters that a terminal would interpret.
func firstLine(text []byte) string {
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}, line))
}
