package comm

import (
	"net"
	"os"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/wireup"
)

// serveIntrospection answers the launcher's questions about this rank, on a goroutine of its own,
// until close closes the connection. Lock held.
func (j *job) serveIntrospection(client *wireup.Client) {
	if client == nil || !client.HasOwnManager() {
		return // an inherited variable may be of another job
	}
	conn := introspect.Inherited()
	if conn == nil {
		return
	}
	j.introspection = conn
	go serve(conn, &describer{j})
}

// serve ends with the connection. The launcher sees a question that breaks the protocol as the end
// of the connection.
func serve(conn net.Conn, rank introspect.Describer) {
	defer conn.Close()
	_ = introspect.Serve(conn, rank)
}

type describer struct{ job *job }

func (d *describer) observed() *observed { return &observed{job: d.job} }

func (d *describer) Progress() uint64 { return d.observed().Progress() }

func (d *describer) Report() introspect.Report {
	host, _ := os.Hostname()
	o := d.observed()
	return introspect.Report{Rank: d.job.rank, Size: d.job.size, PID: os.Getpid(), Host: host, Snapshot: o.Snapshot(), Unreceived: o.Unreceived()}
}

func (d *describer) Metrics() introspect.Metrics { return introspect.Metrics{Rank: d.job.rank} }
