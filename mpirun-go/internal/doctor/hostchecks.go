package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/internal/rdma"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/mpirun-go/internal/info"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// hostChecks returns the checks of one host. It is a function, because a variable could be changed.
func hostChecks() []check {
	return []check{
		{"shared memory", "ranks of this host reach each other by other transports only, many times slower, or not at all", sharedMemory},
		{"locked memory", "verbs cannot register buffers, so ranks fail at the start, or use TCP", lockedMemory},
		{"verbs", "ranks use the network by TCP only, or fewer ports than there are", verbsPorts},
		{"tcp addresses", "ranks on other hosts cannot be reached over TCP, or by fewer rails than there are", tcpAddresses},
		{"tcp ports", "ranks that find no port have no rail over TCP", tcpPorts},
		{"cpu quota", "ranks are stopped for a part of each period, and others wait for them", cpuQuota},
		{"memory", "the kernel kills ranks when unexpected messages accumulate", memory},
		{"open files", "ranks do not start, or cannot connect to all others", openFiles},
		{"clock source", "each read of the clock, in waits, traces and the program, is a system call", clockSource},
		{"huge pages", "the first read of memory from comm.Alloc takes about twice the time", hugePages},
		{"system", "", system},
	}
}

func sharedMemory(j *Job, h *Host) []result {
	if h.Facts.SharedMemory == "" {
		return ok(fmt.Sprintf("works between processes; it needs no /dev/shm (%s here)", info.SizeText(h.Facts.ShmBytes)))
	}
	r := result{Warning, h.Facts.SharedMemory, "a process maps the memory of another one by /proc/PID/fd", "run all ranks as one user, in one PID namespace, with /proc mounted and without RLIMIT_FSIZE (ulimit -f unlimited)"}
	if h.Slots > 1 && !j.mayUseTCP(h) && !j.mayUseVerbs(h) {
		r.level = Broken // ranks of this host have no other transport
	}
	return one(r)
}

// lockedPerRank is the memory that a rank locks for a port at the start: buffers for its first
// peers. See docs/verbs.md.
const lockedPerRank = 64 << 20

func lockedMemory(j *Job, h *Host) []result {
	f := h.Facts
	found := "no limit"
	if f.LockedBytes >= 0 {
		found = info.SizeText(f.LockedBytes) + " for a rank"
	}
	switch {
	case f.LockedBytes < 0:
		return ok(found)
	case f.MayLock:
		return ok(found + ", which does not bind it (CAP_IPC_LOCK)")
	case len(f.RDMA) == 0 || !j.allows("ibverbs"):
		return ok(found + "; no RDMA device needs more")
	}
	level := Warning
	if f.LockedBytes < lockedPerRank {
		level = Broken
	}
	return one(result{level, found, "unlimited",
		"as root: echo '* - memlock unlimited' >/etc/security/limits.d/memlock.conf; for services (sshd, slurmd): LimitMEMLOCK=infinity in the unit; then log in again"})
}

func verbsPorts(j *Job, h *Host) (list []result) {
	f := h.Facts
	if len(f.RDMA) == 0 && j.needsVerbs(h) {
		return one(result{Broken, "no RDMA device, and btl allows no other transport that reaches all ranks", "an RDMA device, or another transport",
			"rdma link show; or --btl self,sm,ibverbs,tcp"})
	}
	if len(f.RDMA) == 0 || !j.allows("ibverbs") {
		return ok("no RDMA device, or not allowed")
	}
	if f.Libibverbs == "" {
		level := Warning
		if j.needsVerbs(h) {
			level = Broken
		}
		list = append(list, result{level, "libibverbs is not installed", "libibverbs.so.1", "apt-get install libibverbs1 ibverbs-providers"})
	}
	var good []string
	for _, d := range f.RDMA {
		for _, p := range d.Ports {
			name := fmt.Sprintf("%s:%d", d.Name, p.Number)
			switch {
			case p.State != "ACTIVE":
				fix := "rdma link show " + d.Name + "/" + strconv.Itoa(p.Number) + "; check its cable and the subnet manager"
				if len(p.NetDevs) > 0 {
					fix = "ip link set " + p.NetDevs[0] + " up"
				}
				list = append(list, result{Warning, name + " is " + cmp.Or(p.State, "in an unknown state"), "ACTIVE", fix})
			case p.LinkLayer == "Ethernet" && bestGID(p) == "":
				list = append(list, result{Warning, name + " has no GID", "a GID of type RoCE v2", "give its network device an address: ip addr add ADDRESS/BITS dev " + strings.Join(p.NetDevs, " ")})
			case p.LinkLayer == "Ethernet" && bestGID(p) != rdma.RoCEv2:
				list = append(list, result{Warning, name + " has GIDs of RoCE v1 only", "a GID of type RoCE v2", "cma_roce_mode -d " + d.Name + " -p " + strconv.Itoa(p.Number) + " -m 2"})
			default:
				good = append(good, portText(name, p))
			}
		}
	}
	if len(list) == 0 {
		return ok(strings.Join(good, "; "))
	}
	return list
}

