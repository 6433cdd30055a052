package doctor

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/rdma"
	"github.com/mpigo/mpigo/internal/tunable"
)

// wellFacts returns the facts of a healthy host with number n.
func wellFacts(n int) *Facts {
	return &Facts{
		Name: "n", Machine: string(rune('a' + n)), Kernel: "Linux", Version: "v1", Build: "b", CPUs: 8, GoMaxProcs: 8, MemoryBytes: 64 << 30, MemoryLimit: -1,
		LockedBytes: -1, Files: 4096, FilesHard: 4096, HugePages: "advise", ClockSource: "tsc", ClockNanos: 30, Libibverbs: "libibverbs.so.1",
		RDMA: []rdma.Device{{Name: "mlx5_0", Ports: []rdma.Port{{
			Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", Rate: "100 Gb/sec (4X EDR)", MTU: 9000, NetDevs: []string{"eth1"},
			GIDs: []rdma.GID{{Index: 3, Addr: netip.MustParseAddr("10.1.0.1"), Type: rdma.RoCEv2}},
		}}}},
		Interfaces: []Interface{
			{Name: "eth0", Addr: address(n), Bits: 24, Up: true, MTU: 1500, Port: 20000},
			{Name: "lo", Addr: netip.MustParseAddr("127.0.0.1"), Bits: 8, Up: true, MTU: 65536, Why: "loopback"},
		},
	}
}

func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}) }

// wellJob returns a job of three healthy hosts.
func wellJob() *Job {
	j := &Job{}
	for n, name := range []string{"n1", "n2", "n3"} {
		j.Hosts = append(j.Hosts, Host{Name: name, Slots: 8, Rank: n, Facts: wellFacts(n)})
		for peer := range 3 {
			if peer != n {
				j.Probes = append(j.Probes, Probe{
					From: n, To: peer, Local: address(n), Remote: address(peer), Port: 20000, Outcome: Connected, RoundTripNanos: 50000,
				})
			}
		}
	}
	return j
}

func TestJudgeOfHostsThatAreWellFindsNothing(t *testing.T) {
	list := Judge(wellJob())
	require.NotEmpty(t, list)
	assert.True(t, Healthy(list))
	for _, f := range list {
		assert.Equal(t, OK, f.Level, "%+v", f)
		assert.NotEmpty(t, f.Found, "%+v", f)
		assert.Empty(t, f.Fix, "%+v", f)
	}
}

