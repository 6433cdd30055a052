//go:build ibverbs && cgo && linux

package libibverbs

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
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
	t    testing.TB
	dev  verbs.Device
	pd   verbs.PD
	cq   verbs.CQ
	mem  []byte
	mr   verbs.MR
	gid  verbs.GIDEntry
	port verbs.PortAttr
}

const endBytes = 64 << 10

// open opens the two devices.
func open(t testing.TB) (a, b *end) {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Cleanup(func() { goleak.VerifyNone(t) })
	}
	names := strings.Split(os.Getenv(devicesEnv), ",")
	require.Len(t, names, 2, devicesEnv)
	return newEnd(t, names[0]), newEnd(t, names[1])
}

func newEnd(t testing.TB, name string) *end {
	t.Helper()
	p, err := New()
	require.NoError(t, err)
	e := &end{t: t, mem: offHeap(t, endBytes)}
	e.dev, err = p.Open(name)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.dev.Close()) })
	e.pd, err = e.dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.pd.Dealloc()) })
	e.cq, err = e.dev.CreateCQ(256, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.cq.Destroy()) })
	e.mr, err = e.pd.RegMR(e.mem, verbs.AccessLocalWrite|verbs.AccessRemoteRead|verbs.AccessRemoteWrite|verbs.AccessRemoteAtomic)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.mr.Dereg()) })
	e.port, err = e.dev.QueryPort(1)
	require.NoError(t, err)
	gids, err := e.dev.GIDs(1)
	require.NoError(t, err)
	for _, g := range gids {
		if e.gid.GID.IsZero() || g.Type == verbs.GIDTypeRoCEv2 {
			e.gid = g
		}
	}
	require.False(t, e.gid.GID.IsZero(), "%s has no GID", name)
	return e
}

func offHeap(t testing.TB, size int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}

// sge returns a list with a piece of the end's memory.
func (e *end) sge(off, n int) [verbs.MaxSGE]verbs.SGE {
	return [verbs.MaxSGE]verbs.SGE{{Addr: e.mr.Addr() + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}}
}

var caps = verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}

func (e *end) qp(init verbs.QPInit) verbs.QP {
	e.t.Helper()
	if init.SendCQ == nil {
		init.SendCQ = e.cq
	}
	if init.RecvCQ == nil {
		init.RecvCQ = e.cq
	}
	init.Cap = caps
	q, err := e.pd.CreateQP(init)
	require.NoError(e.t, err)
	e.t.Cleanup(func() {
		if err := q.Destroy(); err != nil {
			assert.ErrorIs(e.t, err, verbs.ErrGone)
		}
	})
	return q
}

// rc returns two connected RC queue pairs. change may modify the attributes.
func rc(t testing.TB, a, b *end, change func(attr *verbs.QPAttr)) (qa, qb verbs.QP) {
	t.Helper()
	qa, qb = a.qp(verbs.QPInit{Service: verbs.ServiceRC}), b.qp(verbs.QPInit{Service: verbs.ServiceRC})
	connect(t, a, qa, b, qb, change)
	connect(t, b, qb, a, qa, change)
	return qa, qb
}

const (
	toInit = verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccessFlags
	toRTR  = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
	toRTS  = verbs.AttrState | verbs.AttrSQPSN | verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrMaxQPRdAtomic
)

func rcAttr(from *end, to *end, peer uint32) verbs.QPAttr {
	return verbs.QPAttr{
		Port: 1, Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic,
		PathMTU: min(from.port.ActiveMTU, to.port.ActiveMTU), DestQPN: peer, MaxDestRdAtomic: 4, MaxRdAtomic: 4, MinRNRTimer: 1,
		AH:      verbs.AHAttr{Port: 1, DLID: to.port.LID, IsGlobal: true, DGID: to.gid.GID, SGIDIndex: from.gid.Index, HopLimit: 64},
		Timeout: 14, RetryCnt: 6, RNRRetry: 7, RQPSN: 7, SQPSN: 7,
	}
}

func connect(t testing.TB, from *end, q verbs.QP, to *end, peer verbs.QP, change func(attr *verbs.QPAttr)) {
	t.Helper()
	attr := rcAttr(from, to, peer.Num())
	if change != nil {
		change(&attr)
	}
	for _, step := range []struct {
		state verbs.QPState
		mask  verbs.AttrMask
	}{{verbs.StateInit, toInit}, {verbs.StateRTR, toRTR}, {verbs.StateRTS, toRTS}} {
		attr.State = step.state
		require.NoError(t, q.Modify(&attr, step.mask))
	}
}

