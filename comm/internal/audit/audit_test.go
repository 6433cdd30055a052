package audit

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func typeOf[T any]() Type { return TypeOf(reflect.TypeFor[T]()) }

type celsius float64

type point struct {
	_    struct{}
	X, Y float64
}

type padded struct {
	X float64
	_ struct{}
}

type mixed struct {
	A int8
	B int32
}

type otherMixed struct {
	A int16
	B int32
}

func TestTypesThatFit(t *testing.T) {
	same := func(a, b Type) {
		assert.Equal(t, a.Layout, b.Layout, "%v, %v", a, b)
		assert.Equal(t, a.Kind, b.Kind, "%v, %v", a, b)
	}
	same(typeOf[float64](), typeOf[celsius]())
	same(typeOf[float64](), typeOf[[3]celsius]())
	same(typeOf[float64](), typeOf[point]())
	same(typeOf[float64](), typeOf[[2][1]point]())
	same(typeOf[int](), typeOf[int64]())
	same(typeOf[mixed](), typeOf[[1]mixed]())
	same(typeOf[mixed](), typeOf[struct{ C mixed }]())
	same(typeOf[byte](), typeOf[[16]byte]())
	assert.Equal(t, Bytes, typeOf[byte]().Kind)
	assert.Equal(t, "[]byte", typeOf[byte]().String())
	assert.Equal(t, "[]audit.mixed", typeOf[mixed]().String())
}

func TestTypesThatDiffer(t *testing.T) {
	all := []Type{
		typeOf[bool](), typeOf[byte](), typeOf[int8](), typeOf[int16](), typeOf[uint16](), typeOf[int32](), typeOf[uint32](),
		typeOf[int64](), typeOf[uint64](), typeOf[float32](), typeOf[float64](), typeOf[complex64](), typeOf[complex128](),
		typeOf[mixed](), typeOf[otherMixed](), typeOf[padded](), typeOf[[2]mixed](), typeOf[struct {
			A float32
			B uint32
		}](),
	}
	for i, a := range all {
		for j, b := range all {
			if i == j {
				continue
			}
			assert.NotEqual(t, a.Layout, b.Layout, "%v, %v", a, b)
			assert.NotEqual(t, a.Kind, b.Kind, "%v, %v", a, b)
			assert.Equal(t, a.Kind == Bytes || b.Kind == Bytes, a.Kind.Fits(b.Kind), "%v, %v", a, b)
			assert.False(t, a.fits(b, true), "%v, %v", a, b)
		}
	}
	for _, a := range all {
		assert.True(t, a.Kind > NoKind && a.Kind <= MaxKind)
		assert.True(t, a.Kind.Fits(NoKind))
	}
}

func sample() Call {
	return Call{
		Name: "Allreduce", Type: typeOf[mixed](), Op: opOf("github.com/mpigo/mpigo/comm.Sum[...]", "", 0), Root: NoRoot, Bytes: 16,
		InOrder: true,
	}
}

func TestRecordOfCallDecodesToTheCall(t *testing.T) {
	for _, c := range []Call{sample(), {Name: "Barrier", Root: 3, Bytes: NoLength, InPlace: true}} {
		var got Call
		b := c.Encode()
		require.Len(t, b, RecordBytes)
		require.True(t, got.Decode(b))
		assert.Equal(t, c, got)
	}
}

func TestLongNamesAreCutAndStillDiffer(t *testing.T) {
	a, b := sample(), sample()
	a.Op = opOf(strings.Repeat("x", 200)+"a", "", 0)
	b.Op = opOf(strings.Repeat("x", 200)+"b", "", 0)
	err := Compare(append(a.Encode(), b.Encode()...))
	assert.ErrorIs(t, err, ErrOp)
}

func TestCompareNamesFirstRankThatDiffers(t *testing.T) {
	same, other, third := sample(), sample(), sample()
	other.Root, third.Name = 1, "Barrier"
	records := func(calls ...Call) (b []byte) {
		for _, c := range calls {
			b = append(b, c.Encode()...)
		}
		return b
	}
	assert.NoError(t, Compare(records(same, same, same)))
	err := Compare(records(same, same, third, other))
	assert.ErrorIs(t, err, ErrCall)
	assert.EqualError(t, err, "rank 2 calls Barrier, rank 0 Allreduce")
	bad := records(same, same)
	bad[RecordBytes] = 255
	assert.EqualError(t, Compare(bad), "rank 1 describes its call wrongly")
}

