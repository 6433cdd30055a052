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
// What a rank does with a message about a rail depends only on its own state and on the epochs, not
// on the sender's state: another incarnation than the present one is not answered (PROBE), or
// changes nothing (PROBEACK, RAILDOWNACK); one that is not older fails (RAILDOWN). So the sender's
// rail may be in any state that it can reach. Two examples: a rank answers RAILDOWN of an
// incarnation that it has not joined at once, and may join it afterwards, while the peer's half
// drains (RAILDOWNACK, sender up, receiver down); a BTL hands up what was delivered by an
// incarnation that is over, after the BML has made the next one (newer). A RAILDOWN that asks the
// peer to close an alternate comes from a rail that is up.
//
// Messages between two ranks are not counted once one has lost the other. Some combinations are
// impossible. When a RNDVRESTARTNOTIFY, RNDVRESTARTACK or RNDVRESTARTNACK arrives, the send is
// restarting: it stays so until it is answered, and answers arrive once and in order. When an ACK
// or PUT arrives, the send waits for it.
//
// A FIN to a receive comes from a send that is writing, or that is sending: after a restart, or
// because it could use none of the keys, it sent fragments to a receive that waits for FIN. Such a
// receive ends by FIN only, and a send restarts before it sends that. So RNDVRESTARTNOTIFY finds
// the receive gone, and is answered by RNDVRESTARTNACK, only if the receive has ended with an
// error: all rails refused its PUT, though one had delivered it.
func Possible() []Combination { return combinations(often) }

// Rare lists the combinations that only larger numbers of seeds have reached.
func Rare() []Combination { return combinations(rare) }

// IsOfFailover reports whether the lists cover the fragments with a name.
func IsOfFailover(name string) bool {
	name, _, _ = strings.Cut(name, " ")
	return strings.HasPrefix(name, "RAILDOWN") || strings.HasPrefix(name, "PROBE") || strings.HasPrefix(name, "RNDVRESTART") ||
		slices.Contains([]string{"CREDIT", "FIN", "ACK", "PUT"}, name)
}

// combinations parses a list. The last field of a line lists alternatives.
func combinations(list string) []Combination {
	var all []Combination
	for line := range strings.Lines(strings.TrimSpace(list)) {
		fields := strings.Split(strings.TrimSpace(line), " | ")
		last := len(fields) - 1
		for alternative := range strings.SplitSeq(fields[last], "; ") {
			f := append(fields[:last:last], alternative, "", "")
			all = append(all, Combination{f[0], f[1], f[2]})
		}
	}
	return all
}

const often = `
ACK again; ACK early; FIN again; FIN early; PUT again; PUT early
RNDVRESTARTACK again; RNDVRESTARTACK early
RNDVRESTARTNOTIFY again; RNDVRESTARTNOTIFY early
ACK | gone | waiting for the receiver
ACK | receiving | waiting for the receiver
CREDIT | reachable | reachable
CREDIT | no path | reachable; no path
FIN | gone | receiving; waiting for the receiver
FIN | sending | receiving
FIN | writing | receiving
PROBE | down | down, older; failing; probing
PROBE | failing | down, older; failing; probing
PROBE | probing | down; down, older; failing; gone; probing; up
PROBE | probing, newer | failing
PROBE | up | probing
PROBEACK | down | failing; probing; up
PROBEACK | failing | failing; probing
PROBEACK | probing | failing; probing
PROBEACK | probing, newer | failing
PROBEACK | up | failing; probing; up
PUT | receiving | waiting for the receiver
RAILDOWN | down | down; down, newer; down, older; failing; failing, newer; failing, older; gone
RAILDOWN | down | probing; probing, newer; up; up, newer
RAILDOWN | down, newer | down; down, newer; failing, newer; probing, newer; up, newer
RAILDOWN | failing | down; down, newer; down, older; failing; probing; probing, newer; up
RAILDOWN | failing, newer | down, newer; failing, newer; probing, newer; up, newer
RAILDOWN | probing, newer | down; down, newer; down, older; failing; failing, newer; probing
RAILDOWN | probing, newer | probing, newer; up; up, newer
RAILDOWN | up, newer | down, newer; probing, newer; up, newer
RAILDOWNACK | down | down; down, newer; failing; probing, newer
RAILDOWNACK | down, newer | down; down, newer; failing; failing, newer; probing, newer; up, newer
RAILDOWNACK | down, older | down; failing; probing, newer
RAILDOWNACK | failing, newer | down; down, newer; failing, newer; probing, newer; up, newer
RAILDOWNACK | probing, newer | down; down, newer; failing; failing, newer; probing, newer; up, newer
RAILDOWNACK | up, newer | down; down, newer; failing, newer; probing, newer; up, newer
RNDVRESTARTACK | receiving | restarting
RNDVRESTARTNOTIFY | restarting | receiving
`

