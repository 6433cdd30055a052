// Package transport is what a BTL says of itself to the code that opens the rails of a rank: its
// name, which ranks it reaches, and how its rails are opened and paired with those of a peer. A BTL
// describes itself by a function that returns a Transport; comm/internal/rails lists these.
package transport

import (
	"strings"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/progress"
)

// Reach is which ranks a transport can lead to.
type Reach uint8

const (
	// Itself: a rank's messages to itself, and no others.
	Itself Reach = iota
	// Host: ranks of the same machine.
	Host
	// Anywhere: ranks of any machine, as far as networks lead there.
	Anywhere
)

// Transport describes a kind of rail.
type Transport struct {
	// Name of the transport, in the tunable btl and in the addresses that ranks publish.
	Name string
	// Priority orders transports by default: the tunable btl lists those of a higher priority
	// first.
	Priority int
	Reach    Reach

	// Open makes the rails of this rank. It is called under the lock of the rank's engine. A rail
	// whose device or address may come later is made, and Absent. The error says in one line why
	// there is none.
	Open func(env *Env) (Opened, error)

	// Leads says how well each rail of this rank leads to each rail of a peer, by their places in
	// the lists of both ranks' addresses (btl.Module's Address): 0 is not at all. Pairs that have
	// not the highest value are spare (Pair.Level). Both ranks have to find the same. nil: every
	// rail leads to every other one.
	Leads func(ours, theirs [][]byte) func(local, remote int) int
	// Explain says in one line why no rail leads to a peer's. nil: there is nothing to explain.
	Explain func(local, remote [][]byte) string

	// Choices are the tunables by which a user chooses devices or addresses, the one that names
	// those to be used first.
	Choices []string
	// Rare: most machines lack the devices. Their absence is reported after other errors, or not at
	// all, unless the user asked for the transport.
	Rare bool
	// Abundant: a machine may have many devices or addresses that are of no use. Those that were
	// left out are reported only if the user named the ones to be used, or has set one of Demands.
	Abundant bool
	// Demands are the tunables by which a user says how many rails to make, and from what.
	Demands []string
	// Unknown lists the user's words in Choices that name nothing on this machine, a line for each
	// tunable. nil: there are none.
	Unknown func(settings tunable.Set) []string
	// Nobodys says in one line which of the user's words in Choices name nothing that any machine
	// of the job has, and are not waited for; "" if there are none. addresses are those of all
	// rails of the transport of all ranks. nil: there are no such words.
	Nobodys func(settings tunable.Set, addresses [][]byte) string
}

// Env is what Open makes rails from.
type Env struct {
	// Rank of this process and Size of the job.
	Rank, Size int
	// LocalRank is how many ranks of the same machine are lower, as far as the manager says.
	LocalRank int
	Settings  tunable.Set
	// Events is the layer above.
	Events btl.Events
	// Wakeup is what the rank's engine sleeps on.
	Wakeup *progress.PipeWakeup
	// AsyncProgress returns the function that asks for a progress call soon, from any goroutine,
	// though the rank's program may compute. A transport that calls AsyncProgress makes the rank
	// keep a goroutine for it.
	AsyncProgress func() func()
	// Moved, if not nil, is called under the lock of the rank's engine when the Address of a module
	// has changed. A module may have a method PeerMoved(peer int, address []byte), which is called
	// under that lock when the address of a peer's module has; the next Connect gets it anyway.
	Moved func()
	// Devices, if not nil, replaces the layer of devices that a transport is about to use: a test
	// makes devices fail by it.
	Devices func(devices any) any
}

// Opened is what Open has made.
type Opened struct {
	Rails []Rail
	// LeftOut says, a line for each, why devices or addresses of this machine are no rails, though
	// others are.
	LeftOut []error
}

// Rail is one rail of a rank.
type Rail struct {
	Module btl.Module
	// Port names the device or address for messages, "" if there is nothing to name.
	Port string
	// Wires are the network interfaces of this machine that the rail uses. A rail of another
	// transport that has one of them shares its bandwidth. nil: not known, or none.
	Wires []string
	// Absent says why the device or address cannot be used now, nil if it can. It looks each time.
	// remote: it has to lead to other machines. A nil Absent is that of a rail that is never
	// absent. The caller holds the lock of the rank's engine.
	Absent func(remote bool) error
}

// Chosen is what the user has set of some tunables, for messages: "tcp.include=eth0,
// tcp.exclude=10.0.0.0/8". It is "" if all have their defaults.
func Chosen(settings tunable.Set, keys ...string) string {
	var list []string
	for _, key := range keys {
		if text, origin := settings.Text(key); origin != tunable.FromDefault {
			list = append(list, key+"="+text)
		}
	}
	return strings.Join(list, ", ")
}
