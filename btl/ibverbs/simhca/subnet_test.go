package simhca

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// datagrams returns machines with a UD queue pair each, on devices of these configurations.
func datagrams(t *testing.T, devices ...DeviceConfig) []*end {
	f := NewFabric(Config{Virtual: true, Link: verbs.LinkInfiniBand})
	t.Cleanup(f.Close)
	var ends []*end
	for _, d := range devices {
		e := newEnd(t, f, setup{service: verbs.ServiceUD, device: d})
		e.toInit()
		e.toRTR(nil)
		e.toRTS()
		ends = append(ends, e)
	}
	return ends
}

func (e *end) port() verbs.PortAttr {
	e.t.Helper()
	p, err := e.dev.QueryPort(1)
	require.NoError(e.t, err)
	return p
}

// sendTo sends a datagram over a path, and returns the completion at the peer's end, if the
// datagram arrives.
func (e *end) sendTo(to *end, path verbs.AHAttr) []verbs.WC {
	e.t.Helper()
	var err error
	path.Port = 1
	e.ah, err = e.pd.CreateAH(path)
	require.NoError(e.t, err)
	to.poll()
	to.recv(9, 0, 100)
	e.exec(e.wr(1, verbs.WRSend, to, 0, 8))
	require.Equal(e.t, []string{"1 SUCCESS"}, e.results())
	return to.poll()
}

// The subnet manager gives each port other LIDs, and the ports of a subnet the same prefix. The
// first GID is the prefix with the port's GUID.
func TestSubnetManagerAssignsAddresses(t *testing.T) {
	ends := datagrams(t, DeviceConfig{}, DeviceConfig{}, DeviceConfig{LMC: 3}, DeviceConfig{Subnet: 1})
	seen := map[uint16]bool{}
	for _, e := range ends[:3] {
		p := e.port()
		require.Equal(t, verbs.LinkInfiniBand, p.Link)
		require.Equal(t, uint16(1), p.SMLID)
		require.Zero(t, p.LID%(1<<p.LMC))
		for i := range uint16(1) << p.LMC {
			require.False(t, seen[p.LID+i])
			seen[p.LID+i] = true
		}
	}
	require.Equal(t, uint8(3), ends[2].port().LMC)
	require.Equal(t, ends[0].port().LID, ends[3].port().LID, "each subnet has its own LIDs")
	for i, e := range ends {
		gids, err := e.dev.GIDs(1)
		require.NoError(t, err)
		require.Len(t, gids, 1)
		require.Equal(t, verbs.GIDTypeIB, gids[0].Type)
		prefix := [8]byte{0xfe, 0x80}
		if i == 3 {
			prefix = [8]byte{0: 0xfe, 1: 0xc0, 7: 1}
		}
		require.Equal(t, prefix, [8]byte(gids[0].GID[:8]))
		require.NotEqual(t, [8]byte{}, [8]byte(gids[0].GID[8:]))
	}
}

// Within a subnet the LID leads to the port. A global route header must name the same port.
func TestLIDLeadsWithinSubnet(t *testing.T) {
	ends := datagrams(t, DeviceConfig{}, DeviceConfig{}, DeviceConfig{})
	a, b, c := ends[0], ends[1], ends[2]
	lid := b.port().LID
	require.Len(t, a.sendTo(b, verbs.AHAttr{DLID: lid}), 1)
	require.Len(t, a.sendTo(b, verbs.AHAttr{DLID: lid, IsGlobal: true, DGID: b.gid}), 1, "no router has to forward it")
	require.Empty(t, a.sendTo(b, verbs.AHAttr{DLID: lid, IsGlobal: true, DGID: c.gid}))
	require.Empty(t, a.sendTo(b, verbs.AHAttr{DLID: 0x100, IsGlobal: true, DGID: b.gid}), "no port has that LID")
	b.hca.ChangeLID(1)
	require.NotEqual(t, lid, b.port().LID)
	require.Equal(t, []verbs.EventType{verbs.EventLIDChange}, b.events())
	require.Empty(t, a.sendTo(b, verbs.AHAttr{DLID: lid}), "the old LID")
	require.Empty(t, a.sendTo(b, verbs.AHAttr{DLID: lid, IsGlobal: true, DGID: b.gid}), "the old LID with the GID")
	require.Len(t, a.sendTo(b, verbs.AHAttr{DLID: b.port().LID}), 1)
}