// completions waits for n completions.
func completions(t testing.TB, cq verbs.CQ, n int) []verbs.WC {
	t.Helper()
	var all []verbs.WC
	wcs := make([]verbs.WC, 16)
	for end := time.Now().Add(patience); len(all) < n; {
		got, err := cq.Poll(wcs)
		require.NoError(t, err)
		all = append(all, wcs[:got]...)
		require.True(t, time.Now().Before(end), "%d of %d completions arrived: %+v", len(all), n, all)
	}
	return all
}

func succeeded(t testing.TB, cq verbs.CQ, n int) []verbs.WC {
	t.Helper()
	all := completions(t, cq, n)
	for _, wc := range all {
		require.Equal(t, verbs.StatusSuccess, wc.Status, "%v, vendor error %#x", wc.Status.Native(), wc.VendorErr)
	}
	return all
}

func post(t testing.TB, q verbs.QP, wrs ...verbs.SendWR) {
	t.Helper()
	n, err := q.PostSend(wrs)
	require.NoError(t, err)
	require.Equal(t, len(wrs), n)
}

func receive(t testing.TB, q verbs.QP, wrs ...verbs.RecvWR) {
	t.Helper()
	n, err := q.PostRecv(wrs)
	require.NoError(t, err)
	require.Equal(t, len(wrs), n)
}

func fill(mem []byte, seed byte) {
	for i := range mem {
		mem[i] = byte(i)*7 + seed
	}
}

func TestDeviceQueriesReturnAttributes(t *testing.T) {
	a, _ := open(t)
	attr, err := a.dev.Query()
	require.NoError(t, err)
	t.Logf("%+v", attr)
	assert.Positive(t, attr.Ports)
	assert.Positive(t, attr.MaxQP)
	assert.Positive(t, attr.MaxCQE)
	t.Logf("%+v", a.port)
	assert.True(t, a.port.State.Up())
	assert.Positive(t, a.port.ActiveMTU.Bytes())
	assert.Positive(t, a.port.Mbps)
	gids, err := a.dev.GIDs(1)
	require.NoError(t, err)
	t.Logf("%+v", gids)
	one, err := a.dev.(*device).gidsOneByOne(1, a.port)
	require.NoError(t, err)
	assert.Equal(t, gids, one)
	key, err := a.dev.PKey(1, 0)
	require.NoError(t, err)
	assert.Equal(t, uint16(0xffff), key)

	_, err = a.dev.QueryPort(0)
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = a.dev.QueryPort(77)
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = a.dev.PKey(1, 30000)
	assert.Error(t, err)

	p, err := New()
	require.NoError(t, err)
	names, err := p.Devices()
	require.NoError(t, err)
	assert.Contains(t, names, a.dev.Name())
	_, err = p.Open("none")
	assert.ErrorIs(t, err, verbs.ErrNoDevice)
	assert.ErrorContains(t, err, a.dev.Name())
}