const rare = `
CREDIT | failing | failing
CREDIT | no path | failing
CREDIT | reachable | failing; no path
FIN | eager | receiving
FIN | pending | receiving
FIN | waiting for the receiver | receiving
PROBE | down | down; failing, newer; failing, older; gone; probing, newer; probing, older; unknown
PROBE | down | up; up, newer
PROBE | down, newer | down; down, newer; down, older; failing; failing, newer; failing, older
PROBE | down, newer | probing; probing, newer; probing, older; unknown; up, newer
PROBE | failing | down; failing, newer; failing, older; gone; probing, newer; unknown; up; up, newer; up, older
PROBE | failing, newer | down; down, newer; down, older; failing; failing, newer; failing, older
PROBE | failing, newer | probing; probing, newer
PROBE | probing | failing, older; probing, newer; probing, older; unknown; up, older
PROBE | probing, newer | down; down, newer; down, older; failing, newer; failing, older; gone
PROBE | probing, newer | probing; probing, newer; probing, older; unknown; up; up, newer
PROBE | up | failing; up
PROBE | up, newer | failing, newer; probing, newer
PROBEACK | down | down
PROBEACK | down, newer | failing; probing; up
PROBEACK | failing | down; up
PROBEACK | failing, newer | failing; probing; up
PROBEACK | probing | up
PROBEACK | probing, newer | down; probing; up
RAILDOWN | down | probing, older; unknown; up, older
RAILDOWN | down, newer | down, older; failing; failing, older; gone; probing; probing, older
RAILDOWN | down, newer | unknown; up; up, older
RAILDOWN | failing | failing, newer; failing, older; gone; probing, older; unknown; up, newer
RAILDOWN | failing | up, older
RAILDOWN | failing, newer | down; down, older; failing; failing, older; gone; probing; unknown; up
RAILDOWN | failing, newer | probing, older; up, older
RAILDOWN | probing | down; down, older; probing; probing, older; up; up, older
RAILDOWN | probing, newer | failing, older; gone; probing, older; unknown; up, older
RAILDOWN | up | down; down, older; failing; probing; probing, older; up
RAILDOWN | up, newer | failing, newer
RAILDOWNACK | down | failing, newer; probing
RAILDOWNACK | down, older | down, newer; failing, newer
RAILDOWNACK | failing | down; down, newer; failing; failing, newer; probing, newer
RAILDOWNACK | failing, newer | failing
RAILDOWNACK | failing, older | down; down, newer; probing, newer
RAILDOWNACK | probing | down; down, newer; failing; failing, newer; probing, newer
RAILDOWNACK | probing, older | down; down, newer; failing; failing, newer; probing, newer
RAILDOWNACK | up | down; failing
RAILDOWNACK | up, newer | failing
RNDVRESTARTACK | gone | restarting
RNDVRESTARTNACK again; RNDVRESTARTNACK early
RNDVRESTARTNACK | gone | restarting
RNDVRESTARTNOTIFY | gone | receiving
RNDVRESTARTNOTIFY | restarting | gone
`
