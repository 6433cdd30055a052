package wireup

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func sampleCard() Card {
	return Card{Host: "4f2a", PID: 4711, Oversubscribed: true, Modules: []Module{
		{BTL: "sm", Address: []byte{1, 2, 3}},
		{BTL: "tcp", Address: []byte("192.0.2.1:4000")},
		{BTL: "self"},
	}}
}

func TestEncodeDecodeCardRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Card{
			Host:           rapid.StringN(0, 60, maxHostBytes).Draw(t, "host"),
			PID:            rapid.IntRange(0, maxPID).Draw(t, "pid"),
			Oversubscribed: rapid.Bool().Draw(t, "oversubscribed"), Checked: rapid.Bool().Draw(t, "checked"),
		}
		for range rapid.IntRange(0, maxModules).Draw(t, "modules") {
			want.Modules = append(want.Modules, Module{
				BTL:     rapid.StringN(1, 8, maxBTLBytes).Draw(t, "btl"),
				Address: append([]byte(nil), rapid.SliceOfN(rapid.Byte(), 0, maxAddressBytes).Draw(t, "address")...),
			})
		}
		b, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeCard(b)
		if err != nil {
			t.Fatal(err)
		}
		assert.Equal(t, want, got)
	})
}

// The encoding is a contract between versions of the library: these bytes must not change.
func TestEncodeCardBytes(t *testing.T) {
	b, err := sampleCard().Encode()
	require.NoError(t, err)
	assert.Equal(t, "\x02\x044f2a\xe7\x24\x01\x03\x02sm\x03\x01\x02\x03\x03tcp\x0e192.0.2.1:4000\x04self\x00", string(b))
}

func TestDecodeCardKeepsNoReference(t *testing.T) {
	b, err := sampleCard().Encode()
	require.NoError(t, err)
	got, err := DecodeCard(b)
	require.NoError(t, err)
	clear(b)
	assert.Equal(t, sampleCard(), got)
}

func TestLargestCardFitsInOnePut(t *testing.T) {
	c := Card{Host: strings.Repeat("h", maxHostBytes), PID: maxPID}
	for range maxModules {
		c.Modules = append(c.Modules, Module{BTL: strings.Repeat("b", maxBTLBytes), Address: make([]byte, maxAddressBytes)})
	}
	b, err := c.Encode()
	require.NoError(t, err)
	assert.LessOrEqual(t, len(b), MaxValueBytes)
}

func TestEncodeCardOverBoundFails(t *testing.T) {
	for name, change := range map[string]func(*Card){
		"host":         func(c *Card) { c.Host = strings.Repeat("h", maxHostBytes+1) },
		"negative PID": func(c *Card) { c.PID = -1 },
		"large PID":    func(c *Card) { c.PID = maxPID + 1 },
		"modules":      func(c *Card) { c.Modules = make([]Module, maxModules+1) },
		"no name":      func(c *Card) { c.Modules[0].BTL = "" },
		"long name":    func(c *Card) { c.Modules[0].BTL = strings.Repeat("b", maxBTLBytes+1) },
		"long address": func(c *Card) { c.Modules[0].Address = make([]byte, maxAddressBytes+1) },
	} {
		c := sampleCard()
		change(&c)
		_, err := c.Encode()
		assert.ErrorIs(t, err, ErrCard, name)
	}
}

func TestDecodeCardOfBadBytesFails(t *testing.T) {
	good, err := sampleCard().Encode()
	require.NoError(t, err)
	for n := range good {
		_, err := DecodeCard(good[:n])
		assert.ErrorIs(t, err, ErrCard, "cut to %d bytes", n)
	}
	_, err = DecodeCard(append(bytes.Clone(good), 0))
	assert.ErrorIs(t, err, ErrCard)
	other := bytes.Clone(good)
	other[0] = 9
	_, err = DecodeCard(other)
	assert.ErrorContains(t, err, "version 9, this program knows 2")
	for name, b := range map[string]string{
		"more modules than a card may have": "\x02\x00\x00\x00\x41",
		"length of 2^63":                    "\x02\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"endless number":                    "\x02" + strings.Repeat("\xff", 20),
		"number longer than needed":         "\x02\x00\x80\x00\x00\x00",
		"module without name":               "\x02\x00\x00\x00\x01\x00\x00",
		"an unknown flag":                   "\x02\x00\x00\x04\x00",
	} {
		_, err := DecodeCard([]byte(b))
		assert.ErrorIs(t, err, ErrCard, name)
	}
}

func FuzzDecodeCard(f *testing.F) {
	good, err := sampleCard().Encode()
	require.NoError(f, err)
	f.Add(good)
	f.Add([]byte{})
	f.Add([]byte("\x02\x00\x00\x00\x40\x01a\x00"))
	f.Add([]byte("\x02\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCard(b)
		if err != nil {
			require.ErrorIs(t, err, ErrCard)
			return
		}
		again, err := c.Encode()
		require.NoError(t, err)
		require.Equal(t, b, again) // one card has one encoding
	})
}

func TestHostIDDependsOnBootNamespaceAndUser(t *testing.T) {
	id, err := HostID()
	require.NoError(t, err)
	again, err := HostID()
	require.NoError(t, err)
	assert.Equal(t, id, again)
	assert.Len(t, id, 32)

	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	base := hostID(strings.TrimSpace(string(boot)), "pid:[1]", 1000)
	for _, other := range []string{
		hostID("another boot", "pid:[1]", 1000),
		hostID(strings.TrimSpace(string(boot)), "pid:[2]", 1000),
		hostID(strings.TrimSpace(string(boot)), "pid:[1]", 1001),
	} {
		assert.NotEqual(t, base, other)
	}
}
