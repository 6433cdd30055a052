//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/leaks"
)

// These tests load a fake library, testdata/fake.c, which needs no device and fails on command.

func buildFake(t testing.TB, flags ...string) string {
	t.Helper()
	cc := compiler()
	file := filepath.Join(t.TempDir(), "libfake.so")
	args := append(flags, "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-Wl,--version-script=testdata/fake.map", "-o", file, "testdata/fake.c")
	out, err := exec.Command(cc, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return file
}

func fakeDevice(t testing.TB) *device {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Cleanup(func() { leaks.Verify(t) })
	}
	p, err := load(buildFake(t))
	require.NoError(t, err)
	names, err := p.Devices()
	require.NoError(t, err)
	require.Equal(t, []string{"fake0"}, names)
	d, err := p.Open("fake0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d.(*device)
}

// Commands of the fake library, see its ibv_query_pkey.
const (
	fakeEvent   = 1000
	fakeBreak   = 2000
	fakeStyle   = 2100
	fakePending = 2200
	fakeState   = 2300
	fakeHold    = 2400
)

// command sends a command to the fake library.
func command(t testing.TB, d *device, code int) {
	t.Helper()
	_, err := d.PKey(1, code)
	require.NoError(t, err)
}

// fakeObjects creates one object of each kind and destroys them after the test.
func fakeObjects(t testing.TB, d *device, service verbs.Services) (*pd, *cq, *channel, *srq, *qp) {
	t.Helper()
	p, err := d.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Dealloc()) })
	ch, err := d.CreateCompChannel()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ch.Destroy()) })
	c, err := d.CreateCQ(9, ch)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Destroy()) })
	s, err := p.CreateSRQ(verbs.SRQInit{MaxWR: 40, MaxSGE: 4})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Destroy()) })
	q, err := p.CreateQP(verbs.QPInit{Service: service, SendCQ: c, RecvCQ: c, Cap: verbs.QPCap{MaxSendWR: 40, MaxRecvWR: 40, MaxSendSGE: 3, MaxRecvSGE: 2}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, q.Destroy()) })
	return p.(*pd), c.(*cq), ch.(*channel), s.(*srq), q.(*qp)
}

const (
	toInit = verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccessFlags
	toRTR  = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN |
		verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
)

// run moves the queue pair to RTS.
func (q *qp) run(t testing.TB) {
	t.Helper()
	attr := verbs.QPAttr{Port: 1, AH: verbs.AHAttr{Port: 1}}
	for _, state := range []verbs.QPState{verbs.StateInit, verbs.StateRTR, verbs.StateRTS} {
		row, ok := verbs.FindTransition(q.service, state-1, state)
		require.True(t, ok)
		attr.State = state
		require.NoError(t, q.Modify(&attr, row.Required|verbs.AttrState))
	}
}

func TestLoadUnusableLibraryFails(t *testing.T) {
	for file, why := range map[string]string{
		"libnone-at-all.so.7":        "libnone-at-all.so.7",
		"libc.so.6":                  "libc.so.6 has no ibv_get_device_list of version IBVERBS_1.1",
		buildFake(t, "-DINCOMPLETE"): "has no ibv_destroy_ah of version IBVERBS_1.1",
	} {
		_, err := load(file)
		assert.ErrorIs(t, err, ErrNoLibrary)
		assert.ErrorContains(t, err, why)
		assert.ErrorContains(t, err, "install")
		assert.NotContains(t, err.Error(), "\n")
	}
}

// This test uses the real library if the machine has it.
func TestOpenUnknownDeviceFails(t *testing.T) {
	p, err := New()
	if err != nil {
		assert.ErrorIs(t, err, ErrNoLibrary)
		return
	}
	names, err := p.Devices()
	require.NoError(t, err, "a kernel without RDMA has no devices")
	_, err = p.Open("no such device")
	assert.ErrorIs(t, err, verbs.ErrNoDevice)
	assert.NotContains(t, names, "no such device")
}

// A program must start on machines without libibverbs.
func TestProgramIsNotLinkedWithLibrary(t *testing.T) {
	file, err := elf.Open("/proc/self/exe")
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	libraries, err := file.ImportedLibraries()
	require.NoError(t, err)
	assert.NotContains(t, strings.Join(libraries, " "), "ibverbs")
	symbols, err := file.ImportedSymbols()
	require.NoError(t, err)
	for _, s := range symbols {
		assert.False(t, strings.HasPrefix(s.Name, "ibv_"), s.Name)
	}
}