// A packet that arrives at another port of the device than its queue pair's is dropped, for each
// service and on each kind of network (InfiniBand error model, 4.3).
func TestPacketByOtherPortIsDropped(t *testing.T) {
	for _, link := range []verbs.LinkLayer{verbs.LinkInfiniBand, verbs.LinkEthernet} {
		for _, service := range services {
			for _, port := range []int{1, 2} {
				a, b := pair(t, setup{service: service, cfg: Config{Link: link}, device: DeviceConfig{Ports: 2}, idle: true})
				gids, err := b.dev.GIDs(port)
				require.NoError(t, err)
				attr, err := b.dev.QueryPort(port)
				require.NoError(t, err)
				path := verbs.AHAttr{Port: 1, DLID: attr.LID, IsGlobal: true, DGID: gids[0].GID, HopLimit: 3}
				a.ah, err = a.pd.CreateAH(path)
				require.NoError(t, err)
				back := path
				back.DLID, back.DGID = a.port().LID, a.gidAt(0)
				a.route, b.route = &path, &back
				connect(t, a, b)
				b.recv(9, 0, 100)
				a.exec(a.wr(1, verbs.WRSend, b, 0, 8))
				status := "1 SUCCESS"
				if port == 2 && service == verbs.ServiceRC {
					status = "1 RETRY_EXC_ERR"
				}
				require.Equal(t, []string{status}, a.results())
				require.Len(t, b.poll(), 2-port, "%v, %v, port %d", link, service, port)
			}
		}
	}
}

// gidAt returns an entry of the first port's GID table.
func (e *end) gidAt(index int) verbs.GID {
	e.t.Helper()
	gids, err := e.dev.GIDs(1)
	require.NoError(e.t, err)
	return gids[index].GID
}

// Path bits choose among the LIDs of the destination, and of the source.
func TestPathBitsChooseLIDs(t *testing.T) {
	ends := datagrams(t, DeviceConfig{LMC: 2}, DeviceConfig{LMC: 2})
	a, b := ends[0], ends[1]
	wc := a.sendTo(b, verbs.AHAttr{DLID: b.port().LID + 3, SrcPathBits: 6, SL: 5})
	require.Len(t, wc, 1)
	require.Equal(t, []any{a.port().LID + 2, uint8(3), uint8(5)}, []any{wc[0].SLID, wc[0].DLIDPathBits, wc[0].SL}, "bits beyond the LMC do not count")
	_, err := a.pd.CreateAH(verbs.AHAttr{Port: 1, DLID: 1, SL: 16})
	require.ErrorIs(t, err, verbs.ErrInvalid, "there are 16 service levels")
}

// Between subnets the GID leads to the port, if the hop limit lets a router forward the packet.
func TestRouterForwardsBetweenSubnets(t *testing.T) {
	ends := datagrams(t, DeviceConfig{}, DeviceConfig{Subnet: 1}, DeviceConfig{Link: verbs.LinkEthernet})
	a, b, ethernet := ends[0], ends[1], ends[2]
	path := verbs.AHAttr{DLID: 7, IsGlobal: true, DGID: b.gid, HopLimit: 2}
	wc := a.sendTo(b, path)
	require.Len(t, wc, 1)
	require.NotZero(t, wc[0].Flags&verbs.WCGRH)
	path.HopLimit = 1
	require.Empty(t, a.sendTo(b, path))
	path.HopLimit, path.DGID = 2, ethernet.gid
	require.Empty(t, a.sendTo(ethernet, path), "an Ethernet port")
	require.Empty(t, a.sendTo(b, verbs.AHAttr{DLID: b.port().LID + 1}), "no LID of this subnet")
}

// The subnet manager moves: SM_CHANGE, and the port names the new one.
func TestSubnetManagerMoves(t *testing.T) {
	a := datagrams(t, DeviceConfig{})[0]
	before := a.port()
	a.hca.Raise(verbs.EventSMChange, 1)
	require.NotEqual(t, before.SMLID, a.port().SMLID)
	require.Equal(t, before.LID, a.port().LID)
	require.Equal(t, []verbs.EventType{verbs.EventSMChange}, a.events())
}

// A device has no more queue pairs than MaxQP.
func TestCreateQPBeyondMaxQPFails(t *testing.T) {
	a, _ := pair(t, setup{device: DeviceConfig{MaxQP: 2}})
	init := verbs.QPInit{Service: verbs.ServiceRC, SendCQ: a.cq, RecvCQ: a.cq}
	q, err := a.pd.CreateQP(init)
	require.NoError(t, err)
	_, err = a.pd.CreateQP(init)
	require.ErrorIs(t, err, verbs.ErrNoMemory)
	require.NoError(t, q.Destroy())
	_, err = a.pd.CreateQP(init)
	require.NoError(t, err)
}
