package comm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// TestSmallMessagesAllocateNothing: whatever the call.
func TestSmallMessagesAllocateNothing(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		small, big, points := make([]byte, 8), make([]byte, 4000), make([]point, 1)
		must := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		done := func(r request.Request, err error) {
			must(err)
			_, err = r.Wait()
			must(err)
		}
		recv := func(b []byte) {
			_, err := comm.Recv(w, b, 0, 1)
			must(err)
		}
		psend, err := comm.SendInit(w, small, 0, 1)
		require.NoError(t, err)
		precv, err := comm.RecvInit(w, small, comm.AnySource, comm.AnyTag)
		require.NoError(t, err)
		for name, exchange := range map[string]func(){
			"send":           func() { must(comm.Send(w, small, 0, 1)); recv(small) },
			"send of 4000":   func() { must(comm.Send(w, big, 0, 1)); recv(big) },
			"rsend":          func() { must(comm.Rsend(w, small, 0, 1)); recv(small) },
			"send to nobody": func() { must(comm.Send(w, points, comm.ProcNull, 1)) },
			"send of structs": func() {
				must(comm.Send(w, points, 0, 1))
				_, err := comm.Recv(w, points, 0, 1)
				must(err)
			},
			"isend": func() {
				r, err := comm.Irecv(w, small, 0, 1)
				must(err)
				done(comm.Isend(w, small, 0, 1))
				done(r, nil)
			},
			"issend": func() {
				s, err := comm.Issend(w, small, 0, 1)
				must(err)
				recv(small)
				done(s, nil)
			},
			"sendrecv": func() {
				_, err := comm.Sendrecv(w, small, 0, 1, big, 0, 1)
				must(err)
			},
			"persistent": func() {
				must(precv.Start())
				must(psend.Start())
				done(psend, nil)
				done(precv, nil)
			},
			"test": func() {
				r, err := comm.Irecv(w, small, 0, 1)
				must(err)
				must(comm.Send(w, small, 0, 1))
				for flag := false; !flag; {
					_, flag, err = r.Test()
					must(err)
				}
			},
			"iprobe": func() {
				must(comm.Send(w, small, 0, 1))
				for found := false; !found; {
					_, found, err = w.Iprobe(0, 1)
					must(err)
				}
				_, err = w.Probe(0, 1)
				must(err)
				recv(small)
			},
		} {
			for range 10 {
				exchange()
			}
			assert.Zero(t, testing.AllocsPerRun(200, exchange), name)
		}
		require.NoError(t, psend.Free())
		require.NoError(t, precv.Free())
	})
}