func TestDeviceRCOperations(t *testing.T) {
	a, b := open(t)
	qa, qb := rc(t, a, b, nil)
	fill(a.mem[:32<<10], 1)

	// Send with immediate data, gathered from two elements and scattered to two.
	receive(t, qb, verbs.RecvWR{ID: 77, NumSGE: 2, SGE: [4]verbs.SGE{b.sge(0, 1000)[0], b.sge(2000, 9000)[0]}})
	post(t, qa, verbs.SendWR{ID: 1 << 60, Opcode: verbs.WRSendWithImm, Imm: 0x01020304, Flags: verbs.SendSignaled, NumSGE: 2,
		SGE: [4]verbs.SGE{a.sge(0, 3000)[0], a.sge(3000, 5000)[0]}})
	wc := succeeded(t, b.cq, 1)[0]
	assert.Equal(t, uint64(77), wc.ID)
	assert.Equal(t, verbs.WCRecv, wc.Opcode)
	assert.Equal(t, verbs.WCWithImm, wc.Flags&verbs.WCWithImm)
	assert.Equal(t, uint32(0x01020304), wc.Imm)
	assert.Equal(t, uint32(8000), wc.ByteLen)
	assert.Equal(t, qb.Num(), wc.QPNum)
	assert.Equal(t, a.mem[:1000], b.mem[:1000])
	assert.Equal(t, a.mem[1000:8000], b.mem[2000:9000])
	wc = succeeded(t, a.cq, 1)[0]
	assert.Equal(t, uint64(1)<<60, wc.ID)
	assert.Equal(t, verbs.WCSend, wc.Opcode)

	// Write, then write with immediate data, whose completion implies the first write.
	receive(t, qb, verbs.RecvWR{ID: 78})
	at := func(off int) uint64 { return b.mr.Addr() + uint64(off) }
	post(t, qa,
		verbs.SendWR{ID: 2, Opcode: verbs.WRRDMAWrite, RemoteAddr: at(10000), RKey: b.mr.RKey(), NumSGE: 1, SGE: a.sge(0, 20000)},
		verbs.SendWR{ID: 3, Opcode: verbs.WRRDMAWriteWithImm, Imm: 9, RemoteAddr: at(40000), RKey: b.mr.RKey(), Flags: verbs.SendSignaled, NumSGE: 1, SGE: a.sge(100, 10)})
	wc = succeeded(t, b.cq, 1)[0]
	assert.Equal(t, uint64(78), wc.ID)
	assert.Equal(t, verbs.WCRecvRDMAWithImm, wc.Opcode)
	assert.Equal(t, uint32(9), wc.Imm)
	assert.Equal(t, a.mem[:20000], b.mem[10000:30000])
	assert.Equal(t, a.mem[100:110], b.mem[40000:40010])
	assert.Equal(t, verbs.WCRDMAWrite, succeeded(t, a.cq, 1)[0].Opcode)

	// Read.
	fill(b.mem, 99)
	post(t, qa, verbs.SendWR{ID: 4, Opcode: verbs.WRRDMARead, RemoteAddr: at(1), RKey: b.mr.RKey(), Flags: verbs.SendSignaled, NumSGE: 1, SGE: a.sge(0, 30001)})
	assert.Equal(t, verbs.WCRDMARead, succeeded(t, a.cq, 1)[0].Opcode)
	assert.Equal(t, b.mem[1:30002], a.mem[:30001])

	// Atomics return the old value.
	word := (*uint64)(unsafe.Pointer(&b.mem[512]))
	old := (*uint64)(unsafe.Pointer(&a.mem[0]))
	*word = 100
	post(t, qa, verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, CompareAdd: 5, RemoteAddr: at(512), RKey: b.mr.RKey(), Flags: verbs.SendSignaled, NumSGE: 1, SGE: a.sge(0, 8)})
	assert.Equal(t, verbs.WCFetchAdd, succeeded(t, a.cq, 1)[0].Opcode)
	assert.Equal(t, []uint64{100, 105}, []uint64{*old, *word})
	post(t, qa, verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, CompareAdd: 105, Swap: 1 << 63, RemoteAddr: at(512), RKey: b.mr.RKey(), Flags: verbs.SendSignaled, NumSGE: 1, SGE: a.sge(0, 8)})
	assert.Equal(t, verbs.WCCompSwap, succeeded(t, a.cq, 1)[0].Opcode)
	assert.Equal(t, []uint64{105, 1 << 63}, []uint64{*old, *word})

	// Inline data comes from unregistered memory, which is free after the post.
	small := offHeap(t, 4096)
	copy(small, "not registered")
	receive(t, qb, verbs.RecvWR{ID: 79, NumSGE: 1, SGE: b.sge(0, 100)})
	post(t, qa, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, NumSGE: 1,
		SGE: [4]verbs.SGE{{Addr: uint64(uintptr(unsafe.Pointer(&small[0]))), Length: 14}}})
	clear(small)
	assert.Equal(t, uint32(14), succeeded(t, b.cq, 1)[0].ByteLen)
	assert.Equal(t, "not registered", string(b.mem[:14]))
	succeeded(t, a.cq, 1)
	n, err := qa.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendInline, NumSGE: 1, SGE: a.sge(0, qa.Cap().MaxInlineData+1)}})
	assert.Zero(t, n)
	assert.ErrorIs(t, err, verbs.ErrInvalid)

	got, err := qa.Query()
	require.NoError(t, err)
	assert.Equal(t, verbs.StateRTS, got.State)
	assert.Equal(t, qb.Num(), got.DestQPN)
	assert.Equal(t, b.gid.GID, got.AH.DGID)
	t.Logf("%+v", got)
}