func TestFakeQueriesReturnAttributes(t *testing.T) {
	d := fakeDevice(t)
	attr, err := d.Query()
	require.NoError(t, err)
	assert.Equal(t, verbs.DeviceAttr{Ports: 2, MaxQP: 11, MaxQPRdAtom: 3, MaxQPInitRdAtom: 4, MaxMRBytes: 1 << 40, Atomics: true, VendorID: 0x2c9, PortEvents: true}, attr)
	port, err := d.QueryPort(2)
	require.NoError(t, err)
	assert.Equal(t, verbs.PortAttr{State: verbs.PortActive, MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTU2048, GIDs: 3, PKeys: 7, MaxMsg: 1 << 30,
		LID: 0x1234, LMC: 2, SMLID: 0x4321, Link: verbs.LinkInfiniBand, GRHRequired: true, Mbps: 100000}, port)
	port, err = d.QueryPort(1)
	require.NoError(t, err)
	assert.False(t, port.GRHRequired)
	gids, err := d.GIDs(2)
	require.NoError(t, err)
	assert.Equal(t, []verbs.GIDEntry{
		{Index: 0, GID: verbs.GID{0: 0xfe, 14: 2}, Type: verbs.GIDTypeIB}, {Index: 2, GID: verbs.GID{0: 0xfe, 14: 2, 15: 2}, Type: verbs.GIDTypeIB},
	}, gids)
	key, err := d.PKey(1, 0)
	require.NoError(t, err)
	assert.Equal(t, uint16(0x8001), key)
	// The provider understands all styles of failures.
	for style := range 3 {
		command(t, d, fakeStyle+style)
		_, err = d.PKey(1, 500)
		assert.ErrorIs(t, err, unix.EINVAL)
		_, err = d.QueryPort(3)
		assert.ErrorIs(t, err, unix.EINVAL)
		assert.ErrorIs(t, err, verbs.ErrInvalid)
	}
}

func TestPortSpeed(t *testing.T) {
	for want, in := range map[int][2]uint32{2500: {1, 1}, 10000: {1, 4}, 56000: {2, 16}, 100000: {2, 32}, 200000: {2, 64}, 400000: {2, 128}, 800000: {2, 256}, 0: {3, 5}} {
		assert.Equal(t, want, mbps(in[0], in[1]))
	}
}

