package comm

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/progress"
)

// keyFault makes a remote key wrong: that of the left-th read or write from now.
type keyFault struct{ left atomic.Int64 }

type faultyProvider struct {
	verbs.Provider
	k *keyFault
}

type faultyDevice struct {
	verbs.Device
	k *keyFault
}

type faultyPD struct {
	verbs.PD
	k *keyFault
}

type faultyQP struct {
	verbs.QP
	k *keyFault
}

func (p faultyProvider) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	if err != nil {
		return d, err
	}
	return faultyDevice{d, p.k}, nil
}

func (d faultyDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	return faultyPD{pd, d.k}, nil
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

// TestWrongKeysOnOneOfTwoRails: long messages go both ways over two rails. Now and then a remote
// access has a wrong key, which takes its rail down for a moment. Every byte arrives.
func TestWrongKeysOnOneOfTwoRails(t *testing.T) {
	for _, protocol := range []string{"get", "put"} {
		t.Run(protocol, func(t *testing.T) {
			f := simhca.NewFabric(simhca.Config{})
			t.Cleanup(f.Close)
			var fault keyFault
			worlds := hereWorld(t, 2, func(j *job, bell *progress.PipeWakeup) []btl.Module {
				var all []btl.Module
				for i := range 2 {
					var p verbs.Provider = f.NewNode(simhca.DeviceConfig{Name: fmt.Sprintf("sim%d", i)})
					if i == 0 && j.rank == 0 {
						p = faultyProvider{p, &fault}
					}
					m, err := ibverbs.New(ibverbs.Config{
						Rank: j.rank, Size: 2, Events: j.pml, Wakeup: bell, Secret: []byte("of the job"),
						Provider: p, Device: fmt.Sprintf("sim%d", i), Rail: fmt.Sprintf("ibverbs:sim%d", i),
					})
					require.NoError(t, err)
					all = append(all, m)
				}
				return all
			}, WithSetting("pml.protocol", protocol))
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 2))
			sizes := []int{32 << 10, 256 << 10, 1 << 20, 4 << 20}
			word := func(from, round, i, k int) byte { return byte(1 + (from*7+round*13+i*31+k>>13)%251) }
			const rounds = 5
			done := make(chan error, 2)
			for rank, w := range worlds {
				go func() {
					done <- func() error {
						var ins, outs [][]byte
						for _, n := range sizes {
							ins, outs = append(ins, make([]byte, n)), append(outs, make([]byte, n))
						}
						for round := range rounds {
							for i := range sizes {
								clear(ins[i])
								for k := range outs[i] {
									outs[i][k] = word(rank, round, i, k)
								}
							}
							if rank == 0 {
								fault.left.Store(int64(1 + rng.IntN(40)))
							}
							errs := make(chan error, 2*len(sizes))
							for i := range sizes {
								r, err := Irecv(w, ins[i], 1-rank, i)
								if err != nil {
									return err
								}
								s, err := Isend(w, outs[i], 1-rank, i)
								if err != nil {
									return err
								}
								go func() { _, err := r.Wait(); errs <- err }()
								go func() { _, err := s.Wait(); errs <- err }()
							}
							for range 2 * len(sizes) {
								if err := <-errs; err != nil {
									return err
								}
							}
							for i := range sizes {
								for k, b := range ins[i] {
									if b != word(1-rank, round, i, k) {
										return fmt.Errorf("rank %d, round %d, message %d: byte %d is %d, not %d: %+v",
											rank, round, i, k, b, word(1-rank, round, i, k), w.Stats())
									}
								}
							}
						}
						return nil
					}()
				}()
			}
			for range worlds {
				require.NoError(t, <-done)
			}
			t.Logf("%+v", worlds[0].Stats())
		})
	}
}
