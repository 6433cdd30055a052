package comm

import (
	"crypto/sha256"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/btl/sm"
	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// tagMatch is the tag of a short message, which has a header of more than the three bytes here.
const tagMatch = 1

var brokenMatch = []byte{1, 2, 3}

// isSending reports whether a rank has a send that is not complete.
func isSending(w *Comm) bool { return phaseOf(w) != "" }

// TestPeerThatBreaksProtocolIsLostWhenItsRailIsDrained: rank 1 sends a fragment without a header.
// Rank 0 releases buffers only when its end of the rail is drained. Both ranks then get an error,
// and the error of rank 0 says why.
func TestPeerThatBreaksProtocolIsLostWhenItsRailIsDrained(t *testing.T) {
	secret := sha256.Sum256([]byte("a secret"))
	sim := simhca.NewFabric(simhca.Config{})
	t.Cleanup(sim.Close)
	looped := must(loop.NewFabric(loop.Config{Ranks: 2}))
	for name, open := range map[string]func(j *job, wakeup *progress.PipeWakeup) (btl.Module, error){
		"loop": func(j *job, wakeup *progress.PipeWakeup) (btl.Module, error) {
			return looped.Module(j.rank, 0, j.pml, wakeup)
		},
		"sm": func(j *job, wakeup *progress.PipeWakeup) (btl.Module, error) {
			return sm.New(sm.Config{Rank: j.rank, Size: 2, Events: j.pml, Wakeup: wakeup})
		},
		"tcp": func(j *job, wakeup *progress.PipeWakeup) (btl.Module, error) {
			return tcp.New(tcp.Config{Rank: j.rank, Size: 2, Events: j.pml, Wakeup: wakeup, Local: netip.MustParseAddr("127.0.0.1"), Secret: secret[:]})
		},
		"ibverbs": func(j *job, wakeup *progress.PipeWakeup) (btl.Module, error) {
			return ibverbs.New(ibverbs.Config{
				Rank: j.rank, Size: 2, Events: j.pml, Wakeup: wakeup, Secret: secret[:],
				Provider: sim.NewNode(simhca.DeviceConfig{Name: "sim0"}), Device: "sim0",
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ends [2]btl.Endpoint
			w := localWorldBy(t, 2, func(j *job, wakeup *progress.PipeWakeup) []btl.Module {
				return []btl.Module{must(open(j, wakeup))}
			}, func(ep btl.Endpoint, rank, _ int) btl.Endpoint {
				if ends[rank] == nil { // of the first incarnation
					ends[rank] = ep
				}
				return ep
			}, func(int, int) int { return 1 })
			turn := func() {
				for _, c := range w {
					locked(c, func() int { c.job.eng.Turn(); return 0 })
				}
			}
			send, err := Isend(w[0], make([]byte, 1<<20), 1, 3)
			require.NoError(t, err)
			recv, err := Irecv(w[0], make([]byte, 10), 1, 4)
			require.NoError(t, err)
			theirs, err := Irecv(w[1], make([]byte, 10), 0, 4)
			require.NoError(t, err)

			isSent := false
			op := &btl.Op{Tag: tagMatch, Payload: brokenMatch, Done: func(*btl.Op, error) {}}
			for isSending(w[0]) {
				require.NotEqual(t, btl.Drained, ends[0].State())
				isSent = isSent || locked(w[1], func() bool { return ends[1].Send(op) == nil })
				turn()
			}
			require.Equal(t, btl.Drained, ends[0].State(), "the buffer was given back before the rail was drained")
			for _, r := range []Request{send, recv} {
				_, err := r.Wait()
				require.ErrorIs(t, err, ErrUnreachable)
				require.ErrorContains(t, err, "rank 1 broke the protocol: malformed fragment: MATCH of 3 bytes")
			}
			for isOver := false; !isOver; turn() {
				_, isOver, err = theirs.Test()
			}
			require.ErrorIs(t, err, ErrUnreachable)
			require.EqualValues(t, 1, w[0].Stats().Malformed)
		})
	}
}

// These types wrap a provider, so that its queue pairs cannot be destroyed while *lasts is true.
// Until they are, the device may use the memory of what was posted.
type (
	lastingProvider struct {
		verbs.Provider
		lasts *bool
	}
	lastingDevice struct {
		verbs.Device
		lasts *bool
	}
	lastingPD struct {
		verbs.PD
		lasts *bool
	}
	lastingQP struct {
		verbs.QP
		lasts *bool
	}
)

func (p lastingProvider) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return lastingDevice{d, p.lasts}, err
}

func (d lastingDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return lastingPD{pd, d.lasts}, err
}

func (d lastingPD) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	qp, err := d.PD.CreateQP(init)
	return lastingQP{qp, d.lasts}, err
}

