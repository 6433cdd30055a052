package ibverbs

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// This file determines how a port is addressed: its LID, a GID and a partition key.

var (
	errNoGID = errors.New("it has no GID")
	errNoLID = errors.New("it has no LID: a subnet manager has to assign one")
)

// queryPort queries the port's state and its current address.
func (h *hca) queryPort(cfg *Config) error {
	port, err := h.dev.QueryPort(cfg.Port)
	if err != nil {
		return err
	}
	h.port, h.roce = port, port.Link == verbs.LinkEthernet
	h.global = !h.roce && (port.GRHRequired || cfg.GlobalRoute)
	all, err := h.dev.GIDs(cfg.Port)
	if err != nil {
		return err
	}
	gids := inNetwork(all, cfg.GIDNetwork)
	gid, ok := chooseGID(gids, cfg.GIDIndex, h.roce)
	switch {
	case ok:
		h.gid = gid
	case cfg.GIDIndex != nil && len(gids) == len(all):
		return fmt.Errorf("port %d has nothing in entry %d of its GIDs, it has %s: %w",
			cfg.Port, *cfg.GIDIndex, list(all), verbs.ErrInvalid)
	case cfg.GIDNetwork.IsValid():
		return fmt.Errorf("port %d has no GID in %v (ibverbs.gid.network), it has %s: %w", cfg.Port, cfg.GIDNetwork, list(all), verbs.ErrInvalid)
	case h.roce:
		return fmt.Errorf("port %d: %w: its network interface needs an IP address", cfg.Port, errNoGID)
	case h.global:
		return fmt.Errorf("port %d: %w, and requires a global route", cfg.Port, errNoGID)
	}
	if port.State.Up() && port.LID == 0 && !h.roce && !h.global {
		return fmt.Errorf("port %d: %w", cfg.Port, errNoLID)
	}
	return nil
}

// list lists the entries of a port for a message.
func list[T fmt.Stringer](entries []T) string {
	if len(entries) == 0 {
		return "none"
	}
	var texts []string
	for _, e := range entries {
		texts = append(texts, e.String())
	}
	return strings.Join(texts, ", ")
}

// queryMTU queries the port's current MTU. It changes with the MTU of the port's network interface,
// and no event reports that. Events report other changes (requery), but may still be in the queue.
// moved reports whether the port has another LID now.
func (h *hca) queryMTU(cfg *Config) (moved bool, err error) {
	port, err := h.dev.QueryPort(cfg.Port)
	if err != nil {
		return false, err
	}
	if port.ActiveMTU.Bytes() == 0 {
		return false, fmt.Errorf("port %d reports no MTU", cfg.Port)
	}
	h.port.ActiveMTU = port.ActiveMTU
	return port.LID != h.port.LID, nil
}

// inNetwork returns the entries whose address is in a network, or all if there is no network.
func inNetwork(gids []verbs.GIDEntry, network netip.Prefix) []verbs.GIDEntry {
	if !network.IsValid() {
		return gids
	}
	return slices.DeleteFunc(slices.Clone(gids), func(g verbs.GIDEntry) bool {
		return !network.Contains(g.GID.Addr().Unmap())
	})
}

// chooseGID prefers RoCE version 2 over an IPv4 address, which works on routed and switched
// networks alike, then an IPv6 address that is not link-local, then any of version 2, then any.
func chooseGID(gids []verbs.GIDEntry, index *int, roce bool) (best verbs.GIDEntry, ok bool) {
	if index != nil {
		i := slices.IndexFunc(gids, func(g verbs.GIDEntry) bool { return g.Index == *index })
		if i < 0 {
			return best, false
		}
		return gids[i], true
	}
	if len(gids) == 0 {
		return best, false
	}
	rank := func(g verbs.GIDEntry) int {
		switch ip := g.GID.Addr(); {
		case !roce || g.Type != verbs.GIDTypeRoCEv2:
			return 0
		case ip.Is4In6():
			return 3
		case !ip.IsLinkLocalUnicast():
			return 2
		}
		return 1
	}
	return slices.MaxFunc(gids, func(a, b verbs.GIDEntry) int { return rank(a) - rank(b) }), true
}

