package doctor

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/internal/cgroup"
	"github.com/mpigo/mpigo/internal/rdma"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/info"
)

// Facts is what a rank sees on its host. An unknown value is 0 or empty, unless the field's comment
// says otherwise.
type Facts struct {
	Name    string `json:"name"`    // the host's own name
	Machine string `json:"machine"` // ranks of one machine share memory
	Kernel  string `json:"kernel"`
	Version string `json:"version"` // of mpirun-go
	Go      string `json:"go"`
	Build   string `json:"build"` // hash of the executable

	CPUs        int     `json:"cpus"` // that the rank may use
	GoMaxProcs  int     `json:"gomaxprocs"`
	CPUQuota    float64 `json:"cpu_quota"`    // CPUs that the cgroup may use at a time; 0: all
	MemoryBytes int64   `json:"memory_bytes"` // of the machine
	// MemoryLimit is the smallest limit of the cgroup and its ancestors; -1: none. MemoryUsed is
	// the usage of the cgroup with that limit.
	MemoryLimit int64 `json:"memory_limit_bytes"`
	MemoryUsed  int64 `json:"memory_used_bytes"`

	LockedBytes int64  `json:"locked_memory_bytes"` // -1: no limit
	MayLock     bool   `json:"may_lock"`            // CAP_IPC_LOCK: the limit does not count
	Files       uint64 `json:"open_files"`          // the limit that a rank has
	FilesHard   uint64 `json:"open_files_hard"`

	SharedMemory string  `json:"shared_memory"` // "", or why another process cannot reach it
	ShmBytes     int64   `json:"dev_shm_bytes"`
	HugePages    string  `json:"shmem_huge_pages"` // always, within_size, advise, never, …
	ClockSource  string  `json:"clock_source"`
	ClockNanos   float64 `json:"clock_nanos"` // what it takes to read the time

	Libibverbs string        `json:"libibverbs"`
	RDMA       []rdma.Device `json:"rdma"`

	Interfaces []Interface `json:"interfaces"`
	TCPError   string      `json:"tcp_error,omitempty"`   // why ranks have no address
	TCPUnknown []string    `json:"tcp_unknown,omitempty"` // words that match nothing
	// TCPAbsent are single addresses in tcp.include that the host does not have.
	TCPAbsent []netip.Addr `json:"tcp_absent,omitempty"`
	TCPListen []string     `json:"tcp_listen,omitempty"` // why it cannot listen on an address
}

// Interface is an address of the host.
type Interface struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"address"`
	Bits int        `json:"bits"`
	Word uint8      `json:"word,omitempty"` // tcp.Interface.Word
	Rail string     `json:"rail,omitempty"` // tcp.Interface.Rail
	Up   bool       `json:"up"`
	MTU  int        `json:"mtu"`
	Why  string     `json:"not_used,omitempty"` // why ranks do not use it
	Port uint16     `json:"port,omitempty"`     // where the doctor's rank listens
}

func (i Interface) used() bool { return i.Why == "" }

// rails returns the number of TCP rails of a rank on the host, not counting additional connections.
// All addresses of an interface belong to one rail.
func (f *Facts) rails() int {
	names := map[string]bool{}
	for _, i := range f.Interfaces {
		if i.used() {
			names[i.Rail] = true
		}
	}
	return len(names)
}

// maxGIDs bounds the GIDs of a port in Facts. A line with them must stay below the length that the
// launcher passes on in one piece.
const maxGIDs = 32

// collect collects the facts of this host. Root is "/" outside of tests.
func collect(root string, set tunable.Set) Facts {
	machine := info.ThisMachine(root)
	f := Facts{
		Name: machine.Host, Kernel: machine.Kernel + " " + machine.Arch, Version: info.Version(), Go: runtime.Version(), Build: buildHash(),
		CPUs: machine.Processors, GoMaxProcs: runtime.GOMAXPROCS(0), MemoryBytes: machine.MemoryBytes,
		LockedBytes: machine.LockedBytes, MayLock: hasCapability(root, capIPCLock),
		ShmBytes: machine.ShmBytes, Libibverbs: machine.Libibverbs, RDMA: machine.RDMA,
		HugePages:   chosenWord(readLine(root, "sys/kernel/mm/transparent_hugepage/shmem_enabled")),
		ClockSource: readLine(root, "sys/devices/system/clocksource/clocksource0/current_clocksource"),
		ClockNanos:  clockNanos(),
	}
	f.Machine, _ = wireup.HostID() // unknown: ""
	for _, d := range f.RDMA {
		for i := range d.Ports {
			p := &d.Ports[i]
			p.GIDs = p.GIDs[:min(len(p.GIDs), maxGIDs)]
		}
	}
	f.CPUQuota, f.MemoryLimit, f.MemoryUsed = cgroup.Limits(root)
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		f.Files, f.FilesHard = files.Cur, files.Max
	}
	list, unknown, absent, err := tcp.Survey(set)
	if f.TCPUnknown, f.TCPAbsent = unknown, absent; err != nil {
		f.TCPError = err.Error()
	}
	for _, s := range list {
		f.Interfaces = append(f.Interfaces, Interface{
			Name: s.Name, Addr: s.Address, Bits: s.Bits, Word: s.Word, Rail: s.Rail, Up: s.Up, Why: s.Why, MTU: mtu(root, s.Name),
		})
	}
	return f
}

// readLine returns the first line of a file below root.
func readLine(root, name string) string {
	text, _ := os.ReadFile(filepath.Join(root, name))
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

// chosenWord returns the word in brackets, by which the kernel marks the current choice.
func chosenWord(line string) string {
	_, rest, _ := strings.Cut(line, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// clockNanos measures duration of one read of the clock: the fastest of some batches, because
// others may have been interrupted.
func clockNanos() float64 {
	best := time.Hour
	for range 20 {
		const reads = 100
		begin := time.Now()
		for range reads - 1 {
			_ = time.Now()
		}
		best = min(best, time.Since(begin)/reads)
	}
	return float64(best)
}
