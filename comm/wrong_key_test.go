package comm

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/request"
)

// keyFault makes the remote key of one read or write wrong. left counts the operations up to it.
type keyFault struct{ left atomic.Int64 }

// These types wrap a provider, so that its queue pairs post requests with wrong keys.
type (
	faultyProvider struct {
		verbs.Provider
		k *keyFault
	}
	faultyDevice struct {
		verbs.Device
		k *keyFault
	}
	faultyPD struct {
		verbs.PD
		k *keyFault
	}
	faultyQP struct {
		verbs.QP
		k *keyFault
	}
)

func (p faultyProvider) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return faultyDevice{d, p.k}, err
}

func (d faultyDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return faultyPD{pd, d.k}, err
}

func (d faultyPD) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	qp, err := d.PD.CreateQP(init)
	if err != nil || init.Service != verbs.ServiceRC {
		return qp, err
	}
	return &faultyQP{qp, d.k}, nil
}

func (q *faultyQP) PostSend(wrs []verbs.SendWR) (int, error) {
	if op := wrs[0].Opcode; op == verbs.WRRDMARead || op == verbs.WRRDMAWrite {
		if q.k.left.Add(-1) == 0 {
			wrs[0].RKey ^= 0xff
		}
	}
	return q.QP.PostSend(wrs)
}

// TestWrongKeysOnOneOfTwoRails: long messages travel in both directions over two rails. Sometimes a
// remote access has a wrong key, which takes its rail down for a moment. Every byte arrives.
func TestWrongKeysOnOneOfTwoRails(t *testing.T) {
	for _, protocol := range []string{"get", "put"} {
		t.Run(protocol, func(t *testing.T) {
			f := simhca.NewFabric(simhca.Config{})
			t.Cleanup(f.Close)
			var fault keyFault
			worlds := localWorld(t, 2, func(j *job, wakeup *progress.PipeWakeup) (all []btl.Module) {
				for i := range 2 {
					name := fmt.Sprintf("sim%d", i)
					var p verbs.Provider = f.NewNode(simhca.DeviceConfig{Name: name})
					if i == 0 && j.rank == 0 {
						p = faultyProvider{p, &fault}
					}
					all = append(all, must(ibverbs.New(ibverbs.Config{
						Rank: j.rank, Size: 2, Events: j.pml, Wakeup: wakeup, Secret: []byte("of the job"),
						Provider: p, Device: name, Rail: "ibverbs:" + name,
					})))
				}
				return all
			}, WithSetting("pml.protocol", protocol))
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 2))
			sizes := []int{32 << 10, 256 << 10, 1 << 20, 4 << 20}
			fill := func(b []byte, from, round, i int) {
				for k := range b {
					b[k] = byte(1 + (from*7+round*13+i*31+k>>13)%251)
				}
			}
			var ranks sync.WaitGroup
			for rank, w := range worlds {
				ranks.Go(func() {
					var ins, outs, wants [][]byte
					for _, n := range sizes {
						ins, outs, wants = append(ins, make([]byte, n)), append(outs, make([]byte, n)), append(wants, make([]byte, n))
					}
					for round := range 5 {
						for i := range sizes {
							clear(ins[i])
							fill(outs[i], rank, round, i)
							fill(wants[i], 1-rank, round, i)
						}
						if rank == 0 {
							fault.left.Store(int64(1 + rng.IntN(40)))
						}
						var waits sync.WaitGroup
						wait := func(r request.Request, err error) {
							assert.NoError(t, err)
							waits.Go(func() { _, err := r.Wait(); assert.NoError(t, err) })
						}
						for i := range sizes {
							wait(Irecv(w, ins[i], 1-rank, i))
							wait(Isend(w, outs[i], 1-rank, i))
						}
						waits.Wait()
						for i := range sizes {
							what := fmt.Sprintf("rank %d, round %d, message %d, %+v", rank, round, i, w.Stats())
							assert.NoError(t, same(what, wants[i], ins[i]))
						}
					}
				})
			}
			ranks.Wait()
			t.Logf("%+v", worlds[0].Stats())
		})
	}
}
