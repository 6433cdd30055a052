package rails

import (
	"math"
	"os"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/wireup"
)

// hostNameEntry is an entry of a card that is no module: the name of the rank's machine, for
// messages.
const hostNameEntry = "hostname"

// absentEntry is an entry of a card that is no module: the numbers of the absent modules, a byte
// each.
const absentEntry = "absent"

// mostHostNameBytes bounds how much of a peer's host name is printed.
const mostHostNameBytes = 64

// Card is the addresses that this rank publishes. crowded: this machine has more ranks of the job
// than cores for them. The caller holds the lock.
func (r *Rails) Card(crowded bool) wireup.Card {
	card := wireup.Card{Host: r.cfg.Host, PID: os.Getpid(), Oversubscribed: crowded}
	r.published, r.absentWhy = [][]byte{}, nil
	var numbers []byte
	for i, l := range r.list {
		why := r.whyAbsent(l)
		if why != nil && i <= math.MaxUint8 {
			numbers = append(numbers, byte(i))
		}
		r.absentWhy = append(r.absentWhy, why)
		r.published = append(r.published, l.module.Address())
		card.Modules = append(card.Modules, wireup.Module{BTL: l.transport, Address: l.module.Address()})
	}
	if len(numbers) > 0 {
		card.Modules = append(card.Modules, wireup.Module{BTL: absentEntry, Address: numbers})
	}
	if name, err := os.Hostname(); err == nil {
		card.Modules = append(card.Modules, wireup.Module{BTL: hostNameEntry, Address: []byte(name)})
	}
	return card
}

// ReadCards reads and returns the cards that all ranks published before the barrier. It reads all
// of them at once, because a progress call that needs one cannot wait for the manager.
func (r *Rails) ReadCards() ([]wireup.Card, error) {
	cards, err := r.cfg.Client.GetCards()
	if err != nil {
		return nil, err
	}
	r.cfg.Lock.Lock()
	r.cards = cards
	r.cfg.Lock.Unlock()
	return cards, r.shareSecret()
}

// shareSecret gives the job's secret, which the manager has sent in the first barrier, to the
// modules that authenticate their peers.
func (r *Rails) shareSecret() error {
	var secret []byte
	for _, l := range r.list {
		m, wants := l.module.(interface{ SetSecret(secret []byte) })
		if !wants {
			continue
		}
		if secret == nil {
			var err error
			if secret, err = r.cfg.Client.Secret(); err != nil {
				return err
			}
		}
		r.cfg.Lock.Lock()
		m.SetSecret(secret)
		r.cfg.Lock.Unlock()
	}
	return nil
}

// absent is why a module of this rank, by its place in the list, was absent when the rank published
// its card; nil if the module was there.
func (r *Rails) absent(place int) error {
	if place >= len(r.absentWhy) {
		return nil
	}
	return r.absentWhy[place]
}

// isAbsent reports whether a module in a peer's card was absent then.
func isAbsent(card wireup.Card, number int) bool {
	_, lists := modulesOf(card, absentEntry)
	return slices.ContainsFunc(lists, func(list []byte) bool {
		return slices.ContainsFunc(list, func(b byte) bool { return int(b) == number })
	})
}

// modulesOf are the numbers of a transport's modules in a card, and their addresses.
func modulesOf(card wireup.Card, name string) (numbers []int, addresses [][]byte) {
	for number, l := range card.Modules {
		if l.BTL == name {
			numbers, addresses = append(numbers, number), append(addresses, l.Address)
		}
	}
	return numbers, addresses
}

// hostName is the host name in a card, cleaned: the peer may have written anything.
func hostName(card wireup.Card) string {
	_, addresses := modulesOf(card, hostNameEntry)
	if len(addresses) == 0 {
		return "?"
	}
	name := strings.Map(func(c rune) rune {
		if c == '.' || c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
			return c
		}
		return -1
	}, string(addresses[0]))
	if name == "" {
		return "?"
	}
	return name[:min(len(name), mostHostNameBytes)]
}

// lowerHere are the cards of the lower ranks of this machine.
func (r *Rails) lowerHere() []wireup.Card {
	return slices.DeleteFunc(slices.Clone(r.cards[:r.cfg.Env.Rank]), func(card wireup.Card) bool { return card.Host != r.cfg.Host })
}
