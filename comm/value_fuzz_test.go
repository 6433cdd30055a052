package comm

import (
	"errors"
	"testing"
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
		b, err := encodeValue(r)
		if err != nil {
			f.Fatal(err)
		}
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
			if !errors.Is(err, ErrType) {
				t.Fatalf("not ErrType: %v", err)
			}
			return
		}
		if _, err := encodeValue(v); err != nil {
			t.Fatal(err)
		}
	})
}
