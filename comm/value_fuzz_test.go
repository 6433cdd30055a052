package comm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecodeValue checks that any bytes are a value or ErrType, and do not cause a panic.
func FuzzDecodeValue(f *testing.F) {
	type record struct {
		Name string
		N    []int
		M    map[string]float64
		P    *int
	}
	one := 1
	for _, r := range []record{{}, {"x", []int{1, 2}, map[string]float64{"y": 1}, &one}} {
		b := must(encodeValue(r))
		f.Add(b)
		f.Add(b[:len(b)-1])
		f.Add(b[:len(valueMagic)+1])
	}
	f.Add([]byte{})
	f.Add([]byte(valueMagic))
	f.Add(append([]byte(valueMagic), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decodeValue[record](b)
		if err != nil {
			require.ErrorIs(t, err, ErrType)
			return
		}
		must(encodeValue(v))
	})
}