// TestJudgeFindsWhatIsWrong breaks one property of host n2, and expects one finding.
func TestJudgeFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		harm  func(j *Job, f *Facts)
		check string
		level Level
		found string // part of it
		fix   string // part of it
	}{
		"no answer": {func(j *Job, f *Facts) {
			j.Hosts[1].Facts, j.Hosts[1].Error = nil, "host n2 cannot be reached: no; try: ssh n2 true"
		},
			"reached", Broken, "host n2 cannot be reached: no", "ssh n2 true"},
		"shared memory": {func(j *Job, f *Facts) { f.SharedMemory = "open /proc/1/fd/3: permission denied" },
			"shared memory", Warning, "permission denied", "one user"},
		"little locked memory": {func(j *Job, f *Facts) { f.LockedBytes = 64 << 10 }, "locked memory", Broken, "64.0 KiB for a rank", "memlock"},
		"some locked memory":   {func(j *Job, f *Facts) { f.LockedBytes = 1 << 30 }, "locked memory", Warning, "1.0 GiB", "LimitMEMLOCK"},
		"port down":            {func(j *Job, f *Facts) { f.RDMA[0].Ports[0].State = "DOWN" }, "verbs", Warning, "mlx5_0:1 is DOWN", "ip link set eth1 up"},
		"RoCE v1":              {func(j *Job, f *Facts) { f.RDMA[0].Ports[0].GIDs[0].Type = rdma.RoCEv1 }, "verbs", Warning, "RoCE v1 only", "cma_roce_mode -d mlx5_0 -p 1 -m 2"},
		"no GID":               {func(j *Job, f *Facts) { f.RDMA[0].Ports[0].GIDs = nil }, "verbs", Warning, "has no GID", "ip addr add"},
		"no library":           {func(j *Job, f *Facts) { f.Libibverbs = "" }, "verbs", Warning, "libibverbs is not installed", "apt-get install"},
		"other verbs MTU":      {func(j *Job, f *Facts) { f.RDMA[0].Ports[0].MTU = 1500 }, "same verbs", Warning, "MTU 1500", "rdma link show"},
		"no verbs here":        {func(j *Job, f *Facts) { f.RDMA = nil }, "same verbs", Warning, "no port that is up", "rdma link show"},
		"interface down":       {func(j *Job, f *Facts) { f.Interfaces[1].Why, f.Interfaces[1].Name = "down", "eth1" }, "tcp addresses", Hint, "eth1 127.0.0.1 is down", "ip link set eth1 up"},
		"no address":           {func(j *Job, f *Facts) { f.TCPError = "no address is left" }, "tcp addresses", Warning, "no address is left", "tcp.include"},
		"unknown word": {func(j *Job, f *Facts) {
			f.TCPUnknown = []string{"tcp.include=eth9: n2 has no interface or address eth9"}
		}, "tcp addresses", Warning, "eth9", "ip -brief addr"},
		"address of no host": {func(j *Job, f *Facts) {
			f.TCPAbsent = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.9.9")}
		}, "tcp addresses", Warning, "no host has the address 10.0.9.9 of tcp.include", "ip -brief addr"},
		"few ports": {func(j *Job, f *Facts) { set(j, "tcp.ports", "20000-20003") }, "tcp ports", Broken, "4 ports in tcp.ports=20000-20003 for 8 ranks", "--set tcp.ports=20000-20016"},
		"few ports for connections": {func(j *Job, f *Facts) { set(j, "tcp.ports", "20000-20015"); set(j, "tcp.connections", "4") },
			"tcp ports", Broken, "16 ports in tcp.ports=20000-20015 for 8 ranks with 4 connections", "--set tcp.ports=20000-20064"},
		"few files for connections": {func(j *Job, f *Facts) { set(j, "tcp.connections", "8"); f.Files = 200 }, "open files", Warning, "200 for a rank", "ulimit -n 298"},
		"port taken":                {func(j *Job, f *Facts) { f.TCPListen = []string{"eth0 10.0.0.2: address already in use"} }, "tcp ports", Broken, "cannot listen on eth0", "ss -ltnp"},
		"quota":                     {func(j *Job, f *Facts) { f.CPUQuota = 2.5 }, "cpu quota", Warning, "a quota of 2.5 of 8 processors, for 8 ranks", "-H n2:2"},
		"memory limit":              {func(j *Job, f *Facts) { f.MemoryLimit, f.MemoryUsed = 512<<20, 100<<20 }, "memory", Warning, "a limit of 512.0 MiB, of which 100.0 MiB are in use", "pml.unexpected.bytes=16M"},
		"few files":                 {func(j *Job, f *Facts) { f.Files = 64 }, "open files", Warning, "64 for a rank", "ulimit -n 128"},
		"too few files":             {func(j *Job, f *Facts) { f.Files = 40 }, "open files", Broken, "40 for a rank", "ulimit -n 128"},
		"no transport within the host": {func(j *Job, f *Facts) { f.SharedMemory, f.TCPError, f.RDMA = "no /proc", "no address is left", nil },
			"shared memory", Broken, "no /proc", "/proc mounted"},
		"no transport to other hosts": {func(j *Job, f *Facts) { f.TCPError, f.RDMA = "no address is left", nil },
			"tcp addresses", Broken, "no address is left", "tcp.include"},
		"no device for the only transport": {func(j *Job, f *Facts) { set(j, "btl", "self,sm,ibverbs"); f.RDMA = nil },
			"verbs", Broken, "no RDMA device", "--btl"},
		"no library for the only transport": {func(j *Job, f *Facts) { set(j, "btl", "self,sm,ibverbs"); f.Libibverbs = "" },
			"verbs", Broken, "libibverbs is not installed", "apt-get install"},
		"slow clock":    {func(j *Job, f *Facts) { f.ClockSource = "hpet" }, "clock source", Hint, "hpet", "echo tsc"},
		"no huge pages": {func(j *Job, f *Facts) { f.HugePages = "never" }, "huge pages", Hint, "shmem_enabled is never", "echo advise"},
		"other build":   {func(j *Job, f *Facts) { f.Build = "c" }, "same build", Broken, "build c; on n1 v1, build b", "rm -r"},
		"MTU":           {func(j *Job, f *Facts) { f.Interfaces[0].MTU = 1400 }, "mtu", Warning, "eth0 has MTU 1400, and n1 1500", "ip link set eth0 mtu 1500"},
		"clock ahead": {func(j *Job, f *Facts) {
			eachProbe(j, 0, 1, func(p *Probe) { p.OffsetNanos, p.RoundTripNanos = int64(3*time.Second), 1000 })
		},
			"clock", Warning, "3s ahead of n1", "chronyc"},
		"clock behind, asked from there": {func(j *Job, f *Facts) {
			eachProbe(j, 1, 0, func(p *Probe) { p.OffsetNanos, p.RoundTripNanos = int64(3*time.Second), 1000 })
		},
			"clock", Warning, "3s behind n1", "chronyc"},
		"silent to all": {func(j *Job, f *Facts) { eachProbe(j, -1, 1, func(p *Probe) { p.Outcome = Silent }) },
			"connections", Broken, "10.0.0.2 port 20000 is silent from n1, n3", "nft insert rule inet filter input tcp dport 1024-65535 accept"},
		"refused to one": {func(j *Job, f *Facts) { eachProbe(j, 2, 1, func(p *Probe) { p.Outcome = Refused }) },
			"connections", Broken, "is refused from n3, although a rank listens", "on n2, as root"},
		"stalled": {func(j *Job, f *Facts) { eachProbe(j, 2, 1, func(p *Probe) { p.Outcome = Stalled }) }, "connections", Broken, "takes short packets from n3, but not long ones", "ping -M do"},
		"foreign": {func(j *Job, f *Facts) { eachProbe(j, 2, 1, func(p *Probe) { p.Outcome = Foreign }) }, "connections", Broken, "leads to another machine from n3", "tcp.exclude=10.0.0.2"},
		"unreachable": {func(j *Job, f *Facts) {
			eachProbe(j, 2, 1, func(p *Probe) { p.Outcome, p.Detail = Unreachable, "no route to host" })
		}, "connections", Broken, "no route to host", "ip route get"},
		"one of two addresses": {func(j *Job, f *Facts) {
			j.Probes = append(j.Probes, Probe{From: 0, To: 1, Local: address(7), Remote: address(8), Port: 20001, Outcome: Silent})
		}, "connections", Warning, "10.0.0.9 port 20001 is silent from n1", "nft"},
		"a spare pair": {func(j *Job, f *Facts) {
			j.Probes = append(j.Probes, Probe{From: 0, To: 1, Local: address(7), Remote: address(8), Port: 20001, Outcome: Silent, Spare: true})
		}, "connections", Hint, "10.0.0.9 port 20001 is silent from n1", "nft"},
		"no probe": {func(j *Job, f *Facts) { j.Probes = nil }, "connections", Broken, "not tried from n1, n3", "again"},
		"no pair":  {func(j *Job, f *Facts) { j.Probes, f.Interfaces, f.RDMA = nil, nil, nil }, "connections", Broken, "no address of one host can reach an address of the other", "tcp.include"},
	} {
		t.Run(name, func(t *testing.T) {
			j := wellJob()
			c.harm(j, j.Hosts[1].Facts)
			list := Judge(j)
			var got []Finding
			for _, f := range list {
				if f.Host == "n2" && f.Check == c.check && f.Level != OK {
					got = append(got, f)
				}
			}
			if name == "no pair" { // one for n1 and one for n3, which have other addresses
				require.Len(t, got, 2)
				got = got[:1]
			}
			require.Len(t, got, 1, "%+v", list)
			assert.Equal(t, c.level, got[0].Level)
			assert.Contains(t, got[0].Found, c.found)
			assert.Contains(t, got[0].Fix, c.fix)
			assert.NotEmpty(t, got[0].Wanted)
			assert.NotEmpty(t, got[0].Breaks)
			assert.Equal(t, c.level != Broken, Healthy(list))
		})
	}
}