// Every member of a request reaches the library, at the right place in the chain and in the right
// byte order.
func TestFakePostPassesAllMembers(t *testing.T) {
	d := fakeDevice(t)
	_, c, _, s, q := fakeObjects(t, d, verbs.ServiceRC)
	q.run(t)
	sge := [4]verbs.SGE{{Addr: 1, Length: 10, LKey: 100}, {Addr: 2, Length: 20, LKey: 200}, {Addr: 3, Length: 30, LKey: 300}, {Length: 1 << 20}}
	wrs := make([]verbs.SendWR, 70) // three chunks
	for i := range wrs {
		wrs[i] = verbs.SendWR{ID: uint64(i) << 40, Opcode: verbs.WRSendWithImm, Flags: verbs.SendSignaled, NumSGE: 3, Imm: 0x01020304, SGE: sge, RKey: uint32(i), RemoteAddr: 7}
	}
	wrs[68].Opcode, wrs[68].CompareAdd, wrs[68].Swap = verbs.WRAtomicCmpAndSwp, 50, 500
	wrs[69].NumSGE, wrs[69].Opcode = 0, verbs.WRRDMARead
	n, err := q.PostSend(wrs)
	require.NoError(t, err)
	require.Equal(t, 70, n)
	wcs := make([]verbs.WC, 100)
	n, err = c.Poll(wcs)
	require.NoError(t, err)
	require.Equal(t, 70, n)
	for i, wc := range wcs[:70] {
		want := verbs.WC{ID: uint64(i) << 40, Opcode: verbs.WCOpcode(verbs.WRSendWithImm), Imm: 0x01020304, QPNum: q.Num(), Flags: verbs.WCWithImm,
			PKeyIndex: 3, SL: 2, ByteLen: 666, SrcQP: 7, VendorErr: uint32(i), DLIDPathBits: 1}
		if i == 31 || i == 63 || i == 69 {
			want.DLIDPathBits = 0 // the last request of its chain
		}
		if i >= 68 {
			// No flag for immediate data: not converted.
			want.Opcode, want.Flags, want.Imm = verbs.WCOpcode(wrs[i].Opcode), 0, 0x04030201
		}
		if i == 68 {
			want.SrcQP = 557
		}
		if i == 69 {
			want.PKeyIndex, want.ByteLen = 0, 0
		}
		require.Equal(t, want, wc, i)
	}
	// A malformed request ends the batch, even after the first chunk.
	for _, malform := range []func(*verbs.SendWR){
		func(w *verbs.SendWR) { w.NumSGE = 5 },
		func(w *verbs.SendWR) { w.NumSGE = 1 << 31 },
		func(w *verbs.SendWR) { w.Opcode = 99 },
		func(w *verbs.SendWR) { w.Flags = 1 << 31 },
	} {
		bad := slices.Clone(wrs)
		malform(&bad[40])
		n, err := q.PostSend(bad)
		assert.Equal(t, 40, n)
		assert.ErrorIs(t, err, verbs.ErrInvalid)
		_, err = c.Poll(wcs)
		require.NoError(t, err)
	}
	// The provider enforces the granted inline size itself.
	inline := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline, NumSGE: 2, SGE: [4]verbs.SGE{{Length: 50}, {Length: 50}}}
	over := inline
	over.SGE[1].Length = 1<<32 - 1
	n, err = q.PostSend([]verbs.SendWR{inline, over})
	assert.Equal(t, 1, n)
	assert.ErrorIs(t, err, verbs.ErrInvalid)

	// A post to a full queue returns the number of accepted requests, in every style.
	_, err = c.Poll(wcs)
	require.NoError(t, err)
	command(t, d, fakePending)
	for style, taken := range []int{40, 0, 0} {
		command(t, d, fakeStyle+style)
		n, err = q.PostSend(wrs[:50])
		assert.Equal(t, taken, n)
		assert.ErrorIs(t, err, verbs.ErrQueueFull)
		assert.ErrorIs(t, err, unix.ENOMEM)
	}

	// The provider does not convert the immediate data of a failed receive.
	n, err = q.PostRecv([]verbs.RecvWR{{ID: 5, NumSGE: 2, SGE: sge}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	n, err = c.Poll(wcs)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	assert.Equal(t, verbs.WC{ID: 5, Status: verbs.StatusWRFlushErr, Opcode: verbs.WCRecv, QPNum: q.Num(), PKeyIndex: 2, ByteLen: 30, Flags: verbs.WCWithImm, Imm: 0x11223344}, wcs[0])
	n, err = q.PostRecv([]verbs.RecvWR{{NumSGE: 3}})
	assert.Zero(t, n)
	assert.ErrorIs(t, err, verbs.ErrInvalid)

	// The fake's shared receive queue does not name the refused request, so no request of its chain
	// counts as accepted.
	n, err = s.PostRecv(make([]verbs.RecvWR, 64))
	assert.Equal(t, 32, n)
	assert.ErrorIs(t, err, verbs.ErrQueueFull)

	command(t, d, fakeBreak)
	_, err = c.Poll(wcs)
	assert.ErrorIs(t, err, verbs.ErrGone)
}

func TestFakeDatagramNeedsAddressHandle(t *testing.T) {
	d := fakeDevice(t)
	p, c, _, _, q := fakeObjects(t, d, verbs.ServiceUD)
	q.run(t)
	ah, err := p.CreateAH(verbs.AHAttr{Port: 1, DLID: 0x77})
	require.NoError(t, err)
	good := verbs.SendWR{Opcode: verbs.WRSend, AH: ah.Handle(), RemoteQPN: 5, RemoteQKey: 6}
	n, err := q.PostSend([]verbs.SendWR{good, {Opcode: verbs.WRRDMAWrite, AH: ah.Handle()}})
	assert.Equal(t, 1, n)
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	wcs := make([]verbs.WC, 1)
	_, err = c.Poll(wcs)
	require.NoError(t, err)
	assert.Equal(t, []any{uint16(0x77), uint32(5), uint32(6)}, []any{wcs[0].SLID, wcs[0].SrcQP, wcs[0].VendorErr})
	assert.ErrorIs(t, p.Dealloc(), verbs.ErrBusy)
	other, err := d.AllocPD()
	require.NoError(t, err)
	foreign, err := other.CreateAH(verbs.AHAttr{Port: 1})
	require.NoError(t, err)
	require.NoError(t, ah.Destroy())
	again, err := p.CreateAH(verbs.AHAttr{Port: 1}) // reuses the slot of the first
	require.NoError(t, err)
	good.AH = again.Handle()
	for name, handle := range map[string]uint64{
		"none": 0, "stale": ah.Handle(), "foreign": foreign.Handle(), "wild": 1 << 20,
		"pointer": 0x7fff12345678, "all ones": ^uint64(0),
	} {
		n, err := q.PostSend([]verbs.SendWR{good, {Opcode: verbs.WRSend, AH: handle}, good})
		assert.Equal(t, 1, n, name)
		assert.ErrorIs(t, err, verbs.ErrInvalid, name)
	}
	for _, destroy := range []func() error{again.Destroy, foreign.Destroy, other.Dealloc} {
		require.NoError(t, destroy())
	}
}

// Every event names its object, which cannot be destroyed until the event is acknowledged.
func TestFakeEventsNameTheirObjects(t *testing.T) {
	d := fakeDevice(t)
	_, c, _, s, q := fakeObjects(t, d, verbs.ServiceRC)
	for _, info := range verbs.EventTypes() {
		_, ok, err := d.NextEvent()
		require.NoError(t, err)
		require.False(t, ok)
		command(t, d, fakeEvent+int(info.Type))
		ev, ok, err := d.NextEvent()
		require.NoError(t, err)
		require.True(t, ok)
		want := verbs.AsyncEvent{Type: info.Type}
		var destroy func() error
		switch info.Affiliation {
		case verbs.AffiliationQP:
			want.QP, destroy = q, q.Destroy
		case verbs.AffiliationCQ:
			want.CQ, destroy = c, c.Destroy
		case verbs.AffiliationSRQ:
			want.SRQ, destroy = s, s.Destroy
		case verbs.AffiliationPort:
			want.Port = 2
		}
		require.Equal(t, want, ev)
		if destroy != nil { // the fake aborts the process where the library would hang
			assert.ErrorIs(t, destroy(), verbs.ErrBusy)
		}
		d.AckEvent(ev)
		d.AckEvent(ev)
	}
	d.AckEvent(verbs.AsyncEvent{})
	command(t, d, fakeEvent+999) // an unknown type
	ev, ok, err := d.NextEvent()
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, verbs.AsyncEvent{Type: 999}, ev)
	d.AckEvent(ev)
}

