package simulation

import (
	"slices"
	"strings"
)

// Possible lists the combinations of states that a thousand seeds reach: a fragment of failover,
// and the states at its sender and at its receiver, when the fragment arrives, of the request, rail
// or peer that the fragment is about. "early" is a fragment before its turn, "again" a duplicate.
// For a rail, "older" and "newer" compare the present incarnation with that of the fragment.
//
// Some combinations are impossible. When a RNDVRESTARTNOTIFY, RNDVRESTARTACK or RNDVRESTARTNACK
// arrives, the send is restarting: it stays so until it is answered, and answers arrive once and in
// order. When an ACK or PUT arrives, the send waits for it.
func Possible() []Combination { return combinations(often) }

// Rare lists the combinations that only larger numbers of seeds have reached.
func Rare() []Combination { return combinations(rare) }

// IsOfFailover reports whether the lists cover the fragments with a name.
func IsOfFailover(name string) bool {
	name, _, _ = strings.Cut(name, " ")
	return strings.HasPrefix(name, "RAILDOWN") || strings.HasPrefix(name, "PROBE") || strings.HasPrefix(name, "RNDVRESTART") ||
		slices.Contains([]string{"CREDIT", "FIN", "ACK", "PUT"}, name)
}

func combinations(list string) []Combination {
	var all []Combination
	for line := range strings.Lines(list) {
		f := append(strings.Split(strings.TrimSpace(line), " | "), "", "")
		if f[0] != "" {
			all = append(all, Combination{f[0], f[1], f[2]})
		}
	}
	return all
}

const often = `
ACK again
ACK early
ACK | gone | waiting for the receiver
ACK | receiving | waiting for the receiver
CREDIT | reachable | reachable
CREDIT | no path | reachable
CREDIT | no path | no path
FIN again
FIN early
FIN | gone | receiving
FIN | gone | waiting for the receiver
FIN | writing | receiving
PROBE | down | down, older
PROBE | down | failing
PROBE | down | probing
PROBE | failing | down, older
PROBE | failing | failing
PROBE | failing | probing
PROBE | probing | down
PROBE | probing | down, older
PROBE | probing | failing
PROBE | probing | gone
PROBE | probing | probing
PROBE | probing | unknown
PROBE | probing | up
PROBE | probing, newer | failing
PROBE | up | probing
PROBEACK | down | failing
PROBEACK | down | probing
PROBEACK | down | up
PROBEACK | failing | failing
PROBEACK | failing | probing
PROBEACK | probing | failing
PROBEACK | probing | probing
PROBEACK | probing, newer | failing
PROBEACK | up | failing
PROBEACK | up | probing
PROBEACK | up | up
PUT again
PUT early
PUT | receiving | waiting for the receiver
RAILDOWN | down | down
RAILDOWN | down | down, newer
RAILDOWN | down | down, older
RAILDOWN | down | failing
RAILDOWN | down | failing, newer
RAILDOWN | down | failing, older
RAILDOWN | down | gone
RAILDOWN | down | probing
RAILDOWN | down | probing, newer
RAILDOWN | down | unknown
RAILDOWN | down | up
RAILDOWN | down | up, newer
RAILDOWN | down, newer | down
RAILDOWN | down, newer | down, newer
RAILDOWN | down, newer | failing, newer
RAILDOWN | down, newer | probing, newer
RAILDOWN | down, newer | up, newer
RAILDOWN | failing | down
RAILDOWN | failing | down, newer
RAILDOWN | failing | down, older
RAILDOWN | failing | failing
RAILDOWN | failing | probing
RAILDOWN | failing | probing, newer
RAILDOWN | failing | up
RAILDOWN | failing, newer | down, newer
RAILDOWN | failing, newer | failing, newer
RAILDOWN | failing, newer | probing, newer
RAILDOWN | failing, newer | up, newer
RAILDOWN | probing, newer | down
RAILDOWN | probing, newer | down, newer
RAILDOWN | probing, newer | down, older
RAILDOWN | probing, newer | failing
RAILDOWN | probing, newer | failing, newer
RAILDOWN | probing, newer | probing
RAILDOWN | probing, newer | probing, newer
RAILDOWN | probing, newer | up
RAILDOWN | probing, newer | up, newer
RAILDOWN | up, newer | down, newer
RAILDOWN | up, newer | probing, newer
RAILDOWN | up, newer | up, newer
RAILDOWNACK | down | down
RAILDOWNACK | down | down, newer
RAILDOWNACK | down | failing
RAILDOWNACK | down | probing, newer
RAILDOWNACK | down, newer | down
RAILDOWNACK | down, newer | down, newer
RAILDOWNACK | down, newer | failing
RAILDOWNACK | down, newer | failing, newer
RAILDOWNACK | down, newer | probing, newer
RAILDOWNACK | down, newer | up, newer
RAILDOWNACK | down, older | down
RAILDOWNACK | down, older | failing
RAILDOWNACK | down, older | probing, newer
RAILDOWNACK | failing, newer | down
RAILDOWNACK | failing, newer | down, newer
RAILDOWNACK | failing, newer | failing, newer
RAILDOWNACK | failing, newer | probing, newer
RAILDOWNACK | failing, newer | up, newer
RAILDOWNACK | probing, newer | down
RAILDOWNACK | probing, newer | down, newer
RAILDOWNACK | probing, newer | failing
RAILDOWNACK | probing, newer | failing, newer
RAILDOWNACK | probing, newer | probing, newer
RAILDOWNACK | probing, newer | up, newer
RAILDOWNACK | up, newer | down
RAILDOWNACK | up, newer | down, newer
RAILDOWNACK | up, newer | failing, newer
RAILDOWNACK | up, newer | probing, newer
RAILDOWNACK | up, newer | up, newer
RNDVRESTARTACK again
RNDVRESTARTACK early
RNDVRESTARTACK | receiving | restarting
RNDVRESTARTNACK again
RNDVRESTARTNACK early
RNDVRESTARTNACK | gone | restarting
RNDVRESTARTNOTIFY again
RNDVRESTARTNOTIFY early
RNDVRESTARTNOTIFY | restarting | gone
RNDVRESTARTNOTIFY | restarting | receiving
`

