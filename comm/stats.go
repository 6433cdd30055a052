package comm

import "github.com/mpigo/mpigo/pml"

// Stats counts what a rank's message layer did since the job began. With the setting stats=true each rank prints its own at
// Finalize. Package pml has its fields: go doc github.com/mpigo/mpigo/pml.Stats.
type Stats = pml.Stats

// RailStatus is how a way to another rank is. Package pml has its fields: go doc github.com/mpigo/mpigo/pml.RailStatus.
type RailStatus = pml.RailStatus

// Stats returns the counters of this rank, whatever the communicator. It answers for ever.
func (c *Comm) Stats() Stats {
	if c.isNull() {
		return Stats{}
	}
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	return c.job.pml.Stats()
}

// Rails lists the ways from this rank to others that have been in touch with it, by rank of the job: those that can
// be used, and those that have failed and may come back.
func (c *Comm) Rails() []RailStatus {
	if c.isNull() {
		return nil
	}
	c.job.eng.Lock()
	defer c.job.eng.Unlock()
	return c.job.pml.Rails()
}
