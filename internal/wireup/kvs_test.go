package wireup

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// The model counts keys and bytes from scratch each time.
func TestKVSAgreesWithModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxKeys, maxBytes := rapid.IntRange(0, 6).Draw(t, "keys"), rapid.IntRange(0, 40).Draw(t, "bytes")
		k := newKVS(maxKeys, maxBytes)
		visible, staged := map[string]string{}, map[string]string{}
		count := func(maps ...map[string]string) (keys, bytes int) {
			for _, m := range maps {
				for key, value := range m {
					keys, bytes = keys+1, bytes+len(key)+len(value)
				}
			}
			return keys, bytes
		}
		key := rapid.SampledFrom([]string{"a", "b", "cc", "ddd"})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				key, value := key.Draw(t, "key"), rapid.StringMatching(`x{0,12}`).Draw(t, "value")
				next := map[string]string{key: value}
				for other, v := range staged {
					if other != key {
						next[other] = v
					}
				}
				keys, bytes := count(visible, next)
				fits := keys <= maxKeys && bytes <= maxBytes
				assert.Equal(t, fits, k.put(key, value))
				if fits {
					staged = next
				}
			},
			"commit": func(t *rapid.T) {
				k.commit()
				for key, value := range staged {
					visible[key] = value
				}
				staged = map[string]string{}
			},
			"": func(t *rapid.T) {
				for _, key := range []string{"a", "b", "cc", "ddd", "e"} {
					want, wantOK := visible[key]
					got, ok := k.get(key)
					assert.Equal(t, wantOK, ok)
					assert.Equal(t, want, got)
				}
				keys, bytes := count(visible, staged)
				assert.Equal(t, keys, k.keys)
				assert.Equal(t, bytes, k.bytes)
			},
		})
	})
}
