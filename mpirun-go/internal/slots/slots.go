// Package slots decides where ranks run: which hosts there are, how many slots
// each has, and which rank gets which slot and which processors.
package slots

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ErrHosts is in the error about a host that is not this machine.
var ErrHosts = errors.New("several hosts are not supported yet")

// Host is a place where ranks are started.
type Host struct {
	Name  string
	Slots int // ranks that it has room for
}

// request is one mention of a host by the user; Slots 0 means that no number
// was given.
type request = Host

// Machine is what the mapping has to know about the machine it runs on.
type Machine struct {
	Name  string
	Cores [][]int // the processors of each core that this process may use
}

// CPUs is the number of processors that this process may use.
func (m Machine) CPUs() int {
	n := 0
	for _, core := range m.Cores {
		n += len(core)
	}
	return n
}

// ParseList reads the value of --host: names separated by commas, each with an
// optional ":slots". A name given several times adds up.
func ParseList(list string) ([]Host, error) {
	var hosts []request
	for _, word := range strings.Split(list, ",") {
		word = strings.TrimSpace(word)
		name, count, counted := word, "", false
		if i := strings.LastIndexByte(word, ':'); i >= 0 && strings.Count(word, ":") == 1 {
			name, count, counted = word[:i], word[i+1:], true
		}
		if name == "" {
			return nil, fmt.Errorf("%q: a host has no name", list)
		}
		h := request{Name: name}
		if counted {
			n, err := parseSlots(count)
			if err != nil {
				return nil, fmt.Errorf("host %s: %w", name, err)
			}
			h.Slots = n
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// ParseFile reads a host file: a line is "host" or "host slots=N", "#" begins a
// comment. name is for messages.
func ParseFile(name string, r io.Reader) ([]Host, error) {
	var hosts []request
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		h := request{Name: words[0]}
		for _, word := range words[1:] {
			count, ok := strings.CutPrefix(word, "slots=")
			if !ok {
				return nil, fmt.Errorf("%s:%d: %q: want a line such as \"host slots=4\"", name, number, word)
			}
			n, err := parseSlots(count)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: host %s: %w", name, number, h.Name, err)
			}
			h.Slots = n
		}
		hosts = append(hosts, h)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("%s: names no host", name)
	}
	return hosts, nil
}

// MaxSlots bounds what a user may say that a host has room for.
const MaxSlots = 1 << 16

func parseSlots(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxSlots {
		return 0, fmt.Errorf("%q is not a number of slots from 1 to %d", s, MaxSlots)
	}
	return n, nil
}

// Here reduces what the user asked for to the one host that is supported, this
// machine. Without any request it has a slot for each processor; so has a
// mention without a number. An error about another host Is ErrHosts.
func Here(m Machine, requests []Host) (Host, error) {
	here := Host{Name: m.Name}
	for _, r := range requests {
		if !m.isCalled(r.Name) {
			return Host{}, fmt.Errorf("host %s: %w: only this machine (localhost or %s)", r.Name, ErrHosts, m.Name)
		}
		if r.Slots == 0 {
			r.Slots = m.CPUs()
		}
		here.Slots += r.Slots
	}
	if here.Slots == 0 {
		here.Slots = m.CPUs()
	}
	return here, nil
}

func (m Machine) isCalled(name string) bool {
	short := func(s string) string {
		first, _, _ := strings.Cut(s, ".")
		return first
	}
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1", m.Name, short(m.Name)}, name)
}

// Place is where one rank runs.
type Place struct {
	Rank      int
	Host      string
	LocalRank int // among the ranks of its host
	LocalSize int
	CPUs      []int // bound to these; nil: not bound
}

// Map gives each rank its place on the host. With bind, the ranks get a core
// each in turn, beginning again when all are taken.
func Map(size int, host Host, m Machine, bind bool) []Place {
	places := make([]Place, size)
	for rank := range places {
		places[rank] = Place{Rank: rank, Host: host.Name, LocalRank: rank, LocalSize: size}
		if bind && len(m.Cores) > 0 {
			places[rank].CPUs = m.Cores[rank%len(m.Cores)]
		}
	}
	return places
}
