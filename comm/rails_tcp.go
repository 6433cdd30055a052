package comm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/progress"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/internal/wireup"
)

// openTCP makes a rail of each address of this machine that the user has named, or that others may reach. Those that cannot be had are left
// out, as long as there is another. Lock held.
func (r *rails) openTCP(bell *progress.PipeBell) error {
	set := r.job.settings
	addresses, err := tcp.Addresses(words(set, "tcp.include", "all"), words(set, "tcp.exclude", "none"))
	if err != nil {
		keys := []string{"tcp.include", "tcp.exclude"}
		if errors.Is(err, tcp.ErrNoSuch) {
			keys = keys[:1]
		}
		if chosen := chosen(set, keys...); chosen != "" {
			err = fmt.Errorf("%s: %w", chosen, err)
		}
		return fmt.Errorf("rail tcp: %w", err)
	}
	var refused []error
	for _, a := range addresses {
		cfg := tcpConfig(set)
		cfg.Rank, cfg.Size, cfg.Events, cfg.Bell, cfg.Wakeup = r.job.rank, r.job.size, r.job.pml, bell, r.kick()
		cfg.Local, cfg.LocalBits = a.Address, a.Bits
		cfg.Rail = "tcp:" + a.Name
		port := a.Name + " " + a.Address.WithZone("").String()
		if slices.ContainsFunc(addresses, func(o tcp.Interface) bool { return o != a && o.Name == a.Name }) {
			port = a.Address.String()
			cfg.Rail = "tcp:" + port
		}
		m, err := tcp.New(cfg)
		if err != nil {
			if cfg.LastPort != 0 && errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%w (tcp.ports=%s: each rank of a machine takes one)", err, set.String("tcp.ports"))
			}
			refused = append(refused, err)
			continue
		}
		r.job.addModule(m)
		r.list = append(r.list, rail{name: "tcp", port: port, module: m})
	}
	if !r.has("tcp") {
		return errors.Join(refused...)
	}
	r.leaveOut("tcp", refused)
	return nil
}

// words is a list of the user's of interfaces, addresses and networks, without the word that stands for none, as package tcp reads it.
func words(set tunable.Set, key, nothing string) []string {
	list := set.List(key)
	if slices.Equal(list, []string{nothing}) {
		return nil
	}
	for i, w := range list {
		network, ok := tunable.ParseNetwork(w)
		switch {
		case ok && network.IsSingleIP():
			list[i] = network.Addr().String()
		case ok:
			list[i] = network.String()
		}
	}
	return list
}

// strangeWords is what tcp.include and tcp.exclude name that this machine does not have: a slip of the keyboard, or what another machine has. A line for each.
func strangeWords(set tunable.Set) (lines []string) {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	for key, nothing := range map[string]string{"tcp.include": "all", "tcp.exclude": "none"} {
		strange, err := tcp.Strange(words(set, key, nothing))
		if err == nil && len(strange) > 0 {
			lines = append(lines, fmt.Sprintf("%s: %s has no interface or address %s", chosen(set, key), host, strings.Join(strange, ", ")))
		}
	}
	slices.Sort(lines)
	return lines
}

// tcpConfig is what the user's settings mean to the rails over TCP.
func tcpConfig(set tunable.Set) tcp.Config {
	first, last, _ := tunable.ParseRange(set.String("tcp.ports")) // tunables permit no other
	return tcp.Config{
		FirstPort:      first,
		LastPort:       last,
		FragBytes:      int(set.Bytes("tcp.frag.bytes")) + btl.MaxHeaderBytes,
		EagerBytes:     int(min(set.Bytes("tcp.eager.bytes"), set.Bytes("tcp.frag.bytes"))) + btl.MaxHeaderBytes,
		ConnectTimeout: set.Duration("tcp.deadline"),
		UserTimeout:    set.Duration("tcp.deadline"),
		KeepAlive:      set.Duration("tcp.keepalive"),
	}
}

// tcpCards are those of our rails over TCP and of the peer's, and their numbers among all.
func (r *rails) tcpCards(card wireup.Card) (ours, theirs [][]byte, local, remote []int) {
	for i, l := range r.list {
		if l.name == "tcp" {
			ours, local = append(ours, l.module.Card()), append(local, i)
		}
	}
	for number, l := range card.Rails {
		if l.BTL == "tcp" {
			theirs, remote = append(theirs, l.Address), append(remote, number)
		}
	}
	return ours, theirs, local, remote
}

// tcpWays are the rails over TCP that lead to a peer: both find the same pairs of addresses.
func (r *rails) tcpWays(peer int, card wireup.Card) []way {
	ours, theirs, local, remote := r.tcpCards(card)
	var ways []way
	for _, p := range tcp.Pairs(ours, theirs, r.job.rank < peer) {
		ways = append(ways, way{local[p.Ours], remote[p.Theirs]})
	}
	return ways
}

// tcpApart is why no rail over TCP leads to a peer; "" if one does, or none is allowed.
func (r *rails) tcpApart(peer int, card wireup.Card) string {
	if !slices.Contains(r.allowed, "tcp") || len(r.tcpWays(peer, card)) > 0 {
		return ""
	}
	ours, theirs, _, _ := r.tcpCards(card)
	why := "tcp: " + tcp.Apart(ours, theirs)
	if i := slices.IndexFunc(r.missing, func(m missing) bool { return m.name == "tcp" }); i >= 0 {
		return oneLine(r.missing[i].why) // which says what is set
	}
	if set := chosen(r.job.settings, "tcp.include", "tcp.exclude"); set != "" {
		why += " (" + set + " here)"
	}
	return why
}

// chosen is what the user has set of some tunables: "tcp.include=eth0, tcp.exclude=10.0.0.0/8"; "" if nothing.
func chosen(set tunable.Set, keys ...string) string {
	var list []string
	for _, key := range keys {
		if text, origin := set.Text(key); origin != tunable.FromDefault {
			list = append(list, key+"="+text)
		}
	}
	return strings.Join(list, ", ")
}