// Notify's function is called for the first event after NextEvent found none, and not repeatedly
// for the same event.
func TestFakeNotifyIsCalledOncePerEvent(t *testing.T) {
	d := fakeDevice(t)
	called := make(chan struct{}, 10000)
	wait := func() {
		t.Helper()
		select {
		case <-called:
		case <-time.After(patience):
			require.FailNow(t, "Notify's function was not called")
		}
	}
	drain := func() (n int) {
		for {
			ev, ok, err := d.NextEvent()
			require.NoError(t, err)
			if !ok {
				return n
			}
			d.AckEvent(ev)
			n++
		}
	}
	const one = fakeEvent + int(verbs.EventPortErr)
	command(t, d, one)
	d.Notify(func() { called <- struct{}{} })
	wait() // for the event that was queued before
	require.Equal(t, 1, drain())
	for range 2000 {
		command(t, d, one)
		wait()
		for drain() == 0 { // the call was for an event already taken
			wait()
		}
	}
	// Unread events cause at most one call each.
	for len(called) > 0 {
		<-called
	}
	for range 5 {
		command(t, d, one)
	}
	wait()
	time.Sleep(50 * time.Millisecond)
	assert.LessOrEqual(t, len(called), 5)
	// A new function is called for queued events. After nil there are no calls.
	d.Notify(nil)
	for len(called) > 0 {
		<-called
	}
	other := make(chan struct{}, 10000)
	d.Notify(func() { other <- struct{}{} })
	assert.NotEmpty(t, other)
	d.Notify(nil)
	for len(other) > 0 {
		<-other
	}
	assert.Equal(t, 5, drain())
	command(t, d, one)
	time.Sleep(20 * time.Millisecond)
	assert.Empty(t, called)
	assert.Empty(t, other)
}

