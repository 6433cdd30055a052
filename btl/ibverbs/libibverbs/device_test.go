//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/leaks"
)

// devicesEnv names two connected devices, separated by a comma. The tests TestDevice… and the
// benchmarks BenchmarkDevice… use them. Tests that take a link down need the permission for that.
const devicesEnv = "MPIGO_TEST_VERBS_DEVICES"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(devicesEnv) == "" {
		fmt.Printf("%s is not set: skipping the tests TestDevice…\n", devicesEnv)
		skip := "^(TestDevice|BenchmarkDevice)"
		if old := flag.Lookup("test.skip").Value.String(); old != "" {
			skip += "|" + old
		}
		if err := flag.Set("test.skip", skip); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// patience is the longest time that a test waits for a completion or an event.
const patience = 20 * time.Second

// end is a device with memory and a completion queue.
type end struct {
	dev verbs.Device
	pd  verbs.PD
	cq  verbs.CQ
	mr  verbs.MR
}

// open opens the two devices. TestDeviceConformance tests their calls; the tests here test what a
// suite for all providers cannot test.
func open(t testing.TB) (a, b *end) {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Cleanup(func() { leaks.Verify(t) })
	}
	names := strings.Split(os.Getenv(devicesEnv), ",")
	require.Len(t, names, 2, devicesEnv)
	return newEnd(t, names[0]), newEnd(t, names[1])
}

func newEnd(t testing.TB, name string) *end {
	t.Helper()
	p, err := New()
	require.NoError(t, err)
	e := &end{}
	e.dev, err = p.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.dev.Close()) })
	e.pd, err = e.dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.pd.Dealloc()) })
	e.cq, err = e.dev.CreateCQ(256, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.cq.Destroy()) })
	e.mr, err = e.pd.RegMR(make([]byte, 4096), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.mr.Dereg()) })
	return e
}

func (e *end) rc(t testing.TB) verbs.QP {
	t.Helper()
	q, err := e.pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, q.Destroy()) })
	return q
}

func connect(t testing.TB, from *end, q verbs.QP, to *end, peer verbs.QP) {
	t.Helper()
	port, err := to.dev.QueryPort(1)
	require.NoError(t, err)
	gids, err := to.dev.GIDs(1)
	require.NoError(t, err)
	attr := verbs.QPAttr{
		Port: 1, Access: verbs.AccessRemoteWrite, PathMTU: port.ActiveMTU, DestQPN: peer.Num(),
		MinRNRTimer: 1, Timeout: 14, RetryCnt: 6, RNRRetry: 7, RQPSN: 7, SQPSN: 7,
		AH: verbs.AHAttr{Port: 1, DLID: port.LID, IsGlobal: true, SGIDIndex: roce(t, from.dev), HopLimit: 64},
	}
	for _, g := range gids {
		if g.Index == roce(t, to.dev) {
			attr.AH.DGID = g.GID
		}
	}
	for _, state := range []verbs.QPState{verbs.StateInit, verbs.StateRTR, verbs.StateRTS} {
		row, _ := verbs.FindTransition(verbs.ServiceRC, state-1, state)
		attr.State = state
		require.NoError(t, q.Modify(&attr, verbs.AttrState|row.Required))
	}
}

// The two ways to read the GID table agree.
func TestDeviceQueriesReturnAttributes(t *testing.T) {
	a, _ := open(t)
	attr, err := a.dev.Query()
	require.NoError(t, err)
	port, err := a.dev.QueryPort(1)
	require.NoError(t, err)
	gids, err := a.dev.GIDs(1)
	require.NoError(t, err)
	t.Logf("%+v\n%+v\n%+v", attr, port, gids)
	assert.Positive(t, port.Mbps)
	one, err := a.dev.(*device).gidsOneByOne(1, port)
	require.NoError(t, err)
	assert.Equal(t, gids, one)
	p, err := New()
	require.NoError(t, err)
	_, err = p.Open("none")
	assert.ErrorIs(t, err, verbs.ErrNoDevice)
	assert.ErrorContains(t, err, a.dev.Name())
}

// RegMR beyond RLIMIT_MEMLOCK fails with advice. The thread gives up the capability to lock any
// amount.
func TestDeviceRegMRBeyondLimitFails(t *testing.T) {
	a, _ := open(t)
	mem := make([]byte, 1<<20)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	require.NoError(t, unix.Capget(&header, &sets[0]))
	sets[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	require.NoError(t, unix.Capset(&header, &sets[0]))
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before))
	limit := unix.Rlimit{Cur: 256 << 10, Max: before.Max}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit))
	defer func() { assert.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)) }()

	_, err := a.pd.RegMR(mem, verbs.AccessLocalWrite)
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	t.Log(err)
	for _, word := range []string{
		"1048576", "262144", "RLIMIT_MEMLOCK", "ulimit -l", "limits.conf", "LimitMEMLOCK", "--ulimit memlock",
	} {
		assert.ErrorContains(t, err, word)
	}
	assert.NotContains(t, err.Error(), "\n")
	mr, err := a.pd.RegMR(mem[:4096], verbs.AccessLocalWrite)
	require.NoError(t, err)
	require.NoError(t, mr.Dereg())
}

func BenchmarkDevicePollEmpty(b *testing.B) {
	e, _ := open(b)
	wcs := make([]verbs.WC, 16)
	for b.Loop() {
		if n, err := e.cq.Poll(wcs); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}

func benchmarkPost(b *testing.B, batch int) {
	from, to := open(b)
	q, peer := from.rc(b), to.rc(b)
	connect(b, from, q, to, peer)
	connect(b, to, peer, from, q)
	wrs := make([]verbs.SendWR, batch)
	for i := range wrs {
		wrs[i] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey()}
		wrs[i].NumSGE, wrs[i].SGE[0] = 1, verbs.SGE{Addr: from.mr.Addr(), Length: 8, LKey: from.mr.LKey()}
	}
	wrs[batch-1].Flags = verbs.SendSignaled
	wcs := make([]verbs.WC, 1)
	var posting time.Duration
	for b.Loop() {
		start := time.Now()
		n, err := q.PostSend(wrs)
		posting += time.Since(start)
		if n != batch || err != nil {
			b.Fatal(n, err)
		}
		for n = 0; n == 0 && err == nil; {
			n, err = from.cq.Poll(wcs)
		}
		if err != nil || wcs[0].Status != verbs.StatusSuccess {
			b.Fatal(err, wcs[0].Status)
		}
	}
	b.ReportMetric(float64(posting.Nanoseconds())/float64(b.N), "post-ns")
}

func BenchmarkDevicePost1(b *testing.B)  { benchmarkPost(b, 1) }
func BenchmarkDevicePost16(b *testing.B) { benchmarkPost(b, 16) }
