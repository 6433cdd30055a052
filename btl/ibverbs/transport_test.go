package ibverbs

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/progress"
)

// setting is settings with one of the user's.
func setting(t *testing.T, key, value string) tunable.Set {
	t.Helper()
	set, err := tunable.Set{}.With(key, value, tunable.FromCommandLine)
	require.NoError(t, err)
	return set
}

var errLocked = errors.New("the user must be able to write to /dev/infiniband/uverbs*")

// oneLocked is a node whose device "locked" cannot be opened.
type oneLocked struct{ *simhca.Node }

func (n oneLocked) Open(name string) (verbs.Device, error) {
	if name == "locked" {
		return nil, errLocked
	}
	return n.Node.Open(name)
}

// openSome opens the ports of a node with two good devices, one with a port that is down, one
// without datagrams, and one that cannot be opened. If good is not set, the good ones lack
// datagrams too.
func openSome(t *testing.T, devices string, good bool) (transport.Opened, error) {
	f := simhca.NewFabric(simhca.Config{})
	t.Cleanup(f.Close)
	node := oneLocked{f.NewNode(
		simhca.DeviceConfig{Name: "locked"}, simhca.DeviceConfig{Name: "one", NoDatagrams: !good},
		simhca.DeviceConfig{Name: "iwarp", NoDatagrams: true}, simhca.DeviceConfig{Name: "down"},
		simhca.DeviceConfig{Name: "two", NoDatagrams: !good},
	)}
	node.HCA("down").SetLink(1, false)
	wakeup, err := progress.NewPipeWakeup()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, wakeup.Close()) })
	opened, err := openPorts(&transport.Env{
		Size: 1, Settings: setting(t, "ibverbs.devices", devices), Events: new(testRank), Wakeup: wakeup,
		AsyncProgress: func() func() { return func() {} },
	}, node)
	for _, rail := range opened.Rails {
		t.Cleanup(func() { require.NoError(t, rail.Module.Close()) })
	}
	return opened, err
}

// TestOpenLeavesOutUnusablePorts: ports that cannot be used are left out, and the reason is given
// unless a port is merely down.
func TestOpenLeavesOutUnusablePorts(t *testing.T) {
	opened, err := openSome(t, "all", true)
	require.NoError(t, err)
	var ports []string
	for _, rail := range opened.Rails {
		ports = append(ports, rail.Port)
	}
	require.Equal(t, []string{"one/1", "two/1"}, ports)
	require.Len(t, opened.LeftOut, 2)
	require.ErrorIs(t, opened.LeftOut[0], errLocked)
	require.ErrorContains(t, opened.LeftOut[0], "locked: ")
	require.ErrorContains(t, opened.LeftOut[1], "rail ibverbs:iwarp/1: device iwarp: datagrams: ibv_create_qp: ")
}

// TestOpenWithoutUsablePort: the error says in one line what is wrong with each port.
func TestOpenWithoutUsablePort(t *testing.T) {
	opened, err := openSome(t, "all", false)
	require.Empty(t, opened.Rails)
	require.ErrorIs(t, err, errLocked)
	require.NotContains(t, err.Error(), "\n")
	require.Regexp(t, "^rail ibverbs: no RDMA port can be used: locked: .*; rail ibverbs:one/1: .*; "+
		"rail ibverbs:iwarp/1: .*; rail ibverbs:two/1: ", err.Error())
}

// TestOpenNamedPortThatIsUnusable: a port that the user has named has to work.
func TestOpenNamedPortThatIsUnusable(t *testing.T) {
	opened, err := openSome(t, "one,iwarp,two", true)
	require.ErrorContains(t, err, "rail ibverbs:iwarp/1: device iwarp: ")
	require.Empty(t, opened.Rails)
	require.Empty(t, opened.LeftOut)
}

// TestSettings: the GID entry 0 can be asked for, and the module chooses one by default. The user's
// keep-alive of 0 disables probing, and is not the default, which Config's 0 is.
func TestSettings(t *testing.T) {
	assert.Nil(t, configOf(tunable.Set{}).GIDIndex)
	assert.Equal(t, new(0), configOf(setting(t, "ibverbs.gid", "0")).GIDIndex)
	assert.Equal(t, 2*time.Second, configOf(tunable.Set{}).KeepAlive)
	assert.Equal(t, 30*time.Millisecond, configOf(setting(t, "ibverbs.keepalive", "30ms")).KeepAlive)
	assert.Negative(t, configOf(setting(t, "ibverbs.keepalive", "0")).KeepAlive)
}

// TestLauncherParsesSamePorts: the launcher, which does not import this package, refuses the same
// lists of ports (package tunable).
func TestLauncherParsesSamePorts(t *testing.T) {
	lists := "a a:2 a,b a|b:2,c|d a|b,b|a a|b,c|b a,b|c|a a,a:1 a:0 a:x a: :1 a| a:1:2 a:+1 a:01"
	for _, list := range strings.Fields(lists) {
		set, err := tunable.Set{}.With("ibverbs.devices", list, tunable.FromCommandLine)
		ports := strings.Split(list, ",")
		if err == nil {
			ports = set.List("ibverbs.devices")
		}
		var refused error
		for local := range 6 {
			_, err := ParsePorts(ports, local)
			refused = errors.Join(refused, err)
		}
		assert.Equal(t, err != nil, refused != nil, "%s: %v, %v", list, err, refused)
	}
}