func (q lastingQP) Destroy() error {
	if *q.lasts {
		return errors.New("the device is busy")
	}
	return q.QP.Destroy()
}

// TestBufferStaysWhileDeviceMayUseItAfterProtocolError: rank 1 breaks the protocol while the device
// of rank 0 reads, or writes, a buffer. All requests of the queue pair complete, but it cannot be
// destroyed. The buffer is released when the device is abandoned, which happens within a bounded
// time.
func TestBufferStaysWhileDeviceMayUseItAfterProtocolError(t *testing.T) {
	const length = 1 << 20
	for _, phase := range []string{"writing", "reading"} {
		t.Run(phase, func(t *testing.T) {
			f := simhca.NewFabric(simhca.Config{})
			t.Cleanup(f.Close)
			lasts := true
			defer func() { lasts = false }() // before the devices are closed
			var hca *simhca.HCA              // of rank 0
			var ends [2]btl.Endpoint
			w := localWorldBy(t, 2, func(j *job, wakeup *progress.PipeWakeup) []btl.Module {
				node := f.NewNode(simhca.DeviceConfig{Name: "sim0"})
				var p verbs.Provider = node
				if j.rank == 0 {
					hca, p = node.HCA("sim0"), lastingProvider{p, &lasts}
				}
				return []btl.Module{must(ibverbs.New(ibverbs.Config{
					Rank: j.rank, Size: 2, Events: j.pml, Wakeup: wakeup, Secret: []byte("of the job"), Provider: p, Device: "sim0",
				}))}
			}, func(ep btl.Endpoint, rank, _ int) btl.Endpoint {
				if ends[rank] == nil { // of the first incarnation
					ends[rank] = ep
				}
				return ep
			}, func(int, int) int { return 1 }, WithSetting("pml.protocol", map[string]string{"writing": "put", "reading": "get"}[phase]))
			pending := func() []pml.Pending { return locked(w[0], w[0].job.pml.Pending) }
			turn := func() {
				for _, c := range w {
					locked(c, func() int { c.job.eng.Turn(); return 0 })
				}
			}
			sender, receiver := 0, 1
			if phase == "reading" {
				sender, receiver = 1, 0
			}
			var requests [2]Request // by rank
			var err error
			requests[sender], err = Isend(w[sender], make([]byte, length), receiver, 3)
			require.NoError(t, err)
			for isThere := false; !isThere; turn() { // the RTS
				_, isThere, err = w[receiver].Iprobe(sender, 3)
				require.NoError(t, err)
			}
			hca.Inject(simhca.Fault{Kind: simhca.FaultSilence})
			requests[receiver], err = Irecv(w[receiver], make([]byte, length), sender, 3)
			require.NoError(t, err)
			for pending()[0].Phase != phase {
				turn()
			}
			locked(w[0], func() int {
				w[0].job.pml.Arrived(w[0].job.modules[0], 1, tagMatch, brokenMatch)
				return 0
			})
			for len(pending()) > 0 {
				require.NotEqual(t, btl.Drained, ends[0].State())
				turn()
			}
			require.Equal(t, btl.Drained, ends[0].State(), "the buffer was given back while the device may use it")
			_, err = requests[0].Wait()
			require.ErrorContains(t, err, "rank 1 broke the protocol")
		})
	}
}