// bestGID returns the type of GID that a rank would choose, or "" if the port has no GID.
func bestGID(p rdma.Port) (best rdma.GIDType) {
	for _, g := range p.GIDs {
		if best == "" || g.Type == rdma.RoCEv2 {
			best = g.Type
		}
	}
	return best
}

func portText(name string, p rdma.Port) string {
	words := []string{name, p.State, p.LinkLayer, p.Rate, string(bestGID(p))}
	if p.MTU > 0 {
		words = append(words, fmt.Sprintf("MTU %d", p.MTU))
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

func tcpAddresses(j *Job, h *Host) (list []result) {
	f := h.Facts
	if !j.allows("tcp") {
		return ok("not allowed by btl")
	}
	if f.TCPError != "" {
		level := Warning // a job on this host alone needs no TCP
		if len(j.Hosts) > 1 && !j.mayUseVerbs(h) {
			level = Broken
		}
		return one(result{level, f.TCPError, "an address that other hosts reach", "ip addr; or name interfaces: --set tcp.include=INTERFACE"})
	}
	for _, words := range f.TCPUnknown {
		list = append(list, result{Warning, words, "interfaces and addresses of this host", "ip -brief addr"})
	}
	for _, a := range f.TCPAbsent {
		if !j.has(a) {
			list = append(list, result{Warning, fmt.Sprintf("no host has the address %v of tcp.include", a), "addresses of the hosts", "ip -brief addr"})
		}
	}
	var used, out []string
	for _, i := range f.Interfaces {
		switch {
		case i.used() && !i.Up:
			list = append(list, result{Warning, i.Name + " is down, and named by tcp.include", "up", "ip link set " + i.Name + " up"})
		case i.used():
			used = append(used, fmt.Sprintf("%s %v (MTU %d)", i.Name, i.Addr, i.MTU))
		case i.Why == "down":
			list = append(list, result{Hint, fmt.Sprintf("%s %v is down", i.Name, i.Addr), "up, or excluded", "ip link set " + i.Name + " up, or --set tcp.exclude=" + i.Name})
		default:
			out = append(out, fmt.Sprintf("%s %v (%s)", i.Name, i.Addr, i.Why))
		}
	}
	if len(list) > 0 {
		return list
	}
	found := "used: " + cmp.Or(strings.Join(used, ", "), "none")
	if len(out) > 0 {
		found += "; not used: " + strings.Join(out, ", ")
	}
	return ok(found)
}

func tcpPorts(j *Job, h *Host) (list []result) {
	text := j.Settings.String("tcp.ports")
	first, last, _ := tunable.ParseRange(text)
	for _, why := range h.Facts.TCPListen {
		list = append(list, result{Broken, "cannot listen on " + why, "a free port of tcp.ports=" + text, "ss -ltnp; or a wider range: --set tcp.ports=FIRST-LAST"})
	}
	connections := tcp.Connections(j.Settings, h.Facts.rails())
	need, whose, each := h.Slots*connections, "ranks", "a port for each rank, and spares"
	if connections > 1 {
		whose, each = fmt.Sprintf("ranks with %d connections", connections), "a port for each connection of each rank, and spares"
	}
	if n := int(last) - int(first) + 1; first > 0 && n < need {
		list = append(list, result{Broken, fmt.Sprintf("%d ports in tcp.ports=%s for %d %s", n, text, h.Slots, whose), each,
			fmt.Sprintf("--set tcp.ports=%d-%d, and let them through firewalls", first, min(int(first)+2*need, 65535))})
	}
	if len(list) > 0 {
		return list
	}
	return ok("tcp.ports=" + text)
}

func cpuQuota(j *Job, h *Host) []result {
	f := h.Facts
	found := fmt.Sprintf("%d processors, GOMAXPROCS %d, no quota", f.CPUs, f.GoMaxProcs)
	if f.CPUQuota == 0 {
		return ok(found)
	}
	found = fmt.Sprintf("a quota of %.4g of %d processors, for %d ranks", f.CPUQuota, f.CPUs, h.Slots)
	if float64(h.Slots) <= f.CPUQuota {
		return ok(found)
	}
	return one(result{Warning, found, "a processor for each rank", fmt.Sprintf("-H %s:%d, or a larger limit (cpu.max, docker --cpus, resources.limits.cpu)", h.Name, max(1, int(f.CPUQuota)))})
}

// heapBytes is an estimate of the memory of a rank besides messages: Go's runtime and the program's
// data.
const heapBytes = 32 << 20

func memory(j *Job, h *Host) []result {
	f := h.Facts
	have, found := f.MemoryBytes, info.SizeText(f.MemoryBytes)+" of the machine"
	if f.MemoryLimit >= 0 && (f.MemoryLimit < have || have == 0) {
		have, found = f.MemoryLimit, fmt.Sprintf("a limit of %s, of which %s are in use", info.SizeText(f.MemoryLimit), info.SizeText(f.MemoryUsed))
	}
	if have == 0 {
		return ok("unknown")
	}
	unexpected := j.Settings.Bytes("pml.unexpected.bytes")
	each := unexpected + int64(h.Slots-1)*j.Settings.Bytes("sm.ring.bytes") + heapBytes
	need := int64(h.Slots) * each
	if have >= need {
		return ok(found)
	}
	fix := fmt.Sprintf("a larger limit (memory.max, docker --memory, resources.limits.memory), fewer ranks, or --set pml.unexpected.bytes=%s", tunable.FormatBytes(max(unexpected/4, 1<<20)))
	return one(result{Warning, found, fmt.Sprintf("%s for messages of %d ranks (pml.unexpected.bytes, sm.ring.bytes)", info.SizeText(need), h.Slots), fix})
}

// moduleFiles is the number of descriptors of a TCP rail besides its connections: a listener, a
// netlink socket, three epoll instances, and perhaps a connection in its handshake.
const moduleFiles = 6

func openFiles(j *Job, h *Host) []result {
	f := h.Facts
	rails := f.rails()
	connections := tcp.Connections(j.Settings, rails)
	further := (connections - 1) * rails
	need := uint64(64 + j.ranks()*max(rails, 1) + further*(j.ranks()+moduleFiles))
	found := fmt.Sprintf("%d for a rank", f.Files)
	if f.Files == 0 || f.Files >= need {
		return ok(found)
	}
	level := Warning
	if f.Files < procs.LeastDescriptors(h.Slots) {
		level = Broken // the launcher has the same limit, and starts no such job
	}
	need = max(need, uint64(procs.Descriptors(h.Slots)))
	over := fmt.Sprintf("%d interfaces", rails)
	if connections > 1 {
		over = fmt.Sprintf("%d connections of each of %d interfaces", connections, rails)
	}
	return one(result{level, found, fmt.Sprintf("%d, for %d ranks over %s", need, j.ranks(), over),
		fmt.Sprintf("ulimit -n %d; as root: echo '* - nofile %d' >/etc/security/limits.d/nofile.conf", need, need)})
}

// slowClockNanos is a little less than the time to read a clock by a system call.
const slowClockNanos = 400

func clockSource(j *Job, h *Host) []result {
	f := h.Facts
	found := fmt.Sprintf("%s, %.0f ns", cmp.Or(f.ClockSource, "unknown"), f.ClockNanos)
	slow := slices.Contains([]string{"hpet", "acpi_pm", "jiffies", "refined-jiffies", "xen"}, f.ClockSource)
	if !slow && f.ClockNanos < slowClockNanos {
		return ok(found)
	}
	return one(result{Hint, found, fmt.Sprintf("a source that is read without a system call, in less than %d ns: tsc, kvm-clock, arch_sys_counter", slowClockNanos),
		"as root: echo tsc >/sys/devices/system/clocksource/clocksource0/current_clocksource, if available_clocksource has it"})
}

func hugePages(j *Job, h *Host) []result {
	switch mode := h.Facts.HugePages; mode {
	case "never", "deny":
		return one(result{Hint, "shmem_enabled is " + mode, "advise", "as root: echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled"})
	case "":
		return ok("unknown")
	default:
		return ok("shmem_enabled is " + mode)
	}
}

func system(j *Job, h *Host) []result {
	f := h.Facts
	return ok(fmt.Sprintf("%s, mpirun-go %s (build %s), %s", f.Kernel, f.Version, f.Build, f.Go))
}
