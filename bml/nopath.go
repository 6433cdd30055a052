package bml

import (
	"fmt"
	"slices"
)

// maxCauses is the most causes that the error of a peer without a path lists.
const maxCauses = 4

// whyNoPath is the error of the last rail to fail, with the causes of the others.
func (pr *Peer) whyNoPath() error {
	err, told, more := pr.cause, []string{pr.cause.Error()}, 0
	for i := range pr.rails {
		why := pr.rails[i].recovery.cause
		switch {
		case why == nil || slices.Contains(told, why.Error()):
		case len(told) == maxCauses:
			more++
		default:
			told = append(told, why.Error())
			err = fmt.Errorf("%w; %v", err, why)
		}
	}
	if more > 0 {
		err = fmt.Errorf("%w; and %d more", err, more)
	}
	return err
}
