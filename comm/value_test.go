package comm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

type order struct {
	Name  string
	Items []string
	Total map[string]float64
	Next  *order
}

// Celsius and Fahrenheit have the same encoding in gob.
type (
	Celsius    struct{ Degrees float64 }
	Fahrenheit struct{ Degrees float64 }
)

func exchangeValue[T any](t rank, w *comm.Comm, v T) {
	t.Helper()
	if w.Rank() == 0 {
		require.NoError(t, comm.SendValue(w, v, 1, 7))
		return
	}
	got, st := must2(comm.RecvValue[T](w, comm.AnySource, comm.AnyTag))
	assert.Equal(t, v, got)
	assert.Equal(t, request.Status{Source: 0, Tag: 7, Count: int(st.Bytes), Bytes: st.Bytes}, st)
}

func TestValuesOfManyTypesArrive(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		exchangeValue(t, w, 42)
		exchangeValue(t, w, 0)
		exchangeValue(t, w, "text")
		exchangeValue(t, w, []string{"a", "", "b"})
		exchangeValue(t, w, [][]float64{{1}, {2, 3}})
		exchangeValue(t, w, map[string][]int{"x": {1, 2}})
		exchangeValue(t, w, order{"n", []string{"i"}, map[string]float64{"t": 1.5}, &order{Name: "next"}})
		exchangeValue(t, w, &order{Name: "by pointer"})
		exchangeValue(t, w, (*order)(nil))
		exchangeValue(t, w, string(make([]byte, 1<<20)))
	})
}

func TestValuesAreOrderedAmongMessages(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		require.NoError(t, comm.SendValue(w, "v", 0, 3))
		require.NoError(t, comm.Send(w, []byte("plain"), 0, 3))
		st := must(w.Probe(0, 3))
		b := make([]byte, st.Bytes)
		must(comm.Recv(w, b, 0, 3))
		assert.Contains(t, string(b), "string", "the type's name")
		// RecvValue also receives a message that is no value.
		v, st, err := comm.RecvValue[string](w, 0, comm.AnyTag)
		assert.ErrorIs(t, err, comm.ErrType)
		comm.EqualError(t, err, "world: recv value (peer 0, tag 3): invalid type: the message is not one of SendValue")
		assert.Zero(t, v)
		assert.Equal(t, request.Status{Source: 0, Tag: 3, Count: 5, Bytes: 5}, st)
		_, found := must2(w.Iprobe(comm.AnySource, comm.AnyTag))
		assert.False(t, found)
	})
}

func TestRecvValueOfAnotherTypeFails(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		require.NoError(t, comm.SendValue(w, Celsius{20}, 0, 0))
		_, _, err := comm.RecvValue[Fahrenheit](w, 0, 0)
		assert.ErrorIs(t, err, comm.ErrType)
		assert.ErrorContains(t, err, "comm_test.Celsius")
		assert.ErrorContains(t, err, "comm_test.Fahrenheit")
		require.NoError(t, comm.SendValue(w, int32(20), 0, 0))
		assert.ErrorIs(t, errOf2(comm.RecvValue[int64](w, 0, 0)), comm.ErrType)
	})
}

func TestSendValueThatGobRefusesSendsNothing(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		assert.ErrorIs(t, comm.SendValue(w, func() {}, 0, 0), comm.ErrType)
		err := comm.SendValue(w, make(chan int), 0, 0)
		assert.ErrorIs(t, err, comm.ErrType)
		comm.EqualError(t, err, "world: send value (peer 0, tag 0): invalid type chan int: encoding/gob cannot encode it")
		assert.ErrorIs(t, comm.SendValue(w, struct{ hidden int }{1}, 0, 0), comm.ErrType)
		assert.ErrorIs(t, comm.SendValue[any](w, Celsius{1}, 0, 0), comm.ErrType, "not registered")
		assert.ErrorIs(t, comm.SendValue(w, []*int{nil}, 0, 0), comm.ErrType)
		assert.ErrorIs(t, comm.SendValue(nil, func() {}, -7, -7), comm.ErrType, "the type comes first")
		_, found := must2(w.Iprobe(comm.AnySource, comm.AnyTag))
		assert.False(t, found)
	})
}

func TestValueToAndFromProcNull(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		require.NoError(t, comm.SendValue(w, "x", comm.ProcNull, 0))
		v, st := must2(comm.RecvValue[string](w, comm.ProcNull, 0))
		assert.Zero(t, v)
		assert.Equal(t, request.Status{Source: comm.ProcNull, Tag: comm.AnyTag}, st)
	})
}