func set(j *Job, key, value string) {
	s, err := j.Settings.With(key, value, tunable.FromCommandLine)
	if err != nil {
		panic(err)
	}
	j.Settings = s
}

// eachProbe changes the probes from one host to another; −1 is any.
func eachProbe(j *Job, from, to int, change func(*Probe)) {
	for i := range j.Probes {
		if p := &j.Probes[i]; (from < 0 || p.From == from) && p.To == to {
			change(p)
		}
	}
}

func TestJudgeDoesNotAskForWhatIsNotUsed(t *testing.T) {
	j := wellJob()
	set(j, "btl", "self,sm,tcp")
	for i := range j.Hosts {
		j.Hosts[i].Facts.LockedBytes = 0
		j.Hosts[i].Facts.RDMA[0].Ports[0].State = "DOWN"
	}
	for _, f := range Judge(j) {
		assert.Equal(t, OK, f.Level, "%+v", f)
	}
	j = wellJob()
	set(j, "btl", "self,sm,ibverbs")
	eachProbe(j, -1, 1, func(p *Probe) { p.Outcome = Silent })
	for _, f := range Judge(j) {
		assert.Equal(t, OK, f.Level, "%+v", f)
	}
	j = wellJob() // two hosts that are one machine
	j.Probes = nil
	for i := range j.Hosts {
		j.Hosts[i].Facts.Machine = "one"
	}
	for _, f := range Judge(j) {
		assert.Equal(t, OK, f.Level, "%+v", f)
	}
}