func TestFakeCompletionEventsNameTheirQueue(t *testing.T) {
	d := fakeDevice(t)
	_, c, ch, _, _ := fakeObjects(t, d, verbs.ServiceRC)
	called := make(chan struct{}, 100)
	ch.Notify(func() { called <- struct{}{} })
	for range 10 {
		require.NoError(t, c.ReqNotify(false))
		<-called
		got, ok, err := ch.NextEvent()
		require.NoError(t, err)
		require.True(t, ok)
		require.Same(t, c, got)
	}
	c.AckEvents(4)
	c.AckEvents(-1)
	assert.ErrorIs(t, c.Destroy(), verbs.ErrBusy)
	c.AckEvents(1 << 40)
	silent, err := d.CreateCQ(1, nil)
	require.NoError(t, err)
	assert.ErrorIs(t, silent.ReqNotify(false), verbs.ErrInvalid, "the queue has no channel")
	require.NoError(t, silent.Destroy())
}

// Modify uses the state of the device when the queue pair changed its state by itself.
func TestFakeModifyFollowsDeviceState(t *testing.T) {
	d := fakeDevice(t)
	_, _, _, _, q := fakeObjects(t, d, verbs.ServiceUC)
	q.run(t)
	// The queue pair moves to SQE. Modify finds this out when RTS refuses, and returns to RTS.
	command(t, d, fakeState+int(verbs.StateSQE))
	attr := verbs.QPAttr{State: verbs.StateRTS, CurState: verbs.StateSQE}
	require.NoError(t, q.Modify(&attr, verbs.AttrState|verbs.AttrCurState))
	// In SQD the library reports whether the send queue is drained.
	got, err := q.Query()
	require.NoError(t, err)
	assert.False(t, got.SQDraining)
	require.NoError(t, q.Modify(&verbs.QPAttr{State: verbs.StateSQD}, verbs.AttrState))
	got, err = q.Query()
	require.NoError(t, err)
	assert.True(t, got.SQDraining, "the fake never finishes draining")
	require.NoError(t, q.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
	// The queue pair moves to ERR with an event. Modify then queries the state first.
	command(t, d, fakeState+int(verbs.StateErr))
	command(t, d, fakeEvent+int(verbs.EventQPFatal))
	ev, ok, err := d.NextEvent()
	require.NoError(t, err)
	require.True(t, ok)
	d.AckEvent(ev)
	var te *verbs.TransitionError
	require.ErrorAs(t, q.Modify(&verbs.QPAttr{State: verbs.StateSQD}, verbs.AttrState), &te)
	assert.Equal(t, verbs.StateErr, te.From)
	// The device returns an invalid state.
	command(t, d, fakeState+7)
	_, err = q.Query()
	assert.ErrorIs(t, err, verbs.ErrGone)
	// The device itself refuses.
	require.NoError(t, q.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
	require.NoError(t, q.Modify(&verbs.QPAttr{State: verbs.StateInit, Port: 1}, toInit))
	attr = verbs.QPAttr{State: verbs.StateRTR, RQPSN: 0xbad, AH: verbs.AHAttr{Port: 1}}
	for style := range 3 {
		command(t, d, fakeStyle+style)
		err = q.Modify(&attr, verbs.AttrState|verbs.AttrAV|verbs.AttrPathMTU|verbs.AttrDestQPN|verbs.AttrRQPSN)
		assert.ErrorIs(t, err, verbs.ErrInvalid)
		assert.ErrorContains(t, err, "from INIT to RTR")
	}
}

// Modify passes all attributes to the library, and Query returns them.
func TestFakeQPAttributesRoundTrip(t *testing.T) {
	d := fakeDevice(t)
	_, _, _, _, q := fakeObjects(t, d, verbs.ServiceRC)
	_, err := q.PostSend([]verbs.SendWR{{}})
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	assert.ErrorContains(t, err, "RESET")
	_, err = q.PostRecv([]verbs.RecvWR{{}})
	assert.ErrorIs(t, err, verbs.ErrInvalid)
	noPort := verbs.QPAttr{State: verbs.StateInit}
	assert.ErrorIs(t, q.Modify(&noPort, toInit), verbs.ErrInvalid)
	ah := verbs.AHAttr{Port: 1, DLID: 0x1234, SL: 5, SrcPathBits: 3, IsGlobal: true, DGID: verbs.GID{1, 2, 15: 3}, SGIDIndex: 255, HopLimit: 7, TrafficClass: 8}
	alt := ah
	alt.Port = 2
	want := verbs.QPAttr{State: verbs.StateInit, CurState: verbs.StateReset, PathMTU: verbs.MTU1024, QKey: 1 << 31, RQPSN: 2, SQPSN: 3, DestQPN: 4,
		Access: verbs.AccessRemoteRead, PKeyIndex: 5, EnSQDAsyncNotify: true, MaxRdAtomic: 6, MaxDestRdAtomic: 7, MinRNRTimer: 8, Port: 9, Timeout: 10,
		RetryCnt: 11, RNRRetry: 12}
	require.NoError(t, q.Modify(&want, toInit))
	got, err := q.Query()
	require.NoError(t, err)
	assert.Equal(t, want, got)
	want.State, want.AH, want.AltAH = verbs.StateRTR, ah, alt
	bad := want
	bad.AH.SGIDIndex = 256
	assert.ErrorIs(t, q.Modify(&bad, toRTR), verbs.ErrInvalid)
	require.NoError(t, q.Modify(&want, toRTR|verbs.AttrAltPath))
	got, err = q.Query()
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestFakeRegMRKeepsMemoryAlive(t *testing.T) {
	d := fakeDevice(t)
	p, c, _, _, _ := fakeObjects(t, d, verbs.ServiceRC)
	for length, errno := range map[int]unix.Errno{101: unix.ENOMEM, 102: unix.EAGAIN, 103: unix.EPERM} {
		_, err := p.RegMR(make([]byte, length), 0)
		assert.ErrorIs(t, err, errno)
		assert.ErrorIs(t, err, verbs.ErrNoMemory)
	}
	_, err := p.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: c, RecvCQ: c, Cap: verbs.QPCap{MaxSendWR: 2000}})
	assert.ErrorIs(t, err, verbs.ErrNoMemory)
	assert.ErrorContains(t, err, "MaxSendWR:2000")
	_, err = p.RegMR(make([]byte, 104), 0)
	assert.ErrorIs(t, err, unix.EFAULT)
	assert.NotErrorIs(t, err, verbs.ErrNoMemory)
	mem := make([]byte, 4096)
	freed := make(chan struct{})
	runtime.AddCleanup(&mem[0], func(struct{}) { close(freed) }, struct{}{})
	m, err := p.RegMR(mem, 3)
	require.NoError(t, err)
	assert.Equal(t, []uint32{0x103, 0x203}, []uint32{m.LKey(), m.RKey()})
	runtime.GC()
	select {
	case <-freed:
		assert.Fail(t, "the memory was freed during registration")
	case <-time.After(10 * time.Millisecond):
	}
	require.NoError(t, m.Dereg())
	assert.ErrorIs(t, m.Dereg(), verbs.ErrGone)
	runtime.GC()
	select {
	case <-freed:
	case <-time.After(patience):
		assert.Fail(t, "the deregistered region keeps the memory alive")
	}
}

func TestFakeCallsOnDestroyedObjectsFail(t *testing.T) {
	other := fakeDevice(t)
	foreign, err := other.CreateCQ(1, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, foreign.Destroy()) }()
	dev, err := (&Provider{lib: other.lib}).Open("fake0")
	require.NoError(t, err)
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	ch, err := dev.CreateCompChannel()
	require.NoError(t, err)
	cq, err := dev.CreateCQ(10, ch)
	require.NoError(t, err)
	mr, err := pd.RegMR(make([]byte, 8), verbs.AccessLocalWrite)
	require.NoError(t, err)
	srq, err := pd.CreateSRQ(verbs.SRQInit{MaxWR: 4, MaxSGE: 1, Limit: 1})
	require.NoError(t, err)
	init := verbs.QPInit{Service: verbs.ServiceRC, SendCQ: cq, RecvCQ: cq, SRQ: srq}
	qp, err := pd.CreateQP(init)
	require.NoError(t, err)

	fails := func(want error) func(any, error) {
		return func(_ any, err error) { t.Helper(); assert.ErrorIs(t, err, want) }
	}
	invalid, gone := fails(verbs.ErrInvalid), fails(verbs.ErrGone)
	invalid(dev.CreateCQ(0, nil))
	invalid(pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: cq}))
	invalid(pd.CreateQP(verbs.QPInit{Service: verbs.AllServices, SendCQ: cq, RecvCQ: cq}))
	invalid(pd.CreateQP(verbs.QPInit{Service: verbs.ServiceRC, SendCQ: foreign, RecvCQ: cq}))
	invalid(pd.RegMR(nil, 0))
	for _, used := range []func() error{dev.Close, pd.Dealloc, ch.Destroy, cq.Destroy, srq.Destroy} {
		assert.ErrorIs(t, used(), verbs.ErrBusy)
	}
	for _, destroy := range []func() error{
		qp.Destroy, srq.Destroy, mr.Dereg, cq.Destroy, ch.Destroy, pd.Dealloc, dev.Close,
	} {
		require.NoError(t, destroy())
		assert.ErrorIs(t, destroy(), verbs.ErrGone)
	}
	_, _, err = dev.NextEvent()
	gone(nil, err)
	_, _, err = ch.NextEvent()
	gone(nil, err)
	gone(dev.Query())
	gone(dev.QueryPort(1))
	gone(dev.GIDs(1))
	gone(dev.PKey(1, 0))
	gone(dev.AllocPD())
	gone(dev.CreateCompChannel())
	gone(dev.CreateCQ(1, nil))
	gone(pd.RegMR(make([]byte, 8), 0))
	gone(pd.CreateAH(verbs.AHAttr{Port: 1}))
	gone(pd.CreateQP(init))
	gone(pd.CreateSRQ(verbs.SRQInit{MaxWR: 1}))
	gone(cq.Poll(make([]verbs.WC, 1)))
	gone(nil, cq.ReqNotify(false))
	gone(nil, qp.Modify(&verbs.QPAttr{}, verbs.AttrState))
	gone(qp.Query())
	gone(qp.PostSend(make([]verbs.SendWR, 1)))
	gone(qp.PostRecv(make([]verbs.RecvWR, 1)))
	gone(srq.PostRecv(make([]verbs.RecvWR, 1)))
	gone(nil, srq.SetLimit(1))
	gone(srq.Query())
	dev.Notify(func() {})
	ch.Notify(func() {})
	cq.AckEvents(1)
	dev.AckEvent(verbs.AsyncEvent{QP: qp})
}

