package comm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

func TestSmallMessagesAllocateNothing(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		small, big, points := make([]byte, 8), make([]byte, 4000), make([]point, 1)
		done := func(r request.Request, err error) {
			check(err)
			must(r.Wait())
		}
		recv := func(b []byte) { must(comm.Recv(w, b, 0, 1)) }
		psend := must(comm.SendInit(w, small, 0, 1))
		precv := must(comm.RecvInit(w, small, comm.AnySource, comm.AnyTag))
		for name, exchange := range map[string]func(){
			"send":             func() { sendToSelf(w, small) },
			"send of 4000":     func() { sendToSelf(w, big) },
			"rsend":            func() { check(comm.Rsend(w, small, 0, 1)); recv(small) },
			"send to ProcNull": func() { check(comm.Send(w, points, comm.ProcNull, 1)) },
			"send of structs":  func() { sendToSelf(w, points) },
			"sendrecv":         func() { must(comm.Sendrecv(w, small, 0, 1, big, 0, 1)) },
			"isendrecv":        func() { done(comm.Isendrecv(w, small, 0, 1, big, 0, 1)) },
			"isend": func() {
				r := must(comm.Irecv(w, small, 0, 1))
				done(comm.Isend(w, small, 0, 1))
				done(r, nil)
			},
			"issend": func() {
				s := must(comm.Issend(w, small, 0, 1))
				recv(small)
				done(s, nil)
			},
			"persistent": func() {
				check(precv.Start())
				check(psend.Start())
				done(psend, nil)
				done(precv, nil)
			},
			"test": func() {
				r := must(comm.Irecv(w, small, 0, 1))
				check(comm.Send(w, small, 0, 1))
				for flag := false; !flag; {
					_, flag = must2(r.Test())
				}
			},
			"iprobe": func() {
				check(comm.Send(w, small, 0, 1))
				for found := false; !found; {
					_, found = must2(w.Iprobe(0, 1))
				}
				must(w.Probe(0, 1))
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