// pkey is a partition key. Its highest bit is set for a full member of the partition, and the other
// bits are the partition. Two limited members do not reach each other (InfiniBand specification,
// 10.9.1).
type pkey uint16

const fullMember pkey = 1 << 15

func (k pkey) partition() pkey { return k &^ fullMember }
func (k pkey) String() string  { return fmt.Sprintf("%#04x", uint16(k)) }

// findPKey finds the partition of cfg.PKey in the port's table, as a full member if that is
// possible, or the first key of the table if cfg.PKey is 0. An index is only valid until the next
// PKEY_CHANGE.
func (h *hca) findPKey(cfg *Config) (index uint16, key pkey, err error) {
	var table []pkey
	for i := range h.port.PKeys {
		k, err := h.dev.PKey(cfg.Port, i)
		if err != nil {
			return 0, 0, err
		}
		switch k := pkey(k); {
		case k.partition() == 0: // no key
		case cfg.PKey == 0, k.partition() == pkey(cfg.PKey).partition():
			index, key = uint16(i), k
		default:
			table = append(table, k)
		}
		if key != 0 && (cfg.PKey == 0 || key >= fullMember) {
			return index, key, nil
		}
	}
	if key == 0 && cfg.PKey == 0 {
		return 0, 0, fmt.Errorf("port %d has no partition key: %w", cfg.Port, verbs.ErrInvalid)
	}
	if key == 0 {
		return 0, 0, fmt.Errorf("port %d has no partition key %v (ibverbs.pkey), it has %s: %w", cfg.Port, pkey(cfg.PKey), list(table), verbs.ErrInvalid)
	}
	return index, key, nil
}

// pkeyMoved reports whether the entry of the port's table that connections use has another
// partition now.
func (h *hca) pkeyMoved(cfg *Config) bool {
	k, err := h.dev.PKey(cfg.Port, int(h.pkeyIndex))
	return err == nil && pkey(k).partition() != h.pkey.partition()
}

// address returns the current address of the datagram queue pair.
func (h *hca) address() address {
	return address{gid: h.gid.GID, lid: h.port.LID, qpn: h.ud.Num(), qkey: h.qkey, link: h.link()}
}

func (h *hca) link() linkKind {
	switch {
	case h.roce:
		return linkRoCE
	case h.global:
		return linkGlobal
	}
	return linkInfiniBand
}

// path returns the route to an address. It is global if one of the two ports requires that, or if
// they are in different subnets. Between subnets, the LID is the peer's too. No path is queried
// from a subnet manager, so the subnets' routers must accept the LIDs of their other subnets.
func (h *hca) path(cfg *Config, to *address) verbs.AHAttr {
	a := verbs.AHAttr{Port: cfg.Port, DLID: to.lid, SL: cfg.ServiceLevel}
	here := h.address()
	if here.link != linkInfiniBand || to.link != linkInfiniBand || !here.sameSubnet(to) {
		a.IsGlobal, a.DGID, a.SGIDIndex, a.HopLimit, a.TrafficClass = true, to.gid, h.gid.Index, cfg.HopLimit, cfg.TrafficClass
	}
	return a
}

// upAgain reports whether a port that was down is up, or has moved to another address. If it has
// moved, h still has the old one.
func (h *hca) upAgain(cfg *Config) (up, moved bool) {
	port, gid := h.port, h.gid
	if h.queryPort(cfg) != nil {
		return false, false
	}
	if h.port.LID != port.LID || h.gid.GID != gid.GID {
		h.port, h.gid = port, gid
		return false, true
	}
	return h.port.State.Up(), false
}
