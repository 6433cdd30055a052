package calls

// Kind is the kind of a call: its name.
type Kind uint8

// The kinds that count on a fast path. A Recorder makes the others when they are first called.
const (
	Send Kind = iota
	Recv
	Isend
	Irecv
	Wait
	WaitAll
)

// fixedNames are the names of the constants.
func fixedNames() []string { return []string{"send", "recv", "isend", "irecv", "wait", "wait all"} }

// maxKinds bounds the kinds of a recorder. Calls of further names would count as the last kind.
const maxKinds = 128
