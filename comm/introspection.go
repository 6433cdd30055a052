package comm

import "github.com/mpigo/mpigo/pml"

// Types of package pml that users meet. They are aliases, so programs need not import it.
type (
	// Stats counts what the message layer of a rank did since the job began. With the setting
	// stats=true each rank prints its own at Finalize, as a table on standard error, and with
	// stats=json as a JSON object on one line. Its fields: go doc github.com/mpigo/mpigo/pml.Stats.
	Stats = pml.Stats

	// RailStatus is the state of a rail, which is a path to another rank. pml.RailStatus is itself
	// an alias, of bml.RailStatus. Its fields: go doc github.com/mpigo/mpigo/bml.RailStatus.
	RailStatus = pml.RailStatus
)

// Stats returns the counters of this rank, whatever the communicator. It works after Finalize and
// Free too.
func (c *Comm) Stats() Stats {
	if c.isNull() {
		return Stats{}
	}
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	return c.job.pml.Stats()
}

// Rails lists the rails from this rank to the ranks that it has been in touch with, by rank of the
// job: rails that can be used, and rails that have failed and may come back.
func (c *Comm) Rails() []RailStatus {
	if c.isNull() {
		return nil
	}
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	return c.job.pml.Rails()
}
