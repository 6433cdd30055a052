package tcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/netdev"
	"github.com/mpigo/mpigo/internal/tunable"
)

// The tunables that choose addresses, and their special values for all addresses and for none.
const (
	includeKey, includeAll  = "tcp.include", "all"
	excludeKey, excludeNone = "tcp.exclude", "none"
)

const (
	connectionsKey = "tcp.connections"
	portsKey       = "tcp.ports"
	fragKey        = "tcp.frag.bytes" // the same at all ranks
)

// Transport describes the modules over TCP: tcp.connections of them for each interface.
func Transport() transport.Transport {
	return transport.Transport{
		Name: tunable.TransportTCP, Reach: transport.Anywhere, Open: openModules,
		Leads: leads, Explain: Explain,
		Choices: []string{includeKey, excludeKey}, Abundant: true, Demands: []string{connectionsKey, portsKey}, Unknown: unknownWords, Nobodys: nobodysWords,
	}
}

// openModules makes the modules of each interface of this machine that the user has named, or that
// other machines may reach (Addresses). It leaves out addresses that cannot be used, as long as
// there is another. If this machine lacks an address that the user has named, or has switched off
// its interface, the module is Absent until the address comes.
func openModules(env *transport.Env) (transport.Opened, error) { return openAmong(env, candidates) }

// openAmong does what openModules does, on a machine that has the addresses that list returns.
func openAmong(env *transport.Env, list func() ([]candidate, error)) (opened transport.Opened, err error) {
	set := env.Settings
	include, exclude := wordsOf(set, includeKey, includeAll), wordsOf(set, excludeKey, excludeNone)
	found, err := list()
	if err != nil {
		return opened, fmt.Errorf("rail tcp: %w", err)
	}
	addresses, why := choose(hostname(), found, include, exclude)
	words := awaited(found, include, exclude, addresses)
	if why != nil && len(words) == 0 {
		if chosen := transport.Chosen(set, includeKey, excludeKey); chosen != "" {
			why = fmt.Errorf("%s: %w", chosen, why)
		}
		return opened, fmt.Errorf("rail tcp: %w", why)
	}
	lowest := int64(0) // among the known bandwidths
	for _, a := range addresses {
		if mbps := speedOf(a.Address); a.Up && (lowest == 0 || mbps < lowest) {
			lowest = mbps
		}
	}
	var plans []*plan
	for _, of := range railsAmong(addresses) {
		first := addresses[of[0]]
		cfg := configOf(env)
		cfg.Local, cfg.LocalBits, cfg.Word = first.Address, first.Bits, first.Word
		if !first.Up {
			cfg.BandwidthMBps = lowest
		}
		cfg.Rail = "tcp:" + first.Name
		port := first.Name
		for _, n := range of {
			port += " " + addresses[n].Address.WithZone("").String()
			if n != of[0] {
				cfg.Others = append(cfg.Others, addresses[n])
			}
		}
		if slices.ContainsFunc(addresses, func(o Interface) bool { return o.Rail != first.Rail && o.Name == first.Name }) {
			port = first.Address.String()
			cfg.Rail = "tcp:" + port
		}
		p := &plan{cfg: cfg, port: port, wires: netdev.Wires("/", first.Name)}
		if s, ok := sourceOf(first, include, exclude); ok {
			p.source = &s
		}
		plans = append(plans, p)
	}
	// They come last, so that a peer pairs them after rails that have an address.
	for _, w := range words {
		cfg := configOf(env)
		cfg.Rail, cfg.Word, cfg.BandwidthMBps = "tcp:"+w.text, w.place, lowest
		cfg.Awaits = fmt.Sprintf("%s has no interface or address %s", hostname(), w.text)
		if len(addresses) == 0 {
			cfg.Awaits = why.Error()
		}
		plans = append(plans, &plan{cfg: cfg, port: w.text, source: &source{word: w.text, place: w.place, exclude: exclude}})
	}
	for _, p := range plans {
		if s := p.source; s != nil {
			p.cfg.Moved, p.cfg.Find = env.Moved, func() []Interface {
				found, err := list()
				if err != nil {
					return nil
				}
				return s.now(append(found, loopbacks([]string{s.word}, found)...), func(a netip.Addr) bool { return isTaken(plans, p, a) })
			}
		}
	}
	opened = openPlans(plans, int(set.Int(connectionsKey)))
	if len(opened.Modules) == 0 {
		return transport.Opened{}, errors.Join(opened.LeftOut...)
	}
	return opened, nil
}

