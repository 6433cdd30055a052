package tunable

// The names of the transports that are built in: the values of the tunable btl. The transports
// describe themselves under these names (comm/internal/rails/builtin.go lists them). They are here
// because the launcher checks the tunable, and has no transports.
const (
	TransportSelf    = "self"
	TransportSM      = "sm"
	TransportIBVerbs = "ibverbs"
	TransportTCP     = "tcp"
)

// Transports lists the transports that are built in, in their order of preference by default. The
// caller owns the result.
func Transports() []string {
	return []string{TransportSelf, TransportSM, TransportIBVerbs, TransportTCP}
}
