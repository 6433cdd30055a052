package comm

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/tunable"
)

// Entry 0 of a port's GIDs can be asked for; unless set, one is chosen.
func TestGIDSetting(t *testing.T) {
	assert.Nil(t, verbsConfig(settings(t)).GIDIndex)
	assert.Equal(t, new(0), verbsConfig(settings(t, "ibverbs.gid", "0")).GIDIndex)
}

// Without a keep-alive, which a user writes as 0, is not with the default of it, which a module takes 0 for.
func TestKeepAliveSetting(t *testing.T) {
	assert.Equal(t, 2*time.Second, verbsConfig(settings(t)).KeepAlive)
	assert.Equal(t, 30*time.Millisecond, verbsConfig(settings(t, "ibverbs.keepalive", "30ms")).KeepAlive)
	assert.Negative(t, verbsConfig(settings(t, "ibverbs.keepalive", "0")).KeepAlive)
}

// The launcher, which cannot ask the transport, finds the same lists of ports wrong.
func TestPortsAreReadAlike(t *testing.T) {
	for _, list := range []string{"a", "a:2", "a,b", "a|b:2,c|d", "a|b,b|a", "a|b,c|b", "a,b|c|a", "a,a:1", "a:0", "a:x", "a:", ":1", "a|", "a:1:2", "a:+1", "a:01"} {
		set, err := tunable.Set{}.With("ibverbs.devices", list, tunable.FromCommandLine)
		if err == nil {
			for local := range 6 {
				_, err := ibverbs.ParsePorts(set.List("ibverbs.devices"), local)
				assert.NoError(t, err, list)
			}
			continue
		}
		refused := false
		for local := range 6 {
			_, err := ibverbs.ParsePorts(strings.Split(list, ","), local)
			refused = refused || err != nil
		}
		assert.True(t, refused, list)
	}
}
