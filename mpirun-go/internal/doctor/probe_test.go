package doctor

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/gate"
)

var (
	loopback = netip.MustParseAddr("127.0.0.1")
	secret   = bytes.Repeat([]byte{7}, 32)
)

// serving listens on loopback as a rank, and returns a probe to it.
func serving(t *testing.T, rank int) *Probe {
	l, err := listen(loopback, 0, 0)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go (&listener{Listener: l, rank: rank, secret: secret, gate: gate.New(4, nil)}).serve()
	return &Probe{To: 3, Local: loopback, Remote: loopback, Port: l.Addr().(*net.TCPAddr).AddrPort().Port()}
}

func TestProbeOfListenerConnects(t *testing.T) {
	p := serving(t, 3)
	p.run(secret)
	assert.Equal(t, Connected, p.Outcome, p.Detail)
	assert.Positive(t, p.RoundTripNanos)
	assert.Less(t, time.Duration(p.OffsetNanos).Abs(), time.Second)
	assert.Positive(t, p.SegmentBytes)
}

func TestProbeBesideSilentConnectionsConnects(t *testing.T) {
	p := serving(t, 3)
	for range 50 {
		conn, err := net.Dial("tcp", netip.AddrPortFrom(p.Remote, p.Port).String())
		require.NoError(t, err)
		defer conn.Close()
	}
	p.run(secret)
	assert.Equal(t, Connected, p.Outcome, p.Detail)
}

func TestProbeOfClosedPortIsRefused(t *testing.T) {
	l, err := listen(loopback, 0, 0)
	require.NoError(t, err)
	p := &Probe{Local: loopback, Remote: loopback, Port: l.Addr().(*net.TCPAddr).AddrPort().Port()}
	l.Close()
	p.run(secret)
	assert.Equal(t, Refused, p.Outcome)
}

func TestProbeOfAnotherRankIsForeign(t *testing.T) {
	p := serving(t, 4)
	p.run(secret)
	assert.Equal(t, Foreign, p.Outcome)
}

func TestProbeWithoutSecretGetsNoAnswer(t *testing.T) {
	p := serving(t, 3)
	p.run(bytes.Repeat([]byte{8}, 32))
	assert.Equal(t, Failed, p.Outcome)
}

func TestProbeOfUnroutableAddressFails(t *testing.T) {
	p := &Probe{Local: loopback, Remote: netip.MustParseAddr("192.0.2.1"), Port: 9}
	p.run(secret)
	assert.NotEqual(t, Connected, p.Outcome, "loopback leads to no other machine")
}

// TestProbeThatStopsAtTheBulkIsStalled: the other end takes short messages only.
func TestProbeThatStopsAtTheBulkIsStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		go func() {
			for range timeQuestions {
				question, err := readQuestion(there, secret)
				if err != nil {
					return
				}
				_, _ = there.Write(encodeAnswer(secret, question, 3, time.Now().UnixNano()))
			}
		}()
		p := &Probe{To: 3}
		p.converse(here, secret)
		assert.Equal(t, Stalled, p.Outcome)
	})
}

func TestListenTakesAFreePortOfTheRange(t *testing.T) {
	taken, err := listen(loopback, 0, 0)
	require.NoError(t, err)
	defer taken.Close()
	first := taken.Addr().(*net.TCPAddr).AddrPort().Port()
	_, err = listen(loopback, first, first)
	require.Error(t, err)
}

func TestPlanPairsAddressesOfANetwork(t *testing.T) {
	at := func(text string, port uint16) Interface {
		prefix := netip.MustParsePrefix(text)
		return Interface{Name: "eth", Rail: text, Addr: prefix.Addr(), Bits: prefix.Bits(), Up: true, Port: port}
	}
	unused := at("10.0.0.9/24", 0)
	hosts := [][]Interface{
		{at("10.0.0.1/24", 1), at("10.1.0.1/24", 2), unused},
		{at("10.1.0.2/24", 3), at("10.0.0.2/24", 4)},
		{at("10.2.0.3/24", 5)},
	}
	list := plan(0, hosts)
	require.Len(t, list, 4)
	assert.Equal(t, Probe{From: 0, To: 1, Local: hosts[0][0].Addr, Remote: hosts[1][1].Addr, Port: 4}, list[0])
	assert.Equal(t, Probe{From: 0, To: 1, Local: hosts[0][1].Addr, Remote: hosts[1][0].Addr, Port: 3}, list[1])
	for _, p := range list[2:] {
		assert.Equal(t, 2, p.To, "routers may join the networks")
	}
	assert.True(t, list[3].Spare)
}

// TestPlanUsesTheNetworkInCommon: of the addresses of an interface, those are probed that a job
// would use.
func TestPlanUsesTheNetworkInCommon(t *testing.T) {
	at := func(text string, port uint16) Interface {
		prefix := netip.MustParsePrefix(text)
		return Interface{Name: "eth0", Rail: "eth0", Addr: prefix.Addr(), Bits: prefix.Bits(), Up: true, Port: port}
	}
	hosts := [][]Interface{
		{at("10.0.0.1/24", 1), at("fd00::1/64", 2)},
		{at("10.5.0.2/24", 3), at("fd00::2/64", 4)},
	}
	require.Equal(t, []Probe{{From: 0, To: 1, Local: hosts[0][1].Addr, Remote: hosts[1][1].Addr, Port: 4}}, plan(0, hosts))
	require.Equal(t, []Probe{{From: 1, To: 0, Local: hosts[1][1].Addr, Remote: hosts[0][1].Addr, Port: 2}}, plan(1, hosts))
}

func FuzzQuestion(f *testing.F) {
	f.Add(encodeQuestion(secret, kindTime, [nonceBytes]byte{1}))
	f.Add(append(encodeQuestion(secret, kindBulk, [nonceBytes]byte{2}), make([]byte, 10)...))
	f.Fuzz(func(t *testing.T, text []byte) {
		question, err := readQuestion(bytes.NewReader(text), secret)
		if err == nil {
			require.Equal(t, mac(secret, "question", text[:1+nonceBytes]), question)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	question := encodeQuestion(secret, kindTime, [nonceBytes]byte{1})[1+nonceBytes:]
	f.Add(encodeAnswer(secret, question, 3, 42))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		nanos, err := readAnswer(bytes.NewReader(text), secret, question, 3)
		if err == nil {
			require.True(t, bytes.HasPrefix(text, encodeAnswer(secret, question, 3, nanos)))
		}
	})
}
