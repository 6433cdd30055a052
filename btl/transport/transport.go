// Package transport defines how a BTL describes itself to the code that opens the modules of a
// rank: its name, which ranks it reaches, and how its modules are opened and paired with a peer's
// modules. Each BTL has a function that returns a Transport; comm/internal/rails lists these
// functions.
package transport

import (
	"strings"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/progress"
)

// Reach says which ranks a transport can reach.
type Reach uint8

const (
	// Itself: only messages of a rank to itself.
	Itself Reach = iota
	// Host: ranks of the same machine.
	Host
	// Anywhere: ranks of any machine that a network reaches.
	Anywhere
)

// Transport describes a kind of module.
type Transport struct {
	// Name of the transport, in the tunable btl (tunable.Transports) and in the addresses that
	// ranks publish.
	Name  string
	Reach Reach

	// Open makes the modules of this rank. It is called under the lock of the rank's engine. A
	// module whose device or address may appear later is made too, and is Absent. The error says in
	// one line why there is no module.
	Open func(env *Env) (Opened, error)

	// Leads returns a function that says how well a module of this rank leads to a module of a
	// peer. Its arguments are indexes into ours and theirs, the addresses of all modules. 0 means
	// not at all. Pairs whose value is not the highest are spare (Pair.Level). Both ranks must find
	// the same values. nil: every module leads to every other one.
	Leads func(ours, theirs [][]byte) func(local, remote int) int
	// Explain says in one line why no module leads to a module of the peer. nil: there is nothing
	// to explain.
	Explain func(local, remote [][]byte) string

	// Choices are the tunables with which a user chooses devices or addresses. The first one names
	// the devices or addresses to use.
	Choices []string
	// Rare: most machines lack such devices. Unless the user asked for the transport, their absence
	// is reported after other errors, or not at all.
	Rare bool
	// Abundant: a machine may have many useless devices or addresses. Those that were left out are
	// reported only if the user named the ones to use, or set one of Demands.
	Abundant bool
	// Demands are the tunables that say how many modules to make, and from what.
	Demands []string
	// Unknown lists the user's words in Choices that name nothing on this machine, one line for
	// each tunable. nil: there are none.
	Unknown func(settings tunable.Set) []string
	// Nobodys says in one line which words of the user in Choices name nothing on any machine of
	// the job. Words that may name something later do not count. It returns "" if there are none.
	// addresses are the addresses of this transport's modules at all ranks. nil: there are no such
	// words.
	Nobodys func(settings tunable.Set, addresses [][]byte) string
}

// Env is what Open makes modules from.
type Env struct {
	// Rank of this process and Size of the job.
	Rank, Size int
	// LocalRank is the number of lower ranks on the same machine, according to the process manager.
	LocalRank int
	Settings  tunable.Set
	// Events is the layer above.
	Events btl.Events
	// Wakeup wakes the rank's engine when it sleeps.
	Wakeup *progress.PipeWakeup
	// AsyncProgress returns a function that asks for a progress call soon, even while the rank's
	// program computes. Any goroutine may call that function. If a transport calls AsyncProgress,
	// the rank keeps a goroutine for such calls.
	AsyncProgress func() func()
	// The transport calls Moved, if not nil, under the lock of the rank's engine when the Address
	// of a module has changed. A module may have a method PeerMoved(peer int, address []byte). It
	// is called under that lock when the address of a peer's module has changed. The next Connect
	// gets the new address in any case.
	Moved func()
	// Devices, if not nil, replaces the device layer that a transport is about to use. Tests use it
	// to make devices fail.
	Devices func(devices any) any
}

// Opened is what Open has made.
type Opened struct {
	Modules []Module
	// LeftOut says, in one line each, why some devices or addresses of this machine were not used,
	// although others were.
	LeftOut []error
}

// Module is one module of a rank.
type Module struct {
	Module btl.Module
	// Port names the device or address in messages. It is "" if there is nothing to name.
	Port string
	// Wires are the network interfaces of this machine that the module uses. If modules of two
	// transports use the same interface, they share its bandwidth. nil: not known, or none.
	Wires []string
	// Absent says why the device or address cannot be used now, nil if it can. It checks again at
	// each call. remote says that the module must lead to other machines. Absent is nil if the
	// module is never absent. The caller holds the lock of the rank's engine.
	Absent func(remote bool) error
}

// Chosen lists those of the given tunables that the user has set, for messages: "tcp.include=eth0,
// tcp.exclude=10.0.0.0/8". It returns "" if all have their defaults.
func Chosen(settings tunable.Set, keys ...string) string {
	var list []string
	for _, key := range keys {
		if text, origin := settings.Text(key); origin != tunable.FromDefault {
			list = append(list, key+"="+text)
		}
	}
	return strings.Join(list, ", ")
}
