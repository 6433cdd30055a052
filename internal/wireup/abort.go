package wireup

import (
	"fmt"
	"slices"
	"strconv"
)

// Abort is a rank's request to end the job.
type Abort struct {
	Rank, Code int
	Message    string // the rank's text for people; not every process manager shows it
	Why        Why
}

// Why is the reason why a rank ends the job. Only our own manager understands it.
type Why uint8

const (
	Called   Why = iota // the program has called Abort
	Returned            // the program has returned the error that is the message
	Panicked            // the program has panicked with the value that is the message
	// Follows is Returned with an error that reports the earlier failure of another rank. That rank
	// usually ends the job soon, too.
	Follows
)

// whyWords are the values of the key whyKey.
var whyWords = [...]string{Called: "called", Returned: "returned", Panicked: "panicked", Follows: "follows"}

const whyKey = "mpigo_why"

// Abort asks the manager to end the job with a.Code as its exit status; a.Rank is ignored. There is
// no answer to wait for: the manager is about to kill this process. After Abort the caller exits
// with the code, in case the manager does not.
func (c *Client) Abort(a Abort) error {
	pairs := []string{"exitcode", strconv.Itoa(a.Code)}
	if a.Message != "" {
		pairs = append(pairs, "message", escapeMessage(a.Message))
	}
	if a.Why != Called {
		pairs = append(pairs, whyKey, whyWords[a.Why])
	}
	if err := c.write(formatLine("abort", pairs...)); err != nil {
		return fmt.Errorf("wireup: abort: %w", c.orClosed(err))
	}
	return nil
}

// why returns the value of whyKey in a request, or Called if it is missing or unknown.
func (m message) why() Why {
	word, _ := m.get(whyKey)
	return Why(max(0, slices.Index(whyWords[:], word)))
}