// configOf translates the user's settings into the configuration of a rank's rails over TCP.
func configOf(env *transport.Env) Config {
	set := env.Settings
	// Package tunable refuses bad ranges.
	first, last, _ := tunable.ParseRange(set.String(portsKey))
	return Config{
		Rank: env.Rank, Size: env.Size, Events: env.Events, Wakeup: env.Wakeup, AsyncProgress: env.AsyncProgress(),
		FirstPort:      first,
		LastPort:       last,
		FragBytes:      int(set.Bytes(fragKey)) + btl.MaxHeaderBytes,
		EagerBytes:     int(min(set.Bytes("tcp.eager.bytes"), set.Bytes(fragKey))) + btl.MaxHeaderBytes,
		ConnectTimeout: set.Duration("tcp.deadline"),
		UserTimeout:    set.Duration("tcp.deadline"),
		KeepAlive:      set.Duration("tcp.keepalive"),
	}
}

// wordsOf returns a user's list of interfaces, addresses and networks. A list that consists of the
// word nothing is empty.
func wordsOf(set tunable.Set, key, nothing string) []string {
	if list := set.List(key); !slices.Equal(list, []string{nothing}) {
		return list
	}
	return nil
}

// mostNobodys bounds the addresses that nobodysWords lists.
const mostNobodys = 4

// nobodysWords says which single addresses of tcp.include no rank has. They are usually typing
// errors. For other words, and for an address without which a machine has none, a rail exists that
// waits for the address.
func nobodysWords(set tunable.Set, addresses [][]byte) string {
	include := wordsOf(set, includeKey, includeAll)
	out := parseWords(wordsOf(set, excludeKey, excludeNone))
	published := parseRailAddresses(addresses)
	var none []string
	for n, text := range include {
		addr, is := singleAddress(text)
		if !is || out.covers(candidate{addr: addr}) {
			continue
		}
		isThere := func(a *railAddress) bool {
			switch {
			case a == nil:
				return false
			case len(a.addresses) > 0:
				return slices.ContainsFunc(a.addresses, func(n netAddress) bool { return n.Addr() == addr })
			}
			return int(a.word) == n+1 // a rail that waits for it
		}
		if !slices.ContainsFunc(published, isThere) {
			none = append(none, text)
		}
	}
	switch n := len(none) - mostNobodys; {
	case len(none) == 0:
		return ""
	case n > 0:
		none = append(none[:mostNobodys], fmt.Sprintf("and %d more", n))
	}
	return fmt.Sprintf("no machine of the job has an address of %s, so there is no rail by it: %s", includeKey, strings.Join(none, ", "))
}

// unknownWords lists words of tcp.include and tcp.exclude that name nothing on this machine, one
// line for each tunable. Such a word is a typing error, or an interface of another machine. Words
// that a rail waits for are not listed, because that rail is already reported as left out.
func unknownWords(set tunable.Set) []string {
	found, err := candidates()
	if err != nil {
		return nil
	}
	include, exclude := wordsOf(set, includeKey, includeAll), wordsOf(set, excludeKey, excludeNone)
	chosen, _ := choose(hostname(), found, include, exclude)
	words := awaited(found, include, exclude, chosen)
	hasNoRail := func(word string) bool {
		return !slices.ContainsFunc(words, func(w awaitedWord) bool { return w.text == word })
	}
	return unknownLines(set, found, hasNoRail)
}

// unknownLines does what unknownWords does, for a machine with given addresses. It ignores words of
// tcp.include for which counts returns false.
func unknownLines(set tunable.Set, found []candidate, counts func(word string) bool) (lines []string) {
	include := slices.DeleteFunc(unknownAmong(found, wordsOf(set, includeKey, includeAll)), func(w string) bool { return !counts(w) })
	exclude := unknownAmong(found, wordsOf(set, excludeKey, excludeNone))
	for key, none := range map[string][]string{includeKey: include, excludeKey: exclude} {
		if len(none) > 0 {
			lines = append(lines, fmt.Sprintf("%s: %s has no interface or address %s", transport.Chosen(set, key), hostname(), strings.Join(none, ", ")))
		}
	}
	slices.Sort(lines)
	return lines
}

// singleAddress is a word of a user's list that names one address.
func singleAddress(word string) (netip.Addr, bool) {
	prefix, ok := tunable.ParseNetwork(word)
	return prefix.Addr(), ok && prefix.IsSingleIP()
}