const rare = `
CREDIT | failing | failing
CREDIT | reachable | failing
CREDIT | reachable | no path
FIN | eager | receiving
FIN | waiting for the receiver | receiving
PROBE | down | down
PROBE | down | failing, newer
PROBE | down | failing, older
PROBE | down | gone
PROBE | down | probing, newer
PROBE | down | unknown
PROBE | down | up
PROBE | down | up, newer
PROBE | down, newer | down, older
PROBE | down, newer | failing
PROBE | down, newer | failing, newer
PROBE | down, newer | probing
PROBE | down, newer | probing, newer
PROBE | down, newer | unknown
PROBE | failing | down
PROBE | failing | probing, newer
PROBE | failing | unknown
PROBE | failing | up
PROBE | failing, newer | down, older
PROBE | failing, newer | probing, newer
PROBE | probing | failing, older
PROBE | probing | probing, newer
PROBE | probing | probing, older
PROBE | probing | up, older
PROBE | probing, newer | down
PROBE | probing, newer | down, older
PROBE | probing, newer | failing, newer
PROBE | probing, newer | gone
PROBE | probing, newer | probing
PROBE | probing, newer | probing, newer
PROBE | probing, newer | unknown
PROBE | probing, newer | up
PROBE | up | failing
PROBE | up | up
PROBE | up, newer | failing, newer
PROBE | up, newer | probing, newer
PROBEACK | down, newer | failing
PROBEACK | down, newer | probing
PROBEACK | failing | up
PROBEACK | probing | up
PROBEACK | probing, newer | probing
PROBEACK | probing, newer | up
RAILDOWN | down | probing, older
RAILDOWN | down | up, older
RAILDOWN | down, newer | down, older
RAILDOWN | down, newer | failing
RAILDOWN | down, newer | failing, older
RAILDOWN | down, newer | gone
RAILDOWN | down, newer | probing
RAILDOWN | down, newer | probing, older
RAILDOWN | down, newer | unknown
RAILDOWN | down, newer | up
RAILDOWN | down, newer | up, older
RAILDOWN | failing | failing, newer
RAILDOWN | failing | failing, older
RAILDOWN | failing | gone
RAILDOWN | failing | probing, older
RAILDOWN | failing | unknown
RAILDOWN | failing | up, newer
RAILDOWN | failing | up, older
RAILDOWN | failing, newer | down
RAILDOWN | failing, newer | down, older
RAILDOWN | failing, newer | failing
RAILDOWN | failing, newer | failing, older
RAILDOWN | failing, newer | probing
RAILDOWN | failing, newer | up
RAILDOWN | probing | down
RAILDOWN | probing | down, older
RAILDOWN | probing | probing
RAILDOWN | probing | probing, older
RAILDOWN | probing, newer | failing, older
RAILDOWN | probing, newer | gone
RAILDOWN | probing, newer | probing, older
RAILDOWN | probing, newer | unknown
RAILDOWN | probing, newer | up, older
RAILDOWN | up | probing
RAILDOWN | up, newer | failing, newer
RAILDOWNACK | down | failing, newer
RAILDOWNACK | down, older | down, newer
RAILDOWNACK | down, older | failing, newer
RAILDOWNACK | failing | down
RAILDOWNACK | failing | down, newer
RAILDOWNACK | failing | failing, newer
RAILDOWNACK | failing | probing, newer
RAILDOWNACK | failing, newer | failing
RAILDOWNACK | failing, older | down
RAILDOWNACK | failing, older | down, newer
RAILDOWNACK | probing | down
RAILDOWNACK | probing | down, newer
RAILDOWNACK | probing | failing
RAILDOWNACK | probing | probing, newer
RAILDOWNACK | probing, older | down
RAILDOWNACK | probing, older | down, newer
RAILDOWNACK | probing, older | failing
RAILDOWNACK | probing, older | probing, newer
RAILDOWNACK | up, newer | failing
RNDVRESTARTNOTIFY | gone | receiving
`
