package comm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/progress"
)

var errLocked = errors.New("the user must be able to write to /dev/infiniband/uverbs*")

// oneLocked is a node of which one device cannot be opened.
type oneLocked struct {
	*simhca.Node
	locked string
}

func (n oneLocked) Open(name string) (verbs.Device, error) {
	if name == n.locked {
		return nil, errLocked
	}
	return n.Node.Open(name)
}

// verbsPorts opens the ports of a node with two good devices, one with a port that is down, one
// without datagrams, and one that cannot be opened.
func verbsPorts(t *testing.T, devices string, good bool) (r *rails, err error) {
	f := simhca.NewFabric(simhca.Config{})
	t.Cleanup(f.Close)
	node := oneLocked{f.NewNode(
		simhca.DeviceConfig{Name: "locked"}, simhca.DeviceConfig{Name: "one", NoDatagrams: !good}, simhca.DeviceConfig{Name: "iwarp", NoDatagrams: true},
		simhca.DeviceConfig{Name: "down"}, simhca.DeviceConfig{Name: "two", NoDatagrams: !good},
	), "locked"}
	node.HCA("down").SetLink(1, false)
	hereWorld(t, 1, func(j *job, bell *progress.PipeWakeup) []btl.Module {
		j.eng.Lock()
		defer j.eng.Unlock()
		r = &rails{job: j, allowed: []string{"ibverbs"}, cards: make([]wireup.Card, 1)}
		err = r.openPorts(node, 0, bell)
		return nil
	}, WithSetting("ibverbs.devices", devices))
	return r, err
}

// TestVerbsWithUnusablePorts: those are left out, the others are rails without a gap in their
// numbers, and what was left out is told, but for a port that is merely down.
func TestVerbsWithUnusablePorts(t *testing.T) {
	r, err := verbsPorts(t, "all", true)
	require.NoError(t, err)
	var ports []string
	for nth, l := range r.list {
		require.Equal(t, nth, l.nth)
		ports = append(ports, l.port)
	}
	require.Equal(t, []string{"one/1", "two/1"}, ports)
	require.Len(t, r.refused["ibverbs"], 2)
	require.ErrorIs(t, r.refused["ibverbs"][0], errLocked)
	require.ErrorContains(t, r.refused["ibverbs"][0], "locked: ")
	require.ErrorContains(t, r.refused["ibverbs"][1], "rail ibverbs:iwarp/1: device iwarp: datagrams: ibv_create_qp: ")
	require.True(t, r.warnsOfRefused("ibverbs"))
}

// TestVerbsWithUnusablePortsAlone: the error says in one line what is wrong with each.
func TestVerbsWithUnusablePortsAlone(t *testing.T) {
	r, err := verbsPorts(t, "all", false)
	require.Empty(t, r.list)
	require.ErrorIs(t, err, errLocked)
	require.NotContains(t, err.Error(), "\n")
	require.Regexp(t, "^rail ibverbs: no RDMA port can be used: locked: .*; rail ibverbs:one/1: .*; rail ibverbs:iwarp/1: .*; rail ibverbs:two/1: ", err.Error())
}

// TestVerbsWithUnusablePortNamed: a port that the user has named has to work.
func TestVerbsWithUnusablePortNamed(t *testing.T) {
	r, err := verbsPorts(t, "one,iwarp,two", true)
	require.ErrorContains(t, err, "rail ibverbs:iwarp/1: device iwarp: ")
	require.Empty(t, r.list)
	require.Empty(t, r.refused)
}

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