func TestHandlesAreNotReused(t *testing.T) {
	var h handles
	a := h.put("a")
	b := h.put("b")
	assert.Equal(t, []any{"a", "b", nil, nil}, []any{h.get(a), h.get(b), h.get(0), h.get(1 << 40)})
	h.drop(a)
	h.drop(a)
	c := h.put("c")
	assert.Equal(t, uint32(a), uint32(c), "the slot is reused")
	assert.Equal(t, []any{nil, "b", "c"}, []any{h.get(a), h.get(b), h.get(c)})
	d := h.put("d")
	assert.Equal(t, []any{"c", "d"}, []any{h.get(c), h.get(d)})
}

func TestFakeHotCallsAllocateNothing(t *testing.T) {
	d := fakeDevice(t)
	_, c, ch, s, q := fakeObjects(t, d, verbs.ServiceRC)
	q.run(t)
	wcs, send, recv := make([]verbs.WC, 16), make([]verbs.SendWR, 1), make([]verbs.RecvWR, 1)
	assert.Zero(t, testing.AllocsPerRun(30, func() {
		_, err1 := q.PostSend(send)
		_, err2 := q.PostRecv(recv)
		_, err3 := s.PostRecv(recv)
		_, err4 := c.Poll(wcs)
		err5 := c.ReqNotify(false)
		got, ok, err6 := ch.NextEvent()
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil || err5 != nil || err6 != nil || !ok {
			panic("failed")
		}
		got.AckEvents(1)
	}))
}

// benchmarkFakePost measures the calls into C: the fake device does almost nothing.
func benchmarkFakePost(b *testing.B, batch int) {
	d := fakeDevice(b)
	_, c, _, _, q := fakeObjects(b, d, verbs.ServiceRC)
	q.run(b)
	wrs, wcs := make([]verbs.SendWR, batch), make([]verbs.WC, batch)
	for i := range wrs {
		wrs[i] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, NumSGE: 1}
	}
	for b.Loop() {
		if n, err := q.PostSend(wrs); n != batch || err != nil {
			b.Fatal(n, err)
		}
		if n, err := c.Poll(wcs); n != batch || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkFakePostAndPoll1(b *testing.B)  { benchmarkFakePost(b, 1) }
func BenchmarkFakePostAndPoll16(b *testing.B) { benchmarkFakePost(b, 16) }

func BenchmarkFakePollEmpty(b *testing.B) {
	d := fakeDevice(b)
	_, c, _, _, _ := fakeObjects(b, d, verbs.ServiceRC)
	wcs := make([]verbs.WC, 16)
	for b.Loop() {
		if n, err := c.Poll(wcs); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}
