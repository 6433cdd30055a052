package comm

import (
	"net"

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
	_ = introspect.Greet(conn) // before Init returns; it fits into the empty buffer of the socket
	go serve(conn, newDescriber(j))
}

// serve ends with the connection. The launcher sees a question that breaks the protocol as the end
// of the connection.
func serve(conn net.Conn, rank introspect.Describer) {
	defer conn.Close()
	_ = introspect.Serve(conn, rank)
}