// TestCompareFindsTypesThatDifferBehindBytes: bytes fit all types, but the types differ.
func TestCompareFindsTypesThatDifferBehindBytes(t *testing.T) {
	var records []byte
	for _, typ := range []Type{typeOf[byte](), typeOf[float64](), typeOf[byte](), typeOf[celsius](), typeOf[int32]()} {
		assert.NoError(t, Compare(records))
		call := Call{Name: "Bcast", Type: typ, Root: 0, Bytes: 16}
		records = append(records, call.Encode()...)
	}
	err := Compare(records)
	assert.ErrorIs(t, err, ErrType)
	assert.EqualError(t, err, "rank 4 calls Bcast of []int32, rank 1 of []float64")
}

func TestOperationsOfGenericFunctionsFitAll(t *testing.T) {
	sum, most := opOf("m/comm.Sum[...]", "", 0), opOf("m/comm.Max[...]", "", 0)
	passedOn := opOf("main.reduce[...].func1", "main.go", 7)
	assert.False(t, sum.fits(most))
	assert.True(t, sum.fits(passedOn))
	assert.True(t, passedOn.fits(most))
	assert.False(t, passedOn.fits(Op{}), "a call without an operation")
	assert.Equal(t, "comm.Sum", sum.Name)
	assert.Equal(t, "audit.TestOperationsOfGenericFunctionsFitAll", OpAt(reflect.ValueOf(TestOperationsOfGenericFunctionsFitAll).Pointer()).Name)
}

func TestFunctionLiteralIsKnownByItsLine(t *testing.T) {
	a, inlined := opOf("main.f.func1", "/src/main.go", 7), opOf("main.main.f.func2", "/src/main.go", 7)
	assert.Equal(t, a, inlined, "the compiler has inlined f")
	assert.Equal(t, "the function at main.go:7", a.Name)
	assert.False(t, a.fits(opOf("main.f.func2", "/src/main.go", 8)))
	assert.False(t, a.fits(opOf("m/comm.Sum[...]", "op.go", 7)))
}

func TestMismatchSaysWhatWasSentAndExpected(t *testing.T) {
	m := Mismatch{Found: true, Sender: 1, Receiver: 2, Sent: 12, Due: 8, ElemBytes: 4}
	var got Mismatch
	require.True(t, got.Decode(m.Encode()))
	assert.Equal(t, m, got)
	none := Mismatch{}
	assert.NoError(t, CompareMismatches("Alltoallv", append(none.Encode(), none.Encode()...)))
	err := CompareMismatches("Alltoallv", append(none.Encode(), m.Encode()...))
	assert.EqualError(t, err, "in Alltoallv, rank 1 sends 3 elements to rank 2, which expects 2")
	m.Due = 9
	assert.EqualError(t, CompareMismatches("Alltoallv", m.Encode()), "in Alltoallv, rank 1 sends 12 bytes to rank 2, which expects 9")
}

func TestBufferKnowsThatItChanged(t *testing.T) {
	mem := make([]byte, 100)
	b := Watch(mem)
	assert.True(t, b.IsIntact())
	mem[99] = 1
	assert.False(t, b.IsIntact())
	b.Again()
	assert.True(t, b.IsIntact())
	none := Watch(nil)
	assert.True(t, none.IsIntact())
}

func FuzzDecodeCall(f *testing.F) {
	c := sample()
	f.Add(c.Encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Call
		if !c.Decode(b) {
			return
		}
		var again Call
		require.True(t, again.Decode(c.Encode()))
		require.Equal(t, c, again)
		_ = Compare(append(b, b...))
	})
}

func FuzzDecodeMismatch(f *testing.F) {
	m := Mismatch{Found: true, Sender: 1, Receiver: 2, Sent: 12, Due: 8, ElemBytes: 4}
	f.Add(m.Encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Mismatch
		if m.Decode(b) {
			require.Equal(t, b, m.Encode())
		}
		_ = CompareMismatches("Alltoallv", b)
	})
}
