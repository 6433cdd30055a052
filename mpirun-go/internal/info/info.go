// Package info describes what mpirun-go and the library can use: the transports, the
// machine's resources, and every tunable with its value.
package info

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/rdma"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// Report is the output of mpirun-go info. Its JSON form is for programs.
type Report struct {
	Version string   `json:"version"`
	Go      string   `json:"go"`
	BTLs    []string `json:"btls"` // known
	// Transports are those of BTLs, and whether they are usable here.
	Transports []Transport `json:"transports"`
	Machine    Machine     `json:"machine"`
	Tunables   []Tunable   `json:"tunables"`
}

// Machine describes this machine. A value that cannot be determined is 0 or empty.
type Machine struct {
	Host        string   `json:"host"`
	Kernel      string   `json:"kernel"`
	Arch        string   `json:"arch"`
	Cores       int      `json:"cores"`      // cores that this process may use
	Processors  int      `json:"processors"` // hardware threads of these cores
	MemoryBytes int64    `json:"memory_bytes"`
	ShmBytes    int64    `json:"shm_bytes"`      // size of /dev/shm
	ShmFree     int64    `json:"shm_free_bytes"` // free bytes of /dev/shm
	Libibverbs  string   `json:"libibverbs"`     // path of the library; "" if it is not installed
	RDMADevices []string `json:"rdma_devices"`
	// LockedBytes is the amount of memory that a process may lock, and so register with RDMA
	// devices; -1 means no limit.
	LockedBytes int64         `json:"locked_memory_bytes"`
	RDMA        []rdma.Device `json:"rdma"` // the devices of RDMADevices, with their ports
}

// Tunable is one tunable with its value.
type Tunable struct {
	Key     string `json:"key"`
	Kind    string `json:"kind"`
	Value   string `json:"value"`
	Origin  string `json:"origin"` // default, environment or command line
	Default string `json:"default"`
	Env     string `json:"env"`
	Doc     string `json:"doc"`
}

// Collect returns a report on this machine and on the tunables in set.
func Collect(set tunable.Set) Report {
	r := Report{
		Version: Version(), Go: runtime.Version(), BTLs: tunable.Transports(), Machine: ThisMachine("/"),
	}
	r.Transports = transports(r.Machine.RDMA, set, openLibrary)
	for _, t := range tunable.All() {
		value, origin := set.Text(t.Key)
		r.Tunables = append(r.Tunables, Tunable{
			Key: t.Key, Kind: t.Kind.String(), Value: value, Origin: origin.String(),
			Default: t.Default, Env: t.Env(), Doc: t.Doc,
		})
	}
	return r
}

// ThisMachine describes this machine. Outside of tests root is "/".
func ThisMachine(root string) Machine {
	here := slots.ThisMachine()
	m := Machine{
		Host: here.Name, Arch: runtime.GOARCH, Cores: len(here.Cores), Processors: here.Processors(),
		Libibverbs: findLibibverbs(root), RDMADevices: []string{},
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = unix.ByteSliceToString(uts.Sysname[:]) + " " + unix.ByteSliceToString(uts.Release[:])
	}
	var sys unix.Sysinfo_t
	if unix.Sysinfo(&sys) == nil {
		m.MemoryBytes = int64(sys.Totalram) * int64(sys.Unit)
	}
	var fs unix.Statfs_t
	if unix.Statfs(filepath.Join(root, "dev/shm"), &fs) == nil {
		m.ShmBytes = int64(fs.Blocks) * int64(fs.Bsize)
		m.ShmFree = int64(fs.Bavail) * int64(fs.Bsize)
	}
	var locked unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &locked) == nil {
		m.LockedBytes = -1
		if locked.Cur <= math.MaxInt64 { // RLIM_INFINITY is larger
			m.LockedBytes = int64(locked.Cur)
		}
	}
	m.RDMA = rdma.Devices(root)
	for _, d := range m.RDMA {
		m.RDMADevices = append(m.RDMADevices, d.Name)
	}
	return m
}

// findLibibverbs looks in the directories where Linux distributions install the library.
func findLibibverbs(root string) string {
	for _, pattern := range []string{"lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib", "usr/lib/*-linux-gnu", "lib/*-linux-gnu"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern, "libibverbs.so.1"))
		if len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// JSON writes the report as one indented JSON object.
func (r Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Text writes the report in a form for people.
func (r Report) Text(w io.Writer) error {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "mpirun-go %s, %s\n\n", r.Version, r.Go)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(table, "  %s\t%s\n", name, value) }
	fmt.Fprintln(table, "Transports here")
	for _, t := range r.Transports {
		if t.Usable {
			row(t.Name, "usable: "+t.Why)
		} else {
			row(t.Name, "not usable: "+t.Why)
		}
	}
	fmt.Fprintln(table, "\nThis machine")
	row("host", m.Host)
	row("kernel", m.Kernel+" "+m.Arch)
	row("cores", fmt.Sprintf("%d (%d processors)", m.Cores, m.Processors))
	row("memory", SizeText(m.MemoryBytes))
	row("/dev/shm", SizeText(m.ShmBytes)+", "+SizeText(m.ShmFree)+" free")
	row("libibverbs", cmp.Or(m.Libibverbs, "not installed")+"; locked memory: "+limitText(m.LockedBytes))
	row("RDMA devices", cmp.Or(strings.Join(m.RDMADevices, ", "), "none"))
	for _, d := range m.RDMA {
		for _, p := range d.Ports {
			row("  "+d.Name, portText(p))
			for _, g := range p.GIDs {
				row("", fmt.Sprintf("  GID %d: %v, %s", g.Index, g.Addr, g.Type))
			}
		}
	}
	_ = table.Flush()

	b.WriteString("\nTunables: --set KEY=VALUE, or the environment\n")
	for _, t := range r.Tunables {
		fmt.Fprintf(table, "  %s\t= %s\t%s\t%s\tdefault %s\t%s\n", t.Key, t.Value, "("+t.Origin+")", t.Kind, t.Default, t.Env)
		fmt.Fprintf(table, "  \t  %s\n", t.Doc)
	}
	_ = table.Flush()
	_, err := io.WriteString(w, b.String())
	return err
}

// portText describes a port in one line.
func portText(p rdma.Port) string {
	words := []string{fmt.Sprintf("port %d: %s", p.Number, cmp.Or(p.State, "state unknown"))}
	for _, word := range []string{p.LinkLayer, p.Rate} {
		if word != "" {
			words = append(words, word)
		}
	}
	if p.LID != 0 {
		words = append(words, fmt.Sprintf("LID %d", p.LID))
	}
	if len(p.NetDevs) > 0 {
		words = append(words, "on "+strings.Join(p.NetDevs, " "))
	}
	if p.MTU > 0 {
		words = append(words, fmt.Sprintf("MTU %d", p.MTU))
	}
	return strings.Join(words, ", ")
}

// limitText describes a limit on locked memory; -1 is no limit.
func limitText(n int64) string {
	if n < 0 {
		return "unlimited"
	}
	return SizeText(n) + " at most"
}

// SizeText writes a number of bytes in the largest unit in which it is at least 1, to one decimal.
func SizeText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, i := float64(n), 0
	for value >= 1024 && i+1 < len(units) {
		value /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[i])
}
