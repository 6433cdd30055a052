package tcp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/tunable"
)

// The tunables that choose addresses, and their values that stand for all addresses and for none.
const (
	includeKey, includeAll  = "tcp.include", "all"
	excludeKey, excludeNone = "tcp.exclude", "none"
)

// Transport describes the rails over TCP, one for each local address.
func Transport() transport.Transport {
	return transport.Transport{
		Name: "tcp", Priority: 10, Reach: transport.Anywhere, Open: openRails,
		Leads: leads, Explain: Explain,
		Choices: []string{includeKey, excludeKey}, Abundant: true, Unknown: unknownWords,
	}
}

// openRails makes a rail of each address of this machine that the user has named, or that other
// machines may reach. Addresses that cannot be used are left out, as long as there is another.
func openRails(env *transport.Env) (opened transport.Opened, err error) {
	set := env.Settings
	addresses, err := Addresses(wordsOf(set, includeKey, includeAll), wordsOf(set, excludeKey, excludeNone))
	if err != nil {
		keys := []string{includeKey, excludeKey}
		if errors.Is(err, ErrNoSuch) {
			keys = keys[:1]
		}
		if chosen := transport.Chosen(set, keys...); chosen != "" {
			err = fmt.Errorf("%s: %w", chosen, err)
		}
		return opened, fmt.Errorf("rail tcp: %w", err)
	}
	for _, a := range addresses {
		cfg := configOf(set)
		cfg.Rank, cfg.Size, cfg.Events, cfg.Wakeup, cfg.AsyncProgress = env.Rank, env.Size, env.Events, env.Wakeup, env.AsyncProgress()
		cfg.Local, cfg.LocalBits = a.Address, a.Bits
		cfg.Rail = "tcp:" + a.Name
		port := a.Name + " " + a.Address.WithZone("").String()
		if slices.ContainsFunc(addresses, func(o Interface) bool { return o != a && o.Name == a.Name }) {
			port = a.Address.String()
			cfg.Rail = "tcp:" + port
		}
		m, err := New(cfg)
		if err != nil {
			if cfg.LastPort != 0 && errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%w (tcp.ports=%s: each rank of a machine takes one port)", err, set.String("tcp.ports"))
			}
			opened.LeftOut = append(opened.LeftOut, err)
			continue
		}
		opened.Rails = append(opened.Rails, transport.Rail{Module: m, Port: port})
	}
	if len(opened.Rails) == 0 {
		return transport.Opened{}, errors.Join(opened.LeftOut...)
	}
	return opened, nil
}

// configOf is what the user's settings mean to the rails over TCP.
func configOf(set tunable.Set) Config {
	// Package tunable refuses bad ranges.
	first, last, _ := tunable.ParseRange(set.String("tcp.ports"))
	return Config{
		FirstPort:      first,
		LastPort:       last,
		FragBytes:      int(set.Bytes("tcp.frag.bytes")) + btl.MaxHeaderBytes,
		EagerBytes:     int(min(set.Bytes("tcp.eager.bytes"), set.Bytes("tcp.frag.bytes"))) + btl.MaxHeaderBytes,
		ConnectTimeout: set.Duration("tcp.deadline"),
		UserTimeout:    set.Duration("tcp.deadline"),
		KeepAlive:      set.Duration("tcp.keepalive"),
	}
}

// wordsOf is a user's list of interfaces, addresses and networks. A list that consists of the word
// nothing is empty.
func wordsOf(set tunable.Set, key, nothing string) []string {
	if list := set.List(key); !slices.Equal(list, []string{nothing}) {
		return list
	}
	return nil
}

// unknownWords lists what tcp.include and tcp.exclude name that this machine does not have, a line
// for each: a typing error, or an interface of another machine.
func unknownWords(set tunable.Set) (lines []string) {
	found, err := candidates()
	if err != nil {
		return nil
	}
	for key, nothing := range map[string]string{includeKey: includeAll, excludeKey: excludeNone} {
		if none := unknown(found, wordsOf(set, key, nothing)); len(none) > 0 {
			lines = append(lines, fmt.Sprintf("%s: %s has no interface or address %s", transport.Chosen(set, key), hostname(), strings.Join(none, ", ")))
		}
	}
	slices.Sort(lines)
	return lines
}
